"""A service under attack: tenant A does its worst, class by class, and tenant B is watched.

For each class a service of its own runs, with settings as they are by default, and with tenants A
and B. B has statements and posts messages at a steady pace, whose right answers follow from how
they are made; now and then it registers a statement with a name that nobody had before, and posts a
large message for it. B is measured alone for half of `--seconds`, for as long beside a busy tenant,
and then for all of them while A attacks; A is a process of its own (see `bench.hostile`) and draws
what it sends from `--seed`. Then A pauses, what is lasting is measured, A begins again, and the
service gets SIGTERM. Classes:

- `memory`, `loop`, `budgets`, `work`, `output`, `vocabulary`, `stopping`, `sockets`: A attacks.
- `damage`: pages of the open index are overwritten. `faults`: files cannot grow (a full disk), and
  then workers get no more memory. Here nobody attacks; both tenants have ordinary messages.

Figures of a class, and what they may be:

- `rss_growth_over_bytes`, at most 20: memory of all processes of the service that is their own
  (RssAnon) when the attack has been over for a moment, less that before it, over the bytes of A's
  bodies after they were unpacked, which is what the service had to read. Sixteen MB for each
  process are not counted: a quota of statements, arenas and caches with bounds of their own take
  that much, and A may have sent little. A service that takes more than `--memory` is ended, and
  has grown by that.
- `loop_stall_ms`, at most 100: the longest turn of the server's event loop, measured in the loop
  itself (see `bench.watched`): waiting for the GIL and for the disk counts, waiting for a core does
  not. A loop that has not come round at the end of the attack counts with the time so far.
- `b_latency_ratio`, at most 5: B's p99 during the attack over alone, from the first try of a
  message to its answer; 429 and 5xx are tried again. In `damage` and `faults`, where 5xx is what is
  promised, each try counts by itself.
- `b_busy_ratio`, without a bound: the same, with B's p99 beside a tenant that is no attacker but
  posts ordinary messages as fast as they are answered, in place of that alone. The service and
  those who load it share the cores of one machine; this ratio is what the attack adds to that.
  `a_cores` and `b_cores` are the cores that A and B took themselves meanwhile.
- `b_matches_lost`, 0: B's matches that an answer with 200 does not have, whatever else it says, or
  whose message was refused as bad; where A attacks, also those of messages that were never answered
  with 200.
- `silent_wrong`, 0: B's answers with 200 and other matches than the right ones, and no word of it.
- `signals`, 0: processes of the service that a signal ended, also if the service itself had sent it
  to a worker that was stuck. When it stops only signals of crashes count.
- `stop_seconds_over`, 0: seconds from SIGTERM to the end of all its processes beyond
  `server.stop_seconds`, of which the interpreters have one to end in.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from bench import hostile
from bench.serving import Client, percentiles, request
from fmware.corpus import build_index

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["WORST", "run"]

ROOT: Final = Path(__file__).parents[1]
WORST: Final = {
    "rss_growth_over_bytes": 20.0,
    "loop_stall_ms": 100.0,
    "b_latency_ratio": 5.0,
    "b_matches_lost": 0.0,
    "silent_wrong": 0.0,
    "signals": 0.0,
    "stop_seconds_over": 0.0,
}
"""Figures of a class, and what each may be at most."""
OURS: Final = ("damage", "faults")
"""Classes in which 5xx is the right answer to B."""
TOKEN: Final = "b" * 48
ITEMS: Final = 2_000
PARTS: Final = 20
"""Children of the record that A's anchors are all on."""
POOL: Final = 300
LARGE: Final = 25
"""Each of so many messages is a large one."""
CLIENTS: Final = 2
PACE: Final = 0.02
"""Seconds that a client of B waits between two messages."""
FRESH: Final = 0.5
"""Seconds between two statements with names that are new."""
WARM: Final = 1.5
SETTLE: Final = 2.0
"""Seconds after an attack in which what was only borrowed is given back."""
GRACE: Final = 10.0
"""Seconds after an attack in which what B has sent may still be answered."""
NOISE: Final = 16 << 20
"""Bytes that each process may grow by without being charged."""
STOP: Final = 5.0
"""`server.stop_seconds`."""
EXIT: Final = 1.0
"""Seconds in which interpreters end."""
OVERDUE: Final = 20.0
"""Seconds after which a service that does not stop is ended."""
START: Final = 60.0
AGAIN: Final = 0.1
PAGE: Final = 4096
DAMAGE: Final = 0.2
"""Seconds between two pages that are overwritten."""
CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
)


