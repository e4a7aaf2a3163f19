"""Statements as they are matched, and the clock of a batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from fmware.matching.anchors import AnchorPart
from fmware.matching.local import LocalPart
from fmware.matching.results import Match
from fmware.matching.tally import Tally
from fmware.statements import Returns

if TYPE_CHECKING:
    from fmware.matching.evaluate import Evaluators
    from fmware.statements import Statement

__all__ = ["Clock", "Plan"]

READ: Final = frozenset({Returns.VALUE, Returns.FRAGMENT})
"""What a description of a local node may have or lack."""


class Plan:
    """A statement, with what each of its crossings needs.

    `crossings`: of each, where its anchors are, what it asks of the corpus, and whether that is
    what the statement selects. `told`: whether the nodes of messages are wanted; `read`: what of
    local nodes must be read. `by_name` is the match of a statement of which only the name is
    wanted, and that messages alone decide: thousands of them may match every message.
    """

    __slots__ = ("by_name", "crossings", "read", "statement", "tally", "told")

    def __init__(self, statement: Statement, evaluators: Evaluators) -> None:
        spaces = statement.namespaces
        self.statement = statement
        self.crossings = [
            (
                AnchorPart(each.anchor, spaces, evaluators=evaluators),
                LocalPart(each, spaces, evaluators=evaluators),
                each.selects,
            )
            for each in statement.crossings
        ]
        self.told = Returns.MESSAGE in statement.returns
        self.read = statement.returns & READ
        named = not statement.crossings and not self.told
        self.by_name = Match(statement.name) if named else None
        self.tally = Tally()


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
