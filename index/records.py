"""The record store: source bytes of records, and the nodes in them by label."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import zstandard

from fmware.index import format as form
from fmware.index.cache import Cache
from fmware.index.errors import NoSuchNode
from fmware.index.labels import Node
from fmware.index.lists import open_records
from fmware.labeling import CHARACTER_ENTITIES, ELEMENT, TEXT, Limits, Reader, Vocabulary
from fmware.labeling.runs import Tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from fmware.index._kernel import Blocks
    from fmware.index.environment import Environment
    from fmware.index.manifest import RecordsPart
    from fmware.labeling import NodeTable
    from fmware.labeling.runs import Context, Source

    Int64s = npt.NDArray[np.int64]

__all__ = ["Records", "StoredRecord"]

ROOM = 64 << 20
"""Bytes of decompressed blocks, and of tables of records, that are kept for an index, unless its
opener says otherwise."""
ROW_BYTES = 31
"""Bytes of a row of a table in all its columns, its value apart."""

# What was labelled is to be read again, whatever limits it was labelled under.
LIMITS = Limits(
    bytes=2**31 - 16,
    depth=2048,
    nodes=2**30,
    attribute=10_000_000,
    text=2**30,
    names=2**22,
    name_bytes=2**30,
)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it was in its source; (start, end, level) label its root."""

    start: int
    end: int
    level: int
    data: bytes
    context: Context
    source: str | None


class _Block(NamedTuple):
    """A block of records, decompressed; nothing of it lies in the file."""

    start: Int64s
    end: Int64s
    level: Int64s
    offset: Int64s
    context: int
    data: bytes


