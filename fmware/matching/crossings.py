"""What the statements of a batch ask of the corpus, put together and answered.

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
from index import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from cmatch import Inputs
    from fmware.matching.anchors import AnchorPart, Locals, Missing, Resolver
    from fmware.matching.clock import Clock
    from fmware.matching.joins import Joins
    from fmware.matching.local import LocalPart
    from fmware.matching.plan import Plan
    from fmware.matching.tally import Tally
    from index import Index
    from labeling import NodeTable

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]
    Tuples = npt.NDArray[np.int32]

__all__ = ["Crossed", "Crossings", "Passed"]

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
class Passed:
    """A statement that let messages of a batch pass.

    `tuples` has a line a path tuple: the rows of its nodes in its message. `place` is the place of
    that message in the batch; places ascend.
    """

    plan: Plan
    tuples: Tuples
    place: Ints


@dataclass(slots=True, eq=False)
class Crossed:
    """What was found, as columns with a line a match, by statement and then by place.

    `passed` says which of the statements given, `line` which of its tuples. The local node is in
    `segment` and begins at `start`; both are -1 where a statement selects nothing in the corpus.
    `failures` are statements that could not be answered. `unmatched` counts, by place, the anchors
    without a local node, each once; `missing` lists them, if that was asked for.
    """

    passed: Ints
    line: Ints
    place: Ints
    segment: npt.NDArray[np.int32]
    start: Ints
    failures: list[tuple[int, Exception]] = field(default_factory=list)
    unmatched: dict[int, int] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)


def _anchors(
    part: AnchorPart, passed: Passed, tables: Sequence[NodeTable | None]
) -> tuple[Ints, Ints, Ints]:
    """The anchors of a crossing: their lines, the places of their messages, and their rows."""
    if part.direct:
        own = passed.tuples[:, part.step].astype(np.int64)
        return np.arange(len(own)), passed.place, own
    line, rows = [NONE], [NONE]
    for place in dict.fromkeys(passed.place.tolist()):
        table = tables[place]
        assert table is not None
        begin, end = np.searchsorted(passed.place, [place, place + 1]).tolist()
        on, row = part.rows(table, passed.tuples[begin:end])
        line.append(on + begin)
        rows.append(row)
    every = np.concatenate(line)
    return every, passed.place[every], np.concatenate(rows)


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


class Crossings:
    """Answers what statements ask of one generation of an index. Safe to share between threads."""

    def __init__(self, index: Index, joins: Joins, resolver: Resolver) -> None:
        self._index = index
        self._joins = joins
        self._resolver = resolver

    def match(
        self,
        passed: Sequence[Passed],
        tables: Sequence[NodeTable | None],
        *,
        missing: bool = False,
        clock: Clock | None = None,
    ) -> Crossed:
        """Match the statements that let messages of a batch pass.

        Args:
            passed: the statements, with the tuples of the messages that they let pass.
            tables: the messages, by place; None where one could not be read.
            missing: whether anchors without a local node are to be listed.
            clock: is given the lap `identify` when local nodes are found.
        """
        asks = [
            [
                Ask(local, each.plan.tally, *_anchors(anchor, each, tables))
                for anchor, local in zip(each.plan.anchors, each.plan.locals, strict=True)
            ]
            for each in passed
        ]
        questions = Questions([ask for each in asks for ask in each])
        there = [place for place, table in enumerate(tables) if table is not None]
        read = [table for table in tables if table is not None]
        among = np.zeros(len(tables), np.int64)
        among[there] = np.arange(len(there))
        places, rows = questions.place, questions.row
        found = self._resolver.resolve(read, among[places], rows)
        crossed = Crossed(NONE, NONE, NONE, NONE.astype(np.int32), NONE)
        lost = zip(places[found.missing].tolist(), rows[found.missing].tolist(), strict=True)
        for place, _ in {*lost}:
            crossed.unmatched[place] = crossed.unmatched.get(place, 0) + 1
        if missing:
            listed = self._resolver.missing(read, among[places], rows, found)
            named = (each._replace(message=there[each.message]) for each in listed)
            crossed.missing = [*dict.fromkeys(named)]
        if clock is not None:
            clock.lap("identify")
        questions.put(self._index, self._joins, found)
        parts: list[tuple[int, Ints, Ints, npt.NDArray[np.int32], Ints]] = []
        for number, (each, own) in enumerate(zip(passed, asks, strict=True)):
            tally, began = each.plan.tally, time.thread_time()
            try:
                part = self._given(each, own)
            except (MatchError, StoreError) as error:
                crossed.failures.append((number, error))
                tally.failed += len({*each.place.tolist()})
            else:
                tally.matches += len(part[0])
                parts.append((number, *part))
            tally.seconds += time.thread_time() - began
        if parts:
            crossed.passed = np.repeat([part[0] for part in parts], [len(p[1]) for p in parts])
            crossed.line, crossed.place, crossed.segment, crossed.start = (
                np.concatenate(column) for column in list(zip(*parts, strict=True))[1:]
            )
        return crossed

    def _given(
        self, passed: Passed, asks: Sequence[Ask]
    ) -> tuple[Ints, Ints, npt.NDArray[np.int32], Ints]:
        alive = np.ones(len(passed.place), np.bool_)
        selects: Ask | None = None
        for crossing, ask in zip(passed.plan.statement.crossings, asks, strict=True):
            if crossing.selects:
                selects = ask
                continue
            held = np.zeros(len(passed.place), np.bool_)
            held[ask.holding(self._index)] = True
            alive &= held
        if selects is None:
            line = np.flatnonzero(alive)
            place = passed.place[line]
            if not passed.plan.told:
                place, first = np.unique(place, return_index=True)
                line = line[first]
            none = np.full(len(line), -1, np.int64)
            return line, place, none.astype(np.int32), none
        pairs = selects.selected(self._index)
        line = selects.line[pairs.id]
        pairs, line = pairs.take(alive[line]), line[alive[line]]
        place = passed.place[line]
        if not passed.plan.told:
            seen = zip(place.tolist(), pairs.start.tolist(), strict=True)
            firsts: dict[tuple[int, int], int] = {}
            for at, key in enumerate(seen):
                firsts.setdefault(key, at)
            kept = np.array([*firsts.values()], np.intp)
            pairs, line, place = pairs.take(kept), line[kept], place[kept]
        return line, place, pairs.segment, pairs.start
