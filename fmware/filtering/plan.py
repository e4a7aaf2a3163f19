"""A statement made ready for the automaton: stripped of its predicates and cut at its `//`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fmware.filtering.errors import StatementRefused
from fmware.xpath import Axis, Exists, Kind, Path, Step, clark
from fmware.xpath.tree import paths_of, positional

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.filtering._kernel import Automaton, Segment, Test

__all__ = ["Resolver", "elements_of", "has_local", "is_plain", "segments_of"]

ANY = -1


class Resolver:
    """Names of one statement to tags: ids of the vocabulary, or tests below zero."""

    __slots__ = ("_automaton", "_namespaces", "_spaces", "_text")

    def __init__(self, automaton: Automaton, namespaces: Mapping[str, str], text: str) -> None:
        self._automaton = automaton
        self._namespaces = namespaces
        self._spaces: dict[str, int] = {}
        self._text = text

    def __call__(self, step: Step) -> int:
        if step.kind == Kind.TEXT:
            return 0
        if step.name == "*" and step.prefix is None:
            return ANY
        try:
            if step.name == "*":
                return self._space(step, step.prefix or "")
            name = step.name if step.prefix is None else self._clark(step)
            return self._automaton.vocabulary.add(name)
        except OverflowError as error:
            raise StatementRefused(f"{self._text}: {error}") from None

    def _clark(self, step: Step) -> str:
        return clark(step.prefix, step.name, self._namespaces, at=step.at, expression=self._text)

    def _space(self, step: Step, prefix: str) -> int:
        if prefix not in self._spaces:
            self._spaces[prefix] = self._automaton.space(self._clark(step)[1:-2])
        return self._spaces[prefix]

    def key(self, subject: Any) -> object:
        """What makes a path of this statement the same as one of another."""
        return (subject, tuple(sorted(self._namespaces.items()))) if self._namespaces else subject

    def text_key(self, *parts: str) -> str:
        """The same of texts, as one text: many are kept, and a text takes the least memory.

        The first part stands before the first zero character.
        """
        spaces = (f"{prefix}={uri}" for prefix, uri in sorted(self._namespaces.items()))
        return "\0".join((*parts, *spaces)) if self._namespaces else "\0".join(parts)

    def prepare(self, path: Path) -> None:
        """Number all names and namespaces: what cannot be is refused before anything changes."""
        for step in path.steps:
            self(step)
            for predicate in step.predicates:
                for inner in paths_of(predicate):
                    self.prepare(inner)


def is_plain(path: Path) -> bool:
    """Whether the structure alone decides."""
    return not any(step.predicates or step.kind for step in path.steps)


def has_local(path: Path) -> bool:
    """Whether any step, those in predicates included, is one of the corpus."""
    for step in path.steps:
        if step.local:
            return True
        for predicate in step.predicates:
            if any(map(has_local, paths_of(predicate))):
                return True
    return False


def elements_of(path: Path) -> tuple[Step, ...] | None:
    """The statement as element steps: an attribute or text() at its end becomes a predicate.

    None if no document can match: the root has neither attributes nor text beside it.
    """
    last = path.steps[-1]
    if last.kind == Kind.ELEMENT:
        return path.steps
    if len(path.steps) > 1:
        owner = path.steps[-2]
        inner = Exists(Path((last,)))
        return (*path.steps[:-2], replace(owner, predicates=(*owner.predicates, inner)))
    if last.axis == Axis.CHILD:
        return None
    inner = Exists(Path((replace(last, axis=Axis.CHILD),)))
    return (Step(Axis.DESCENDANT, Kind.ELEMENT, None, "*", (inner,)),)


def segments_of(steps: tuple[Step, ...], resolve: Resolver) -> list[Segment]:
    """The steps cut before each `//`, each as (axis, tag, tests)."""
    segments: list[Segment] = []
    for step in steps:
        if step.axis == Axis.DESCENDANT or not segments:
            segments.append([])
        segments[-1].append((step.axis, resolve(step), _tests(step)))
    return segments


def _tests(step: Step) -> list[Test]:
    """A step's predicates; one that looks at positions needs those before it."""
    return [
        (expr, step.predicates[:index] if positional(expr) else ())
        for index, expr in enumerate(step.predicates)
    ]
