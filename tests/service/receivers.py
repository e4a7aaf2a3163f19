"""Servers of other people, on this machine, and webhooks that send to them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fmware.service.addresses import look_up
from fmware.service.envelope import Hit
from fmware.service.log import MatchLog
from fmware.service.settings import Target, WebhookSettings
from fmware.service.webhooks import Webhooks

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

SECRET = "a long random secret"
ENVIRON = {"SECRET": SECRET, "OLD": "the one before"}


def answered(
    status: int = 204, headers: dict[str, str] | None = None
) -> Callable[[Request], tuple[int, dict[str, str]]]:
    return lambda _: (status, headers or {})


@dataclass
class Request:
    """What a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[str]:
        return [each["message"] for each in json.loads(self.body)["matches"]]


@dataclass
class Receiver:
    """A server of somebody else."""

    port: int = 0
    seen: list[Request] = field(default_factory=list)


@asynccontextmanager
async def receiver(
    answer: Callable[[Request], tuple[int, dict[str, str]]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    made = Receiver()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {
                    key.lower(): value for key, _, value in (line.partition(": ") for line in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                made.seen.append(Request(first.split()[1], headers, body))
                status, more = answer(made.seen[-1])
                said = "".join(f"{key}: {value}\r\n" for key, value in more.items())
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{said}\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def hit(number: int, statement: str = "bulk", tenant: str = "default") -> Hit:
    return Hit(f"{tenant}:{number}:{statement}", str(number), tenant, statement, {"n": number})


@asynccontextmanager
async def running(
    place: Path,
    server: Receiver,
    *,
    statements: tuple[str, ...] = (),
    old: bool = False,
    told: list[tuple[str, dict[str, Any]]] | None = None,
    host: str = "127.0.0.1",
    path: str = "hook",
    secret: str = SECRET,
    tenant: str = "default",
    names: Callable[[str, int], Coroutine[Any, Any, Sequence[str]]] = look_up,
    **more: Any,
) -> AsyncIterator[tuple[MatchLog, Webhooks]]:
    """A log, and webhooks that send from it to a receiver."""
    target = Target(
        name="crm",
        url=f"http://{host}:{server.port}/{path}",
        tenant=tenant,
        statements=statements,
        secret_env="SECRET",
        old_secret_env="OLD" if old else None,
    )
    about = {"first_seconds": 0.001, "longest_seconds": 0.01, "timeout_seconds": 5.0} | more
    settings = WebhookSettings(
        https_only=False,
        ports=(server.port,),
        allow=("127.0.0.0/8",),
        targets=(target,),
        **about,
    )
    log = MatchLog(place / "log", sync=False)
    await log.open()
    events = [] if told is None else told
    hooks = Webhooks(
        settings,
        log,
        place / "webhooks.db",
        ENVIRON | {"SECRET": secret},
        told=lambda event, what: events.append((event, what)),
        look_up=names,
    )
    await hooks.start()
    try:
        yield log, hooks
    finally:
        await hooks.stop()
        await log.close()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.002)


def run(made: Coroutine[Any, Any, None]) -> None:
    asyncio.run(made)
