from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from lxml import etree

from fmware.datasets import ParameterError, bibliography, keys, record
from fmware.datasets.bibliography import TAGS
from tests.datasets.support import carried

FORMS: list[dict[str, Any]] = [
    {},
    {"entities": False},
    {"entities": False, "encoding": "utf-8", "doctype": "none"},
    {"encoding": "utf-8"},
]


def corpus(**parameters: Any) -> bytes:
    return b"".join(bibliography(**parameters))


@pytest.mark.parametrize("form", FORMS)
def test_a_corpus_is_valid_in_every_form(form: dict[str, Any]) -> None:
    carried("bibliography").assertValid(etree.fromstring(corpus(records=3000, seed=2, **form)))


def test_entities_and_characters_say_the_same() -> None:
    canonical = {
        etree.tostring(etree.fromstring(corpus(records=500, **form)), encoding="unicode")
        for form in FORMS
    }
    assert len(canonical) == 1
    assert b"&uuml;" in corpus(records=500)
    assert b"&uuml;" not in corpus(records=500, entities=False)


def test_a_system_doctype_names_the_dtd() -> None:
    assert b'<!DOCTYPE dblp SYSTEM "bibliography.dtd">' in corpus(records=1, doctype="system")


def test_tag_and_key_are_a_function_of_seed_and_index() -> None:
    root = etree.fromstring(corpus(records=5000, seed=9))
    assert [(e.tag, e.get("key")) for e in root] == [record(9, i) for i in range(5000)]
    assert list(keys(9, 10, 20)) == [record(9, i).key for i in range(10, 20)]
    assert list(keys(8, 0, 100)) != list(keys(9, 0, 100))


def test_keys_are_unique() -> None:
    assert len(set(keys(1, 0, 200_000))) == 200_000


def test_records_vary_as_real_ones_do() -> None:
    root = etree.fromstring(corpus(records=8000, seed=1))
    assert {e.tag for e in root} == set(TAGS)
    assert len({tuple(child.tag for child in e) for e in root}) > 500
    assert {e.tag for e in root.iterfind("*/title//*")} == {"i", "sub", "sup", "tt"}
    authors: Counter[str] = Counter(root.xpath("*/author/text()"))
    assert authors.most_common(1)[0][1] > 20
    assert sum(count == 1 for count in authors.values()) > 1000


def test_citations_and_crossrefs_name_earlier_records() -> None:
    seen: set[str] = set()
    for entry in etree.fromstring(corpus(records=5000)):
        assert {e.text for e in entry.iter("cite", "crossref")} <= seen
        seen.add(str(entry.get("key")))


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert corpus(records=1000, seed=1) == corpus(records=1000, seed=1)
    assert corpus(records=1000, seed=1) != corpus(records=1000, seed=2)


def test_size_is_approached_and_counted() -> None:
    made = bibliography(size=700_000)
    data = b"".join(made)
    assert len(data) == pytest.approx(700_000, rel=0.02)
    assert made.bytes == len(data)
    assert made.records == len(etree.fromstring(data))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"size": 1, "records": 1},
        {"records": -1},
        {"records": 1, "doctype": "none"},
        {"records": 1, "doctype": "other"},
        {"records": 1, "encoding": "ascii"},
        {"records": 1, "authors": 0},
    ],
)
def test_parameters_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        bibliography(**wrong)


STREAM = """
import resource, sys
from fmware.datasets import bibliography
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = bibliography(size=int(sys.argv[1]))
next(made)
before = peak()
for _ in made: pass
print(peak() - before)
"""


def growth(size: int) -> int:
    """Kilobytes that a process grows by while it makes a corpus of so many bytes."""
    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(size)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return int(done.stdout)


def test_memory_does_not_grow_with_the_corpus() -> None:
    assert growth(40_000_000) < 8_000


@pytest.mark.slow
def test_memory_does_not_grow_with_a_large_corpus() -> None:
    assert growth(400_000_000) < 8_000
