"""Advertisements: what a publisher is going to publish, and in the paper's notation.

An `Advertisement` is a schema: an automaton over the paths of documents. Its notation is that of
the paper: `/a/b` for a path, `/a(/b/c)+/d` for one whose part repeats, parts in sequence (series
recursive) or within each other (embedded recursive). Where cycles are entangled, `|` separates the
ways of a repetition.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from fmware.routing.dtd import read_dtd
from fmware.routing.errors import AdvertisementError
from fmware.routing.sample import Sample
from fmware.routing.schema import CHOICE, ELEMENT, Declaration, Particle, Schema
from fmware.routing.xsd import read_xsd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path as File

    from fmware.routing.pattern import Pattern
    from fmware.xpath import Path

__all__ = ["Advertisement", "Shape", "shape"]

Shape = Literal["non-recursive", "simple", "series", "embedded"]
_TOKEN: Final = re.compile(r"\s*(\)\+|\(|\||\)|/?(?:\{[^}]*\})?[^\s()/|+{}]+)")
_ENTANGLED: Final = 64
"""Ways through a cycle that are written out; with more, one repetition of all names stands."""
_NESTED: Final = 200


class Advertisement:
    """The paths of documents that a publisher announces."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @classmethod
    def from_dtd(
        cls,
        source: str | File | bytes,
        *,
        root: str | None = None,
        namespaces: Mapping[str, str] | None = None,
    ) -> Advertisement:
        """From a DTD; see `read_dtd`."""
        return cls(read_dtd(source, root=root, namespaces=namespaces))

    @classmethod
    def from_xsd(cls, source: str | File | bytes, *, root: str | None = None) -> Advertisement:
        """From an XML Schema; see `read_xsd`."""
        return cls(read_xsd(source, root=root))

    @classmethod
    def from_words(cls, documents: Iterable[Iterable[tuple[str, ...]]]) -> Advertisement:
        """Learnt from the words of documents; see `Sample`."""
        return cls(Sample(documents).schema())

    @classmethod
    def parse(cls, text: str) -> Advertisement:
        """From the notation. Raises `AdvertisementError`."""
        return cls(_Notation(text).schema())

    def __repr__(self) -> str:
        return f"Advertisement({self.schema.name})"

    def intersects(self, statement: str | Path | Pattern) -> bool:
        """Whether a document that is announced may match a statement."""
        return self.schema.intersects(statement)

    def expressions(self, most: int = 1000) -> Iterator[str]:
        """The notation, a line for each way from the root to a leaf; at most so many lines."""
        for number, line in enumerate(_Printer(self.schema).lines()):
            if number == most:
                return
            yield line


def shape(expression: str) -> Shape:
    """Which of the paper's kinds an advertisement in its notation is."""
    depth = groups = deepest = 0
    for character in expression:
        depth += {"(": 1, ")": -1}.get(character, 0)
        groups += character == "("
        deepest = max(deepest, depth)
    if deepest > 1:
        return "embedded"
    return "non-recursive" if not groups else "simple" if groups == 1 else "series"


# -- from the notation --


