"""Statements of a file as plain values: what is stored, sent to workers and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fmware.filtering.statements import BadStatement, iter_statements

if TYPE_CHECKING:
    from fmware.errors import FMwareError

__all__ = ["KEYS", "entries_of"]

KEYS: Final = ("filter", "match", "anchor", "axis", "returns")


def entries_of(
    data: bytes, source: str
) -> tuple[list[dict[str, Any]], list[tuple[str, FMwareError]]]:
    """The statements of some bytes, and those that are not even entries, with the reason.

    The suffix of `source` tells TOML from lines. A `StatementFileError` if all of it is no file of
    statements.
    """
    good: list[dict[str, Any]] = []
    bad: list[tuple[str, FMwareError]] = []
    for entry in iter_statements(data, source, keys=KEYS):
        if isinstance(entry, BadStatement):
            bad.append((entry.name, entry.error))
            continue
        about: dict[str, Any] = {"name": entry.name, **entry.more}
        about |= {"expression": entry.expression} if entry.expression else {}
        about |= {"namespaces": dict(entry.namespaces)} if entry.namespaces else {}
        good.append(about)
    return good, bad
