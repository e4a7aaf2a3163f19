"""The records of one huge file, cut out of its byte ranges, and the proof that the cuts are true.

A range looks for the first `<name` at or after its beginning, takes it to be a record, and cuts
from there on to the first record at or behind its end, in the context (DOCTYPE, open elements,
namespaces) that the file's first record has. The guess may be wrong: what looks like a record may
stand in a comment, in a CDATA section, or in another record, or be elsewhere in the tree.

The proof is a chain. The first range begins at the beginning, so what it cuts is right, and so is
the place and the context at which it says the next record begins. If that is where the next range
began, and as it assumed, then this one is right too, because place and context between two pieces
are all the state that cutting has; and so on to the end. `agree` checks the chain. Where it is
broken, one pass over the file that only cuts (`exact_starts`) tells how every range truly begins;
with such a start a range is right by construction.

A piece belongs to the range that comes upon it: records to the range in which their `<` lies, and
what a bad record falls into to the range in which the bad one begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fmware.labeling import _kernel
from fmware.labeling.errors import EncodingError
from fmware.labeling.limits import DEFAULT_LIMITS
from fmware.labeling.runs import Context
from fmware.labeling.stream import WIDE, namespaces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    OpenAt = Callable[[int], Iterable[bytes]]
    """Gives the chunks of a file from an offset to its end."""

__all__ = [
    "BEGINNING",
    "Batch",
    "Piece",
    "RangeReport",
    "RecordRange",
    "ScanContext",
    "Start",
    "agree",
    "cut_range",
    "cut_stream",
    "exact_starts",
    "head",
]

BATCH = 1 << 20
"""Bytes of records a batch: more are hardly parsed any faster, and do not fit the caches."""


class ScanContext(NamedTuple):
    """What is around the records at one place of a file.

    `names` are those of the open elements, as written; `ancestors` the level and the start tag of
    those that declare namespaces; `endless` is about files that break off inside a comment or the
    like: which such markup, from here on, has no end.
    """

    declaration: bytes = b""
    doctype: bytes = b""
    names: tuple[bytes, ...] = ()
    ancestors: tuple[tuple[int, bytes], ...] = ()
    endless: int = 0

    @property
    def level(self) -> int:
        return len(self.names)

    @property
    def namespaces(self) -> bytes:
        """The declarations in force, as `Reader.read_record` takes them."""
        return namespaces_of(list(self.ancestors))


class Start(NamedTuple):
    """Where cutting may begin: at a record's `<`, with what is around it there."""

    offset: int
    context: ScanContext


BEGINNING = Start(0, ScanContext())
"""Where cutting may begin in any file."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece by itself: most likely a bad one, whose tags do not pair or that is too long.

    `over` says that only the head of it is here. Line and column count from where cutting began;
    those of a record out of a batch are not known, and are 1.
    """

    data: bytes
    offset: int
    level: int
    context: Context
    line: int = 1
    column: int = 1
    over: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole records, one after the other, that share what is around them."""

    data: bytes
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int16]
    context: Context

    def __len__(self) -> int:
        return len(self.sizes)

    def pieces(self) -> Iterator[Piece]:
        """The records one by one."""
        at = 0
        places = zip(self.offsets.tolist(), self.sizes.tolist(), self.levels.tolist(), strict=True)
        for offset, size, level in places:
            yield Piece(self.data[at : at + size], offset, level, self.context)
            at += size


class RangeReport(NamedTuple):
    """What a range says of its ends.

    `first` is where it began; None if nothing in it looks like a record. `next` is the first
    record at or behind `end` that it came upon; None at the end of the file, or without `first`.
    """

    begin: int
    end: int
    first: Start | None
    next: Start | None


class RecordRange:
    """The records of one byte range: iterate over it, then see its `report`."""

    def __init__(
        self,
        open_at: OpenAt,
        begin: int,
        end: int,
        records: Sequence[str],
        context: ScanContext | None,
        first: int | None,
        limit: int,
        size: int,
    ) -> None:
        self._open_at = open_at
        self._begin = begin
        self._end = end
        self._records = records
        self._context = context
        self._first = first
        self._limit = limit
        self._size = size
        self._report: RangeReport | None = None

    @property
    def report(self) -> RangeReport:
        """What is to be held against the other ranges of the file, once all is cut."""
        if self._report is None:
            raise ValueError("a range has no report before all of it is cut")
        return self._report

    def __iter__(self) -> Iterator[Batch | Piece]:
        first = self._start()
        after: Start | None = None
        if first is not None:
            scanner = _scanner(self._records, self._limit, first)
            chunks = self._open_at(first.offset)
            yield from _cut(scanner, _Feed(scanner, chunks), self._size, self._end)
            after = _reached(scanner)
        self._report = RangeReport(self._begin, self._end, first, after)

    def _start(self) -> Start | None:
        if self._begin == 0:
            return BEGINNING
        offset = self._first
        if offset is None:
            offset = _candidate(
                self._open_at(self._begin), self._begin, self._end, _encoded(self._records)
            )
        if offset is None or offset >= self._end:
            return None
        context = self._context
        if context is None:
            context = head(self._open_at(0), self._records, limit=self._limit)
        return None if context is None else Start(offset, context)


def cut_range(
    open_at: OpenAt,
    begin: int,
    end: int,
    records: Sequence[str],
    context: ScanContext | None = None,
    *,
    first: int | None = None,
    limit: int = DEFAULT_LIMITS.bytes,
    size: int = BATCH,
) -> RecordRange:
    """The records of a file whose `<` lies in [begin, end).

    Without `first` it begins at what looks like a record, assuming the `context`, or if none is
    given that of the file's first record. With an exact `first` and `context`, as `exact_starts`
    gives them, it is right by construction; if `first` lies behind the range, there is nothing to
    cut. Memory is bounded by `limit`, the most bytes of a record, and `size`, about how many go
    into a batch.
    """
    return RecordRange(open_at, begin, end, records, context, first, limit, size)


def cut_stream(
    chunks: Iterable[bytes],
    records: Sequence[str],
    *,
    limit: int = DEFAULT_LIMITS.bytes,
    size: int = BATCH,
) -> Iterator[Batch | Piece]:
    """The records of a whole file or stream, from its beginning."""
    scanner = _scanner(records, limit)
    return _cut(scanner, _Feed(scanner, chunks), size, -1)


def head(
    chunks: Iterable[bytes], records: Sequence[str], *, limit: int = DEFAULT_LIMITS.bytes
) -> ScanContext | None:
    """The context of a file's first record, or None if it has none; reads no further than that."""
    scanner = _scanner(records, limit)
    found = _sought(scanner, _Feed(scanner, chunks), 0)
    return None if found is None else found.context


