"""The index, opened for reading."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.index import format as form
from fmware.index._stamp import changed, stamp_of
from fmware.index.cache import Cache
from fmware.index.errors import CorruptIndex, FileChanged, IndexClosed, NoSuchNode
from fmware.index.labels import Located, Pairs
from fmware.index.manifest import load_manifest, load_tombstones
from fmware.index.records import ROOM
from fmware.index.segment import Segment, SegmentFiles
from fmware.index.summary import Statistics
from fmware.labeling import CHARACTER_ENTITIES
from fmware.labeling.html import html_table
from fmware.labeling.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from fmware.index.labels import Node
    from fmware.index.manifest import Manifest, SegmentEntry
    from fmware.index.records import StoredRecord
    from fmware.labeling import NodeTable
    from fmware.labeling.runs import Tag
    from fmware.labeling.ses import Direction

    Int64s = npt.NDArray[np.int64]
    Stamp = tuple[int, int, int]

__all__ = ["Index", "entities_of"]


class Index:
    """One generation of an index.

    It stays what it is, whatever is published later: `newer` tells of that, and `refresh` opens
    it. Probes by SES label are those of a segment, because each segment has labels of its own; by
    AD label and by key, all segments can be asked at once. Safe to share between threads.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        segments: Sequence[Segment],
        stamp: Stamp | None,
        cache: Cache,
    ) -> None:
        self.path = path
        self._cache = cache
        self.manifest = manifest
        self.generation = manifest.generation
        self.identity = manifest.identity
        self.options: dict[str, Any] = manifest.options
        self.schemes: dict[str, Direction] = {
            name: entry.direction for name, entry in manifest.schemes.items()
        }
        self._segments: tuple[Segment, ...] | None = tuple(segments)
        self._lows = np.array([segment.low for segment in segments], np.int64)
        self._stamp = stamp
        self._manifest = _manifest(path)
        self._stamps = tuple(stamp for segment in segments for stamp in segment.files.stamps)

    @classmethod
    def open(cls, path: str | Path, *, record_cache: int = ROOM) -> Index:
        """The current generation.

        `record_cache` is how many bytes of records, decompressed and as tables, are kept in memory,
        by this and by all that are refreshed or leased from it.
        """
        return _opened(Path(path), {}, Cache(record_cache))

    # --- what it is -------------------------------------------------------------------------

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, by label."""
        segments = self._segments
        if segments is None:
            raise IndexClosed(str(self.path))
        return segments

    @property
    def tags(self) -> list[Tag]:
        """The tags of all segments, sorted."""
        return sorted({tag for segment in self.segments for tag in segment.tags})

    @property
    def statistics(self) -> Statistics:
        """What was counted when the segments were built, summed up."""
        return Statistics.of(self.segments)

    def live_statistics(self) -> Statistics:
        """The same of what is left after records were removed; see `fmware.index.live`."""
        from fmware.index.live import live_statistics

        return live_statistics(self)

    def live_nodes(self) -> int:
        """How many nodes are left after records were removed."""
        from fmware.index.live import live_nodes

        return live_nodes(self)

    @property
    def records_held(self) -> int:
        """Bytes of records that are kept in memory, of all generations that share them."""
        return self._cache.used

    @property
    def closed(self) -> bool:
        return self._segments is None

    def close(self) -> None:
        """Let go of the files. Probes under way end as they began; arrays stay valid."""
        segments, self._segments = self._segments, None
        for segment in segments or ():
            segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def newer(self) -> bool:
        """Whether another generation has been published."""
        if self._segments is None:
            raise IndexClosed(str(self.path))
        if stamp_of(self._manifest) == self._stamp:
            return False
        return load_manifest(self.path).generation != self.generation

    def check(self) -> None:
        """FileChanged if a file of this generation was written to since it was opened.

        What was read before a check that passes is what was written, or was found to be damaged by
        its checksum. It takes one system call a file, and reads none. Changes below the file
        system, of the disk itself, leave no trace that it could see: `scrub` finds those.
        """
        if self._segments is None:
            raise IndexClosed(str(self.path))
        found = changed(self._stamps)
        if found is not None:
            raise FileChanged(found.path)

    def refresh(self) -> Index:
        """The current generation as another `Index`; what both hold is open once."""
        known = {segment.name: segment.files for segment in self.segments}
        return _opened(self.path, known, self._cache)

    def lease(self) -> Index:
        """The same generation once more, on the same open files.

        It need not be closed: it lets go of the files when it is dropped. They stay open until the
        last `Index` that has them is closed or dropped.
        """
        segments = [segment.again() for segment in self.segments]
        return Index(self.path, self.manifest, segments, self._stamp, self._cache)

    # --- by AD label ------------------------------------------------------------------------

    def descendants(
        self,
        tag: Tag | str,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        levels: npt.ArrayLike | None = None,
    ) -> Pairs:
        """The nodes of a tag below each given one; with `levels`, only children."""
        return self._related(Segment.descendants, tag, starts, ends, levels)

    def ancestors(
        self,
        tag: Tag | str,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        levels: npt.ArrayLike | None = None,
    ) -> Pairs:
        """The nodes of a tag around each given one; with `levels`, only parents."""
        return self._related(Segment.ancestors, tag, starts, ends, levels)

    def _related(
        self,
        probe: Callable[..., Pairs],
        tag: Tag | str,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        levels: npt.ArrayLike | None,
    ) -> Pairs:
        segments = self.segments
        if len(segments) == 1:
            return probe(segments[0], tag, starts, ends, levels)
        starts, ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        depths = None if levels is None else np.asarray(levels, np.int16)
        parts = []
        for at, rows in self._spread(starts):
            of_rows = None if depths is None else depths[rows]
            found = probe(segments[at], tag, starts[rows], ends[rows], of_rows)
            if len(found):
                parts.append(Pairs(_places(rows, found.left), found.right))
        return Pairs.joined(parts)

    def _spread(self, starts: Int64s) -> Iterator[tuple[int, Int64s | slice]]:
        """The segments that have labels like these, and which of the labels those are."""
        if not len(starts):
            return
        place = np.searchsorted(self._lows, starts, "right") - 1
        if (place[:-1] <= place[1:]).all():
            cuts = np.flatnonzero(np.diff(place)) + 1
            bounds = [0, *cuts.tolist(), len(starts)]
            for begin, end in pairwise(bounds):
                if place[begin] >= 0:
                    yield int(place[begin]), slice(begin, end)
            return
        for at in np.unique(place).tolist():
            if at >= 0:
                yield at, np.flatnonzero(place == at)

    def locate(self, tag: Tag | str, starts: npt.ArrayLike) -> Located:
        """Segments and rows of the nodes of a tag that begin at `starts`; -1 where none does."""
        segments = self.segments
        starts = np.asarray(starts, np.int64)
        found = Located(np.full(len(starts), -1, np.int64), np.full(len(starts), -1, np.int64))
        for at, rows in self._spread(starts):
            located = segments[at].locate(tag, starts[rows])
            found.row[rows] = located
            found.segment[rows] = np.where(located < 0, -1, at)
        return found

    def values(self, tags: Sequence[Tag | str], starts: npt.ArrayLike) -> Values:
        """The values of the nodes of some tags that begin at `starts`.

        As far as the index has them, see `Segment.values`; nothing of nodes that are not there.
        """
        segments = self.segments
        if len(tags) == len(segments) == 1:
            return segments[0].values_at(tags[0], starts)
        starts = np.asarray(starts, np.int64)
        parts = [Values.none(len(starts))]
        order = np.arange(len(starts))
        count = len(starts)
        for tag in tags:
            for at, rows in self._spread(starts):
                located = segments[at].locate(tag, starts[rows])
                there = located >= 0
                if there.any():
                    parts.append(segments[at].values(tag, located[there]))
                    order[np.arange(len(starts))[rows][there]] = count + np.arange(len(parts[-1]))
                    count += len(parts[-1])
        return Values.taken(parts, order)

    # --- by key -----------------------------------------------------------------------------

    def identify(self, tag: Tag | str, keys: Sequence[bytes]) -> Pairs:
        """The nodes of a tag that have each key, in all segments."""
        found = [segment.identify(tag, keys) for segment in self.segments]
        parts = [Pairs(pairs.left, pairs.right) for pairs in found if len(pairs)]
        return Pairs.joined(parts)

    # --- records ----------------------------------------------------------------------------

    def segment_of(self, start: int) -> Segment:
        """The segment whose labels these are."""
        segments = self.segments
        at = int(np.searchsorted(self._lows, start, "right")) - 1
        if at < 0 or start >= segments[at].high:
            raise NoSuchNode(start)
        return segments[at]

    def record(self, start: int) -> StoredRecord:
        """The record that holds the node which begins at `start`."""
        return self.segment_of(start).record(start)

    def table(self, start: int) -> NodeTable:
        """All nodes of that record."""
        return self.segment_of(start).table(start)

    def fragment(self, start: int) -> bytes:
        """The XML of a node, or the value of an attribute, in UTF-8."""
        return self.segment_of(start).fragment(start)

    def value(self, start: int) -> str:
        """XPath's string-value of a node."""
        return self.segment_of(start).value(start)

    def path_of(self, start: int) -> str:
        """An XPath, from the record's root, that selects a node alone."""
        return self.segment_of(start).path(start)

    def node(self, start: int) -> Node:
        """The node that begins at `start`."""
        return self.segment_of(start).node(start)

    def ancestors_of(self, start: int) -> list[Node]:
        """The ancestors of a node, of any tag, the record's root first."""
        return self.segment_of(start).ancestors_of(start)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.segments)} segments"
        return f"<Index {self.path}, generation {self.generation}: {state}>"

    def _repr_html_(self) -> str:
        """The names that most nodes have, as a notebook shows them."""
        if self.closed:
            return html_table(repr(self)[1:-1], ("name", "nodes", "keys"), (), 0)
        counted = self.statistics
        caption = f"{repr(self)[1:-1]}, {counted.nodes:,} nodes"
        tags = sorted(counted.tags.items(), key=lambda each: -each[1].nodes)
        rows = ((str(tag), found.nodes, found.keys) for tag, found in tags)
        return html_table(caption, ("name", "nodes", "keys"), rows, len(tags))


