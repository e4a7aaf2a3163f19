"""Six matching queries by their cardinalities, and a corpus that has exactly those.

The queries are MQ1 to MQ6 of Candan and others, "FMware" (2006), Table 1. Each joins the nodes that
messages bring, local nodes of one tag (the anchors), with their descendants of another tag (the
matches). Given are, of both, how many nodes there are and how many SES labels of the ViST scheme
these have, and how many candidates the labels of the anchors yield. How the corpus looks else was
not told, so it is as plain as can be.

A scale multiplies all nodes. Labels follow where a set had about one to a node or to two, because
more of such records means more structures. Where a set had one label or two, it keeps them, because
more of such records are more of the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING

from fmware.datasets.chance import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

INFINITE = float("inf")
_CHUNK = 1 << 17
_BASE = 128
_GROUP = 8
"""Matches in a record that has no anchor."""


@dataclass(frozen=True, slots=True)
class Cardinality:
    """Nodes of a tag, and the SES labels they have. `grows`: labels follow the scale, too."""

    nodes: int
    labels: int
    grows: bool = True

    def scaled(self, scale: int) -> Cardinality:
        labels = self.labels * scale if self.grows else self.labels
        return replace(self, nodes=self.nodes * scale, labels=labels)

    def __str__(self) -> str:
        return f"{self.nodes}:{self.labels}"


@dataclass(frozen=True, slots=True)
class MatchingQuery:
    """anchor//match. The inputs are the first nodes of the anchor's tag, in document order."""

    name: str
    inputs: Cardinality
    local: Cardinality
    candidates: int

    @property
    def record(self) -> str:
        """The tag of its records."""
        return self.name.lower()

    @property
    def anchor(self) -> str:
        return f"anchor{self.name[2:]}"

    @property
    def match(self) -> str:
        return f"match{self.name[2:]}"

    def scaled(self, scale: int) -> MatchingQuery:
        """The same query on more data."""
        check("scale", scale, 1, INFINITE)
        return replace(
            self,
            inputs=self.inputs.scaled(scale),
            local=self.local.scaled(scale),
            candidates=self.candidates * scale,
        )


_ONE = Cardinality(1, 1)
_MANY = Cardinality(5821, 5280)
_ALIKE = Cardinality(12897, 1, grows=False)

MATCHING_QUERIES = (
    MatchingQuery("MQ1", _ONE, _MANY, 5821),
    MatchingQuery("MQ2", _MANY, _ONE, 1),
    MatchingQuery("MQ3", Cardinality(222, 1, grows=False), Cardinality(2, 1, grows=False), 2),
    MatchingQuery("MQ4", _ALIKE, Cardinality(4, 2, grows=False), 4),
    MatchingQuery("MQ5", Cardinality(463, 224), _MANY, 2),
    MatchingQuery("MQ6", _ALIKE, _MANY, 5790),
)


def matching(queries: Iterable[MatchingQuery]) -> Iterator[bytes]:
    """One document, a root `corpus` with the records of the queries, in chunks."""
    parts, held = ["<corpus>\n"], 0
    for query in queries:
        for inside in _insides(query):
            parts.append(f"<{query.record}>{inside}</{query.record}>\n")
            held += len(inside)
            if held >= _CHUNK:
                yield "".join(parts).encode()
                parts, held = [], 0
    yield "".join([*parts, "</corpus>\n"]).encode()


def _insides(query: MatchingQuery) -> Iterator[str]:
    if query.candidates > query.inputs.nodes:
        yield from _catalogues(query)
        return
    yield from _entries(query)
    inside = _labels_inside(query)
    yield from _loose(query, query.local.nodes - query.candidates, query.local.labels - inside)


def _catalogues(query: MatchingQuery) -> Iterator[str]:
    """Anchors with many matches each.

    Within a record no two nodes have the same label. So those that share theirs stand in a second
    record, which begins like the first and ends sooner; its anchor is none of the inputs.
    """
    number = query.inputs.nodes
    codes = _codes(number)
    labels = query.local.labels // number
    for many in (labels, query.local.nodes // number - labels):
        body = "".join(f"<{query.match}>{i}</{query.match}>" for i in range(many))
        for code in codes:
            yield f"{code}<{query.anchor}>{body}</{query.anchor}>"


def _entries(query: MatchingQuery) -> Iterator[str]:
    """A record for each anchor: what tells labels of anchors apart stands before it, what tells
    labels of matches apart in it. Matches stand in some anchors, far from each other. No anchor is
    empty: that nothing stands in an empty one would be seen from its AD label alone."""
    outer, inner = _codes(query.inputs.labels), [""]
    step = query.inputs.labels // query.candidates
    if query.inputs.labels == 1:
        inner = _codes(_labels_inside(query))
        step = query.inputs.nodes // query.candidates
    for number in range(query.inputs.nodes):
        at, off = divmod(number, step)
        body = f"<name>{number}</name>"
        if not off and at < query.candidates:
            body = f"{inner[at % len(inner)]}<{query.match}>{at}</{query.match}>{body}"
        yield f"{outer[number % len(outer)]}<{query.anchor}>{body}</{query.anchor}>"


def _labels_inside(query: MatchingQuery) -> int:
    """Labels of the matches that stand in anchors."""
    if query.inputs.labels > 1:
        return query.candidates
    return query.local.labels - (query.local.nodes - query.candidates)


def _loose(query: MatchingQuery, nodes: int, labels: int) -> Iterator[str]:
    """Records without an anchor; those behind begin like those before, so they share labels."""
    codes = _codes(-(-labels // _GROUP))
    for left in (labels, nodes - labels):
        for at, code in enumerate(codes):
            many = min(_GROUP, left - at * _GROUP)
            if many <= 0:
                break
            body = "".join(f"<{query.match}>{i}</{query.match}>" for i in range(many))
            yield f"{code}{body}"


def _codes(number: int) -> list[str]:
    """So many sequences of elements, all of one length, no two alike."""
    digits = [f"<d{i}/>" for i in range(_BASE)]
    length = 0
    while _BASE**length < number:
        length += 1
    return ["".join(code) for code in islice(product(digits, repeat=length), number)]
