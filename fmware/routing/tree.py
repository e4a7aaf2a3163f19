"""The subscription tree: statements by who covers whom, kept while they come and go.

Each statement has at most one parent, which covers it; those without one are the maximal set, which
is all that a neighbour has to know. What else a statement covers is found when asked for (`supers`,
the paper's super pointers): candidates come from a trie of all statements, which is run over the
word of a statement to find what covers it, and searched by a statement to find what it covers.

Not guarded: one thread at a time may use a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fmware.routing._paths import LONGEST, PathIndex, Symbols
from fmware.routing.covering import pattern_covers
from fmware.routing.errors import UnknownSubscription
from fmware.routing.pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fmware.xpath import Path

__all__ = ["Change", "SubscriptionTree"]

_BRANCHES = 16
"""Words of a statement that are looked up: one with more may have covers that are not found."""


@dataclass(slots=True)
class Change:
    """How the maximal set has changed: what is forwarded now, what is taken back."""

    added: list[Pattern] = field(default_factory=list)
    removed: list[Pattern] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(slots=True, eq=False)
class _Node:
    pattern: Pattern
    number: int
    count: int = 1
    parent: _Node | None = None
    top: bool = False
    children: set[_Node] = field(default_factory=set)
    entries: list[int] = field(default_factory=list)


class SubscriptionTree:
    """Statements, ordered by covering.

        tree = SubscriptionTree()
        tree.insert("/a/b")          # the maximal set gains /a/b
        tree.insert("//b")           # it gains //b and loses /a/b
        tree.covered("//b")          # ['/a/b']

    A statement is known by its canonical text. It may be inserted more than once, and is there
    until it has been removed as often. A statement that no document can match is never maximal.
    """

    def __init__(self) -> None:
        self._symbols = Symbols()
        self._index = PathIndex(self._symbols)
        self._nodes: dict[str, _Node] = {}
        self._numbered: list[_Node | None] = []
        self._free: list[int] = []
        self._tops = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, statement: str | Path | Pattern) -> bool:
        return _ready(statement).key in self._nodes

    # -- coming and going --

    def insert(
        self, statement: str | Path | Pattern, *, namespaces: Mapping[str, str] | None = None
    ) -> Change:
        """Add a statement, and get how the maximal set has changed."""
        pattern = _ready(statement, namespaces)
        known = self._nodes.get(pattern.key)
        if known is not None:
            known.count += 1
            return Change()
        node = self._new(pattern)
        change = Change()
        if not pattern.never:
            self._settle(node, change)
        return change

    def remove(
        self, statement: str | Path | Pattern, *, namespaces: Mapping[str, str] | None = None
    ) -> Change:
        """Take a statement away; those it covered find another that covers them, or are maximal.

        Raises `UnknownSubscription` if it is not there.
        """
        node = self._node(statement, namespaces)
        node.count -= 1
        change = Change()
        if node.count:
            return change
        self._drop(node, change)
        for child in list(node.children):
            self._move(child, node.parent)
            if node.parent is None:
                self._settle(child, change)
        node.children.clear()
        return change

    # -- who covers whom --

    @property
    def tops(self) -> int:
        """How many statements are in the maximal set."""
        return self._tops

    def maximal(self) -> Iterator[Pattern]:
        """The statements that no other one covers; of equal ones, one."""
        return (node.pattern for node in self._nodes.values() if node.top)

    def covering(self, statement: str | Path | Pattern) -> list[Pattern]:
        """The other statements here that cover one, which need not be here itself."""
        pattern = _ready(statement)
        return [node.pattern for node in self._above(pattern, tops=False)]

    def covered(self, statement: str | Path | Pattern) -> list[Pattern]:
        """The other statements here that one covers, which need not be here itself."""
        pattern = _ready(statement)
        return [node.pattern for node in self._below(pattern, tops=False)]

    def cover(self, statement: str | Path | Pattern) -> Pattern | None:
        """A maximal statement that covers one, if there is one."""
        found = self._above(_ready(statement), tops=True, first=True)
        return next(iter(found)).pattern if found else None

    def parent(self, statement: str | Path | Pattern) -> Pattern | None:
        """The statement above one in the tree; None for a maximal one."""
        above = self._node(statement).parent
        return above.pattern if above else None

    def top(self, statement: str | Path | Pattern) -> Pattern:
        """The maximal statement above one in the tree; itself, if it is maximal."""
        node = self._node(statement)
        while node.parent is not None:
            node = node.parent
        return node.pattern

    def children(self, statement: str | Path | Pattern) -> list[Pattern]:
        """The statements right below one in the tree."""
        return [child.pattern for child in self._node(statement).children]

    def supers(self, statement: str | Path | Pattern) -> list[Pattern]:
        """What a statement covers outside its subtree; of a subtree there, its top alone."""
        node = self._node(statement)
        covered = self._below(node.pattern, tops=False)
        return [
            each.pattern
            for each in covered
            if not (each.parent is node or each.parent in covered) and not _is_below(node, each)
        ]

    # -- inside --

    def _node(
        self, statement: str | Path | Pattern, namespaces: Mapping[str, str] | None = None
    ) -> _Node:
        pattern = _ready(statement, namespaces)
        node = self._nodes.get(pattern.key)
        if node is None:
            raise UnknownSubscription(f"no statement {pattern.text} is here")
        return node

    def _new(self, pattern: Pattern) -> _Node:
        number = self._free.pop() if self._free else len(self._numbered)
        node = self._nodes[pattern.key] = _Node(pattern, number)
        if number == len(self._numbered):
            self._numbered.append(node)
        else:
            self._numbered[number] = node
        if _searched(pattern):
            for place, word in enumerate(self._words(pattern)):
                spine = place == 0
                node.entries.append(self._index.add(number, word, spine, spine and pattern.plain))
        return node

    def _words(self, pattern: Pattern) -> Iterator[list[int]]:
        """The spine first, then the other words that documents of a statement have."""
        yield pattern.codes(self._symbols)
        if not pattern.plain:
            for word in pattern.branches[:_BRANCHES]:
                if word != pattern.spine and len(word) <= LONGEST:
                    yield pattern.codes(self._symbols, word)

    def _settle(self, node: _Node, change: Change) -> None:
        """Put a statement that has no parent below a maximal one, or make it maximal.

        Only the maximal set is searched: it is small, while dozens of other statements may cover
        this one. A maximal statement has no parent, so it is never below this one.
        """
        above = self._above(node.pattern, tops=True, first=True)
        if above:
            self._move(node, above.pop())
            return
        self._set_top(node, top=True, change=change)
        for each in self._below(node.pattern, tops=True):
            self._set_top(each, top=False, change=change)
            self._move(each, node)

    def _set_top(self, node: _Node, *, top: bool, change: Change) -> None:
        node.top = top
        self._tops += 1 if top else -1
        for entry in node.entries:
            self._index.set_top(entry, top)
        gained, lost = (change.added, change.removed) if top else (change.removed, change.added)
        # What comes and goes within one change has not changed.
        if node.pattern in lost:
            lost.remove(node.pattern)
        else:
            gained.append(node.pattern)

    def _move(self, node: _Node, parent: _Node | None) -> None:
        if node.parent is not None:
            node.parent.children.discard(node)
        node.parent = parent
        if parent is not None:
            parent.children.add(node)

    def _drop(self, node: _Node, change: Change) -> None:
        if node.top:
            self._set_top(node, top=False, change=change)
        for entry in node.entries:
            self._index.remove(entry)
        del self._nodes[node.pattern.key]
        self._numbered[node.number] = None
        self._free.append(node.number)
        if node.parent is not None:
            node.parent.children.discard(node)

    def _above(self, pattern: Pattern, *, tops: bool, first: bool = False) -> set[_Node]:
        """Statements that cover one; with `first`, one of them if there is any."""
        found: set[_Node] = set()
        if not _searched(pattern):
            return found
        known = self._nodes.get(pattern.key)
        skip = known.number if known else -1
        for codes in self._words(pattern):
            sure, unsure = self._index.covering(codes, skip, tops, first)
            found.update(self._at(sure))
            for each in self._at(unsure):
                if first and found:
                    break
                if each not in found and pattern_covers(each.pattern, pattern):
                    found.add(each)
            if first and found:
                break
        return found

    def _below(self, pattern: Pattern, *, tops: bool) -> set[_Node]:
        """Statements that one covers."""
        if not _searched(pattern):
            return set()
        known = self._nodes.get(pattern.key)
        skip = known.number if known else -1
        codes = pattern.codes(self._symbols)
        sure, unsure = self._index.covered(codes, pattern.plain, skip, tops)
        found = set(self._at(sure))
        found.update(e for e in set(self._at(unsure)) if pattern_covers(pattern, e.pattern))
        return found

    def _at(self, numbers: Iterable[int]) -> Iterator[_Node]:
        for number in numbers:
            node = self._numbered[number]
            if node is not None:
                yield node


def _searched(pattern: Pattern) -> bool:
    """Whether covers of a statement are looked for; of others, equal ones alone cover it."""
    return not pattern.opaque and len(pattern.spine) <= LONGEST


def _is_below(node: _Node, above: _Node) -> bool:
    each: _Node | None = node
    while each is not None:
        if each is above:
            return True
        each = each.parent
    return False


def _ready(statement: str | Path | Pattern, namespaces: Mapping[str, str] | None = None) -> Pattern:
    return statement if isinstance(statement, Pattern) else Pattern(statement, namespaces)
