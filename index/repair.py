"""A damaged index made whole from its record store.

Everything in a segment but the source of its records follows from it: postings, SES labels, values,
keys, statistics. So of a damaged segment all records that are whole are read again and labelled
anew, with the labels they had, and a new segment takes the place of the old one, in a new
generation. Records whose bytes are damaged are lost, and reported; the old files are then kept in
`damaged/`, for whoever can get more out of them.

What it cannot make again: the manifest, and which records were removed (tombstones).
"""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fmware.index import format as form
from fmware.index.errors import CorruptIndex, StoreError
from fmware.index.manifest import load_segment, load_tombstones
from fmware.index.reader import entities_of
from fmware.index.records import LIMITS
from fmware.index.salvage import Salvage
from fmware.index.stored import StoredSegment
from fmware.index.verify import verify
from fmware.index.writer import Writer
from fmware.labeling import Reader, Vocabulary
from fmware.labeling.errors import LabelingError
from fmware.labeling.identity import parse_rules
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, Source, store
from fmware.labeling.ses import scheme as scheme_of
from fmware.labeling.tasks import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.checks import Report
    from fmware.index.manifest import Manifest, SegmentAbout, SegmentEntry
    from fmware.labeling import NodeTable

    Longs = npt.NDArray[np.int64]
    Progress = Callable[[str], None]

__all__ = ["Lost", "Repaired", "repair"]

DAMAGED = "damaged"
"""The directory of an index where segments are kept of which records were lost."""
UNKNOWN = "unknown"
"""The name of the source of records, if it is lost."""
COLUMNS = ("start", "end", "level", "offset")
_ONE = np.zeros(1, np.int64)


@dataclass(slots=True)
class Lost:
    """Records that could not be read again: their labels lie in [low, high).

    `source` and `offset` say where the first of them stood, `keys` by what nodes in them were
    known, as far as that is left.
    """

    segment: str
    low: int
    high: int
    records: int
    reason: str
    source: str | None = None
    offset: int | None = None
    keys: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        many = f"{self.records} records" if self.records != 1 else "1 record"
        where = f", from byte {self.offset:,} of {self.source} on" if self.source else ""
        some = ", ".join(self.keys[:10])
        keys = f"; keys: {some}{', ...' if len(self.keys) > 10 else ''}" if self.keys else ""
        return f"{many} lost, labels {self.low} to {self.high - 1}{where}: {self.reason}{keys}"


