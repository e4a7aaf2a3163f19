"""Statement files: plain, one statement a line, or TOML.

Plain: a statement's name is the number of its line, from 1. Blank lines and lines that begin with
`#` are no statements, but they count. TOML, told by the suffix `.toml`:

    [namespaces]
    atom = "http://www.w3.org/2005/Atom"

    [[statement]]
    name = "recent"
    expression = "//atom:entry[atom:year > 2003]"
    namespaces = { x = "urn:x" }   # beside those above, which it may override

`fmware.statements` reads the same files, with more keys in an entry.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fmware.filtering.errors import FilterError
from fmware.xpath import XPathError, check_expression, check_prefixes, plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from fmware.errors import FMwareError

__all__ = [
    "BadStatement",
    "Statement",
    "StatementFileError",
    "Statements",
    "iter_statements",
    "read_statements",
    "refusal",
]

_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*[\"']?statement[\"']?[ \t]*\]\]", re.MULTILINE)
_KEYS: Final = {"name", "expression", "namespaces"}


class StatementFileError(FilterError, ValueError):
    """A statement file, or an entry of one, that is not what it should be; `line` is from 1."""

    def __init__(self, reason: str, *, source: str, line: int) -> None:
        self.reason = reason
        self.source = source
        self.line = line
        super().__init__(f"{source}: line {line}: {reason}")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as it stands in a file; `line` is from 1.

    `more` has the values of further keys; where there are any, the expression may be empty.
    """

    name: str
    expression: str
    namespaces: Mapping[str, str]
    line: int
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadStatement:
    """A statement that was refused, and why; `name` is its line's number if it has no other."""

    name: str
    line: int
    error: FMwareError


def refusal(source: str | Path, bad: BadStatement) -> str:
    """Why a statement of a file was refused, with the file, the line and the name."""
    own = "" if bad.name == str(bad.line) else f", statement {bad.name}"
    why = bad.error.reason if isinstance(bad.error, StatementFileError) else bad.error
    return f"{source}, line {bad.line}{own}: {why}"


class Statements(list[Statement]):
    """The good statements of a file, in its order; the others are in `bad`."""

    __slots__ = ("bad",)

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[BadStatement] = []


def read_statements(path: str | Path, *, namespaces: Mapping[str, str] | None = None) -> Statements:
    """The statements of a file, each parsed once to see that it is good.

    `namespaces` are prefixes for all of them; those that the file declares go before. Raises an
    `OSError` or a `StatementFileError` only if the file as a whole cannot be read.
    """
    data = Path(path).read_bytes()
    found = Statements()
    for each in iter_statements(data, str(path), namespaces=namespaces):
        if isinstance(each, BadStatement):
            found.bad.append(each)
            continue
        try:
            _check(each)
        except XPathError as error:
            found.bad.append(BadStatement(each.name, each.line, error))
        else:
            found.append(each)
    return found


def _check(statement: Statement) -> None:
    planned = plan(statement.expression)
    if planned.native is not None:
        check_prefixes(planned.native, statement.namespaces, statement.expression)
    elif planned.expression is not None:
        check_expression(planned.expression, statement.namespaces, statement.expression)


def iter_statements(
    data: bytes,
    source: str,
    *,
    namespaces: Mapping[str, str] | None = None,
    keys: Collection[str] = (),
) -> Iterator[Statement | BadStatement]:
    """The entries of a statement file, their expressions not parsed yet.

    `keys` are those that an entry may have beside the usual ones. With one of them it needs no
    expression: whoever knows them says what it needs.
    """
    text = _decoded(data, source)
    outer = dict(namespaces or {})
    if source.endswith(".toml"):
        return _toml(text, source, outer, frozenset(keys))
    return _lines(text, outer)


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        reason = f"byte {column} of the line is not UTF-8; convert the file to UTF-8"
        raise StatementFileError(reason, source=source, line=line) from None


def _lines(text: str, namespaces: Mapping[str, str]) -> Iterator[Statement]:
    # Not splitlines: a statement may hold characters that it takes for ends of lines.
    for number, line in enumerate(text.split("\n"), 1):
        expression = line.strip()
        if expression and not expression.startswith("#"):
            yield Statement(str(number), expression, namespaces, number)


def _toml(
    text: str, source: str, outer: Mapping[str, str], keys: frozenset[str]
) -> Iterator[Statement | BadStatement]:
    try:
        top = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise StatementFileError(str(error), source=source, line=line) from None
    except RecursionError:
        reason = "values lie too deep in each other"
        raise StatementFileError(reason, source=source, line=1) from None
    spaces = top.pop("namespaces", {})
    entries = top.pop("statement", [])
    if top or not _is_map(spaces) or not isinstance(entries, list):
        reason = f"unknown key {next(iter(top))!r}" if top else "not a list of [[statement]]"
        reason = reason if _is_map(spaces) else "[namespaces] has strings only"
        raise StatementFileError(reason, source=source, line=1)
    lines = _places(text, len(entries))
    return _entries(entries, source, dict(outer) | spaces, lines, keys)


def _places(text: str, count: int) -> list[int]:
    """The lines of the entries; tomllib does not tell. An inline list is all on line 1."""
    lines: list[int] = []
    line, at = 1, 0
    for header in _HEADER.finditer(text):
        # Only what lies between two headers is counted: all of it together is one pass.
        line += text.count("\n", at, header.start())
        at = header.start()
        lines.append(line)
    return lines if len(lines) == count else [1] * count


def _entries(
    entries: Iterable[Any],
    source: str,
    outer: Mapping[str, str],
    lines: Iterable[int],
    keys: frozenset[str],
) -> Iterator[Statement | BadStatement]:
    seen: dict[str, int] = {}
    for entry, line in zip(entries, lines, strict=True):
        reason = _wrong(entry, seen, keys)
        if reason:
            name = entry.get("name") if isinstance(entry, dict) else None
            error = StatementFileError(reason, source=source, line=line)
            yield BadStatement(name if isinstance(name, str) else str(line), line, error)
            continue
        seen[entry["name"]] = line
        own = entry.get("namespaces")
        spaces = dict(outer) | own if own else outer
        more = {key: entry[key] for key in keys & entry.keys()}
        yield Statement(entry["name"], entry.get("expression", ""), spaces, line, more)


def _wrong(entry: Any, seen: Mapping[str, int], keys: frozenset[str]) -> str:
    """What is wrong with an entry, its expression apart."""
    if not isinstance(entry, dict):
        return "a statement has a name and an expression"
    otherwise = "" if keys & entry.keys() else None
    for key, value in (("name", None), ("expression", otherwise)):
        if not isinstance(entry.get(key, value), str):
            return f"{key} is missing, or not a string"
    if entry["name"] in seen:
        return f"the name {entry['name']!r} is that of the statement on line {seen[entry['name']]}"
    if not _is_map(entry.get("namespaces", {})):
        return "namespaces has strings only"
    unknown = sorted(entry.keys() - _KEYS - keys)
    return f"unknown key {unknown[0]!r}" if unknown else ""


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