class _Notation:
    """Positions of names in a text, and which may follow which, as Glushkov has it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split(text)
        self.at = 0
        self.names: list[str] = []
        self.follow: list[set[int]] = []

    def _split(self, text: str) -> list[tuple[str, int]]:
        tokens, at = [], 0
        stripped = text.rstrip()
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if found is None:
                raise self._error("a name, '(' or ')+' should stand", at)
            tokens.append((found[1], found.start(1)))
            at = found.end()
        return tokens

    def _error(self, what: str, at: int) -> AdvertisementError:
        return AdvertisementError(f"{self.text!r}: {what} at character {at + 1}")

    def schema(self) -> Schema:
        first, last = self._sequence(0)
        if self.at < len(self.tokens):
            raise self._error("an unexpected character stands", self.tokens[self.at][1])
        declared = []
        for number, name in enumerate(self.names):
            parts = tuple(Particle(ELEMENT, number=n) for n in sorted(self.follow[number]))
            model = Particle(CHOICE, optional=number in last, parts=parts) if parts else None
            declared.append(Declaration(name, model, {"*": False}, text=True))
        return Schema(declared, sorted(first), self.text)

    def _sequence(self, depth: int) -> tuple[set[int], set[int]]:
        if depth > _NESTED:
            raise self._error(f"parentheses are nested more than {_NESTED} deep", 0)
        first: set[int] = set()
        last: set[int] = set()
        while self.at < len(self.tokens) and self.tokens[self.at][0] not in (")+", ")", "|"):
            begins, ends = self._item(depth)
            first = first or begins
            for number in last:
                self.follow[number] |= begins
            last = ends
        if not first:
            at = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
            raise self._error("a name should stand", at)
        return first, last

    def _item(self, depth: int) -> tuple[set[int], set[int]]:
        token, at = self.tokens[self.at]
        self.at += 1
        if token != "(":
            self.names.append(token.removeprefix("/"))
            self.follow.append(set())
            return {len(self.names) - 1}, {len(self.names) - 1}
        first, last = self._sequence(depth + 1)
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "|":
            self.at += 1
            begins, ends = self._sequence(depth + 1)
            first, last = first | begins, last | ends
        if self.at == len(self.tokens) or self.tokens[self.at][0] not in (")+", ")"):
            raise self._error("this '(' has no ')+'", at)
        if self.tokens[self.at][0] == ")+":
            for number in last:
                self.follow[number] |= first
        self.at += 1
        return first, last


# -- to the notation --


class _Printer:
    """Writes the ways through a schema: cycles as repetitions, all else one by one."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.edges = schema.edges
        self.cycles = _components(self.edges)

    def lines(self) -> Iterator[str]:
        todo = [("", root) for root in reversed(self.schema.roots) if root in self.edges]
        while todo:
            before, entry = todo.pop()
            inside = self.cycles[entry]
            for leaving in sorted(inside):
                ways = self._ways(entry, leaving, inside)
                if self._may_end(leaving):
                    yield from (before + way for way in ways)
                outside = [n for n in self.edges[leaving] if n not in inside]
                todo += [(before + way, n) for n in reversed(outside) for way in reversed(ways)]

    def _may_end(self, number: int) -> bool:
        model = self.schema.declarations[number].model
        return model is None or not self.edges[number] or _empty(model)

    def _name(self, number: int) -> str:
        return f"/{self.schema.declarations[number].name}"

    def _ways(self, entry: int, leaving: int, inside: frozenset[int]) -> list[str]:
        """The walks from one node of a cycle to another, as expressions."""
        if entry == leaving and entry not in self.edges[entry] and len(inside) == 1:
            return [self._name(entry)]
        steps = {n: {m: {self._name(m)} for m in self.edges[n] if m in inside} for n in inside}
        for gone in sorted(inside - {entry, leaving}):
            if not _eliminate(steps, gone):
                return self._entangled(entry, leaving, inside)
        return self._written(entry, leaving, steps)

    def _written(
        self, entry: int, leaving: int, steps: dict[int, dict[int, set[str]]]
    ) -> list[str]:
        name = self._name(entry)
        round_ = set(steps[entry].get(entry, ()))
        if entry == leaving:
            if round_ == {name}:
                return [f"({name})+"]
            return [name] + [name + _repeated(round_)] * bool(round_)
        across = _joined(steps[entry].get(leaving, set()), steps[leaving].get(leaving, set()))
        round_ |= {a + b for a in across for b in steps[leaving].get(entry, ())}
        ways = {name + way for way in across}
        if len(across) == 1 and round_ == {next(iter(across)) + name}:
            # Left at the end of the round: one repetition says both.
            return [f"({name}{next(iter(across))})+"]
        if len(round_) == 1 and next(iter(round_)).endswith(name):
            whole = name + next(iter(round_)).removesuffix(name)
            return sorted(ways) + sorted(f"({whole})+{way}" for way in ways)
        return sorted(ways) + sorted(
            name + _repeated(round_) + way.removeprefix(name) for way in ways if round_
        )

    def _entangled(self, entry: int, leaving: int, inside: frozenset[int]) -> list[str]:
        """All names of a cycle in any order: more than there is, and short."""
        names = "|".join(self._name(n) for n in sorted(inside))
        end = self._name(leaving)
        direct = [self._name(entry) + end] if leaving in self.edges[entry] else []
        alone = [end] if entry == leaving else []
        return [*alone, *direct, f"{self._name(entry)}({names})+{end}"]


def _eliminate(steps: dict[int, dict[int, set[str]]], gone: int) -> bool:
    """Take a node out and join the ways that led through it; false if they are too many."""
    loops = steps[gone].pop(gone, set())
    after = steps.pop(gone)
    for below in steps.values():
        before = below.pop(gone, None)
        if before is None:
            continue
        through = _joined(before, loops)
        for end, ways in after.items():
            below.setdefault(end, set()).update(a + b for a in through for b in ways)
            if len(below[end]) > _ENTANGLED or max(map(len, below[end])) > 4096:
                return False
    return True


def _joined(ways: set[str], loops: set[str]) -> set[str]:
    return ways | {way + _repeated(loops) for way in ways if loops}


def _repeated(ways: set[str]) -> str:
    return f"({'|'.join(sorted(ways))})+"


def _empty(part: Particle) -> bool:
    """Whether a content may hold no element."""
    if part.optional:
        return True
    if part.kind == ELEMENT:
        return False
    return (any if part.kind == CHOICE else all)(map(_empty, part.parts))


def _components(edges: dict[int, tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Of each node, those that reach it and that it reaches: Tarjan's, without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: dict[int, frozenset[int]] = {}
    for start in edges:
        todo = [(start, iter(edges[start]))] if start not in order else []
        while todo:
            node, children = todo[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
            step = next((c for c in children if c not in order or c not in found), None)
            if step is not None and step not in order:
                todo.append((step, iter(edges[step])))
                continue
            if step is not None:
                low[node] = min(low[node], order[step])
                continue
            todo.pop()
            if todo:
                low[todo[-1][0]] = min(low[todo[-1][0]], low[node])
            if low[node] == order[node]:
                cut = stack.index(node)
                members = frozenset(stack[cut:])
                del stack[cut:]
                found |= dict.fromkeys(chain(members), members)
    return found
