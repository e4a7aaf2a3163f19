"""A segment read back from end to end: for merging it with others, and for checking it.

`StoredLists` gives the lists of one file, each block checked against its directory. A
`StoredSegment` is a run: what labelling made of some records, less those that were removed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from fmware.index import format as form
from fmware.index.errors import CorruptIndex
from fmware.index.pages import Pages
from fmware.index.part import tree_checksum
from fmware.labeling.runs import Keys, Nodes, RecordBlock
from fmware.labeling.trie import TrieColumns
from fmware.labeling.values import Values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.manifest import SchemeEntry, SegmentAbout
    from fmware.index.part import PartFile
    from fmware.labeling.runs import Context, Source, Tag
    from fmware.labeling.ses import Direction

    Array = npt.NDArray[Any]

__all__ = ["StoredLists", "StoredSegment", "decompressed", "stretches", "unpacked"]


class StoredLists:
    """The lists of one file. The tree's pages are checked at once, lists as they are read."""

    def __init__(self, path: Path, about: PartFile) -> None:
        self.path = path
        try:
            if path.stat().st_size != about.bytes:
                raise CorruptIndex(str(path), f"is not {about.bytes:,} bytes long, as it was")
            self._pages = Pages(path)
        except FileNotFoundError:
            raise CorruptIndex(str(path), "is missing") from None
        except ValueError as error:
            raise self._corrupt(error) from None
        if tree_checksum(self._pages.data, about.page, about.tree) != about.tree_crc:
            raise CorruptIndex(str(path), "the checksum of its tree does not hold")

    def close(self) -> None:
        self._pages.close()

    def directory(self, database: str, number: int) -> form.Directory | None:
        """The directory of a list; None where there is no such list."""
        try:
            value = self._pages.get(database, form.directory_key(number))
            return None if value is None else form.Directory.unpack(value)
        except ValueError as error:
            raise self._corrupt(error) from None

    def blocks(
        self, database: str, number: int, shape: form.Shape | None = None, first: int = 0
    ) -> Iterator[form.Block]:
        """The blocks of a list in order, from a block on; without a shape, those of `ad`."""
        directory = self.directory(database, number)
        if directory is None or first >= directory.blocks:
            return
        items = self._pages.items(database, form.block_key(number, first))
        for block in range(first, directory.blocks):
            where = f"{database} {number}, block {block}"
            try:
                key, value = next(items, (b"", memoryview(b"")))
                if key != form.block_key(number, block):
                    raise ValueError("is missing")
                if zlib.crc32(value) != directory.crc[block]:
                    raise ValueError("its checksum does not hold")
                yield (shape or form.ad_shape_of(value)).unpack(value)
            except ValueError as error:
                raise CorruptIndex(str(self.path), f"{where}: {error}") from None

    def lines(self, database: str) -> list[str]:
        """A list of lines of text."""
        found: list[str] = []
        for block in self.blocks(database, 0, form.LINES_SHAPE):
            found += bytes(block.tail).decode().split("\n")
        return found

    def _corrupt(self, error: ValueError) -> CorruptIndex:
        return CorruptIndex(str(self.path), str(error))


