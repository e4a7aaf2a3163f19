"""The labeller: tables of records in, a run out.

It drops text, which is indexed only as the value of its element, finds the place of every node in
the trie of each scheme, collects values, and keys by the identity rules, and packs the source bytes
of records into blocks. What it holds grows with the run, so callers `finish` one and begin the next
after some tens of megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import zstandard

from fmware.labeling._values import Sorter
from fmware.labeling.arrow import column
from fmware.labeling.identity import keys_of
from fmware.labeling.runs import Context, Keys, MemoryRun, Nodes, RecordBlock, Source, Tag
from fmware.labeling.ses import Forest
from fmware.labeling.table import NodeTable
from fmware.labeling.trie import Trie
from fmware.labeling.values import Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fmware.labeling._kernel import Vocabulary
    from fmware.labeling.identity import IdentityRule
    from fmware.labeling.ses import Scheme

    Ints = npt.NDArray[np.int64]

__all__ = ["BLOCK_BYTES", "Labeller"]

BLOCK_BYTES = 1 << 16
"""Source bytes that are compressed together: enough to compress well, little to read again."""
FEW_ROWS = 16_384
"""Tables with fewer rows wait for others to be labelled with."""
MANY_TABLES = 1024
LEVEL = 1
"""zstd's level: others take more time than they save space here."""


class _Part(NamedTuple):
    """Whole records, as they were added."""

    table: NodeTable
    firsts: Ints
    data: bytes
    sizes: Ints


@dataclass(slots=True)
class _Columns:
    """The nodes so far, a list of arrays a column."""

    code: list[npt.NDArray[np.int32]] = field(default_factory=list)
    start: list[Ints] = field(default_factory=list)
    end: list[Ints] = field(default_factory=list)
    level: list[npt.NDArray[np.int16]] = field(default_factory=list)


