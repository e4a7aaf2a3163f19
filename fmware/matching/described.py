"""Local nodes as results tell them: name, label, path, source, and what else is wanted.

A description is read from the record of the node. Nodes of one record are mostly asked for
together, so a record is looked up once for a batch; and corpora have favourites, so descriptions
are kept, those that were used last.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from fmware.matching.results import LocalNode
from fmware.statements import Returns
from labeling import ATTRIBUTE, ELEMENT, TEXT

if TYPE_CHECKING:
    from index import Index
    from labeling import NodeTable

__all__ = ["Descriptions"]

ROOM: Final = 16 << 20
"""Bytes of descriptions that are kept, about."""
EACH: Final = 400
"""Bytes of a description beside its value, its fragment and its path."""
SMALL: Final = 512
"""Rows up to which a loop over a record is faster than numpy is to begin."""
PAGES: Final = 4096
"""Records that are held at once."""

Told = dict[int, LocalNode]
"""Descriptions by the label at which their node begins, which no other node ever has."""


class Descriptions:
    """What is kept of the local nodes of one generation of an index. Threads may share it.

    It is in two halves: a young one, and an old one, which goes when the young one is full and
    takes its place. What is used again moves to the young one.
    """

    def __init__(self, index: Index, room: int = ROOM) -> None:
        self._index = index
        self._half = room // 2
        self.young: dict[frozenset[Returns], Told] = {}
        self._old: dict[frozenset[Returns], Told] = {}
        self._size = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """How many descriptions are kept."""
        halves = (self.young, self._old)
        return sum(len(told) for half in halves for told in half.values())

    def reader(self) -> Describing:
        """Describes the nodes of a batch."""
        return Describing(self, self._index)

    def again(self, start: int, wanted: frozenset[Returns]) -> LocalNode | None:
        """What the old half has of a node, if anything; it is among the young ones then."""
        old = self._old.get(wanted)
        node = None if old is None else old.pop(start, None)
        if node is not None:
            self.keep(node, wanted)
        return node

    def keep(self, node: LocalNode, wanted: frozenset[Returns]) -> None:
        """Keep what is said of a node."""
        size = EACH + len(node.path) + len(node.value or "") + len(node.fragment or b"")
        if size > self._half:
            return
        with self._lock:
            self.young.setdefault(wanted, {})[node.start] = node
            self._size += size
            if self._size > self._half:
                self.young, self._old = {}, self.young
                self._size = 0


class Describing:
    """Describes the local nodes of one batch, whose records it holds. For one thread."""

    def __init__(self, descriptions: Descriptions, index: Index) -> None:
        self._kept = descriptions
        self._index = index
        self._roots: list[int] = []
        self._pages: list[_Page | _LongPage] = []

    def of(self, segment: int, start: int, wanted: frozenset[Returns]) -> LocalNode:
        """The node that begins at `start`, with its value and its fragment if they are wanted."""
        young = self._kept.young.get(wanted)
        node = young.get(start) if young is not None else None
        if node is None:
            node = self._kept.again(start, wanted)
            if node is None:
                node = self._described(segment, start, wanted)
                self._kept.keep(node, wanted)
        return node

    def _described(self, segment: int, start: int, wanted: frozenset[Returns]) -> LocalNode:
        page = self._page(segment, start)
        table = page.table
        row = page.row(start)
        return LocalNode(
            ("@" if table.kind[row] == ATTRIBUTE else "") + table.name(row),
            start,
            int(table.end[row]),
            int(table.level[row]),
            page.path(row),
            table.source,
            page.value(row) if Returns.VALUE in wanted else None,
            self._index.segments[segment].fragment(start) if Returns.FRAGMENT in wanted else None,
        )

    def _page(self, segment: int, start: int) -> _Page | _LongPage:
        """The record that holds a node; labels say whether it is one of those at hand."""
        at = bisect_right(self._roots, start)
        if at and start <= self._pages[at - 1].end:
            return self._pages[at - 1]
        table = self._index.segments[segment].table(start)
        page = _Page(table) if len(table) <= SMALL else _LongPage(table)
        if len(self._pages) >= PAGES:
            self._roots.clear()
            self._pages.clear()
            at = 0
        self._roots.insert(at, int(table.start[0]))
        self._pages.insert(at, page)
        return page


class _Page:
    """A record, to be read row by row."""

    __slots__ = ("_kind", "_parent", "_paths", "_start", "_tag", "end", "table")

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.end = int(table.end[0])
        self._kind: list[int] = table.kind.tolist()
        self._start: list[int] = table.start.tolist()
        self._parent: list[int] = table.parent.tolist()
        self._tag: list[int] = table.tag.tolist()
        self._paths: dict[int, str] = {-1: ""}

    def row(self, start: int) -> int:
        return bisect_left(self._start, start)

    def path(self, row: int) -> str:
        """As `NodeTable.path` has it; what is above several nodes is put together once."""
        paths, way = self._paths, []
        while row not in paths:
            way.append(row)
            row = self._parent[row]
        path = paths[row]
        for at in reversed(way):
            path = paths[at] = f"{path}/{self._step(at)}"
        return path

    def _step(self, row: int) -> str:
        kind, parent, tag = self._kind[row], self._parent[row], self._tag[row]
        name = "text()" if kind == TEXT else self.table.vocabulary.name(tag)
        if kind == ATTRIBUTE:
            return f"@{name}"
        position = 1
        # A root has no siblings.
        for at in range(parent + 1, row) if parent >= 0 else ():
            if self._parent[at] == parent and self._tag[at] == tag and self._kind[at] == kind:
                position += 1
        return f"{name}[{position}]"

    def value(self, row: int) -> str:
        """The string-value: of an element, all the text below it."""
        table, kind = self.table, self._kind
        if kind[row] != ELEMENT:
            return table.value(row)
        rows = range(row + 1, row + table.size(row))
        return b"".join([table.value_at(at) for at in rows if kind[at] == TEXT]).decode()


class _LongPage:
    """A record of many rows, which numpy looks through."""

    __slots__ = ("end", "table")

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self.end = int(table.end[0])

    def row(self, start: int) -> int:
        return int(self.table.start.searchsorted(start))

    def path(self, row: int) -> str:
        return self.table.path(row)

    def value(self, row: int) -> str:
        return self.table.string_value(row)
