"""Tests of one node's value, and which of them follow from which.

XPath compares the string of a node with a string, and its number with a number; a string that is no
number is NaN, which is unequal to every number and neither less nor greater. So `[x = '1']` implies
`[x = 1]`, and not the other way round: `01` is a 1 as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isnan, nan
from typing import Final, Literal

from fmware.xpath import Op

__all__ = ["Atom", "atom", "contradict", "holds", "implies", "number"]

Test = Literal["eq", "ne", "lt", "le", "gt", "ge", "contains", "starts", "never"]

_NUMBER: Final = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))[ \t\r\n]*")
_TESTS: Final[dict[Op, Test]] = {
    Op.EQ: "eq",
    Op.NE: "ne",
    Op.LT: "lt",
    Op.LE: "le",
    Op.GT: "gt",
    Op.GE: "ge",
}
_ORDER: Final = ("lt", "le", "gt", "ge")


@dataclass(frozen=True, slots=True)
class Atom:
    """A test that a value passes or fails; an order is always one of numbers."""

    test: Test
    value: str | float = ""


def number(text: str) -> float:
    """The number of a string, as XPath 1.0 has it; NaN if it is none."""
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found else nan


def atom(op: Op, value: str | float) -> Atom:
    """The test of a comparison."""
    test = _TESTS[op]
    if test in _ORDER:
        value = number(value) if isinstance(value, str) else value
        return Atom("never") if isnan(value) else Atom(test, value)
    return Atom(test, value)


def holds(known: Atom, value: str) -> bool:
    """Whether a string passes a test."""
    wanted = known.value
    match known.test:
        case "never":
            return False
        case "contains":
            return str(wanted) in value
        case "starts":
            return value.startswith(str(wanted))
        case "eq" if isinstance(wanted, str):
            return value == wanted
        case "ne" if isinstance(wanted, str):
            return value != wanted
    return _compares(number(value), known.test, float(wanted))


def implies(given: Atom, wanted: Atom) -> bool:
    """Whether each value that passes one test passes the other; false where that is not known."""
    if given == wanted or given.test == "never":
        return True
    if given.test == "eq" and isinstance(given.value, str):
        return holds(wanted, given.value)
    if given.test in ("contains", "starts"):
        return _implied_by_text(given, wanted)
    if isinstance(given.value, str):
        return False
    if isinstance(wanted.value, str):
        # A string that fails the given test is no value that passed it.
        return wanted.test == "ne" and not holds(given, wanted.value)
    return _within(given.test, given.value, wanted.test, wanted.value)


def contradict(first: Atom, second: Atom) -> bool:
    """Whether no value passes both tests; false where that is not known."""
    for one, other in ((first, second), (second, first)):
        if one.test == "never":
            return True
        if one.test == "eq" and isinstance(one.value, str) and not holds(other, one.value):
            return True
        if one.test in ("eq", *_ORDER) and isinstance(one.value, float):
            opposite = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
            turned = opposite.get(other.test)
            if turned and isinstance(other.value, float):
                # Not NaN, because it passed the first test: so one of the two must hold.
                against = Atom(turned, other.value)  # type: ignore[arg-type]
                if implies(one, against):
                    return True
    return False


def _implied_by_text(given: Atom, wanted: Atom) -> bool:
    text, part = str(given.value), str(wanted.value)
    if wanted.test == "contains":
        return part in text
    if wanted.test == "starts":
        return given.test == "starts" and text.startswith(part)
    return wanted.test == "ne" and isinstance(wanted.value, str) and not holds(given, part)


def _compares(value: float, test: Test, other: float) -> bool:
    match test:
        case "eq":
            return value == other
        case "ne":
            return value != other
        case "lt":
            return value < other
        case "le":
            return value <= other
        case "gt":
            return value > other
        case _:
            return value >= other


def _within(given: Test, low: float, wanted: Test, high: float) -> bool:
    """Whether numbers that compare so with one number compare so with another."""
    match given:
        case "eq":
            return _compares(low, wanted, high)
        case "ne":
            return wanted == "ne" and low == high
        case "lt" | "le":
            strict = given == "lt"
            below = low <= high if strict else low < high
            return {"lt": below, "le": low <= high, "ne": below}.get(wanted, False)
        case _:
            strict = given == "gt"
            above = low >= high if strict else low > high
            return {"gt": above, "ge": low >= high, "ne": above}.get(wanted, False)
