from __future__ import annotations

from collections import Counter
from statistics import mean
from typing import Any

import pytest
from lxml import etree

from fmware.datasets import ParameterError, citations, keys, record
from tests.datasets.support import assert_valid, carried


def cited(count: int, **parameters: Any) -> list[tuple[str, str]]:
    made = citations(count, **parameters)
    return [
        (str(e.tag), str(e.get("key")))
        for m in made
        for e in etree.fromstring(m).iterfind(".//*[@key]")
    ]


def test_messages_are_valid_and_small() -> None:
    made = list(citations(500, records=1000, seed=2))
    assert_valid(carried("notices"), made)
    assert 500 < mean(map(len, made)) < 4000
    assert {etree.fromstring(m)[2].tag for m in made} == {"review", "order", "citation"}


def test_cited_elements_have_the_tag_and_key_of_the_record() -> None:
    known = {record(7, i) for i in range(300)}
    assert set(cited(200, records=300, corpus_seed=7, unknown=0)) <= known


@pytest.mark.parametrize("unknown", [0, 0.05, 0.5, 1])
def test_the_fraction_of_unknown_keys_is_as_asked_for(unknown: float) -> None:
    known = set(keys(0, 0, 5000))
    found = cited(1500, records=5000, unknown=unknown)
    assert mean(key not in known for _, key in found) == pytest.approx(unknown, abs=0.02)


def test_popularity_is_skewed() -> None:
    even = Counter(cited(1000, records=2000, skew=0, unknown=0))
    skewed = Counter(cited(1000, records=2000, skew=1, unknown=0))
    assert skewed.most_common(1)[0][1] > 10 * even.most_common(1)[0][1]


def test_the_same_seed_gives_the_same_messages() -> None:
    assert list(citations(50, records=9, seed=1)) == list(citations(50, records=9, seed=1))
    assert list(citations(50, records=9, seed=1)) != list(citations(50, records=9, seed=2))


@pytest.mark.parametrize("wrong", [{"records": 0}, {"records": 1, "unknown": 1.1}])
def test_parameters_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        citations(1, **wrong)
