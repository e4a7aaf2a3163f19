"""Statements of a file as plain values: what is stored, sent to workers and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fmware.filtering.statements import BadStatement, iter_statements
from fmware.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KEYS", "entries_of", "statement_of"]

KEYS: Final = ("filter", "match", "anchor", "axis", "returns")


def entries_of(data: bytes, source: str) -> tuple[list[dict[str, Any]], list[BadStatement]]:
    """The statements of some bytes, and those that are not even entries, with the reason.

    The suffix of `source` tells TOML from lines. A `StatementFileError` if all of it is no file of
    statements.
    """
    good: list[dict[str, Any]] = []
    bad: list[BadStatement] = []
    for entry in iter_statements(data, source, keys=KEYS):
        if isinstance(entry, BadStatement):
            bad.append(entry)
            continue
        about: dict[str, Any] = {"name": entry.name, **entry.more}
        about |= {"expression": entry.expression} if entry.expression else {}
        about |= {"namespaces": dict(entry.namespaces)} if entry.namespaces else {}
        good.append(about)
    return good, bad


def statement_of(about: Mapping[str, Any], name: str | None = None) -> Statement:
    """A statement from plain values, with the keys of an entry in a file of statements."""
    common: dict[str, Any] = {
        "name": name or about.get("name"),
        "namespaces": about.get("namespaces"),
        "returns": about.get("returns"),
    }
    if expression := about.get("expression"):
        return Statement.parse(expression, **common)
    return Statement.two_part(
        filter=about.get("filter") or "",
        match=about.get("match") or "",
        anchor=about.get("anchor"),
        axis=about.get("axis"),
        **common,
    )
