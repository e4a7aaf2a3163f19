from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lxml import etree

from fmware.datasets import ParameterError, recursive
from tests.datasets.support import depth_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml.etree import _Element


def corpus(records: int, **parameters: Any) -> _Element:
    return etree.fromstring(b"".join(recursive(records, **parameters)))


def paths(element: _Element, above: str = "") -> Iterator[str]:
    for child in element:
        path = f"{above}/{child.tag!s}"
        yield path
        yield from paths(child, path)


def test_nearly_every_node_has_a_path_of_its_own() -> None:
    found = list(paths(corpus(100)))
    assert len(set(found)) / len(found) > 0.9


def test_records_have_keys_in_order() -> None:
    assert [e.get("key") for e in corpus(30)] == [f"r{i}" for i in range(30)]


def test_depth_fanout_tags_and_nodes_bound_the_trees() -> None:
    root = corpus(50, depth=9, fanout=2, tags=5, nodes=80)
    inner = [e for entry in root for e in entry.iterdescendants()]
    assert max(map(depth_of, root)) == 1 + 9
    assert max(len(e) for e in inner) == 2
    assert {e.tag for e in inner} == {f"t{i}" for i in range(5)}
    assert max(sum(1 for _ in e.iterdescendants()) for e in root) == 80


def test_the_same_seed_gives_the_same_corpus() -> None:
    assert list(recursive(20, seed=1)) == list(recursive(20, seed=1))
    assert list(recursive(20, seed=1)) != list(recursive(20, seed=2))


def test_no_records_is_an_empty_corpus() -> None:
    assert len(corpus(0)) == 0


@pytest.mark.parametrize("wrong", [{"depth": 0}, {"fanout": 0}, {"tags": 0}, {"nodes": 0}])
def test_parameters_out_of_range_are_refused_at_once(wrong: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        recursive(1, **wrong)
