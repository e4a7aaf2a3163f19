"""The checks of a segment: bytes, counts, orders, and that its lists tell the same story.

What a check raises is noted in a `Report`, and the next one goes on.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fmware.index import _write
from fmware.index import format as form
from fmware.index._kernel import hash_keys
from fmware.index.errors import CorruptIndex, StoreError
from fmware.index.part import PIECE
from fmware.index.postings import grouped
from fmware.index.stored import StoredLists, decompressed, unpacked
from fmware.labeling.trie import TrieColumns
from fmware.labeling.values import ELSEWHERE, INNER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.manifest import SegmentAbout, TagEntry
    from fmware.labeling.runs import Context

    Longs = npt.NDArray[np.int64]
    Ints = npt.NDArray[np.uint32]
    Hashes = npt.NDArray[np.uint64]
    Progress = Callable[[str], None]

__all__ = ["Noting", "Report", "SegmentCheck", "reason"]


@dataclass(slots=True)
class Report:
    """What `verify` found. `files` has all that was looked at, with what is wrong or `ok`.

    `leftovers` belong to no generation: a writer that died left them, and the next one removes
    them. `weak` are files of an older version, which have no checksums of their pieces: a scrub of
    them finds damage later, and a repair finds less.
    """

    path: str
    generation: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    weak: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def note(self, file: str, problem: str | None = None) -> None:
        if problem is None:
            self.files.setdefault(file, "ok")
            return
        self.problems.append(f"{file}: {problem}")
        before = self.files.get(file, "ok")
        self.files[file] = problem if before == "ok" else f"{before}; {problem}"

    def __str__(self) -> str:
        state = "sound" if self.ok else f"{len(self.problems)} problems"
        lines = [f"{self.path}: generation {self.generation}, {len(self.files)} files, {state}"]
        return "\n".join([*lines, *(f"  {each}" for each in self.problems)])


class Noting:
    """Around a check of a file: what it raises is noted, and the next check goes on."""

    def __init__(self, report: Report, file: str) -> None:
        self._report = report
        self._file = file

    def __enter__(self) -> None:
        self._report.note(self._file)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        # Damaged JSON or columns can break code anywhere, in any way; it is damage all the same.
        if isinstance(error, Exception):
            self._report.note(self._file, reason(error))
            return True
        return False


def reason(error: Exception) -> str:
    if isinstance(error, CorruptIndex):
        return error.reason
    if isinstance(error, StoreError | ValueError | OSError):
        return str(error)
    return f"cannot be read ({type(error).__name__}: {error})"


class SegmentCheck:
    """The checks of one segment; `deep` ones look at all values, others at bytes and counts."""

    def __init__(
        self,
        report: Report,
        folder: Path,
        about: SegmentAbout,
        *,
        deep: bool,
        progress: Progress | None = None,
    ) -> None:
        self._report = report
        self._progress = progress
        self._folder = folder
        self._about = about
        self._deep = deep
        self._tries: dict[str, TrieColumns] = {}
        self._ranks: dict[str, tuple[Ints, Longs]] = {}
        self._starts: Longs = np.empty(0, np.int64)
        self._ends: Longs = np.empty(0, np.int64)
        self._roots = 0
        self._contexts: dict[int, Context] = {}
        # What is damaged there is told once, and not again of all that refers to it.
        self._has_meta = False

    def check(self) -> None:
        for name in self._about.files:
            with Noting(self._report, self._name(name)):
                self._tell(name)
                self._check_bytes(name)
        # Tries and records first: nodes are held against them.
        self._each(form.META, self._check_meta)
        for part in self._about.parts:
            self._each(form.records_file(part.file), self._check_records)
        by_file: dict[int, list[int]] = {}
        for number, entry in enumerate(self._about.tags):
            by_file.setdefault(entry.file, []).append(number)
        for file, numbers in by_file.items():
            self._each(form.nodes_file(file), partial(self._check_nodes, numbers))
        with Noting(self._report, self._name(form.SEGMENT)):
            self._check_totals()

    def check_removed(self, removed: Longs) -> None:
        if (np.diff(removed[:, 0]) <= 0).any():
            raise ValueError("removed records are not sorted")
        place = np.searchsorted(self._starts, removed[:, 0])
        known = place < len(self._starts)
        known[known] &= self._starts[place[known]] == removed[known, 0]
        known[known] &= self._ends[place[known]] == removed[known, 1]
        if not known.all():
            raise ValueError("a removed record is not one of the segment's")

    def _tell(self, file: str) -> None:
        if self._progress is not None:
            self._progress(self._name(file))

    def _name(self, file: str) -> str:
        return f"{self._folder.parent.name}/{self._folder.name}/{file}"

    def _each(self, file: str, check: Callable[[StoredLists], None]) -> None:
        self._tell(file)
        with Noting(self._report, self._name(file)):
            lists = StoredLists(self._folder / file, self._about.files[file])
            try:
                check(lists)
            finally:
                lists.close()

    def _check_bytes(self, name: str) -> None:
        about = self._about.files[name]
        with (self._folder / name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != about.bytes:
                raise ValueError(f"is {size:,} bytes long, and was {about.bytes:,}")
            if hashlib.file_digest(file, "sha256").hexdigest() != about.sha256:
                raise ValueError("its checksum does not hold (sha256)")
            self._check_pieces(file, name)

    def _check_pieces(self, file: BinaryIO, name: str) -> None:
        about = self._about.files[name]
        if not about.pieces:
            self._report.weak.append(self._name(name))
            return
        file.seek(0)
        found = tuple(zlib.crc32(piece) for piece in iter(lambda: file.read(PIECE), b""))
        if found != about.pieces:
            raise ValueError("the checksums of its pieces are not those of its bytes")

    def _check_totals(self) -> None:
        about = self._about
        if about.nodes != sum(each.nodes for each in about.tags):
            raise ValueError("the nodes of the tags are not those of the segment")
        if about.records != sum(each.records for each in about.parts):
            raise ValueError("the records of the parts are not those of the segment")
        if [each.tag for each in about.tags] != sorted({each.tag for each in about.tags}):
            raise ValueError("tags are not sorted")
        if self._deep and self._report.ok and about.records and self._roots != about.records:
            raise ValueError("some records have no root among the nodes")

    # Meta

    def _check_meta(self, lists: StoredLists) -> None:
        for name in self._about.schemes:
            columns = _columns(lists, form.trie(name), 0, form.TRIE_SHAPE)
            self._tries[name] = TrieColumns(columns["tag"], columns["extra"], columns["size"])
            if self._deep:
                self._tries[name].check()
            if (columns["tag"] >= len(self._about.tags)).any():
                raise ValueError(f"trie.{name} has tags that are not there")
            self._ranks[name] = grouped(columns["tag"], len(self._about.tags))[:2]
        lines = {name: lists.lines(name) for name in (form.CONTEXTS, form.SOURCES, form.STATISTICS)}
        self._contexts = form.unpack_contexts(lines[form.CONTEXTS])
        form.unpack_sources(lines[form.SOURCES])
        if len(lines[form.STATISTICS]) != 1:
            raise ValueError("no statistics")
        self._has_meta = True

    # Records

    def _check_records(self, lists: StoredLists) -> None:
        starts, ends = [self._starts], [self._ends]
        rows = 0
        part = next(
            each for each in self._about.parts if form.records_file(each.file) == lists.path.name
        )
        for block in _counted(lists, form.RECORDS, 0, form.RECORDS_SHAPE):
            rows += block.rows
            start, end = block.columns["start"], block.columns["end"]
            starts.append(start.astype(np.int64))
            ends.append(end.astype(np.int64))
            if self._deep:
                self._check_record_block(block)
        if rows != part.records:
            raise ValueError(f"has {rows} records, and {part.records} were written")
        self._starts, self._ends = np.concatenate(starts), np.concatenate(ends)
        if (self._starts[1:] <= self._ends[:-1]).any() or (self._starts > self._ends).any():
            raise ValueError("records overlap")
        own = self._starts[len(self._starts) - rows :]
        if rows and not (part.low <= own[0] and self._ends[-1] < part.high):
            raise ValueError("records outside the labels of their part")

    def _check_record_block(self, block: form.Block) -> None:
        offset = block.columns["offset"]
        if offset[0] != 0 or (np.diff(offset) < 0).any():
            raise ValueError("records that do not follow each other")
        if self._has_meta and block.head[0] not in self._contexts:
            raise ValueError(f"records of a context that is not known ({block.head[0]})")
        decompressed(block)

    # Nodes

    def _check_nodes(self, numbers: list[int], lists: StoredLists) -> None:
        for number in numbers:
            entry = self._about.tags[number]
            try:
                if self._deep and self._has_meta:
                    tag = _TagCheck(lists, number, entry, self._tries, self._ranks)
                    tag.check(self._inside)
                else:
                    self._check_counts(lists, number, entry)
            except CorruptIndex:
                raise
            except ValueError as error:
                raise ValueError(f"{entry.tag}: {error}") from None

    def _check_counts(self, lists: StoredLists, number: int, entry: TagEntry) -> None:
        wanted: list[tuple[str, form.Shape | None, int]] = [
            (form.AD, None, entry.nodes),
            (form.VALUES, form.VALUES_SHAPE, entry.nodes),
        ]
        wanted += [(form.ses(name), form.SES_SHAPE, entry.nodes) for name in self._about.schemes]
        if entry.keys:
            wanted.append((form.IDENTITY, form.IDENTITY_SHAPE, entry.keys))
        for database, shape, rows in wanted:
            found = sum(block.rows for block in _counted(lists, database, number, shape))
            if found != rows:
                raise ValueError(f"{database} has {found} rows, and {rows} were written")
        for name in self._ranks:
            labels = len(_ranks(self._ranks[name], number))
            blocks = _counted(lists, form.labels(name), number, form.LABEL_SHAPE)
            if sum(block.rows for block in blocks) != labels:
                raise ValueError(f"labels.{name} are not those of the trie")

    def _inside(self, start: Longs, end: Longs) -> None:
        """ValueError unless all of these are in records."""
        if not len(self._starts):
            return
        at = np.searchsorted(self._starts, start, side="right") - 1
        if (at < 0).any() or (end > self._ends[at]).any():
            raise ValueError("nodes that are in no record")
        self._roots += int(np.count_nonzero(self._starts[at] == start))


class _TagCheck:
    """The checks of all lists of one tag, block by block."""

    def __init__(
        self,
        lists: StoredLists,
        number: int,
        entry: TagEntry,
        tries: dict[str, TrieColumns],
        ranks: dict[str, tuple[Ints, Longs]],
    ) -> None:
        self._lists = lists
        self._number = number
        self._entry = entry
        self._schemes = list(tries)
        self._tries = tries
        self._ranks = ranks
        self._tallies: list[npt.NDArray[np.uint64]] = []
        self._sums = [0 for _ in tries]

    def check(self, inside: Callable[[Longs, Longs], None]) -> None:
        labels = [self._labels(name) for name in self._schemes]
        self._tallies = [np.zeros(len(each["rank"]), np.uint64) for each in labels]
        self._check_ad(inside)
        for place, name in enumerate(self._schemes):
            count = labels[place]["count"].astype(np.int64)
            if (count != self._tallies[place]).any():
                raise ValueError(f"labels.{name} count other nodes than ad has")
            if (labels[place]["begin"] != np.cumsum(count) - count).any():
                raise ValueError(f"labels.{name} begin elsewhere than their counts say")
            self._check_ses(place, np.cumsum(count))
        self._check_values()
        if self._entry.keys:
            self._check_identity()

    def _labels(self, scheme: str) -> dict[str, npt.NDArray[np.int64]]:
        found = _columns(self._lists, form.labels(scheme), self._number, form.LABEL_SHAPE)
        columns = {name: column.astype(np.int64) for name, column in found.items()}
        trie = self._tries[scheme]
        rank = _ranks(self._ranks[scheme], self._number)
        if not np.array_equal(columns["rank"], rank):
            raise ValueError(f"labels.{scheme} are not those of the trie")
        last = rank + trie.size[rank] - 1
        up = np.empty(len(rank), np.uint32)
        _write.enclosing(rank, last.astype(np.int64), 0, up)
        if (columns["last"] != last).any() or (columns["up"] != up).any():
            raise ValueError(f"labels.{scheme} do not span what they do in the trie")
        return columns

    def _check_ad(self, inside: Callable[[Longs, Longs], None]) -> None:
        nests = self._entry.depth > 1
        starts, ends, ups = [], [], []
        rows, before = 0, -1
        for block in _counted(self._lists, form.AD, self._number, None):
            base, schemes, flags = block.head
            if schemes != len(self._schemes) or bool(flags & form.HAS_UP) != nests:
                raise ValueError("blocks of ad that are laid out otherwise than their segment says")
            start = block.columns["start"].astype(np.int64) + base
            end = start + block.columns["length"]
            if start[0] <= before or (np.diff(start) <= 0).any():
                raise ValueError("ad is not sorted")
            before = int(start[-1])
            inside(start, end)
            for place, tally in enumerate(self._tallies):
                label = block.columns[f"label{place}"]
                if (label >= len(tally)).any():
                    raise ValueError("nodes with labels that are not there")
                np.add.at(tally, label, np.uint64(1))
                own = _mixed(label, start, block.columns["length"], block.columns["level"])
                self._sums[place] = (self._sums[place] + own) % (1 << 64)
            if nests:
                starts.append(start)
                ends.append(end)
                ups.append(block.columns["up"])
            rows += block.rows
        if rows != self._entry.nodes:
            raise ValueError(f"ad has {rows} nodes, and {self._entry.nodes} were written")
        if nests:
            self._check_nesting(np.concatenate(starts), np.concatenate(ends), np.concatenate(ups))

    def _check_nesting(self, start: Longs, end: Longs, up: npt.NDArray[np.uint32]) -> None:
        wanted = np.empty(len(start), np.uint32)
        depth = _write.enclosing(start, end, 0, wanted)
        if depth != self._entry.depth or (wanted != up).any():
            raise ValueError("ad does not nest as it says")

    def _check_ses(self, place: int, ends: Longs) -> None:
        """The same nodes as in ad, by (label, start).

        That they are the same is seen from a sum over both, so that a list of any length is
        checked block by block.
        """
        name = self._schemes[place]
        rows, total = 0, 0
        before = (-1, -1)
        blocks = _counted(self._lists, form.ses(name), self._number, form.SES_SHAPE)
        for block in blocks:
            start = block.columns["start"].astype(np.int64)
            row = np.arange(rows, rows + block.rows)
            label = np.searchsorted(ends, row, side="right")
            same = np.diff(label, prepend=before[0]) == 0
            if (np.diff(start, prepend=before[1])[same] <= 0).any():
                raise ValueError(f"ses.{name} is not sorted")
            before = (int(label[-1]), int(start[-1]))
            total += _mixed(label, start, block.columns["length"], block.columns["level"])
            rows += block.rows
        if rows != self._entry.nodes or total % (1 << 64) != self._sums[place]:
            raise ValueError(f"ses.{name} has other nodes than ad")

    def _check_values(self) -> None:
        rows = 0
        for block in _counted(self._lists, form.VALUES, self._number, form.VALUES_SHAPE):
            values = unpacked(block)
            elsewhere = values.mark & ELSEWHERE != 0
            if (np.diff(values.offsets)[elsewhere] != 0).any():
                raise ValueError("values that are said to be elsewhere")
            if (values.mark[~elsewhere] & INNER).any():
                raise ValueError("values with marks that cannot be")
            try:
                bytes(values.data).decode()
            except UnicodeDecodeError:
                raise ValueError("values that are not UTF-8") from None
            rows += block.rows
        if rows != self._entry.nodes:
            raise ValueError(f"values has {rows} rows, and {self._entry.nodes} were written")

    def _check_identity(self) -> None:
        rows, last = 0, (0, b"", -1)
        blocks = _counted(self._lists, form.IDENTITY, self._number, form.IDENTITY_SHAPE)
        for block in blocks:
            offset = block.columns["offset"].astype(np.int64)
            text = np.frombuffer(block.tail, np.uint8)
            if offset[0] != 0 or (np.diff(offset) < 0).any() or offset[-1] != len(text):
                raise ValueError("keys that do not lie in their block")
            hashes, row = block.columns["hash"], block.columns["row"]
            if (hash_keys(offset, text) != hashes).any():
                raise ValueError("keys with hashes of others")
            if (row >= self._entry.nodes).any():
                raise ValueError("keys of nodes that are not there")
            last = _check_order(hashes, row, offset, bytes(block.tail), last)
            rows += block.rows
        if rows != self._entry.keys:
            raise ValueError(f"identity has {rows} keys, and {self._entry.keys} were written")


def _ranks(ranks: tuple[Ints, Longs], number: int) -> Longs:
    """The ranks of a tag, from all grouped by tag."""
    order, begin = ranks
    return order[begin[number] : begin[number + 1]].astype(np.int64)


def _check_order(
    hashes: Hashes,
    row: npt.NDArray[np.uint32],
    offset: Longs,
    text: bytes,
    last: tuple[int, bytes, int],
) -> tuple[int, bytes, int]:
    """ValueError unless keys ascend by (hash, key, row); answers with the last."""

    def entry(at: int) -> tuple[int, bytes, int]:
        return int(hashes[at]), text[offset[at] : offset[at + 1]], int(row[at])

    # Only where hashes do not ascend there is more to look at.
    doubtful = np.flatnonzero(hashes[1:] <= hashes[:-1]) + 1
    for at in [0, *doubtful.tolist()]:
        if entry(at) < (entry(at - 1) if at else last):
            raise ValueError("identity is not sorted")
    return entry(len(hashes) - 1)


def _mixed(label: Longs, start: Longs, length: Longs, level: Longs) -> int:
    """A sum over rows that does not depend on their order."""
    value = start.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for column in (label, length, level):
        value = (value ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        value ^= value >> np.uint64(29)
    return int(value.sum(dtype=np.uint64))


def _counted(
    lists: StoredLists, database: str, number: int, shape: form.Shape | None
) -> Iterator[form.Block]:
    """The blocks of a list, each held against the directory."""
    directory = lists.directory(database, number)
    if directory is None:
        raise ValueError(f"{database} {number} is missing")
    if directory.begin[0] != 0:
        raise ValueError(f"{database} {number} begins at {directory.begin[0]}")
    for at, block in enumerate(lists.blocks(database, number, shape)):
        where = f"{database} {number}, block {at}"
        if not block.rows or block.rows != directory.begin[at + 1] - directory.begin[at]:
            raise ValueError(f"{where}: has {block.rows} rows, which its directory does not say")
        if int(directory.first[at]) != _first(database, block, int(directory.begin[at])):
            raise ValueError(f"{where}: begins elsewhere than its directory says")
        yield block


def _columns(
    lists: StoredLists, database: str, number: int, shape: form.Shape
) -> dict[str, npt.NDArray[Any]]:
    """A list as a whole."""
    blocks = list(_counted(lists, database, number, shape))
    return {
        each.name: np.concatenate(
            [np.empty(0, each.dtype), *(block.columns[each.name] for block in blocks)]
        )
        for each in shape.columns
    }


def _first(database: str, block: form.Block, begin: int) -> int:
    if database == form.AD:
        return block.head[0] + int(block.columns["start"][0])
    column = {form.IDENTITY: "hash", form.RECORDS: "start"}.get(database)
    if database.startswith("labels."):
        column = "rank"
    return begin if column is None else int(block.columns[column][0])
