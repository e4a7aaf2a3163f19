"""Files of the match log: records one after the other, with what is needed to find them again.

A segment is a file named after the position of its first hit. A record holds the hits of a message:
a head of four numbers (a checksum of all that follows, how many hits there are, the bytes of their
names and of their lines) and these two columns, see `hits`. A hit has the position of the segment
and however many hits there are before it. What a crash left half written at the end fails its
checksum, and is cut off when the segment is opened again.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from fmware.service.hits import END, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fmware.service.hits import Hits, Name

__all__ = ["Entry", "Segment", "entries_of", "packed", "segments_of"]

CHECK: Final = struct.Struct("<I")
SIZES: Final = struct.Struct("<III")
HEAD: Final = CHECK.size + SIZES.size
EVERY: Final = 128
"""Hits from one known offset to the next, at least."""
CHUNK: Final = 1 << 18
JOINED: Final = 1 << 20
"""Bytes of records that are written with one call."""
SUFFIX: Final = ".hits"


@dataclass(slots=True)
class Entry:
    """A hit in the log: its position, whose it is, and its JSON."""

    position: int
    tenant: str
    statement: str
    body: bytes

    @property
    def line(self) -> bytes:
        """The JSON with its position in front."""
        return b'{"position":%d,%b' % (self.position, self.body[1:])

    def suits(self, tenant: str, statement: str | None) -> bool:
        """Whether a reader of a tenant, or of one of its statements, is to see it."""
        return self.tenant == tenant and statement in (None, self.statement)


def entries_of(position: int, names: Sequence[Name], lines: Sequence[bytes]) -> Iterator[Entry]:
    """The hits of a message, of which the first has a position."""
    for (tenant, statement), line in zip(names, lines, strict=True):
        yield Entry(position, tenant, statement, line)
        position += 1


def packed(hits: Hits) -> bytes:
    """The hits of a message as they lie in the file."""
    sizes = SIZES.pack(len(hits), hits.cut, len(hits.body) - hits.cut)
    return CHECK.pack(crc32(hits.body, crc32(sizes))) + sizes + hits.body


class Record(NamedTuple):
    """A record where it lies in its file: the hits from a position on, and its bytes."""

    position: int
    hits: int
    begin: int
    end: int
    names: bytes
    lines: bytes

    def entries(self) -> Iterator[Entry]:
        """Its hits."""
        names = [name_of(label) for label in self.names.split(END)]
        return entries_of(self.position, names, self.lines.split(END))


class Segment:
    """One file: appended to by one thread, read by any."""

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.count = 0
        self.size = 0
        # Some records, by the position of their first hit: where a reader begins.
        self._positions = array("Q")
        self._offsets = array("Q")
        self._file: int | None = None

    @classmethod
    def create(cls, folder: Path, first: int) -> Segment:
        """An empty one, which is there after a crash of the machine, too."""
        path = folder / f"{first:020d}{SUFFIX}"
        path.touch(mode=0o600)
        _sync(folder)
        return cls(path, first)

    @classmethod
    def open(cls, path: Path) -> Segment:
        """One that is there; what is broken at its end is cut off."""
        segment = cls(path, int(path.stem))
        size = path.stat().st_size
        for record in segment._scan(0, segment.first, size):
            segment._note(record.hits, record.end - record.begin)
        if segment.size < size:
            os.truncate(path, segment.size)
        return segment

    @property
    def last(self) -> int:
        """The position of the last hit; one before the first if there is none."""
        return self.first + self.count - 1

    def append(self, hits: Sequence[Hits], *, sync: bool) -> None:
        """Write hits, all of them or none that counts. The file stays open until `close`."""
        records = [packed(each) for each in hits]
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY)
        try:
            at = self.size
            for some in _pieces(records):
                _write(self._file, some, at)
                at += len(some)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        for each, record in zip(hits, records, strict=True):
            self._note(len(each), len(record))

    def close(self) -> None:
        """Let go of the file; it can still be read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _note(self, count: int, size: int) -> None:
        """Note that there is one more record, with its number of hits and bytes."""
        position = self.first + self.count
        if not self._positions or position - self._positions[-1] >= EVERY:
            self._offsets.append(self.size)
            self._positions.append(position)
        self.count += count
        self.size += size

    def after(self, position: int) -> Iterator[Entry]:
        """The hits behind a position, as far as they are written now."""
        if not self.count or position >= self.last:
            return
        known = max(bisect_right(self._positions, position + 1) - 1, 0)
        for record in self._scan(self._offsets[known], self._positions[known], self.size):
            if record.position + record.hits - 1 > position:
                for entry in record.entries():
                    if entry.position > position:
                        yield entry

    def _scan(self, offset: int, position: int, size: int) -> Iterator[Record]:
        """Whole records from an offset on, in a file of `size` bytes."""
        with self.path.open("rb", buffering=CHUNK) as file:
            file.seek(offset)
            while (record := _record(file, offset, position, size)) is not None:
                yield record
                offset = record.end
                position += record.hits


def _pieces(records: Sequence[bytes]) -> Iterator[bytes]:
    """Records joined, as long as that is cheap."""
    held: list[bytes] = []
    size = 0
    for record in records:
        if held and size + len(record) > JOINED:
            yield b"".join(held)
            held, size = [], 0
        held.append(record)
        size += len(record)
    if held:
        yield b"".join(held) if len(held) > 1 else held[0]


def _record(file: IO[bytes], begin: int, position: int, size: int) -> Record | None:
    """The next record of a file; None if it is not whole."""
    head = file.read(HEAD)
    if len(head) < HEAD:
        return None
    count, names, lines = SIZES.unpack_from(head, CHECK.size)
    end = begin + HEAD + names + lines
    if end > size:
        return None
    body = file.read(names + lines)
    if CHECK.pack(crc32(body, crc32(head[CHECK.size :]))) != head[: CHECK.size]:
        return None
    return Record(position, count, begin, end, body[:names], body[names:])


def segments_of(folder: Path) -> list[Segment]:
    """The segments of a log, in order."""
    return [Segment.open(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view, at = view[written:], at + written


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