def run(argv: list[str]) -> dict[str, object]:
    """The worst of each figure, and those of all classes."""
    options = _options(argv)
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="fmware-bench-") as scratch:
        index = _build(Path(scratch))
        for name in options.classes:
            found[name] = asyncio.run(_class(name, index, Path(scratch), options))
            print(_line(name, found[name]), file=sys.stderr, flush=True)
    worst = {key: max(_number(row[key]) for row in found.values()) for key in WORST}
    return {**worst, **found}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of what A sends and what breaks")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--scale", type=float, default=1.0, help="of what A sends")
    parser.add_argument("--classes", type=_names, default=tuple(hostile.PLANS), help="as loop,work")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", type=int, default=6 << 30, help="bytes that a service may take")
    return parser.parse_args(argv)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(hostile.PLANS):
        raise argparse.ArgumentTypeError(f"no class {sorted(unknown)[0]!r}")
    return names


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _line(name: str, row: dict[str, object]) -> str:
    """A class in a line; what is over its bound is marked."""
    told = [
        f"{key} {_number(row[key]):,.1f}{'!' * (_number(row[key]) > WORST[key])}" for key in WORST
    ]
    return f"{name:<10}  " + "  ".join(told)


# --- the corpus, B's messages, what must be found -------------------------------------------------


def _build(scratch: Path) -> Path:
    items = (f"<item sku='p{i}'><city>c{i}</city><price>{i}</price></item>" for i in range(ITEMS))
    hub = f"<item sku='{hostile.HUB}'>{'<part>x</part>' * PARTS}</item>"
    (scratch / "stock.xml").write_text(f"<stock>{''.join(items)}{hub}</stock>")
    rules = ["item=@sku"]
    build_index(
        scratch / "stock.xml", scratch / "index", record="item", identity=rules, calibrate=False
    )
    return scratch / "index"


