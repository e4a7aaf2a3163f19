"""Small random DTDs, and the documents of one by brute force, as sets of the words they have."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from fmware.routing.schema import Particle, Schema

Words = frozenset[tuple[str, ...]]
"""The words of a document: names from the root to each of its nodes."""


def dtd(rng: Random) -> str:
    """A DTD of four elements, often recursive; now and then no document conforms to it."""
    names = ["a", "b", "c", "d"]
    lines = []
    for name in names:
        if rng.random() < 0.25:
            lines.append(f"<!ELEMENT {name} EMPTY>")
            continue
        parts = [rng.choice(names) + rng.choice(("", "?", "*")) for _ in range(rng.randint(1, 3))]
        joined = rng.choice((" , ", " | ")).join(parts)
        lines.append(f"<!ELEMENT {name} ({joined}){rng.choice(('', '?', '?'))}>")
    return "".join(lines)


class Documents:
    """All documents of a schema up to a depth in which no part is repeated.

    A document with more in it is matched by more, and a path needs one way from the root only: if
    some document tells two paths apart, then one of these does.
    """

    def __init__(self, schema: Schema, depth: int, most: int = 4000) -> None:
        self.schema = schema
        self.most = most
        self.known: dict[tuple[int, int], set[Words] | None] = {}
        self.every: set[Words] | None = set()
        for root in schema.roots:
            found = self._element(root, depth)
            self.every = None if found is None or self.every is None else self.every | found

    def _element(self, number: int, depth: int) -> set[Words] | None:
        """The trees below an element; None if they are too many."""
        if not depth:
            return set()
        key = (number, depth)
        if key not in self.known:
            declared = self.schema.declarations[number]
            inner: set[Words] | None = {frozenset()}
            if declared.model is not None:
                inner = self._part(declared.model, depth - 1)
            here = None
            if inner is not None:
                name = declared.name
                here = {frozenset({(name,)} | {(name, *word) for word in i}) for i in inner}
            self.known[key] = here
        return self.known[key]

    def _part(self, part: Particle, depth: int) -> set[Words] | None:
        if part.kind == 0:
            found = self._element(part.number, depth)
        elif part.kind == 1:
            found = self._sequence(part, depth)
        else:
            found = set()
            for each in part.parts:
                below = self._part(each, depth)
                if below is None:
                    return None
                found |= below
        if found is None or len(found) > self.most:
            return None
        return found | {frozenset()} if part.optional else found

    def _sequence(self, part: Particle, depth: int) -> set[Words] | None:
        found: set[Words] = {frozenset()}
        for each in part.parts:
            below = self._part(each, depth)
            if below is None or len(found) * len(below) > self.most:
                return None
            found = {one | two for one, two in product(found, below)}
        return found
