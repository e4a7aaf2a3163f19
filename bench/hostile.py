"""What tenant A does to a service: requests by class, drawn from a seed, and who sends them.

`python -m bench.hostile URL KIND --seed N --scale X` is A, as a process of its own with the lowest
priority: on a real network it is another machine, and what it costs itself is not the service's.
It says `ready`, begins at a line `go`, and at `stop` says what it has sent; `wire` are bytes as
they went, `bytes` those of bodies after they were unpacked, `answers` the statuses, `cpu` the
seconds of processor time it has used itself. It ends with its input.

Each class of `PLANS` is one of the ways in which a tenant has hurt a service before. What is drawn
are sizes, shapes, media types and the order, so that another seed is another attack of the same
class.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import json
import os
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from random import Random
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BUSY", "HUB", "PLANS", "TOKEN", "Plan", "Shot"]

TOKEN: Final = "a" * 48
HUB: Final = "hub"
"""The key of a record of the corpus that has very many children `part`."""
STATEMENTS: Final = 1000
"""As many as a tenant may have unless its limits say otherwise."""
LARGEST: Final = 12 << 20
SMALLEST: Final = 150 << 10
"""Bytes of a bulk of statements."""
TRIED: Final = (1 << 20) - 1000
"""Bytes of a message that may be tried out."""
FRAME: Final = 125
"""Bytes that a ping may carry."""
PINGS: Final = 500
"""That are written at once."""
PAUSE: Final = 0.05
"""Seconds before one comes again that was sent away."""
TAG: Final = 24
"""Bytes of an empty element with a name that is never seen again."""
VARIANTS: Final = 6


@dataclass(frozen=True, slots=True)
class Shot:
    """A request: `size` is what its body has once it is unpacked."""

    path: str
    body: bytes
    kind: str = "application/xml"
    packed: bool = False
    size: int = 0
    method: str = "POST"

    @classmethod
    def of(
        cls, path: str, body: bytes, kind: str = "application/xml", *, packed: bool = False
    ) -> Shot:
        """A request with this body, packed or as it is."""
        return cls(path, gzip.compress(body, 6) if packed else body, kind, packed, len(body))

    def wire(self, host: str) -> bytes:
        """As it goes over the wire."""
        packed = "Content-Encoding: gzip\r\n" if self.packed else ""
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {self.kind}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n{packed}Content-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass(slots=True)
class Plan:
    """What A does: `first` once, `shots` from several connections, and what it holds open."""

    shots: Iterator[Shot] = field(default_factory=lambda: iter(()))
    first: list[Shot] = field(default_factory=list)
    connections: int = 4
    pings: int = 0
    """WebSockets that send pings as fast as they can."""
    drips: int = 0
    """Bodies that are announced and never come, and readers of matches that never read."""


# --- the classes ----------------------------------------------------------------------------------


def memory(random: Random, scale: float) -> Plan:
    """Names that are never seen again, and names whose namespace is long; messages and try-outs."""
    fresh = count(random.randrange(10**6))

    def shots() -> Iterator[Shot]:
        while True:
            names = _scaled(random.randrange(5_000, 40_000), scale)
            uri = "u" * _scaled(random.randrange(1_000, 64_000), scale)
            draw = random.randrange(4)
            if draw == 0:  # Names of their own, without a namespace.
                names = _scaled(90_000, scale)
                uri = ""
            if draw == 3:
                names = min(names, (TRIED - len(uri)) // TAG)
                yield _tried(f"//n{next(fresh)}", _names(names, uri, next(fresh)))
                continue
            body = _names(names, uri, next(fresh), attributes=draw == 1)
            yield Shot.of("/v1/messages", body.encode(), packed=True)

    return Plan(shots())


def _names(names: int, uri: str, mark: int, *, attributes: bool = False) -> str:
    space = f" xmlns:p='{uri}'" if uri else ""
    prefix = "p:" if uri else ""
    if attributes:
        inner = "".join(f"<e {prefix}n{mark}x{n}='1'/>" for n in range(names))
    else:
        inner = "".join(f"<{prefix}n{mark}x{n}/>" for n in range(names))
    return f"<r{space}>{inner}</r>"


def _tried(expression: str, message: str) -> Shot:
    about = {"statement": {"expression": expression}, "message": message}
    return Shot.of("/v1/try", json.dumps(about).encode(), "application/json")


def loop(random: Random, scale: float) -> Plan:
    """Large bodies in every media type to every route that takes one."""
    routes: list[Callable[[Random, int], Shot]] = [
        _toml,
        _plain,
        _json,
        _bad_json,
        _message_list,
        _documents,
        _statement,
        _large_try,
    ]
    shots = []
    for make in routes:
        size = SMALLEST * (LARGEST / SMALLEST) ** random.random()
        shots.append(make(random, _scaled(int(size), scale)))
    # The one that was found first, whatever is drawn.
    shots.append(_toml(random, _scaled(SMALLEST, scale)))
    random.shuffle(shots)
    return Plan(cycle(shots))


def _toml(random: Random, size: int) -> Shot:
    blank = "\n" * random.randrange(1, 20)
    entry = '[[statement]]{}name = "s{}"\nexpression = "//a{}"\n'
    text = _until(size, lambda n: entry.format(blank, n, n))
    return Shot.of("/v1/statements/bulk", text, "application/toml", packed=random.random() < 0.5)


def _plain(random: Random, size: int) -> Shot:
    text = _until(size, lambda n: f"//a{n % 50}[b{n} = '{n}']\n")
    return Shot.of("/v1/statements/bulk", text, "text/plain", packed=random.random() < 0.5)


def _json(random: Random, size: int) -> Shot:
    inner = _until(size, lambda n: f'{{"name":"s{n}","expression":"//a{n}"}},')[:-1]
    body = b'{"statements":[%b]}' % inner
    return Shot.of("/v1/statements/bulk", body, "application/json", packed=random.random() < 0.5)


def _bad_json(random: Random, size: int) -> Shot:
    """Each of very many entries is refused, and the answer says why of each."""
    what = random.choice(('{"name":"","expression":"//"},', '{"x":1},', "1,", '{"name":"n"},'))
    inner = _until(size, lambda _: what)[:-1]
    body = b'{"statements":[%b]}' % inner
    return Shot.of("/v1/statements/bulk", body, "application/json", packed=random.random() < 0.5)


def _message_list(random: Random, size: int) -> Shot:
    inner = _until(size, lambda n: f'{{"id":"m{n}","xml":"<a/>"}},')[:-1]
    body = b'{"messages":[%b]}' % inner
    return Shot.of("/v1/messages", body, "application/json", packed=random.random() < 0.5)


def _documents(random: Random, size: int) -> Shot:
    return Shot.of("/v1/messages", _until(size, lambda _: "<a/>"), packed=random.random() < 0.5)


def _statement(random: Random, size: int) -> Shot:
    """One statement whose expression, or whose namespaces, are far too many."""
    if random.random() < 0.5:
        about: dict[str, object] = {"expression": "//" + "a" * size}
    else:
        about = {"expression": "//a", "namespaces": {f"p{n}": "u" for n in range(size // 12)}}
    shot = Shot.of("/v1/statements/large", json.dumps(about).encode(), "application/json")
    return Shot(shot.path, shot.body, shot.kind, shot.packed, shot.size, "PUT")


def _large_try(random: Random, size: int) -> Shot:
    message = "<a>" + "<b>1</b>" * (min(size, TRIED) // 9) + "</a>"
    return _tried(random.choice(("//b", "//a[b = 2]", "//b[. > 3]")), message)


def _until(size: int, part: Callable[[int], str]) -> bytes:
    """Numbered parts until there are so many bytes."""
    parts: list[str] = []
    length = 0
    for number in count():
        if length >= size:
            return "".join(parts).encode()
        parts.append(part(number))
        length += len(parts[-1])
    raise AssertionError


def budgets(random: Random, scale: float) -> Plan:
    """As many expensive statements as a tenant may have; other tenants' messages meet them.

    They are about names of B's messages, which A can guess: what no message touches costs nothing.
    """
    worst = "//*[.//*[.//*[units > {n}]]][.//*[.//*[units < {n}]]]"
    others = (
        "//*[.//*[contains(., 'p{n}')]]//*[.//*[contains(., 'q{n}')]]",
        "//*[not(.//*[. = '{n}'])]//*[not(.//*[. = 'k{n}'])]",
        "//*[.//*[.//*[not(.//*[. = '{n}'])]]][.//*[.//*[.//*[. > {n}]]]]",
        "//*[.//item[units = {n}]][.//item[not(units = {n})]]//*",
        "//*//*[.//*[.//*[units != {n}]]][.//*[@sku != 'p{n}']]",
    )
    chosen = (worst, random.choice(others))
    made = [
        {"name": f"s{n}", "expression": random.choice(chosen).format(n=n)}
        for n in range(_scaled(STATEMENTS, scale))
    ]
    deep = random.randrange(20, 60)
    body = "<m>" + ("<item>" * deep + "<units>1</units>" + "</item>" * deep) * 5 + "</m>"
    shots = cycle([Shot.of("/v1/messages", body.encode())])
    return Plan(shots, [_bulk(made)], random.randrange(1, 4))


def _bulk(statements: list[dict[str, object]] | list[dict[str, str]]) -> Shot:
    body = json.dumps({"statements": statements}).encode()
    return Shot.of("/v1/statements/bulk", body, "application/json")


def work(random: Random, scale: float) -> Plan:
    """Statements and messages whose cost was not counted: chains of //, and tests on deep text."""
    steps = random.randrange(15, 80)
    chains: list[dict[str, object]] = [
        {"name": f"c{n}", "expression": _chain(random, steps), "returns": ["message"]}
        for n in range(_scaled(300, scale))
    ]
    texts: list[dict[str, object]] = [
        {"name": f"t{n}", "expression": _on_text(random, n)} for n in range(_scaled(200, scale))
    ]
    depth = random.randrange(150, 240)
    text = "a" * _scaled(random.randrange(40_000, 60_000), scale)
    bodies = [
        _thicket(random, _scaled(9_000, scale)),
        "<a>" * depth + text + "</a>" * depth,
        ("<a>" + text[:200]) * depth + "</a>" * depth,
    ]
    shots = [Shot.of("/v1/messages", each.encode(), packed=True) for each in bodies]
    return Plan(cycle(shots), [_bulk(chains), _bulk(texts)])


