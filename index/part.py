"""A part: one LMDB file of a segment, as it is being built, and what is told of it afterwards.

Parts are written once, by one process, in key order, without locks and without syncing, and are
made durable when they are closed. Nothing is ever deleted or overwritten in them, so a page that
begins an overflow run (a value of more than half a page) keeps beginning it, and walking from
header to header finds all pages of the tree. These have a checksum of their own, which a reader
takes before LMDB follows a pointer in them.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import lmdb

from fmware.index.errors import WriteFailed
from fmware.index.files import FILES, Files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = [
    "MAX_DATABASES",
    "PIECE",
    "PartFile",
    "PartWriter",
    "describe",
    "tree_checksum",
    "tree_pages",
]

MAX_DATABASES = 64
"""Named databases a part may have; two a scheme, and a few."""

PIECE = 1 << 20
"""Bytes of a file that have a checksum of their own: damage is found, and placed, by the piece."""

TRANSACTION = 32 << 20
_HEADER = struct.Struct("<QHHI")
_OVERFLOW = 0x04


@dataclass(frozen=True, slots=True)
class PartFile:
    """What segment.json says of a part.

    `tree` is first page and number of pages, again and again; `stores` is how many bytes the
    values of each database take; `pieces` has the CRC-32 of every `PIECE` bytes. A file that was
    written before there were pieces has none, and only its `sha256` covers all of it.
    """

    bytes: int
    sha256: str
    page: int
    tree: tuple[int, ...]
    tree_crc: int
    stores: dict[str, int]
    pieces: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> PartFile:
        return cls(
            fields["bytes"],
            fields["sha256"],
            fields["page"],
            tuple(fields["tree"]),
            fields["tree_crc"],
            fields["stores"],
            tuple(fields.get("pieces", ())),
        )


class PartWriter:
    """An LMDB environment being filled. Left by an exception, its file is not to be used."""

    def __init__(self, path: Path, files: Files = FILES) -> None:
        self.path = path
        self._files = files
        self._stores: dict[str, int] = {}
        self._databases: dict[str, Any] = {}
        self._pending = 0
        # A mapper may call again what was called before: what is there is not ours.
        path.unlink(missing_ok=True)
        self._size = 4 * TRANSACTION
        try:
            self._environment = lmdb.open(
                str(path),
                subdir=False,
                lock=False,
                sync=False,
                metasync=False,
                map_size=self._size,
                max_dbs=MAX_DATABASES,
                mode=0o644,
            )
            self._transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise WriteFailed(str(path), str(error)) from error

    @property
    def stores(self) -> dict[str, int]:
        """How many bytes the values of each database take so far."""
        return dict(self._stores)

    def put(
        self, database: str, key: bytes, value: bytes | bytearray, *, append: bool = True
    ) -> None:
        """Put a value; with `append`, the key comes after all others of its database."""
        size = len(value)
        if self._pending + size > TRANSACTION:
            self._commit(size)
        try:
            handle = self._databases.get(database)
            if handle is None:
                handle = self._environment.open_db(database.encode(), txn=self._transaction)
                self._databases[database] = handle
            if not self._transaction.put(key, value, db=handle, append=append, overwrite=False):
                raise AssertionError(f"{self.path.name}: {database} has {key.hex()} twice")
        except lmdb.Error as error:
            raise WriteFailed(str(self.path), str(error)) from error
        self._pending += size
        self._stores[database] = self._stores.get(database, 0) + size

    def _commit(self, size: int) -> None:
        """Begin a new transaction with room for a full one, and for a value of `size`."""
        try:
            self._files.commit(self._transaction, self.path)
            page = self._environment.stat()["psize"]
            used = (self._environment.info()["last_pgno"] + 1) * page
            # A value a little over half a page takes a whole one: twice is the worst, and the
            # tree's own pages are few beside it.
            needed = used + 4 * TRANSACTION + 2 * size
            if needed > self._size:
                self._size = max(2 * self._size, needed)
                self._environment.set_mapsize(self._size)
            self._transaction = self._environment.begin(write=True)
        except lmdb.Error as error:
            raise WriteFailed(str(self.path), str(error)) from error
        self._pending = 0

    def close(self) -> PartFile:
        """Make the file durable and tell of it; its directory is the caller's to sync."""
        try:
            self._files.commit(self._transaction, self.path)
            self._files.sync(self._environment, self.path)
        except lmdb.Error as error:
            raise WriteFailed(str(self.path), str(error)) from error
        finally:
            self._environment.close()
        return describe(self.path, self._stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._environment.close()


def describe(path: Path, stores: dict[str, int]) -> PartFile:
    """What is to be known of a part that was written."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            page = page_size(data)
            tree = tree_pages(data, page)
            pieces = tuple(zlib.crc32(data[at : at + PIECE]) for at in range(0, len(data), PIECE))
            crc = tree_checksum(data, page, tree)
            return PartFile(len(data), digest, page, tuple(tree), crc, stores, pieces)


def page_size(data: memoryview) -> int:
    """The page size that the first meta page of an LMDB file gives."""
    (size,) = struct.unpack_from("<I", data, 40)
    return int(size)


def tree_pages(data: memoryview, page: int) -> list[int]:
    """The pages that are not part of an overflow run, as first page and number of pages."""
    found: list[int] = []
    number, last = 0, len(data) // page
    while number < last:
        _, _, flags, count = _HEADER.unpack_from(data, number * page)
        if flags & _OVERFLOW:
            number += count
            continue
        if found and found[-2] + found[-1] == number:
            found[-1] += 1
        else:
            found += (number, 1)
        number += 1
    return found


def tree_checksum(data: memoryview, page: int, tree: Sequence[int]) -> int:
    """The checksum of those pages, one after the other."""
    crc = 0
    for first, count in zip(tree[::2], tree[1::2], strict=True):
        crc = zlib.crc32(data[first * page : (first + count) * page], crc)
    return crc
