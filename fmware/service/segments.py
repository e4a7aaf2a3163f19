"""Files of the match log: records one after the other, with what is needed to find them again.

A segment is a file named after the position of its first record. A record is a head of four
numbers (a checksum, the lengths of its two names and of its body) and these three; its position is
that of the first record and how many there are before it. What a crash left half written at the
end fails its checksum, and is cut off when the segment is opened again.
"""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from fmware.service.envelope import Hit

__all__ = ["Entry", "Segment", "packed", "segments_of"]

HEAD: Final = struct.Struct("<IHHI")
EVERY: Final = 128
"""Records from one known offset to the next."""
CHUNK: Final = 1 << 18
SUFFIX: Final = ".log"


@dataclass(slots=True)
class Entry:
    """A record: the position, whose it is, and the JSON of a hit."""

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


def packed(hits: Iterable[Hit]) -> list[bytes]:
    """Records as they lie in the file."""
    names: dict[tuple[str, str], tuple[bytes, int, int]] = {}
    records = []
    for hit in hits:
        key = hit.tenant, hit.statement
        known = names.get(key)
        if known is None:
            whose, what = key[0].encode(), key[1].encode()
            known = names[key] = whose + what, len(whose), len(what)
        named, tenant, statement = known
        body = hit.line()
        rest = named + body
        records.append(HEAD.pack(crc32(rest), tenant, statement, len(body)) + rest)
    return records


class Segment:
    """One file: appended to by one thread, read by any."""

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.first = first
        self.count = 0
        self.size = 0
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
        whole = 0
        for _, offset, end in segment._scan(0):
            segment._note(offset)
            segment.count += 1
            whole = end
        if whole < path.stat().st_size:
            os.truncate(path, whole)
        segment.size = whole
        return segment

    @property
    def last(self) -> int:
        """The position of the last record; one before the first if there is none."""
        return self.first + self.count - 1

    def append(self, records: Sequence[bytes], *, sync: bool) -> None:
        """Write records, all of them or none that counts. The file stays open until `close`."""
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY)
        try:
            _write(self._file, b"".join(records), self.size)
            if sync:
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        at, count = self.size, self.count
        for record in records:
            if count % EVERY == 0:
                self._offsets.append(at)
            count += 1
            at += len(record)
        self.count, self.size = count, at

    def close(self) -> None:
        """Let go of the file; it can still be read."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _note(self, offset: int) -> None:
        if self.count % EVERY == 0:
            self._offsets.append(offset)

    def after(self, position: int) -> Iterator[Entry]:
        """The records behind a position, as far as they are written now."""
        skip = max(position + 1 - self.first, 0)
        if skip >= self.count:
            return
        known = skip // EVERY
        at = self.first + known * EVERY
        for number, (entry, _, _) in enumerate(self._scan(self._offsets[known], at, self.size)):
            if number + at > position:
                yield entry

    def _scan(
        self, offset: int, position: int | None = None, size: int | None = None
    ) -> Iterator[tuple[Entry, int, int]]:
        """Whole records from an offset on, with where they begin and end."""
        position = self.first if position is None else position
        held = b""
        with self.path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                held += chunk
                at = 0
                while (found := _record(held, at, position)) is not None:
                    entry, end = found
                    if size is not None and offset + at >= size:
                        return
                    yield entry, offset + at, offset + end
                    at = end
                    position += 1
                held = held[at:]
                offset += at


def _record(data: bytes, at: int, position: int) -> tuple[Entry, int] | None:
    """The record at an offset and where it ends; None if it is not whole."""
    if len(data) < at + HEAD.size:
        return None
    check, tenant, statement, body = HEAD.unpack_from(data, at)
    begin = at + HEAD.size
    end = begin + tenant + statement + body
    if len(data) < end or crc32(data[begin:end]) != check:
        return None
    names = begin + tenant, begin + tenant + statement
    return Entry(
        position,
        data[begin : names[0]].decode(),
        data[names[0] : names[1]].decode(),
        data[names[1] : end],
    ), end


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
