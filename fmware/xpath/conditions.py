"""What a condition says, in the few forms that the filter knows.

`condition_of` turns an expression in a boolean context into a small tree of forms. A form is exact,
or `Weak`: it holds wherever the expression does, and maybe elsewhere. Nothing is lost: what no form
can say becomes `Weak(True)`.

    count(item) > 2                  Holds(item[3])
    normalize-space(name) = 'A B'    Weak(Begins or contains: name has 'A' in it)
    price * quantity > 100           Weak(Both(Holds(price), Holds(quantity)))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, isnan
from typing import TYPE_CHECKING, Final, TypeAlias

from fmware.xpath.expression import (
    AxisStep,
    Binary,
    Call,
    Expression,
    Filtered,
    If,
    Location,
    Negate,
    NodeTest,
    Number,
    String,
    type_of,
)
from fmware.xpath.program import is_positional
from fmware.xpath.regex import matches_empty

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "All",
    "Any",
    "At",
    "Compares",
    "Condition",
    "Has",
    "Holds",
    "No",
    "Weak",
    "condition_of",
    "flattened",
    "is_single",
]

MOST: Final = 1000
"""A count that is compared with more than this is not turned into positions."""


@dataclass(frozen=True, slots=True)
class Holds:
    """A path selects something."""

    path: Location


@dataclass(frozen=True, slots=True)
class Compares:
    """Some node of a path compares with a literal."""

    path: Location
    op: str
    value: str | float


@dataclass(frozen=True, slots=True)
class Has:
    """The first node of a path has a text in it, or begins with it."""

    path: Location
    text: str
    first: bool


@dataclass(frozen=True, slots=True)
class At:
    """``position()`` compares with a number."""

    op: str
    value: float


@dataclass(frozen=True, slots=True)
class All:
    terms: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    terms: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class No:
    term: Condition


@dataclass(frozen=True, slots=True)
class Weak:
    """The expression implies the term; the term does not imply the expression."""

    term: Condition


Condition: TypeAlias = Holds | Compares | Has | At | All | Any | No | Weak | bool

_FLIP: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_UNSURE: Final = Weak(term=True)
_FIRST_ARGUMENT: Final = frozenset(
    {
        "string",
        "normalize-space",
        "translate",
        "substring",
        "substring-before",
        "substring-after",
        "name",
        "local-name",
        "namespace-uri",
        "lower-case",
        "upper-case",
        "string-join",
    }
)
"""Functions that give an empty string for an empty first argument."""
_NUMERIC: Final = frozenset({"number", "floor", "ceiling", "round", "xs:date", "xs:dateTime"})
"""Functions that give NaN, or what compares as it does, for an empty argument."""
_SELF: Final = Location(())
_ANY_NAME: Final = NodeTest("name", None, "*")
MOST_NAMES: Final = 32
"""Names of `*[self::a or ...]` that are followed each by itself."""
_LAST: Final = Call("last", ())
_POSITION: Final = Call("position", ())
_ENDS: Final = (_LAST, Binary("=", _POSITION, _LAST), Binary("=", _LAST, _POSITION))
_TRUTHS: Final = (Call("true", ()), Call("false", ()))


def condition_of(expr: Expression) -> Condition:
    """What an expression says as a condition; a number is not a position here."""
    match expr:
        case Location():
            return _any_of(map(Holds, _alternatives(expr)))
        case Filtered():
            return _filtered(expr)
        case Binary("or" | "and" as op, left, right):
            terms = condition_of(left), condition_of(right)
            return Any(terms) if op == "or" else All(terms)
        case Binary("|", left, right):
            return Any((condition_of(left), condition_of(right)))
        case Binary("=" | "!=" | "<" | "<=" | ">" | ">=" as op, left, right):
            return _comparison(op, left, right)
        case Number(value):
            return value != 0 and not isnan(value)
        case String(value):
            return bool(value)
        case If(test, yes, no):
            held = condition_of(test)
            return Any((All((held, condition_of(yes))), All((No(held), condition_of(no)))))
        case Call():
            return _call(expr)
        case _:
            return _UNSURE


def _any_of(terms: Iterable[Condition]) -> Condition:
    every = tuple(terms)
    return every[0] if len(every) == 1 else Any(every)


def _alternatives(path: Location) -> list[Location]:
    """Paths that together select what a path does: `*[self::a or self::b]` is `a` and `b`."""
    for index, step in enumerate(path.steps):
        tests = step.predicates
        if not tests or step.test != _ANY_NAME or step.axis in ("attribute", "namespace"):
            continue
        for place, test in enumerate(tests):
            names = _self_names(test)
            if not names or any(map(is_positional, tests[:place])) or len(names) > MOST_NAMES:
                continue
            rest = tests[:place] + tests[place + 1 :]
            if any(map(is_positional, rest[place:])):
                continue
            found = []
            for name in names:
                named = replace(step, test=name, predicates=rest)
                found.append(
                    replace(path, steps=(*path.steps[:index], named, *path.steps[index + 1 :]))
                )
            return (
                [each for one in found for each in _alternatives(one)] if len(names) == 1 else found
            )
    return [path]


def _self_names(expr: Expression) -> list[NodeTest]:
    """The names of `self::a or self::b`; none if an expression says anything else."""
    match expr:
        case Location((AxisStep("self", NodeTest("name") as test, ()),), False) if (
            test != _ANY_NAME
        ):
            return [test]
        case Binary("or" | "|", left, right):
            first, second = _self_names(left), _self_names(right)
            return first + second if first and second else []
        case _:
            return []


def flattened(expr: Expression) -> tuple[list[Location], bool]:
    """The paths whose nodes together are those of a node-set, and whether they are no more."""
    match expr:
        case Location():
            return [expr], True
        case Binary("|", left, right):
            first, second = flattened(left), flattened(right)
            return first[0] + second[0], first[1] and second[1]
        case Filtered(primary, predicates, steps):
            paths, exact = flattened(primary)
            kept = tuple(each for each in predicates if not is_positional(each))
            more = [_extended(path, kept, steps) for path in paths]
            return more, exact and len(kept) == len(predicates)
        case If(_, yes, no):
            return flattened(yes)[0] + flattened(no)[0], False
        case _:
            return [], False


def is_single(path: Location) -> bool:
    """Whether a path selects one node at most: the context node, or a named attribute of it."""
    steps = path.steps
    if path.absolute and steps and steps[0].axis == "child" and steps[0].test.kind == "name":
        steps = steps[1:]
    if len(steps) > 1:
        return False
    return all(
        step.axis == "attribute" and step.test.kind == "name" and step.test.name != "*"
        for step in steps
    )


def _extended(
    path: Location, predicates: tuple[Expression, ...], steps: tuple[AxisStep, ...]
) -> Location:
    """A path with more predicates at its end, and more steps."""
    own = path.steps
    if predicates:
        if not own:
            own = (AxisStep("self", NodeTest("node")),)
        last = own[-1]
        own = (*own[:-1], replace(last, predicates=(*last.predicates, *predicates)))
    return Location((*own, *steps), path.absolute, path.at)


def _filtered(expr: Filtered) -> Condition:
    paths, exact = flattened(expr)
    if not paths:
        return _UNSURE
    found = _any_of(Holds(each) for path in paths for each in _alternatives(path))
    # The first, or the last, of some nodes is there if any is.
    if not exact and not expr.steps and all(map(_is_end, expr.predicates)):
        exact = flattened(expr.primary)[1]
    return found if exact else Weak(found)


def _is_end(expr: Expression) -> bool:
    """``[1]`` or ``[last()]``."""
    return expr == Number(1.0) or is_last(expr)


def is_last(expr: Expression) -> bool:
    """Whether a predicate keeps just the last node."""
    return isinstance(expr, (Call, Binary)) and expr in _ENDS


def _call(expr: Call) -> Condition:
    match expr:
        case Call("not", (term,)):
            return No(condition_of(term))
        case Call("boolean", (term,)):
            return condition_of(term)
        case Call("true" | "false" as name):
            return name == "true"
        case Call("contains" | "starts-with" as name, (text, String(part))):
            return _has(text, part, first=name == "starts-with")
        case Call("ends-with", (text, String(part))):
            found = _has(text, part, first=False)
            return found if isinstance(found, bool) else Weak(found)
        case Call("matches", (text, String(pattern), *flags)):
            option = next((each.value for each in flags if isinstance(each, String)), "")
            return _UNSURE if matches_empty(pattern, option) else _needs([text])
        case Call("count", (nodes,)):
            return condition_of(nodes)
        case Call("sum" | "string-length", (nodes,)):
            return _needs([nodes])
        case _ if type_of(expr) in ("string", "number"):
            return _needs([expr])
    return _UNSURE


def _has(text: Expression, part: str, *, first: bool) -> Condition:
    if not part:
        return True
    path = _string_of(text)
    if path is not None:
        return Has(path, part, first)
    if isinstance(text, Call) and text.name == "normalize-space":
        inner = _string_of(text.args[0] if text.args else _SELF)
        words = part.split()
        if inner is not None and words:
            found = Has(inner, max(words, key=len), first=False)
            # Without blanks in it, white space around it does not matter.
            return found if words == [part] and not first else Weak(found)
    return _needs([text])


def _string_of(expr: Expression) -> Location | None:
    """The path whose first node an expression is the string of."""
    match expr:
        case Location():
            return expr
        case Call("string", ()):
            return _SELF
        case Call("string", (inner,)):
            return _string_of(inner) if type_of(inner) == "nodes" else None
        case _:
            return None


def _needs(exprs: list[Expression]) -> Condition:
    """That all paths are there without which the expressions would be empty, or not a number."""
    terms: list[Condition] = []
    for expr in exprs:
        terms += _required(expr)
    return Weak(All(tuple(terms))) if terms else _UNSURE


def _required(expr: Expression) -> list[Condition]:
    match expr:
        case Location() | Filtered() | Binary("|"):
            return [condition_of(expr)]
        case Negate(operand):
            return _required(operand)
        case Binary("+" | "-" | "*" | "div" | "mod", left, right):
            return _required(left) + _required(right)
        case Call(name, (first, *_)) if name in _FIRST_ARGUMENT or name in _NUMERIC:
            return _required(first)
        case _:
            return []


def _comparison(op: str, left: Expression, right: Expression) -> Condition:
    if _is_constant(left) and not _is_constant(right):
        left, right, op = right, left, _FLIP[op]
    if _is_constant(right):
        return _against(op, left, right)
    kinds = type_of(left), type_of(right)
    if "boolean" in kinds:
        return _UNSURE
    if "nodes" in kinds:
        # A node-set compares if some node of it does.
        nodes = [each for each, kind in zip((left, right), kinds, strict=True) if kind == "nodes"]
        numeric = op not in ("=", "!=") or "number" in kinds
        others = [each for each in (left, right) if each not in nodes]
        return _needs(nodes + (others if numeric and op != "!=" else []))
    if op == "!=" or (op == "=" and kinds == ("string", "string")):
        return _UNSURE
    return _needs([left, right])


def _is_constant(expr: Expression) -> bool:
    return isinstance(expr, (Number, String)) or (isinstance(expr, Call) and expr in _TRUTHS)


def _against(op: str, left: Expression, right: Expression) -> Condition:
    """A comparison with a constant on the right."""
    if isinstance(right, Call):
        return (
            _truth(op, condition_of(left), right.name == "true") if op in ("=", "!=") else _UNSURE
        )
    assert isinstance(right, (Number, String))
    value = right.value
    match left:
        case Number() | String():
            return _constants(op, left.value, value)
        case Call("position", ()):
            number = _number(value)
            return At(op, number) if number is not None else _UNSURE
        case Call("count", (nodes,)):
            number = _number(value)
            return _counted(op, nodes, number) if number is not None else op == "!="
        case Call("number", (nodes,)) if type_of(nodes) == "nodes" and op != "!=":
            number = _number(value)
            return _valued(op, nodes, number) if number is not None else False
        case Call("number", ()) if op != "!=" and isinstance(value, float):
            return Compares(_SELF, op, value)
        case Call("string", (nodes,)) if type_of(nodes) == "nodes" and _tells(op, value):
            return _valued(op, nodes, value)
        case Call("string", ()) if _tells(op, value):
            return Compares(_SELF, op, value)
        case Call("normalize-space") if isinstance(value, str) and value and op == "=":
            return _spaced(left, value)
    if type_of(left) == "nodes":
        paths, exact = flattened(left)
        found = _any_of(Compares(path, op, value) for path in paths)
        return (found if exact else Weak(found)) if paths else _UNSURE
    return _strict(op, left, value)


def _tells(op: str, value: str | float) -> bool:
    """Whether the string of no node at all does not compare so."""
    return value != "" if op == "=" else op != "!="


def _strict(op: str, left: Expression, value: str | float) -> Condition:
    kind = type_of(left)
    if kind == "boolean" or op == "!=" or (op == "=" and value == ""):
        return _UNSURE
    if isinstance(left, Call) and left.name in ("string-length", "sum"):
        number = _number(value)
        positive = number is not None and _above_zero(op, number)
        return _needs([*left.args]) if positive and left.args else _UNSURE
    return _needs([left])


def _above_zero(op: str, value: float) -> bool:
    """Whether no number that compares so is zero."""
    return not _constants(op, 0.0, value)


def _number(value: str | float) -> float | None:
    """A literal as a number; None if it is none."""
    if isinstance(value, float):
        return value
    digits = value.strip(" \t\r\n").removeprefix("-")
    whole, _, rest = digits.partition(".")
    if not (whole + rest).isdigit() or not digits.isascii():
        return None
    return float(value.strip(" \t\r\n"))


def _constants(op: str, left: str | float, right: str | float) -> bool:
    if isinstance(left, str) and isinstance(right, str) and op in ("=", "!="):
        return (left == right) is (op == "=")
    first, second = _number(left), _number(right)
    if first is None or second is None:
        return op == "!="
    return {
        "=": first == second,
        "!=": first != second,
        "<": first < second,
        "<=": first <= second,
        ">": first > second,
        ">=": first >= second,
    }[op]


def _truth(op: str, left: Condition, wanted: bool) -> Condition:
    return left if wanted is (op == "=") else No(left)


def _valued(op: str, nodes: Expression, value: str | float) -> Condition:
    """The value of the first node; exactly if there can be no second one."""
    paths, exact = flattened(nodes)
    if not paths:
        return _UNSURE
    found = _any_of(Compares(path, op, value) for path in paths)
    return found if exact and len(paths) == 1 and is_single(paths[0]) else Weak(found)


def _spaced(left: Call, value: str) -> Condition:
    """``normalize-space(...) = 'a b'``: the words are in it."""
    words = value.split()
    if " ".join(words) != value:
        return False
    path = _string_of(left.args[0] if left.args else _SELF)
    longest = max(words, key=len)
    return Weak(Has(path, longest, first=False)) if path is not None else _needs([left])


def _counted(op: str, nodes: Expression, value: float) -> Condition:
    """How many nodes there are, as what must and what must not be there."""
    if isnan(value) or not isfinite(value) or abs(value) > MOST:
        return _needs([nodes]) if op in ("=", ">", ">=") and value > 0 else _UNSURE
    if op in (">", ">="):
        return _at_least(nodes, floor(value) + 1 if op == ">" else ceil(value))
    if op in ("<", "<="):
        return No(_at_least(nodes, ceil(value) if op == "<" else floor(value) + 1))
    equal: Condition = False
    if value == floor(value) and value >= 0:
        equal = All((_at_least(nodes, int(value)), No(_at_least(nodes, int(value) + 1))))
    return equal if op == "=" else No(equal)


def _at_least(nodes: Expression, least: int) -> Condition:
    if least <= 0:
        return True
    if least == 1:
        return condition_of(nodes)
    if isinstance(nodes, Location) and len(nodes.steps) == 1 and not nodes.absolute:
        step = nodes.steps[0]
        if step.axis == "child" and step.test.kind == "name":
            counted = replace(step, predicates=(*step.predicates, Number(float(least))))
            return Holds(Location((counted,), at=nodes.at))
    return _needs([nodes])