@dataclass
class StoredSegment:
    """The records of a segment whose labels lie in [low, high), less what was removed.

    `removed` has rows of (start, end), sorted. Its tries are the segment's, so they may have
    nodes that nothing refers to any more: `prunes` says so. It can be pickled; its files are
    opened where it is used.
    """

    folder: Path
    about: SegmentAbout
    entries: Mapping[str, SchemeEntry]
    removed: npt.NDArray[np.int64]
    low: int
    high: int

    def __post_init__(self) -> None:
        self._lists: dict[str, StoredLists] = {}
        self._counts: Sequence[int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lists": {}}

    def close(self) -> None:
        for each in self._lists.values():
            each.close()
        self._lists.clear()

    @property
    def prunes(self) -> bool:
        return len(self.removed) > 0

    @property
    def schemes(self) -> Mapping[str, Direction]:
        return {name: self.entries[name].direction for name in self.about.schemes}

    @property
    def extra_is_tag(self) -> Mapping[str, bool]:
        return {name: self.entries[name].extra_is_tag for name in self.about.schemes}

    @property
    def tags(self) -> Sequence[Tag]:
        return [each.tag for each in self.about.tags]

    @property
    def counts(self) -> Sequence[int]:
        if self._counts is None:
            whole = (self.about.low, self.about.high) == (self.low, self.high)
            if whole and not self.prunes:
                self._counts = [each.nodes for each in self.about.tags]
            else:
                numbers = range(len(self.about.tags))
                self._counts = [int(self._postings(tag).kept.sum()) for tag in numbers]
        return self._counts

    def remember(self, counts: Sequence[int]) -> None:
        """What counting found, for all who get a copy of this."""
        self._counts = counts

    def nodes(self, tag: int) -> Nodes:
        found = self._postings(tag)
        kept = found.kept
        ranks = {}
        for name, label in zip(self.about.schemes, found.labels, strict=True):
            ranks[name] = self._ranks(name, tag)[label[kept]]
        return Nodes(found.start[kept], found.end[kept], found.level[kept], ranks)

    def values(self, tag: int) -> Values:
        found = self._postings(tag)
        first, last = found.first, found.first + len(found.kept)
        lists = self._open(form.nodes_file(self.about.tags[tag].file))
        parts, row = [], 0
        directory = lists.directory(form.VALUES, tag)
        at = 0
        if directory is not None:
            at = max(int(np.searchsorted(directory.begin, first, side="right")) - 1, 0)
            row = int(directory.begin[at])
        for block in lists.blocks(form.VALUES, tag, form.VALUES_SHAPE, at):
            if row >= last:
                break
            low, high = max(first - row, 0), min(last - row, block.rows)
            parts.append(unpacked(block).slice(low, high))
            row += block.rows
        return Values.taken(parts, np.flatnonzero(found.kept))

    def trie(self, scheme: str) -> TrieColumns:
        names = ("tag", "extra", "size")
        return TrieColumns(
            *self._columns(form.META, form.trie(scheme), 0, form.TRIE_SHAPE, names).values()
        )

    def keys(self, tag: int) -> Keys | None:
        if not self.about.tags[tag].keys:
            return None
        found = self._postings(tag)
        # A row of the segment's list -> the row among those that are kept here.
        place = np.cumsum(found.kept) - 1
        rows, sizes, texts = [], [], []
        file = form.nodes_file(self.about.tags[tag].file)
        for block in self._open(file).blocks(form.IDENTITY, tag, form.IDENTITY_SHAPE):
            row = block.columns["row"].astype(np.int64) - found.first
            inside = (row >= 0) & (row < len(place))
            inside[inside] = found.kept[row[inside]]
            offset = block.columns["offset"].astype(np.int64)
            size = np.diff(offset)
            text = np.frombuffer(block.tail, np.uint8)[: offset[-1]]
            rows.append(place[row[inside]])
            sizes.append(size[inside])
            texts.append(text[np.repeat(inside, size)])
        offsets = np.concatenate(([0], *sizes)).cumsum()
        return Keys(offsets, np.concatenate(texts), np.concatenate(rows).astype(np.uint32))

    def records(self) -> Iterator[RecordBlock]:
        contexts = form.unpack_contexts(self._open(form.META).lines(form.CONTEXTS))
        for part in self.about.parts:
            if part.high <= self.low or part.low >= self.high:
                continue
            lists = self._open(form.records_file(part.file))
            first = _first_block(lists, form.RECORDS, 0, self.low)
            for block in lists.blocks(form.RECORDS, 0, form.RECORDS_SHAPE, first):
                if block.rows and int(block.columns["start"][0]) >= self.high:
                    break
                yield from self._record_block(block, contexts[block.head[0]])

    def _record_block(self, block: form.Block, context: Context) -> Iterator[RecordBlock]:
        start, end, level, offset = block.columns.values()
        kept = self._kept(start)
        if kept.all():
            data = bytes(block.tail)
        elif kept.any():
            text = np.frombuffer(decompressed(block), np.uint8)
            sizes = np.diff(offset)
            data = zstandard.compress(text[np.repeat(kept, sizes)].tobytes())
            offset = np.concatenate(([0], sizes[kept].cumsum()))
        else:
            return
        yield RecordBlock(
            start[kept], end[kept], level[kept].astype(np.int16), offset, context, data
        )

    def sources(self) -> Sequence[Source]:
        every = form.unpack_sources(self._open(form.META).lines(form.SOURCES))
        return [
            each for each in every if each.base < self.high and each.base + each.size > self.low
        ]

    def _kept(self, start: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which labels are of this stretch and not of a removed record."""
        kept: npt.NDArray[np.bool_] = (start >= self.low) & (start < self.high)
        if self.prunes:
            at = np.searchsorted(self.removed[:, 0], start, side="right") - 1
            kept &= (at < 0) | (start > self.removed[at, 1])
        return kept

    def _postings(self, tag: int) -> _Postings:
        """The nodes of a tag in the blocks that this stretch touches, and which are its own."""
        lists = self._open(form.nodes_file(self.about.tags[tag].file))
        first = _first_block(lists, form.AD, tag, self.low)
        directory = lists.directory(form.AD, tag)
        begin = int(directory.begin[first]) if directory and directory.blocks else 0
        columns: list[list[Array]] = [[] for _ in range(3 + len(self.about.schemes))]
        for block in lists.blocks(form.AD, tag, first=first):
            if block.head[0] >= self.high:
                break
            start = block.columns["start"].astype(np.int64) + block.head[0]
            own = [start, start + block.columns["length"], block.columns["level"]]
            own += [block.columns[f"label{each}"] for each in range(len(self.about.schemes))]
            for column, values in zip(columns, own, strict=True):
                column.append(values)
        whole = [np.concatenate(column) if column else np.empty(0, np.int64) for column in columns]
        start, end, level, *labels = whole
        return _Postings(begin, self._kept(start), start, end, level.astype(np.int16), labels)

    def _ranks(self, scheme: str, tag: int) -> Array:
        file = form.nodes_file(self.about.tags[tag].file)
        return self._columns(file, form.labels(scheme), tag, form.LABEL_SHAPE, ("rank",))["rank"]

    def _columns(
        self, file: str, database: str, number: int, shape: form.Shape, names: Sequence[str]
    ) -> dict[str, Array]:
        blocks = list(self._open(file).blocks(database, number, shape))
        return {
            name: np.concatenate([np.empty(0, np.uint32), *(b.columns[name] for b in blocks)])
            for name in names
        }

    def _open(self, file: str) -> StoredLists:
        lists = self._lists.get(file)
        if lists is None:
            lists = self._lists[file] = StoredLists(self.folder / file, self.about.files[file])
        return lists


def unpacked(block: form.Block) -> Values:
    """The values in a block of them; ValueError where they do not lie in it."""
    offset = block.columns["offset"]
    place = (offset & form.VALUE_PLACE).astype(np.int64)
    text = np.frombuffer(block.tail, np.uint8)
    if place[0] != 0 or (np.diff(place) < 0).any() or place[-1] != len(text):
        raise ValueError("values that do not lie in their block")
    return Values((offset[:-1] >> form.VALUE_MARK).astype(np.uint8), place, text)


def decompressed(block: form.Block) -> bytes:
    """The source bytes of a block of records; ValueError where they are not as long as told."""
    size = int(block.columns["offset"][-1])
    try:
        data = zstandard.ZstdDecompressor().decompress(block.tail, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(f"a record block that does not decompress: {error}") from None
    if len(data) != size:
        raise ValueError(f"a record block of {len(data)} bytes, where {size} were written")
    return data


@dataclass(slots=True)
class _Postings:
    first: int
    kept: npt.NDArray[np.bool_]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    level: npt.NDArray[np.int16]
    labels: list[Array]


def _first_block(lists: StoredLists, database: str, number: int, low: int) -> int:
    """The block in which labels from `low` on begin."""
    directory = lists.directory(database, number)
    if directory is None:
        return 0
    return max(int(np.searchsorted(directory.first, low, side="right")) - 1, 0)


def stretches(segment: StoredSegment, nodes: int) -> list[StoredSegment]:
    """A segment as runs of about so many nodes, cut between records.

    Merging takes one run at a time into memory; a segment may be far larger than that.
    """
    wanted = max(segment.about.nodes // nodes, 1)
    starts: list[int] = []
    for part in segment.about.parts:
        lists = StoredLists(
            segment.folder / form.records_file(part.file),
            segment.about.files[form.records_file(part.file)],
        )
        directory = lists.directory(form.RECORDS, 0)
        starts += [] if directory is None else directory.first.tolist()
        lists.close()
    step = max(len(starts) // wanted, 1)
    cuts = [segment.low, *starts[step::step][: wanted - 1], segment.high]
    return [replace(segment, low=low, high=high) for low, high in pairwise(cuts)]
