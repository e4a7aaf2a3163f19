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
from typing import TYPE_CHECKING

from fmware.cmatch import ADMatch, Inputs, MatchError, Matches
from fmware.index import StoreError
from fmware.labeling.runs import Tag
from fmware.matching._kernel import Batch, Pairs
from fmware.matching.joins import Join
from fmware.matching.limits import MatchLimits

if TYPE_CHECKING:
    from fmware.filtering import FilterBatch
    from fmware.index import Index
    from fmware.matching._kernel import Asked, Clock, JoinState, Seek
    from fmware.matching.anchors import Missing, Resolver
    from fmware.matching.joins import Joins
    from fmware.matching.local import LocalPart
    from fmware.matching.registry import Registry

__all__ = ["Crossings"]


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
        self.states: dict[Seek, JoinState | None] = {}
        """The joins of groups, as far as they are known."""

    def begin(self, found: FilterBatch, registry: Registry, *, clock: Clock | None = None) -> Batch:
        """Ask operators for what statements seek that let messages of a batch pass.

        Args:
            found: what the filter says of the messages.
            registry: the plans of the statements.
            clock: is given the lap `identify` when local nodes are found.

        Raises:
            ForeignTable: a table was read without values.
        """
        batch = Batch(found, registry, self._pairs)
        batch.resolve(self)
        if clock is not None:
            clock.lap("identify")
        try:
            batch.ask(self)
        except BaseException:
            batch.give_up(self.joins)
            raise
        return batch

    def end(self, batch: Batch) -> None:
        """Find the matches of a batch that `begin` gave, when all pairs have come."""
        for group, error in batch.settle(self):
            for asked in group:
                asked.failure = asked.failure or error
        if not batch.done:
            batch.replace(self._finished(batch))
        batch.end()

    def missing(self, batch: Batch) -> list[Missing]:
        """The anchors of a batch that have no local node."""
        found = []
        for number in batch.found.missing:
            place, row = batch.anchors.at(number)
            table = batch.tables[place]
            assert table is not None
            found.append(self.resolver.described(table, place, row))
        return found

    # --- the first step ---------------------------------------------------------------------

    def ask(self, batch: Batch, seek: Seek, group: list[Asked]) -> None:
        """Ask for crossings that seek the same, together; or one by one, if that fails."""
        part = group[0].part
        try:
            if part.itself:
                inputs = batch.found.inputs(group[0].first, group[-1].last)
                batch.add(part.probe(self.index, inputs))
                return
            state = self.states[seek] if seek in self.states else self._state(seek, part)
            if state is not None:
                batch.feed(self, state, group)
        except (MatchError, StoreError) as error:
            if len(group) == 1:
                group[0].failure = error
                return
            for asked in group:
                self.ask(batch, seek, [asked])

    def _state(self, seek: Seek, part: LocalPart) -> JoinState | None:
        """The join of a group; None if the corpus has nothing that it seeks."""
        name, (_, kind, sought) = seek.anchor, seek.sought
        state = None
        if part.tags(self.index):
            anchor = Tag(0, name) if name is not None and self.joins.by_anchor else None
            state = self.joins.state(Join(anchor, Tag(kind, sought), part.axis))
        self.states[seek] = state
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
