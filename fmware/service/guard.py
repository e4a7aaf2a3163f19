"""Connections under guard: slow or silent ones cost little, and not for long.

uvicorn bounds the size of headers, but not how long they take, nor how long an answer waits for
somebody to read it. Here a connection has so many seconds for its headers, and one that takes next
to nothing of what was written to it is cut off. When there are too many, the one makes room that
has gone longest without a whole request: a good client says at once what it has to say. (How long
a body may take is the `door`'s.)

What comes in small pieces costs by the piece: chunks of a body, and frames of a WebSocket, control
frames among them. So little is read of a connection in one turn of the loop, and one that sends
pieces by the thousand is closed.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from fmware.service.tenants import Bucket

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from fmware.service.metrics import Reading
    from fmware.service.settings import Server
    from fmware.service.tenants import Account

__all__ = ["Guard"]

SEND_BUFFER: Final = 256 << 10
"""Bytes that the system holds for somebody who does not read."""
LEAST: Final = 16 << 10
"""Bytes that a reader must take within the seconds of `stall`."""
LOOKS: Final = 4
"""How often it is looked within them whether it has."""
LARGE: Final = 16 << 10
"""Bytes of an answer that are sent at once."""
READ: Final = 8 << 10
"""Bytes that are read of a connection at once: chunks of one byte take milliseconds then."""
READ_FRAMES: Final = 4 << 10
"""The same of a WebSocket, of which a frame may have six bytes."""
CHUNKS: Final = 10_000
LEAST_CHUNK: Final = 256
"""Chunks that a body may have, and the bytes they have on average if there are more."""
FRAMES: Final = 20.0
FRAMES_AT_ONCE: Final = 100
"""Frames a second that a WebSocket may send: its reader has nothing to say but pongs."""
FLOOD: Final = 1008
EMPTY: Final = b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout" + EMPTY
NO_ROOM: Final = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1" + EMPTY
AT_ONCE: Final = struct.pack("ii", 1, 0)
"""What is unsent at a close is dropped: else the system would hold it for who does not read."""


class Guard:
    """The bounds of connections, those there are, and what became of others.

    `most` is how many there may be: fewer than the settings say where the system has not as many
    files.
    """

    def __init__(self, settings: Server, most: int) -> None:
        self.headers = settings.header_seconds
        self.stall = settings.stall_seconds
        self.most = most
        self.open = 0
        self.waiting: dict[Guarded, None] = {}
        self.turned_away = 0
        self.stalled = 0
        self.too_slow = 0
        self.flooded = 0

    @property
    def http(self) -> type[H11Protocol]:
        """The protocol for HTTP."""
        return type("GuardedHttp", (Guarded,), {"guard": self})

    @property
    def websocket(self) -> type[WebSocketsSansIOProtocol]:
        """The protocol for WebSockets."""
        return type("GuardedWebSocket", (GuardedSocket,), {"guard": self})

    def crowded(self) -> bool:
        """Make room if there are too many; whether there is none."""
        if self.open <= self.most:
            return False
        self.turned_away += 1
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return True
        oldest.abandon()
        return False

    def readings(self) -> Iterable[Reading]:
        """Values for Prometheus."""
        none: dict[str, str] = {}
        of = "fmware_connections"
        yield of, "Connections.", self.open, none
        yield f"{of}_waiting", "Those without a whole request.", len(self.waiting), none
        yield f"{of}_turned_away_total", "Too many: one went.", self.turned_away, none
        yield f"{of}_too_slow_total", "Headers that took too long.", self.too_slow, none
        yield f"{of}_stalled_total", "Readers that took nothing.", self.stalled, none
        yield f"{of}_flooded_total", "Too many small pieces: closed.", self.flooded, none


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


class _Stall:
    """Cuts off whoever takes next to nothing while something waits for it."""

    __slots__ = ("_guard", "_looks", "_loop", "_timer", "_transport", "_waits")

    def __init__(self, guard: Guard, loop: asyncio.AbstractEventLoop) -> None:
        self._guard = guard
        self._loop = loop
        self._timer = _Timer()
        self._waits = 0
        self._looks = 0

    def begin(self, transport: asyncio.Transport) -> None:
        """Something waits from now on."""
        self._transport = transport
        self._waits = _unread(transport)
        self._looks = 0
        self._again()

    def end(self) -> None:
        """It does no more."""
        self._timer.stop()

    def _again(self) -> None:
        self._timer.stop()
        self._timer.start(self._loop, self._guard.stall / LOOKS, self._look)

    def _look(self) -> None:
        if (unread := _unread(self._transport)) <= self._waits - LEAST:
            self._waits, self._looks = unread, 0
        else:
            self._looks += 1
        if self._looks < LOOKS:
            self._again()
        else:
            self._guard.stalled += 1
            _cut(self._transport)


class _Joined:
    """A transport that sends as one what is written in one turn of the loop.

    uvicorn writes the head of an answer and its body apart: each would be a call of the system and
    wake the client.
    """

    __slots__ = ("_held", "_loop", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._size += len(data)
        if self._size > LARGE:
            # So that a sender that writes without end is told to wait.
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._size = self._held, [], 0
        if held:
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    @property
    def joined(self) -> asyncio.Transport:
        """The transport itself."""
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Counted(h11.Connection):
    """HTTP of which chunks are counted: a body in very many small ones is refused."""

    def __init__(self, guard: Guard, size: int) -> None:
        super().__init__(h11.SERVER, size)
        self._guard = guard
        self._chunks = 0
        self._bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if type(event) is h11.Data:
            self._chunks += 1
            self._bytes += len(event.data)
            if self._chunks > CHUNKS + self._bytes // LEAST_CHUNK:
                self._guard.flooded += 1
                raise h11.RemoteProtocolError("too many small chunks")
        elif type(event) is h11.Request:
            self._chunks = self._bytes = 0
        return event


class Guarded(H11Protocol):
    """HTTP under guard."""

    guard: Guard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _Counted(self.guard, cast("int", self.config.h11_max_incomplete_event_size))
        self._headers = _Timer()
        self._stall = _Stall(self.guard, self.loop)
        self._handed_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Joined(transport, self.loop)))
        self.guard.open += 1
        _bound_buffer(transport)
        _bound_reads(transport, READ)
        if self.guard.crowded():
            transport.write(NO_ROOM)
            transport.close()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.open -= 1
        self._forget()
        self._stall.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._handed_over:
            return  # To another protocol: h11 would have it that its request is still coming.
        if self.conn.their_state is h11.IDLE or self._left_over():
            self._await_headers()
        else:
            self._headers.stop()
            self._place()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What is idle now is closed by uvicorn in time, and makes room before.
        self._place()
        if self._left_over():
            self._await_headers()

    def _place(self) -> None:
        """Have it among those that wait while it has no whole request, in the order of coming."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.guard.waiting[self] = None
        else:
            self.guard.waiting.pop(self, None)

    def _left_over(self) -> bool:
        """Whether what comes belongs to a request that was answered already.

        It is read and dropped, for a while: to close at once would reset the connection, and take
        the answer with it.
        """
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _await_headers(self) -> None:
        self._place()
        self._headers.start(self.loop, self.guard.headers, self._too_slow)

    def _forget(self) -> None:
        self.guard.waiting.pop(self, None)
        self._headers.stop()

    def _too_slow(self) -> None:
        if self.conn.our_state is h11.IDLE and not self.transport.is_closing():
            self.guard.too_slow += 1
            self.transport.write(TOO_SLOW)
        self.abandon()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; where an answer has begun, there is no room for this one."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def abandon(self) -> None:
        """Let go of a connection that has no whole request."""
        self._forget()
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
        self._stall.begin(self.transport)

    def resume_writing(self) -> None:
        self._stall.end()
        super().resume_writing()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if _has_body(self.headers):
            self.send_400_response("A request for a WebSocket has no body.")
            return
        self._forget()
        self._handed_over = True
        super().handle_websocket_upgrade(event)


