"""Lists being written: columns come in chunks of any size, blocks go into a part.

A `ListWriter` takes whole blocks, a `ColumnWriter` cuts them from columns; both leave the list's
directory behind when they are closed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.index import format as form

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from fmware.index.part import PartWriter
    from fmware.labeling.values import Values

    Array = npt.NDArray[Any]

__all__ = [
    "AdWriter",
    "ColumnWriter",
    "IdentityWriter",
    "ListWriter",
    "ValuesWriter",
    "write_lines",
]


class ListWriter:
    """A list whose blocks are handed over ready-made."""

    def __init__(self, part: PartWriter, database: str, number: int) -> None:
        self._part = part
        self._database = database
        self._number = number
        self._first: list[int] = []
        self._begin: list[int] = [0]
        self._crc: list[int] = []

    @property
    def rows(self) -> int:
        """Rows in the blocks so far."""
        return self._begin[-1]

    def add(self, first: int, rows: int, block: bytes | bytearray) -> None:
        """A block more; `first` is what its first row is sorted by."""
        key = form.block_key(self._number, len(self._crc))
        self._part.put(self._database, key, block)
        self._first.append(first)
        self._begin.append(self._begin[-1] + rows)
        self._crc.append(zlib.crc32(block))

    def close(self) -> int:
        """Write the directory; answers with the number of rows."""
        # Its key sorts before those of the blocks, and it is complete only after them.
        key = form.directory_key(self._number)
        self._part.put(self._database, key, self._packed(), append=False)
        return self.rows

    def copy_directory(self, database: str) -> None:
        """Write the directory once more, in a database of its own, so on another page."""
        self._part.put(database, form.directory_key(self._number), self._packed())

    def _packed(self) -> bytes:
        return form.Directory(
            np.array(self._first, np.uint64),
            np.array(self._begin, np.uint64),
            np.array(self._crc, np.uint32),
        ).pack()


class ColumnWriter(ListWriter):
    """A list cut into blocks of so many rows.

    `sorted_by` is the column that gives a block's `first`; without it, that is the ordinal of its
    first row.
    """

    def __init__(
        self,
        part: PartWriter,
        database: str,
        number: int,
        *,
        shape: form.Shape,
        limit: int,
        sorted_by: int | None = None,
    ) -> None:
        super().__init__(part, database, number)
        self._shape = shape
        self._limit = limit
        self._sorted_by = sorted_by
        self._left: list[Array] = []

    def write(self, *columns: Array) -> None:
        """Rows more, a column each; what does not fill a block waits for the next."""
        chunk: Sequence[Array] = columns
        if self._left:
            chunk = [np.concatenate(both) for both in zip(self._left, columns, strict=True)]
        at, rows = 0, len(chunk[0])
        while rows - at >= self._limit:
            at = self._cut(chunk, at, at + self._limit)
        # A copy, as the caller may use his columns again.
        self._left = [column[at:].copy() for column in chunk] if at < rows else []

    def close(self) -> int:
        at, rows = 0, len(self._left[0]) if self._left else 0
        while at < rows:
            at = self._cut(self._left, at, rows)
        return super().close()

    def _cut(self, columns: Sequence[Array], at: int, stop: int) -> int:
        """Write one block of the rows from `at`, not beyond `stop`; answers where it ends."""
        rows = stop - at
        first = self.rows if self._sorted_by is None else int(columns[self._sorted_by][at])
        block = self._shape.pack([column[at:stop] for column in columns], rows=rows)
        self.add(first, rows, block)
        return stop


class AdWriter(ColumnWriter):
    """A list of `ad`: columns start (int64), length, level, a label row a scheme, and maybe `up`.

    A block ends early where a start would be too far from its base. Lengths are below 2^32: the
    kernel that makes them sees to it.
    """

    def __init__(self, part: PartWriter, number: int, *, schemes: int, up: bool) -> None:
        shape = form.ad_shape(schemes, up=up)
        super().__init__(part, form.AD, number, shape=shape, limit=form.AD_ROWS, sorted_by=0)
        self._head = (schemes, form.HAS_UP if up else 0)

    def _cut(self, columns: Sequence[Array], at: int, stop: int) -> int:
        start = columns[0]
        base = int(start[at])
        if int(start[stop - 1]) - base >= form.SPAN:
            stop = at + int(np.searchsorted(start[at:stop], base + form.SPAN))
        cut = [start[at:stop] - base, *(column[at:stop] for column in columns[1:])]
        block = self._shape.pack(cut, rows=stop - at, head=(base, *self._head))
        self.add(base, stop - at, block)
        return stop


class IdentityWriter(ListWriter):
    """A list of `identity`: keys in their order, of which a block takes only so many bytes."""

    def __init__(self, part: PartWriter, number: int) -> None:
        super().__init__(part, form.IDENTITY, number)

    def write(
        self,
        hashes: npt.NDArray[np.uint64],
        rows: npt.NDArray[np.uint32],
        offsets: npt.NDArray[np.int64],
        text: npt.NDArray[np.uint8],
    ) -> None:
        """Keys more; key i is text[offsets[i]:offsets[i + 1]]."""
        at = 0
        while at < len(hashes):
            room = int(offsets[at]) + form.IDENTITY_BYTES
            stop = max(int(np.searchsorted(offsets, room, side="right")) - 1, at + 1)
            stop = min(stop, at + form.IDENTITY_ROWS, len(hashes))
            places = offsets[at : stop + 1]
            columns = (hashes[at:stop], rows[at:stop], places - places[0])
            tail = text[places[0] : places[-1]].tobytes()
            block = form.IDENTITY_SHAPE.pack(columns, rows=stop - at, tail=tail)
            self.add(int(hashes[at]), stop - at, block)
            at = stop


class ValuesWriter(ListWriter):
    """A list of `values`: those of a tag's nodes, by row."""

    def __init__(self, part: PartWriter, number: int) -> None:
        super().__init__(part, form.VALUES, number)

    def write(self, values: Values) -> None:
        """Those of more rows."""
        at, offsets = 0, values.offsets
        while at < len(values):
            room = int(offsets[at]) + form.VALUE_BYTES
            stop = max(int(np.searchsorted(offsets, room, side="right")) - 1, at + 1)
            stop = min(stop, at + form.VALUE_ROWS, len(values))
            places = offsets[at : stop + 1] - offsets[at]
            places[:-1] |= values.mark[at:stop].astype(np.int64) << form.VALUE_MARK
            tail = values.data[offsets[at] : offsets[stop]].tobytes()
            block = form.VALUES_SHAPE.pack((places,), rows=stop - at, tail=tail)
            self.add(self.rows, stop - at, block)
            at = stop


def write_lines(part: PartWriter, database: str, lines: Iterable[str]) -> None:
    """A list of lines of text."""
    writer = ListWriter(part, database, 0)
    waiting = list(lines)
    for at in range(0, len(waiting), form.LINE_ROWS):
        some = waiting[at : at + form.LINE_ROWS]
        text = "\n".join(some).encode()
        writer.add(at, len(some), form.LINES_SHAPE.pack((), rows=len(some), tail=text))
    writer.close()