class Labeller:
    """Takes tables in the order of their labels."""

    def __init__(
        self,
        schemes: Sequence[Scheme],
        vocabulary: Vocabulary,
        rules: Sequence[IdentityRule] = (),
    ) -> None:
        self._schemes = tuple(schemes)
        self._vocabulary = vocabulary
        self._rules = tuple(rules)
        self.keys: dict[str, int] = {str(rule): 0 for rule in self._rules}
        """How many keys each identity rule has given, in all runs."""
        self._zstd = zstandard.ZstdCompressor(level=LEVEL)
        self._begin()

    def _begin(self) -> None:
        self.records = 0
        self.nodes = 0
        self.bytes = 0
        self._low = self._high = 0
        self._pending: list[_Part] = []
        self._context = Context()
        self._rows = 0
        self._columns = _Columns()
        self._tries = [Trie() for _ in self._schemes]
        self._ids: list[list[npt.NDArray[np.uint32]]] = [[] for _ in self._schemes]
        self._values: list[Values] = []
        self._keys: dict[int, tuple[list[Ints], list[pa.StringArray]]] = {}
        self._blocks: list[RecordBlock] = []
        self._sources: dict[Source, None] = {}

    def add(
        self,
        table: NodeTable,
        firsts: Ints,
        source: Source,
        data: bytes,
        sizes: Ints,
        context: Context,
    ) -> None:
        """Whole records: their rows begin at `firsts`, their source bytes follow each other in
        `data`."""
        if self._pending and (context != self._context or len(self._pending) == MANY_TABLES):
            self._drain()
        self._pending.append(_Part(table, firsts, data, sizes))
        self._context = context
        self._sources[source] = None
        self.bytes += len(data)
        self.records += len(firsts)
        self._rows += len(table)
        if self._rows >= FEW_ROWS:
            self._drain()

    def _drain(self) -> None:
        """Label what is pending; many small tables are joined, for each costs as much as many."""
        if not self._pending:
            return
        if len(self._pending) == 1:
            (part,) = self._pending
        else:
            part = _joined_parts(self._pending)
        self._pending.clear()
        self._rows = 0
        self._label(part.table, part.firsts, part.data, part.sizes)

    def _label(self, table: NodeTable, firsts: Ints, data: bytes, sizes: Ints) -> None:
        self._collect_keys(table)
        forest = Forest.of(table)
        kept = forest.rows
        assert kept is not None
        self._columns.code.append(forest.tag)
        self._columns.start.append(table.start.take(kept))
        self._columns.end.append(table.end.take(kept))
        self._columns.level.append(table.level.take(kept))
        self._values.append(Values.of(table) if table.has_values else Values.none(len(kept)))
        for scheme, trie, ids in zip(self._schemes, self._tries, self._ids, strict=True):
            ids.append(trie.extend(forest, scheme.chain(forest)))
        self._pack(table, firsts, data, sizes, self._context)
        if not self.nodes:
            self._low = int(table.start[0])
        self._high = int(table.end[firsts[-1]]) + 1
        self.nodes += len(kept)

    def _collect_keys(self, table: NodeTable) -> None:
        for rows, keys in keys_of(table, self._rules, self.keys):
            tags = table.tag[rows]
            order = np.argsort(tags, kind="stable")
            found, begins = np.unique(tags[order], return_index=True)
            sorted_keys, labels = keys.take(column(order)), table.start[rows[order]]
            bounds = [*begins.tolist(), len(order)]
            for tag, begin, end in zip(found.tolist(), bounds, bounds[1:], strict=False):
                starts, held = self._keys.setdefault(tag * 2, ([], []))
                starts.append(labels[begin:end])
                held.append(sorted_keys.slice(begin, end - begin))

    def _pack(
        self, table: NodeTable, firsts: Ints, data: bytes, sizes: Ints, context: Context
    ) -> None:
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        at = 0
        while at < len(sizes):
            last = int(np.searchsorted(offsets, offsets[at] + BLOCK_BYTES, "right")) - 1
            last = max(last, at + 1)
            rows = firsts[at:last]
            begin, end = int(offsets[at]), int(offsets[last])
            self._blocks.append(
                RecordBlock(
                    table.start[rows],
                    table.end[rows],
                    table.level[rows],
                    offsets[at : last + 1] - begin,
                    context,
                    self._zstd.compress(memoryview(data)[begin:end]),
                )
            )
            at = last

    def finish(self) -> MemoryRun:
        """The run of what has been added; the labeller is empty again."""
        self._drain()
        columns = self._columns
        code = _joined(columns.code, np.int32)
        codes = np.flatnonzero(np.bincount(code))
        names = [Tag(int(each) & 1, self._vocabulary.name(int(each) >> 1)) for each in codes]
        tags = sorted(names)
        number = np.zeros(int(codes[-1]) + 1 if len(codes) else 1, np.int32)
        place = {tag: i for i, tag in enumerate(tags)}
        number[codes] = [place[tag] for tag in names]
        by = Sorter(number.take(code), len(tags))
        tries = {}
        ranks = {}
        for scheme, trie, ids in zip(self._schemes, self._tries, self._ids, strict=True):
            tries[scheme.name], rank = trie.ordered(number, scheme.extra_is_tag)
            ranks[scheme.name] = by.column([rank.take(each) for each in ids], rank.dtype)
        start = by.column(columns.start, np.int64)
        end = by.column(columns.end, np.int64)
        level = by.column(columns.level, np.int16)
        values = Values.sorted(self._values, by)
        bounds = by.bounds
        postings = [
            Nodes(start[a:b], end[a:b], level[a:b], {name: r[a:b] for name, r in ranks.items()})
            for a, b in pairwise(bounds.tolist())
        ]
        run = MemoryRun(
            {scheme.name: scheme.direction for scheme in self._schemes},
            {scheme.name: scheme.extra_is_tag for scheme in self._schemes},
            tags,
            self._low,
            self._high,
            postings,
            tries,
            {
                int(number[code]): _keys(starts, keys, postings[int(number[code])])
                for code, (starts, keys) in self._keys.items()
            },
            self._blocks,
            list(self._sources),
            [values.slice(a, b) for a, b in pairwise(bounds.tolist())],
        )
        self._begin()
        return run


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _joined_parts(parts: list[_Part]) -> _Part:
    rows = np.cumsum([0, *(len(part.table) for part in parts)])
    return _Part(
        NodeTable.joined([part.table for part in parts]),
        np.concatenate([part.firsts + first for part, first in zip(parts, rows, strict=False)]),
        b"".join(part.data for part in parts),
        np.concatenate([part.sizes for part in parts]),
    )


def _keys(starts: list[Ints], keys: list[pa.StringArray], nodes: Nodes) -> Keys:
    row = np.searchsorted(nodes.start, np.concatenate(starts)).astype(np.uint32)
    joined = pa.concat_arrays([each.cast(pa.large_utf8()) for each in keys])
    _, offsets, data = joined.buffers()
    span = np.frombuffer(offsets, np.int64)[: len(joined) + 1]
    return Keys(span, np.frombuffer(data or b"", np.uint8)[: span[-1]], row)
