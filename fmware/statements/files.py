"""Files of statements: plain, one a line, or TOML.

They are those of `fmware.filtering.statements`, read by it. Beside an expression, an entry of a
TOML file may be in two parts, and say what it returns:

    [[statement]]
    name = "open warehouses"
    filter = "//sale/product[units > 3]"
    match = "//warehouse[@open = 'yes']/city"
    anchor = "product"              # or 2; the last step unless said
    axis = "descendant"             # if match does not say it
    returns = ["local", "value"]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fmware.filtering.statements import BadStatement, StatementFileError, iter_statements
from fmware.statements.statement import Statement
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.filtering.statements import Statement as Entry

__all__ = ["Statements", "parse_statements", "read_statements"]

_PARTS: Final = ("filter", "match", "anchor", "axis")
_KEYS: Final = {*_PARTS, "returns"}


class Statements(list[Statement]):
    """The good statements of a file, in its order; the others are in `bad`."""

    __slots__ = ("bad",)

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[BadStatement] = []


def read_statements(path: str | Path, *, namespaces: Mapping[str, str] | None = None) -> Statements:
    """The statements of a file.

    `namespaces` are prefixes for all of them; those that the file declares go before. Raises an
    `OSError` or a `StatementFileError` only if the file as a whole cannot be read.
    """
    return parse_statements(Path(path).read_bytes(), str(path), namespaces=namespaces)


def parse_statements(
    data: bytes, source: str, *, namespaces: Mapping[str, str] | None = None
) -> Statements:
    """The same of bytes; `source` is a name for errors, and its suffix tells TOML from lines."""
    found = Statements()
    for entry in iter_statements(data, source, namespaces=namespaces, keys=_KEYS):
        if isinstance(entry, BadStatement):
            found.bad.append(entry)
            continue
        try:
            found.append(_statement(entry, source))
        except (XPathError, StatementFileError) as error:
            found.bad.append(BadStatement(entry.name, entry.line, error))
    return found


def _statement(entry: Entry, source: str) -> Statement:
    if reason := _wrong(entry):
        raise StatementFileError(reason, source=source, line=entry.line)
    common: dict[str, Any] = {
        "name": entry.name,
        "namespaces": entry.namespaces,
        "returns": entry.more.get("returns"),
    }
    if entry.expression:
        return Statement.parse(entry.expression, **common)
    parts = {key: entry.more[key] for key in _PARTS if key in entry.more}
    return Statement.two_part(**parts, **common)


def _wrong(entry: Entry) -> str:
    """What keys do not go together, or have a value that no such key has."""
    more = entry.more
    there = [key for key in _PARTS if key in more]
    if entry.expression and there:
        return f"{there[0]} beside expression: say it in one of the two ways"
    if not entry.expression and not {"filter", "match"} <= more.keys():
        return "write an expression, or filter and match"
    for key in ("filter", "match", "axis"):
        if not isinstance(more.get(key, ""), str):
            return f"{key} is not a string"
    if type(more.get("anchor", "")) not in (str, int):
        return "anchor is the number of a step or its name"
    returns = more.get("returns", "")
    each = returns if isinstance(returns, list) else [returns]
    return "" if all(isinstance(one, str) for one in each) else "returns has strings only"
