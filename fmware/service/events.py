"""Matches as they are found: server-sent events and WebSockets, each with positions to resume from.

A reader has a position in the match log and nothing else: no buffer of its own fills up behind it.
It reads a page, sends it, and reads on; what it has not read waits in the log. One that does not
read what was sent is cut off (see `guard`), and finds what it missed at the last position it got.
One that is so slow that the log goes on without it is told so, and from where it can go on. All of
them together do a little in each turn of the loop (see `turns`), so that requests have theirs.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from fmware.service.logging import logger
from fmware.service.problems import Problem
from fmware.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from fmware.service.log import Entry, MatchLog
    from fmware.service.metrics import Metrics

__all__ = ["EventStream", "Reader", "Readers", "follow"]

PAGE: Final = 256
"""Hits that are read at once."""
CHUNK: Final = 48 << 10
"""Bytes that are sent at once, at least one hit: less than what makes a sender wait; also what all
readers together send in one turn of the loop."""
READ: Final = 200
"""What it costs to read a hit, in bytes that could be sent in that time."""
BEAT: Final = 15.0
"""Seconds of silence after which a reader is shown that the connection lives."""
RETRY: Final = b"retry: 1000\n\n"
TRY_LATER: Final = 1013
GOING_AWAY: Final = 1012

log = logger("events")


class Reader:
    """Somebody who follows matches of a tenant, or of one of its statements."""

    def __init__(self, readers: Readers, tenant: str, statement: str | None, after: int) -> None:
        self._readers = readers
        self.tenant = tenant
        self.statement = statement
        self.position = after
        self.missed = 0

    async def pages(self, gone: asyncio.Task[None]) -> AsyncIterator[list[Entry]]:
        """Pages of hits as they come; an empty one when there was nothing for a while.

        Ends when the reader or the service does, or when hits that were not read are no longer
        there: `missed` is then how many positions.
        """
        kept = self._readers.log
        gone.add_done_callback(lambda _: kept.wake())
        while not (self._readers.closing or gone.done()):
            if self.position + 1 < kept.first:
                self.missed = kept.first - 1 - self.position
                return
            await self.turn(READ * min(self.lag, PAGE))
            page = await kept.read(self.tenant, self.position, PAGE, self.statement)
            if page.entries:
                yield page.entries
            self.position = page.position
            if self.position >= kept.last and not await kept.wait(
                self.position, self._readers.beat
            ):
                yield []

    async def turn(self, size: int) -> None:
        """Wait until it is its turn to send so much."""
        await self._readers.turns.take(size)

    def farewell(self) -> dict[str, object]:
        """Why it ends, and from where to go on."""
        if self.missed:
            what = f"too slow: {self.missed} positions of the log are gone"
            return {"reason": what, "position": self._readers.log.first - 1}
        return {"reason": "the service stops", "position": self.position}

    @property
    def lag(self) -> int:
        """Positions that it is behind."""
        return max(self._readers.log.last - self.position, 0)


class Readers:
    """All that follow matches; so many and no more."""

    def __init__(self, kept: MatchLog, metrics: Metrics, most: int, beat: float = BEAT) -> None:
        self.log = kept
        self.metrics = metrics
        self.beat = beat
        self.closing = False
        self.turns = Turns(CHUNK)
        self._most = most
        self._all: set[Reader] = set()

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, tenant: str, statement: str | None, after: int | None, most: int = 0) -> Reader:
        """One more, of at most so many of the tenant's; from a position on, or from now."""
        if self.closing:
            raise Problem(503, "stopping", "the service stops")
        if len(self._all) >= self._most:
            raise Problem(
                503,
                "too-many-streams",
                f"{self._most} readers follow matches already",
                headers={"Retry-After": "5"},
            )
        if most and sum(each.tenant == tenant for each in self._all) >= most:
            what = f"tenant {tenant} has all its {most:,} readers of matches"
            raise Problem(429, "too-many-streams", what, headers={"Retry-After": "5"})
        begin = self.log.last if after is None else min(after, self.log.last)
        reader = Reader(self, tenant, statement, max(begin, self.log.first - 1))
        if after is not None and 0 < after < self.log.first - 1:
            reader.position = after
        self._all.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """One fewer."""
        self._all.discard(reader)

    def ended(self, reader: Reader) -> None:
        """One is gone; it was slow if it had not read all there is."""
        if reader.missed or (reader.lag and not self.closing):
            self.metrics.dropped()
            about = {"tenant": reader.tenant, "statement": reader.statement}
            log.info("slow reader dropped", position=reader.position, lag=reader.lag, **about)

    def close(self) -> None:
        """Have all of them end."""
        self.closing = True
        self.log.wake()

    def lags(self) -> list[int]:
        """How far each is behind."""
        return [reader.lag for reader in self._all]


class EventStream(Response):
    """Hits as server-sent events; the id of an event is its position."""

    media_type = "text/event-stream"

    def __init__(self, reader: Reader, readers: Readers) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._reader = reader
        self._readers = readers

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_gone(receive))
        try:
            await self._tell(send, gone)
            self._readers.ended(self._reader)
        finally:
            self._readers.leave(self._reader)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _tell(self, send: Send, gone: asyncio.Task[None]) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await _body(send, RETRY)
        async for page in self._reader.pages(gone):
            for chunk in _chunks(page) if page else [b": beat\nid: %d\n\n" % self._reader.position]:
                await self._reader.turn(len(chunk))
                await _body(send, chunk)
                if gone.done():
                    return
        about = json.dumps(self._reader.farewell()).encode()
        await _body(send, b"event: end\ndata: %b\n\n" % about, more=False)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


def _chunks(page: list[Entry]) -> Iterator[bytes]:
    """Events of a page, some at a time."""
    held: list[bytes] = []
    size = 0
    for entry in page:
        event = b"id: %d\nevent: match\ndata: %b\n\n" % (entry.position, entry.line)
        if held and size + len(event) > CHUNK:
            yield b"".join(held)
            held, size = [], 0
        held.append(event)
        size += len(event)
    yield b"".join(held)


async def follow(socket: WebSocket, reader: Reader, readers: Readers) -> None:
    """Send hits over a WebSocket, one object a message, until either side has enough."""
    gone = asyncio.create_task(_left(socket))
    try:
        async for page in reader.pages(gone):
            for entry in page:
                await reader.turn(len(entry.body))
                await socket.send_text(entry.line.decode())
        if not gone.done():
            about = reader.farewell()
            reason = f"{about['reason']}; resume after {about['position']}"
            await socket.close(TRY_LATER if reader.missed else GOING_AWAY, reason)
    except WebSocketDisconnect:
        pass  # It left while it was sent something.
    finally:
        readers.ended(reader)
        readers.leave(reader)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def _left(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass  # Whatever a reader says is not asked for.