@dataclass(slots=True)
class Repaired:
    """What was done. `problems` were there before; `left` could not be repaired, and still are.

    `kept` are directories with the old files of segments of which records were lost.
    """

    path: str
    problems: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    records: int = 0
    lost: list[Lost] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    generation: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the index is sound now, and holds all that it held."""
        return not self.left and not self.lost


def repair(path: str | Path, *, progress: Progress | None = None) -> Repaired:
    """Verify an index, rebuild damaged segments from their records, and publish that.

    The index stays what it is until a new generation is published, a segment at a time. Other
    writers are shut out meanwhile; readers are not.

    Raises:
        IndexLocked: another writer is at work.
        CorruptIndex: the manifest is damaged. It says what the index is made of: restore it from a
            copy, or build the index again.
    """
    tell = progress or _nothing
    with Writer.open(path) as writer:
        report = verify(path, progress=lambda file: tell(f"verifying {file}"))
        done = Repaired(str(path), list(report.problems))
        for entry in writer.manifest.segments:
            if _is_damaged(report, entry):
                _Repair(writer, entry, done, tell).run()
        done.generation = writer.manifest.generation
        if done.segments:
            report = verify(path, progress=lambda file: tell(f"verifying {file} again"))
        done.left += report.problems
    return done


def _is_damaged(report: Report, entry: SegmentEntry) -> bool:
    names = [f"{form.SEGMENTS}/{entry.name}/"]
    if entry.tombstones is not None:
        names.append(f"{form.TOMBSTONES}/{entry.tombstones.file}")
    return any(problem.startswith(tuple(names)) for problem in report.problems)


class _Records(NamedTuple):
    """Records of a block: the labels of their roots, and their bytes, one after the other."""

    start: Longs
    end: Longs
    level: npt.NDArray[np.int16]
    sizes: Longs
    data: bytes


class _Repair:
    """One segment, from what is left of it."""

    def __init__(self, writer: Writer, entry: SegmentEntry, done: Repaired, tell: Progress) -> None:
        self._writer = writer
        self._manifest: Manifest = writer.manifest
        self._entry = entry
        self._done = done
        self._tell = tell
        self._folder = writer.path / form.SEGMENTS / entry.name
        self._about = self._load_about()
        self._contexts: dict[int, Context] = {}
        self._sources: list[Source] = []
        self._lost: list[Lost] = []
        self._records = 0
        self._kept: list[tuple[Longs, Longs]] = []
        vocabulary = Vocabulary()
        self._reader = Reader(vocabulary, limits=LIMITS, entities=entities_of(self._manifest))
        self._labeller = Labeller(
            [scheme_of(name) for name in self._manifest.schemes],
            vocabulary,
            parse_rules(self._manifest.identity),
        )
        self._work = writer.path / form.BUILDING / "repair"
        self._runs: list[Path] = []

    def _load_about(self) -> SegmentAbout | None:
        try:
            return load_segment(self._folder, self._entry.sha256)
        except (StoreError, OSError):
            return None

    def run(self) -> None:
        """Build what is left anew, and publish it; or say why that cannot be."""
        name = f"{form.SEGMENTS}/{self._entry.name}"
        try:
            removed = load_tombstones(self._writer.path, self._entry.tombstones)
        except (CorruptIndex, OSError) as error:
            said = "which records were removed cannot be known again: restore it from a copy"
            self._done.left.append(f"{name}: {error.args[-1]}: {said}")
            return
        self._read_meta()
        shutil.rmtree(self._work, ignore_errors=True)
        try:
            self._label(removed)
            self._describe_lost()
            if not self._records:
                self._done.left.append(f"{name}: no record is left that could be read")
                self._done.lost += self._lost
                return
            if self._lost:
                self._keep()
            self._writer.replace(self._entry.name, self._runs, progress=self._tell)
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        self._done.segments.append(self._entry.name)
        self._done.records += self._records
        self._done.lost += self._lost

    # --- what is left -------------------------------------------------------------------------

    def _files(self, pattern: str) -> list[Path]:
        """The files of a kind that are there."""
        return sorted(self._folder.glob(pattern))

    def _salvage(self, path: Path) -> Salvage | None:
        about = None if self._about is None else self._about.files.get(path.name)
        try:
            return Salvage(path, about)
        except OSError:
            return None

    def _read_meta(self) -> None:
        """Contexts and sources: from meta.mdb, and from the files of records, which have them."""
        sources: set[Source] = set()
        for path in [*self._files(form.META), *self._files("records-*.mdb")]:
            salvage = self._salvage(path)
            if salvage is None:
                continue
            for line in salvage.lines():
                value = _json(line)
                if isinstance(value, dict) and "namespaces" in value:
                    self._contexts |= form.unpack_contexts([line])
                elif isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
                    sources.add(Source(*value))
            salvage.close()
        self._sources = sorted(sources, key=lambda source: source.base)

    # --- labelling ----------------------------------------------------------------------------

    def _label(self, removed: Longs) -> None:
        """Label all records that are left, in runs."""
        opened: list[Salvage] = []
        places: list[tuple[int, Salvage, int, int]] = []
        missing: dict[int, int] = {}
        for path in self._files("records-*.mdb"):
            salvage = self._salvage(path)
            if salvage is not None:
                self._tell(f"segment {self._entry.name}: reading {path.name}")
                opened.append(salvage)
                found = salvage.records()
                missing |= found.lost
                places += [(start, salvage, *place) for start, place in found.blocks.items()]
        places.sort(key=lambda place: place[0])
        for start, salvage, at, size in places:
            self._take(*salvage.block(at, size), removed)
            if self._labeller.bytes >= RUN_BYTES:
                self._flush()
            self._tell(f"segment {self._entry.name}: {self._records:,} records, label {start}")
        self._flush()
        for salvage in opened:
            salvage.close()
        ends = sorted([*missing, *(start for start, *_ in places), self._entry.high])
        for low, count in missing.items():
            high = ends[bisect_right(ends, low)] if low < ends[-1] else low + 1
            self._miss(low, high, count, "their bytes are damaged", removed)
        parts = [(self._entry.low, self._entry.high, self._entry.records)]
        if self._about is not None:
            parts = [(part.low, part.high, part.records) for part in self._about.parts]
        for low, high, count in parts:
            known = sum(lost.records for lost in self._lost if low <= lost.low < high)
            for starts, _ in self._kept:
                known += int(np.count_nonzero((starts >= low) & (starts < high)))
            said = "what tells of them is damaged, too"
            self._miss(low, high, count - known, said, removed)

    def _miss(self, low: int, high: int, count: int, reason: str, removed: Longs) -> None:
        """Note records that are lost, apart from those that were removed before."""
        count -= int(np.count_nonzero((removed[:, 0] >= low) & (removed[:, 0] < high)))
        if count > 0:
            self._lost.append(Lost(self._entry.name, low, high, count, reason))

    def _take(self, block: form.Block, data: bytes, removed: Longs) -> None:
        """Label the records of a block, less those that were removed."""
        start, end, level, offset = (block.columns[name].astype(np.int64) for name in COLUMNS)
        context = self._contexts.get(block.head[0])
        if context is None:
            said = "what stood around them in their source is damaged"
            self._miss(int(start[0]), int(end[-1]) + 1, len(start), said, removed)
            return
        kept = ~np.isin(start, removed[:, 0])
        if not kept.any():
            return
        sizes = np.diff(offset)
        if not kept.all():
            data = np.frombuffer(data, np.uint8)[np.repeat(kept, sizes)].tobytes()
        records = _Records(start[kept], end[kept], level[kept].astype(np.int16), sizes[kept], data)
        if not self._add_all(records, context):
            self._add_each(records, context)

    def _add_all(self, records: _Records, context: Context) -> bool:
        """Label records together; not if that does not go smoothly."""
        source = self._source(int(records.start[0]))
        if context.document or source != self._source(int(records.start[-1])):
            return False
        read = self._reader.read_records(
            records.data,
            records.sizes,
            records.start,
            records.level,
            declaration=context.declaration,
            doctype=context.doctype,
            namespaces=context.namespaces,
        )
        if read is None or not np.array_equal(read[0].end[read[1]], records.end):
            return False
        self._labeller.add(*read, source, records.data, records.sizes, context)
        self._records += len(records.start)
        self._kept.append((records.start, records.end))
        return True

    def _add_each(self, records: _Records, context: Context) -> None:
        """Label records one by one; one that cannot be read as it was is lost."""
        at = 0
        for row, size in enumerate(records.sizes.tolist()):
            data = records.data[at : at + size]
            at += size
            start, end = int(records.start[row]), int(records.end[row])
            try:
                table = self._read(data, start, int(records.level[row]), context)
                if table.end[0] != end:
                    raise LabelingError("it does not have the nodes that it had")
            except LabelingError as error:
                self._lost.append(Lost(self._entry.name, start, end + 1, 1, str(error)))
                continue
            size_of = np.array([size], np.int64)
            self._labeller.add(table, _ONE, self._source(start), data, size_of, context)
            self._records += 1
            self._kept.append((records.start[row : row + 1], records.end[row : row + 1]))

    def _read(self, data: bytes, start: int, level: int, context: Context) -> NodeTable:
        if context.document:
            return self._reader.read(data, base=start)
        return self._reader.read_record(
            data,
            declaration=context.declaration,
            doctype=context.doctype,
            namespaces=context.namespaces,
            base=start,
            level=level,
        )

    def _source(self, start: int) -> Source:
        at = bisect_right(self._sources, start, key=lambda source: source.base) - 1
        if at >= 0 and start < self._sources[at].base + self._sources[at].size:
            return self._sources[at]
        return Source(UNKNOWN, self._entry.low, self._entry.high - self._entry.low)

    def _flush(self) -> None:
        if self._labeller.records:
            path = self._work / f"{len(self._runs):06d}"
            store(self._labeller.finish(), path)
            self._runs.append(path)

    # --- what is lost -------------------------------------------------------------------------

    def _describe_lost(self) -> None:
        for lost in self._lost:
            source = self._source(lost.low)
            if source.name != UNKNOWN:
                lost.source, lost.offset = source.name, lost.low - source.base
            lost.keys = [*self._keys(lost.low, lost.high)]

    def _keys(self, low: int, high: int) -> Iterator[str]:
        """The keys of nodes with such labels, as far as the lists that have them are whole."""
        if self._about is None:
            return
        nothing = np.empty((0, 2), np.int64)
        about, schemes = self._about, self._manifest.schemes
        some = StoredSegment(self._folder, about, schemes, nothing, low, high)
        try:
            for number, entry in enumerate(about.tags):
                try:
                    keys = some.keys(number) if entry.keys else None
                    starts = None if keys is None else some.nodes(number).start[keys.row]
                except (StoreError, OSError, ValueError):
                    continue
                if keys is None or starts is None:
                    continue
                for at in np.flatnonzero(~self._is_kept(starts)).tolist():
                    text = keys.data[keys.offsets[at] : keys.offsets[at + 1]].tobytes()
                    yield f"{entry.tag}={text.decode(errors='replace')}"
        finally:
            some.close()

    def _is_kept(self, starts: Longs) -> npt.NDArray[np.bool_]:
        """Which nodes are in records that were read again."""
        low = np.concatenate([np.empty(0, np.int64), *(each for each, _ in self._kept)])
        high = np.concatenate([np.empty(0, np.int64), *(each for _, each in self._kept)])
        at = np.searchsorted(low, starts, side="right") - 1
        found: npt.NDArray[np.bool_] = at >= 0
        found[found] = starts[found] <= high[at[found]]
        return found

    def _keep(self) -> None:
        """Keep the old files under another name: the writer removes what no generation needs."""
        place = self._writer.path / DAMAGED / f"{self._entry.name}-{self._manifest.generation:08d}"
        place.mkdir(parents=True, exist_ok=True)
        for file in self._folder.iterdir():
            target = place / file.name
            target.unlink(missing_ok=True)
            os.link(file, target)
        self._done.kept.append(str(place))


def _json(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _nothing(step: str) -> None:
    """No one wants to know."""
