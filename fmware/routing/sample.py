"""What a sample of messages tells: a schema learnt from it, and how often statements match.

A document comes as the words of its nodes: a word holds the Clark names of the elements from the
root down, and may end in `@name` for an attribute or `text()` for text. The learnt schema knows
which names stood right below which; it holds for documents like these, and requires nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.routing.covering import accepts
from fmware.routing.errors import SchemaError
from fmware.routing.schema import CHOICE, ELEMENT, Declaration, Particle, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmware.routing.pattern import Linear, Pattern

__all__ = ["Sample"]

_NODES = 1_000_000
"""Different words that a sample may have; of a hostile one each node is another."""


class _Place:
    """A node of the tree of words, with the documents that have it as bits of a number."""

    __slots__ = ("children", "documents", "kind", "name")

    def __init__(self, kind: int, name: str) -> None:
        self.kind = kind
        self.name = name
        self.documents = 0
        self.children: dict[str, _Place] = {}


class Sample:
    """The words of some documents."""

    def __init__(self, documents: Iterable[Iterable[tuple[str, ...]]]) -> None:
        self._root = _Place(0, "")
        self._places = 0
        self.size = 0
        for words in documents:
            bit = 1 << self.size
            for word in words:
                self._add(word, bit)
            self.size += 1
        if not self._root.children:
            raise SchemaError("the sample holds no documents")

    def _add(self, word: tuple[str, ...], bit: int) -> None:
        place = self._root
        for letter in word:
            below = place.children.get(letter)
            if below is None:
                self._places += 1
                if self._places > _NODES:
                    raise SchemaError(f"the sample has more than {_NODES:,} different paths")
                kind = 1 if letter.startswith("@") else 2 if letter == "text()" else 0
                below = _Place(kind, letter[1:] if kind == 1 else "" if kind else letter)
                place.children[letter] = below
            place = below
            place.documents |= bit

    def matching(self, pattern: Pattern) -> int:
        """The documents that have all words of a statement, as bits; exact for linear paths."""
        found = (1 << self.size) - 1
        for word in pattern.branches:
            found &= self.having(word)
        return found

    def having(self, path: Linear) -> int:
        """The documents that a linear path matches, as bits of a number."""
        stay = sum(1 << i for i, (axis, _, _) in enumerate(path) if axis)
        done, found = 1 << len(path), 0
        todo = [(below, 1) for below in self._root.children.values()]
        while todo:
            place, before = todo.pop()
            taken = sum(
                1 << i
                for i, (_, kind, name) in enumerate(path)
                if before >> i & 1 and accepts(kind, name, place.kind, place.name)
            )
            after = taken << 1 | (0 if place.kind else before & stay)
            if after & done:
                found |= place.documents
            elif after:
                todo += [(below, after) for below in place.children.values()]
        return found

    def schema(self, name: str = "sample") -> Schema:
        """The learnt schema."""
        declared: dict[str, Declaration] = {}
        below: dict[str, dict[str, None]] = {}
        todo = list(self._root.children.values())
        while todo:
            place = todo.pop()
            own = declared.setdefault(place.name, Declaration(place.name))
            for child in place.children.values():
                if child.kind == 1:
                    own.attributes[child.name] = False
                elif child.kind == 2:
                    own.text = True
                else:
                    below.setdefault(place.name, {})[child.name] = None
                    todo.append(child)
        numbers = {each: number for number, each in enumerate(declared)}
        for each, children in below.items():
            parts = tuple(Particle(ELEMENT, number=numbers[child]) for child in children)
            declared[each].model = Particle(CHOICE, optional=True, parts=parts)
        roots = [numbers[place.name] for place in self._root.children.values()]
        return Schema(list(declared.values()), roots, name)
