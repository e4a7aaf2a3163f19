"""Which of many statements are needed: the equal, redundant, impossible and mergeable ones.

`reduce` first lets statements cover each other whatever the documents look like. With a schema it
goes on with those that are left: candidates for what covers a statement are those that match a
small valid document of it, and each is decided by a product of automata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fmware.routing._paths import LONGEST, PathIndex
from fmware.routing.covering import pattern_covers
from fmware.routing.pattern import Pattern
from fmware.routing.tree import SubscriptionTree
from fmware.routing.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fmware.routing.schema import Schema

__all__ = ["Finding", "Reduction", "reduce"]

Reason = Literal["equal", "redundant", "unsatisfiable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement that is not needed, and why: `by` is the name of one that does its work.

    `where` is "anywhere" or "schema": in all documents, or in those of the schema only.
    """

    name: str
    text: str
    reason: Reason
    by: str | None
    by_text: str | None
    where: Literal["anywhere", "schema"]

    @property
    def why(self) -> str:
        """The reason in words."""
        documents = "document" if self.where == "anywhere" else "document of the schema"
        if self.reason == "unsatisfiable":
            return f"no {documents} can match {self.text}"
        if self.reason == "equal":
            return f"{self.by_text} matches the same {documents}s"
        return f"{self.by_text} matches every {documents} that {self.text} matches"


@dataclass(slots=True)
class Reduction:
    """The statements that are needed, and findings for all others, both by name."""

    kept: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def removed(self) -> float:
        """The share of statements that are not needed."""
        every = len(self.kept) + len(self.findings)
        return len(self.findings) / every if every else 0.0


def reduce(
    statements: Iterable[tuple[str, str | Pattern]],
    *,
    schema: Schema | None = None,
    namespaces: Mapping[str, str] | None = None,
) -> Reduction:
    """Find the statements that are needed, of (name, expression) pairs.

    Raises an `XPathError` for an expression that does not parse. The order of what is kept and of
    the findings is that of the statements; of equal ones the first is kept.
    """
    work = _Work(
        [(n, s if isinstance(s, Pattern) else Pattern(s, namespaces)) for n, s in statements],
        schema,
    )
    work.anywhere()
    if schema is not None:
        work.on_schema(schema)
    return work.result()


class _Work:
    """One reduction: `gone` holds, by place, what does a statement's work and where."""

    def __init__(self, statements: list[tuple[str, Pattern]], schema: Schema | None) -> None:
        self.statements = statements
        self.schema = schema
        self.places: dict[str, int] = {}
        self.gone: dict[int, tuple[Reason, int | None, Literal["anywhere", "schema"]]] = {}

    def anywhere(self) -> None:
        tree = SubscriptionTree()
        for place, (_, pattern) in enumerate(self.statements):
            first = self.places.setdefault(pattern.key, place)
            if first != place:
                self.gone[place] = ("equal", first, "anywhere")
            elif pattern.never:
                self.gone[place] = ("unsatisfiable", None, "anywhere")
            elif self.schema is not None and not self.schema.intersects(pattern):
                self.gone[place] = ("unsatisfiable", None, "schema")
            else:
                tree.insert(pattern)
        needed = {pattern.key for pattern in tree.maximal()}
        for key, place in self.places.items():
            if place not in self.gone and key not in needed:
                self._covered(place, tree)

    def _covered(self, place: int, tree: SubscriptionTree) -> None:
        pattern = self.statements[place][1]
        cover = tree.top(pattern)
        same = pattern_covers(pattern, cover)
        self.gone[place] = ("equal" if same else "redundant", self.places[cover.key], "anywhere")

    def on_schema(self, schema: Schema) -> None:
        """Among those still needed: what a schema's documents make redundant."""
        if schema.wild:
            return
        finder = _Finder(schema)
        left = [place for place in self.places.values() if place not in self.gone]
        for place in left:
            finder.add(place, self.statements[place][1])
        for place in left:
            cover = finder.cover(place)
            if cover is not None:
                pattern, other = self.statements[place][1], self.statements[cover][1]
                same = pattern.plain and schema.covers(pattern, other)
                self.gone[place] = ("equal" if same else "redundant", cover, "schema")

    def result(self) -> Reduction:
        result = Reduction()
        for place, (name, pattern) in enumerate(self.statements):
            if place not in self.gone:
                result.kept.append(name)
                continue
            reason, by, where = self.gone[place]
            while by is not None and by in self.gone:
                # What did its work is covered in turn, on the schema's documents.
                _, by, where = self.gone[by]
            other = None if by is None else self.statements[by]
            result.findings.append(
                Finding(
                    name,
                    pattern.text,
                    reason,
                    other[0] if other else None,
                    other[1].text if other else None,
                    where,
                )
            )
        return result


class _Finder:
    """Finds what covers a statement on the documents of a schema, among those still here."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.witness = Witness(schema)
        self.index = PathIndex(schema.symbols)
        self.patterns: dict[int, Pattern] = {}
        self.entries: dict[int, int] = {}
        self.wins: dict[int, int] = {}

    def add(self, place: int, pattern: Pattern) -> None:
        self.patterns[place] = pattern
        if pattern.plain and len(pattern.spine) <= LONGEST:
            codes = pattern.codes(self.schema.symbols)
            self.entries[place] = self.index.add(place, codes, spine=True, plain=True)

    def cover(self, place: int) -> int | None:
        """Another statement that covers one; then the covered one is here no longer."""
        pattern = self.patterns[place]
        if pattern.opaque:
            return None
        for word in pattern.branches:
            if len(word) > LONGEST:
                continue
            # Those that covered others first: their products are at hand.
            for other in sorted(self._candidates(place, word), key=self._rank):
                if self.schema.all_match([self.patterns[other].spine], word):
                    self.wins[other] = self.wins.get(other, 0) + 1
                    if place in self.entries:
                        self.index.remove(self.entries.pop(place))
                    return other
        return None

    def _rank(self, place: int) -> tuple[int, int]:
        return -self.wins.get(place, 0), place

    def _candidates(self, place: int, word: tuple[tuple[int, int, str], ...]) -> set[int]:
        found: set[int] = set()
        for letters in self.witness.words(word) or ():
            found.update(self.index.matching(letters))
        return found - {place}
