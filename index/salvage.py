"""What is left of a damaged file of a segment: its blocks that are as they were written.

The tree of a damaged LMDB file cannot be trusted to lead to its values, so none is followed. All
pages are looked at, one after the other. A leaf says where values lie and how long they are; a run
of overflow pages says that one begins there. Whatever is found counts only if a checksum says so:
that of a directory, which has one of its own, or those of the pieces of the file that it lies in.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import zstandard

from fmware.index import format as form
from fmware.index.part import PIECE
from fmware.index.stored import decompressed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fmware.index.part import PartFile

__all__ = ["Salvage", "SalvagedRecords"]

PAGE = 4096
"""LMDB's page size, where no one is left to say so."""
_HEADER = struct.Struct("<QHHHH")
_RUN = struct.Struct("<QHHI")
_NODE = struct.Struct("<HHHH")
_LEAF, _OVERFLOW = 2, 4
_BIG = 1
_LARGEST = 1 << 31
MOST_LINES = 1 << 20
"""Lines of a list that are looked for: a segment has few contexts and sources."""


class _Place(NamedTuple):
    """Where a value may lie; if it is not `exact`, `size` is the most it has."""

    at: int
    size: int
    exact: bool = True


@dataclass(slots=True)
class SalvagedRecords:
    """Where the record blocks of a file that are whole lie, by the label of their first record.

    `lost` has of each block that is not whole its first label and how many records it had. If no
    directory of the file is left, there may have been blocks that are in neither.
    """

    blocks: dict[int, tuple[int, int]] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)


