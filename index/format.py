"""The bytes of an index: constants, directories of lists, and the columns of their blocks.

FORMAT.md tells the whole; here is what the write side and the read side share. Everything is
little-endian, but for the keys, which LMDB sorts as bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fmware.labeling.runs import Context, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]

VERSION: Final = 2

MAGIC: Final = 0x31444D46
NONE: Final = 0xFFFFFFFF
"""In a column of rows: no row."""

HAS_UP: Final = 1
"""Flag of an `ad` block: it ends with the column `up`."""

AD: Final = "ad"
IDENTITY: Final = "identity"
VALUES: Final = "values"
RECORDS: Final = "records"
RECORDS_COPY: Final = "records.copy"
"""The directory of the records again: without one, it is not known which of them are whole."""
CONTEXTS: Final = "contexts"
SOURCES: Final = "sources"
STATISTICS: Final = "statistics"

# Not 4096: with its header, and LMDB's, such a block would begin one page more.
AD_ROWS: Final = 4080
SES_ROWS: Final = 4080
LABEL_ROWS: Final = 4080
IDENTITY_ROWS: Final = 2048
VALUE_ROWS: Final = 4080
TRIE_ROWS: Final = 65536
LINE_ROWS: Final = 4096
IDENTITY_BYTES: Final = 1 << 20
"""An `identity` block also ends before its keys would take more than this, if it has rows."""

VALUE_BYTES: Final = 1 << 16
"""A `values` block also ends before its texts would take more than this, if it has rows: whoever
touches it first reads all of it, for its checksum."""
VALUE_PLACE: Final = (1 << 29) - 1
"""The bits of an offset in a `values` block that say where; the three above them are the mark."""
VALUE_MARK: Final = 29

SPAN: Final = 1 << 32
"""A label's length, and its distance from its block's base, stay below this."""

MANIFEST: Final = "manifest.json"
LOCK: Final = "writer.lock"
SEGMENTS: Final = "segments"
TOMBSTONES: Final = "tombstones"
BUILDING: Final = "building"
REJECTS: Final = "rejects"
SEGMENT: Final = "segment.json"
META: Final = "meta.mdb"


def ses(scheme: str) -> str:
    """The database of a scheme's postings."""
    return f"ses.{scheme}"


def labels(scheme: str) -> str:
    """The database of a scheme's labels."""
    return f"labels.{scheme}"


def trie(scheme: str) -> str:
    """The database of a scheme's trie."""
    return f"trie.{scheme}"


def nodes_file(number: int) -> str:
    return f"nodes-{number:03d}.mdb"


def records_file(number: int) -> str:
    return f"records-{number:03d}.mdb"


def segment_name(number: int) -> str:
    return f"{number:08d}"


def tombstones_file(generation: int, segment: str) -> str:
    return f"{generation:08d}-{segment}.bin"


_NUMBER = struct.Struct(">I")
_BLOCK = struct.Struct(">II")


def directory_key(number: int) -> bytes:
    return _NUMBER.pack(number)


def block_key(number: int, block: int) -> bytes:
    return _BLOCK.pack(number, block)


_DIRECTORY = struct.Struct("<IIQ")


