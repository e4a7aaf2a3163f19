"""The service for ten minutes: memory that stays flat, latencies that do not grow.

A service with `--filters` filters and 100 statements that go on in the corpus, under a steady load
of about `--rate` messages a second, one at a time and in batches, while readers follow matches,
some of whom come and go, statements are replaced, and now and then a message is malformed.

- `server_growth_mb`, `workers_growth_mb`: what the server, and its workers together, have grown by
  from the end of the warm-up, the first fifth, to the end: medians of the first and the last tenth
  of what is behind the warm-up. It is anonymous memory, a process's own. `mapped_growth_mb`: the
  same of the pages of files, those of the index above all, that all of them map; the system can
  have these back. `rss_growth_mb` is the three together.
- `server_slope_mb`, `workers_slope_mb`: what they grow by in 100,000 messages at the end, by least
  squares over the second half.
- `cpu_growth`: CPU of the service for each message, in the last third over that in the first third;
  `client_cpu_growth`: that of the clients, who share the cores.
- `p99_growth`: the p99 of single messages in the last third over that in the first third after the
  warm-up.
- `lost`: matches in the log that a reader has not seen, of those that it followed all the time; to
  be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from bench.service import register, size_of, statements_of
from bench.serving import Client, Process, build, filters, matching, messages, percentiles, request

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run"]

POOL: Final = 500
BATCH: Final = 20
SINGLE: Final = 4
"""Connections that post single messages; one more posts batches."""
FOLLOWERS: Final = 5
WARM: Final = 0.2
THIRDS: Final = (WARM, 0.467), (0.733, 1.0)
"""The first and the last third of what comes after the warm-up."""
BAD: Final = b"<notice>&what;</notice>"


@dataclass(slots=True)
class Soak:
    """What is seen on the way."""

    began: float
    seconds: float
    times: list[tuple[float, float]] = field(default_factory=list)
    memory: list[tuple[float, int, dict[str, float]]] = field(default_factory=list)
    """How far it was, after how many messages, and what was taken then."""
    messages: int = 0
    last: int = 0
    """The position of the last match that a reader has seen, of those that follow all the time."""
    lost: int = 0

    def over(self) -> bool:
        return time.perf_counter() - self.began >= self.seconds

    def part(self) -> float:
        """How far it is, from 0 to 1."""
        return (time.perf_counter() - self.began) / self.seconds


def run(argv: list[str]) -> dict[str, object]:
    """Growth of memory and of latencies."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
        folder = Path(scratch)
        index, records = build(folder, options.size)
        pool = messages(POOL, records)
        statements = statements_of(filters(options.filters, pool), matching())
        quota = 'tenants=[{name="default", limits={statements=10000000}}]'
        small = "log.bytes=33554432", "log.segment_bytes=4194304"
        workers = f"engine.workers={options.workers}"
        with Process.serve(index, folder, quota, workers, *small, *options.set) as process:
            soak = asyncio.run(_soak(process, statements, pool, options))
            return _told(soak, process)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument("--size", type=size_of, default=20 * 10**6, help="of the corpus, as 20MB")
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second")
    parser.add_argument("--workers", type=int, default=0, help="0 is one a core")
    parser.add_argument("--set", action="append", default=[], help="a setting of the service")
    parser.add_argument("--dir", help="where to build the index")
    return parser.parse_args(argv)


async def _soak(
    process: Process, statements: list[dict[str, Any]], pool: list[bytes], options: Any
) -> Soak:
    await register(process.url, statements)
    soak = Soak(time.perf_counter(), options.seconds)
    share = options.rate / (SINGLE + BATCH / 4)
    tasks = [
        *(_single(process.url, pool[at::SINGLE], soak, 1 / share) for at in range(SINGLE)),
        _batches(process.url, pool, soak, 4 / share),
        _follow(process.url, soak),
        *(_come_and_go(process.url, soak) for _ in range(FOLLOWERS)),
        _replace(process.url, statements, soak),
        _watch(process, soak),
    ]
    await asyncio.gather(*tasks)
    return soak


async def _single(url: str, pool: Sequence[bytes], soak: Soak, pause: float) -> None:
    client = Client(url)
    for data in cycle([request(url, body) for body in pool]):
        if soak.over():
            break
        now = time.perf_counter()
        await client.ask(data)
        taken = time.perf_counter() - now
        soak.times.append((soak.part(), taken))
        soak.messages += 1
        await asyncio.sleep(max(pause - taken, 0))
    client.close()


