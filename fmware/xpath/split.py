"""What of a statement runs where: the filter part on messages, match parts in the corpus.

A path crosses into the corpus at its first ``local:`` step. The step before it is the anchor,
whose local identity the match part starts from; the axis of the crossing step is the join.

- On the main path the anchor is the last message step, and the match part selects the result.
- In a predicate the anchor is the step where the message part of the branch ends. For
  ``//product[.//local:stock]`` that is ``product``, the step that carries the predicate; for
  ``//sale[product/local:stock]`` it is the ``product`` below the ``sale``.

The filter part is the statement with its local parts taken out. It lets through every message
the statement matches; crossings then decide. That only works for branches which must all hold,
so a local branch under ``or`` or ``not()`` is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from fmware.xpath.errors import XPathError, error
from fmware.xpath.tree import (
    And,
    Axis,
    Compare,
    Exists,
    Expr,
    Not,
    Or,
    Path,
    Step,
    paths_of,
    positional,
)


@dataclass(slots=True, unsafe_hash=True)
class Anchor:
    """Where a match part hangs: a step of the filter part and a branch down from there.

    The branch has no steps when the step itself is the anchor. Its predicates include what the
    statement asks of the anchor beyond the branch, so that it can be evaluated by itself.
    """

    step: int
    branch: Path


@dataclass(slots=True, unsafe_hash=True)
class Crossing:
    """A match part: a relative path of local steps, from the anchor's local identity.

    The first step's axis is ``axis``, the crossing. ``selects`` is true on the main path, where
    the match part yields the result, and false for a condition, which need only match.
    """

    anchor: Anchor
    axis: Axis
    match: Path
    selects: bool


@dataclass(slots=True, unsafe_hash=True)
class Split:
    """The filter part and its crossings; none for a plain filter."""

    filter: Path
    crossings: tuple[Crossing, ...] = ()


_H_TWO = "put the step on the main path, as in //a/b[local:c][local:d]"

_Found: TypeAlias = list[tuple[tuple[Step, ...], tuple[Step, ...]]]
"""Branches met below a step: the message steps down to the anchor, and the local steps."""


def split(path: Path, expression: str = "") -> Split:
    """Take a statement apart; ``expression`` is its text, for errors to point into."""
    return _Splitter(expression).split(path)


def has_local(expr: Expr) -> bool:
    """Whether a condition reads the corpus anywhere."""
    return any(
        step.local or any(map(has_local, step.predicates))
        for path in paths_of(expr)
        for step in path.steps
    )


def _cut(path: Path) -> int:
    """The index of the first local step, or how many steps there are."""
    return next((i for i, step in enumerate(path.steps) if step.local), len(path.steps))


class _Splitter:
    __slots__ = ("expression",)

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def split(self, path: Path) -> Split:
        cut = _cut(path)
        steps: list[Step] = []
        crossings: list[Crossing] = []
        for index, step in enumerate(path.steps[:cut]):
            kept, found = self.strip(step)
            steps.append(kept)
            crossings += [_crossing(index, *branch, selects=False) for branch in found]
        if local := path.steps[cut:]:
            crossings.append(_crossing(cut - 1, (), local, selects=True))
        return Split(Path(tuple(steps), path.absolute, path.at), tuple(crossings))

    def strip(self, step: Step) -> tuple[Step, _Found]:
        """A message step without its local conditions, and the branches these were."""
        kept: list[Expr] = []
        found: _Found = []
        for test in step.predicates:
            if found and positional(test):
                hint = "put the position before the local branch"
                raise self.error("FMX125", test.at, hint)
            rest = self.conjunct(test, found)
            if rest is not None:
                kept.append(rest)
        return (replace(step, predicates=tuple(kept)) if found else step), found

    def conjunct(self, expr: Expr, found: _Found) -> Expr | None:
        """What is left of a condition for the filter; its local branches go to ``found``."""
        if not has_local(expr):
            return expr
        match expr:
            case And(terms):
                return _all([self.conjunct(term, found) for term in terms], expr.at)
            case Exists(path) | Compare(path):
                crosses = _cut(path) < len(path.steps)
                return (self.branch if crosses else self.nested)(expr, found)
        raise self.refused(expr)

    def branch(self, expr: Exists | Compare, found: _Found) -> Expr | None:
        """A path that crosses. A comparison holds if it holds for some node, so it becomes a
        predicate on the last local step."""
        steps = expr.path.steps
        cut = _cut(expr.path)
        for step in steps[:cut]:
            if any(map(has_local, step.predicates)):
                raise self.error("FMX126", step.at, _H_TWO)
        local = steps[cut:]
        if isinstance(expr, Compare):
            test = Compare(Path((), at=expr.path.at), expr.op, expr.value, expr.at)
            local = (*local[:-1], _with(local[-1], test))
        found.append((steps[:cut], local))
        return Exists(Path(steps[:cut], at=expr.path.at), expr.at) if cut else None

    def nested(self, expr: Exists | Compare, found: _Found) -> Expr:
        """A message path with a local branch in a predicate of one of its steps.

        The anchor must be the very node that the rest of the path goes on from, so in the
        branch that rest is a predicate of its step.
        """
        steps = expr.path.steps
        carriers = [i for i, step in enumerate(steps) if any(map(has_local, step.predicates))]
        at = carriers[0]
        kept, inner = self.strip(steps[at])
        if len(carriers) + len(inner) > 2:
            raise self.error("FMX126", expr.path.at, _H_TWO)
        before, after = steps[:at], steps[at + 1 :]
        bound = _bare_step(steps[at])
        if after or isinstance(expr, Compare):
            bound = _with(bound, replace(expr, path=Path(after, at=expr.path.at)))
        found += [((*before, bound, *branch), local) for branch, local in inner]
        return replace(expr, path=replace(expr.path, steps=(*before, kept, *after)))

    def refused(self, expr: Expr) -> XPathError:
        """A condition that needs the corpus in a way no crossing can answer."""
        if isinstance(expr, (Or, Not)):
            hint = "all local branches must hold: register one statement for each alternative"
            return self.error("FMX123", expr.at, hint)
        return self.error("FMX124", expr.at, "write local:name[contains(., 'text')]")

    def error(self, code: str, at: int, hint: str) -> XPathError:
        return error(code, self.expression, at, hint=hint)


def _all(terms: list[Expr | None], at: int) -> Expr | None:
    """What is left when all of the terms that are left must hold."""
    left = tuple(term for term in terms if term is not None)
    if len(left) > 1:
        return And(left, at)
    return left[0] if left else None


def _bare(expr: Expr) -> Expr | None:
    """A condition without the terms that lead to the corpus, message parts included."""
    if not has_local(expr):
        return expr
    return _all(list(map(_bare, expr.terms)), expr.at) if isinstance(expr, And) else None


def _bare_step(step: Step) -> Step:
    """A step of a branch: that its message part exists need not be asked beside it."""
    tests = tuple(test for test in map(_bare, step.predicates) if test is not None)
    return replace(step, predicates=tests)


def _with(step: Step, test: Expr) -> Step:
    return replace(step, predicates=(*step.predicates, test))


def _crossing(
    index: int, branch: tuple[Step, ...], local: tuple[Step, ...], *, selects: bool
) -> Crossing:
    at = branch[0].at if branch else local[0].at
    anchor = Anchor(index, Path(branch, at=at))
    return Crossing(anchor, local[0].axis, Path(local, at=local[0].at), selects)
