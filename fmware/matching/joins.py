"""The operators of a middleware: which join each of them does, and whom it serves.

A join is what the first step of a match part asks of the corpus: nodes with a name, or with any, on
an axis, from anchors with a name, or with any. Operators are made when they are first needed.
Statements that ask for the same join share one, and with it what it has already fetched.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fmware.cmatch import Adaptive, ADMatch, CMatch, MatchError, Matches, OperatorClosed
from fmware.errors import kept
from fmware.index import CorruptIndex, UnknownScheme
from fmware.matching._kernel import Ids, JoinState, deliver
from fmware.matching.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.cmatch import Axis, Counters, Inputs, Operator
    from fmware.index import Index
    from fmware.labeling.runs import Tag
    from fmware.matching._kernel import Batch

__all__ = ["Chosen", "Join", "Joins", "tags_like"]

_log = logging.getLogger("fmware.matching")

RECORDED, RECORDED_ALL = 2048, 1 << 16
"""Inputs that are kept to be replayed: of a join, and of all together. One takes 46 bytes."""

Chosen: TypeAlias = Literal["auto", "cmatch", "admatch"]
"""What a user can ask for: the cost model's choice, or one operator for all joins."""


def tags_like(index: Index, tag: Tag) -> tuple[Tag, ...]:
    """The tags of an index that a tag stands for; its name may end with `*`."""
    if not tag.name.endswith("*"):
        return (tag,) if any(segment.count(tag) for segment in index.segments) else ()
    begin = tag.name[:-1]
    return tuple(each for each in index.tags if each[0] == tag[0] and each.name.startswith(begin))


class Join(NamedTuple):
    """What an operator is for.

    `anchor` is None where anchors may have any tag. The name of `tag` may end with `*`: it is then
    all tags of that kind whose names begin with what is before.
    """

    anchor: Tag | None
    tag: Tag
    axis: Axis

    def tags(self, index: Index) -> tuple[Tag, ...]:
        """The tags of an index that are joined."""
        return tags_like(index, self.tag)

    @property
    def name(self) -> str:
        """By what reports call it: `article/child::author`."""
        return f"{self.anchor or '*'}/{self.step}"

    @property
    def step(self) -> str:
        """The step into the corpus: `child::author`."""
        return f"{self.axis.value}::{self.tag}"