def _chain(random: Random, steps: int) -> str:
    return "".join(f"//{random.choice(('a', 'b', '*'))}" for _ in range(steps))


def _on_text(random: Random, number: int) -> str:
    """A test that looks at all of the text to find nothing."""
    needle = "a" * random.randrange(20, 2000) + f"b{number}"
    shapes = (
        "//*[contains(., '{}')]",
        "//*[.//*[contains(., '{}')]]",
        "//a[not(starts-with(., '{}'))]",
        "//a//*[. != '{}']",
    )
    return random.choice(shapes).format(needle)


def _thicket(random: Random, tags: int) -> str:
    """Elements of two names, deep and wide."""
    parts, stack = ["<m>"], ["m"]
    for _ in range(tags):
        if len(stack) > 200 or (len(stack) > 1 and random.random() < 0.3):
            parts.append(f"</{stack.pop()}>")
        else:
            stack.append(random.choice("ab"))
            parts.append(f"<{stack[-1]}>")
    return "".join(parts) + "".join(f"</{name}>" for name in reversed(stack))


def output(random: Random, scale: float) -> Plan:
    """Very many anchors on one record of the corpus, which has very many children."""
    wanted = [["local", "value"], ["message", "local", "value", "fragment"], ["name"], ["local"]]
    chosen = random.sample(wanted, 3)
    made: list[dict[str, object]] = [
        {"name": f"s{n}", "expression": "//item/local:part", "returns": each}
        for n, each in enumerate(chosen)
    ]
    shots = []
    for anchors in (30_000, 100_000, random.randrange(1_000, 100_000)):
        body = "<m>" + f"<item sku='{HUB}'/>" * _scaled(anchors, scale) + "</m>"
        shots.append(Shot.of("/v1/messages", body.encode(), packed=True))
    random.shuffle(shots)
    return Plan(cycle(shots), [_bulk(made)], connections=2)


