"""Small valid documents for a statement, as the words that they have.

What covers a statement on a schema's documents matches each of them, so it matches these. That
leaves few candidates of many statements.
"""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from fmware.routing.schema import CHOICE, ELEMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.routing.pattern import Linear
    from fmware.routing.schema import Particle, Schema

__all__ = ["Witness"]

_MOST_WORDS = 400
"""Words of one document that are looked at; required content beyond them is left out."""


class Witness:
    """Makes documents of a schema that are as shallow as they can be."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._label = [schema.symbols.add(0, d.name) for d in schema.declarations]
        self._needed = [
            [schema.symbols.add(1, name) for name, needed in d.attributes.items() if needed]
            for d in schema.declarations
        ]
        self._minimal: dict[int, list[tuple[int, ...]]] = {}

    @cached_property
    def depths(self) -> list[float]:
        """Of each declaration, the levels that its shallowest subtree has."""
        declared = self._schema.declarations
        depths = [inf] * len(declared)
        changed = True
        while changed:
            changed = False
            for number, each in enumerate(declared):
                found = 1 + (_depth(each.model, depths) if each.model else 0)
                if found < depths[number]:
                    depths[number], changed = found, True
        return depths

    def words(self, path: Linear) -> list[tuple[int, ...]] | None:
        """Words of symbols of a document that a linear path matches; None if there is none."""
        way = self._schema.word(path)
        if way is None:
            return None
        found: list[tuple[int, ...]] = []
        above: tuple[int, ...] = ()
        for place, number in enumerate(way):
            above = (*above, self._label[number])
            found += ((*above, leaf) for leaf in self._needed[number])
            below = way[place + 1] if place + 1 < len(way) else None
            for child in self._content(number, below):
                found += (above + word for word in self._subtree(child))
                if len(found) > _MOST_WORDS:
                    break
        _, kind, name = path[-1]
        leaves = ((*above, self._schema.symbols.add(kind, name)),) if kind else ()
        return [above, *leaves, *found[:_MOST_WORDS]]

    def _content(self, number: int, wanted: int | None) -> Iterator[int]:
        """The other children of an element that has a wanted child and little else."""
        model = self._schema.declarations[number].model
        if model is None:
            return
        left = wanted
        for child in self._chosen(model, wanted):
            if child == left:
                left = None
            else:
                yield child

    def _chosen(self, part: Particle, wanted: int | None) -> Iterator[int]:
        holds = wanted is not None and wanted in set(part.numbers())
        if part.optional and not holds:
            return
        if part.kind == ELEMENT:
            yield part.number
        elif part.kind == CHOICE:
            best = [p for p in part.parts if holds and wanted in set(p.numbers())] or sorted(
                part.parts, key=lambda p: _depth(p, self.depths)
            )
            if best:
                yield from self._chosen(best[0], wanted)
        else:
            for each in part.parts:
                found = holds and wanted in set(each.numbers())
                yield from self._chosen(each, wanted if found else None)
                holds = holds and not found

    def _subtree(self, number: int) -> list[tuple[int, ...]]:
        """The words of the shallowest subtree of a declaration."""
        if number not in self._minimal:
            label = self._label[number]
            words = [(label,), *((label, leaf) for leaf in self._needed[number])]
            if self.depths[number] < inf:
                for child in self._content(number, None):
                    words += ((label, *word) for word in self._subtree(child))
            self._minimal[number] = words[:_MOST_WORDS]
        return self._minimal[number]


def _depth(part: Particle, depths: list[float]) -> float:
    if part.optional:
        return 0
    if part.kind == ELEMENT:
        return depths[part.number]
    inner = (_depth(each, depths) for each in part.parts)
    return min(inner, default=inf) if part.kind == CHOICE else max(inner, default=0)
