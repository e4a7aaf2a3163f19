"""The door: what every request passes before it is anybody's.

It gives the request an id, looks at its host and origin, finds the tenant of its token, bounds its
time and its body, and answers what was refused as problem+json. It is plain ASGI, since everything
goes through it.

Without tokens the service listens to this machine only; a browser on it might still be led here by
any page. So the host must then be this machine's by name, and a request from another origin that
changes something, or opens a WebSocket, is refused.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from typing import TYPE_CHECKING, Final

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fmware.service.bodies import told_size, too_large
from fmware.service.held import Held, Room
from fmware.service.logging import logger
from fmware.service.problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fmware.service.service import Service
    from fmware.service.tenants import Account

__all__ = ["Door"]

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "testserver"})
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
GONE: Final = 499
"""For whoever left before the answer; only the log and metrics see it."""
STREAMS: Final = "/v1/matches/"
TARRY: Final = 2.0
"""Seconds after which a WebSocket is refused: a handshake costs more than one that waits."""
HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NAME: Final = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
PORT: Final = re.compile(r":\d+$")
PROTOCOL: Final = b"bearer."
"""A browser cannot give a WebSocket headers: it names the token as a protocol."""

log = logger("http")


class Door:
    """Wraps the application; `direct` are those that answer a method and path in its place."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        direct: Mapping[tuple[str, str], ASGIApp] | None = None,
    ) -> None:
        self._app = app
        self._direct = direct or {}
        self._service = service
        server = service.settings.server
        self._seconds = server.request_seconds
        self._pause = server.body_pause_seconds
        self._header_bytes = server.header_bytes
        self._body_bytes = server.body_bytes
        self._room = Room(max(server.bodies_bytes, 2 * server.body_bytes))
        self._talks = server.log_level == "debug"
        self._hosts = None if service.tenants.guarded else LOCAL | {server.host, *server.hosts}
        if server.open or "*" in server.hosts:
            self._hosts = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = _Visit(scope, send)
        structlog.contextvars.bind_contextvars(request=visit.id)
        try:
            self._admit(scope, visit.headers)
            most = self._most(scope)
            if told_size(visit.headers.get(b"content-length", b"").decode("latin-1")) > most:
                raise too_large(most)
            # What follows matches has no end; everything else has.
            if scope["path"].startswith(STREAMS):
                await self._app(scope, receive, visit.send)
            else:
                await self._in_time(scope, receive, visit, most)
        except Problem as problem:
            await self._refuse(scope, visit, problem)
        except ClientDisconnect:
            visit.status = GONE
        except asyncio.CancelledError:
            # Only when the time to stop is over; what was not answered may be sent again.
            await self._refuse(scope, visit, Problem(503, "stopping", "the service stops"))
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            if not visit.started:
                what = "something went wrong here; the log has more under the request's id"
                await self._refuse(scope, visit, Problem(500, "internal", what))
        finally:
            self._note(scope, visit)

    def _most(self, scope: Scope) -> int:
        """Bytes that the body of a request may have."""
        account: Account | None = scope.get("account")
        return self._body_bytes if account is None else account.body_bytes

    async def _in_time(self, scope: Scope, receive: Receive, visit: _Visit, most: int) -> None:
        """See a request through within its time, and its body without too long a pause."""
        account: Account | None = scope.get("account")
        held = scope["held"] = Held(self._room, "" if account is None else account.name)
        try:
            with _Deadline(self._seconds, self._pause) as deadline:
                visit.began_answer = deadline.lift
                body = _Body(receive, deadline, most, held)
                app = self._direct.get((scope["method"], scope["path"]), self._app)
                await app(scope, body.receive, visit.send)
        except TimeoutError:
            if deadline.since is None:
                what = f"it took more than {self._seconds:g} seconds"
                raise Problem(503, "timeout", what, headers={"Retry-After": "1"}) from None
            what = f"the body was not here after {time.perf_counter() - visit.began:.1f} seconds"
            hint = f"send all of it within {self._seconds:g}, without a pause of {self._pause:g}"
            close = {"Connection": "close"}
            raise Problem(408, "body-too-slow", what, hint=hint, headers=close) from None
        finally:
            held.let_go()

    def _note(self, scope: Scope, visit: _Visit) -> None:
        taken = time.perf_counter() - visit.began
        route = scope.get("route")
        path = getattr(route, "path", "other")
        # How long somebody follows matches says nothing of how long requests take.
        timed = None if scope["path"].startswith(STREAMS) else taken
        self._service.metrics.answered(scope["method"], path, visit.status, timed)
        if visit.status >= 400 or self._talks:
            (log.info if visit.status >= 400 else log.debug)(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=visit.status,
                ms=round(taken * 1e3, 3),
            )

    async def _refuse(self, scope: Scope, visit: _Visit, problem: Problem) -> None:
        account: Account | None = scope.get("account")
        self._service.metrics.rejected(problem.code, account.name if account else None)
        if visit.started:
            return  # Too late to say so: the connection is closed with half an answer.
        body = problem.body(visit.id)
        extra = [(key.lower().encode(), value.encode()) for key, value in problem.headers.items()]
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            *extra,
        ]
        await visit.send(
            {"type": "http.response.start", "status": problem.status, "headers": headers}
        )
        await visit.send({"type": "http.response.body", "body": body})

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            self._admit(scope, headers)
            await self._connect(scope.get("account"))
            await self._app(scope, receive, send)
        except Problem as problem:
            self._service.metrics.rejected(problem.code)
            await _refuse_socket(send, problem)

    async def _connect(self, account: Account | None) -> None:
        """Refuse a WebSocket of a tenant that floods them; after a while, or it comes at once."""
        try:
            if account is not None:
                account.connects()
        except Problem:
            await asyncio.sleep(TARRY)
            raise

    # --- who may come in --------------------------------------------------------------------

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        # What came in one piece is here whatever its size: only what is not whole is cut off.
        if _size(scope) > self._header_bytes:
            what = f"the headers have more than {self._header_bytes:,} bytes"
            raise Problem(431, "headers-too-large", what, headers={"Connection": "close"})
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _bare(host) not in self._hosts:
            hint = "call it by the address it listens on, or give tenants tokens"
            raise Problem(421, "wrong-host", f"{host!r} is not this host", hint=hint)
        if scope.get("method") not in SAFE and not _same_origin(headers, host):
            raise Problem(403, "wrong-origin", "a page of another origin may not ask this")
        path: str = scope["path"]
        if not path.startswith("/v1/") and path != "/metrics":
            return
        if [key for key, _ in scope["headers"]].count(b"authorization") > 1:
            what = "there is more than one Authorization"
            raise Problem(400, "bad-authorization", what, hint="send one token")
        token = _token(headers, upgrade=scope["type"] == "websocket")
        if path == "/metrics" and self._service.tenants.measures(token):
            scope["account"] = None
        else:
            scope["account"] = self._account(token)

    def _account(self, token: bytes | None) -> Account:
        account = self._service.tenants.of(token)
        if account is None:
            what = "the token is not known" if token else "a token is needed"
            hint = "send Authorization: Bearer TOKEN"
            challenge = {"WWW-Authenticate": 'Bearer realm="fmware"'}
            raise Problem(401, "unauthorized", what, hint=hint, headers=challenge)
        return account


