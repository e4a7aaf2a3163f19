"""The two JSON files that say what an index is made of.

`manifest.json` is the index: whoever reads it has a generation, and everything it names is there
and never changes. It carries its own checksum and those of the segments' `segment.json`, which
carry those of all other files. Both are canonical JSON, so that a value has one spelling.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.index import format as form
from fmware.index.errors import CorruptIndex, FormatMismatch, IndexMissing
from fmware.index.part import PartFile
from fmware.labeling.runs import Tag
from fmware.labeling.ses import Direction

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.files import Files

__all__ = [
    "Manifest",
    "RecordsPart",
    "SchemeEntry",
    "SegmentAbout",
    "SegmentEntry",
    "TagEntry",
    "Tombstones",
    "load_manifest",
    "load_segment",
    "load_tombstones",
    "now",
    "save_manifest",
]


@dataclass(frozen=True, slots=True)
class SchemeEntry:
    """A SES scheme: whose label contains the other's, and whether its `extra` is a tag."""

    direction: Direction
    extra_is_tag: bool


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The records of a segment that were removed: pairs of labels, in a file of their own."""

    file: str
    sha256: str
    removed: int


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment as the manifest has it; nodes and records count what was removed, too."""

    name: str
    sha256: str
    nodes: int
    records: int
    low: int
    high: int
    tombstones: Tombstones | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation of an index."""

    generation: int
    schemes: dict[str, SchemeEntry]
    identity: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    segments: tuple[SegmentEntry, ...] = ()
    next_label: int = 0
    next_segment: int = 1
    created: str = ""
    changed: str = ""

    def next(self, **changes: Any) -> Manifest:
        """The generation after this one."""
        return replace(self, generation=self.generation + 1, changed=now(), **changes)

    def pack(self) -> bytes:
        fields = asdict(self)
        fields["format"] = form.VERSION
        fields["schemes"] = [
            [name, each.direction.value, each.extra_is_tag] for name, each in self.schemes.items()
        ]
        fields["sha256"] = _digest(form.canonical(fields))
        return form.canonical(fields) + b"\n"

    @classmethod
    def unpack(cls, data: bytes, file: str) -> Manifest:
        fields = _checked(data, file)
        schemes = {
            name: SchemeEntry(Direction(direction), extra)
            for name, direction, extra in fields.pop("schemes")
        }
        segments = tuple(_segment_entry(each) for each in fields.pop("segments"))
        identity = tuple(fields.pop("identity"))
        return cls(schemes=schemes, segments=segments, identity=identity, **fields)


@dataclass(frozen=True, slots=True)
class TagEntry:
    """A tag of a segment; its number is its place. `file` is the number of its nodes' part.

    `depth` is how many of its nodes stand in each other at most: 1 where none does. Only a tag
    that is deeper has the column `up`. `keys` is the number of its identity keys.
    """

    tag: Tag
    nodes: int
    file: int
    depth: int
    keys: int


@dataclass(frozen=True, slots=True)
class RecordsPart:
    """A part of records, and the labels it covers: [low, high)."""

    file: int
    low: int
    high: int
    records: int


@dataclass(frozen=True, slots=True)
class SegmentAbout:
    """What `segment.json` says: what the segment holds, and what each file must be.

    The order of `schemes` is that of the label columns in `ad`.
    """

    schemes: tuple[str, ...]
    low: int
    high: int
    nodes: int
    records: int
    tags: tuple[TagEntry, ...]
    parts: tuple[RecordsPart, ...]
    files: dict[str, PartFile]

    def pack(self) -> bytes:
        fields = {
            "format": form.VERSION,
            "schemes": self.schemes,
            "low": self.low,
            "high": self.high,
            "nodes": self.nodes,
            "records": self.records,
            "tags": [
                [*each.tag, each.nodes, each.file, each.depth, each.keys] for each in self.tags
            ],
            "parts": [[each.file, each.low, each.high, each.records] for each in self.parts],
            "files": {name: each.to_json() for name, each in self.files.items()},
        }
        return form.canonical(fields) + b"\n"

    @classmethod
    def unpack(cls, data: bytes) -> SegmentAbout:
        fields = json.loads(data)
        return cls(
            tuple(fields["schemes"]),
            fields["low"],
            fields["high"],
            fields["nodes"],
            fields["records"],
            tuple(TagEntry(Tag(kind, name), *rest) for kind, name, *rest in fields["tags"]),
            tuple(RecordsPart(*each) for each in fields["parts"]),
            {name: PartFile.from_json(each) for name, each in fields["files"].items()},
        )


def load_manifest(index: Path) -> Manifest:
    """The current generation; IndexMissing, CorruptIndex or FormatMismatch if there is none."""
    file = index / form.MANIFEST
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise IndexMissing(str(index)) from None
    return Manifest.unpack(data, str(file))


def save_manifest(index: Path, manifest: Manifest, files: Files) -> None:
    """Publish a generation: whole on disk first, then by one rename, then durable by name."""
    made = index / f"{form.MANIFEST}.new"
    files.write(made, manifest.pack())
    files.rename(made, index / form.MANIFEST)
    files.fsync_directory(index)


def load_segment(folder: Path, sha256: str | None) -> SegmentAbout:
    """A segment's description, checked against the manifest's checksum (None: not yet in one)."""
    file = folder / form.SEGMENT
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise CorruptIndex(str(file), "is missing") from None
    if sha256 is not None and _digest(data) != sha256:
        raise CorruptIndex(str(file), "is not what the manifest says (sha256)")
    return SegmentAbout.unpack(data)


def load_tombstones(index: Path, tombstones: Tombstones | None) -> npt.NDArray[np.int64]:
    """The removed records of a segment, checked: rows of (start, end), sorted."""
    if tombstones is None:
        return np.empty((0, 2), np.int64)
    file = index / form.TOMBSTONES / tombstones.file
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise CorruptIndex(str(file), "is missing") from None
    if _digest(data) != tombstones.sha256 or len(data) != 16 * tombstones.removed:
        raise CorruptIndex(str(file), "is not what the manifest says (sha256)")
    return np.frombuffer(data, "<i8").reshape(-1, 2)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _segment_entry(fields: dict[str, Any]) -> SegmentEntry:
    tombstones = fields.pop("tombstones")
    return SegmentEntry(**fields, tombstones=Tombstones(**tombstones) if tombstones else None)


def _checked(data: bytes, file: str) -> dict[str, Any]:
    """The fields of a manifest, after its checksum and its version.

    The rule of the checksum is the same in all versions: a damaged version number is damage, not
    another version.
    """
    try:
        fields = json.loads(data)
        claimed = fields.pop("sha256")
        version = fields.pop("format")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise CorruptIndex(file, "is not a manifest") from None
    whole = {**fields, "format": version}
    if _digest(form.canonical(whole)) != claimed:
        raise CorruptIndex(file, "its checksum does not hold (sha256)")
    if version != form.VERSION:
        raise FormatMismatch(file, version, form.VERSION)
    if form.canonical({**whole, "sha256": claimed}) + b"\n" != data:
        raise CorruptIndex(file, "is not spelt as it was written")
    checked: dict[str, Any] = fields
    return checked


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
