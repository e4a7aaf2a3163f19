"""What the statements of a batch ask of the corpus, put together and answered.

A crossing of a statement asks from anchors: nodes of messages, any number on each of its lines.
A `Batch` (`fmware.matching._kernel`) owns the way of the data, from the path tuples of messages to
local nodes and back. `Crossings` leads it there, on one generation of an index:

1. The batch numbers the anchors of its crossings. Crossings whose match parts begin with the same
   step, from anchors of the same name, are a group.
2. The `Resolver` finds the local nodes of all anchors.
3. A group is one batch of an operator. If the operator fails, the group is answered by AD label,
   from other lists of the index. If that fails, too, each crossing is tried alone: an error is
   reported of those that have it.
4. Pairs whose candidates were not in memory come later: the batch waits for them.
5. What is left of a match part is done crossing by crossing, on the index or on records.
6. Lines on which all crossings hold are matches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cmatch import ADMatch, Inputs, MatchError, Matches
from fmware.matching._kernel import Batch, Pairs
from fmware.matching.joins import Join
from fmware.matching.limits import MatchLimits
from index import StoreError
from labeling.runs import Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fmware.filtering import FilterBatch
    from fmware.matching._kernel import Asked, Hits, JoinState
    from fmware.matching.anchors import Missing, Resolver
    from fmware.matching.clock import Clock
    from fmware.matching.joins import Joins
    from fmware.matching.local import LocalPart, Sought
    from fmware.matching.plan import Plan
    from fmware.matching.registry import Registry
    from index import Index
    from labeling import NodeTable

    Seeks = tuple[str | None, Sought]

__all__ = ["Crossed", "Crossings"]


@dataclass(slots=True, eq=False)
class Crossed:
    """What was found.

    - `plans`: the statements that let messages pass. Of each, `numbers` has its number, and
      `widths` how many rows a path tuple has.
    - `hits`: the matches, in the order of messages.
    - `failures`: statements that could not be answered, and the places of their messages.
    - `truncated`: (number of the plan, place) of what was left out because it was too much; `full`:
      the places of messages that have had as many pairs as they may.
    - `unmatched`: by place, how many anchors have no local node, each once; `missing` lists them,
      if that was asked for. `unmatched_by`: the same by place and owner of the statements.
    """

    plans: list[Plan]
    numbers: list[int]
    widths: list[int]
    hits: Hits
    truncated: set[tuple[int, int]]
    failures: list[tuple[int, Exception, list[int]]] = field(default_factory=list)
    full: set[int] = field(default_factory=set)
    unmatched: dict[int, int] = field(default_factory=dict)
    unmatched_by: dict[tuple[int, str], int] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)


class Crossings:
    """Answers what statements ask of one generation of an index.

    Threads may share it. They take the lock of `joins` to feed an operator; all else is done
    without. When `joins` has moved on to another generation, what is still asked of this one is
    answered by AD label alone; so its index must stay open until then.

    `pairs` bounds the pairs that a message may have of all joins, see `MatchLimits`.
    """

    def __init__(
        self,
        index: Index,
        joins: Joins,
        resolver: Resolver,
        *,
        pairs: int | None = None,
    ) -> None:
        self.index = index
        self.joins = joins
        self.resolver = resolver
        self._pairs = MatchLimits().pairs if pairs is None else pairs
        self.states: dict[Seeks, JoinState | None] = {}
        """The joins of groups, as far as they are known; see `Plan.crossings` for the keys."""

    def begin(
        self,
        found: FilterBatch,
        ends: list[int],
        registry: Registry,
        tables: list[NodeTable | None],
        *,
        clock: Clock | None = None,
    ) -> Batch:
        """Ask operators for what statements seek that let messages of a batch pass.

        Args:
            found: what the filter says of the messages.
            ends: by place, where the lines of a message end in `found.crossed`.
            registry: the plans of the statements.
            tables: the messages, by place; None where nothing passed.
            clock: is given the lap `identify` when local nodes are found.

        Raises:
            ForeignTable: a table was read without values.
        """
        batch = Batch(found, ends, registry, tables, self._pairs)
        batch.resolve(self, tables)
        if clock is not None:
            clock.lap("identify")
        try:
            batch.ask(self)
        except BaseException:
            batch.give_up(self.joins)
            raise
        return batch

    def end(
        self,
        batch: Batch,
        tables: Sequence[NodeTable | None],
        *,
        missing: bool = False,
        owner: Callable[[str], str] | None = None,
    ) -> Crossed:
        """The matches of a batch, when all pairs have come.

        Args:
            batch: what `begin` gave.
            tables: the messages, as they were given to it.
            missing: whether anchors without a local node are to be listed.
            owner: gives the owner of a statement by its name, to count them by owner.
        """
        for group, error in batch.settle(self):
            for asked in group:
                asked.failure = asked.failure or error
        batch.end()
        if not batch.done:
            batch.replace(self._finished(batch))
        crossed = Crossed(
            batch.plans, batch.numbers, batch.widths_of(), batch.matches(), batch.truncated
        )
        for number, error in batch.failures():
            places = batch.places_of(number)
            crossed.failures.append((number, error, places))
            batch.plans[number].tally.failed += len(places)
        batch.tally()
        crossed.full = batch.full()
        if batch.found.missing:
            crossed.unmatched = batch.unmatched()
            if owner is not None:
                owners = [owner(plan.name) for plan in batch.plans]
                crossed.unmatched_by = batch.unmatched_by(owners)
            if missing:
                crossed.missing = [*map(self._described, *self._missing(batch, tables))]
        return crossed

    def _missing(
        self, batch: Batch, tables: Sequence[NodeTable | None]
    ) -> tuple[list[NodeTable | None], list[int], list[int]]:
        where = [batch.anchors.at(number) for number in batch.found.missing]
        return [tables[place] for place, _ in where], [a for a, _ in where], [b for _, b in where]

    def _described(self, table: NodeTable | None, place: int, row: int) -> Missing:
        assert table is not None
        return self.resolver.described(table, place, row)

    # --- the first step ---------------------------------------------------------------------

    def ask(self, batch: Batch, key: Seeks, group: list[Asked]) -> None:
        """Ask for crossings that seek the same, together; or one by one, if that fails."""
        part = group[0].part
        try:
            if part.itself:
                inputs = batch.found.inputs(group[0].first, group[-1].last)
                batch.add(part.probe(self.index, inputs))
                return
            state = self.states[key] if key in self.states else self._state(key, part)
            if state is not None:
                batch.feed(self, state, group)
        except (MatchError, StoreError) as error:
            if len(group) == 1:
                group[0].failure = error
                return
            for asked in group:
                self.ask(batch, key, [asked])

    def _state(self, key: Seeks, part: LocalPart) -> JoinState | None:
        """The join of a group; None if the corpus has nothing that it seeks."""
        name, (_, kind, sought) = key
        state = None
        if part.tags(self.index):
            anchor = Tag(0, name) if name is not None and self.joins.by_anchor else None
            state = self.joins.state(Join(anchor, Tag(kind, sought), part.axis))
        self.states[key] = state
        return state

    def by_label(self, join: Join, inputs: Inputs) -> Matches:
        """A join without an operator that is kept."""
        return ADMatch(self.index, join.tags(self.index), join.axis).feed(inputs)

    # --- what is left of match parts --------------------------------------------------------

    def _finished(self, batch: Batch) -> Pairs:
        """From pairs with first nodes to pairs with selected ones."""
        parts: list[Matches] = []
        for asked in batch.asked:
            own = batch.pairs.between(asked.first, asked.last)
            parts.append(own if asked.part.done else self._finish(batch, asked, own))
        return Pairs(parts)

    def _finish(self, batch: Batch, asked: Asked, pairs: Matches) -> Matches:
        part, anchors, began = asked.part, None, time.thread_time()
        if part.needs_anchors:
            anchors = batch.found.inputs(asked.first, asked.last)
        try:
            return part.finish(self.index, pairs, anchors)
        except (MatchError, StoreError) as error:
            asked.failure = asked.failure or error
            return Matches.empty()
        finally:
            asked.seconds = time.thread_time() - began
