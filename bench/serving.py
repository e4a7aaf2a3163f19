"""What benchmarks of the service share: its workload, its process, a client that costs little."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fmware.corpus import build_index
from fmware.datasets import bibliography, queries
from fmware.datasets.bibliography import TAGS
from fmware.datasets.messages import citations
from fmware.filtering import FilterEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "Client",
    "Process",
    "Times",
    "build",
    "filters",
    "load",
    "matching",
    "messages",
    "percentiles",
    "request",
]

TICK: Final = os.sysconf("SC_CLK_TCK")
BODY: Final = range(3500, 4700)
"""Bytes of a message: about 4 KB."""
SAMPLE: Final = 200
RECORD: Final = 400
"""Bytes of a record of the corpus, roughly."""
WAIT: Final = 300.0


# --- the workload -----------------------------------------------------------------------------


def build(folder: Path, size: int) -> tuple[Path, int]:
    """An index of a bibliography of so many bytes, and how many records it has."""
    made = bibliography(size=size, doctype="none", entities=False, encoding="utf-8")
    with (folder / "corpus.xml").open("wb") as file:
        file.writelines(made)
    rules = [f"{tag}=@key" for tag in TAGS]
    build_index(
        folder / "corpus.xml",
        folder / "index",
        record=list(TAGS),
        identity=rules,
        calibrate=True,
    )
    return folder / "index", made.records


def messages(count: int, records: int, seed: int = 0) -> list[bytes]:
    """Notices of about 4 KB that cite records of the corpus."""
    found = citations(count * 20, records=records, cited=20, seed=seed)
    return list(islice((each for each in found if len(each) in BODY), count))


def filters(count: int, seen: Sequence[bytes], seed: int = 0) -> list[str]:
    """Statements on messages alone, with three predicates each, that seldom match.

    Those that match one of the first messages are left out: an answer with hundreds of names
    would measure how fast names are written.
    """
    engine = FilterEngine()
    drawn = list(queries("notices", count + count // 2 + 500, predicates=3, seed=seed + 1))
    for number, each in enumerate(drawn):
        engine.subscribe(each, name=str(number))
    often = {number for body in seen[:SAMPLE] for number in engine.filter(body).ids.tolist()}
    return [each for number, each in enumerate(drawn) if number not in often][:count]


def matching() -> list[str]:
    """A hundred statements that go on in the corpus."""
    places = ("order", "review", "citation/cited", "citation/citing", "*")
    tests = ("[quantity > 12]", "[rating > 4]", "[passage/@page > 300]", "[year > 2015]")
    locals_ = ("local:author", "local:year", "local:title", "local:pages", "local:journal")
    found = [
        f"/notice/{place}/{tag}{test}/{local}"
        for tag in ("article", "inproceedings", "book", "incollection", "phdthesis")
        for place, test, local in zip(
            islice(cycle(places), 20),
            islice(cycle(tests), 20),
            islice(cycle(locals_), 20),
            strict=True,
        )
    ]
    return found[:100]


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """Milliseconds, the middle and the worst hundredth."""
    if len(times) < 2:
        return {}
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


# --- the service as a process -----------------------------------------------------------------


class Process:
    """A server in a process of its own; its log goes to a file, in which its address is found."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self._log = folder / f"log-{time.monotonic_ns()}.jsonl"
        with self._log.open("wb") as file:
            self.popen = subprocess.Popen([sys.executable, *command], stderr=file)
        self.url = self._listening()

    @classmethod
    def serve(cls, index: Path, folder: Path, *settings: str) -> Process:
        """`fmware serve`, with a state of its own."""
        state = folder / f"state-{time.monotonic_ns()}"
        said = ("server.port=0", f"state={state}", "server.body_bytes=67108864", *settings)
        options = [part for each in said for part in ("--set", each)]
        return cls(folder, ["-m", "fmware", "serve", str(index), *options])

    def _listening(self) -> str:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for line in self._log.read_text().splitlines():
                if '"listening"' in line:
                    return str(json.loads(line)["url"])
            if self.popen.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {self._log.read_text()[-2000:]}")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        self.popen.wait(WAIT)

    def pids(self) -> list[int]:
        """The server and its workers."""
        own = self.popen.pid
        tasks = Path(f"/proc/{own}/task").glob("*/children")
        return [own, *(int(each) for task in tasks for each in task.read_text().split())]

    def cpu(self) -> float:
        """Seconds of CPU that all of them have used."""
        total = 0
        for pid in self.pids():
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(stat[11]) + int(stat[12])
        return total / TICK

    def resident(self) -> dict[str, float]:
        """MB of memory: of the server, of its workers together, and what files all of them map.

        The first two are anonymous memory, which is a process's own. Pages of the index and of
        libraries are counted once for each process, and the system can have them back any time.
        """
        sizes = [_resident(pid) for pid in self.pids()]
        return {
            "server_mb": sizes[0][0],
            "workers_mb": sum(own for own, _ in sizes[1:]),
            "mapped_mb": sum(mapped for _, mapped in sizes),
        }