@dataclass(slots=True)
class Directory:
    """Where the blocks of a list begin, and their checksums.

    `first` is the value by which the list is sorted, of each block's first row; `begin` has the
    ordinal of that row, and one more: the number of rows; `crc` is zlib.crc32 of each block.
    """

    first: npt.NDArray[np.uint64]
    begin: npt.NDArray[np.uint64]
    crc: npt.NDArray[np.uint32]

    @property
    def blocks(self) -> int:
        return len(self.crc)

    @property
    def rows(self) -> int:
        return int(self.begin[-1])

    def pack(self) -> bytes:
        rest = (
            self.blocks.to_bytes(8, "little")
            + self.first.astype("<u8", copy=False).tobytes()
            + self.begin.astype("<u8", copy=False).tobytes()
            + self.crc.astype("<u4", copy=False).tobytes()
        )
        return struct.pack("<II", MAGIC, zlib.crc32(rest)) + rest

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Directory:
        """ValueError, with the reason, where the bytes are not a directory's."""
        if len(data) < _DIRECTORY.size:
            raise ValueError(f"a directory of {len(data)} bytes")
        magic, crc, blocks = _DIRECTORY.unpack_from(data)
        if magic != MAGIC:
            raise ValueError(f"a directory that begins with {magic:#010x}, not {MAGIC:#010x}")
        if zlib.crc32(memoryview(data)[8:]) != crc:
            raise ValueError("the checksum of a directory does not hold")
        if len(data) != _DIRECTORY.size + 8 + 20 * blocks:
            raise ValueError(f"a directory of {len(data)} bytes for {blocks} blocks")
        # Copied: leaf pages do not align their values, and directories outlive transactions.
        rest = bytes(memoryview(data)[_DIRECTORY.size :])
        first = np.frombuffer(rest, "<u8", blocks)
        begin = np.frombuffer(rest, "<u8", blocks + 1, 8 * blocks)
        checks = np.frombuffer(rest, "<u4", blocks, 16 * blocks + 8)
        return cls(first, begin, checks)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a block: `more` is 1 where it has one value more than there are rows."""

    name: str
    dtype: np.dtype[Any]
    more: int = 0


@dataclass(slots=True)
class Block:
    """A block taken apart without copying: its columns look into the bytes given."""

    rows: int
    head: tuple[int, ...]
    columns: dict[str, Array]
    tail: memoryview


@dataclass(frozen=True, slots=True)
class Shape:
    """How a block lies: u64 rows, the scalars of `head`, the columns, then bytes of any length.

    Each of these begins at a multiple of 8, with zeros in between.
    """

    columns: tuple[Column, ...]
    head: str = "<"

    def offsets(self, rows: int) -> list[int]:
        """Where each column begins; last, where the tail does."""
        at = 8 + padded(struct.calcsize(self.head))
        found = [at]
        for column in self.columns:
            at += padded(column.dtype.itemsize * (rows + column.more))
            found.append(at)
        return found

    def pack(
        self, columns: Sequence[Array], *, rows: int, head: Sequence[int] = (), tail: bytes = b""
    ) -> bytearray:
        """A block's bytes; the columns are in the shape's order and are cast to its types."""
        offsets = self.offsets(rows)
        data = bytearray(offsets[-1] + len(tail))
        struct.pack_into("<Q", data, 0, rows)
        struct.pack_into(self.head, data, 8, *head)
        for column, offset, values in zip(self.columns, offsets, columns, strict=False):
            into = np.frombuffer(data, column.dtype, rows + column.more, offset)
            np.copyto(into, values, casting="unsafe")
        data[offsets[-1] :] = tail
        return data

    def unpack(self, data: bytes | bytearray | memoryview) -> Block:
        """ValueError, with the reason, where the bytes cannot be such a block."""
        if len(data) < 8:
            raise ValueError(f"a block of {len(data)} bytes")
        rows = int.from_bytes(data[:8], "little")
        if rows > len(data) and self.columns:
            raise ValueError(f"a block of {len(data)} bytes that would have {rows} rows")
        offsets = self.offsets(rows)
        if offsets[-1] > len(data):
            raise ValueError(f"a block of {len(data)} bytes where {rows} rows take {offsets[-1]}")
        head = struct.unpack_from(self.head, data, 8)
        columns = {
            column.name: np.frombuffer(data, column.dtype, rows + column.more, offset)
            for column, offset in zip(self.columns, offsets, strict=False)
        }
        return Block(rows, head, columns, memoryview(data)[offsets[-1] :])


def padded(size: int) -> int:
    return (size + 7) & ~7


_U16 = np.dtype("<u2")
_U32 = np.dtype("<u4")
_U64 = np.dtype("<u8")
_I64 = np.dtype("<i8")


def ad_shape(schemes: int, *, up: bool) -> Shape:
    """`ad`: start less the base, end less start, level, a label row a scheme, and maybe `up`.

    The head is (base, number of schemes, flags). Columns of label rows are named label0, label1,
    in the order of the segment's schemes.
    """
    columns = [Column("start", _U32), Column("length", _U32), Column("level", _U16)]
    columns += [Column(f"label{each}", _U32) for each in range(schemes)]
    if up:
        columns.append(Column("up", _U32))
    return Shape(tuple(columns), "<QHH")


def ad_shape_of(data: bytes | bytearray | memoryview) -> Shape:
    """The shape that an `ad` block says it has."""
    if len(data) < 24:
        raise ValueError(f"a block of {len(data)} bytes")
    schemes, flags = struct.unpack_from("<HH", data, 16)
    return ad_shape(schemes, up=bool(flags & HAS_UP))


SES_SHAPE: Final = Shape((Column("start", _I64), Column("length", _U32), Column("level", _U16)))
LABEL_SHAPE: Final = Shape(
    (
        Column("rank", _U32),
        Column("last", _U32),
        Column("up", _U32),
        Column("count", _U32),
        Column("begin", _U64),
    )
)
IDENTITY_SHAPE: Final = Shape(
    (Column("hash", _U64), Column("row", _U32), Column("offset", _U32, more=1))
)
VALUES_SHAPE: Final = Shape((Column("offset", _U32, more=1),))
TRIE_SHAPE: Final = Shape((Column("tag", _U32), Column("extra", _U32), Column("size", _U32)))
RECORDS_SHAPE: Final = Shape(
    (
        Column("start", _I64),
        Column("end", _I64),
        Column("level", _U16),
        Column("offset", _I64, more=1),
    ),
    "<Q",
)
LINES_SHAPE: Final = Shape(())
"""Contexts, sources, statistics: lines of JSON are the tail, and rows are lines."""


def pack_contexts(contexts: Mapping[int, Context]) -> list[str]:
    """Lines of JSON. A context names its number: parts of records number theirs apart."""
    return [
        _line(
            {
                "number": number,
                "declaration": context.declaration.decode("latin-1"),
                "doctype": context.doctype.decode("latin-1"),
                "namespaces": context.namespaces.decode("latin-1"),
                "document": context.document,
            }
        )
        for number, context in contexts.items()
    ]


def unpack_contexts(lines: Iterable[str]) -> dict[int, Context]:
    """Contexts by the number that blocks of records give."""
    found = {}
    for line in lines:
        fields = json.loads(line)
        found[int(fields["number"])] = Context(
            fields["declaration"].encode("latin-1"),
            fields["doctype"].encode("latin-1"),
            fields["namespaces"].encode("latin-1"),
            bool(fields["document"]),
        )
    return found


def pack_sources(sources: Iterable[Source]) -> list[str]:
    return [_line([each.name, each.base, each.size]) for each in sources]


def unpack_sources(lines: Iterable[str]) -> list[Source]:
    return [Source(*json.loads(line)) for line in lines]


def canonical(value: object) -> bytes:
    """JSON with one spelling, so that its checksum is the value's."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _line(value: object) -> str:
    return canonical(value).decode()
