"""What documents a DTD, an XML Schema or a sample of messages allows, and questions on them.

A `Schema` is a graph of declarations of elements, each with a content model, attributes and whether
it holds text. On it, `intersects` says whether a statement can match a document at all, and
`covers` whether one statement matches each document that another one matches. Both are exact for
linear paths, recursive schemas included: documents that avoid the covering path are a graph again,
and the covered path either finds a way through it or does not. A document that misses a required
child or attribute is none of the schema's.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from fmware.routing._paths import LONGEST, Symbols
from fmware.routing._schema import Graph, Product
from fmware.routing.covering import pattern_covers
from fmware.routing.errors import SchemaError
from fmware.routing.pattern import Linear, Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fmware.xpath import Path

__all__ = ["Declaration", "Particle", "Schema"]

ELEMENT: Final = 0
SEQUENCE: Final = 1
CHOICE: Final = 2
_PRODUCTS = 256
"""Products that are kept: of a schema of 130 elements one takes about 50 kB."""


@dataclass(frozen=True, slots=True)
class Particle:
    """A part of a content model: a declaration by its number, or a sequence or choice of parts."""

    kind: Literal[0, 1, 2]
    optional: bool = False
    number: int = -1
    parts: tuple[Particle, ...] = ()

    def plain(self) -> tuple[object, ...]:
        """As native code takes it."""
        content: object = self.number
        if self.kind != ELEMENT:
            content = tuple(part.plain() for part in self.parts)
        return (self.kind, int(self.optional), content)

    def numbers(self) -> Iterator[int]:
        """The declarations in it, as often as they are written."""
        if self.kind == ELEMENT:
            yield self.number
        for part in self.parts:
            yield from part.numbers()


@dataclass(slots=True)
class Declaration:
    """An element: its Clark name, what may stand in it, its attributes and which it must have.

    The name `*` is any name; the attribute `*` is any attribute.
    """

    name: str
    model: Particle | None = None
    attributes: dict[str, bool] = field(default_factory=dict)
    text: bool = False


class Schema:
    """Declarations, and which of them may be the root of a document."""

    def __init__(
        self, declarations: list[Declaration], roots: Iterable[int], name: str = "schema"
    ) -> None:
        self.declarations = declarations
        self.roots = tuple(dict.fromkeys(roots))
        self.name = name
        self.symbols = Symbols()
        self._products: OrderedDict[object, Product] = OrderedDict()
        self._graph = self._make_graph()
        self._all = Product(self._graph, ())
        if not len(self._all):
            raise SchemaError(f"{name}: no finite document conforms to it")

    def __len__(self) -> int:
        return len(self.declarations)

    def _make_graph(self) -> Graph:
        add = self.symbols.add
        each = self.declarations
        try:
            return Graph(
                self.symbols,
                [add(0, d.name) for d in each],
                self.roots,
                [d.model.plain() if d.model else None for d in each],
                [[add(1, name) for name, needed in d.attributes.items() if needed] for d in each],
                [[add(1, name) for name in d.attributes] for d in each],
                [d.text for d in each],
            )
        except ValueError as error:
            raise SchemaError(f"{self.name}: {error}") from None

    @cached_property
    def wild(self) -> bool:
        """Whether some element may have any name: covering then looks at statements alone."""
        return any(d.name.endswith("*") for d in self.declarations)

    @cached_property
    def edges(self) -> dict[int, tuple[int, ...]]:
        """Of each declaration that stands in some document, those that stand right below it."""
        found: dict[int, list[int]] = {root: [] for root in self.roots}
        for above, below in self._all.edges():
            found.setdefault(above, []).append(below)
            found.setdefault(below, [])
        return {number: tuple(below) for number, below in sorted(found.items())}

    @cached_property
    def recursive(self) -> frozenset[int]:
        """The declarations that may stand below themselves."""
        return frozenset(number for number in self.edges if number in self._reach(number))

    def _reach(self, start: int) -> set[int]:
        seen: set[int] = set()
        todo = [start]
        while todo:
            for below in self.edges[todo.pop()]:
                if below not in seen:
                    seen.add(below)
                    todo.append(below)
        return seen

    # -- questions --

    def intersects(self, statement: str | Path | Pattern) -> bool:
        """Whether some document of the schema may match a statement.

        Exact for linear paths. Of others each branch is looked at by itself, so yes may be wrong;
        no is always right. A statement that routing does not know may match.
        """
        pattern = statement if isinstance(statement, Pattern) else Pattern(statement)
        if pattern.opaque:
            return True
        return not pattern.never and all(map(self._possible, pattern.branches))

    def _possible(self, word: Linear) -> bool:
        return len(word) > LONGEST or self._all.escapes(self._codes(word))

    def covers(self, covering: str | Path | Pattern, covered: str | Path | Pattern) -> bool:
        """Whether each document of the schema that matches `covered` matches `covering`.

        Exact if both are linear paths; otherwise yes is always right, and no may be wrong.
        """
        first = covering if isinstance(covering, Pattern) else Pattern(covering)
        second = covered if isinstance(covered, Pattern) else Pattern(covered)
        if pattern_covers(first, second):
            return True
        if first.opaque or second.opaque:
            return False
        if not self.intersects(second):
            return True
        if not first.plain or self.wild or len(first.spine) > LONGEST:
            return False
        return any(
            len(word) <= LONGEST and self.all_match([first.spine], word) for word in second.branches
        )

    def all_match(self, paths: list[Linear], word: Linear) -> bool:
        """Whether one of some paths, which differ in one name, matches wherever a path does."""
        product = self._product(paths)
        return product.full and not product.escapes(self._codes(word))

    def counterexample(self, covering: str | Pattern, covered: str | Pattern) -> str | None:
        """A path from the root of a document that one linear path matches and the other does not.

        None if there is no such document, or a statement is no linear path.
        """
        first = covering if isinstance(covering, Pattern) else Pattern(covering)
        second = covered if isinstance(covered, Pattern) else Pattern(covered)
        if not (first.plain and second.plain) or self.wild:
            return None
        product = self._product([first.spine])
        way = product.word(self._codes(second.spine)) if product.full else None
        return None if way is None else "".join(f"/{self.declarations[n].name}" for n in way)

    def word(self, word: Linear) -> list[int] | None:
        """The declarations on the way to some node that a linear path selects, if there is one."""
        return self._all.word(self._codes(word))

    def _codes(self, word: Linear) -> list[int]:
        return [self.symbols.add(kind, name) << 1 | axis for axis, kind, name in word]

    def _product(self, paths: list[Linear]) -> Product:
        key = tuple(paths)
        product = self._products.get(key)
        if product is None:
            product = Product(self._graph, [self._codes(path) for path in paths])
            self._products[key] = product
            if len(self._products) > _PRODUCTS:
                self._products.popitem(last=False)
        else:
            self._products.move_to_end(key)
        return product