async def _batches(url: str, pool: Sequence[bytes], soak: Soak, pause: float) -> None:
    client = Client(url)
    lots = [b"".join([*pool[at : at + BATCH - 1], BAD]) for at in range(0, POOL, BATCH)]
    for data in cycle([request(url, body) for body in lots]):
        if soak.over():
            break
        now = time.perf_counter()
        await client.ask(data)
        soak.messages += BATCH
        await asyncio.sleep(max(pause - (time.perf_counter() - now), 0))
    client.close()


async def _events(url: str, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    return reader, writer


async def _follow(url: str, soak: Soak) -> None:
    """Read every match from the beginning to the end."""
    reader, writer = await _events(url, "/v1/matches/stream?after=0")
    while not soak.over():
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                line = await reader.readline()
                if line.startswith(b"id: "):
                    position = int(line[4:])
                    # Beats have the position of the last match.
                    soak.lost += max(position - soak.last - 1, 0)
                    soak.last = max(position, soak.last)
    writer.close()


async def _come_and_go(url: str, soak: Soak) -> None:
    """Follow for a moment, leave without a word, and come again."""
    while not soak.over():
        reader, writer = await _events(url, "/v1/matches/stream")
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while await reader.read(1 << 16):
                    pass
        writer.transport.abort()


async def _replace(url: str, statements: list[dict[str, Any]], soak: Soak) -> None:
    """Statements are replaced all the time, by themselves."""
    client = Client(url)
    for each in cycle(statements):
        if soak.over():
            break
        body = json.dumps({"statements": [each]}).encode()
        await client.ask(request(url, body, "/v1/statements/bulk", "application/json"))
        await asyncio.sleep(0.2)
    client.close()


async def _watch(process: Process, soak: Soak) -> None:
    while not soak.over():
        sizes = process.resident()
        taken = {"cpu_s": process.cpu(), "client_s": time.process_time()}
        soak.memory.append((soak.part(), soak.messages, sizes | taken))
        await asyncio.sleep(min(1.0, soak.seconds / 100))


def _told(soak: Soak, process: Process) -> dict[str, object]:
    end = process.resident()
    thirds = [
        percentiles([taken for at, taken in soak.times if low <= at < high]) for low, high in THIRDS
    ]
    cpu, client = (_each(soak, what) for what in ("cpu_s", "client_s"))
    grown = {
        f"{what}_growth_mb": _growth(soak, f"{what}_mb") for what in ("server", "workers", "mapped")
    }
    return {
        **grown,
        "rss_growth_mb": sum(grown.values()),
        "server_slope_mb": _slope(soak, "server_mb"),
        "workers_slope_mb": _slope(soak, "workers_mb"),
        "p99_growth": thirds[1]["p99_ms"] / thirds[0]["p99_ms"],
        "p50_growth": thirds[1]["p50_ms"] / thirds[0]["p50_ms"],
        "cpu_growth": cpu[1] / cpu[0],
        "client_cpu_growth": client[1] / client[0],
        "lost": soak.lost,
        "seconds": soak.seconds,
        "messages": soak.messages,
        "matches": soak.last,
        "first": thirds[0],
        "last": thirds[1],
        "memory": end,
        "course": _course(soak),
    }


def _each(soak: Soak, what: str) -> list[float]:
    """Seconds of CPU for each message, in the first third and in the last."""
    found = []
    for low, high in THIRDS:
        some = [(number, taken[what]) for at, number, taken in soak.memory if low <= at < high]
        (began, before), (ended, after) = some[0], some[-1]
        found.append((after - before) / (ended - began))
    return found


def _growth(soak: Soak, what: str) -> float:
    begin = [sizes[what] for at, _, sizes in soak.memory if WARM <= at < WARM + 0.08]
    end = [sizes[what] for at, _, sizes in soak.memory if at >= 0.92]
    return statistics.median(end) - statistics.median(begin)


def _slope(soak: Soak, what: str) -> float:
    """MB for each 100,000 messages, in the second half."""
    half = [(number / 1e5, sizes[what]) for at, number, sizes in soak.memory if at >= 0.5]
    return statistics.linear_regression(*zip(*half, strict=True)).slope


def _course(soak: Soak) -> list[dict[str, float]]:
    """What was taken at each tenth, to see where it goes."""
    found = []
    for tenth in range(10):
        some = [sizes for at, _, sizes in soak.memory if tenth <= at * 10 < tenth + 1]
        if some:
            whats = some[0]
            found.append({what: statistics.median(each[what] for each in some) for what in whats})
    return found