Found = Counter[tuple[str, str]]
"""Matches: the statement, and the value of the local node if there is one."""
STATEMENTS: Final = [
    {"name": "city", "expression": "//item[units > 3]/local:city", "returns": ["local", "value"]},
    {"name": "price", "expression": "//item[@vip = '1']/local:price", "returns": ["value"]},
    {"name": "vip", "expression": "//store//item[@vip = '1']", "returns": ["name"]},
    {"name": "note", "expression": "/sale/region[.//note = 'n7']", "returns": ["name"]},
    {"name": "none", "expression": "//item[units > 100]/local:city", "returns": ["value"]},
]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of B, and its matches."""

    body: bytes
    right: Found


def _message(number: int, random: Random) -> Message:
    """Some items of a store, or very many."""
    right: Found = Counter()
    parts = []
    # Each item once: a local node is found once, however many anchors lead to it.
    items = random.sample(range(ITEMS), random.randrange(150, 300) if number % LARGE == 0 else 4)
    for place, item in enumerate(items):
        units = random.randrange(8)
        vip = place == 0 and number % 3 == 0
        mark = " vip='1'" if vip else ""
        parts.append(f"<item sku='p{item}'{mark}><units>{units}</units></item>")
        if units > 3:
            right["city", f"c{item}"] += 1
        if vip:
            right["price", f"{item}"] += 1
            right["vip", ""] += 1
    note = f"n{number % 10}"
    if note == "n7":
        right["note", ""] += 1
    inner = f"<aisle>{''.join(parts)}</aisle><note>{note}</note>"
    whole = f"<sale n='{number}'><region><store>{inner}</store></region></sale>"
    return Message(whole.encode(), right)


def _found(answer: dict[str, Any]) -> Found:
    return Counter(
        (each["statement"], str((each.get("local") or {}).get("value", "")))
        for each in answer["matches"]
    )


# --- tenant B -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """How B did."""

    times: list[float] = field(default_factory=list)
    messages: int = 0
    lost: int = 0
    wrong: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Victim:
    """B: posts messages and checks the answers; what a service does is a figure, never an error."""

    def __init__(self, service: Service, messages: list[Message], *, patient: bool) -> None:
        self._service = service
        self._messages = cycle(messages)
        self._large = max(messages, key=lambda each: len(each.body))
        self._patient = patient
        """Whether the time of a message is from its first try on; else each try has its own."""
        self._fresh = count()

    async def register(self) -> None:
        """Have the service know B's statements; without them there is nothing to measure."""
        client = Client(self._service.url)
        body = json.dumps({"statements": STATEMENTS}).encode()
        said = json.loads(await client.ask(self._request("/v1/statements/bulk", body, "json")))
        client.close()
        if said["registered"] != len(STATEMENTS):
            raise RuntimeError(f"the service refuses B's statements: {said['refused']}")

    async def load(self, seconds: float, tally: Tally) -> None:
        """Post messages for so long; those under way have some seconds more."""
        end = time.monotonic() + seconds
        await asyncio.gather(
            *(self._post(end, tally) for _ in range(CLIENTS)), self._change(end, tally)
        )

    def _request(self, path: str, body: bytes, kind: str, method: str = "POST") -> bytes:
        url, media = self._service.url, f"application/{kind}"
        return request(url, body, path, media, method=method, token=TOKEN)

    async def _post(self, end: float, tally: Tally) -> None:
        client = Client(self._service.url)
        while time.monotonic() < end:
            await self._deliver(client, next(self._messages), end, tally, tally.times)
            await asyncio.sleep(PACE)
        client.close()

    async def _change(self, end: float, tally: Tally) -> None:
        """Register a statement with a new name every now and then, and have it match."""
        client = Client(self._service.url)
        while time.monotonic() < end:
            name = f"fresh{next(self._fresh)}x{os.urandom(4).hex()}"
            about = json.dumps({"expression": f"//{name}[units > 3]", "returns": ["name"]}).encode()
            put = self._request("/v1/statements/fresh", about, "json", "PUT")
            status, _ = await self._answered(client, put, end, tally, [])
            if status // 100 == 2:
                more = f"<{name}><units>4</units></{name}>"
                body = self._large.body.replace(b"</aisle>", f"{more}</aisle>".encode())
                message = Message(body, self._large.right + Counter({("fresh", ""): 1}))
                await self._deliver(client, message, end, tally, [])
            else:
                tally.lost += self._patient or _final(status)
            await asyncio.sleep(FRESH)
        client.close()

    async def _deliver(
        self, client: Client, message: Message, end: float, tally: Tally, times: list[float]
    ) -> None:
        tally.messages += 1
        data = self._request("/v1/messages", message.body, "xml")
        status, said = await self._answered(client, data, end, tally, times)
        if status // 100 == 2:
            answer = json.loads(said)
            found = _found(answer)
            tally.lost += (message.right - found).total()
            tally.wrong += found != message.right and not answer["errors"]
        elif self._patient or _final(status):
            # Else it is B's to send again: nothing was said to be done.
            tally.lost += message.right.total()

    async def _answered(
        self, client: Client, data: bytes, end: float, tally: Tally, times: list[float]
    ) -> tuple[int, bytes]:
        """The last answer: one with 2xx, for which it is tried again, unless that is in vain."""
        began = time.monotonic()
        while True:
            status, body = await _exchange(client, data, end + GRACE - time.monotonic())
            now = time.monotonic()
            done = status // 100 == 2
            if not done:
                tally.refused[str(status)] += 1
            if done or _final(status) or not self._patient or now > end or not self._service.alive:
                times.append(now - began)
                return status, body
            await asyncio.sleep(AGAIN)


def _final(status: int) -> bool:
    """Whether a message is refused for good."""
    return 400 <= status < 500 and status != 429


