"""Numbered messages through a service that is killed, stopped and held up: every match once.

The service runs as a process of its own, between streams of the NATS server on loopback; without
its HTTP side, unless `--serve` is said. Of the messages, a hundredth is malformed. Three rounds:

- `kills`: from stream to stream. The service gets `kill -9` at random moments while it has work,
  and is started again each time. `missing` and `repeated` are matches at the sink against what must
  be there; both are to be 0, and `dead_missing` and `dead_repeated`, too; `strange` are reasons of
  dead letters that should be none. `redelivered` says that messages really were under way when it
  died. `orphans` are workers that outlived it.
- `terms`: from a stream to standard output, which drops no repeats. The service gets SIGTERM at
  random moments; it must end with 0, and what all of its lives have written must be exact.
- `pause`: from a stream to a pipe whose reader stops for a while. `rss_growth_mb` is what the
  service and its workers have grown by from the first second of the pause to its end; `moved` are
  messages that were acknowledged meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from fmware.corpus import build_index

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from nats.js import JetStreamContext

__all__ = ["run"]

ITEMS: Final = 1000
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
CONFIG: Final = """
index = "{index}"
state = "{mark}"

[server]
port = 0
log_level = "error"

[engine]
workers = {workers}

[[statements]]
name = "city"
expression = "//sale/item[units > 3]/local:city"
returns = ["local", "value"]

[[sources]]
name = "in"
kind = "nats"
url = "{url}"
stream = "{mark}IN"
subject = "{mark}.in"
ack_seconds = 1.0
deliveries = 1000

[[sinks]]
"""
TO_NATS: Final = """
name = "out"
kind = "nats"
url = "{url}"
stream = "{mark}OUT"
subject = "{mark}.out"
dead_subject = "{mark}.dead"
"""
TO_PIPE: Final = """
name = "out"
kind = "stdio"
"""

Found = Counter[tuple[str, str]]
"""Matches: the message, and the value of the local node."""


def run(argv: list[str]) -> dict[str, object]:
    """All rounds that are asked for."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-") as scratch:
        _build(Path(scratch))
        return asyncio.run(_rounds(Path(scratch), options))


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench faults", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="messages of the kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--terms", type=int, default=5)
    parser.add_argument("--pause", type=float, default=60.0, help="seconds that a reader stops")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help="all of `fmware serve`, with HTTP")
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("--most", type=float, default=900.0, help="seconds that a round may take")
    return parser.parse_args(argv)


async def _rounds(scratch: Path, options: argparse.Namespace) -> dict[str, object]:
    found: dict[str, object] = {"messages": options.messages}
    for name, play in (("kills", _kills), ("terms", _terms), ("pause", _pause)):
        if getattr(options, name):
            async with asyncio.timeout(options.most), _field(scratch, options) as field:
                found[name] = await play(field, options)
    return found


# --- the corpus, the messages, what must be found -------------------------------------------------


def _build(scratch: Path) -> None:
    items = (f"<item sku='p{i}'><city>c{i}</city></item>" for i in range(ITEMS))
    (scratch / "stock.xml").write_text(f"<stock>{''.join(items)}</stock>")
    build_index(
        scratch / "stock.xml",
        scratch / "index",
        record="item",
        identity=["item=@sku"],
        calibrate=False,
    )


def _is_bad(number: int) -> bool:
    return number % 100 == 50


def _items(number: int) -> list[int]:
    """The items of a message: none, one or two."""
    return [(7 * number + each) % ITEMS for each in range(number % 3)]


def _message(number: int) -> bytes:
    items = "".join(f"<item sku='p{i}'><units>7</units></item>" for i in _items(number))
    whole = f"<sale n='{number}'>{items}</sale>"
    return (whole[:-2] if _is_bad(number) else whole).encode()


def _wanted(count: int) -> Found:
    good = (number for number in range(count) if not _is_bad(number))
    return Counter((f"m{number}", f"c{item}") for number in good for item in _items(number))


def _told(lines: Iterable[bytes]) -> Found:
    hits = (json.loads(line) for line in lines)
    return Counter((hit["message"], hit["local"]["value"]) for hit in hits)


def _compared(found: Counter[Any], wanted: Counter[Any], name: str = "") -> dict[str, int]:
    return {
        f"{name}missing": sum((wanted - found).values()),
        f"{name}repeated": sum((found - wanted).values()),
    }


# --- streams and processes ------------------------------------------------------------------------