class Joins:
    """All operators on one generation of an index.

    Threads may share it: `lock` is held while an operator is fed and drained, so that what it gives
    is all of that batch and nothing else, and while the generation changes. A caller that counts
    what came of a batch holds it, too. It may be taken again by the thread that has it.
    """

    def __init__(
        self,
        index: Index,
        *,
        operator: Chosen = "auto",
        scheme: str | None = None,
        budget: int,
        threads: int,
    ) -> None:
        if scheme is not None and scheme not in index.schemes:
            raise UnknownScheme(scheme, index.schemes)
        self.index = index
        self.lock = threading.RLock()
        # Who names a scheme has chosen.
        self._operator = "cmatch" if operator == "auto" and scheme else operator
        self._scheme = scheme
        self._budget = budget
        self._threads = threads
        self._states: dict[Join, JoinState] = {}
        self._recorded: list[JoinState] = []
        self._left = RECORDED_ALL
        self.ids = Ids()
        """Those of anchors."""
        self.waiting: list[Batch] = []
        """Batches for which operators are still fetching; guarded by `lock`."""
        self.damage: CorruptIndex | None = None
        """What was found to be wrong with the files of this generation, first."""

    @property
    def settings(self) -> dict[str, Any]:
        """How operators are made."""
        return {
            "operator": self._operator,
            "scheme": self._scheme,
            "budget": self._budget,
            "threads": self._threads,
        }

    @property
    def by_anchor(self) -> bool:
        """Whether anchors of each name have operators of their own.

        What an operator costs depends on the anchors it gets, so they have where it is chosen by
        cost.
        """
        return self._operator == "auto"

    def state(self, join: Join) -> JoinState:
        """What there is of a join; always the same, whatever becomes of its operator."""
        state = self._states.get(join)
        if state is None:
            state = self._states.setdefault(join, JoinState(join))
        return state

    def operator(self, join: Join) -> Operator:
        """The operator of a join, made if it is not there."""
        state = self.state(join)
        operator = state.operator
        if operator is None:
            with self.lock:
                operator = state.operator
                if operator is None:
                    operator = state.operator = self._make(state)
        return operator

    def feed(self, state: JoinState, inputs: Inputs) -> Matches:
        """Feed an operator; REQUIRES: the caller holds the lock."""
        found = self.operator(state.join).feed(inputs)
        if state.room > 0:
            self._recording(state, len(inputs)).add(inputs)
        return found

    def resume(self, state: JoinState, inputs: Inputs) -> Matches:
        """The rest of a batch that came by the `feeder` of an operator; REQUIRES: the lock."""
        return self.operator(state.join).resume(inputs)

    def record(
        self, state: JoinState, columns: tuple[bytes, ...], length: int, scheme: str | None
    ) -> None:
        """Keep the beginning of what a join gets, see `Recording.add_bytes`; REQUIRES: the lock."""
        self._recording(state, length).add_bytes(columns, length, scheme)

    def _recording(self, state: JoinState, length: int) -> Recording:
        """Where to keep that many inputs more, so that alternatives can be tried on them."""
        if state.recording is None:
            state.recording = Recording()
        number = max(length, 1)
        self._left -= number
        state.room -= number
        if self._left <= 0:
            for each in self._recorded:
                each.room = 0
            self._recorded.clear()
        return state.recording

    def recording(self, join: Join) -> Recording | None:
        """The first batches of a join on this generation, a bounded number, as they are now."""
        kept = self.state(join).recording
        return None if kept is None else kept.copy()

    def _make(self, state: JoinState) -> Operator:
        join = state.join
        index, tag, axis = self.index, join.tags(self.index), join.axis
        if self._operator == "admatch":
            return ADMatch(index, tag, axis)
        if self._operator == "cmatch":
            scheme = self._scheme or next(iter(index.schemes))
            return CMatch(index, tag, axis, scheme, budget=self._budget, threads=self._threads)
        state.room = RECORDED if self._left > 0 else 0
        if state not in self._recorded:
            self._recorded.append(state)
        return Adaptive(
            index,
            tag,
            axis,
            anchors=join.anchor,
            budget=self._budget,
            threads=self._threads,
        )

    def __iter__(self) -> Iterator[tuple[Join, Operator]]:
        for join, state in list(self._states.items()):
            if state.operator is not None:
                yield join, state.operator

    def counters(self) -> dict[str, Counters]:
        """What was done so far, by `axis::tag`."""
        found: dict[str, Counters] = {}
        for join, operator in self:
            before = found.get(join.step)
            found[join.step] = operator.counters if before is None else before + operator.counters
        return found

    def move(self, index: Index) -> None:
        """Go on with another generation; an operator that cannot is made anew when needed."""
        with self.lock:
            old, self.index = self.index, index
            self.damage = None
            # What was recorded names segments of the old one.
            for state in self._states.values():
                state.recording = None
            self._left = RECORDED_ALL
            for state in self._recorded:
                state.room = RECORDED
            for join, operator in self:
                if join.tags(index) != join.tags(old):
                    # Batches that wait for it find their pairs in another way.
                    self.drop(join)
                    continue
                try:
                    deliver(self, operator.move(index))
                except MatchError:
                    self.drop(join)

    def failed(self, join: Join, error: MatchError) -> None:
        """Let go of an operator that failed; say so, because its batch is answered all the same."""
        self.met(error)
        if not isinstance(error, OperatorClosed):
            _log.warning("the operator of %s failed and is made anew: %s", join.name, error)
        self.drop(join)

    def met(self, error: BaseException) -> None:
        """Remember an error that says, or was caused by one that says, that the index is damaged.

        Other lists may answer all the same, and rightly; but who runs this must be told.
        """
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, CorruptIndex):
            cause = cause.__cause__
        if cause is not None and self.damage is None:
            self.damage = kept(cause)

    def drop(self, join: Join) -> None:
        """Let go of an operator that failed; the next batch gets another."""
        with self.lock:
            state = self.state(join)
            operator, state.operator = state.operator, None
        if operator is not None:
            operator.close()

    def close(self) -> None:
        """Let go of all of them."""
        with self.lock:
            for join, _ in self:
                self.drop(join)
