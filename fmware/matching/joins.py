"""The operators of a middleware: which join each of them does, and whom it serves.

A join is what the first step of a match part asks of the corpus: nodes of a tag, on an axis, seen
from anchors of a tag. Operators are made when they are first needed, and statements that ask for
the same join share one, and with it what it has already fetched.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cmatch import Adaptive, ADMatch, CMatch, MatchError, Matches
from fmware.matching.recording import Recording
from index import UnknownScheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cmatch import Axis, Counters, Inputs, Operator
    from index import Index
    from labeling.runs import Tag

__all__ = ["Chosen", "Join", "Joins"]

RECORDED, RECORDED_ALL = 2048, 1 << 16
"""Inputs that are kept to be replayed: of a join, and of all together. One takes 46 bytes."""

Chosen: TypeAlias = Literal["auto", "cmatch", "admatch"]
"""What a user can ask for: the cost model's choice, or one operator for all joins."""


class Join(NamedTuple):
    """What an operator is for; `anchor` is None where anchors may have any tag."""

    anchor: Tag | None
    tag: Tag
    axis: Axis

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
        self._operators: dict[Join, Operator] = {}
        self._records: dict[Join, Recording] = {}
        self._room: dict[Join, int] = {}
        self._left = RECORDED_ALL

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
    def by_tag(self) -> bool:
        """Whether anchors of each tag have operators of their own.

        What an operator costs depends on the anchors it gets, so they have where it is chosen by
        cost.
        """
        return self._operator == "auto"

    def operator(self, join: Join) -> Operator:
        """The operator of a join, made if it is not there."""
        operator = self._operators.get(join)
        if operator is None:
            with self.lock:
                operator = self._operators.get(join)
                if operator is None:
                    operator = self._operators[join] = self._make(join)
        return operator

    def needs(self, join: Join) -> str | None:
        """The scheme whose SES labels the inputs of a join must have now."""
        operator = self.operator(join)
        if isinstance(operator, Adaptive):
            return operator.needs
        return operator.scheme if isinstance(operator, CMatch) else None

    def feed(self, join: Join, inputs: Inputs) -> Matches:
        """A batch of a join, with nothing of it left for later."""
        with self.lock:
            operator = self.operator(join)
            try:
                found = operator.feed(inputs)
                rest = operator.drain()
            except MatchError:
                self.drop(join)
                raise
            if self._room.get(join, 0) > 0:
                self._record(join, inputs)
            return Matches.joined([found, rest]) if len(rest.id) else found

    def _record(self, join: Join, inputs: Inputs) -> None:
        """Keep the beginning of what a join gets, so that other ways can be tried on it."""
        if join not in self._records:
            self._records[join] = Recording()
        self._records[join].add(inputs)
        number = max(len(inputs), 1)
        self._left -= number
        self._room[join] -= number
        if self._left <= 0:
            self._room.clear()

    def recording(self, join: Join) -> Recording | None:
        """The first batches of a join on this generation, a bounded number, as they are now."""
        kept = self._records.get(join)
        return None if kept is None else kept.copy()

    def _make(self, join: Join) -> Operator:
        index, tag, axis = self.index, join.tag, join.axis
        if self._operator == "admatch":
            return ADMatch(index, tag, axis)
        if self._operator == "cmatch":
            scheme = self._scheme or next(iter(index.schemes))
            return CMatch(index, tag, axis, scheme, budget=self._budget, threads=self._threads)
        self._room[join] = RECORDED if self._left > 0 else 0
        return Adaptive(
            index,
            tag,
            axis,
            anchors=join.anchor,
            budget=self._budget,
            threads=self._threads,
        )

    def __iter__(self) -> Iterator[tuple[Join, Operator]]:
        return iter(list(self._operators.items()))

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
            self.index = index
            # What was recorded names segments of the old one.
            self._records.clear()
            self._left = RECORDED_ALL
            self._room = dict.fromkeys(self._room, RECORDED)
            for join, operator in self:
                try:
                    operator.move(index)
                except MatchError:
                    self.drop(join)

    def drop(self, join: Join) -> None:
        """Let go of an operator that failed; the next batch gets another."""
        operator = self._operators.pop(join, None)
        if operator is not None:
            operator.close()

    def close(self) -> None:
        """Let go of all of them."""
        with self.lock:
            for operator in self._operators.values():
                operator.close()
            self._operators.clear()