class _Visit:
    """One request: its id, and what was answered."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.began = time.perf_counter()
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        named = self.headers.get(b"x-request-id", b"")
        self.id = named.decode() if NAME.fullmatch(named) else os.urandom(8).hex()
        self.status = 0
        self.started = False
        self.began_answer: Callable[[], None] | None = None
        self._send = send
        scope["request_id"] = self.id

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            if self.began_answer is not None:
                self.began_answer()
            self.status = message["status"]
            headers = [*message["headers"], *HEADERS, (b"x-request-id", self.id.encode())]
            if POLICY[0] not in dict(headers):
                headers.append(POLICY)
            message = {**message, "headers": headers}
        await self._send(message)


class _Deadline:
    """Ends a request after some seconds, or when it has waited for more of its body too long.

    It is `asyncio.timeout` with a second bound, which begins anew whenever the body is waited for:
    `since` says from when. There is one timer for both, and it is not moved when a part comes.
    """

    __slots__ = ("_cancelling", "_end", "_late", "_loop", "_pause", "_task", "_timer", "since")

    def __init__(self, seconds: float, pause: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._pause = pause
        self._end = self._loop.time() + seconds
        self._late = False
        self.since: float | None = None

    def wait(self) -> None:
        """More of the body is waited for."""
        self.since = self._loop.time()

    def go_on(self) -> None:
        """It has come."""
        self.since = None

    def lift(self) -> None:
        """The answer begins: how long that may take depends on its reader, see `guard`."""
        self._end = math.inf

    def __enter__(self) -> _Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_at(self._due(), self._look)
        return self

    def _due(self) -> float:
        """When it may be late."""
        begun = self._loop.time() if self.since is None else self.since
        return min(self._end, begun + self._pause)

    def _look(self) -> None:
        """End the request if it is late, or look again when it may be."""
        due = self._due()
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._late = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        ended = self._late and self._task.uncancel() <= self._cancelling
        if ended and kind is asyncio.CancelledError:
            raise TimeoutError


class _Body:
    """A body as it comes: no more of it is given to anybody than `most` bytes."""

    __slots__ = ("_deadline", "_held", "_most", "_receive", "_size", "_whole")

    def __init__(self, receive: Receive, deadline: _Deadline, most: int, held: Held) -> None:
        self._held = held
        self._receive = receive
        self._deadline = deadline
        self._most = most
        self._size = 0
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        self._deadline.wait()
        message = await self._receive()
        self._deadline.go_on()
        self._whole = not message.get("more_body", False)
        size = len(message.get("body", b""))
        self._size += size
        # FastAPI makes a 400 of any other error that is met while it reads a body.
        if self._size > self._most:
            raise HTTPException(413) from too_large(self._most)
        try:
            self._held.more(size)
        except Problem as problem:
            raise HTTPException(problem.status) from problem
        return message


def _size(scope: Scope) -> int:
    """Bytes of the headers, with what stands between them, and of what is asked for."""
    target = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    return target + sum([len(key) + len(value) + 4 for key, value in scope["headers"]])


def _token(headers: dict[bytes, bytes], *, upgrade: bool) -> bytes | None:
    """The token of a request; one that asks for a WebSocket may name it as a protocol."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return token.strip()
    named = headers.get(b"sec-websocket-protocol", b"") if upgrade else b""
    for each in named.split(b","):
        if each.strip().startswith(PROTOCOL):
            return each.strip().removeprefix(PROTOCOL)
    return None


def _same_origin(headers: dict[bytes, bytes], host: str) -> bool:
    """Whether a request comes from a page of this service, or from no page."""
    origin = headers.get(b"origin")
    return origin is None or origin.decode("latin-1").partition("://")[2] == host


def _bare(host: str) -> str:
    """The host without its port."""
    return PORT.sub("", host).lower()


async def _refuse_socket(send: Send, problem: Problem) -> None:
    body = problem.body()
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    start = {"type": "websocket.http.response.start", "status": problem.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})
