"""The one who changes an index: adds segments, removes records, compacts, publishes.

A change is built in `building/`, made durable, checked, moved to its place, and then published by
renaming one file, the manifest. Up to that rename the index is what it was; after it, what it is to
be. What a writer that died has left behind is no part of the index, and the next writer removes
it. What a generation no longer needs is removed only when its manifest is durable.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fmware.index import format as form
from fmware.index import merge
from fmware.index.build import build
from fmware.index.errors import (
    BadRun,
    CorruptIndex,
    IndexClosed,
    IndexExists,
    IndexMissing,
    NoSuchNode,
    StoreError,
    WriteFailed,
)
from fmware.index.files import FILES, Files
from fmware.index.lock import Lock
from fmware.index.manifest import (
    Manifest,
    SchemeEntry,
    SegmentEntry,
    Tombstones,
    load_manifest,
    load_segment,
    load_tombstones,
    now,
    save_manifest,
)
from fmware.index.stored import StoredLists, StoredSegment, stretches
from fmware.index.verify import expect_sound
from fmware.labeling.mapper import local
from fmware.labeling.ses import scheme as scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from fmware.labeling.mapper import Mapper
    from fmware.labeling.ses import Scheme

    Progress = Callable[[str], None]

__all__ = ["Writer"]

Check = Literal["auto", "process", "here", "off"]

RUN_NODES = 8_000_000
"""Nodes of a segment that compaction takes at a time."""

CHECK_APART = 200_000
"""A segment with more nodes is checked in another process; fewer are checked here, at once."""

_log = logging.getLogger("fmware.index")


class Writer:
    """Changes an index. It holds the index's lock until it is closed; use it in a `with`.

    After an error the index is at the generation that `manifest` gives, and the writer goes on.
    """

    def __init__(self, path: str | Path, *, files: Files = FILES) -> None:
        self.path = Path(path)
        self._files = files
        if not (self.path / form.MANIFEST).exists():
            raise IndexMissing(str(self.path))
        with self._failing():
            self._lock = Lock(self.path)
        try:
            self._manifest = load_manifest(self.path)
            with self._failing():
                self._clean()
        except BaseException:
            self._lock.release()
            raise
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, *, files: Files = FILES) -> Self:
        """The writer of an index; IndexLocked while there is another."""
        return cls(path, files=files)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        schemes: Iterable[str | Scheme],
        identity: Sequence[str] = (),
        options: dict[str, Any] | None = None,
        files: Files = FILES,
    ) -> Self:
        """An index without nodes, and its writer. `options` are the caller's to make sense of."""
        folder = Path(path)
        entries = {
            each.name: SchemeEntry(each.direction, each.extra_is_tag)
            for each in map(scheme_of, schemes)
        }
        _check_free(folder)
        time = now()
        manifest = Manifest(
            1, entries, tuple(identity), dict(options or {}), created=time, changed=time
        )
        try:
            for name in (form.SEGMENTS, form.TOMBSTONES, form.BUILDING):
                files.mkdir(folder / name)
            files.fsync_directory(folder.parent)
            lock = Lock(folder)
            try:
                _check_free(folder)
                save_manifest(folder, manifest, files)
            finally:
                lock.release()
        except StoreError:
            raise
        except OSError as error:
            raise _failed(error, folder) from error
        return cls(folder, files=files)

    @property
    def manifest(self) -> Manifest:
        """The generation the index is at."""
        return self._manifest

    @property
    def next_label(self) -> int:
        """Where the labels of what is added next have to begin."""
        return self._manifest.next_label

    def append(
        self,
        runs: Sequence[merge.RunReference],
        *,
        high: int | None = None,
        mapper: Mapper = local,
        parts: int | None = None,
        progress: Progress | None = None,
        check: Check = "auto",
        without: npt.ArrayLike = (),
    ) -> Manifest:
        """Add runs as a new segment. Labels up to `high` count as taken, used or not.

        `without` are records that go in the same generation, as `remove` takes them.
        """
        ranges = np.asarray(without, np.int64).reshape(-1, 2)
        with self._changing():
            plan, surveys = self._plan(runs, mapper)
            low = surveys[0].low if surveys else self.next_label
            taken = max([low, *(each.high for each in surveys)])
            high = taken if high is None else high
            if low < self.next_label or high < taken:
                raise BadRun(
                    f"labels from {low} to {taken} do not lie in [{self.next_label}, {high}), "
                    f"where this index expects new ones"
                )
            entry = self._segment(plan, surveys, mapper, parts, progress, check)
            added = () if entry is None else (entry,)
            segments = (*self._less(ranges), *added)
            return self._publish(segments=segments, next_label=high)

    def remove(self, records: npt.ArrayLike) -> Manifest:
        """Remove records by the (start, end) of their roots; NoSuchNode if one is not there.

        Removing what was removed before changes nothing.
        """
        ranges = np.asarray(records, np.int64).reshape(-1, 2)
        with self._changing():
            segments = self._less(ranges)
            if segments == self._manifest.segments:
                return self._manifest
            return self._publish(segments=segments)

    def compact(
        self,
        *,
        mapper: Mapper = local,
        parts: int | None = None,
        progress: Progress | None = None,
        check: Check = "auto",
    ) -> Manifest:
        """Make one segment of all, without what was removed; labels stay as they are."""
        old = self._manifest.segments
        with self._changing():
            if not old or (len(old) == 1 and old[0].tombstones is None):
                return self._manifest
            runs = [run for entry in old for run in stretches(self._stored(entry), RUN_NODES)]
            plan, surveys = self._plan(runs, mapper)
            entry = self._segment(plan, surveys, mapper, parts, progress, check)
            return self._publish(segments=() if entry is None else (entry,))

    def replace(
        self,
        name: str,
        runs: Sequence[merge.RunReference],
        *,
        progress: Progress | None = None,
        check: Check = "auto",
    ) -> Manifest:
        """Put a new segment, of what runs hold, in the place of a segment and its tombstones.

        Labels of the runs must lie within those of the segment.
        """
        with self._changing():
            old = next(each for each in self._manifest.segments if each.name == name)
            plan, surveys = self._plan(runs, local)
            if surveys and not (old.low <= surveys[0].low and surveys[-1].high <= old.high):
                raise BadRun(f"labels of the runs are not within those of segment {name}")
            entry = self._segment(plan, surveys, local, None, progress, check)
            made = () if entry is None else (entry,)
            at = self._manifest.segments.index(old)
            kept = self._manifest.segments
            return self._publish(segments=(*kept[:at], *made, *kept[at + 1 :]))

    def close(self) -> None:
        self._closed = True
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Building

    def _plan(
        self, runs: Sequence[merge.RunReference], mapper: Mapper
    ) -> tuple[merge.Plan, list[merge.Survey]]:
        surveys = mapper(merge.survey, list(runs))
        for run, found in zip(runs, surveys, strict=True):
            if isinstance(run, StoredSegment):
                run.remember(found.counts)
        # A run may be empty: all of it rejected, or all of it removed.
        some = [i for i, each in enumerate(surveys) if any(each.counts)]
        order = sorted(some, key=lambda i: (surveys[i].low, surveys[i].high))
        surveys = [surveys[i] for i in order]
        for before, after in pairwise(surveys):
            if before.high > after.low:
                raise BadRun(f"runs share labels: one ends at {before.high}, one has {after.low}")
        expected = self._manifest.schemes
        for each in surveys:
            own = {
                name: SchemeEntry(direction, each.extra_is_tag[name])
                for name, direction in each.schemes.items()
            }
            if own != expected:
                raise BadRun(
                    f"the run at {each.low} has the schemes {', '.join(own) or 'none'}; "
                    f"this index has {', '.join(expected) or 'none'}"
                )
        folder = self.path / form.BUILDING / form.segment_name(self._manifest.next_segment)
        plan = merge.Plan(
            folder,
            tuple(runs[i] if not isinstance(runs[i], Path) else str(runs[i]) for i in order),
            tuple(merge.merge_vocabulary(surveys)),
            tuple(expected),
            {name: each.extra_is_tag for name, each in expected.items()},
            self._files,
        )
        return plan, surveys

    def _segment(
        self,
        plan: merge.Plan,
        surveys: Sequence[merge.Survey],
        mapper: Mapper,
        parts: int | None,
        progress: Progress | None,
        check: Check,
    ) -> SegmentEntry | None:
        """Build a segment and put it in its place, where nothing refers to it yet."""
        tell = progress or _nothing
        self._files.mkdir(plan.folder)
        about = build(plan, surveys, mapper, parts, tell)
        if not about.nodes and not about.records:
            self._files.remove_tree(plan.folder)
            return None
        data = about.pack()
        self._files.write(plan.folder / form.SEGMENT, data)
        for left in plan.folder.glob("*.npy"):
            left.unlink()
        self._files.fsync_directory(plan.folder)
        digest = hashlib.sha256(data).hexdigest()
        tell("verify")
        expect_sound(plan.folder, digest, apart=_apart(check, about.nodes))
        tell("publish")
        place = self.path / form.SEGMENTS / plan.folder.name
        self._files.rename(plan.folder, place)
        self._files.fsync_directory(place.parent)
        return SegmentEntry(place.name, digest, about.nodes, about.records, about.low, about.high)

    # Removing

    def _less(self, ranges: npt.NDArray[np.int64]) -> tuple[SegmentEntry, ...]:
        """All segments after records were removed; what is left of them is durable."""
        segments: list[SegmentEntry] = []
        found = 0
        for entry in self._manifest.segments:
            own = ranges[(ranges[:, 0] >= entry.low) & (ranges[:, 0] < entry.high)]
            found += len(own)
            segments += self._without(entry, own)
        if found < len(ranges):
            known = [(entry.low, entry.high) for entry in self._manifest.segments]
            lost = next(s for s in ranges[:, 0] if not any(a <= s < b for a, b in known))
            raise NoSuchNode(int(lost), "record")
        if tuple(segments) != self._manifest.segments:
            self._files.fsync_directory(self.path / form.TOMBSTONES)
        return tuple(segments)

    def _without(
        self, entry: SegmentEntry, ranges: npt.NDArray[np.int64]
    ) -> tuple[SegmentEntry, ...]:
        """A segment's entry after records were removed; none if no record is left."""
        if not len(ranges):
            return (entry,)
        before = load_tombstones(self.path, entry.tombstones)
        removed = np.unique(np.concatenate((before, ranges)), axis=0)
        if len(removed) == len(before):
            return (entry,)
        self._expect_records(entry, removed)
        if len(removed) == entry.records:
            return ()
        name = form.tombstones_file(self._manifest.generation + 1, entry.name)
        data = removed.astype("<i8").tobytes()
        self._files.write(self.path / form.TOMBSTONES / name, data)
        digest = hashlib.sha256(data).hexdigest()
        return (replace(entry, tombstones=Tombstones(name, digest, len(removed))),)

    def _expect_records(self, entry: SegmentEntry, ranges: npt.NDArray[np.int64]) -> None:
        """NoSuchNode unless all of these, which are sorted, are roots of records."""
        segment = self._stored(entry)
        for part in segment.about.parts:
            own = (ranges[:, 0] >= part.low) & (ranges[:, 0] < part.high)
            name = form.records_file(part.file)
            lists = StoredLists(segment.folder / name, segment.about.files[name])
            try:
                _expect_in(lists, ranges[own])
            finally:
                lists.close()
            ranges = ranges[~own]
        if len(ranges):
            raise NoSuchNode(int(ranges[0, 0]), "record")

    def _stored(self, entry: SegmentEntry) -> StoredSegment:
        folder = self.path / form.SEGMENTS / entry.name
        about = load_segment(folder, entry.sha256)
        removed = load_tombstones(self.path, entry.tombstones)
        schemes = self._manifest.schemes
        return StoredSegment(folder, about, schemes, removed, about.low, about.high)

    # Publishing

    def _publish(self, **changes: Any) -> Manifest:
        used = {entry.name for entry in changes.get("segments", ())}
        newest = max([int(name) for name in used], default=0)
        changes["next_segment"] = max(self._manifest.next_segment, newest + 1)
        manifest = self._manifest.next(**changes)
        save_manifest(self.path, manifest, self._files)
        self._manifest = manifest
        try:
            self._clean()
        except OSError as error:
            # The change is made and durable; what is left over costs room and nothing else.
            _log.warning("%s: %s was not removed; the next writer will", self.path, error)
        return manifest

    def _clean(self) -> None:
        """Remove what no manifest names."""
        segments = {entry.name for entry in self._manifest.segments}
        tombstones = {each.tombstones.file for each in self._manifest.segments if each.tombstones}
        left = [
            *_others(self.path / form.BUILDING, set()),
            *_others(self.path / form.SEGMENTS, segments),
            *_others(self.path / form.TOMBSTONES, tombstones),
            *self.path.glob(f"{form.MANIFEST}.new"),
        ]
        if not left:
            return
        # Whoever wrote the manifest may have died before its name was durable. Were it lost now,
        # the one before it would come back, and want what is about to be removed.
        self._files.fsync_directory(self.path)
        for each in left:
            remove = self._files.remove_tree if each.is_dir() else self._files.remove
            remove(each)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around every change: an error leaves an index at one generation, and a tidy writer."""
        if self._closed:
            raise IndexClosed(str(self.path))
        try:
            with self._failing():
                yield
        except BaseException:
            self._recover()
            raise

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except WriteFailed as error:
            raise WriteFailed(error.path, error.reason, _generation(self.path)) from error
        except StoreError:
            raise
        except OSError as error:
            raise _failed(error, self.path) from error

    def _recover(self) -> None:
        try:
            self._manifest = load_manifest(self.path)
            self._clean()
        except (OSError, StoreError) as error:
            _log.warning("%s: %s; this writer is closed", self.path, error)
            self.close()


def _expect_in(lists: StoredLists, ranges: npt.NDArray[np.int64]) -> None:
    directory = lists.directory(form.RECORDS, 0)
    if directory is None:
        raise CorruptIndex(str(lists.path), "has no list of records")
    at = np.searchsorted(directory.first, ranges[:, 0], side="right") - 1
    for block in np.unique(at).tolist():
        own = ranges[at == block]
        if block >= 0:
            found = next(lists.blocks(form.RECORDS, 0, form.RECORDS_SHAPE, block)).columns
            place = np.searchsorted(found["start"], own[:, 0])
            known = place < len(found["start"])
            known[known] = found["start"][place[known]] == own[known, 0]
            known[known] &= found["end"][place[known]] == own[known, 1]
            own = own[~known]
        if len(own):
            raise NoSuchNode(int(own[0, 0]), "record")


def _apart(check: Check, nodes: int) -> bool | None:
    """Whether to check in another process; None: not at all."""
    if check == "off":
        return None
    return check == "process" or (check == "auto" and nodes > CHECK_APART)


def _check_free(folder: Path) -> None:
    """IndexExists unless an index may be made here, be it after a creator that died.

    Whoever died after creating one, and before the first generation with anything in it, has left
    an index that nobody has put anything into.
    """
    if (folder / form.MANIFEST).exists() and load_manifest(folder).generation > 1:
        raise IndexExists(str(folder), "an index")
    if folder.exists() and not folder.is_dir():
        raise IndexExists(str(folder), "a file")
    ours = {form.SEGMENTS, form.TOMBSTONES, form.BUILDING, form.REJECTS, form.LOCK}
    ours |= {form.MANIFEST, f"{form.MANIFEST}.new"}
    for each in folder.iterdir() if folder.exists() else ():
        if each.name not in ours:
            raise IndexExists(str(folder), f"files that are no index's ({each.name})")


def _others(folder: Path, named: set[str]) -> list[Path]:
    return [each for each in folder.iterdir() if each.name not in named] if folder.is_dir() else []


def _failed(error: OSError, path: Path) -> WriteFailed:
    name = error.filename if isinstance(error.filename, str) else str(path)
    return WriteFailed(name, error.strerror or str(error), _generation(path))


def _generation(path: Path) -> int | None:
    """The generation an index is at, to be told in an error: another error does not help."""
    try:
        return load_manifest(path).generation
    except (OSError, StoreError):
        return None


def _nothing(step: str) -> None:
    """No one wants to know."""
