"""Connections under guard: slow or silent ones cost little, and not for long.

uvicorn bounds the size of headers, but not how long they take, nor how long an answer waits for
somebody to read it. Here a connection has so many seconds for its headers, one that does not read
what was written to it is cut off, and when there are too many, the one that has waited longest
without a request makes room.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Guard"]

SEND_BUFFER: Final = 256 << 10
"""Bytes that the system holds for somebody who does not read."""
TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Guard:
    """The bounds of connections, and what they share.

    `headers` and `stall` are seconds: for the headers of a request, and for a reader to take
    something of what waits for it. `most` is how many connections there may be.
    """

    def __init__(self, *, headers: float = 10.0, stall: float = 20.0, most: int = 4096) -> None:
        self.headers = headers
        self.stall = stall
        self.most = most
        self.waiting: dict[Guarded, None] = {}
        self.turned_away = 0
        self.stalled = 0

    @property
    def http(self) -> type[H11Protocol]:
        """The protocol for HTTP."""
        return type("GuardedHttp", (Guarded,), {"guard": self})

    @property
    def websocket(self) -> type[WebSocketsSansIOProtocol]:
        """The protocol for WebSockets."""
        return type("GuardedWebSocket", (GuardedSocket,), {"guard": self})

    def crowded(self, connections: int) -> bool:
        """Make room if there are too many; whether there is none."""
        if connections <= self.most:
            return False
        self.turned_away += 1
        if not self.waiting:
            return True
        next(iter(self.waiting)).abandon()
        return False


class _Timer:
    """Something that happens unless it is called off."""

    __slots__ = ("_handle",)

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(
        self, loop: asyncio.AbstractEventLoop, delay: float, call: Callable[[], None]
    ) -> None:
        if self._handle is None:
            self._handle = loop.call_later(delay, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Guarded(H11Protocol):
    """HTTP under guard."""

    guard: Guard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._headers = _Timer()
        self._stall = _Timer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _bound_buffer(transport)
        if self.guard.crowded(len(self.connections)):
            transport.abort()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._come()
        self._stall.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE or self._left_over():
            self._await_headers()
        else:
            self._come()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What is idle now is closed by uvicorn in time, and makes room before.
        self.guard.waiting[self] = None
        if self._left_over():
            self._await_headers()

    def _left_over(self) -> bool:
        """Whether what comes belongs to a request that was answered already.

        It is read and dropped, for a while: to close at once would reset the connection, and take
        the answer with it.
        """
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _await_headers(self) -> None:
        self.guard.waiting[self] = None
        self._headers.start(self.loop, self.guard.headers, self._too_slow)

    def _come(self) -> None:
        self.guard.waiting.pop(self, None)
        self._headers.stop()

    def _too_slow(self) -> None:
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
        self.abandon()

    def abandon(self) -> None:
        """Let go of a connection that has no request."""
        self._come()
        if self.conn.our_state is h11.IDLE:
            self.transport.close()
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """Have the service end; a request whose body is still to come has little time left."""
        super().shutdown()
        if self.conn.their_state is h11.SEND_BODY:
            self._headers.start(self.loop, self.guard.headers, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.loop, self.guard.stall, self._cut_off)

    def resume_writing(self) -> None:
        self._stall.stop()
        super().resume_writing()

    def _cut_off(self) -> None:
        self.guard.stalled += 1
        self.transport.abort()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._come()
        super().handle_websocket_upgrade(event)


class GuardedSocket(WebSocketsSansIOProtocol):
    """A WebSocket under guard."""

    guard: Guard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._stall = _Timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.loop, self.guard.stall, self._cut_off)

    def resume_writing(self) -> None:
        self._stall.stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.stop()
        super().connection_lost(exc)

    def _cut_off(self) -> None:
        self.guard.stalled += 1
        self.transport.abort()


def _bound_buffer(transport: asyncio.Transport) -> None:
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
