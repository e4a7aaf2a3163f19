"""What is allowed in a statement and can never hold, whatever message comes.

XPath 1.0 compares by `<`, `<=`, `>` and `>=` as numbers. A text that is no number becomes NaN, and
no comparison with NaN holds: `IssueDate >= '2026-06-01'` is false for every date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.xpath import And, Compare, Not, Or, Position, to_text
from fmware.xpath.printer import expr_text
from fmware.xpath.tree import Op, paths_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.statements.statement import Statement
    from fmware.xpath import Expr, Path

__all__ = ["lint"]

ORDERED = (Op.LT, Op.LE, Op.GT, Op.GE)


def lint(statement: Statement) -> list[str]:
    """Warnings about conditions of a statement that can never hold, each once."""
    paths = [statement.filter, *(crossing.match for crossing in statement.crossings)]
    return list(dict.fromkeys(each for path in paths for each in _of_path(path)))


def _of_path(path: Path) -> Iterator[str]:
    for step in path.steps:
        for test in step.predicates:
            yield from _of_test(test)


def _of_test(test: Expr) -> Iterator[str]:
    if isinstance(test, And | Or):
        for term in test.terms:
            yield from _of_test(term)
    elif isinstance(test, Not):
        yield from _of_test(test.term)
    else:
        yield from _never(test)
        for inner in paths_of(test):
            yield from _of_path(inner)


def _never(test: Expr) -> Iterator[str]:
    if isinstance(test, Compare) and _is_no_number(test):
        yield (
            f"[{expr_text(test)}] never holds: XPath 1.0 orders numbers only, and {test.value!r} "
            f"is none; compare {to_text(test.path)} by =, or write dates as numbers (20260601)"
        )
    elif isinstance(test, Position) and _is_nowhere(test):
        yield f"[{expr_text(test)}] never holds: positions are 1, 2, 3 ..."


def _is_no_number(test: Compare) -> bool:
    return test.op in ORDERED and isinstance(test.value, str) and _number(test.value) is None


def _is_nowhere(test: Position) -> bool:
    if test.op in (Op.LT, Op.LE):
        return test.value < 1 or (test.op is Op.LT and test.value == 1)
    return test.op is Op.EQ and (test.value < 1 or test.value != int(test.value))


def _number(text: str) -> float | None:
    """The number that XPath 1.0 reads in a text: a minus, digits, one point; else None."""
    bare = text.strip(" \t\r\n").removeprefix("-")
    digits = bare.replace(".", "", 1)
    return float(bare) if digits.isascii() and digits.isdigit() else None
