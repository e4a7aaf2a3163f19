"""A batch under way: which statements let which messages pass, and with which of their nodes.

Tuples of all messages that a statement let pass are lines, one after the other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fmware.matching.anchors import AnchorPart
from fmware.matching.local import LocalPart
from fmware.matching.results import Match
from fmware.matching.tally import Tally
from fmware.statements import Returns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from fmware.filtering import FilterResult
    from fmware.matching.evaluate import Evaluators
    from fmware.statements import Statement

    Ints = npt.NDArray[np.int64]
    Tuples = npt.NDArray[np.int32]

__all__ = ["Clock", "Lines", "Passed", "Plan"]

READ: Final = frozenset({Returns.VALUE, Returns.FRAGMENT})
"""What a description of a local node may have or lack."""
NO_TUPLE: Final = np.empty((1, 0), np.int32)
"""What stands for a match of which nobody has asked for nodes."""


class Plan:
    """A statement, with what each of its crossings needs.

    `told`: whether the nodes of messages are wanted; `read`: what of local nodes must be read.
    `by_name` is the match of a statement of which only the name is wanted, and that messages alone
    decide: thousands of them may match every message.
    """

    __slots__ = ("anchors", "by_name", "locals", "read", "statement", "tally", "told")

    def __init__(self, statement: Statement, evaluators: Evaluators) -> None:
        spaces = statement.namespaces
        self.statement = statement
        self.anchors = [
            AnchorPart(each.anchor, spaces, evaluators=evaluators) for each in statement.crossings
        ]
        self.told = Returns.MESSAGE in statement.returns
        self.read = statement.returns & READ
        named = not statement.crossings and not self.told
        self.by_name = Match(statement.name) if named else None
        self.locals = [
            LocalPart(each, spaces, evaluators=evaluators) for each in statement.crossings
        ]
        self.tally = Tally()


class Passed:
    """A statement that let messages pass: of each, its place in the batch and its tuples."""

    __slots__ = ("_tuples", "places", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.places: list[int] = []
        self._tuples: list[Tuples] = []

    @property
    def statement(self) -> Statement:
        return self.plan.statement

    def take(self, place: int, found: FilterResult, number: int) -> None:
        self.places.append(place)
        self._tuples.append(found.tuples.get(number, NO_TUPLE))

    def each(self) -> Iterator[tuple[int, Tuples]]:
        return zip(self.places, self._tuples, strict=True)

    def lines(self) -> Lines:
        """The tuples of all messages, a line each."""
        counts = [len(tuples) for tuples in self._tuples]
        places = np.repeat(np.array(self.places, np.int64), counts)
        return Lines(np.concatenate(self._tuples), places)


class Lines(NamedTuple):
    """Tuples of several messages, and of each the place of its message in the batch."""

    tuples: Tuples
    place: Ints


class Clock:
    """Seconds of stages that follow each other."""

    __slots__ = ("_last", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now