def vocabulary(random: Random, scale: float) -> Plan:
    """The same statements again and again, with names that were never used."""
    mark = count(random.randrange(10**6))
    most = max(_scaled(STATEMENTS, scale), 2)
    steps = random.randrange(20, 100)
    pad = "v" * random.randrange(1, 60)

    def shots() -> Iterator[Shot]:
        while True:
            made = []
            for number in range(most):
                turn = next(mark)
                path = "/".join(f"{pad}{turn}x{step}" for step in range(steps))
                made.append({"name": f"s{number}", "expression": f"/{path}"})
            yield _bulk(made)

    return Plan(shots(), connections=2)


def stopping(random: Random, scale: float) -> Plan:
    """All of it at once, with receipts, bodies that never end and readers that never read."""
    plans = [make(random, scale / 4) for make in (memory, loop, work, output, vocabulary)]
    later = Shot.of("/v1/messages?wait=false", b"<a/>" * 500)

    def shots() -> Iterator[Shot]:
        while True:
            yield later
            for plan in random.sample(plans, len(plans)):
                yield next(plan.shots)

    first = [shot for plan in plans for shot in plan.first]
    return Plan(shots(), first, connections=8, pings=2, drips=20)


def sockets(random: Random, scale: float) -> Plan:
    """Pings, as fast as they go."""
    return Plan(connections=0, pings=_scaled(random.randrange(20, 60), scale))


