"""How a statement is decided: by the automaton, or by a guard there and the expression behind it.

`plan` parses an expression. A path of the native subset is decided as it stands. Of anything else
it makes a guard, a formula of such paths that holds wherever the statement does:

    //a | //b[@x]                 //a or //b[@x]              exact: the guard decides
    /order/@type = 'x'            /order[@type = 'x']         exact
    count(//item) > 3             //item                      the expression decides behind it
    //a/following-sibling::b      //a and //b                 the expression decides behind it
    not(//error)                  not(//error)                exact
    string-length(/) > 9          /*                          every message is tried: a weak guard

An exact guard says whether a statement holds. What it selects, only a native path says; for nodes
the expression is evaluated where the guard holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from fmware.xpath.conditions import (
    All,
    Any,
    At,
    Compares,
    Condition,
    Has,
    Holds,
    No,
    Weak,
    condition_of,
    is_last,
    is_single,
)
from fmware.xpath.errors import UnsupportedXPath, XPathSyntaxError
from fmware.xpath.expression import (
    AxisStep,
    Binary,
    Call,
    Expression,
    Location,
    NodeTest,
    Number,
    String,
    type_of,
)
from fmware.xpath.grammar import parse_expression
from fmware.xpath.limits import XPathLimits
from fmware.xpath.parser import LOCAL, parse
from fmware.xpath.printer import to_text
from fmware.xpath.program import is_positional
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
    paths_of,
    positional,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AllOf", "AnyOf", "Guard", "NotOf", "Plan", "guard_text", "plan", "plan_of", "read"]

_DEFAULTS: Final = XPathLimits()
_OPS: Final = {"=": Op.EQ, "!=": Op.NE, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}
_ROOT: Final = Path((Step(Axis.CHILD, Kind.ELEMENT, None, "*"),), absolute=True)
"""What every document has."""
_ANYWHERE: Final = AxisStep("descendant-or-self", NodeTest("node"))


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of some guards."""

    terms: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Any of some guards."""

    terms: tuple[Guard, ...]


@dataclass(frozen=True, slots=True)
class NotOf:
    """A guard does not hold."""

    term: Guard


Guard: TypeAlias = Path | AllOf | AnyOf | NotOf | bool


@dataclass(frozen=True, slots=True)
class Plan:
    """How a statement is decided.

    - `guard`: holds wherever the statement does.
    - `exact`: and nowhere else.
    - `native`: the path that is the statement, nodes included; None if the expression is needed
      for what it selects.
    - `expression`: the statement as a tree; None if it is native.
    """

    text: str
    guard: Guard
    exact: bool
    native: Path | None = None
    expression: Expression | None = field(default=None, compare=False)

    @property
    def residual(self) -> bool:
        """Whether the expression decides behind the guard."""
        return not self.exact

    @property
    def weak(self) -> bool:
        """Whether nearly every message passes the guard, so that the expression runs on each."""
        return not self.exact and _is_weak(self.guard)


def plan(
    text: str,
    *,
    limits: XPathLimits = _DEFAULTS,
    variables: Mapping[str, str | float | bool] | None = None,
) -> Plan:
    """Parse a statement and plan it; raises an XPathError that points at what is wrong."""
    tree = read(text, limits=limits, variables=variables)
    return plan_of(tree, text) if isinstance(tree, Path) else _planned(text, tree)


def read(
    text: str,
    *,
    limits: XPathLimits = _DEFAULTS,
    variables: Mapping[str, str | float | bool] | None = None,
) -> Path | Expression:
    """The tree of a statement: a native path as it is written, or any other expression."""
    try:
        return parse(text, limits=limits)
    except (UnsupportedXPath, XPathSyntaxError):
        if LOCAL + ":" in text and _is_crossing(text, limits, variables):
            raise
    return parse_expression(text, limits=limits, variables=variables)


def plan_of(path: Path, text: str | None = None) -> Plan:
    """The plan of a native path."""
    return Plan(to_text(path) if text is None else text, path, exact=True, native=path)


def guard_text(guard: Guard) -> str:
    """A guard for people to read."""
    match guard:
        case Path():
            return to_text(guard)
        case AllOf(terms):
            return " and ".join(_inner_text(term) for term in terms)
        case AnyOf(terms):
            return " or ".join(_inner_text(term) for term in terms)
        case NotOf(term):
            return f"not({guard_text(term)})"
        case _:
            return "true()" if guard else "false()"


def _inner_text(guard: Guard) -> str:
    text = guard_text(guard)
    return f"({text})" if isinstance(guard, (AllOf, AnyOf)) else text


def _is_weak(guard: Guard) -> bool:
    match guard:
        case AllOf(terms):
            return all(map(_is_weak, terms))
        case AnyOf(terms):
            return any(map(_is_weak, terms))
        case Path(steps):
            return all(step.name == "*" and not step.predicates for step in steps)
        case bool():
            return guard
        case _:
            return True


def _is_crossing(
    text: str, limits: XPathLimits, variables: Mapping[str, str | float | bool] | None
) -> bool:
    """Whether an expression with `local:` in it has a step of the corpus."""
    from fmware.xpath.expression import steps_of

    try:
        tree = parse_expression(text, limits=limits, variables=variables)
    except (UnsupportedXPath, XPathSyntaxError):
        return True
    return any(step.test.prefix == LOCAL for step in steps_of(tree))


def _planned(text: str, expression: Expression) -> Plan:
    native = _native_path(expression)
    if native is not None:
        return Plan(text, native, exact=True, native=native)
    guard, exact = _guard(condition_of(expression))
    return Plan(text, guard, exact, None, expression)


def _native_path(expression: Expression) -> Path | None:
    """The path that selects the same nodes, if there is one."""
    if not isinstance(expression, Location) or not expression.steps:
        return None
    found = _convert(expression.steps, existence=False)
    if found is None or found.used < len(expression.steps) or not found.exact or not found.steps:
        return None
    return Path(tuple(found.steps), absolute=True, at=expression.at)


# -- guards of conditions at the document --


def _guard(condition: Condition) -> tuple[Guard, bool]:
    """A guard, and whether it is exact."""
    match condition:
        case bool():
            return condition, True
        case Weak(term):
            return _guard(term)[0], False
        case All(terms):
            return _joined([_guard(term) for term in terms], every=True)
        case Any(terms):
            return _joined([_guard(term) for term in terms], every=False)
        case No(term):
            return _negated(term)
        case Holds(path):
            return _path_guard(path)
        case Compares(path, op, value):
            return _path_guard(_with(path, Binary(op, Location(()), _literal(value))))
        case Has(path, text, first):
            call = Call("starts-with" if first else "contains", (Location(()), String(text)))
            guard, exact = _path_guard(_with(path, call))
            return guard, exact and _is_one(path)
        case At(op, value):
            return _guard(condition_of(Binary(op, Number(1.0), Number(value))))
    raise AssertionError(condition)


def _is_one(path: Location) -> bool:
    absolute = Location(path.steps, absolute=True)
    return is_single(absolute)


def _literal(value: str | float) -> Expression:
    return String(value) if isinstance(value, str) else Number(value)


def _with(path: Location, test: Expression) -> Location:
    """A path whose last node fulfils a test. The document has the string of its root element."""
    if not path.steps:
        return Location((AxisStep("child", NodeTest("name", None, "*"), (test,)),), absolute=True)
    last = path.steps[-1]
    return replace(
        path, steps=(*path.steps[:-1], replace(last, predicates=(*last.predicates, test)))
    )


def _joined(parts: list[tuple[Guard, bool]], *, every: bool) -> tuple[Guard, bool]:
    """All or any of some guards."""
    exact = all(sure for _, sure in parts)
    terms: list[Guard] = []
    for guard, sure in parts:
        if isinstance(guard, bool):
            if guard is every:
                continue
            # One false term decides `and`, one true term `or`, if it is sure to be what it says.
            return guard, sure or exact or (every and not guard)
        inner = AllOf if every else AnyOf
        terms += guard.terms if isinstance(guard, inner) else (guard,)
    terms = list(dict.fromkeys(terms))
    if not terms:
        return every, exact
    if len(terms) == 1:
        return terms[0], exact
    return (AllOf(tuple(terms)) if every else AnyOf(tuple(terms))), exact


def _negated(condition: Condition) -> tuple[Guard, bool]:
    match condition:
        case All(terms):
            return _joined([_negated(term) for term in terms], every=False)
        case Any(terms):
            return _joined([_negated(term) for term in terms], every=True)
        case No(term):
            return _guard(term)
        case _:
            guard, exact = _guard(condition)
            if not exact:
                return True, False
            return (not guard if isinstance(guard, bool) else NotOf(guard)), True


def _path_guard(path: Location) -> tuple[Guard, bool]:
    """What a path from the document needs."""
    steps = path.steps
    lifted: list[Condition] = []
    found = _convert(steps, existence=True, lifted=lifted)
    if found is None:
        return False, True
    parts: list[tuple[Guard, bool]] = []
    if found.steps:
        parts.append((Path(tuple(found.steps), absolute=True), found.exact))
    elif found.used or not steps:
        parts.append((True, found.exact))
    parts += map(_guard, lifted)
    if found.used < len(steps):
        rest = _elsewhere(steps[found.used :])
        parts.append((_path_guard(Location(rest))[0] if rest else True, False))
    return _joined(parts, every=True)


def _elsewhere(steps: tuple[AxisStep, ...]) -> tuple[AxisStep, ...]:
    """Steps as they can be followed from any node of the document, the first one from anywhere."""
    first = steps[0]
    if first.axis == "namespace" or (first.axis == "attribute" and first.test.kind != "name"):
        return ()
    if first.test.kind in ("name", "text"):
        tests = tuple(each for each in first.predicates if not is_positional(each))
        axis = "child" if first.axis != "attribute" else "attribute"
        return (_ANYWHERE, AxisStep(axis, first.test, tests), *steps[1:])
    if first.test.kind != "node" or len(steps) == 1:
        return ()
    if _can_follow(steps[1]):
        tests = tuple(each for each in steps[1].predicates if not is_positional(each))
        return (_ANYWHERE, replace(steps[1], predicates=tests), *steps[2:])
    return _elsewhere(steps[1:])


# -- paths --


@dataclass(slots=True)
class _Converted:
    """Native steps for the first `used` steps of a path; `exact` if they select the same."""

    steps: list[Step]
    used: int = 0
    exact: bool = True


def _convert(
    steps: tuple[AxisStep, ...], *, existence: bool, lifted: list[Condition] | None = None
) -> _Converted | None:
    """As many steps as the native subset has; None if no node can be selected.

    With `existence` it is enough that something is selected, whatever it is. `lifted` gets the
    predicates that do not depend on where they stand.
    """
    found = _Converted([])
    descend = False
    for index, step in enumerate(steps):
        last = index + 1 == len(steps)
        test = step.test
        if step.axis == "descendant-or-self" and test.kind == "node" and not step.predicates:
            after = steps[index + 1] if not last else None
            if after is None or not _can_follow(after):
                return found
            descend = True
            continue
        if step.axis in ("self", "parent"):
            if descend or not _moved(found, step, last=last and existence):
                return found
            found.used = index + 1
            continue
        kind = _kind(step)
        if kind is None or (found.steps and found.steps[-1].kind is not Kind.ELEMENT):
            return found
        deep = descend or step.axis == "descendant"
        tests = _Tests(kind, counts=step.axis != "descendant")
        final = last and existence
        for place, predicate in enumerate(step.predicates):
            ends = final and place + 1 == len(step.predicates)
            if not tests.add(predicate, ends=ends, lifted=lifted):
                return None
        found.exact = found.exact and tests.exact
        axis = Axis.DESCENDANT if deep else Axis.CHILD
        name = "" if kind is Kind.TEXT else test.name
        found.steps.append(Step(axis, kind, test.prefix, name, tuple(tests.kept), at=step.at))
        found.used = index + 1
        descend = False
    return found


def _can_follow(step: AxisStep) -> bool:
    """Whether a step may stand behind `//`."""
    return step.axis in ("child", "attribute", "descendant") and _kind(step) is not None


def _kind(step: AxisStep) -> Kind | None:
    """What a step selects, if the native subset has such steps."""
    test = step.test.kind
    if step.axis == "attribute":
        return Kind.ATTRIBUTE if test == "name" else None
    if step.axis not in ("child", "descendant"):
        return None
    return {"name": Kind.ELEMENT, "text": Kind.TEXT}.get(test)


def _moved(found: _Converted, step: AxisStep, *, last: bool) -> bool:
    """`self::x` and `..` as conditions of steps before them; whether that is possible."""
    if step.predicates or step.test.kind not in ("node", "name"):
        return False
    if step.axis == "self":
        return bool(found.steps) and _named(found.steps, step.test)
    if last and step.test.kind == "node" and found.steps:
        return True  # Whatever was found has a parent, the document at least.
    if len(found.steps) < 2 or found.steps[-1].axis is not Axis.CHILD:
        return False
    below, above = found.steps[-1], found.steps[-2]
    having = Exists(Path((below,)))
    changed = [*found.steps[:-2], replace(above, predicates=(*above.predicates, having))]
    if not _named(changed, step.test):
        return False
    found.steps[:] = changed
    return True


def _named(steps: list[Step], test: NodeTest) -> bool:
    """Have the last step select only nodes with a name; whether it can."""
    last = steps[-1]
    if test.kind == "node":
        return True
    if last.kind is not Kind.ELEMENT:
        return False
    if (test.prefix, test.name) in ((None, "*"), (last.prefix, last.name)):
        return True
    if (last.prefix, last.name) != (None, "*") or any(map(positional, last.predicates)):
        return False
    steps[-1] = replace(last, prefix=test.prefix, name=test.name)
    return True


class _Tests:
    """The native predicates of a step. `counts`: positions count as the native step's do."""

    __slots__ = ("_clean", "_counts", "_kind", "exact", "kept")

    def __init__(self, kind: Kind, *, counts: bool) -> None:
        self._kind = kind
        self._counts = counts and kind is Kind.ELEMENT
        self._clean = True
        self.exact = True
        self.kept: list[Expr] = []

    def add(self, predicate: Expression, *, ends: bool, lifted: list[Condition] | None) -> bool:
        """Add what can be said natively; False if no node passes. `ends`: nothing comes behind it,
        and it is enough that a node passes."""
        if isinstance(predicate, Number):
            condition: Condition = At("=", predicate.value)
        elif is_last(predicate):
            self._weaken(sure=ends)
            return True
        elif type_of(predicate) == "number":
            self._weaken(sure=False)
            return True
        else:
            condition = condition_of(predicate)
        test, exact = _expr(condition, lifted)
        if isinstance(test, bool):
            if not test:
                return not exact
            self._weaken(sure=exact)
            return True
        if not self._allowed(test):
            self._weaken(sure=False)
            return True
        self.kept.append(test)
        self._weaken(sure=exact)
        return True

    def _weaken(self, *, sure: bool) -> None:
        self.exact = self.exact and sure
        self._clean = self._clean and sure

    def _allowed(self, test: Expr) -> bool:
        if positional(test):
            return self._counts and self._clean
        return self._kind is Kind.ELEMENT or not any(path.steps for path in paths_of(test))


