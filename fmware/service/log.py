"""The match log: every hit, in order, with a position to go on from.

It is a sink like any other, and what streams and webhooks read. Hits are on disk when `write`
returns: they outlive the process, also one that is killed, and with `sync` the machine. A hit that
is there already, told by its id, is passed over, so what is delivered twice is logged once; so many
ids of the last hits are known, over restarts, too. The log is bounded: the oldest hits go, and
whoever asks for them is told from where on there are any.

Hits come and stay as columns, those of a message together (see `hits`). Writes that come while one
is under way go to disk together: they are looked through for repeats and written as one. The last
hits are kept in memory, too: readers that keep up never touch the disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from fmware.service._columns import placed
from fmware.service.hits import END, Hits, as_hits
from fmware.service.known import Known
from fmware.service.letters import Letters
from fmware.service.logging import logger
from fmware.service.segments import Entry, Segment, entries_of, segments_of
from fmware.service.shelf import BOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from fmware.service.envelope import DeadLetter, Hit
    from fmware.service.shelf import Bound

    Waiting = tuple[list[Hits], asyncio.Future[None]]

__all__ = ["Entry", "MatchLog", "Page"]

SCAN: Final = 20_000
"""Records that one read looks at, so that the reader of a rare statement holds up nobody."""
TAIL: Final = 4096
TAIL_BYTES: Final = 8 << 20
"""Hits, and bytes of them, that are kept in memory."""
PAGE_BYTES: Final = 8 << 20
"""Bytes of hits that one read gives, unless its first hit has more."""
KNOWN: Final = 100_000
"""Hits whose ids are known."""
READERS: Final = 2
TELL: Final = 60.0
"""Seconds between two lines that say how many dead letters had to go."""

log = logger("log")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Page:
    """Some hits, and the position up to which there are no others."""

    entries: list[Entry]
    position: int


class MatchLog:
    """A bounded log of hits in a directory.

    `size` bounds its bytes, `segment` those of one file, `letters` the dead letters that are kept
    beside; the log of the service says when some of these had to go.
    """

    name = "log"
    longest_pause = 0.2
    """Seconds between two tries of a disk that fails: it is here, and that costs nothing."""

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 256 << 20,
        segment: int = 16 << 20,
        sync: bool = True,
        letters: Bound = BOUND,
    ) -> None:
        self._folder = folder
        self._size = size
        self._segment_size = segment
        self._sync = sync
        self._letters_bound = letters
        self._segments: list[Segment] = []
        self._known = Known(KNOWN)
        self._tail: list[Hits] = []
        """The last hits; their positions have no gaps."""
        self._tail_bytes = 0
        self._waiting: list[Waiting] = []
        self._written = asyncio.Event()
        """Whether nothing waits, and nothing is being written."""
        self._written.set()
        self._more = asyncio.Event()
        self._writing = ThreadPoolExecutor(1, "log-write")
        self._reading = ThreadPoolExecutor(READERS, "log-read")
        self._told = 0
        self._tell_after = 0.0
        self.last = 0
        self.repeated = 0

    @property
    def first(self) -> int:
        """The position of the oldest hit that is there."""
        return self._segments[0].first if self._segments else 1

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    # --- as a sink --------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the log where it was left."""
        await _on(self._writing, self._open)

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.letters = Letters(self._folder / "letters.db", self._letters_bound)
        segments = segments_of(self._folder) or [Segment.create(self._folder, 1)]
        self.last = segments[-1].last
        oldest = self.last - KNOWN
        for segment in segments:
            told = ((each.position, json.loads(each.body)) for each in segment.after(oldest))
            for message, some in groupby(told, key=lambda one: one[1]["message"]):
                places, hits = zip(*some, strict=True)
                ids = [each["id"].encode() for each in hits]
                self._known.add(message, places[0], END.join(ids), len(ids))
        self._segments = segments

    async def write(self, hits: Sequence[Hit]) -> None:
        """Keep hits; they are on disk when this returns."""
        if not hits:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((as_hits(hits), done))
        if self._written.is_set():
            self._written.clear()
            loop.call_soon(self._write_next, loop)  # What comes in the same turn goes with it.
        await done

    def _write_next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits, together; or nothing does."""
        taken, self._waiting = self._waiting, []
        if taken:
            self._writing.submit(self._write, taken, loop)
        else:
            self._written.set()

    def _write(self, taken: list[Waiting], loop: asyncio.AbstractEventLoop) -> None:
        """Append, on the thread that writes, and have the loop tell the callers that wait."""
        added: list[Hits] = []
        failed: Exception | None = None
        try:
            added = self._append([part for parts, _ in taken for part in parts])
        except Exception as error:  # Whatever it is, the callers that wait are told.
            failed = error
        loop.call_soon_threadsafe(self._tell_waiting, taken, added, failed, loop)

    def _tell_waiting(
        self,
        taken: list[Waiting],
        added: list[Hits],
        failed: Exception | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._keep(added)
        for _, done in taken:
            if done.done():
                continue
            if failed is None:
                done.set_result(None)
            else:
                done.set_exception(failed)
        self._write_next(loop)

    def _append(self, parts: list[Hits]) -> list[Hits]:
        """Write those that are not there yet; all of them know their positions then."""
        segment = self._segments[-1]
        if segment.size >= self._segment_size:
            segment.close()
            segment = Segment.create(self._folder, segment.last + 1)
            self._segments = [*self._segments, segment]
            self._trim()
        new, repeats = self._sorted_out(parts, segment.last + 1)
        segment.append(new, sync=self._sync)
        for part in new:
            self._known.add(part.message, part.position, part.ids, len(part))
        for part, places in repeats:
            part.places = places
        self.repeated += sum(map(len, parts)) - sum(map(len, new))
        return new

    def _sorted_out(
        self, parts: list[Hits], position: int
    ) -> tuple[list[Hits], list[tuple[Hits, list[int]]]]:
        """Hits that are not there yet, with positions; and where those are that came before."""
        new: dict[str, list[Hits]] = {}
        repeats: list[tuple[Hits, list[int]]] = []
        for part in parts:
            fresh: Hits | None = part
            before = new.setdefault(part.message, [])
            if before or part.message in self._known:
                fresh, places = self._apart(part, before, position)
                repeats.append((part, places))
            if fresh is not None:
                fresh.position = position
                position += len(fresh)
                before.append(fresh)
        return sorted(chain.from_iterable(new.values()), key=attrgetter("position")), repeats

    def _apart(
        self, part: Hits, before: Sequence[Hits], position: int
    ) -> tuple[Hits | None, list[int]]:
        """Of a message that is known: its hits that are not there yet, and the places of all."""
        known = self._known.positions(part.message)
        for each in before:
            known.update(zip(each.ids.split(END), count(each.position)))
        new: list[Hit] = []
        places: list[int] = []
        for hit in part:
            place = known.get(hit.id.encode())
            if place is None:
                place = position + len(new)
                new.append(hit)
            places.append(place)
        fresh = part if len(new) == len(part) else Hits.of(new) if new else None
        return fresh, places

    def _trim(self) -> None:
        """Let go of the oldest files; never of the one that is written to."""
        while len(self._segments) > 1 and self.size > self._size - self._segment_size:
            oldest, *rest = self._segments
            self._segments = rest
            oldest.path.unlink()

    def _keep(self, added: list[Hits]) -> None:
        if not added:
            return
        self._tail += added
        self._tail_bytes += sum([len(part.body) for part in added])
        self.last = added[-1].position + len(added[-1]) - 1
        if self.last - self._tail[0].position > 2 * TAIL or self._tail_bytes > 2 * TAIL_BYTES:
            self._shorten()
        self.wake()

    def _shorten(self) -> None:
        """Let go of the oldest, down to the bounds."""
        drop = 0
        for part in self._tail:
            if self.last - part.position < TAIL and self._tail_bytes <= TAIL_BYTES:
                break
            self._tail_bytes -= len(part.body)
            drop += 1
        del self._tail[:drop]

    async def dead(self, letter: DeadLetter) -> None:
        """Keep a message that could not be matched."""
        await _on(self._writing, self.letters.add, letter)
        if time.monotonic() >= self._tell_after:
            self._tell()

    def _tell(self) -> None:
        """Say that dead letters had to go: many of them in one line."""
        shelf = self.letters.shelf
        gone = shelf.dropped.total()
        if gone > self._told:
            about = {"letters": gone - self._told, "most": shelf.bound.number}
            hint = "see log.letters, log.letter_bytes"
            log.warning("dead letters dropped", **about, bytes=shelf.bound.size, hint=hint)
            self._told, self._tell_after = gone, time.monotonic() + TELL

    async def close(self) -> None:
        """Write what is left, then let go."""
        await self._written.wait()
        self._tell()
        await _on(self._writing, self._let_go)
        self._writing.shutdown()
        self._reading.shutdown()
        self.wake()

    def _let_go(self) -> None:
        for segment in self._segments:
            segment.close()
        self.letters.close()

    # --- for readers ------------------------------------------------------------------------

    async def read(self, tenant: str, after: int, limit: int, statement: str | None = None) -> Page:
        """The hits behind a position, up to a limit and to some bytes; nothing is waited for.

        A page may be empty although there is more: go on from its position.
        """
        if after >= self.last:
            return Page([], after)
        after = max(after, self.first - 1)
        if self._tail and after + 1 >= self._tail[0].position:
            return _page(self._kept(after), Page([], after), tenant, statement, limit)
        return await _on(self._reading, self._stored, tenant, after, limit, statement)

    def _stored(self, tenant: str, after: int, limit: int, statement: str | None) -> Page:
        segments = self._segments
        at = max(bisect_right(segments, after + 1, key=lambda segment: segment.first) - 1, 0)
        page = Page([], segments[at].last)
        # No further than the page is full: whoever is far behind comes often.
        with suppress(FileNotFoundError):  # It went while it was read; what is left is behind it.
            some = islice(segments[at].after(after), SCAN)
            page = _page(some, page, tenant, statement, limit)
        return page

    def _kept(self, after: int) -> Iterator[Entry]:
        """The hits behind a position that are in memory."""
        at = bisect_right(self._tail, after + 1, key=lambda part: part.position) - 1
        for part in islice(self._tail, at, None):
            for entry in entries_of(part.position, part.names, part.lines):
                if entry.position > after:
                    yield entry

    def told(self, hits: Hits) -> bytes:
        """Hits that were logged as items of a JSON array, with positions; a repeat as at first."""
        if hits.places is None:
            return placed(hits.body, hits.cut, hits.position)
        each = zip(hits.places, hits.lines, strict=True)
        return b",".join(
            b'{"position":%d,%b' % (position, self._logged(position, line)[1:])
            for position, line in each
        )

    def _logged(self, position: int, line: bytes) -> bytes:
        """What is logged at a position if that is in memory, or else what there is."""
        if self._tail and self._tail[0].position <= position <= self.last:
            return next(self._kept(position - 1)).body
        return line

    async def wait(self, after: int, timeout: float) -> bool:
        """Wait for something behind a position; whether there is."""
        if self.last > after:
            return True
        try:
            async with asyncio.timeout(timeout):
                await self._more.wait()
        except TimeoutError:
            return False
        return self.last > after

    def wake(self) -> None:
        """Have all that wait look again."""
        more, self._more = self._more, asyncio.Event()
        more.set()


def _page(
    entries: Iterable[Entry], empty: Page, tenant: str, statement: str | None, limit: int
) -> Page:
    """Those that suit a reader, and how far they were looked through."""
    found: list[Entry] = []
    position = None
    size = 0
    for entry in entries:
        if entry.suits(tenant, statement):
            size += len(entry.body)
            if found and size > PAGE_BYTES:
                break
            found.append(entry)
        position = entry.position
        if len(found) == limit:
            break
    return empty if position is None else Page(found, position)


async def _on(
    threads: ThreadPoolExecutor,
    call: Callable[Given, Answer],
    *values: Given.args,
    **named: Given.kwargs,
) -> Answer:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(threads, lambda: call(*values, **named))