def agree(reports: Sequence[RangeReport]) -> int | None:
    """The first range of a file that did not begin as the range before it says; None: all did.

    The reports are those of adjoining ranges from the file's beginning on. Every range before the
    one that is named is right.
    """
    true: Start | None = BEGINNING
    for index, report in enumerate(reports):
        # One long record or comment may go on over several ranges: they hold no true start, and
        # whatever looks like one there is none.
        here = true is not None and true.offset < report.end
        if report.first != (true if here else None):
            return index
        if here:
            true = report.next
    return None


def exact_starts(
    open_at: OpenAt,
    begins: Sequence[int],
    records: Sequence[str],
    *,
    limit: int = DEFAULT_LIMITS.bytes,
) -> list[Start]:
    """How ranges with these beginnings, in ascending order, truly begin.

    The first record at or behind each of them, which may lie behind the range; behind the last
    record, it is the end of the file. The file is cut once from its beginning, without parsing.
    """
    scanner = _scanner(records, limit)
    feed = _Feed(scanner, open_at(0))
    return [BEGINNING if begin == 0 else _sought_or_end(scanner, feed, begin) for begin in begins]


def _encoded(records: Sequence[str]) -> list[bytes]:
    return [name.encode() for name in records]


def _scanner(records: Sequence[str], limit: int, start: Start = BEGINNING) -> _kernel.Scanner:
    if not records:
        raise ValueError("a file is cut by the names of its records; give at least one")
    return _kernel.Scanner(_encoded(records), limit, start.context, start.offset)


class _Feed:
    """Gives a scanner the next chunk, or tells it that there is none."""

    __slots__ = ("_chunks", "_scanner", "given")

    def __init__(self, scanner: _kernel.Scanner, chunks: Iterable[bytes]) -> None:
        self._scanner = scanner
        self._chunks = iter(chunks)
        self.given = 0

    def more(self) -> bool:
        """Whether there was anything to give."""
        scanner = self._scanner
        if scanner.ended:
            return False
        chunk = next(self._chunks, None)
        if chunk is None:
            scanner.finish()
            return True
        if scanner.position == 0 and chunk.startswith(WIDE):
            raise EncodingError("a file in UTF-16 cannot be cut into records; convert it to UTF-8")
        scanner.feed(chunk)
        self.given += len(chunk)
        return True


def _cut(scanner: _kernel.Scanner, feed: _Feed, size: int, stop: int) -> Iterator[Batch | Piece]:
    while True:
        batch = scanner.gather(size, stop)
        if batch is not None:
            data, offsets, sizes, levels, (declaration, doctype, ancestors) = batch
            context = Context(declaration, doctype, namespaces_of(list(ancestors)))
            yield Batch(data, offsets, sizes, levels, context)
            continue
        piece = scanner.cut()
        if piece is not None:
            yield _single(scanner, piece)
        elif scanner.reached is not None or not feed.more():
            return


def _single(scanner: _kernel.Scanner, piece: tuple[bytes, int, int, int, int, bool]) -> Piece:
    data, offset, line, column, level, over = piece
    around = ScanContext(*scanner.context())
    context = Context(around.declaration, around.doctype, around.namespaces)
    return Piece(data, offset, level, context, line, column, over)


def _sought(scanner: _kernel.Scanner, feed: _Feed, stop: int) -> Start | None:
    while scanner.seek(stop) is None:
        if not feed.more():
            return None
    return _reached(scanner)


def _sought_or_end(scanner: _kernel.Scanner, feed: _Feed, stop: int) -> Start:
    found = _sought(scanner, feed, stop)
    return Start(feed.given, ScanContext(*scanner.context())) if found is None else found


def _reached(scanner: _kernel.Scanner) -> Start | None:
    offset = scanner.reached
    return None if offset is None else Start(offset, ScanContext(*scanner.context()))


def _candidate(chunks: Iterable[bytes], begin: int, end: int, names: Sequence[bytes]) -> int | None:
    """The first place in [begin, end) that looks like a start tag of a record."""
    pattern = re.compile(b"<(?:" + b"|".join(map(re.escape, names)) + b")[ \t\r\n/><]")
    tail = 1 + max(map(len, names))  # of a tag that may go on in the next chunk
    held = b""
    for chunk in chunks:
        held += chunk
        match = pattern.search(held)
        if match is not None:
            return begin + match.start() if begin + match.start() < end else None
        begin += max(0, len(held) - tail)
        held = held[-tail:]
        if begin >= end:
            return None
    return None
