"""Many documents in one stream: one after the other, or the records of one endless root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fmware.labeling import _kernel
from fmware.labeling.errors import EncodingError, LimitExceeded, ReadError
from fmware.labeling.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self

    from fmware.labeling.table import NodeTable

__all__ = ["Reject", "Stream", "read_stream"]

CHUNK = 1 << 18

_ATTRIBUTE = re.compile(rb"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
WIDE = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<")
"""How bytes begin that are in UTF-16."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A piece of a stream that could not be read: where it was, its bytes and why.

    Of a piece over the limit of bytes only the head is kept.
    """

    offset: int
    data: bytes
    error: ReadError


class Stream:
    """An iterator over the NodeTables of a stream, in bounded memory.

    A piece that cannot be read goes to `rejects` and the stream goes on; without `rejects`, the
    error is raised, and asking for the next table still goes on behind the bad piece. AD labels
    count from the piece's offset in the stream, so no two tables overlap.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        reader: Reader,
        *,
        records: Sequence[str] = (),
        rejects: Callable[[Reject], None] | None = None,
        source: str | None = None,
    ) -> None:
        self._chunks = iter(chunks)
        self._reader = reader
        self._records = bool(records)
        self._rejects = rejects
        self._source = source
        self._scanner = _kernel.Scanner([name.encode() for name in records], reader.limits.bytes)
        self._begun = False
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> NodeTable:
        while True:
            piece = self._scanner.cut()
            if piece is None:
                if self._ended:
                    raise StopIteration
                self._feed()
                continue
            data, offset, line, column, level, over = piece
            try:
                if over:
                    raise LimitExceeded("bytes", self._reader.limits.bytes, source=self._source)
                return self._read(data, offset, level)
            except ReadError as error:
                move(error, line, column)
                if self._rejects is None:
                    raise
                self._rejects(Reject(offset, data, error))

    def _feed(self) -> None:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            self._scanner.finish()
            return
        if not self._begun and chunk:
            self._begun = True
            if chunk.startswith(WIDE):
                raise EncodingError(
                    "a stream in UTF-16 cannot be cut into documents; convert it to UTF-8",
                    source=self._source,
                )
        self._scanner.feed(chunk)

    def _read(self, data: bytes, offset: int, level: int) -> NodeTable:
        if not self._records:
            return self._reader.read(data, base=offset, source=self._source)
        return self._reader.read_record(
            data,
            declaration=self._scanner.declaration or b"",
            doctype=self._scanner.doctype or b"",
            namespaces=namespaces_of(self._scanner.ancestors),
            base=offset,
            level=level,
            source=self._source,
        )


def namespaces_of(ancestors: list[tuple[int, bytes]]) -> bytes:
    """The declarations in force below these start tags, the innermost of a prefix winning."""
    found = {
        name: value
        for _, tag in ancestors
        for name, value in _ATTRIBUTE.findall(tag)
        if name == b"xmlns" or name.startswith(b"xmlns:")
    }
    return b" ".join(name + b"=" + value for name, value in found.items())


def move(error: ReadError, line: int, column: int) -> None:
    """From a place within the piece to the place in the stream."""
    if error.line == 1:
        error.column += column - 1
    error.line += line - 1


def _chunks(source: bytes | str | Path | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source)
        for at in range(0, len(view), CHUNK):
            yield bytes(view[at : at + CHUNK])
    elif isinstance(source, str | Path):
        with Path(source).open("rb") as file:
            yield from _chunks(file)
    elif hasattr(source, "read"):
        # read1 gives what has arrived: a message on a pipe does not wait for the next one.
        take = getattr(source, "read1", source.read)
        while chunk := take(CHUNK):
            yield chunk
    else:
        yield from source


def read_stream(
    source: bytes | str | Path | IO[bytes] | Iterable[bytes],
    *,
    record: str | Sequence[str] | None = None,
    reader: Reader | None = None,
    rejects: Callable[[Reject], None] | None = None,
    name: str | None = None,
) -> Stream:
    """The documents of a stream, one NodeTable each.

    Documents may follow each other directly, with or without XML declarations. With `record`,
    the stream is one document, however long, and each element of that name (as it is written,
    prefix included) is read as soon as it is whole; inner records of a record are part of it.
    """
    records = (record,) if isinstance(record, str) else tuple(record or ())
    if name is None and isinstance(source, str | Path):
        name = str(source)
    return Stream(
        _chunks(source), reader or Reader(), records=records, rejects=rejects, source=name
    )