class Salvage:
    """A file that may be damaged in any way; bytes that cannot be read are as good as damaged.

    `about` is what segment.json says of it, if that is left.
    """

    def __init__(self, path: Path, about: PartFile | None) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = os.fstat(self._handle).st_size
        self._page = about.page if about is not None else PAGE
        self._pieces = about.pieces if about is not None else ()
        self._whole: dict[int, bool] = {}
        self._places = {place.at: place for place in self._found()}
        self._directories = [*self._read_directories()]
        self._crcs = {
            pair
            for each in self._directories
            for pair in zip(each.first.tolist(), each.crc.tolist(), strict=True)
        }

    def close(self) -> None:
        os.close(self._handle)

    # --- what it holds --------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The lines of all lists of text in it, in any order."""
        for place in self._places.values():
            if not place.exact:
                continue
            data = self._read(place.at, place.size)
            try:
                block = form.LINES_SHAPE.unpack(data)
                lines = bytes(block.tail).decode().split("\n")
            except (ValueError, struct.error):
                continue
            # Lists of more lines than one block has are cut at multiples of its rows.
            firsts = range(0, MOST_LINES, form.LINE_ROWS)
            if len(lines) == block.rows and self._holds(place.at, data, firsts):
                yield from lines

    def records(self) -> SalvagedRecords:
        """The blocks of records; all of them are read, and none is kept."""
        found = SalvagedRecords()
        for place in self._places.values():
            data = self._record_block(place)
            if data is not None:
                start = form.RECORDS_SHAPE.unpack(data).columns["start"]
                found.blocks[int(start[0])] = (place.at, len(data))
        own = [each for each in self._directories if self._is_of(each, found)]
        for directory in own[:1]:
            rows = (directory.begin[1:] - directory.begin[:-1]).tolist()
            expected = dict(zip(directory.first.tolist(), rows, strict=True))
            found.lost = {low: expected[low] for low in expected if low not in found.blocks}
        return found

    def _is_of(self, directory: form.Directory, found: SalvagedRecords) -> bool:
        """Whether a directory is that of the records; those of lines number their blocks."""
        if any(first in found.blocks for first in directory.first.tolist()):
            return True
        # No block is left: lines have few, which begin with their ordinals.
        return not found.blocks and (directory.first != directory.begin[:-1]).any()

    def block(self, at: int, size: int) -> tuple[form.Block, bytes]:
        """A block of records that was found, and the bytes of its records."""
        block = form.RECORDS_SHAPE.unpack(self._read(at, size))
        return block, decompressed(block)

    # --- values ---------------------------------------------------------------------------------

    def _record_block(self, place: _Place) -> bytes | None:
        data = self._read(place.at, place.size)
        try:
            if not place.exact:
                data = _cut(data)
            block = form.RECORDS_SHAPE.unpack(data)
            # Lines and directories hold, too, and are no records.
            offset = block.columns["offset"]
            if not block.rows or offset[0] != 0 or (offset[1:] < offset[:-1]).any():
                return None
            if not self._holds(place.at, data, [int(block.columns["start"][0])]):
                return None
            decompressed(block)
        except (ValueError, struct.error, zstandard.ZstdError, MemoryError):
            return None
        return data

    def _read_directories(self) -> Iterator[form.Directory]:
        for place in self._places.values():
            head = self._read(place.at, 16)
            if len(head) < 16 or int.from_bytes(head[:4], "little") != form.MAGIC:
                continue
            size = 24 + 20 * int.from_bytes(head[8:16], "little")
            if size > place.size:
                continue
            try:
                yield form.Directory.unpack(self._read(place.at, size))
            except ValueError:
                continue

    def _holds(self, at: int, data: bytes, firsts: Iterable[int]) -> bool:
        """Whether a checksum says that a value, which begins a block like these, was written."""
        crc = zlib.crc32(data)
        if any((first, crc) in self._crcs for first in firsts):
            return True
        pieces = range(at // PIECE, (at + max(len(data), 1) - 1) // PIECE + 1)
        return bool(self._pieces) and all(map(self._piece_holds, pieces))

    def _piece_holds(self, number: int) -> bool:
        found = self._whole.get(number)
        if found is None:
            data = self._read(number * PIECE, PIECE)
            found = number < len(self._pieces) and zlib.crc32(data) == self._pieces[number]
            self._whole[number] = found
        return found

    # --- pages ----------------------------------------------------------------------------------

    def _found(self) -> Iterator[_Place]:
        """Places of values; where leaves know of one, they know best."""
        exact: dict[int, _Place] = {}
        rough: list[_Place] = []
        number, last = 2, self._size // self._page
        while number < last:
            head = self._read(number * self._page, 16)
            step = 1
            if len(head) == 16:
                named, _, flags, count = _RUN.unpack(head)
                if named == number and flags & _OVERFLOW and 0 < count <= last - number:
                    size = count * self._page - 16
                    rough.append(_Place(number * self._page + 16, size, exact=False))
                    step = count
                elif named == number and flags & _LEAF:
                    exact |= {place.at: place for place in self._leaf(number)}
            number += step
        yield from rough
        yield from exact.values()

    def _leaf(self, number: int) -> Iterator[_Place]:
        start = number * self._page
        page = self._read(start, self._page)
        if len(page) < self._page:
            return
        lower = min(_HEADER.unpack_from(page)[3], self._page)
        for slot in range(16, lower - 1, 2):
            (node,) = struct.unpack_from("<H", page, slot)
            if not 16 <= node <= self._page - 8:
                continue
            low, high, flags, key = _NODE.unpack_from(page, node)
            size, at = low | high << 16, node + 8 + key
            if flags & _BIG:
                if at + 8 > self._page or size > _LARGEST:
                    continue
                at = int.from_bytes(page[at : at + 8], "little") * self._page + 16
                if at + size <= self._size:
                    yield _Place(at, size)
            elif at + size <= self._page:
                yield _Place(start + at, size)

    def _read(self, at: int, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            try:
                data = os.pread(self._handle, size, at)
            except OSError:
                break
            if not data:
                break
            parts.append(data)
            at += len(data)
            size -= len(data)
        return b"".join(parts)


def _cut(data: bytes) -> bytes:
    """A block of records without what lies behind it on its last page."""
    block = form.RECORDS_SHAPE.unpack(data)
    begin = len(data) - len(block.tail)
    frame = zstandard.ZstdDecompressor().decompressobj()
    frame.decompress(block.tail)
    if not frame.eof:
        raise ValueError("a frame that does not end")
    return data[: len(data) - len(frame.unused_data)] if begin else data