class GuardedSocket(WebSocketsSansIOProtocol):
    """A WebSocket under guard; it was a connection for HTTP, and is counted as such.

    Its handshake has the time of headers: what the one protocol reads the other may not, and then
    nobody would answer.
    """

    guard: Guard

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._handshake = _Timer()
        self._stall = _Stall(self.guard, self.loop)
        self._frames = Bucket(FRAMES, FRAMES_AT_ONCE)

    def handle_events(self) -> None:
        """Take what came, unless these are too many frames."""
        frames = sum(isinstance(each, Frame) for each in self.conn.events)
        account = cast("Account | None", self.scope.get("account") if frames else None)
        if not frames or (not self._frames.take(frames) and self._fits(account, frames)):
            super().handle_events()
        elif not self.transport.is_closing():
            self.guard.flooded += 1
            if account is not None:
                account.flooded()
            self.conn.events.clear()
            self.conn.fail(FLOOD, "too many frames")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()

    def _fits(self, account: Account | None, frames: int) -> bool:
        """Whether all WebSockets of a tenant may send so much; one that was calm may go on."""
        within = account is None or account.sends(frames)
        return within or self._frames.left() >= FRAMES_AT_ONCE / 2

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        _bound_reads(cast("_Joined", transport).joined, READ_FRAMES)
        self._handshake.start(self.loop, self.guard.headers, self._too_slow)

    def _too_slow(self) -> None:
        if self.handshake_complete or self.transport.is_closing():
            return
        self.guard.too_slow += 1
        # Where the application has begun an answer of its own, this is no place for another.
        if self.initial_response is None:
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.begin(self.transport)

    def resume_writing(self) -> None:
        self._stall.end()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.open -= 1
        self._handshake.stop()
        self._stall.end()
        super().connection_lost(exc)


def _has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    told = dict(headers)
    return b"transfer-encoding" in told or told.get(b"content-length", b"0").strip(b"0") != b""


def _bound_buffer(transport: asyncio.Transport) -> None:
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)


def _bound_reads(transport: asyncio.Transport, size: int) -> None:
    """Have no more read in one turn; asyncio's transports read a quarter of a megabyte else."""
    if hasattr(transport, "max_size"):
        transport.max_size = size


def _unread(transport: asyncio.Transport) -> int:
    """Bytes that the other side has not taken: those that wait here, and those with the system."""
    asked = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    sent: int = struct.unpack("i", asked)[0]
    return sent + transport.get_write_buffer_size()


def _cut(transport: asyncio.Transport) -> None:
    """End a connection, and have the system forget what it holds for it."""
    held = transport.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    transport.abort()
