from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from lxml import etree

from fmware.datasets import ParameterError
from fmware.datasets.matching import MATCHING_QUERIES, Cardinality, MatchingQuery, matching

if TYPE_CHECKING:
    from lxml.etree import _Element

FEW = MatchingQuery("MQ5", Cardinality(9, 4), Cardinality(31, 27), 2)


@dataclass(slots=True)
class Vist:
    """A trie of preorder sequences, made without the project's own labels."""

    places: dict[tuple[int, str, int], int] = field(default_factory=dict)
    anchors_above: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])
    labels: dict[str, Counter[int]] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)

    def take(self, record: _Element, anchor: str, inputs: int) -> None:
        place = 0
        for node in record.iter():
            tag, depth = str(node.tag), sum(1 for _ in node.iterancestors())
            above = self.anchors_above[place]
            place = self.places.setdefault((place, tag, depth), len(self.places) + 1)
            if place == len(self.anchors_above):
                self.anchors_above.append(above | {place} if tag == anchor else above)
            self.labels.setdefault(tag, Counter())[place] += 1
            if tag == anchor and len(self.inputs) < inputs:
                self.inputs.append(place)


def labelled(query: MatchingQuery) -> Vist:
    found = Vist()
    for record in etree.fromstring(b"".join(matching([query]))):
        found.take(record, query.anchor, query.inputs.nodes)
    return found


@pytest.mark.parametrize(
    "query",
    [*MATCHING_QUERIES, *(query.scaled(3) for query in MATCHING_QUERIES[:3]), FEW, FEW.scaled(2)],
    ids=lambda query: f"{query.name} {query.inputs} {query.local}",
)
def test_nodes_labels_and_candidates_are_as_many_as_asked_for(query: MatchingQuery) -> None:
    found = labelled(query)
    matches, inputs = found.labels[query.match], set(found.inputs)
    assert (len(found.inputs), len(inputs)) == (query.inputs.nodes, query.inputs.labels)
    assert (matches.total(), len(matches)) == (query.local.nodes, query.local.labels)
    candidates = sum(
        count * len(found.anchors_above[place] & inputs) for place, count in matches.items()
    )
    assert candidates == query.candidates


def test_the_queries_are_those_of_the_table() -> None:
    assert [f"{q.inputs} {q.local} {q.candidates}" for q in MATCHING_QUERIES] == [
        "1:1 5821:5280 5821",
        "5821:5280 1:1 1",
        "222:1 2:1 2",
        "12897:1 4:2 4",
        "463:224 5821:5280 2",
        "12897:1 5821:5280 5790",
    ]


def test_a_scale_keeps_few_labels_and_multiplies_many() -> None:
    scaled = [q.scaled(10) for q in MATCHING_QUERIES]
    assert [f"{q.inputs} {q.local} {q.candidates}" for q in scaled] == [
        "10:10 58210:52800 58210",
        "58210:52800 10:10 10",
        "2220:1 20:1 20",
        "128970:1 40:2 40",
        "4630:2240 58210:52800 20",
        "128970:1 58210:52800 57900",
    ]


def test_every_query_has_tags_of_its_own() -> None:
    tags = [tag for q in MATCHING_QUERIES for tag in (q.record, q.anchor, q.match)]
    assert len(set(tags)) == len(tags)


def test_no_anchor_is_empty() -> None:
    root = etree.fromstring(b"".join(matching([FEW])))
    assert all(len(anchor) for anchor in root.iter(FEW.anchor))


def test_a_scale_below_one_is_refused() -> None:
    with pytest.raises(ParameterError, match="scale"):
        MATCHING_QUERIES[0].scaled(0)
