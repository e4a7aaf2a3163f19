"""An LMDB file read page by page, without LMDB.

`verify` must not crash on a damaged file, and `compact` reads files that the same process may have
open for its readers, which LMDB does not allow twice. Both read a file once from end to end, so a
walk over its pages (data format 1 of LMDB 0.9, 64-bit, little-endian) serves them. It also tells
where a value lies without touching it. Pointers are checked before they are followed; ValueError
says what is wrong.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Pages"]

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = struct.Struct("<QHHHH")
_META = struct.Struct("<IIQQ")
_DATABASE = struct.Struct("<IHHQQQQQ")
_NODE = struct.Struct("<HHHH")
_PLACE = struct.Struct("<H")
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_BIG, _SUB = 1, 2
_EMPTY = 0xFFFFFFFFFFFFFFFF
_DEPTH = 32


class Pages:
    """An LMDB file, or a map of it, which is then closed with this; values are views into it."""

    def __init__(self, source: Path | mmap.mmap) -> None:
        if isinstance(source, mmap.mmap):
            self._map = source
        else:
            with source.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._data = memoryview(self._map)
        try:
            self._page = _page_size(self._data)
            self._roots = self._databases()
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> memoryview:
        """The whole file."""
        return self._data

    @property
    def databases(self) -> tuple[str, ...]:
        return tuple(self._roots)

    def items(self, database: str, begin: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values in order, from the first key that is not before `begin`."""
        root = self._roots.get(database, _EMPTY)
        if root != _EMPTY:
            yield from self._walk(root, begin, 0)

    def get(self, database: str, key: bytes) -> memoryview | None:
        """The value of a key; no pages are touched but those that lead to it."""
        number = self._roots.get(database, _EMPTY)
        if number == _EMPTY:
            return None
        for _ in range(_DEPTH):
            start, flags, count = self._head(number)
            if flags & _LEAF:
                places = range(count)
                at = bisect_left(places, key, key=lambda place: self._key(self._node(start, place)))
                if at == count or self._key(node := self._node(start, at)) != key:
                    return None
                return self._value(node)
            # The first key of a branch page stands for all that is smaller, and is not written.
            places = range(1, count)
            at = bisect_right(places, key, key=lambda place: self._key(self._node(start, place)))
            low, high, more, _ = _NODE.unpack_from(self._data, self._node(start, at))
            number = low | high << 16 | more << 32
        raise ValueError("a tree that is too deep")

    def close(self) -> None:
        self._data.release()
        # If a caller still holds a view, the map goes with the last one.
        with suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _databases(self) -> dict[str, int]:
        metas = [self._meta(number) for number in (0, 1)]
        main = max(metas)[1]
        roots = {}
        if main != _EMPTY:
            for key, value in self._walk(main, b"", 0):
                if len(value) != _DATABASE.size:
                    raise ValueError("something other than databases at the top")
                roots[key.decode()] = int(_DATABASE.unpack(value)[-1])
        return roots

    def _meta(self, number: int) -> tuple[int, int]:
        """(transaction, root of the main database) of a meta page."""
        at = number * self._page + 16
        magic, version, _, _ = _META.unpack_from(self._data, at)
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError("not an LMDB file of data format 1")
        root = _DATABASE.unpack_from(self._data, at + _META.size + _DATABASE.size)[-1]
        behind = at + _META.size + 2 * _DATABASE.size
        return int.from_bytes(self._data[behind + 8 : behind + 16], "little"), int(root)

    def _walk(self, number: int, begin: bytes, depth: int) -> Iterator[tuple[bytes, memoryview]]:
        if depth > _DEPTH:
            raise ValueError("a tree that is too deep")
        start, flags, count = self._head(number)
        nodes = [self._node(start, at) for at in range(count)]
        if flags & _LEAF:
            first = bisect_left(nodes, begin, key=self._key) if begin else 0
            for node in nodes[first:]:
                yield self._key(node), self._value(node)
            return
        # The first key of a branch page stands for all that is smaller, and is not written.
        first = bisect_right(nodes, begin, lo=1, key=self._key) - 1 if begin else 0
        for node in nodes[first:]:
            low, high, more, _ = _NODE.unpack_from(self._data, node)
            yield from self._walk(low | high << 16 | more << 32, begin, depth + 1)
            begin = b""

    def _head(self, number: int) -> tuple[int, int, int]:
        """Where a page of a tree begins, its flags and how many nodes it has."""
        start = number * self._page
        if start + self._page > len(self._data):
            raise ValueError(f"page {number} lies behind the file's end")
        named, _, flags, lower, upper = _HEADER.unpack_from(self._data, start)
        if named != number or not flags & (_BRANCH | _LEAF):
            raise ValueError(f"page {number} is not a page of a tree")
        if not 16 <= lower <= upper <= self._page or lower % 2:
            raise ValueError(f"page {number} is not laid out like one")
        return start, flags, (lower - 16) // 2

    def _node(self, start: int, at: int) -> int:
        """Where a node of a page begins."""
        (place,) = _PLACE.unpack_from(self._data, start + 16 + 2 * at)
        if not 16 <= place <= self._page - 8:
            raise ValueError(f"page {start // self._page} points outside itself")
        return int(start + place)

    def _key(self, node: int) -> bytes:
        size = _NODE.unpack_from(self._data, node)[3]
        return bytes(self._data[node + 8 : node + 8 + size])

    def _value(self, node: int) -> memoryview:
        low, high, flags, key = _NODE.unpack_from(self._data, node)
        size, at = low | high << 16, node + 8 + key
        if flags & _BIG:
            number = int.from_bytes(self._data[at : at + 8], "little")
            at = number * self._page + 16
        if at + size > len(self._data):
            raise ValueError("a value that lies behind the file's end")
        return self._data[at : at + size]


def _page_size(data: memoryview) -> int:
    if len(data) < 1024:
        raise ValueError("too short for an LMDB file")
    (size,) = struct.unpack_from("<I", data, 40)
    if size not in (4096, 8192, 16384, 32768, 65536) or len(data) < 2 * size:
        raise ValueError("not an LMDB file of data format 1")
    return int(size)
