"""XPath 1.0 on the rows of one NodeTable, step by step.

It serves where rows are few: a branch below an anchor, a record of the corpus whose values are
asked for, an explanation. It is written to be read and believed; predicates are remembered by
node, so that nested ones stay polynomial.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict
from dataclasses import replace
from functools import cached_property
from math import nan
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Final

import numpy as np

from fmware.xpath import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Expr,
    Kind,
    Not,
    Op,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
    clark,
)
from fmware.xpath.tree import positional

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fmware.index import Segment
    from fmware.labeling import NodeTable

__all__ = ["DOCUMENT", "Evaluator", "Evaluators", "compares", "number_of", "resolved"]

DOCUMENT: Final = -1
"""The row of the document node, which stands above the root."""
MANY: Final = 512
"""Rows from which on numpy looks for a name faster than a loop does."""
TESTS: Final = 1024
"""Predicates whose answers are remembered; beyond them, one begins anew."""

_NUMBER: Final = re.compile(r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))[ \t\r\n]*")
_COMPARISONS: Final = {Op.EQ: eq, Op.NE: ne, Op.LT: lt, Op.LE: le, Op.GT: gt, Op.GE: ge}


class Evaluator:
    """XPath 1.0 on the rows of one table; without `namespaces`, local names alone decide.

    Answers are those of one namespace map; with paths that are `resolved`, of any.
    """

    def __init__(self, table: NodeTable, namespaces: Mapping[str, str] | None) -> None:
        self.table = table
        self.namespaces = namespaces
        self.kind: list[int] = table.kind.tolist()
        self.parent: list[int] = table.parent.tolist()
        self.tag: list[int] = table.tag.tolist()
        # Where a row's subtree ends; of the document node, with which -1 is the last one here.
        sizes = ((table.end - table.start + 1) // 2).tolist()
        self.last: list[int] = [row + size for row, size in enumerate(sizes)] + [len(sizes)]
        self._names = {tag: table.vocabulary.name(tag) for tag in set(self.tag)}
        self._tags: dict[tuple[str | None, str], frozenset[int]] = {}
        # With the predicate itself: while it is held here, no other can have its id.
        self._known: dict[int, tuple[Expr, dict[int, bool]]] = {}
        self._values: dict[int, str] = {}

    @cached_property
    def start(self) -> list[int]:
        """Where the rows begin, by their labels."""
        found: list[int] = self.table.start.tolist()
        return found

    @cached_property
    def end(self) -> list[int]:
        """Where they end."""
        found: list[int] = self.table.end.tolist()
        return found

    @cached_property
    def level(self) -> list[int]:
        """How deep they stand."""
        found: list[int] = self.table.level.tolist()
        return found

    @cached_property
    def name(self) -> list[str]:
        """The Clark names of the rows."""
        return [self._names[tag] for tag in self.tag]

    # -- steps --

    def fits(self, step: Step, row: int) -> bool:
        """The name test, and whether it is an element, an attribute or text."""
        if self.kind[row] != step.kind:
            return False
        tags = self._tags_of(step)
        return tags is None or self.tag[row] in tags

    def _tags_of(self, step: Step) -> frozenset[int] | None:
        """The tags that have the name of a step; None for all."""
        if step.kind == Kind.TEXT or (step.name == "*" and not step.prefix):
            return None
        key = step.prefix, step.name
        if key not in self._tags:
            names = self._names.items()
            self._tags[key] = frozenset(tag for tag, name in names if self._is(step, name))
        return self._tags[key]

    def _is(self, step: Step, name: str) -> bool:
        if self.namespaces is None:
            return step.name in ("*", name.rpartition("}")[2])
        wanted = clark(step.prefix, step.name, self.namespaces)
        return name.startswith(wanted[:-1]) if wanted.endswith("*") else name == wanted

    def children(self, row: int) -> Iterator[int]:
        """The rows of attributes, child elements and texts."""
        at = row + 1
        while at < self.last[row]:
            yield at
            at = self.last[at]

    def reached(self, step: Step, contexts: Sequence[int]) -> list[int]:
        """What the axis leads to, whatever its name, in document order and each once."""
        if step.axis == Axis.CHILD:
            return sorted(row for context in contexts for row in self.children(context))
        return [row for low, high in self._stretches(contexts) for row in range(low, high)]

    def _stretches(self, contexts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """What is below the contexts.

        A context inside the one before has nothing new below it. Attributes stand behind their
        element, so that those of the context itself are here too, as `//@x` wants.
        """
        end = 0
        for context in contexts:
            if self.last[context] > end:
                end = self.last[context]
                yield context + 1, end

    def found(self, step: Step, contexts: Sequence[int]) -> list[int]:
        """What the axis leads to and fits, its predicates apart."""
        kind, tags = step.kind, self._tags_of(step)
        if step.axis == Axis.DESCENDANT:
            return [
                row
                for low, high in self._stretches(contexts)
                for row in (self._sought if high - low > MANY else self._fitting)(
                    kind, tags, low, high
                )
            ]
        return [
            row
            for row in self.reached(step, contexts)
            if self.kind[row] == kind and (tags is None or self.tag[row] in tags)
        ]

    def _fitting(self, kind: int, tags: frozenset[int] | None, low: int, high: int) -> list[int]:
        kinds, own = self.kind, self.tag
        return [
            row
            for row in range(low, high)
            if kinds[row] == kind and (tags is None or own[row] in tags)
        ]

    def _sought(self, kind: int, tags: frozenset[int] | None, low: int, high: int) -> list[int]:
        there = self.table.kind[low:high] == kind
        if tags is not None:
            there &= np.isin(self.table.tag[low:high], list(tags))
        rows: list[int] = (np.flatnonzero(there) + low).tolist()
        return rows

    def select(self, path: Path, contexts: Sequence[int]) -> list[int]:
        """The rows that a path leads to, in document order."""
        rows = list(contexts)
        for step in path.steps:
            rows = self.found(step, rows)
            for test in step.predicates:
                rows = self.passing(test, rows)
        return rows

    # -- predicates --

    def places(self, rows: Iterable[int]) -> dict[int, int]:
        """Positions: they count among siblings, also on `//`."""
        counts: Counter[int] = Counter()
        places: dict[int, int] = {}
        for row in rows:
            counts[self.parent[row]] += 1
            places[row] = counts[self.parent[row]]
        return places

    def passing(self, test: Expr, rows: Sequence[int]) -> list[int]:
        """The rows that a predicate lets pass."""
        if not positional(test):
            return [row for row in rows if self.holds(test, row, 0)]
        places = self.places(rows)
        return [row for row in rows if self.holds(test, row, places[row])]

    def holds(self, test: Expr, row: int, place: int) -> bool:
        """Whether a condition holds on a row at this place among its siblings."""
        if positional(test):
            return self._holds(test, row, place)
        _, known = self._known.get(id(test)) or self._remembered(test)
        if row not in known:
            known[row] = self._holds(test, row, place)
        return known[row]

    def _remembered(self, test: Expr) -> tuple[Expr, dict[int, bool]]:
        if len(self._known) >= TESTS:
            self._known.clear()
        return self._known.setdefault(id(test), (test, {}))

    def _holds(self, test: Expr, row: int, place: int) -> bool:
        match test:
            case And(terms):
                return all(self.holds(term, row, place) for term in terms)
            case Or(terms):
                return any(self.holds(term, row, place) for term in terms)
            case Not(term):
                return not self.holds(term, row, place)
            case Position(op, value):
                return bool(_COMPARISONS[op](place, value))
            case Exists(path):
                return bool(self.select(path, [row]))
            case Compare(path, op, value):
                return any(compares(self.value(at), op, value) for at in self.select(path, [row]))
            case Contains(path, text):
                return text in self.first_value(path, row)
            case StartsWith(path, text):
                return self.first_value(path, row).startswith(text)

    def value(self, row: int) -> str:
        """The string-value."""
        if row not in self._values:
            self._values[row] = self.table.string_value(row)
        return self._values[row]

    def first_value(self, path: Path, row: int) -> str:
        """The string-value of the first node, or the empty string, as XPath 1.0 has it."""
        rows = self.select(path, [row])
        return self.value(rows[0]) if rows else ""


class Evaluators:
    """The evaluators of the tables that were asked for last, for paths that are `resolved`.

    Those of many small records, or of one large one: up to so many rows. Safe to share between
    threads.
    """

    def __init__(self, rows: int = 1 << 18) -> None:
        self._rows = rows
        self._count = 0
        self._held: OrderedDict[tuple[str, int], Evaluator] = OrderedDict()
        self._roots: dict[str, list[int]] = {}
        self._lock = threading.Lock()

    def of(self, table: NodeTable) -> Evaluator:
        """The evaluator of a table."""
        # The table is held with it, so that its id stays its own.
        key = "", id(table)
        with self._lock:
            return self._known(key) or self._add(key, Evaluator(table, {}))

    def at(self, segment: Segment, start: int) -> Evaluator:
        """The evaluator of the record in which a node begins at `start`."""
        name = segment.files.sha256
        with self._lock:
            roots = self._roots.setdefault(name, [])
            place = bisect_right(roots, start) - 1
            if place >= 0:
                held = self._held[name, roots[place]]
                if start < held.end[0]:
                    self._held.move_to_end((name, roots[place]))
                    return held
        made = Evaluator(segment.table(start), {})
        key = name, made.start[0]
        with self._lock:
            known = self._known(key)
            if known is not None:
                return known
            insort(self._roots.setdefault(name, []), key[1])
            return self._add(key, made)

    def _known(self, key: tuple[str, int]) -> Evaluator | None:
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
        return held

    def _add(self, key: tuple[str, int], made: Evaluator) -> Evaluator:
        self._held[key] = made
        self._count += len(made.table)
        while self._count > self._rows and len(self._held) > 1:
            (name, root), old = self._held.popitem(last=False)
            self._count -= len(old.table)
            if name:
                roots = self._roots[name]
                del roots[bisect_left(roots, root)]
                if not roots:
                    del self._roots[name]
        return made


def resolved(path: Path, namespaces: Mapping[str, str]) -> Path:
    """The path with Clark names in place of prefixes, which mean the same whoever evaluates it."""
    return Path(tuple(_step(step, namespaces) for step in path.steps), path.absolute, path.at)


def _step(step: Step, namespaces: Mapping[str, str]) -> Step:
    tests = tuple(_test(test, namespaces) for test in step.predicates)
    if step.kind == Kind.TEXT:
        return replace(step, predicates=tests)
    name = clark(step.prefix, step.name, namespaces, at=step.at)
    return replace(step, prefix=None, name=name, predicates=tests)


def _test(test: Expr, namespaces: Mapping[str, str]) -> Expr:
    match test:
        case And(terms) | Or(terms):
            return replace(test, terms=tuple(_test(term, namespaces) for term in terms))
        case Not(term):
            return replace(test, term=_test(term, namespaces))
        case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
            return replace(test, path=resolved(path, namespaces))
        case Position():
            return test


def number_of(text: str) -> float:
    """A string as XPath 1.0's number; NaN if it is none."""
    match = _NUMBER.fullmatch(text)
    return float(match[1]) if match else nan


def compares(found: str, op: Op, wanted: str | float) -> bool:
    """Whether a string-value compares with a literal."""
    if isinstance(wanted, str) and op in (Op.EQ, Op.NE):
        return bool(_COMPARISONS[op](found, wanted))
    number = number_of(wanted) if isinstance(wanted, str) else wanted
    return bool(_COMPARISONS[op](number_of(found), number))
