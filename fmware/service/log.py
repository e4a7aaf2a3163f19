"""The match log: every hit, in order, with a position to go on from.

It is a sink like any other, and what streams and webhooks read. Hits are on disk when `write`
returns: they outlive the process, also one that is killed, and with `sync` the machine. A hit that
is there already, told by its id, is passed over, so what is delivered twice is logged once; so many
ids of the last hits are known, over restarts, too. The log is bounded: the oldest hits go, and
whoever asks for them is told from where on there are any.

Writes that come while one is under way go to disk together: they are looked through for repeats,
packed and written as one. The last hits are kept in memory, too: readers that keep up never touch
the disk.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from fmware.service.envelope import Hit
from fmware.service.letters import Letters
from fmware.service.logging import logger
from fmware.service.recent import Recent
from fmware.service.segments import Entry, Segment, packed, segments_of
from fmware.service.shelf import BOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from fmware.service.envelope import DeadLetter
    from fmware.service.shelf import Bound

__all__ = ["Entry", "MatchLog", "Page"]

SCAN: Final = 20_000
"""Records that one read looks at, so that the reader of a rare statement holds up nobody."""
TAIL: Final = 4096
TAIL_BYTES: Final = 8 << 20
"""Hits, and bytes of them, that are kept in memory."""
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
        self._known: Recent[str, int] = Recent()
        self._tail: list[Hit] = []
        """The last hits; their positions have no gaps."""
        self._tail_bytes = 0
        self._waiting: list[tuple[Sequence[Hit], asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
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
        for segment in segments:
            if segment.last > self.last - KNOWN:
                entries = segment.after(self.last - KNOWN)
                ids = {json.loads(each.body)["id"]: each.position for each in entries}
                for name in self._known.among(ids):
                    del ids[name]
                self._know(ids)
        self._segments = segments

    async def write(self, hits: Sequence[Hit]) -> None:
        """Keep hits; they are on disk when this returns."""
        if not hits:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((hits, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        await done

    async def _write_all(self) -> None:
        """Write what waits, together, until nothing does."""
        while self._waiting:
            taken, self._waiting = self._waiting, []
            hits = [hit for hits, _ in taken for hit in hits]
            try:
                added = await _on(self._writing, self._append, hits)
            except Exception as error:  # Whatever it is, whoever waits is told.
                for _, done in taken:
                    if not done.done():
                        done.set_exception(error)
                continue
            self._keep(added)
            for _, done in taken:
                if not done.done():
                    done.set_result(None)
        self._writer = None

    def _append(self, hits: Sequence[Hit]) -> list[Hit]:
        """Write those that are not there yet; all of them know their positions then."""
        new = {hit.id: hit for hit in hits}
        for name in self._known.among(new):
            del new[name]
        segment = self._segments[-1]
        if segment.size >= self._segment_size:
            segment.close()
            segment = Segment.create(self._folder, segment.last + 1)
            self._segments = [*self._segments, segment]
            self._trim()
        added = list(new.values())
        begin = segment.last + 1
        segment.append(packed(added), sync=self._sync)
        for position, hit in enumerate(added, begin):
            hit.position = position
        self._know(dict(zip(new, range(begin, begin + len(new)), strict=True)))
        if len(new) < len(hits):
            self.repeated += len(hits) - len(new)
            for hit in hits:
                hit.position = self._known.get(hit.id) or 0
        return added

    def _know(self, names: dict[str, int]) -> None:
        """Have some ids that are new, with their positions, and let as many of the oldest go."""
        self._known.put_all(names)
        self._known.drop(max(len(self._known) - KNOWN, 0))

    def _trim(self) -> None:
        """Let go of the oldest files; never of the one that is written to."""
        while len(self._segments) > 1 and self.size > self._size - self._segment_size:
            oldest, *rest = self._segments
            self._segments = rest
            oldest.path.unlink()

    def _keep(self, added: list[Hit]) -> None:
        if not added:
            return
        self._tail += added
        self._tail_bytes += sum(map(len, map(Hit.line, added)))
        if len(self._tail) > 2 * TAIL or self._tail_bytes > 2 * TAIL_BYTES:
            self._shorten()
        self.last = added[-1].position
        self.wake()

    def _shorten(self) -> None:
        drop = max(len(self._tail) - TAIL, 0)
        size = sum(len(hit.line()) for hit in self._tail[drop:])
        while size > TAIL_BYTES:
            size -= len(self._tail[drop].line())
            drop += 1
        del self._tail[:drop]
        self._tail_bytes = size

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
        while self._writer is not None:
            await asyncio.wait([self._writer])
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
        """The hits behind a position, up to a limit; nothing is waited for.

        A page may be empty although there is more: go on from its position.
        """
        if after >= self.last:
            return Page([], after)
        after = max(after, self.first - 1)
        if self._tail and after + 1 >= self._tail[0].position:
            at = after + 1 - self._tail[0].position
            some = map(_entry, map(self._tail.__getitem__, range(at, len(self._tail))))
            return _page(some, Page([], after), tenant, statement, limit)
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

    def lines(self, hits: Iterable[Hit]) -> list[bytes]:
        """The JSON of hits, with positions if they were logged; a repeat as it was at first."""
        tail = self._tail
        first = tail[0].position if tail else 0
        found = []
        for hit in hits:
            place = hit.position - first
            if not hit.position:
                found.append(hit.line())
                continue
            logged = tail[place] if 0 <= place < len(tail) else hit
            found.append(b'{"position":%d,%b' % (hit.position, logged.line()[1:]))
        return found

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


def _entry(hit: Hit) -> Entry:
    return Entry(hit.position, hit.tenant, hit.statement, hit.line())


def _page(
    entries: Iterable[Entry], empty: Page, tenant: str, statement: str | None, limit: int
) -> Page:
    """Those that suit a reader, and how far they were looked through."""
    found: list[Entry] = []
    position = None
    for entry in entries:
        position = entry.position
        if entry.suits(tenant, statement):
            found.append(entry)
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
