"""The plan of a statement as the rule that native code decides it by."""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from fmware.filtering._residual import set_cases
from fmware.filtering.lookups import eagerness
from fmware.xpath import Axis, Kind, Path, Step
from fmware.xpath.planner import AllOf, AnyOf, NotOf
from fmware.xpath.program import CASES, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.filtering.plan import Resolver
    from fmware.xpath.planner import Guard, Plan

__all__ = ["Compiled", "compiled", "paths_in"]

_ALL, _ANY, _NOT = -1, -2, -3
_ROOT: Final = Path((Step(Axis.CHILD, Kind.ELEMENT, None, "*"),), absolute=True)
_DEAD: Final = Path((Step(Axis.CHILD, Kind.TEXT, None, ""),), absolute=True)
"""A path that no document has: text beside the root element."""


@dataclass(slots=True)
class Compiled:
    """A rule: paths for the automaton, the guard over them in postfix, and the packed expression.

    `triggers` are places in `paths`: unless one of these matches, the guard does not hold.
    """

    paths: list[Path] = field(default_factory=list)
    code: list[int] = field(default_factory=list)
    triggers: set[int] = field(default_factory=set)
    program: bytes | None = None
    tags: list[int] = field(default_factory=list)


def paths_in(guard: Guard) -> Iterator[Path]:
    """The paths of a guard; the root element where it has none."""
    match guard:
        case Path():
            yield guard
        case AllOf(terms) | AnyOf(terms):
            for term in terms:
                yield from paths_in(term)
        case NotOf(term):
            yield from paths_in(term)
        case _:
            yield _ROOT if guard else _DEAD


def compiled(planned: Plan, resolve: Resolver, *, nodes: bool) -> Compiled:
    """The rule of a plan; `nodes`: what the statement selects is wanted."""
    rule = Compiled()
    places: dict[Path, int] = {}
    _encode(planned.guard, rule, places)
    rule.paths = list(places)
    triggers = _triggers(planned.guard)
    for path in triggers:
        if path not in places:
            places[path] = len(places)
            rule.paths.append(path)
        rule.triggers.add(places[path])
    if nodes or not planned.exact:
        assert planned.expression is not None

        def tag_of(prefix: str | None, name: str, at: int) -> int:
            tag = resolve(Step(Axis.CHILD, Kind.ELEMENT, prefix, name, at=at))
            rule.tags.append(tag)
            return tag

        rule.program, needs = pack(planned.expression, tag_of)
        if needs & CASES:
            _cases()
    return rule


@cache
def _cases() -> None:
    """Tell native code which letters have another case, and which it is."""
    lower, upper = array("i"), array("i")
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        for table, other in ((lower, char.lower()), (upper, char.upper())):
            if other != char:
                table.extend((code, *(*map(ord, other), -1, -1)[:3]))
    set_cases(lower.tobytes(), upper.tobytes())


def _encode(guard: Guard, rule: Compiled, places: dict[Path, int]) -> None:
    match guard:
        case AllOf(terms) | AnyOf(terms):
            for term in terms:
                _encode(term, rule, places)
            rule.code += [_ALL if isinstance(guard, AllOf) else _ANY, len(terms)]
        case NotOf(term):
            _encode(term, rule, places)
            rule.code.append(_NOT)
        case _:
            path = guard if isinstance(guard, Path) else _ROOT if guard else _DEAD
            rule.code.append(places.setdefault(path, len(places)))


def _triggers(guard: Guard) -> list[Path]:
    """Paths of which one matches wherever the guard holds, as selective as can be seen."""
    match guard:
        case Path():
            return [guard]
        case AllOf(terms):
            return min(map(_triggers, terms), key=_rank)
        case AnyOf(terms):
            return [path for term in terms for path in _triggers(term)]
        case NotOf():
            return [_ROOT]
        case _:
            return [_ROOT if guard else _DEAD]


def _rank(paths: list[Path]) -> tuple[bool, int, int, int]:
    """Sorts first what usually lets the fewest documents through."""
    tests = [test for path in paths for step in path.steps for test in step.predicates]
    eager = min(map(eagerness, tests), default=9)
    named = min(sum(step.name != "*" for step in path.steps) for path in paths)
    return _ROOT in paths, eager, -named, len(paths)