async def _exchange(client: Client, data: bytes, seconds: float) -> tuple[int, bytes]:
    """An answer; its status is 0 if there was none."""
    try:
        async with asyncio.timeout(max(seconds, AGAIN)):
            return await client.exchange(data)
    except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
        client.close()
        return 0, b""


# --- the service ----------------------------------------------------------------------------------


class Service:
    """`fmware serve` with a watchdog, as a process of its own; it may die, which is a figure."""

    def __init__(self, index: Path, state: Path, options: argparse.Namespace) -> None:
        hashes = [hashlib.sha256(each.encode()).hexdigest() for each in (hostile.TOKEN, TOKEN)]
        tenants = ", ".join(
            f"{{name='{name}', token_sha256=['{digest}']}}"
            for name, digest in zip("ab", hashes, strict=True)
        )
        said = (
            "server.port=0",
            f"state={state}",
            f"tenants=[{tenants}]",
            f"engine.workers={options.workers}",
            f"server.stop_seconds={STOP}",
        )
        parts = [part for each in said for part in ("--set", each)]
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "bench.watched", str(writing), "serve", str(index), *parts]
        environ = {key: value for key, value in os.environ.items() if "FMWARE" not in key}
        # Pipes, not files: what it logs must not depend on a disk that is full.
        self._popen = subprocess.Popen(
            command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, pass_fds=[writing]
        )
        os.close(writing)
        self.url = ""
        self.said: deque[str] = deque(maxlen=20)
        self.beats: list[tuple[float, float]] = []
        self.signals: list[tuple[float, int]] = []
        self.peak = 0
        self.given_up = False
        self._most = options.memory
        self._listening = threading.Event()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._hear),
            threading.Thread(target=self._watch, args=(reading,)),
            threading.Thread(target=self._weigh),
        ]
        for thread in self._threads:
            thread.start()
        if not self._listening.wait(START) or not self.url:
            self.close()
            raise RuntimeError(f"the service did not start: {''.join(self.said)}")

    def _hear(self) -> None:
        """Read what it logs."""
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            self.said.append(line.decode(errors="replace"))
            if b'"listening"' in line:
                self.url = str(json.loads(line)["url"])
                self._listening.set()
        self._listening.set()

    def _watch(self, file: int) -> None:
        """Read what the watchdog tells."""
        with os.fdopen(file) as lines:
            for line in lines:
                what, at, *more = line.split()
                if what == "beat":
                    self.beats.append((float(at), float(more[0])))
                else:
                    self.signals.append((float(at), int(more[1])))

    def _weigh(self) -> None:
        """Look how much memory it has, and end it when that is too much for the machine."""
        while not self._over.wait(0.1):
            self.peak = max(self.peak, self.own_bytes())
            if self.peak > self._most:
                self.given_up = True
                self.kill()

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def pids(self) -> list[int]:
        """The server, its workers, and whatever these have started."""
        return _tree(self._popen.pid)

    def own_bytes(self) -> int:
        """Bytes of memory that are its processes' own."""
        return sum(map(_own, self.pids()))

    def stall(self, since: float, until: float) -> float:
        """Milliseconds of the longest turn of the loop that ended, or had not ended, then."""
        longest = max((late for at, late in list(self.beats) if since <= at <= until), default=0.0)
        last = max((at for at, _ in list(self.beats) if at <= until), default=since)
        # A beat that is in time is told a few times a second.
        silent = until - last - 1.0
        return max(longest, silent * 1e3) if self.alive else longest

    def stop(self) -> tuple[float, int]:
        """Tell it to stop; seconds until all its processes are gone, and how the server ended."""
        pids = self.pids()
        began = time.monotonic()
        with suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGTERM)
        while time.monotonic() - began < STOP + OVERDUE:
            self._popen.poll()
            if not any(map(_runs, pids)):
                break
            time.sleep(0.02)
        took = time.monotonic() - began
        code = self._popen.poll()
        self.kill()
        return took, 0 if code is None else code

    def kill(self) -> None:
        """End all its processes, if there are any."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._popen.wait()

    def close(self) -> None:
        self._over.set()
        if self.alive:
            self.kill()
        for thread in self._threads:
            thread.join()
        if self._popen.stderr is not None:
            self._popen.stderr.close()


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [each for child in task.read_text().split() for each in _tree(int(child))]
    return found


def _own(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- tenant A, and bad luck -----------------------------------------------------------------------


class Attacker:
    """`bench.hostile` as a process."""

    def __init__(self, url: str, name: str, options: argparse.Namespace) -> None:
        more = [f"--seed={options.seed}", f"--scale={options.scale}"]
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "bench.hostile", url, name, *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.record: dict[str, Any] = {"bytes": 0, "wire": 0, "answers": {}, "cpu": 0.0}
        self._line()

    def _line(self) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.readline()

    def _tell(self, command: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{command}\n")
        self._popen.stdin.flush()

    def go(self) -> None:
        self._tell("go")

    def stop(self) -> None:
        """Pause; `record` says what was sent so far."""
        self._tell("stop")
        self.record = json.loads(self._line())

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._popen.communicate()


async def _nothing(service: Service, index: Path, random: Random, seconds: float) -> None:
    """No bad luck: A is enough."""


async def _damage(service: Service, index: Path, random: Random, seconds: float) -> None:  # noqa: ARG001
    """Overwrite pages of the open index, one after the other."""
    files = [path for path in index.rglob("*") if path.is_file() and path.stat().st_size]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        path = random.choice(files)
        await asyncio.to_thread(_overwrite, path, random)
        await asyncio.sleep(DAMAGE)


def _overwrite(path: Path, random: Random) -> None:
    """Zeros, noise, another page, or a few bits, in the place of a page."""
    size = path.stat().st_size
    at = random.randrange(size) // PAGE * PAGE
    length = min(PAGE, size - at)
    with path.open("r+b", buffering=0) as file:
        page = os.pread(file.fileno(), length, at)
        other = os.pread(file.fileno(), length, random.randrange(size) // PAGE * PAGE)
        bits = bytearray(page)
        for _ in range(8):
            bits[random.randrange(length)] ^= 1 << random.randrange(8)
        new = random.choice((bytes(length), random.randbytes(length), other, bytes(bits)))
        os.pwrite(file.fileno(), new[:length], at)


async def _faults(service: Service, index: Path, random: Random, seconds: float) -> None:  # noqa: ARG001
    """A disk that is full, and then no memory for workers; each for a third of the time."""
    pids = service.pids()
    with _limited(pids, resource.RLIMIT_FSIZE, lambda _: PAGE):
        await asyncio.sleep(seconds / 3)
    await asyncio.sleep(seconds / 6)
    room = random.randrange(8 << 20)
    with _limited(service.pids()[1:], resource.RLIMIT_AS, lambda pid: _mapped(pid) + room):
        await asyncio.sleep(seconds / 3)


class _limited:  # noqa: N801 - used like a function
    """Have processes bounded while this lasts."""

    def __init__(self, pids: Iterable[int], what: int, bound: Callable[[int], int]) -> None:
        self._what = what
        self._before: dict[int, tuple[int, int]] = {}
        for pid in pids:
            with suppress(OSError):
                soft, hard = resource.prlimit(pid, what)
                resource.prlimit(pid, what, (bound(pid), hard))
                self._before[pid] = (soft, hard)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for pid, before in self._before.items():
            with suppress(OSError):
                resource.prlimit(pid, self._what, before)


def _mapped(pid: int) -> int:
    """Bytes of address space that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * PAGE