@dataclass(eq=False)
class Field:
    """Two streams, a configuration, and the service that runs with it."""

    context: JetStreamContext
    mark: str
    config: Path
    random: Random
    program: list[str]
    sent: int = 0
    orphans: int = 0
    service: subprocess.Popen[bytes] | None = None
    children: list[int] = field(default_factory=list)

    def configure(self, options: argparse.Namespace, sink: str) -> None:
        index = self.config.parent / "index"
        known = {"index": index, "mark": self.mark, **vars(options)}
        self.config.write_text((CONFIG + sink).format(**known))

    def start(self, output: int | None = None) -> subprocess.Popen[bytes]:
        self.service = subprocess.Popen(
            [sys.executable, "-m", *self.program, str(self.config)],
            cwd=Path(__file__).parents[1],
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        return self.service

    async def send(self, count: int) -> None:
        """The next messages."""
        for number in range(self.sent, self.sent + count):
            headers = {"Nats-Msg-Id": f"m{number}"}
            await self.context.publish_async(f"{self.mark}.in", _message(number), headers=headers)
        await self.context.publish_async_completed()
        self.sent += count

    async def left(self) -> int:
        """Messages that are not acknowledged."""
        try:
            about = await self.context.consumer_info(f"{self.mark}IN", "fmware")
        except NotFoundError:
            return self.sent
        return (about.num_pending or 0) + (about.num_ack_pending or 0)

    async def at_work(self) -> None:
        """Until the service has begun with what there is."""
        before = await self.left()
        await _until(self._fewer_than(before))
        self.children = _children(self.pid)

    def _fewer_than(self, before: int) -> Callable[[], Awaitable[bool]]:
        async def fewer() -> bool:
            return await self.left() < before

        return fewer

    async def done(self) -> None:
        async def nothing() -> bool:
            return not await self.left()

        await _until(nothing)

    @property
    def pid(self) -> int:
        return 0 if self.service is None else self.service.pid

    async def kill(self, how: signal.Signals) -> int:
        """End the service; how it ended. Its workers must end with it."""
        assert self.service is not None
        self.service.send_signal(how)
        code = await asyncio.to_thread(self.service.wait, 60)
        for _ in range(100):
            if not any(map(_runs, self.children)):
                break
            await asyncio.sleep(0.05)
        self.orphans += sum(map(_runs, self.children))
        return code

    async def read(self, subject: str) -> list[Any]:
        """All that a subject of the second stream has."""
        read: list[Any] = []

        async def take(message: Any) -> None:
            read.append(message)

        inbox = await self.context.subscribe(
            f"{self.mark}.{subject}",
            stream=f"{self.mark}OUT",
            cb=take,
            config=ConsumerConfig(ack_policy=AckPolicy.NONE),
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        about = await inbox.consumer_info()
        count = (about.num_pending or 0) + (about.delivered.consumer_seq if about.delivered else 0)

        async def all_there() -> bool:
            return len(read) >= count

        await _until(all_there)
        await inbox.unsubscribe()
        return read


@asynccontextmanager
async def _field(scratch: Path, options: argparse.Namespace) -> AsyncIterator[Field]:
    client = await nats.connect(options.url)
    mark = f"bench{uuid4().hex[:10]}"
    program = ["fmware", "serve", "--config"] if options.serve else ["fmware.service.run"]
    random = Random(options.seed)
    made = Field(client.jetstream(), mark, scratch / "fmware.toml", random, program)
    made.configure(options, TO_NATS)
    try:
        await made.context.add_stream(StreamConfig(name=f"{mark}IN", subjects=[f"{mark}.in"]))
        out = [f"{mark}.out", f"{mark}.dead"]
        window = options.most
        await made.context.add_stream(
            StreamConfig(name=f"{mark}OUT", subjects=out, duplicate_window=window)
        )
        yield made
    finally:
        if made.service is not None and made.service.poll() is None:
            made.service.kill()
            made.service.wait()
        for name in (f"{mark}IN", f"{mark}OUT"):
            with suppress(NotFoundError):
                await made.context.delete_stream(name)
        await client.close()


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.02)


def _children(pid: int) -> list[int]:
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _resident(pids: Iterable[int]) -> float:
    """MB of memory that processes have."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total / 2**20


# --- the rounds -----------------------------------------------------------------------------------


async def _kills(field: Field, options: argparse.Namespace) -> dict[str, object]:
    """A part of the messages before each kill, so that there is work when it comes."""
    began = time.perf_counter()
    part = options.messages // (options.kills + 1)
    for _ in range(options.kills):
        await field.send(part)
        field.start()
        await field.at_work()
        await asyncio.sleep(0.3 * field.random.random())
        await field.kill(signal.SIGKILL)
    await field.send(options.messages - field.sent)
    field.start()
    await field.done()
    about = await field.context.consumer_info(f"{field.mark}IN", "fmware")
    given = about.delivered.consumer_seq if about.delivered else 0
    code = await field.kill(signal.SIGTERM)
    seconds = time.perf_counter() - began
    hits = await field.read("out")
    letters = await field.read("dead")
    dead = Counter((each.headers["Fmware-Id"], each.data) for each in letters)
    bad = [number for number in range(options.messages) if _is_bad(number)]
    wanted = Counter((f"m{number}", _message(number)) for number in bad)
    strange = [each for each in letters if (each.headers["Fmware-Id"], each.data) not in wanted]
    return {
        "kills": options.kills,
        **_compared(_told(each.data for each in hits), _wanted(options.messages)),
        **_compared(dead, wanted, "dead_"),
        "matches": len(hits),
        "dead": sum(dead.values()),
        "reasons": sum(1 for each in letters if each.headers["Fmware-Reason"]),
        "strange": sorted({each.headers["Fmware-Reason"] for each in strange})[:5],
        "redelivered": given - options.messages,
        "orphans": field.orphans,
        "exit": code,
        "seconds": seconds,
    }


async def _terms(field: Field, options: argparse.Namespace) -> dict[str, object]:
    """SIGTERM while there is work; what standard output got from all lives together."""
    scratch = field.config.parent
    field.configure(options, TO_PIPE)
    count = min(options.messages, 20_000)
    part = count // (options.terms + 1)
    codes, lines = Counter[int](), list[bytes]()
    for number in range(options.terms + 1):
        last = number == options.terms
        await field.send(count - field.sent if last else part)
        with (scratch / f"lines{number}").open("wb") as file:
            field.start(file.fileno())
            if last:
                await field.done()
            else:
                await field.at_work()
                await asyncio.sleep(0.1 * field.random.random())
            codes[await field.kill(signal.SIGTERM)] += 1
        lines += (scratch / f"lines{number}").read_bytes().splitlines()
    return {"terms": options.terms, "exits": dict(codes), **_from_lines(lines, count)}


async def _pause(field: Field, options: argparse.Namespace) -> dict[str, object]:
    """A reader of standard output that stops, with everything still to come."""
    field.configure(options, TO_PIPE)
    count = min(options.messages, 50_000)
    await field.send(count)
    reading, writing = os.pipe()
    service = field.start(writing)
    os.close(writing)
    lines = Lines(reading)
    await _until(lines.more_than(100))
    lines.stop()
    await asyncio.sleep(1.0)
    pids = [service.pid, *_children(service.pid)]
    before, left = _resident(pids), await field.left()
    most, end = before, time.perf_counter() + options.pause
    while time.perf_counter() < end:
        await asyncio.sleep(0.2)
        most = max(most, _resident(pids))
    moved = left - await field.left()
    lines.go_on()
    await field.done()
    code = await field.kill(signal.SIGTERM)
    found = await asyncio.to_thread(lines.rest)
    return {
        "seconds": options.pause,
        "rss_mb": before,
        "rss_growth_mb": most - before,
        "left": left,
        "moved": moved,
        "exit": code,
        **_from_lines(found, count),
    }


def _from_lines(lines: Iterable[bytes], count: int) -> dict[str, object]:
    told = list(lines)
    dead = Counter(json.loads(line)["dead"]["id"] for line in told if line.startswith(b'{"dead"'))
    hits = [line for line in told if not line.startswith(b'{"dead"')]
    bad = Counter(f"m{number}" for number in range(count) if _is_bad(number))
    return {**_compared(_told(hits), _wanted(count)), **_compared(dead, bad, "dead_")}


class Lines:
    """The reader of a pipe, which can be stopped."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._data = bytearray()
        self._loop = asyncio.get_running_loop()
        self.go_on()

    def go_on(self) -> None:
        self._loop.add_reader(self._file, self._read)

    def stop(self) -> None:
        self._loop.remove_reader(self._file)

    def _read(self) -> None:
        data = os.read(self._file, 1 << 16)
        self._data += data
        if not data:
            self.stop()

    def more_than(self, count: int) -> Callable[[], Awaitable[bool]]:
        async def there() -> bool:
            return self._data.count(b"\n") > count

        return there

    def rest(self) -> list[bytes]:
        """All lines, when nobody writes any more."""
        self.stop()
        while data := os.read(self._file, 1 << 16):
            self._data += data
        os.close(self._file)
        return bytes(self._data).splitlines()