def quiet(random: Random, scale: float) -> Plan:
    """Ordinary messages, while the machine is what goes wrong."""
    bodies = [f"<m><item sku='p{random.randrange(100)}'/></m>".encode() for _ in range(VARIANTS)]
    large = "<m>" + "<item sku='p1'><units>1</units></item>" * _scaled(20_000, scale) + "</m>"
    return Plan(
        cycle([Shot.of("/v1/messages", each) for each in (*bodies, large.encode())]), connections=1
    )


def busy(random: Random, scale: float) -> Plan:
    """Ordinary messages from several connections, each as soon as the last one is answered."""
    bodies = [
        "<m>" + "".join(f"<item sku='p{random.randrange(2000)}'/>" for _ in range(4)) + "</m>"
        for _ in range(_scaled(300, scale))
    ]
    return Plan(cycle([Shot.of("/v1/messages", each.encode()) for each in bodies]))


def _scaled(number: int, scale: float) -> int:
    return max(int(number * scale), 1)


PLANS: Final[dict[str, Callable[[Random, float], Plan]]] = {
    "memory": memory,
    "loop": loop,
    "budgets": budgets,
    "work": work,
    "output": output,
    "damage": quiet,
    "faults": quiet,
    "vocabulary": vocabulary,
    "stopping": stopping,
    "sockets": sockets,
}
"""By the name of the class, in the order in which they are run."""
BUSY: Final = "busy"
"""A tenant that is no attacker, and uses the service as much as it can."""


# --- the one who sends ----------------------------------------------------------------------------


