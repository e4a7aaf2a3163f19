"""The bodies of all requests together have a bound, and a tenant does not take all of it."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from fmware.service.bodies import Incoming
from fmware.service.held import Held, Room
from fmware.service.problems import Problem
from tests.service.running import Served
from tests.service.shop import shop

if TYPE_CHECKING:
    from pathlib import Path


def fill(room: Room, tenant: str, size: int, most: int) -> int:
    """Requests of a tenant, of so many bytes, that find room."""
    count = 0
    with suppress(Problem):
        for _ in range(most):
            Held(room, tenant).more(size)
            count += 1
    return count


def test_one_tenant_has_half_of_the_room_and_others_find_some() -> None:
    room = Room(1000)
    assert fill(room, "a", 10, 1000) == 50
    assert fill(room, "b", 10, 1000) == 25
    assert fill(room, "c", 10, 1000) > 0
    assert room.bytes < 1000


def test_a_single_request_may_have_all_of_it_and_gives_it_back() -> None:
    room = Room(1000)
    large = Held(room, "a")
    for _ in range(10):
        large.more(100)
    with pytest.raises(Problem):
        large.more(1)
    large.let_go()
    assert room.bytes == 0
    Held(room, "b").more(1000)


def test_what_is_unpacked_counts() -> None:
    body = gzip.compress(bytes(5000))

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    room = Room(4000)
    incoming = Incoming({b"content-encoding": b"gzip"}, receive, Held(room, "a"))
    with pytest.raises(Problem) as refused:
        asyncio.run(incoming.body(10_000))
    assert refused.value.code == "busy"


def test_bodies_that_never_end_take_no_room_from_others(tmp_path: Path) -> None:
    """A tenant announces bodies and sends nearly all of each; another one is answered."""
    body = b"<m>" + b" " * 90_000
    settings = ("server.body_bytes=100000", "server.bodies_bytes=400000")

    async def run(port: int) -> tuple[list[bytes], bytes]:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in opened[:4]:
            writer.write(head % 99_000 + body)
        waiting = [asyncio.ensure_future(reader.readline()) for reader, _ in opened[:4]]
        while len([each for each in waiting if each.done()]) < 2:
            await asyncio.sleep(0.01)
        reader, writer = opened[4]
        writer.write(head % 4 + b"<m/>")
        answer = await asyncio.wait_for(reader.readline(), 10)
        refused = [each.result() for each in waiting if each.done()]
        for _, each in opened:
            each.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        return refused, answer

    with Served(shop(tmp_path), tmp_path / "state", *settings) as running:
        refused, answer = asyncio.run(run(int(running.url.rpartition(":")[2])))
    assert 2 <= len(refused) < 4
    assert all(b" 503 " in each for each in refused)
    assert b" 200 " in answer
