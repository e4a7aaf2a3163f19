"""A batch under way: which statements let which messages pass, and what they ask the corpus.

Tuples of all messages that a statement let pass are lines, one after the other. Every crossing of
the statement has anchors on these lines, any number on each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fmware.matching.anchors import AnchorPart
from fmware.matching.local import LocalPart
from fmware.matching.results import Match, Result
from fmware.matching.tally import Tally
from fmware.statements import Returns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from fmware.filtering import FilterResult
    from fmware.matching.anchors import Locals
    from fmware.matching.evaluate import Evaluators
    from fmware.statements import Statement

    Ints = npt.NDArray[np.int64]
    Tuples = npt.NDArray[np.int32]

__all__ = ["NONE", "Ask", "Clock", "Passed", "Plan"]

NONE = np.empty(0, np.int64)
NO_TUPLE = np.empty((1, 0), np.int32)
"""What stands for a match of which nobody has asked for nodes."""


class Plan:
    """A statement, with what each of its crossings needs.

    `by_name` is the match of a statement of which only the name is wanted, and that messages alone
    decide: thousands of them may match every message.
    """

    __slots__ = ("anchors", "by_name", "locals", "statement", "tally")

    def __init__(self, statement: Statement, evaluators: Evaluators) -> None:
        spaces = statement.namespaces
        self.statement = statement
        self.anchors = [
            AnchorPart(each.anchor, spaces, evaluators=evaluators) for each in statement.crossings
        ]
        named = not statement.crossings and Returns.MESSAGE not in statement.returns
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

    def joined(self) -> Tuples:
        """The tuples of all messages, a line each."""
        return np.concatenate(self._tuples)

    @property
    def place_of_line(self) -> Ints:
        """Of each line, the place of its message."""
        counts = [len(tuples) for tuples in self._tuples]
        return np.repeat(np.array(self.places, np.int64), counts)

    def give(
        self,
        tuples: Tuples,
        alive: np.ndarray[tuple[int], np.dtype[np.bool_]],
        results: list[Result],
    ) -> int:
        """Matches of a statement that selects nothing in the corpus; how many."""
        told = Returns.MESSAGE in self.statement.returns
        name = self.statement.name
        places = self.place_of_line[alive].tolist()
        if not told:
            places = list(dict.fromkeys(places))
        rows = tuples[alive].tolist() if told else [()] * len(places)
        for place, nodes in zip(places, rows, strict=True):
            results[place].matches.append(Match(name, tuple(nodes)))
        return len(places)


@dataclass(slots=True)
class Ask:
    """The anchors of one crossing: of each, its tuple by its line, its message and its row.

    `locals` are their local nodes; anchors are numbered from `first` there.
    """

    line: Ints
    place: Ints
    row: Ints
    locals: Locals | None = None
    first: int = 0

    @classmethod
    def of(cls, part: AnchorPart, passed: Passed, results: list[Result]) -> Ask:
        if part.direct:
            rows_of = passed.joined()[:, part.step].astype(np.int64)
            return cls(np.arange(len(rows_of)), passed.place_of_line, rows_of)
        lines, places, rows = [NONE], [NONE], [NONE]
        begin = 0
        for place, tuples in passed.each():
            table = results[place].table
            assert table is not None
            line, row = part.rows(table, tuples)
            lines.append(line + begin)
            places.append(np.full(len(row), place, np.int64))
            rows.append(row)
            begin += len(tuples)
        return cls(np.concatenate(lines), np.concatenate(places), np.concatenate(rows))


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
