"""Whether each document of one statement is a document of another.

`covers` is exact for linear paths, with `//`, `*`, attributes and text(): a path covers another if
every word of the other has a prefix among its own. For statements with predicates it looks for a
mapping of the covering tree into the covered one. If there is one, the answer is right; if there is
none, it may be covered all the same. It never says yes wrongly, and no when a question takes too
much work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.routing._paths import LONGEST, Symbols
from fmware.routing._paths import covers as native_covers
from fmware.routing.pattern import Linear, Pattern, Tests, TreeNode
from fmware.routing.values import implies
from fmware.xpath import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fmware.xpath import Path

__all__ = ["MOST_STEPS", "covers", "equivalent", "linear_covers", "pattern_covers"]

MOST_STEPS = 20_000
"""Pairs of nodes that one search for a mapping may look at: some 20 milliseconds."""

_SETS = 1024


def covers(
    covering: str | Path | Pattern,
    covered: str | Path | Pattern,
    *,
    namespaces: Mapping[str, str] | None = None,
) -> bool:
    """Whether `covering` matches every document that `covered` matches.

    >>> covers("/a//b", "/a/*/b/@id")
    True
    >>> covers("//a/*", "//b//c/a")
    False

    Prefixes are those of `namespaces`. Raises an `XPathError` for a text that does not parse.
    """
    first = covering if isinstance(covering, Pattern) else Pattern(covering, namespaces)
    second = covered if isinstance(covered, Pattern) else Pattern(covered, namespaces)
    return pattern_covers(first, second)


def equivalent(
    first: str | Path | Pattern,
    second: str | Path | Pattern,
    *,
    namespaces: Mapping[str, str] | None = None,
) -> bool:
    """Whether two statements match the same documents, as far as `covers` knows."""
    return covers(first, second, namespaces=namespaces) and covers(
        second, first, namespaces=namespaces
    )


def pattern_covers(covering: Pattern, covered: Pattern) -> bool:
    """The same of statements that have been made ready."""
    if covering.key == covered.key:
        return True
    if covering.opaque or covered.opaque:
        return False
    if covered.never:
        return True
    if covering.plain:
        return any(linear_covers(covering.spine, word) for word in covered.branches)
    return _Search().holds(covered.root, covering.root)


def linear_covers(covering: Linear, covered: Linear) -> bool:
    """The exact answer for two linear paths; no, if it takes too much work."""
    symbols = Symbols()
    first = [symbols.add(kind, name) << 1 | axis for axis, kind, name in covering]
    second = [symbols.add(kind, name) << 1 | axis for axis, kind, name in covered]
    if len(first) > LONGEST or len(second) > LONGEST:
        return _long_covers(covering, covered)
    return native_covers(symbols, first, second) is True


def accepts(kind: int, name: str, other_kind: int, other: str) -> bool:
    """Whether a name test accepts all names that another one accepts."""
    if kind != other_kind:
        return False
    if name in ("*", other):
        return True
    return name.endswith("}*") and other.startswith(name[:-1])


def _long_covers(p: Linear, q: Linear) -> bool:
    """As the native code decides it, with places in numbers of any length."""
    stay = sum(1 << i for i, (axis, _, _) in enumerate(p) if axis)
    anything = _mask(p, Kind.ELEMENT, "*")
    done = 1 << len(p)
    old = {1}
    for j, (axis, kind, name) in enumerate(q):
        accepting, fresh = _mask(p, kind, name), set[int]()
        for begin in old:
            for places in _gaps(begin, axis, kind, j, (anything, stay, done)):
                moved = (places & accepting) << 1 | (0 if kind else places & stay)
                if not moved & done:
                    fresh.add(moved)
        old = {s for s in fresh if not any(o != s and o & ~s == 0 for o in fresh)}
        if not old:
            return True
        if len(old) > _SETS:
            return False
    return False


def _gaps(places: int, axis: int, kind: int, j: int, masks: tuple[int, int, int]) -> Iterator[int]:
    """The places before a step, over gaps of all lengths if it has one."""
    anything, stay, done = masks
    if kind and not j:
        if not axis:
            return
        places = (places & anything) << 1 | places & stay
    while not places & done:
        yield places
        moved = (places & anything) << 1 | places & stay
        if not axis or moved == places:
            return
        places = moved


def _mask(p: Linear, kind: int, name: str) -> int:
    return sum(1 << i for i, (_, k, n) in enumerate(p) if accepts(k, n, kind, name))


class _Search:
    """One search for a mapping of a tree `p` into a tree `q`, with what was found on the way."""

    def __init__(self) -> None:
        self.left = MOST_STEPS
        self.known: dict[tuple[int, int], bool] = {}
        # Numbers of objects stay theirs while the objects are here.
        self.held: list[Tests] = []

    def holds(self, q: Tests, p: Tests) -> bool:
        """Whether all that p asks of a node follows from what q asks of it."""
        key = (id(q), id(p))
        if key not in self.known:
            self.left -= 1
            self.known[key] = False
            self.held += (q, p)
            self.known[key] = self.left > 0 and (self._asked(q, p) or self._by_cases(q, p))
        return self.known[key]

    def _by_cases(self, q: Tests, p: Tests) -> bool:
        """Whether it follows from each of q's first alternatives."""
        return bool(q.eithers) and all(self.holds(q.plus(case), p) for case in q.eithers[0])

    def _asked(self, q: Tests, p: Tests) -> bool:
        return (
            all(any(implies(given, a) for given in q.atoms) for a in p.atoms)
            and p.fixed <= q.fixed
            and all(
                any(path == known and implies(g, a) for known, g in q.firsts)
                for path, a in p.firsts
            )
            and all(any(self.holds(q, case) for case in cases) for cases in p.eithers)
            # not(m) implies not(n) if n implies m.
            and all(any(self.holds(n, m) for m in q.nots) for n in p.nots)
            and all(self._below(q, node) for node in p.children)
        )

    def _below(self, q: Tests, wanted: TreeNode) -> bool:
        """Whether a node below q answers for a child of p; `*` without tests only counts levels."""
        levels, exact, node = 1, not wanted.down, wanted
        while _only_counts(node) and len(node.tests.children) == 1:
            node = node.tests.children[0]
            levels, exact = levels + 1, exact and not node.down
        for level, fixed, found in _descendants(q, 0, fixed=True):
            self.left -= 1
            if self.left < 0:
                return False
            if _only_counts(node) and not node.tests.children:
                # A node that is so deep has an element above it at every lesser level.
                if level - (found.kind != Kind.ELEMENT) >= levels:
                    return True
            elif (
                (level == levels and fixed if exact else level >= levels)
                and accepts(node.kind, node.name, found.kind, found.name)
                and self.holds(found.tests, node.tests)
            ):
                return True
        return False


def _only_counts(node: TreeNode) -> bool:
    tests = node.tests
    return (
        node.kind == Kind.ELEMENT
        and node.name == "*"
        and not (tests.atoms or tests.firsts or tests.fixed or tests.eithers or tests.nots)
    )


def _descendants(tests: Tests, level: int, *, fixed: bool) -> Iterator[tuple[int, bool, TreeNode]]:
    """Nodes below, with the least distance, and whether that is the only one."""
    for node in tests.children:
        below = fixed and not node.down
        yield level + 1, below, node
        yield from _descendants(node.tests, level + 1, fixed=below)
