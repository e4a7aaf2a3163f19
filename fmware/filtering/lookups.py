"""How the nodes at which a condition may hold are found, without trying the condition.

An attribute, a text or a path without predicates can be looked up: by its name, its value or its
bounds. Such conditions are *simple*. Any other condition is found by simple ones that hold wherever
it does:

    @id = '7'                          itself
    @id = '7' or total > 3             @id = '7', and total > 3: one of the two holds
    item[@id = '7']                    item/@id = '7', which says the same
    item[@id = '7'][price > 3]/name    item/@id = '7', which says less: the rest is then tried
    not(@id = '7')                     nothing: it holds where nothing is found
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fmware.xpath import Path
from fmware.xpath.tree import (
    And,
    Compare,
    Contains,
    Exists,
    Expr,
    Op,
    Or,
    Position,
    StartsWith,
    Step,
    positional,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Lookups", "bare", "eagerness", "lookups"]

_SELF: Final = Path(())


class Lookups(NamedTuple):
    """Simple conditions of which at least one holds wherever the condition does."""

    ways: tuple[Expr, ...]
    proves: bool
    """Whether the condition also holds wherever one of them does."""


def lookups(expr: Expr, before: Sequence[Expr] = ()) -> Lookups | None:
    """How to find where a predicate holds; None if it must be tried at every node.

    `before` are the predicates that stand before it, if it looks at positions.
    """
    match expr:
        case Position():
            return None if before else Lookups((expr,), proves=True)
        case Exists(path) | Compare(path):
            return Lookups((expr,), proves=True) if _is_bare(path) else _weaker(expr)
        case Contains(path, text) | StartsWith(path, text):
            if not text:
                return Lookups((Exists(_SELF),), proves=True)
            if _is_bare(path):
                return Lookups((expr,), proves=True)
            return Lookups((Exists(bare(path)),), proves=False)
        case And(terms):
            found = [some for term in terms if (some := lookups(term, before)) is not None]
            return Lookups(min(found, key=_rank).ways, proves=False) if found else None
        case Or(terms):
            each = [lookups(term, before) for term in terms]
            known = [some for some in each if some is not None]
            if len(known) < len(each):
                return None
            ways = dict.fromkeys(way for some in known for way in some.ways)
            return Lookups(tuple(ways), all(some.proves for some in known))
        case _:
            return None


def bare(path: Path) -> Path:
    """The path with all its predicates left out; itself, if it has none."""
    return path if _is_bare(path) else Path(tuple(map(_without_predicates, path.steps)))


def eagerness(expr: Expr) -> int:
    """Sorts first what can be looked up, and of that what usually lets the fewest through."""
    match expr:
        case Compare(_, op):
            return 0 if op == Op.EQ else 3 if op == Op.NE else 1
        case Position():
            return 1
        case Exists() | Contains() | StartsWith():
            return 2
        case _:
            return 4


def _rank(found: Lookups) -> tuple[int, int]:
    return max(map(eagerness, found.ways)), len(found.ways)


def _weaker(expr: Exists | Compare) -> Lookups:
    """The path without its predicates, or one of these alone, at the place where it stands."""
    steps = expr.path.steps
    best = Lookups((_with_path(expr, bare(expr.path)),), proves=False)
    # A node with the only predicate at the end of the path is all that is asked for.
    whole = isinstance(expr, Exists) and sum(len(step.predicates) for step in steps) == 1
    for index, step in enumerate(steps):
        for predicate in step.predicates:
            found = None if positional(predicate) else lookups(predicate)
            if found is None:
                continue
            ways = tuple(_below(steps[: index + 1], way) for way in found.ways)
            if whole and index + 1 == len(steps) and found.proves and _is_of_any(found.ways):
                return Lookups(ways, proves=True)
            best = min(best, Lookups(ways, proves=False), key=_rank)
    return best


def _is_of_any(ways: tuple[Expr, ...]) -> bool:
    """Whether any node may satisfy them; `contains` and `starts-with` look at the first only."""
    return all(isinstance(way, (Exists, Compare)) for way in ways)


def _below(steps: tuple[Step, ...], way: Expr) -> Expr:
    """What a condition on a node says of the node from which `steps` lead to it."""
    above = tuple(map(_without_predicates, steps))
    match way:
        case Exists(path) | Compare(path):
            return _with_path(way, Path(above + path.steps))
        case Contains(path) | StartsWith(path):
            return Exists(Path(above + path.steps))
        case _:
            return Exists(Path(above))


def _with_path(expr: Exists | Compare, path: Path) -> Exists | Compare:
    # Not by replace(), which takes ten times as long: this is done for every statement.
    if isinstance(expr, Exists):
        return Exists(path, expr.at)
    return Compare(path, expr.op, expr.value, expr.at)


def _is_bare(path: Path) -> bool:
    return not any(step.predicates for step in path.steps)


def _without_predicates(step: Step) -> Step:
    if not step.predicates:
        return step
    return Step(step.axis, step.kind, step.prefix, step.name, (), step.local, step.at)
