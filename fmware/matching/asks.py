"""What the statements of a batch ask of the corpus, put together.

A crossing of a statement asks from anchors: nodes of messages, any number on each of its lines.
The anchors of a batch are numbered through, and crossings whose match parts begin with the same
step follow each other. So their anchors are one piece of all columns, and one batch for an
operator; the pairs that come back are told apart by number.

Where a join fails, each crossing is tried alone: what is wrong with the anchors of one is not said
of the others.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from cmatch import MatchError, Matches
from fmware.matching.columns import first_of_each
from fmware.matching.joins import Join
from fmware.matching.results import Match
from index import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cmatch import Inputs
    from fmware.matching.anchors import AnchorPart, Locals
    from fmware.matching.batch import Lines, Passed
    from fmware.matching.joins import Joins
    from fmware.matching.local import LocalPart
    from fmware.matching.results import Result
    from fmware.matching.tally import Tally
    from index import Index

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]

__all__ = ["Ask", "Asked", "Questions"]

NONE = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class Ask:
    """One crossing: of each of its anchors its line, the place of its message, and its row.

    Anchors are numbered from `first`. `pairs` are those with the first step of the match part, by
    number and in document order, each once; or there is the `failure` that kept them away. `found`
    are the local nodes of the whole batch, and `cut` says which of them are of its anchors.
    """

    part: LocalPart
    tally: Tally
    line: Ints
    place: Ints
    row: Ints
    first: int = 0
    found: Locals | None = None
    cut: tuple[int, int] = (0, 0)
    pairs: Matches = field(default_factory=Matches.empty)
    failure: Exception | None = None

    @property
    def locals(self) -> Locals:
        """The local nodes of its anchors."""
        assert self.found is not None
        return self.found.take(slice(*self.cut))

    def selected(self, index: Index) -> Matches:
        """The pairs with what the match part selects; ids are places in the columns here."""
        self._check()
        pairs = self.pairs if self.part.done else self.part.finish(index, *self._found(index))
        return _renumbered(pairs, self.first)

    def holding(self, index: Index) -> Ints:
        """The lines on which anything is selected; a line may come more than once."""
        self._check()
        part = self.part
        ids = self.pairs.id if part.done else part.holding(index, *self._found(index))
        return self.line[ids - self.first]

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _found(self, index: Index) -> tuple[Matches, Inputs | None]:
        anchors = self.locals.inputs(index) if self.part.needs_anchors else None
        return self.pairs, anchors


def _renumbered(pairs: Matches, first: int) -> Matches:
    if not first:
        return pairs
    return Matches(pairs.id - first, pairs.segment, pairs.start, pairs.end, pairs.level)


@dataclass(slots=True, eq=False)
class Asked:
    """A statement that let messages pass, its lines, and an ask for each of its crossings."""

    passed: Passed
    lines: Lines
    asks: list[Ask]

    @classmethod
    def of(cls, passed: Passed, results: Sequence[Result]) -> Asked:
        plan, lines = passed.plan, passed.lines()
        parts = zip(plan.anchors, plan.locals, strict=True)
        return cls(
            passed,
            lines,
            [
                Ask(local, plan.tally, *_anchors(anchor, passed, lines, results))
                for anchor, local in parts
            ],
        )

    def give(self, alive: Bools | None, results: Sequence[Result]) -> int:
        """Matches of a statement that selects nothing in the corpus, on these lines; how many."""
        plan, (tuples, place) = self.passed.plan, self.lines
        if alive is not None:
            tuples, place = tuples[alive], place[alive]
        places = place.tolist() if plan.told else list(dict.fromkeys(place.tolist()))
        rows = tuples.tolist() if plan.told else [()] * len(places)
        for at, nodes in zip(places, rows, strict=True):
            results[at].matches.append(Match(plan.statement.name, tuple(nodes)))
        return len(places)


def _anchors(
    part: AnchorPart, passed: Passed, lines: Lines, results: Sequence[Result]
) -> tuple[Ints, Ints, Ints]:
    """The anchors of a crossing: their lines, the places of their messages, and their rows."""
    if part.direct:
        own = lines.tuples[:, part.step].astype(np.int64)
        return np.arange(len(own)), lines.place, own
    line, rows = [NONE], [NONE]
    begin = 0
    for place, tuples in passed.each():
        table = results[place].table
        assert table is not None
        on, row = part.rows(table, tuples)
        line.append(on + begin)
        rows.append(row)
        begin += len(tuples)
    every = np.concatenate(line)
    return every, lines.place[every], np.concatenate(rows)


class Questions:
    """All asks of a batch, numbered: `place` and `row` are the columns of all their anchors."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._asks = sorted(asks, key=lambda ask: ask.part.sought)
        for ask, first in zip(self._asks, self._bounds(), strict=False):
            ask.first = first
        self.place = np.concatenate([NONE, *(ask.place for ask in self._asks)])
        self.row = np.concatenate([NONE, *(ask.row for ask in self._asks)])

    def _bounds(self) -> list[int]:
        bounds: list[int] = np.cumsum([0, *(len(ask.row) for ask in self._asks)]).tolist()
        return bounds

    def put(self, index: Index, joins: Joins, found: Locals) -> None:
        """Join the local nodes of all anchors with the first steps of the match parts."""
        cuts = np.searchsorted(found.anchor, self._bounds()).tolist()
        for ask, (low, high) in zip(self._asks, pairwise(cuts), strict=True):
            ask.found, ask.cut = found, (low, high)
        at = 0
        for _, alike in groupby(self._asks, key=lambda ask: ask.part.sought):
            group = list(alike)
            low, at = at, at + len(group)
            _ask(index, joins, group, found.take(slice(cuts[low], cuts[at])))


