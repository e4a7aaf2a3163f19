"""All lists of one tag: nodes by AD start, by SES label, the labels, the values, and the keys.

Ranks move monotonically when tries are merged, so nothing is sorted but postings by label, and
that by counting. Of a tag with very many nodes only one run is in memory at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.index import _write
from fmware.index import format as form
from fmware.index._kernel import hash_keys
from fmware.index.blocks import AdWriter, ColumnWriter, IdentityWriter, ValuesWriter
from fmware.index.errors import BadRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.part import PartWriter
    from fmware.labeling.runs import Keys, Nodes, Run
    from fmware.labeling.values import Values

    Longs = npt.NDArray[np.int64]
    Ints = npt.NDArray[np.uint32]

__all__ = ["MergedTrie", "Piece", "TagBuilt", "TagLists", "array_file", "grouped", "load_array"]

BULK = 4 << 20
"""A tag with more nodes is read run by run, again for each list, instead of being held."""

KEY_BYTES = 256 << 20
"""Keys of a tag that are sorted at once."""


def array_file(folder: Path, scheme: str, what: str) -> Path:
    """Where a piece of work leaves an array for another."""
    return folder / f"{scheme}.{what}.npy"


def load_array(folder: Path, scheme: str, what: str) -> npt.NDArray[Any]:
    """An array that was left, mapped from its file."""
    array: npt.NDArray[Any] = np.load(array_file(folder, scheme, what), mmap_mode="r")
    return array


def grouped(tag: Ints, tags: int) -> tuple[Ints, Longs, Ints]:
    """Ranks grouped by tag, where each tag's begin, and each rank's row among its tag's."""
    # numpy sorts stably by counting if the numbers are short.
    order = np.argsort(tag.astype(np.uint16) if tags <= 1 << 16 else tag, kind="stable")
    begin = np.zeros(tags + 1, np.int64)
    np.cumsum(np.bincount(tag, minlength=tags), out=begin[1:])
    rows = np.empty(len(tag), np.uint32)
    rows[order] = np.arange(len(tag)) - begin[tag[order]]
    return order.astype(np.uint32), begin, rows


@dataclass(frozen=True, slots=True)
class TagBuilt:
    """What became of a tag."""

    nodes: int
    depth: int
    keys: int


