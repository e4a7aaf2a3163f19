"""What the statements of a batch ask of the corpus, put together and answered.

A crossing of a statement asks from anchors: nodes of messages, any number on each of its lines.
The data goes this way, for all crossings of a batch at once:

1. The anchors of the crossings are numbered through. Crossings whose match parts begin with the
   same step are a group, and follow each other.
2. The `Resolver` finds the local nodes of all anchors.
3. A group is one batch of an operator, for each tag of its local nodes and each tag it seeks. Where
   that fails, each crossing is tried alone: an error is reported of those that have it.
4. The pairs of all operators are put into order. What is left of a match part is done crossing by
   crossing, on the index or on records.
5. Lines on which all crossings hold are matches.

Columns and their numbers are worked on by `fmware.matching._kernel`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cmatch import ADMatch, Inputs, MatchError, Matches
from fmware.matching._kernel import Batch, Joining, Pairs, Route
from fmware.matching.joins import Join
from index import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fmware.matching._kernel import Asked, Cut, LocalNodes
    from fmware.matching.anchors import AnchorPart, Missing, Resolver
    from fmware.matching.clock import Clock
    from fmware.matching.joins import Joins
    from fmware.matching.local import LocalPart, Sought
    from fmware.matching.plan import Plan
    from index import Index
    from labeling import NodeTable

    Ints = npt.NDArray[np.int64]
    Tuples = npt.NDArray[np.int32]
    Tables = Sequence[NodeTable | None]

__all__ = ["Crossed", "Crossings", "Passed"]

NONE = np.empty(0, np.int64)


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


class Crossings:
    """Answers what statements ask of one generation of an index.

    Threads may share it. They take the lock of `joins` to feed an operator and to count what came
    of it; all else is done without. When `joins` has moved on to another generation, what is still
    asked of this one is answered by AD label alone; so its index must stay open until then.
    """

    def __init__(self, index: Index, joins: Joins, resolver: Resolver) -> None:
        self._index = index
        self._joins = joins
        self._resolver = resolver
        self._by_step: dict[tuple[Sought, int], list[Route]] = {}

    def match(
        self,
        passed: Sequence[Passed],
        tables: Tables,
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

        Raises:
            ForeignTable: a table was read without values.
        """
        batch = Batch(passed, partial(_branched, tables))
        found = self._resolver.find(batch.anchors, tables, batch.bounds, by_tag=self._joins.by_tag)
        if clock is not None:
            clock.lap("identify")
        joining = self._join(batch, found)
        pairs = joining.pairs if batch.done else self._finish(batch, found, joining.pairs)
        crossed = self._matches(batch, passed, pairs, joining)
        for number in found.missing:
            place, row = batch.anchors.at(number)
            crossed.unmatched[place] = crossed.unmatched.get(place, 0) + 1
            table = tables[place]
            if missing and table is not None:
                crossed.missing.append(self._resolver.described(table, place, row))
        return crossed

    # --- the first step ---------------------------------------------------------------------

    def _join(self, batch: Batch, found: LocalNodes) -> Joining:
        """The pairs of all groups with the first steps of their match parts."""
        joining = Joining(
            self._joins,
            self._index,
            self._resolver,
            found,
            self._by_step,
            self._routes,
            self._by_label,
        )
        for group, cuts in zip(batch.groups, found.cuts, strict=True):
            if cuts:
                self._ask(joining, group, found, cuts)
        joining.end()
        return joining

    def _ask(
        self, joining: Joining, group: list[Asked], found: LocalNodes, cuts: list[Cut]
    ) -> None:
        """Ask for crossings that seek the same, together; or one by one, if that fails."""
        try:
            joining.feed(group, cuts)
        except (MatchError, StoreError) as error:
            if len(group) == 1:
                group[0].failure = error
                return
        else:
            return
        for asked in group:
            own = found.narrowed(cuts, asked.first, asked.last)
            self._ask(joining, [asked], found, own)

    def _by_label(self, join: Join, inputs: Inputs) -> Matches:
        """A join without an operator that is kept."""
        return ADMatch(self._index, join.tag, join.axis).feed(inputs)

    def _routes(self, part: LocalPart, tag: int) -> list[Route]:
        """The joins of a first step from anchors with a tag of the index, or with any."""
        above = self._resolver.elements[tag] if tag >= 0 else None
        joins = [Join(above, each, part.axis) for each in part.tags(self._index)]
        routes = [Route(self._joins.state(join), tag) for join in joins]
        self._by_step[part.sought, tag] = routes
        return routes

    # --- what is left of match parts --------------------------------------------------------

    def _finish(self, batch: Batch, found: LocalNodes, pairs: Pairs) -> Pairs:
        """From pairs with first nodes to pairs with selected ones."""
        parts: list[Matches] = []
        for asked in batch.asked:
            own = pairs.between(asked.first, asked.last)
            parts.append(own if asked.part.done else self._finished(asked, found, own))
        return Pairs(parts)

    def _finished(self, asked: Asked, found: LocalNodes, pairs: Matches) -> Matches:
        part, anchors, began = asked.part, None, time.thread_time()
        if part.needs_anchors:
            every = [cut for cuts in found.cuts for cut in cuts]
            own = found.narrowed(every, asked.first, asked.last)
            anchors = Inputs.joined([self._resolver.inputs(found, cut, None) for cut in own])
        try:
            return part.finish(self._index, pairs, anchors)
        except (MatchError, StoreError) as error:
            asked.failure = asked.failure or error
            return Matches.empty()
        finally:
            asked.seconds = time.thread_time() - began

    # --- matches ----------------------------------------------------------------------------

    def _matches(
        self, batch: Batch, passed: Sequence[Passed], pairs: Pairs, joining: Joining
    ) -> Crossed:
        """The lines on which all crossings hold, with what is selected there."""
        crossed = Crossed(*batch.matches(pairs), batch.failures())
        with self._joins.lock:
            joining.tally()
            batch.tally()
            for number, _ in crossed.failures:
                passed[number].plan.tally.failed += len({*passed[number].place.tolist()})
        return crossed


def _branched(tables: Tables, part: AnchorPart, passed: Passed) -> tuple[Ints, Ints, Ints]:
    """The anchors that a branch leads to: lines, the places of their messages, and rows."""
    line, rows = [NONE], [NONE]
    places: list[int] = passed.place.tolist()
    begin = 0
    while begin < len(places):
        end = bisect_left(places, places[begin] + 1, begin)
        table = tables[places[begin]]
        assert table is not None
        on, row = part.rows(table, passed.tuples[begin:end])
        line.append(on + begin)
        rows.append(row)
        begin = end
    every = np.concatenate(line)
    return every, passed.place[every], np.concatenate(rows)
