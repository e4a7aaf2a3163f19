"""Merging: several statements that are alike, forwarded as one wider statement.

A merger is perfect if it matches nothing that none of its members matches, and imperfect otherwise.
How imperfect is the paper's D, the share of what the merger matches that no member does. `Measure`
gives it, from a schema or from a sample of messages; the caller bounds it. A merger lasts while its
members do: when one leaves, it is measured again, and dissolved if it is over the bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fmware.routing._paths import LONGEST
from fmware.routing.covering import accepts
from fmware.routing.pattern import Linear, Pattern
from fmware.routing.tree import Change, SubscriptionTree
from fmware.xpath import Axis, Kind, Path, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fmware.routing.sample import Sample
    from fmware.routing.schema import Schema

__all__ = ["Measure", "Merger", "MergingTree", "SampleMeasure", "SchemaMeasure", "mergers"]

_LEAST_MASS = 1e-12


class Measure(Protocol):
    """Says how imperfect a merger is: from 0, perfect, to 1."""

    def __call__(self, merger: Linear, members: list[Linear]) -> float: ...


@dataclass(frozen=True, slots=True)
class Merger:
    """A statement that stands for others."""

    pattern: Pattern
    members: tuple[Pattern, ...]
    imperfect: float


class SampleMeasure:
    """D on a sample: of its messages that a merger matches, the share that no member does."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def __call__(self, merger: Linear, members: list[Linear]) -> float:
        """Of a merger that no message matches nothing is known: 1."""
        matched = self._sample.having(merger)
        if not matched:
            return 1.0
        wanted = 0
        for member in members:
            wanted |= self._sample.having(member)
        return (matched & ~wanted).bit_count() / matched.bit_count()


class SchemaMeasure:
    """D on a schema: exact where it is 0, else estimated on random paths from the root.

    At each element, every child that may stand there and, if it may be a leaf, the end are equally
    likely; paths have at most `depth` elements, ten unless said, as the paper's documents.
    """

    def __init__(self, schema: Schema, depth: int = 10) -> None:
        self._schema = schema
        self._depth = depth

    def __call__(self, merger: Linear, members: list[Linear]) -> float:
        if self.perfect(merger, members):
            return 0.0
        matched, wanted = self._mass(merger, members)
        return (matched - wanted) / matched if matched > _LEAST_MASS else 1.0

    def perfect(self, merger: Linear, members: list[Linear]) -> bool:
        """Whether the members, which differ in one name, match all that the merger matches."""
        if self._schema.wild or not _alike(members):
            return False
        return self._schema.all_match(members, merger)

    def _mass(self, merger: Linear, members: list[Linear]) -> tuple[float, float]:
        """The probability that a path matches the merger, and that it matches a member too."""
        paths = [_Walker(path) for path in (merger, *members)]
        start = tuple(1 for _ in paths)
        level = {(root, start): 1 / len(self._schema.roots) for root in self._schema.roots}
        matched = wanted = 0.0
        for _ in range(self._depth):
            below: dict[tuple[int, tuple[int, ...]], float] = defaultdict(float)
            for (number, before), mass in level.items():
                name = self._schema.declarations[number].name
                after = tuple(w.move(s, name) for w, s in zip(paths, before, strict=True))
                merged = before[0] < 0 or after[0] < 0
                if after[0] < 0 <= before[0]:
                    matched += mass
                if any(state < 0 for state in after[1:]):
                    wanted += mass
                elif merged or after[0]:
                    children = self._schema.edges[number]
                    for child in children:
                        below[child, after] += mass / len(children)
            level = below
        return matched, wanted


class _Walker:
    """A linear path over elements: a set of places that moves; -1 once it has matched."""

    def __init__(self, path: Linear) -> None:
        self.path = path
        self.stay = sum(1 << i for i, (axis, _, _) in enumerate(path) if axis)
        self.masks: dict[str, int] = {}

    def move(self, places: int, name: str) -> int:
        if places < 0:
            return -1
        mask = self.masks.get(name)
        if mask is None:
            mask = self.masks[name] = sum(
                1 << i for i, (_, k, n) in enumerate(self.path) if accepts(k, n, 0, name)
            )
        after = (places & mask) << 1 | places & self.stay
        # An attribute or text at the end counts as there: what a path of elements can tell.
        last = len(self.path) - bool(self.path[-1][1])
        return -1 if after >> last & 1 else after


def mergers(patterns: Iterable[Pattern], measure: Measure, bound: float = 0.0) -> Iterator[Merger]:
    """Mergers of linear paths whose D is at most the bound, largest first, each path in one.

    Paths that differ in one name are merged with `*` there. If the bound is over 0, those that
    differ in up to two steps between a common begin and end are merged with `//`.
    """
    plain = [p for p in patterns if p.plain and len(p.spine) <= LONGEST]
    taken: set[str] = set()
    groups = _by_name(plain)
    if bound > 0:
        groups |= _by_gap(plain)
    for linear, group in sorted(groups.items(), key=lambda item: (-len(item[1]), str(item[0]))):
        members = [p for p in group if p.key not in taken]
        if len(members) < 2:
            continue
        imperfect = measure(linear, [p.spine for p in members])
        if imperfect <= bound:
            taken.update(p.key for p in members)
            yield Merger(_pattern(linear, members[0].namespaces), tuple(members), imperfect)


