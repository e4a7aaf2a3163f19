"""One tree for all spellings of a query, so that equal statements share one automaton state.

The parser has already dropped what is only spelling: white space, quotes, ``child::``, ``./``
and the side a literal stands on. What is left is order: predicates that do not look at
positions commute, and so do the terms of ``and`` and ``or``; repeated ones say nothing new.

A predicate that looks at positions sees what those before it have left, so nothing moves across
it; only the runs between such predicates are put in order.
"""

from __future__ import annotations

from dataclasses import replace

from fmware.xpath.printer import expr_text
from fmware.xpath.tree import (
    And,
    Compare,
    Contains,
    Exists,
    Expr,
    Not,
    Or,
    Path,
    StartsWith,
    Step,
    positional,
)


def canonical(path: Path) -> Path:
    """The path that stands for all that mean the same; itself, when it has no predicates."""
    for step in path.steps:
        if step.predicates:
            return Path(tuple(map(_step, path.steps)), path.absolute, path.at)
    return path


def _step(step: Step) -> Step:
    if not step.predicates:
        return step
    done: list[Expr] = []
    run: list[Expr] = []
    for test in step.predicates:
        expr = _expr(test, step.local)
        if positional(expr):
            done += _ordered(run, step.local)
            done.append(expr)
            run = []
        else:
            run += expr.terms if isinstance(expr, And) else (expr,)
    done += _ordered(run, step.local)
    # Not by replace(), which takes ten times as long: this is done for every statement.
    return Step(step.axis, step.kind, step.prefix, step.name, tuple(done), step.local, step.at)


def _expr(expr: Expr, inside: bool) -> Expr:
    match expr:
        case And() | Or():
            return _terms(expr, inside)
        case Not(term):
            inner = _expr(term, inside)
            return inner.term if isinstance(inner, Not) else Not(inner, expr.at)
        case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
            better = canonical(path)
            return expr if better is path else replace(expr, path=better)
        case _:
            return expr


def _terms(expr: And | Or, inside: bool) -> Expr:
    """Nested terms of the same kind brought up, in order, each once."""
    terms: list[Expr] = []
    for term in expr.terms:
        better = _expr(term, inside)
        # By exact type: an ``or`` inside an ``and`` must stay together.
        terms += better.terms if type(better) is type(expr) else (better,)
    ordered = _ordered(terms, inside)
    return ordered[0] if len(ordered) == 1 else replace(expr, terms=tuple(ordered))


def _ordered(terms: list[Expr], inside: bool) -> list[Expr]:
    """Each term once, in the order of their text, which does not depend on how they came."""
    if len(terms) < 2:
        return terms
    return sorted(dict.fromkeys(terms), key=lambda term: expr_text(term, inside=inside))