class Records:
    """The records of a segment; safe to share between threads.

    `cache` holds what was read last. Segments may share it: `name` tells them apart.
    """

    def __init__(
        self,
        parts: Sequence[RecordsPart],
        environments: Sequence[Environment],
        contexts: Mapping[int, Context],
        sources: Sequence[Source],
        entities: Mapping[str, str] = CHARACTER_ENTITIES,
        *,
        name: str = "",
        cache: Cache | None = None,
    ) -> None:
        order = sorted(range(len(parts)), key=lambda at: parts[at].low)
        self._parts = [parts[at] for at in order]
        self._lows = [part.low for part in self._parts]
        self._lists = [open_records(environments[at]) for at in order]
        self._contexts = contexts
        self._sources = sorted(sources, key=lambda source: source.base)
        self._bases = [source.base for source in self._sources]
        self._reader = Reader(Vocabulary(), limits=LIMITS, entities=entities)
        self._name = name
        self._cache = cache or Cache(ROOM)
        # lxml may be asked for one tree by several threads, but not at the same time.
        self._trees = threading.Lock()

    def record(self, start: int) -> StoredRecord:
        """The record that holds the node which begins at `start`."""
        at = bisect_right(self._lows, start) - 1
        if at < 0 or start >= self._parts[at].high:
            raise NoSuchNode(start, "record")
        number = self._lists[at].block_at(start)
        if number < 0:
            raise NoSuchNode(start, "record")
        block = self._cache.get(
            ("block", self._name, at, number), lambda: self._read(self._lists[at], number)
        )
        row = int(block.start.searchsorted(start, "right")) - 1
        if row < 0 or start > block.end[row]:
            raise NoSuchNode(start, "record")
        begin, end = block.offset[row : row + 2].tolist()
        return StoredRecord(
            int(block.start[row]),
            int(block.end[row]),
            int(block.level[row]),
            block.data[begin:end],
            self._context(self._lists[at], number, block.context),
            self._source(start),
        )

    def between(self, low: int, high: int) -> Iterator[npt.NDArray[np.int64]]:
        """(start, end) of the records whose labels begin in [low, high), block by block."""
        for blocks in self._lists:
            for number in range(max(blocks.block_at(max(low, 0)), 0), blocks.count):
                columns = form.RECORDS_SHAPE.unpack(memoryview(blocks.view(number))).columns
                start, end = columns["start"], columns["end"]
                inside = (start >= low) & (start < high)
                yield np.stack((start[inside], end[inside]), axis=1)
                if start[-1] >= high:
                    break

    def _read(self, blocks: Blocks, number: int) -> tuple[_Block, int]:
        block = form.RECORDS_SHAPE.unpack(memoryview(blocks.view(number)))
        size = int(block.columns["offset"][-1])
        try:
            data = zstandard.ZstdDecompressor().decompress(block.tail, max_output_size=size)
        except zstandard.ZstdError as error:
            raise blocks.source.corrupt(number, f"cannot be decompressed: {error}") from None
        if len(data) != size:
            raise blocks.source.corrupt(number, "does not have the bytes it should have")
        # Copied: what is cached must not keep the file open.
        start, end, level, offset = (
            block.columns[name].astype(np.int64) for name in ("start", "end", "level", "offset")
        )
        read = _Block(start, end, level, offset, block.head[0], data)
        return read, size + 8 * (4 * len(start) + 1)

    def _context(self, blocks: Blocks, number: int, context: int) -> Context:
        found = self._contexts.get(context)
        if found is None:
            raise blocks.source.corrupt(number, f"names context {context}, which is not there")
        return found

    def _source(self, start: int) -> str | None:
        at = bisect_right(self._bases, start) - 1
        if at < 0 or start >= self._bases[at] + self._sources[at].size:
            return None
        return self._sources[at].name

    # --- nodes of a record ------------------------------------------------------------------

    def table(self, start: int) -> NodeTable:
        """The nodes of the record that holds a node, with the labels they have in the index."""
        record = self.record(start)
        return self._cache.get(("table", self._name, record.start), lambda: self._sized(record))

    def _sized(self, record: StoredRecord) -> tuple[NodeTable, int]:
        """The table of a record, and the bytes it takes: columns, values, and the document."""
        table = self._parse(record)
        size = ROW_BYTES * len(table) + len(table.value_bytes) + len(record.data)
        return table, size

    def _parse(self, record: StoredRecord) -> NodeTable:
        context = record.context
        if context.document:
            return self._reader.read(record.data, base=record.start, source=record.source)
        return self._reader.read_record(
            record.data,
            declaration=context.declaration,
            doctype=context.doctype,
            namespaces=context.namespaces,
            base=record.start,
            level=record.level,
            source=record.source,
        )

    def _place(self, start: int) -> tuple[NodeTable, int]:
        table = self.table(start)
        row = int(np.searchsorted(table.start, start))
        if row == len(table) or table.start[row] != start:
            raise NoSuchNode(start)
        return table, row

    def fragment(self, start: int) -> bytes:
        """The XML of an element, or the value of an attribute or a text node, in UTF-8."""
        table, row = self._place(start)
        with self._trees:
            return table.fragment(row)

    def value(self, start: int) -> str:
        """XPath's string-value of a node."""
        table, row = self._place(start)
        return table.string_value(row)

    def path(self, start: int) -> str:
        """An XPath, from the record's root, that selects a node alone."""
        table, row = self._place(start)
        return table.path(row)

    def ancestors_of(self, start: int) -> list[Node]:
        """The ancestors of a node within its record, the root first."""
        table, row = self._place(start)
        found: list[Node] = []
        while (row := int(table.parent[row])) >= 0:
            found.append(_node(table, row))
        return found[::-1]

    def node(self, start: int) -> Node:
        """The node itself; text has no tag, so it is none."""
        table, row = self._place(start)
        if table.kind[row] == TEXT:
            raise NoSuchNode(start)
        return _node(table, row)


def _node(table: NodeTable, row: int) -> Node:
    tag = Tag(int(table.kind[row] != ELEMENT), table.name(row))
    return Node(tag, int(table.start[row]), int(table.end[row]), int(table.level[row]))