def _alike(members: list[Linear]) -> bool:
    """Whether paths are the same but for one name."""
    first = members[0]
    if any(len(m) != len(first) for m in members):
        return False
    columns = list(zip(*members, strict=True))
    if any(len({(a, k) for a, k, _ in column}) > 1 for column in columns):
        return False
    return sum(len(set(column)) > 1 for column in columns) <= 1


def _by_name(patterns: list[Pattern]) -> dict[Linear, list[Pattern]]:
    groups: dict[Linear, list[Pattern]] = defaultdict(list)
    for pattern in patterns:
        for place, (axis, kind, name) in enumerate(pattern.spine):
            if kind != Kind.TEXT and not name.endswith("*"):
                spine = pattern.spine
                groups[(*spine[:place], (axis, kind, "*"), *spine[place + 1 :])].append(pattern)
    return {linear: group for linear, group in groups.items() if len(group) > 1}


def _by_gap(patterns: list[Pattern]) -> dict[Linear, list[Pattern]]:
    groups: dict[Linear, list[Pattern]] = defaultdict(list)
    for pattern in patterns:
        spine = pattern.spine
        for begin in range(1, len(spine) - 1):
            for end in range(begin + 1, min(begin + 3, len(spine))):
                _, kind, name = spine[end]
                groups[(*spine[:begin], (1, kind, name), *spine[end + 1 :])].append(pattern)
    return {linear: group for linear, group in groups.items() if len(group) > 1}


def _pattern(linear: Linear, namespaces: Mapping[str, str]) -> Pattern:
    prefixes = {uri: prefix for prefix, uri in namespaces.items()}
    steps = []
    for axis, kind, name in linear:
        uri, brace, local = name.rpartition("}")
        prefix = prefixes[uri[1:]] if brace else None
        steps.append(Step(Axis(axis), Kind(kind), prefix, local))
    return Pattern(Path(tuple(steps), absolute=True), namespaces)


class MergingTree:
    """A subscription tree whose maximal set is merged further, when `merge` is called.

    `insert`, `remove` and `merge` give how the set of statements to be forwarded has changed.
    """

    def __init__(self, measure: Measure, bound: float = 0.0) -> None:
        self._measure = measure
        self._bound = bound
        self._base = SubscriptionTree()
        self._front = SubscriptionTree()
        self._mergers: dict[str, Merger] = {}
        self._merged: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._base)

    @property
    def tops(self) -> int:
        """How many statements are forwarded."""
        return self._front.tops

    @property
    def merged(self) -> list[Merger]:
        """The mergers there are."""
        return list(self._mergers.values())

    def maximal(self) -> Iterator[Pattern]:
        """The statements to be forwarded."""
        return self._front.maximal()

    def insert(self, pattern: Pattern) -> Change:
        """Add a statement."""
        return self._apply(self._base.insert(pattern))

    def remove(self, pattern: Pattern) -> Change:
        """Take a statement away; mergers that it was in may be dissolved."""
        return self._apply(self._base.remove(pattern))

    def merge(self) -> Change:
        """Merge what can be merged now."""
        net = _Net()
        free = [p for p in self._front.maximal() if p.key not in self._mergers]
        for merger in mergers(free, self._measure, self._bound):
            if merger.pattern in self._front:
                continue
            self._mergers[merger.pattern.key] = merger
            net.add(self._front.insert(merger.pattern))
            for member in merger.members:
                self._merged[member.key] = merger.pattern.key
                net.add(self._front.remove(member))
        return net.change()

    def _apply(self, base: Change) -> Change:
        net = _Net()
        for pattern in base.added:
            net.add(self._front.insert(pattern))
        for pattern in base.removed:
            self._leave(pattern, net)
        return net.change()

    def _leave(self, pattern: Pattern, net: _Net) -> None:
        owner = self._merged.pop(pattern.key, None)
        if owner is None:
            net.add(self._front.remove(pattern))
            return
        merger = self._mergers.pop(owner)
        left = tuple(m for m in merger.members if m.key != pattern.key)
        if len(left) > 1:
            imperfect = self._measure(merger.pattern.spine, [m.spine for m in left])
            if imperfect <= self._bound:
                self._mergers[owner] = Merger(merger.pattern, left, imperfect)
                return
        for member in left:
            del self._merged[member.key]
            net.add(self._front.insert(member))
        net.add(self._front.remove(merger.pattern))


class _Net:
    """Several changes as one: what came and went again has not changed."""

    def __init__(self) -> None:
        self._added: dict[str, Pattern] = {}
        self._removed: dict[str, Pattern] = {}

    def add(self, change: Change) -> None:
        for pattern in change.added:
            if self._removed.pop(pattern.key, None) is None:
                self._added[pattern.key] = pattern
        for pattern in change.removed:
            if self._added.pop(pattern.key, None) is None:
                self._removed[pattern.key] = pattern

    def change(self) -> Change:
        return Change(list(self._added.values()), list(self._removed.values()))