# -- conditions in predicates --


def _expr(condition: Condition, lifted: list[Condition] | None = None) -> tuple[Expr | bool, bool]:
    """A condition as a native one, and whether it says the same; it never says more."""
    match condition:
        case bool():
            return condition, True
        case Weak(term):
            return _expr(term, lifted)[0], False
        case All(terms):
            return _both([_expr(term, lifted) for term in terms], And)
        case Any(terms):
            return _both([_expr(term) for term in terms], Or)
        case No(term):
            return _not(term)
        case At(op, value):
            return Position(_OPS[op], value), True
        case Holds(path) | Compares(path) | Has(path) if path.absolute:
            if lifted is None:
                return True, False
            lifted.append(condition)
            return True, True
        case Holds(path):
            return _exists(path)
        case Compares(path, op, value):
            native, exact = _relative(path)
            if native is None or isinstance(native, bool):
                return (native is not False), exact and native is False
            return Compare(native, _OPS[op], value), exact
        case Has():
            return _has(condition)
    raise AssertionError(condition)


def _exists(path: Location) -> tuple[Expr | bool, bool]:
    """That a path from the context node leads somewhere."""
    found = _convert(path.steps, existence=True)
    if found is None:
        return False, True
    exact = found.exact and found.used == len(path.steps)
    return (Exists(Path(tuple(found.steps))) if found.steps else True), exact


