"""Bad company for a service: connections that say a byte a second, and readers that do not read.

`python -m bench.company URL` stays until its standard input ends. It is a process of its own, with
the lowest priority, since on a real network these clients are other machines: what they cost
themselves is not the service's, only what they cost it. It prints a line when all are there, and a
last one with how often they came: whoever is sent away comes again after a second.

Slow ones are of two kinds, half of them each: of headers, and of bodies, which say whole headers
and then a byte a second. `--together` has all of them write in the same moment, else they are
spread over the second. Readers follow matches from the first one on, and take nothing of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    Kind = Callable[[socket.socket], Awaitable[None]]

__all__ = ["Company", "company"]

LENGTH: Final = 10_000
"""Bytes that a slow one is going to say."""
PAUSE: Final = 1.0
"""Seconds until one that was sent away comes again."""
THERE: Final = 0.95
"""The part of them that is enough to begin with."""


@contextmanager
def company(url: str, slow: int, readers: int, *, together: bool) -> Iterator[dict[str, int]]:
    """Have bad company in a process of its own; at the end, how often each kind came."""
    command = [sys.executable, "-m", "bench.company", url, f"--slow={slow}", f"--readers={readers}"]
    if together:
        command.append("--together")
    came: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield came
        finally:
            came |= json.loads(process.communicate()[0] or b"{}")


class Company:
    """All of them; `came` counts by kind how often."""

    def __init__(self, url: str, *, together: bool) -> None:
        place = urlsplit(url)
        self._place = (place.hostname or "127.0.0.1", place.port or 80)
        self._host = place.netloc
        self._together = together
        self._there = 0
        self.came: Counter[str] = Counter()

    async def come(self, slow: int, readers: int) -> list[asyncio.Task[None]]:
        """Have all of them come; they stay."""
        kinds: list[Kind] = [self._headers, self._bodies]
        wanted = [*(kinds[number % 2] for number in range(slow)), *[self._stare] * readers]
        tasks = [asyncio.create_task(self._stay(kind)) for kind in wanted]
        while self._there < THERE * len(wanted):
            await asyncio.sleep(0.05)
        return tasks

    async def _stay(self, kind: Kind) -> None:
        while True:
            await asyncio.sleep(random.random() * PAUSE)
            with suppress(OSError), socket.socket() as made:
                made.settimeout(0)
                await asyncio.get_running_loop().sock_connect(made, self._place)
                self._there += 1
                self.came[kind.__name__.removeprefix("_")] += 1
                try:
                    await kind(made)
                finally:
                    self._there -= 1

    async def _headers(self, made: socket.socket) -> None:
        await self._drip(made, b"POST /v1/messages HTTP/1.1\r\nX-Slow: ")

    async def _bodies(self, made: socket.socket) -> None:
        head = f"POST /v1/messages HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {LENGTH}\r\n"
        made.send(head.encode() + b"Content-Type: application/xml\r\n\r\n")
        await self._drip(made, b"<a>")

    async def _drip(self, made: socket.socket, begin: bytes) -> None:
        for byte in begin + b"x" * LENGTH:
            await asyncio.sleep(1.0 - time.time() % 1.0 if self._together else 1.0)
            made.send(bytes([byte]))
            if _answered(made):
                return

    async def _stare(self, made: socket.socket) -> None:
        ask = f"GET /v1/matches/stream?after=0 HTTP/1.1\r\nHost: {self._host}\r\n\r\n"
        made.send(ask.encode())
        while not made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            await asyncio.sleep(1.0)


def _answered(made: socket.socket) -> bool:
    """Whether the service has said something, or closed: it wants no more."""
    try:
        made.recv(1)
    except BlockingIOError:
        return False
    return True


async def _main(options: argparse.Namespace) -> None:
    os.nice(19)
    company = Company(options.url, together=options.together)
    tasks = await company.come(options.slow, options.readers)
    print("there", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(company.came), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(argv: Sequence[str]) -> None:
    """Stay until standard input ends."""
    parser = argparse.ArgumentParser("bench.company", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--slow", type=int, default=500, help="connections that say little")
    parser.add_argument("--readers", type=int, default=50, help="followers that never read")
    parser.add_argument("--together", action="store_true", help="all write in the same moment")
    asyncio.run(_main(parser.parse_args(argv)))


if __name__ == "__main__":
    main(sys.argv[1:])
