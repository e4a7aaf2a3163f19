"""Tree to XPath text, such that parsing the text gives the tree again."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isfinite, isnan
from typing import Final

from fmware.xpath.tree import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Expr,
    Kind,
    Not,
    Op,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
)

_SIGNS: Final = {Op.EQ: "=", Op.NE: "!=", Op.LT: "<", Op.LE: "<=", Op.GT: ">", Op.GE: ">="}
_SLASHES: Final = {
    Axis.CHILD: "/",
    Axis.DESCENDANT: "//",
    Axis.SELF: "/self::",
    Axis.PARENT: "/parent::",
    Axis.ANCESTOR: "/ancestor::",
}
_INFINITE: Final = "1" + "0" * 309
"""XPath 1.0 has no exponents and no word for infinity, but a literal can be too large."""


def to_text(path: Path) -> str:
    """The path in its short spelling, with single quotes where the string allows it."""
    return _path(path, inside=False)


def expr_text(expr: Expr, *, inside: bool = False) -> str:
    """A condition as it would stand in a predicate; ``inside`` one of a local step."""
    match expr:
        case And(terms):
            return " and ".join(_term(term, (And, Or), inside) for term in terms)
        case Or(terms):
            return " or ".join(_term(term, (Or,), inside) for term in terms)
        case Not(term):
            return f"not({expr_text(term, inside=inside)})"
        case Exists(path):
            return _path(path, inside=inside)
        case Compare(path, op, value):
            literal = quoted(value) if isinstance(value, str) else number_text(value)
            return f"{_path(path, inside=inside)} {_SIGNS[op]} {literal}"
        case Position(op, value):
            return f"position() {_SIGNS[op]} {number_text(value)}"
        case Contains(path, text):
            return f"contains({_path(path, inside=inside)}, {quoted(text)})"
        case StartsWith(path, text):
            return f"starts-with({_path(path, inside=inside)}, {quoted(text)})"


def quoted(text: str) -> str:
    """A string literal. XPath 1.0 cannot write a string that has both kinds of quote."""
    if "'" not in text:
        return f"'{text}'"
    if '"' in text:
        msg = f"XPath 1.0 cannot write a string with both kinds of quote: {text!r}"
        raise ValueError(msg)
    return f'"{text}"'


def number_text(value: float) -> str:
    """A number literal: the shortest digits that read back as the same number."""
    if isnan(value):
        msg = "XPath 1.0 has no literal for NaN"
        raise ValueError(msg)
    if not isfinite(value):
        return _INFINITE if value == inf else f"-{_INFINITE}"
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return format(Decimal(repr(value)), "f")


def _path(path: Path, *, inside: bool) -> str:
    text = "".join(_step(step, inside) for step in path.steps)
    if path.absolute:
        return text
    if text.startswith("//") or not text:
        return f".{text}"
    return text[1:]


def _step(step: Step, inside: bool) -> str:
    tests = "".join(_predicate(test, step.local) for test in step.predicates)
    return f"{_SLASHES[step.axis]}{_name(step, inside)}{tests}"


def _name(step: Step, inside: bool) -> str:
    if step.kind is Kind.TEXT:
        return "text()"
    name = f"{step.prefix}:{step.name}" if step.prefix else step.name
    if step.kind is Kind.ATTRIBUTE:
        return f"@{name}"
    # In a predicate of a local step everything is local, and prefixes mean namespaces again.
    return f"local:{name}" if step.local and not inside else name


def _predicate(test: Expr, inside: bool) -> str:
    if isinstance(test, Position) and test.op is Op.EQ:
        return f"[{number_text(test.value)}]"
    return f"[{expr_text(test, inside=inside)}]"


def _term(term: Expr, weaker: tuple[type[Expr], ...], inside: bool) -> str:
    text = expr_text(term, inside=inside)
    return f"({text})" if isinstance(term, weaker) else text