def _resident(pid: int) -> tuple[float, float]:
    """MB of memory of a process: its own, and what is mapped from files."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    sizes = {words[0]: int(words[1]) / 1024 for words in lines if words[0].startswith("Rss")}
    return sizes["RssAnon:"], sizes["RssFile:"] + sizes["RssShmem:"]


# --- a client ---------------------------------------------------------------------------------


def request(
    url: str,
    body: bytes,
    path: str = "/v1/messages",
    kind: str = "application/xml",
    *,
    method: str = "POST",
    token: str = "",
) -> bytes:
    """A request as it goes over the wire."""
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: {kind}\r\n"
        f"{bearer}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """One connection that is kept, without anything that takes time."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._place = (place.hostname or "127.0.0.1", place.port or 80)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, data: bytes) -> bytes:
        """Send a request and take the answer; anything but 2xx is an error."""
        status, body = await self.exchange(data)
        if status // 100 != 2:
            raise RuntimeError(f"{status} {body.decode(errors='replace')}")
        return body

    async def exchange(self, data: bytes) -> tuple[int, bytes]:
        """Send a request; the status and the body of its answer, whatever they are."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._place, limit=1 << 20)
        self._writer.write(data)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        body = await self._reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        return int(head[9:12]), body

    def close(self) -> None:
        """Let go of the connection; the next request makes another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass(slots=True)
class Times:
    """What a load has measured."""

    messages: int = 0
    seconds: float = 0.0
    answers: int = 0
    each: list[float] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of CPU of whatever took the load, if that was measured."""

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU for a message."""
        return self.cpu / self.messages * 1e6

    def add(self, other: Times) -> None:
        """Take in what was measured at another time."""
        self.messages += other.messages
        self.seconds += other.seconds
        self.answers += other.answers
        self.each += other.each
        self.cpu += other.cpu

    def record(self) -> dict[str, Any]:
        rate = self.messages / self.seconds if self.seconds else 0.0
        cpu = {"cpu_us": self.cpu_us} if self.cpu else {}
        return {"messages_per_second": rate, **percentiles(self.each), **cpu}


async def load(
    url: str,
    bodies: Sequence[bytes],
    *,
    seconds: float,
    clients: int,
    each: int = 1,
    pause: float = 0.0,
) -> Times:
    """Post bodies, of `each` messages, for so long, from so many connections."""
    found = Times()
    prepared = [request(url, body) for body in bodies]
    began = time.perf_counter()

    async def go(own: Iterator[bytes]) -> None:
        client = Client(url)
        try:
            while (now := time.perf_counter()) - began < seconds:
                # In two steps: what is added to is read before the wait otherwise.
                answer = await client.ask(next(own))
                found.answers += len(answer)
                found.each.append(time.perf_counter() - now)
                found.messages += each
                if pause:
                    await asyncio.sleep(pause)
        finally:
            client.close()

    await asyncio.gather(*(go(cycle(prepared[at::clients])) for at in range(clients)))
    found.seconds = time.perf_counter() - began
    return found
