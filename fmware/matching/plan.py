"""A statement, made ready for the middleware."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fmware.filtering import Want
from fmware.matching._kernel import Crossing, Prepared, Seek
from fmware.matching.anchors import AnchorPart
from fmware.matching.evaluate import resolved
from fmware.matching.local import LocalPart
from fmware.statements import Returns
from fmware.xpath import Path

if TYPE_CHECKING:
    from fmware.matching.evaluate import Evaluators
    from fmware.statements import Statement
    from fmware.xpath import Anchor

__all__ = ["FRAGMENTS", "PATHS", "VALUES", "Plan"]

PATHS, VALUES, FRAGMENTS = 1, 2, 4
"""What is returned of message nodes, as bits of `Plan.nodes`."""
READ: Final = frozenset({Returns.VALUE, Returns.FRAGMENT})
"""What must be read of a local node, beside where it is."""
NOTHING: Final = (-1, "")
"""The kind and the name of local nodes that a statement selects, if it selects none."""


class Plan(Prepared):
    """A statement, with what each of its crossings needs.

    - `crossings`: what it asks of the corpus; `tally`: what it has done.
    - `wants`: what the filter is asked for.
    - `nodes`: what is returned of the message's nodes; `read`: what of local nodes must be read.
    - `apart`: which matches of a message are told apart: those with another local node (0), with
      another path tuple (1), or with another node that the tuple ends at (2).
    - `selected`: the kind and the name of the local nodes that the statement selects.
    """

    __slots__ = ("name", "nodes", "read", "selected", "statement", "wants")

    def __init__(self, statement: Statement, evaluators: Evaluators) -> None:
        spaces, returns = statement.namespaces, statement.returns
        self.name = statement.name
        self.statement = statement
        crossings: list[Crossing] = []
        for each in statement.crossings:
            part = LocalPart(each, spaces, evaluators=evaluators)
            anchor = AnchorPart(each.anchor, spaces, evaluators=evaluators)
            seek = Seek(_name(each.anchor, statement), part.sought)
            crossings.append(Crossing(anchor, part, each.selects, seek))
        chosen = [each.part.selected for each in crossings if each.selects]
        self.selected = chosen[0] if chosen else NOTHING
        self.read = returns & READ
        self.nodes = PATHS if Returns.MESSAGE in returns else 0
        if statement.selects is None:
            self.nodes |= VALUES if Returns.VALUE in returns else 0
            self.nodes |= FRAGMENTS if Returns.FRAGMENT in returns else 0
        self.wants = self._wants()
        super().__init__(crossings, 1 if self.nodes & PATHS else 2 if self.nodes else 0)

    def _wants(self) -> Want:
        if self.statement.crossings:
            return Want.CROSSING
        if self.nodes & PATHS:
            return Want.TUPLES
        return Want.SELECTED if self.nodes else Want.NAME


def _name(anchor: Anchor, statement: Statement) -> str | None:
    """The Clark name that the elements of an anchor have; None if they may have any."""
    step = (anchor.branch.steps or (statement.filter.steps[anchor.step],))[-1]
    name = resolved(Path((replace(step, predicates=()),)), statement.namespaces or {}).steps[0].name
    return None if name.endswith("*") else name