class MergedTrie:
    """What `merge_scheme` left of a scheme."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self._folder = folder
        self.scheme = scheme
        self.order: Ints = load_array(folder, scheme, "order")
        self.begin: Longs = load_array(folder, scheme, "begin")
        self._size: Ints = load_array(folder, scheme, "size")
        self._rows: dict[int, Ints] = {}

    def labels(self, tag: int) -> tuple[Ints, Ints]:
        """The labels of a tag: (rank, last)."""
        rank = np.array(self.order[self.begin[tag] : self.begin[tag + 1]])
        return rank, rank + self._size[rank] - np.uint32(1)

    def rows(self, run: int) -> Ints:
        """A run's ranks to rows among the labels of the rank's tag."""
        if run not in self._rows:
            self._rows[run] = load_array(self._folder, self.scheme, f"rows{run}")
        return self._rows[run]


@dataclass(frozen=True, slots=True)
class Piece:
    """The nodes of a tag in one run, and how many nodes of the tag the runs before it have."""

    number: int
    run: Run
    tag: int
    count: int
    base: int

    def nodes(self) -> Nodes:
        found = self.run.nodes(self.tag)
        if len(found) != self.count:
            raise BadRun(f"the run at {self.run.low} has {len(found)} nodes, not {self.count}")
        return found

    def values(self) -> Values:
        found = self.run.values(self.tag)
        if len(found) != self.count or len(found.offsets) != self.count + 1:
            raise BadRun(f"the run at {self.run.low} has {len(found)} values, not {self.count}")
        return found


@dataclass(slots=True)
class _Chunk:
    """The nodes of a tag in one run, as the lists want them."""

    piece: Piece
    start: Longs
    end: Longs
    length: Ints
    level: npt.NDArray[np.int16]
    labels: list[Ints]
    nests: bool


class TagLists:
    """Writes all lists of one tag."""

    def __init__(
        self, part: PartWriter, tag: int, pieces: Sequence[Piece], tries: Sequence[MergedTrie]
    ) -> None:
        self._part = part
        self._tag = tag
        self._pieces = pieces
        self._tries = tries
        self._labels = [trie.labels(tag) for trie in tries]
        self.counts: list[Longs] = []
        self._nodes = sum(piece.count for piece in pieces)
        if self._nodes >= form.NONE:
            raise BadRun("a tag with 2^32 nodes or more; build the index from fewer runs a segment")
        self._held: list[_Chunk] = []

    def build(self) -> TagBuilt:
        tallies = [np.zeros(len(rank), np.uint64) for rank, _ in self._labels]
        nests = False
        for chunk in self._read(tallies):
            nests = nests or chunk.nests
            if self._nodes <= BULK:
                self._held.append(chunk)
        self.counts = [tally.astype(np.int64) for tally in tallies]
        depth = self._write_ad(nests=nests)
        for place in range(len(self._tries)):
            self._write_labels(place)
            self._write_ses(place)
        self._write_values()
        return TagBuilt(self._nodes, depth, self._write_identity())

    def _chunks(self) -> Iterator[_Chunk]:
        if self._held:
            return iter(self._held)
        return self._read([np.zeros(len(rank), np.uint64) for rank, _ in self._labels])

    def _read(self, tallies: Sequence[npt.NDArray[np.uint64]]) -> Iterator[_Chunk]:
        for piece in self._pieces:
            try:
                yield self._chunk(piece, tallies)
            except ValueError as error:
                name = piece.run.tags[piece.tag]
                raise BadRun(f"the run at {piece.run.low}, {name}: {error}") from error

    def _chunk(self, piece: Piece, tallies: Sequence[npt.NDArray[np.uint64]]) -> _Chunk:
        nodes = piece.nodes()
        start = np.ascontiguousarray(nodes.start, np.int64)
        end = np.ascontiguousarray(nodes.end, np.int64)
        level = np.ascontiguousarray(nodes.level, np.int16)
        length = np.empty(len(start), np.uint32)
        nests = _write.lengths(start, end, piece.run.low, piece.run.high, length)
        labels = []
        for trie, tally in zip(self._tries, tallies, strict=True):
            rank = np.ascontiguousarray(nodes.ranks[trie.scheme], np.uint32)
            label = np.empty(len(start), np.uint32)
            _write.translate(rank, trie.rows(piece.number), label, tally)
            labels.append(label)
        return _Chunk(piece, start, end, length, level, labels, nests)

    def _write_ad(self, *, nests: bool) -> int:
        writer = AdWriter(self._part, self._tag, schemes=len(self._tries), up=nests)
        depth = 1
        for chunk in self._chunks():
            columns: list[npt.NDArray[Any]] = [chunk.start, chunk.length, chunk.level]
            columns += chunk.labels
            if nests:
                up = np.empty(len(chunk.start), np.uint32)
                deep = _write.enclosing(chunk.start, chunk.end, chunk.piece.base, up)
                depth = max(depth, deep)
                columns.append(up)
            writer.write(*columns)
        writer.close()
        return depth

    def _write_labels(self, place: int) -> None:
        rank, last = self._labels[place]
        count = self.counts[place]
        up = np.empty(len(rank), np.uint32)
        _write.enclosing(rank.astype(np.int64), last.astype(np.int64), 0, up)
        begin = np.cumsum(count) - count
        writer = ColumnWriter(
            self._part,
            form.labels(self._tries[place].scheme),
            self._tag,
            shape=form.LABEL_SHAPE,
            limit=form.LABEL_ROWS,
            sorted_by=0,
        )
        writer.write(rank, last, up, count, begin)
        writer.close()

    def _write_ses(self, place: int) -> None:
        writer = ColumnWriter(
            self._part,
            form.ses(self._tries[place].scheme),
            self._tag,
            shape=form.SES_SHAPE,
            limit=form.SES_ROWS,
        )
        count = self.counts[place]
        for low, high in _ranges(count, BULK):
            if count[low:high].sum() > BULK:
                self._append_label(writer, place, low)
            else:
                writer.write(*self._sorted(place, low, high))
        writer.close()

    def _sorted(
        self, place: int, low: int, high: int
    ) -> tuple[Longs, Ints, npt.NDArray[np.uint16]]:
        """The nodes whose label is in [low, high), by (label, start)."""
        count = self.counts[place][low:high]
        cursor = np.cumsum(count) - count
        rows = int(count.sum())
        start = np.empty(rows, np.int64)
        length, level = np.empty(rows, np.uint32), np.empty(rows, np.uint16)
        for chunk in self._chunks():
            _write.scatter(
                chunk.labels[place],
                low,
                high,
                cursor,
                chunk.start,
                chunk.length,
                chunk.level,
                start,
                length,
                level,
            )
        return start, length, level

    def _append_label(self, writer: ColumnWriter, place: int, label: int) -> None:
        """A label that is too large to be held: runs are in order already."""
        for chunk in self._chunks():
            own = chunk.labels[place] == label
            writer.write(chunk.start[own], chunk.length[own], chunk.level[own].astype(np.uint16))

    def _write_values(self) -> None:
        writer = ValuesWriter(self._part, self._tag)
        for piece in self._pieces:
            writer.write(piece.values())
        writer.close()

    def _write_identity(self) -> int:
        found = [(piece, piece.run.keys(piece.tag)) for piece in self._pieces]
        keyed = [(piece, keys) for piece, keys in found if keys is not None and len(keys)]
        if not keyed:
            return 0
        writer = IdentityWriter(self._part, self._tag)
        turns = 1 + sum(int(keys.offsets[-1]) for _, keys in keyed) // KEY_BYTES
        # Hashes are spread evenly, so stretches of them hold about the same number of keys.
        bounds = [(1 << 64) * turn // turns for turn in range(turns + 1)]
        for low, high in pairwise(bounds):
            writer.write(*_sorted_keys(keyed, low, high - 1))
        return writer.close()


def _ranges(count: Longs, most: int) -> Iterator[tuple[int, int]]:
    """Stretches of labels with at most so many nodes; one with more stands alone."""
    ends = np.cumsum(count)
    low = 0
    while low < len(count):
        before = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, before + most, side="right")), low + 1)
        yield low, high
        low = high


def _sorted_keys(
    keyed: Sequence[tuple[Piece, Keys]], low: int, high: int
) -> tuple[npt.NDArray[np.uint64], Ints, Longs, npt.NDArray[np.uint8]]:
    """The keys whose hash is in [low, high], by (hash, key, row): hashes, rows, offsets, bytes."""
    hashes, rows, sizes, texts = [], [], [], []
    for piece, keys in keyed:
        if len(keys) and int(keys.row.max()) >= piece.count:
            raise BadRun(f"the run at {piece.run.low} has keys of rows that are not there")
        own = hash_keys(keys.offsets, keys.data)
        size, text = np.diff(keys.offsets), keys.data[keys.offsets[0] : keys.offsets[-1]]
        row = keys.row + np.uint32(piece.base)
        if (low, high) != (0, (1 << 64) - 1):
            inside = (own >= np.uint64(low)) & (own <= np.uint64(high))
            text = text[np.repeat(inside, size)]
            own, row, size = own[inside], row[inside], size[inside]
        hashes.append(own)
        rows.append(row)
        sizes.append(size)
        texts.append(text)
    return _in_order(
        np.concatenate(hashes), np.concatenate(rows), np.concatenate(sizes), np.concatenate(texts)
    )


def _in_order(
    hashes: npt.NDArray[np.uint64], rows: Ints, sizes: Longs, text: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint64], Ints, Longs, npt.NDArray[np.uint8]]:
    ascending = bool((rows[1:] >= rows[:-1]).all())
    order = np.argsort(hashes, kind="stable") if ascending else np.lexsort((rows, hashes))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    placed, moved = np.empty(len(offsets), np.int64), np.empty(len(text), np.uint8)
    _write.gather_keys(offsets, text, order, placed, moved)
    if _write.collides(hashes[order], placed, moved):
        # Different keys of one hash: once in a very long while.
        data = text.tobytes()
        by_key = sorted(
            order.tolist(), key=lambda i: (hashes[i], data[offsets[i] : offsets[i + 1]], rows[i])
        )
        order = np.array(by_key, np.int64)
        _write.gather_keys(offsets, text, order, placed, moved)
    return hashes[order], rows[order], placed, moved