class Attacker:
    """All connections of A to a service."""

    def __init__(self, url: str, plan: Plan) -> None:
        place = urlsplit(url)
        self._place = (place.hostname or "127.0.0.1", place.port or 80)
        self._host = place.netloc
        self._plan = plan
        self.wire = 0
        self.bytes = 0
        self.answers: Counter[str] = Counter()

    async def go(self) -> None:
        """Attack until it is cancelled."""
        plan = self._plan
        for shot in plan.first:
            with suppress(OSError, EOFError):
                await self._one(shot)
        roles = [
            *[self._shoot] * plan.connections,
            *[self._ping] * plan.pings,
            *[self._drip, self._stare] * (plan.drips // 2),
        ]
        await asyncio.gather(*map(self._again, roles))

    def record(self) -> dict[str, object]:
        used = os.times()
        return {
            "wire": self.wire,
            "bytes": self.bytes,
            "answers": dict(self.answers),
            "cpu": used.user + used.system,
        }

    async def _again(
        self, role: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]
    ) -> None:
        """Play a role; one that is sent away comes again."""
        while True:
            with suppress(OSError, EOFError):
                reader, writer = await asyncio.open_connection(*self._place)
                try:
                    await role(reader, writer)  # type: ignore[misc]
                finally:
                    writer.close()
            await asyncio.sleep(PAUSE)

    async def _one(self, shot: Shot) -> None:
        reader, writer = await asyncio.open_connection(*self._place)
        try:
            await self._ask(shot, reader, writer)
        finally:
            writer.close()

    async def _shoot(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for shot in self._plan.shots:
            await self._ask(shot, reader, writer)

    async def _ask(
        self, shot: Shot, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send a request and read its answer to the end, of which nothing is kept."""
        data = shot.wire(self._host)
        self.wire += len(data)
        self.bytes += shot.size
        status = "none"
        try:
            writer.write(data)
            with suppress(ConnectionError):  # It may be answered before all of it is taken.
                await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            status = head[9:12].decode()
            at = head.find(b"content-length:")
            left = int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else 0
            while left:
                part = await reader.read(min(left, 1 << 16))
                if not part:
                    raise EOFError
                left -= len(part)
        finally:
            self.answers[status] += 1

    async def _ping(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        ask = (
            f"GET /v1/matches/ws HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        writer.write(ask.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        self.answers[head[9:12].decode()] += 1
        frames = (bytes([0x89, 0x80 | FRAME, 0, 0, 0, 0]) + b"p" * FRAME) * PINGS
        reading = asyncio.create_task(_read_away(reader))
        try:
            while not reading.done():
                writer.write(frames)
                self.wire += len(frames)
                self.bytes += len(frames)
                await writer.drain()
                await asyncio.sleep(0)
        finally:
            reading.cancel()
            self.answers["closed"] += 1

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say that a body comes, and send a byte of it now and then."""
        shot = Shot("/v1/messages", b"")
        head = shot.wire(self._host).replace(b"Content-Length: 0", b"Content-Length: 100000")
        writer.write(head)
        while not reader.at_eof():
            writer.write(b"<")
            await writer.drain()
            await asyncio.sleep(1.0)

    async def _stare(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Follow matches, and never read one."""
        ask = (
            f"GET /v1/matches/stream?after=0 HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n"
        )
        writer.write(ask.encode())
        await writer.drain()
        while not reader.at_eof():
            await asyncio.sleep(1.0)


async def _read_away(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1 << 16):
            pass


async def _main(options: argparse.Namespace) -> None:
    os.nice(19)
    plan = {**PLANS, BUSY: busy}[options.kind]
    attacker = Attacker(options.url, plan(Random(options.seed), options.scale))
    print("ready", flush=True)
    going: asyncio.Task[None] | None = None
    while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if command == "go" and going is None:
            going = asyncio.create_task(attacker.go())
        elif command == "stop" and going is not None:
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            going = None
            print(json.dumps(attacker.record()), flush=True)
    if going is not None:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)


def main(argv: list[str]) -> None:
    """Do as standard input says."""
    parser = argparse.ArgumentParser("bench.hostile", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("kind", choices=[*PLANS, BUSY])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0)
    asyncio.run(_main(parser.parse_args(argv)))


if __name__ == "__main__":
    main(sys.argv[1:])
