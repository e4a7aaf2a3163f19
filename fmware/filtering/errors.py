"""What can go wrong in filtering.

FMwareError
└── FilterError
    ├── StatementRefused (ValueError)   over a cap, or not a filter
    │   └── DuplicateName               a statement of this name is registered
    ├── UnknownStatement (KeyError)     no statement has this id or name
    ├── ForeignTable (ValueError)       a table with another vocabulary, or without values
    └── DocumentTooActive               a document over the cap of active states
"""

from __future__ import annotations

from fmware.errors import FMwareError

__all__ = [
    "DocumentTooActive",
    "DuplicateName",
    "FilterError",
    "ForeignTable",
    "StatementRefused",
    "UnknownStatement",
]


class FilterError(FMwareError):
    """Everything that filtering raises on purpose, statements that do not parse apart."""


class StatementRefused(FilterError, ValueError):
    """A statement that the engine will not take; the others are as they were."""


class DuplicateName(StatementRefused):
    """A statement of this name is registered: unsubscribe it first, or name one otherwise."""


class UnknownStatement(FilterError, KeyError):
    """No statement has this id or name."""

    def __str__(self) -> str:
        return str(self.args[0])


class ForeignTable(FilterError, ValueError):
    """A NodeTable that this engine cannot filter."""


class DocumentTooActive(FilterError):
    """More states were active at one element than `FilterLimits.active` allows."""