def _relative(path: Location) -> tuple[Path | bool | None, bool]:
    """A path whose nodes are looked at: False if there are none, None if it is not native."""
    found = _convert(path.steps, existence=False)
    if found is None:
        return False, True
    if found.used < len(path.steps):
        return None, False
    return Path(tuple(found.steps)), found.exact


def _has(condition: Has) -> tuple[Expr | bool, bool]:
    native, exact = _relative(condition.path)
    if native is None:
        return True, False
    if isinstance(native, bool):
        return False, True  # The string of no node is empty, and the text is not.
    test = StartsWith if condition.first else Contains
    if exact:
        return test(native, condition.text), True
    # Of more nodes than are meant, another one may come first: any of them will do.
    if not native.steps:
        return True, False
    last = native.steps[-1]
    inner = test(Path(()), condition.text)
    return Exists(
        Path((*native.steps[:-1], replace(last, predicates=(*last.predicates, inner))))
    ), False


def _both(parts: list[tuple[Expr | bool, bool]], join: type[And | Or]) -> tuple[Expr | bool, bool]:
    every = join is And
    exact = all(sure for _, sure in parts)
    terms: list[Expr] = []
    for expr, sure in parts:
        if isinstance(expr, bool):
            if expr is every:
                continue
            return expr, sure or exact or (every and not expr)
        terms += expr.terms if isinstance(expr, join) else (expr,)
    if not terms:
        return every, exact
    return (join(tuple(terms)) if len(terms) > 1 else terms[0]), exact


def _not(condition: Condition) -> tuple[Expr | bool, bool]:
    match condition:
        case All(terms):
            return _both([_not(term) for term in terms], Or)
        case Any(terms):
            return _both([_not(term) for term in terms], And)
        case No(term):
            return _expr(term)
        case _:
            test, exact = _expr(condition)
            if not exact:
                return True, False
            return (not test if isinstance(test, bool) else Not(test)), True