LUCK: Final[dict[str, Callable[[Service, Path, Random, float], Awaitable[None]]]] = {
    "damage": _damage,
    "faults": _faults,
}


# --- a class --------------------------------------------------------------------------------------


async def _class(
    name: str, index: Path, scratch: Path, options: argparse.Namespace
) -> dict[str, object]:
    own = scratch / name
    shutil.copytree(index, own / "index")
    service = await asyncio.to_thread(Service, own / "index", own / "state", options)
    try:
        attacker = await asyncio.to_thread(Attacker, service.url, name, options)
        try:
            return await _attacked(name, service, attacker, own / "index", options)
        finally:
            await asyncio.to_thread(attacker.close)
    finally:
        await asyncio.to_thread(service.close)
        shutil.rmtree(own)


async def _attacked(
    name: str, service: Service, attacker: Attacker, index: Path, options: argparse.Namespace
) -> dict[str, object]:
    random = Random(f"{options.seed} {name}")
    messages = [_message(number, random) for number in range(POOL)]
    victim = Victim(service, messages, patient=name not in OURS)
    await victim.register()
    alone, beside, during = Tally(), Tally(), Tally()
    await victim.load(min(WARM, options.seconds), Tally())
    began = time.monotonic()
    await victim.load(options.seconds / 2, alone)
    await _beside(victim, service, options, beside)
    before, processes, calm = service.own_bytes(), len(service.pids()), time.monotonic()
    used = time.process_time()
    attacker.go()
    luck = LUCK.get(name, _nothing)
    await asyncio.gather(
        victim.load(options.seconds, during), luck(service, index, random, options.seconds)
    )
    took_part = time.monotonic() - calm
    used = time.process_time() - used
    await asyncio.to_thread(attacker.stop)
    stall = service.stall(calm, time.monotonic())
    await asyncio.sleep(SETTLE)
    after = service.own_bytes()
    if service.given_up:
        after = service.peak
    attacker.go()
    await asyncio.sleep(min(options.seconds / 4, 1.0))
    told = time.monotonic()
    alive = service.alive
    took, code = await asyncio.to_thread(service.stop)
    ended = [number for at, number in service.signals if at < told or number in CRASHES]
    died = code < 0 and (not alive or -code in CRASHES) and not service.given_up
    sent = attacker.record["bytes"]
    growth = after - before
    p99, p99_alone, p99_beside = _p99(during), _p99(alone), _p99(beside)
    return {
        "rss_growth_over_bytes": max(growth - NOISE * processes, 0) / max(sent, 1),
        "loop_stall_ms": stall,
        "b_latency_ratio": p99 / p99_alone if p99_alone else 0.0,
        "b_matches_lost": during.lost,
        "silent_wrong": during.wrong,
        "signals": len(ended) + died,
        "stop_seconds_over": max(took - STOP - EXIT, 0.0),
        "rss_growth_mb": growth / 2**20,
        "rss_peak_mb": service.peak / 2**20,
        "ended_by_bench": service.given_up,
        "loop_stall_alone_ms": service.stall(began, calm),
        "b_p99_ms": p99,
        "b_p99_alone_ms": p99_alone,
        "b_p99_busy_ms": p99_beside,
        "b_busy_ratio": p99 / p99_beside if p99_beside else 0.0,
        "b_p50_ms": _p50(during),
        "b_p50_alone_ms": _p50(alone),
        "b_samples": len(during.times),
        "b_samples_alone": len(alone.times),
        "b_cores": used / took_part,
        "a_cores": attacker.record["cpu"] / took_part,
        "b_messages": during.messages,
        "b_refused": dict(during.refused),
        "b_wrong_alone": alone.lost + alone.wrong + beside.lost + beside.wrong,
        "a_bytes": sent,
        "a_wire": attacker.record["wire"],
        "a_answers": attacker.record["answers"],
        "stop_seconds": took,
        "exit": code,
        "signals_by_name": dict(Counter(signal.Signals(each).name for each in ended)),
    }


async def _beside(
    victim: Victim, service: Service, options: argparse.Namespace, tally: Tally
) -> None:
    """Measure B while A is busy, and no attacker; one that has used A's token, and is then gone."""
    other = await asyncio.to_thread(Attacker, service.url, hostile.BUSY, options)
    try:
        other.go()
        await victim.load(options.seconds / 2, tally)
        await asyncio.to_thread(other.stop)
    finally:
        await asyncio.to_thread(other.close)


def _p99(tally: Tally) -> float:
    return percentiles(tally.times).get("p99_ms", 0.0)


def _p50(tally: Tally) -> float:
    return percentiles(tally.times).get("p50_ms", 0.0)
