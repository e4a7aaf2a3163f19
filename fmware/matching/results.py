"""What the middleware says of one message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmware.matching.anchors import Missing
    from labeling import NodeTable

__all__ = ["LocalNode", "Match", "Result"]


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of the corpus that a statement selected.

    `path` leads to it from its record's root. Value and fragment are there if they are wanted.
    """

    tag: str
    start: int
    end: int
    level: int
    path: str
    source: str | None
    value: str | None = None
    fragment: bytes | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """A statement that holds: the message's nodes, by row, and what was selected in the corpus."""

    statement: str
    nodes: tuple[int, ...] = ()
    local: LocalNode | None = None


@dataclass(slots=True)
class Result:
    """What was found for one message.

    `missing` are anchors without a local counterpart, if they were asked for; `unmatched` is how
    many there were. `seconds` are those of the batch the message was in, by stage.
    """

    message: str
    table: NodeTable | None = None
    matches: list[Match] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    unmatched: int = 0
    missing: list[Missing] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def statements(self) -> list[str]:
        """The statements that match, each once, in order."""
        return sorted({match.statement for match in self.matches})
