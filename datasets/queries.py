"""XPath workloads from a DTD, with the parameters of the YFilter studies.

A query is the trace of a random walk from the root down the child graph, so some valid document
satisfies its structure. D (`depth`) is the deepest level the walk reaches, W (`wildcard`) the
chance that a step is written `*`, DS (`descendant`) the chance that a step is reached by `//`, in
which case the walk skips levels. P (`predicates`) and NP (`nested`) are counts per query.

`a//*/b` and `a/*//b` select the same nodes. Only the second form is made: a `//` drawn for a
wildcard passes on to the next named step, and is dropped at the end of the path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from random import Random
from typing import TYPE_CHECKING

from fmware.datasets.chance import check, slots, weighted
from fmware.datasets.dtd import Dtd, load_dtd
from fmware.datasets.errors import ExhaustedError, ParameterError
from fmware.datasets.values import Domain, attribute_domain, domain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fmware.datasets.dtd import Element

INFINITE = float("inf")
#: So many draws in a row without a new query: look whether there are any left.
_PATIENCE = 5000
#: So many walks in a row without room for the predicates: there is no such query.
_WALKS = 2000
#: The chance that a walk ends early at a level, rather than at the depth or at a leaf.
_STOP = 0.05


def queries(
    dtd: Dtd | str | Path,
    count: int,
    *,
    seed: int = 0,
    depth: int = 6,
    wildcard: float = 0.2,
    descendant: float = 0.2,
    predicates: int = 0,
    nested: int = 0,
    distinct: bool = True,
    skew: float = 0.0,
    values: int = 20,
    root: str | None = None,
) -> Iterator[str]:
    """Yield `count` XPath expressions that are satisfiable under the DTD.

    skew: Zipf exponent of the choice among children and among values, 0 for uniform.
    values: as given to `documents`, so that predicates ask for values that occur.

    With `distinct`, no expression comes twice. The memory for that is a hash per query. When
    fewer exist than are asked for, all that exist are yielded and `ExhaustedError` says how many.
    """
    check("count", count, 0, INFINITE)
    check("depth", depth, 1, INFINITE)
    check("wildcard", wildcard, 0, 1)
    check("descendant", descendant, 0, 1)
    check("predicates", predicates, 0, 100)
    check("nested", nested, 0, 100)
    check("skew", skew, 0, INFINITE)
    check("values", values, 1, INFINITE)
    settings = _Settings(depth, wildcard, descendant, predicates, nested, skew, values)
    walker = _Walker(load_dtd(dtd), root, settings, Random(f"queries {seed}"))
    if distinct:
        return _distinct(walker, count)
    return (walker.query() for _ in range(count))


@dataclass(frozen=True, slots=True)
class _Settings:
    depth: int
    wildcard: float
    descendant: float
    predicates: int
    nested: int
    skew: float
    values: int


@dataclass(slots=True)
class _Step:
    """A location step: as written, the element the walk stood on, its level, its predicates."""

    written: str
    element: int
    level: int
    brackets: list[str] = field(default_factory=list)

    def text(self) -> str:
        # Sorted, so that two queries that differ in the order only are one.
        return self.written + "".join(f"[{inner}]" for inner in sorted(self.brackets))


def _distinct(walker: _Walker, count: int) -> Iterator[str]:
    # A hash costs half the memory of the expression. That two expressions of one workload share
    # 64 bits is less likely than a fault of the machine.
    seen: set[int] = set()
    missed = 0
    while len(seen) < count:
        query = walker.query()
        known = len(seen)
        seen.add(hash(query))
        if len(seen) > known:
            missed = 0
            yield query
            continue
        missed += 1
        if missed > _PATIENCE:
            yield from _remaining(walker, count, seen)
            return


def _remaining(walker: _Walker, count: int, seen: set[int]) -> Iterator[str]:
    """What random walks hardly ever hit: found by enumeration, if the queries are mere paths."""
    settings = walker.settings
    paths_only = not settings.predicates and not settings.nested
    for query in walker.enumerate() if paths_only else ():
        if len(seen) == count:
            return
        if hash(query) not in seen:
            seen.add(hash(query))
            yield query
    if len(seen) < count:
        raise ExhaustedError(count, len(seen), exact=paths_only)


class _Walker:
    """Walks the child graph. Elements are numbers; 0 is the document, above the root."""

    def __init__(self, dtd: Dtd, root: str | None, settings: _Settings, rng: Random) -> None:
        top = dtd.root(root)
        self.settings = settings
        self.rng = rng
        reachable = [n for n in dtd.elements if n == top or n in dtd.below[top]]
        self.names = ["", *reachable]
        self.domains: list[list[tuple[str, Domain]]] = [[]]
        number = {name: i for i, name in enumerate(self.names)}
        # An element that can never be completed stands in no document.
        finite = {n for n in reachable if dtd.depths[n] < INFINITE}
        self.children: list[tuple[int, ...]] = [(number[top],)]
        for name in reachable:
            element = dtd.elements[name]
            self.children.append(tuple(number[c] for c in element.children if c in finite))
            self.domains.append(_subjects(element, settings))
        self.tables = self._tables()

    def _tables(self) -> list[list[tuple[int, ...]]]:
        """For each level and element, its children as often as they are to be drawn.

        A child counts by the number of walks below it, damped. Drawn alike, small subtrees would
        come up again and again; by the number itself, they would hardly ever.
        """
        walks = [1.0] * len(self.names)
        tables: list[list[tuple[int, ...]]] = [[()] * len(self.names)]
        for _ in range(self.settings.depth):
            tables.append([self._table(below, walks) for below in self.children])
            walks = [min(1 + sum(walks[c] for c in below), 1e12) for below in self.children]
        return tables[::-1]

    def _table(self, below: tuple[int, ...], walks: list[float]) -> tuple[int, ...]:
        zipf = [1 / (rank + 1) ** self.settings.skew for rank in range(len(below))]
        return weighted(below, [sqrt(walks[c]) * z for c, z in zip(below, zipf, strict=True)])

    def query(self) -> str:
        """One expression."""
        settings = self.settings
        if not settings.predicates and not settings.nested:
            return self._path()
        for _ in range(_WALKS):
            steps = self._steps(0, 0)
            extra = self._nest(steps)
            if extra is not None and self._compare([*steps, *(s for p in extra for s in p[1])]):
                for owner, path in extra:
                    owner.brackets.append(_relative(path))
                return "".join(step.text() for step in steps)
        raise ParameterError(
            f"no path has room for {settings.predicates} predicates and {settings.nested} nested "
            "paths: this DTD has too few attributes, texts or levels"
        )

    def _path(self) -> str:
        """A path without predicates: the hot loop, `_steps` without its objects."""
        random, tables, names = self.rng.random, self.tables, self.names
        settings = self.settings
        depth, wildcard, descendant = settings.depth, settings.wildcard, settings.descendant
        path, here, level, deep = "", 0, 0, False
        while level < depth:
            below = tables[level][here]
            if not below or (level and random() < _STOP):
                break
            here = below[int(random() * len(below))]
            level += 1
            deep = random() < descendant or deep
            if random() < wildcard:
                path += "/*"
                continue
            if deep:
                while level < depth and random() < 0.5:
                    below = tables[level][here]
                    if not below:
                        break
                    here = below[int(random() * len(below))]
                    level += 1
                path += "//" + names[here]
                deep = False
            else:
                path += "/" + names[here]
        return path

    def _steps(self, here: int, level: int) -> list[_Step]:
        """A walk from a node downwards, one step at least if it has children."""
        random, settings = self.rng.random, self.settings
        steps: list[_Step] = []
        deep = False
        while level < settings.depth:
            if not self.children[here] or (steps and random() < _STOP):
                break
            here = self._child(here, level)
            level += 1
            deep = random() < settings.descendant or deep
            if random() < settings.wildcard:
                steps.append(_Step("/*", here, level))
                continue
            while deep and level < settings.depth and self.children[here] and random() < 0.5:
                here = self._child(here, level)
                level += 1
            steps.append(_Step(("//" if deep else "/") + self.names[here], here, level))
            deep = False
        return steps

    def _child(self, here: int, level: int) -> int:
        below = self.tables[level][here]
        return below[int(self.rng.random() * len(below))]

    # -- predicates

    def _nest(self, steps: list[_Step]) -> list[tuple[_Step, list[_Step]]] | None:
        """The nested paths and where they hang, each at a step chosen uniformly; none if no room.

        A nested path goes as deep as the depth left below its step.
        """
        depth = self.settings.depth
        room = [step for step in steps if step.level < depth and self.children[step.element]]
        if self.settings.nested and not room:
            return None
        owners = [self.rng.choice(room) for _ in range(self.settings.nested)]
        return [(owner, self._steps(owner.element, owner.level)) for owner in owners]

    def _compare(self, steps: list[_Step]) -> bool:
        """Add the value predicates, spread over the steps; false if these steps have no values."""
        wanted = self.settings.predicates
        places = [(step, subject) for step in steps for subject in self.domains[step.element]]
        if wanted and not places:
            return False
        chosen = self.rng.sample(places, min(wanted, len(places)))
        for step, (subject, values) in chosen:
            step.brackets.append(self._comparison(subject, values))
        # A second test of the same value must not contradict the first.
        for _ in range(wanted - len(chosen)):
            step, (subject, values) = self.rng.choice(places)
            step.brackets.append(f"{subject} != {self._value(values)}")
        return True

    def _comparison(self, subject: str, values: Domain) -> str:
        """Equality mostly; of numbers a quarter are ranges."""
        draw = self.rng.random()
        operator = "!=" if draw > 0.94 else "="
        if values.numeric and draw < 0.25:
            operator = self.rng.choice(("<", "<=", ">", ">="))
        return f"{subject} {operator} {self._value(values)}"

    def _value(self, values: Domain) -> str:
        value = values.values[int(self.rng.random() * len(values.values))]
        if values.numeric:
            return value
        return f'"{value}"' if "'" in value else f"'{value}'"

    # -- enumeration

    def enumerate(self) -> Iterator[str]:
        """Every path that `_path` can make, each once, in a fixed order.

        A subset construction: a prefix stands for all (element, level) pairs it can lead to, so
        two walks that are written alike are one.
        """
        todo: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset({(0, 0)}))]
        while todo:
            prefix, places = todo.pop()
            if prefix:
                yield prefix
            for written, found in self._extensions(places).items():
                todo.append((prefix + written, frozenset(found)))

    def _extensions(self, places: frozenset[tuple[int, int]]) -> dict[str, set[tuple[int, int]]]:
        settings = self.settings
        found: dict[str, set[tuple[int, int]]] = {}
        near = self._below(places)
        if settings.wildcard > 0 and near:
            found["/*"] = near
        if settings.wildcard == 1:
            return found
        if settings.descendant < 1:
            for element, level in near:
                found.setdefault("/" + self.names[element], set()).add((element, level))
        if settings.descendant > 0:
            for element, level in self._anywhere_below(near):
                found.setdefault("//" + self.names[element], set()).add((element, level))
        return dict(sorted(found.items()))

    def _below(
        self, places: frozenset[tuple[int, int]] | set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        depth = self.settings.depth
        return {(c, level + 1) for e, level in places if level < depth for c in self.children[e]}

    def _anywhere_below(self, near: set[tuple[int, int]]) -> set[tuple[int, int]]:
        every, fresh = set(near), near
        while fresh:
            fresh = self._below(fresh) - every
            every |= fresh
        return every


def _subjects(element: Element, settings: _Settings) -> list[tuple[str, Domain]]:
    """What can be compared in an element: its attributes of plain values, and its text."""
    found = [
        (f"@{attribute.name}", attribute_domain(element.name, attribute, settings.values))
        for attribute in element.attributes
        if attribute.kind in ("cdata", "nmtoken", "nmtokens", "enumeration")
        and not attribute.name.startswith("xmlns")
    ]
    if element.content == "text":
        found.append(("text()", domain(element.name, None, settings.values)))
    # XPath 1.0 has no escape: a literal cannot hold both kinds of quotes.
    return [
        (subject, Domain(known.numeric, slots(known.values, settings.skew)))
        for subject, known in found
        if not any("'" in value and '"' in value for value in known.values)
    ]


def _relative(path: list[_Step]) -> str:
    """A nested path as written in a predicate: `b/c`, `.//d`."""
    text = "".join(step.text() for step in path)
    return f".{text}" if text.startswith("//") else text[1:]
