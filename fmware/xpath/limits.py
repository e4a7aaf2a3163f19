"""How large a statement may be."""

from __future__ import annotations

from dataclasses import dataclass

DEEPEST = 64
"""The parser, the printer and the canonical form recurse; a level costs the parser about seven
frames, so this stays well inside the interpreter's own limit of a thousand."""


@dataclass(slots=True)
class XPathLimits:
    """Bounds on one expression.

    ``depth`` counts predicates, parentheses and function calls inside one another; ``terms``
    counts predicates and the terms of ``and`` and ``or`` in the whole expression.
    """

    length: int = 8192
    steps: int = 256
    depth: int = 32
    terms: int = 256

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= DEEPEST:
            msg = f"depth must be between 0 and {DEEPEST}, not {self.depth}"
            raise ValueError(msg)
