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
from typing import TYPE_CHECKING

import numpy as np

from cmatch import ADMatch, Inputs, MatchError, Matches
from fmware.matching._kernel import Anchors, Asked, Pairs, fed
from fmware.matching.joins import Join
from index import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from fmware.matching._kernel import Cut, LocalNodes
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
        self._by_step: dict[tuple[Sought, int], list[Join]] = {}

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
        batch = _Batch(passed, tables)
        found = self._resolver.find(batch.anchors, tables, batch.bounds, by_tag=self._joins.by_tag)
        if clock is not None:
            clock.lap("identify")
        pairs = self._finish(batch, found, Pairs(self._join(batch, found)))
        crossed = self._matches(batch, passed, pairs)
        for number in found.missing:
            place, row = batch.anchors.at(number)
            crossed.unmatched[place] = crossed.unmatched.get(place, 0) + 1
            table = tables[place]
            if missing and table is not None:
                crossed.missing.append(self._resolver.described(table, place, row))
        return crossed

    # --- the first step ---------------------------------------------------------------------

    def _join(self, batch: _Batch, found: LocalNodes) -> list[Matches]:
        """The pairs of all groups with the first steps of their match parts."""
        answers: list[Matches] = []
        cuts, at = found.cuts, 0
        for number, group in enumerate(batch.groups):
            low = at
            while at < len(cuts) and cuts[at][0] == number:
                at += 1
            if low < at:
                answers += self._ask(group, found, cuts[low:at])
        return answers

    def _ask(self, group: list[Asked], found: LocalNodes, cuts: list[Cut]) -> list[Matches]:
        """Ask for crossings that seek the same, together; or one by one, if that fails."""
        try:
            return self._fed(group, found, cuts)
        except (MatchError, StoreError) as error:
            if len(group) == 1:
                group[0].failure = error
                return []
        answers: list[Matches] = []
        for asked in group:
            answers += self._ask([asked], found, found.narrowed(cuts, asked.first, asked.last))
        return answers

    def _fed(self, group: list[Asked], found: LocalNodes, cuts: list[Cut]) -> list[Matches]:
        """The pairs of a group, by operator."""
        part, resolver, joins = group[0].part, self._resolver, self._joins
        if part.itself:
            return [part.probe(self._index, resolver.inputs(found, cut, None)) for cut in cuts]
        answers: list[Matches] = []
        for cut in cuts:
            labelled: dict[str | None, Inputs] = {}
            for join in self._joins_of(part, cut[1]):
                scheme = joins.needs(join)
                inputs = labelled.get(scheme)
                if inputs is None:
                    # Operators of a newer generation may need labels that this one lacks.
                    known = scheme if scheme in self._index.schemes else None
                    inputs = labelled[scheme] = resolver.inputs(found, cut, known)
                answers.append(fed(joins, self._index, join, inputs, group, self._by_label))
        return answers

    def _by_label(self, join: Join, inputs: Inputs) -> Matches:
        """A join without an operator that is kept."""
        return ADMatch(self._index, join.tag, join.axis).feed(inputs)

    def _joins_of(self, part: LocalPart, tag: int) -> list[Join]:
        """The joins of a first step from anchors with a tag of the index, or with any."""
        joins = self._by_step.get((part.sought, tag))
        if joins is None:
            above = self._resolver.elements[tag] if tag >= 0 else None
            joins = [Join(above, each, part.axis) for each in part.tags(self._index)]
            self._by_step[part.sought, tag] = joins
        return joins

    # --- what is left of match parts --------------------------------------------------------

    def _finish(self, batch: _Batch, found: LocalNodes, pairs: Pairs) -> Pairs:
        """From pairs with first nodes to pairs with selected ones."""
        if batch.done:
            return pairs
        parts: list[Matches] = []
        for asked in batch.asked:
            own = pairs.between(asked.first, asked.last)
            parts.append(own if asked.part.done else self._finished(asked, found, own))
        return Pairs(parts)

    def _finished(self, asked: Asked, found: LocalNodes, pairs: Matches) -> Matches:
        part, anchors, began = asked.part, None, time.thread_time()
        if part.needs_anchors:
            own = found.narrowed(found.cuts, asked.first, asked.last)
            anchors = Inputs.joined([self._resolver.inputs(found, cut, None) for cut in own])
        try:
            return part.finish(self._index, pairs, anchors)
        except (MatchError, StoreError) as error:
            asked.failure = asked.failure or error
            return Matches.empty()
        finally:
            asked.seconds = time.thread_time() - began

    # --- matches ----------------------------------------------------------------------------

    def _matches(self, batch: _Batch, passed: Sequence[Passed], pairs: Pairs) -> Crossed:
        """The lines on which all crossings hold, with what is selected there."""
        columns, counts = batch.anchors.matches(pairs, batch.statements)
        crossed = Crossed(*columns)
        with self._joins.lock:
            for each, count in zip(passed, counts, strict=True):
                each.plan.tally.matches += count
            for asked in batch.asked:
                if asked.seconds:
                    asked.plan.tally.seconds += asked.seconds
                if asked.failure is not None and not crossed.failures:
                    crossed.failures = [*batch.failures()]
            for number, _ in crossed.failures:
                passed[number].plan.tally.failed += len({*passed[number].place.tolist()})
        return crossed


class _Batch:
    """The crossings of a batch, in groups that seek the same, and their anchors.

    `statements` are as `Anchors.matches` takes them; `asked` are the crossings by their anchors;
    `done` says that none of them asks for more than its first step.
    """

    __slots__ = ("anchors", "asked", "bounds", "done", "groups", "statements")

    def __init__(self, passed: Sequence[Passed], tables: Tables) -> None:
        self.statements: list[tuple[Ints, bool, list[Asked]]] = []
        every: list[tuple[Sought, int, Asked, AnchorPart, Passed]] = []
        for each in passed:
            plan = each.plan
            crossings: list[Asked] = []
            for anchor, part, selects in plan.crossings:
                asked = Asked(plan, part, selects)
                crossings.append(asked)
                # By what they seek, and then in the order they came.
                every.append((part.sought, len(every), asked, anchor, each))
            self.statements.append((each.place, plan.told, crossings))
        every.sort()
        self.anchors = anchors = Anchors()
        self.asked: list[Asked] = []
        self.groups: list[list[Asked]] = []
        self.bounds: list[int] = []
        self.done = True
        before: Sought | None = None
        count = 0
        for sought, _, asked, anchor, each in every:
            if sought != before:
                before = sought
                self.groups.append([])
                self.bounds.append(count)
            asked.first = count
            if anchor.direct:
                count = anchors.add(each.tuples, each.place, anchor.step)
            else:
                count = anchors.add_rows(*_branched(anchor, each, tables))
            asked.last = count
            self.done = self.done and asked.part.done
            self.asked.append(asked)
            self.groups[-1].append(asked)
        self.bounds.append(count)

    def failures(self) -> Iterator[tuple[int, Exception]]:
        """Statements that have no answer, and why: of several errors, that of a condition."""
        for number, (_, _, crossings) in enumerate(self.statements):
            for asked in sorted(crossings, key=lambda asked: asked.selects):
                if asked.failure is not None:
                    yield number, asked.failure
                    break


def _branched(part: AnchorPart, passed: Passed, tables: Tables) -> tuple[Ints, Ints, Ints]:
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