def _places(rows: Int64s | slice, left: Int64s) -> Int64s:
    """Places in the whole batch, of places in a part of it."""
    if isinstance(rows, slice):
        return left if not rows.start else left + rows.start
    found: Int64s = rows[left]
    return found


def _opened(path: Path, known: Mapping[str, SegmentFiles], cache: Cache) -> Index:
    while True:
        stamp = _stamp(path)
        manifest = load_manifest(path)
        try:
            segments = [
                _segment(path, each, manifest, known, cache) for each in _by_label(manifest)
            ]
        except CorruptIndex:
            # A compaction may have published meanwhile, and removed what it replaced.
            if load_manifest(path).generation == manifest.generation:
                raise
            continue
        return Index(path, manifest, segments, stamp, cache)


def _by_label(manifest: Manifest) -> list[SegmentEntry]:
    return sorted(manifest.segments, key=lambda entry: entry.low)


def _segment(
    path: Path,
    entry: SegmentEntry,
    manifest: Manifest,
    known: Mapping[str, SegmentFiles],
    cache: Cache,
) -> Segment:
    files = known.get(entry.name)
    if files is None or files.sha256 != entry.sha256:
        entities = entities_of(manifest)
        files = SegmentFiles(path / form.SEGMENTS / entry.name, entry.sha256, entities, cache)
    schemes = {name: each.direction for name, each in manifest.schemes.items()}
    return Segment(entry.name, files, schemes, load_tombstones(path, entry.tombstones))


def entities_of(manifest: Manifest) -> Mapping[str, str]:
    """The characters that records may name: those the corpus was labelled with."""
    given = manifest.options.get("entities")
    return given if isinstance(given, dict) else CHARACTER_ENTITIES


def _stamp(path: Path) -> Stamp | None:
    """What changes when a manifest is published; it is replaced, never written to."""
    return stamp_of(_manifest(path))


def _manifest(path: Path) -> bytes:
    return os.fsencode(path / form.MANIFEST)
