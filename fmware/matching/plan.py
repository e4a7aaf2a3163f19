"""A statement, made ready for the middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fmware.filtering import Want
from fmware.matching.anchors import AnchorPart
from fmware.matching.local import LocalPart
from fmware.matching.tally import Tally
from fmware.statements import Returns

if TYPE_CHECKING:
    from fmware.matching.evaluate import Evaluators
    from fmware.statements import Statement

__all__ = ["FRAGMENTS", "PATHS", "VALUES", "Plan"]

PATHS, VALUES, FRAGMENTS = 1, 2, 4
"""What is returned of message nodes, as bits of `Plan.nodes`."""
READ: Final = frozenset({Returns.VALUE, Returns.FRAGMENT})
"""What must be read of a local node, beside where it is."""


class Plan:
    """A statement, with what each of its crossings needs.

    - `crossings`: of each, where its anchors are, what it asks of the corpus, and whether that is
      what the statement selects.
    - `wants`: what the filter is asked for.
    - `nodes`: what is returned of the message's nodes; `read`: what of local nodes must be read.
    - `told`: whether any of the message's nodes are returned, so that tuples are told apart.
    """

    __slots__ = (
        "crossings",
        "name",
        "nodes",
        "read",
        "statement",
        "tally",
        "told",
        "wants",
    )

    def __init__(self, statement: Statement, evaluators: Evaluators) -> None:
        spaces, returns = statement.namespaces, statement.returns
        self.name = statement.name
        self.statement = statement
        self.crossings = [
            (
                AnchorPart(each.anchor, spaces, evaluators=evaluators),
                LocalPart(each, spaces, evaluators=evaluators),
                each.selects,
            )
            for each in statement.crossings
        ]
        self.read = returns & READ
        self.nodes = PATHS if Returns.MESSAGE in returns else 0
        if statement.selects is None:
            self.nodes |= VALUES if Returns.VALUE in returns else 0
            self.nodes |= FRAGMENTS if Returns.FRAGMENT in returns else 0
        self.told = bool(self.nodes)
        self.wants = self._wants()
        self.tally = Tally()

    def _wants(self) -> Want:
        if self.statement.crossings:
            return Want.CROSSING
        if self.nodes & PATHS:
            return Want.TUPLES
        return Want.SELECTED if self.nodes else Want.NAME