def _ask(index: Index, joins: Joins, group: Sequence[Ask], found: Locals) -> None:
    """Ask for crossings that seek the same, together; or one by one, if that fails."""
    try:
        pairs = _joined(index, joins, group, found)
    except (MatchError, StoreError) as error:
        if len(group) == 1:
            group[0].failure = error
            return
        for ask in group:
            _ask(index, joins, [ask], ask.locals)
        return
    pairs = pairs.take(first_of_each(pairs.id, pairs.start))
    cuts = np.searchsorted(pairs.id, _edges(group)).tolist()
    for ask, (low, high) in zip(group, pairwise(cuts), strict=True):
        ask.pairs = pairs.take(slice(low, high))


def _edges(group: Sequence[Ask]) -> list[int]:
    """Where the anchors of each ask begin, and where those of the last one end."""
    return [*(ask.first for ask in group), group[-1].first + len(group[-1].row)]


def _joined(index: Index, joins: Joins, group: Sequence[Ask], found: Locals) -> Matches:
    """The first step of the match parts, joined with the local nodes of the anchors."""
    part = group[0].part
    if part.itself:
        return part.probe(index, found.inputs(index))
    if not len(found):
        return Matches.empty()
    answers: list[Matches] = []
    tags = joins.tags(part)
    for above, own in joins.parts(found) if tags else ():
        labelled: dict[str | None, Inputs] = {}
        anchors: list[int] = own.anchor.tolist()
        for tag in tags:
            join = Join(above, tag, part.axis)
            scheme = joins.needs(join)
            if scheme not in labelled:
                labelled[scheme] = own.inputs(index, scheme=scheme, tag=above)
            began = time.thread_time()
            answer = joins.feed(join, labelled[scheme])
            _count(group, join, anchors, answer.id, time.thread_time() - began)
            answers.append(answer)
    return Matches.joined(answers)


def _count(
    group: Sequence[Ask], join: Join, inputs: Sequence[int], pairs: Ints, seconds: float
) -> None:
    """Each statement has its part of a join, by what it put in."""
    edges = _edges(group)
    places = [bisect_left(inputs, edge) for edge in edges]
    found = np.bincount(np.searchsorted(edges, pairs, "right") - 1, minlength=len(group)).tolist()
    for ask, (low, high), pairs_of in zip(group, pairwise(places), found, strict=True):
        if low < high:
            ask.tally.add(join, high - low, pairs_of, (high - low) / len(inputs), seconds)
