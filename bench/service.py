"""The service over HTTP, over NATS and in-process: messages a second, latencies, slow clients.

Messages are 4 KB and cite records of a bibliography of `--size`; statements are 1,000 and 100,000
filters, which seldom match, and 100 that go on in the corpus. All is drawn from `--seed`.

- `engine`: `Engine.match`, in worker processes, from this process.
- `single`: HTTP, one message a request, from 8 connections; `batch`: 100 messages a request, from
  4. Latencies are of requests.
- `nats`: from a JetStream stream to another, when there is always more; `nats paced` has latencies
  from publishing to the match in the other stream, at a quarter of that rate.

Each of these three has what the `service` takes, beside what is `bare` and the `middleware`:

- Over HTTP, `bare` is a FastAPI application on uvicorn, with a route that reads the body, does
  nothing, and answers with as many bytes as the service does.
- Over NATS, `bare` is a process with the same client library. It pulls the same messages from a
  stream in batches of 64, as the service does, publishes for each as many messages of the same size
  as there are matches to the other stream, with an id and the expected stream as headers, waits
  until all are confirmed, and acknowledges each message it has pulled.
- `middleware` is `Middleware.publish_batch` in this process: one message at a time for `single`, 64
  for `batch` and `nats`.

`overhead_ratios` is the CPU time of the service for a message, all its processes, over that of the
bare process and of the middleware together: what queues, processes, the log and metrics cost. They
are to be at most 2.0 for `single` and `nats`, 1.5 for `batch`. The three run in turns, so that what
else the machine does hits all of them; of the ratios of all rounds, the middle one counts.

`slow`: one client posts single messages, alone, and then beside `--slow` connections that say a
byte a second, of headers or of bodies, and `--readers` that follow matches and never read, for
`--rounds`. These are a process of their own, see `bench.company`: the client must not wait for what
they cost themselves. `spread` over the second is what strangers do who know nothing of each other,
`together` has all of them write in the same moment. `p99_ratio` is the worse of the two, to be at
most 2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bench.company import company
from bench.serving import (
    Client,
    Process,
    Times,
    build,
    filters,
    load,
    matching,
    messages,
    percentiles,
    request,
)
from fmware.middleware import Middleware
from fmware.service.engine import Engine
from fmware.service.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    Row = dict[str, Any]

__all__ = ["register", "run", "size_of", "statements_of"]

FILTERS: Final = (1_000, 100_000)
BATCH: Final = 100
POOL: Final = 2_000
IN_PROCESS: Final = 64
CLIENTS: Final = {"single": 8, "batch": 4}
ROUNDS: Final = 5
"""Of the service, what is bare and the middleware, in turns."""
WARM: Final = 4.0
SEEN: Final = 5
"""Seconds for which messages come before anything is measured, and again until each has come so
often: any of the workers may get it, and the middleware has seen all of them."""
BULK: Final = 20_000
COMPANY: Final = ("spread", "together")
STAY: Final = 35.0
"""Seconds within which slow headers, bodies and readers are all sent away, and come again."""
UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
BARE: Final = """
import json, socket, sys
import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()
answers = {"single": b"x" * int(sys.argv[1]), "batch": b"x" * int(sys.argv[2])}

@app.post("/v1/messages")
async def messages(request: Request) -> Response:
    body = await request.body()
    kind = "single" if len(body) < 10000 else "batch"
    return Response(answers[kind], media_type="application/json")

listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen(1024)
print(json.dumps({"event": "listening", "url": "http://127.0.0.1:%d" % listener.getsockname()[1]}),
      file=sys.stderr, flush=True)
config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
uvicorn.Server(config).run([listener])
"""
BARE_NATS: Final = """
import asyncio, json, signal, sys
import nats
from nats.js.api import ConsumerConfig

url, mark, each, size = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])

async def main():
    client = await nats.connect(url)
    stream = client.jetstream()
    config = ConsumerConfig(max_ack_pending=256)
    inbox = await stream.pull_subscribe(f"{mark}.in", "bare", stream=f"{mark}in", config=config)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print(json.dumps({"event": "listening", "url": url}), file=sys.stderr, flush=True)
    due = 0.0
    while not over.is_set():
        try:
            batch = await inbox.fetch(64, timeout=1)
        except asyncio.TimeoutError:
            continue
        sent = []
        for message in batch:
            name = message.headers["Nats-Msg-Id"]
            due += each
            for number in range(int(due)):
                said = f'{{"statement":"{"f" if number else "all"}","message":"{name}"'
                body = f'{said},"pad":"{"x" * max(size - len(said) - 10, 0)}"}}'.encode()
                headers = {"Nats-Msg-Id": f"{name}:{number}", "Nats-Expected-Stream": f"{mark}out"}
                sent.append(await stream.publish_async(f"{mark}.out", body, headers=headers))
            due -= int(due)
        for future in sent:
            await future
        for message in batch:
            await message.ack()

asyncio.run(main())
"""


def run(argv: list[str]) -> dict[str, object]:
    """Rates, latencies and ratios."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
        folder = Path(scratch)
        index, records = build(folder, options.size)
        pool = messages(POOL, records, options.seed)
        result: dict[str, object] = {"records": records, "message_bytes": _mean(map(len, pool))}
        worst: dict[str, float] = {}
        for count in options.filters:
            statements = statements_of(filters(count, pool, options.seed), matching())
            case = _case(folder, index, statements, pool, options)
            result[f"{count} filters"] = _recorded(case)
            worst |= {f"{count} {kind}": each for kind, each in case["overhead"].items()}
            if count == min(options.filters) and options.rounds:
                result["slow"] = asyncio.run(_slow(folder, index, statements, pool, options))
        return {"overhead_ratio": max(worst.values()), "overhead_ratios": worst, **result}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench service", description=__doc__)
    parser.add_argument("--size", type=size_of, default=200 * 10**6, help="of the corpus, as 200MB")
    parser.add_argument("--filters", type=_numbers, default=FILTERS, help="as 1000,100000")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--workers", type=int, default=0, help="0 is one a core")
    parser.add_argument("--slow", type=int, default=500, help="connections that say little")
    parser.add_argument("--readers", type=int, default=50, help="followers that never read")
    parser.add_argument("--rounds", type=int, default=5, help="beside slow clients; 0 is none")
    parser.add_argument("--seed", type=int, default=0, help="of messages and filters")
    parser.add_argument("--nats", default="nats://127.0.0.1:4222")
    parser.add_argument("--dir", help="where to build the index")
    return parser.parse_args(argv)


def size_of(text: str) -> int:
    """Bytes, as 20MB says it."""
    unit = UNITS.get(text[-2:].upper())
    return int(float(text[:-2]) * unit) if unit else int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def statements_of(plain: Sequence[str], local: Sequence[str]) -> list[Row]:
    """Filters and statements that go on in the corpus, as they are registered."""
    return [*_named("f", plain), *_named("m", local)]


def _named(mark: str, expressions: Sequence[str]) -> list[Row]:
    """Statements as they are registered; of filters, their name is wanted and nothing else."""
    returns = ["name"] if mark == "f" else ["local", "value"]
    return [
        {"name": f"{mark}{number}", "expression": each, "returns": returns}
        for number, each in enumerate(expressions)
    ]


def _mean(values: Iterable[int]) -> float:
    return statistics.mean(values)


def _batches(pool: Sequence[bytes], each: int) -> list[list[bytes]]:
    return [list(pool[at : at + each]) for at in range(0, len(pool), each)]


# --- one number of filters --------------------------------------------------------------------


def _case(
    folder: Path, index: Path, statements: list[Row], pool: list[bytes], options: argparse.Namespace
) -> Row:
    case: Row = {"engine": asyncio.run(_engine(index, statements, pool, options))}
    with Middleware(index) as middleware:
        for each in statements:
            middleware.subscribe(
                each["expression"], name=each["name"], returns=list(each["returns"])
            )
        hits = sum(len(middleware.publish(body).matches) for body in pool) / len(pool)
        case["matches_per_message"] = hits
        case |= asyncio.run(_http(folder, index, statements, middleware, pool, options))
        with suppress(OSError):
            case |= asyncio.run(_nats(folder, index, statements, middleware, pool, options))
    case["overhead"] = {kind: _overhead(case[kind]) for kind in (*CLIENTS, "nats") if kind in case}
    return case


def _recorded(case: Row) -> Row:
    """Rates, latencies and CPU of all rounds together."""
    return {
        key: {name: _total(rounds).record() for name, rounds in value.items()}
        if key in (*CLIENTS, "nats")
        else value
        for key, value in case.items()
    }


def _overhead(rounds: dict[str, list[Times]]) -> float:
    """The middle one of the ratios of all rounds."""
    each = zip(rounds["service"], rounds["bare"], rounds["middleware"], strict=True)
    return statistics.median(
        service.cpu_us / (bare.cpu_us + inside.cpu_us) for service, bare, inside in each
    )


def _in_process(
    middleware: Middleware, pool: list[bytes], each: int, first: int, seconds: float
) -> Times:
    """In this process, `each` messages at once, from a place in the pool on."""
    found = Times()
    batches = _batches(pool, each)
    at = first // each
    began, cpu = time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) - began < seconds:
        middleware.publish_batch(batches[at % len(batches)])
        found.each.append(time.perf_counter() - now)
        found.messages += len(batches[at % len(batches)])
        at += 1
    found.seconds = time.perf_counter() - began
    found.cpu = time.process_time() - cpu
    return found


async def _engine(
    index: Path, statements: list[Row], pool: list[bytes], options: argparse.Namespace
) -> Row:
    """In worker processes, from here."""
    engine = Engine(index, workers=options.workers, dedupe_messages=0)
    await engine.subscribe_all(("default", each) for each in statements)
    found = Times()
    async with engine:
        began = time.perf_counter()
        batches = _batches(pool, BATCH)

        async def go(first: int) -> None:
            at = first
            while time.perf_counter() - began < options.seconds:
                now = time.perf_counter()
                some = batches[at % len(batches)]
                await engine.match([Envelope(f"{at}-{n}", body) for n, body in enumerate(some)])
                found.each.append(time.perf_counter() - now)
                found.messages += len(some)
                at += 4

        await asyncio.gather(*map(go, range(4)))
        found.seconds = time.perf_counter() - began
    return found.record()


async def register(url: str, statements: list[Row]) -> None:
    """Have a service know statements."""
    client = Client(url)
    for at in range(0, len(statements), BULK):
        body = json.dumps({"statements": statements[at : at + BULK]}).encode()
        said = await client.ask(request(url, body, "/v1/statements/bulk", "application/json"))
        if json.loads(said)["refused"]:
            raise RuntimeError(said[:2000].decode())
    client.close()


def _served(folder: Path, index: Path, options: argparse.Namespace, *more: str) -> Process:
    quota = 'tenants=[{name="default", limits={statements=10000000}}]'
    return Process.serve(index, folder, quota, f"engine.workers={options.workers}", *more)


async def _http(
    folder: Path,
    index: Path,
    statements: list[Row],
    middleware: Middleware,
    pool: list[bytes],
    options: argparse.Namespace,
) -> Row:
    """Round by round: the service, the bare server and the middleware, one after the other."""
    seconds = options.seconds / ROUNDS
    found: Row = {}
    with _served(folder, index, options) as process:
        await register(process.url, statements)
        sizes = [str(await _warmed(process.url, *kind)) for kind in reversed(_kinds(pool))]
        with Process(folder, ["-c", BARE, *reversed(sizes)]) as bare:
            await _warmed(bare.url, *_kinds(pool)[0])
            for kind, bodies, each in _kinds(pool):
                rounds = found[kind] = {"service": [], "bare": [], "middleware": []}
                for turn in range(ROUNDS):
                    inside = IN_PROCESS if each > 1 else 1
                    first = turn * len(pool) // ROUNDS
                    for name, of in (("service", process), ("bare", bare)):
                        rounds[name].append(await _loaded(of, bodies, kind, each, seconds))
                    here = _in_process(middleware, pool, inside, first, seconds)
                    rounds["middleware"].append(here)
    return found


async def _warmed(url: str, kind: str, bodies: list[bytes], each: int) -> int:
    """Post messages for a while, batches until all were seen often enough; bytes of an answer."""
    times = Times()
    while times.messages < (SEEN * POOL if each > 1 else 1):
        times.add(await load(url, bodies, seconds=WARM, clients=CLIENTS[kind], each=each))
    return times.answers // len(times.each)


async def _loaded(
    process: Process, bodies: list[bytes], kind: str, each: int, seconds: float
) -> Times:
    cpu = process.cpu()
    times = await load(process.url, bodies, seconds=seconds, clients=CLIENTS[kind], each=each)
    times.cpu = process.cpu() - cpu
    return times


def _kinds(pool: list[bytes]) -> list[tuple[str, list[bytes], int]]:
    return [
        ("single", pool, 1),
        ("batch", [b"".join(some) for some in _batches(pool, BATCH)], BATCH),
    ]


# --- NATS -------------------------------------------------------------------------------------


@asynccontextmanager
async def _streams(url: str) -> AsyncIterator[_Streams]:
    """Two streams of NATS, which are gone afterwards."""
    import nats

    connection = await nats.connect(url, connect_timeout=2, max_reconnect_attempts=1)
    found = _Streams(url, f"bench{uuid4().hex[:8]}", connection.jetstream())
    try:
        for name in ("in", "out"):
            subjects = [f"{found.mark}.{name}", f"{found.mark}.{name}d"]
            await found.stream.add_stream(name=f"{found.mark}{name}", subjects=subjects)
        await connection.subscribe(f"{found.mark}.out", cb=found.take)
        yield found
    finally:
        for name in ("in", "out"):
            with suppress(nats.errors.Error):
                await found.stream.delete_stream(f"{found.mark}{name}")
        await connection.close()


async def _nats(
    folder: Path,
    index: Path,
    statements: list[Row],
    middleware: Middleware,
    pool: list[bytes],
    options: argparse.Namespace,
) -> Row:
    """From stream to stream; every message has a match, so that each can be timed."""
    seconds = options.seconds / ROUNDS
    everything = {"name": "all", "expression": "/notice", "returns": ["name"]}
    rounds: dict[str, list[Times]] = {"service": [], "bare": [], "middleware": []}
    async with _streams(options.nats) as one, _streams(options.nats) as other:
        with _served(folder, index, options, *one.settings()) as process:
            await register(process.url, [*statements, everything])
            await _flooded(process, one, pool, WARM)
            about = [options.nats, other.mark, str(one.hits / len(one.at)), str(one.hit_bytes())]
            with Process(folder, ["-c", BARE_NATS, *about]) as bare:
                for turn in range(ROUNDS):
                    rounds["service"].append(await _flooded(process, one, pool, seconds))
                    rounds["bare"].append(await _flooded(bare, other, pool, seconds))
                    first = turn * len(pool) // ROUNDS
                    here = _in_process(middleware, pool, IN_PROCESS, first, seconds)
                    rounds["middleware"].append(here)
            rate = _total(rounds["service"]).record()["messages_per_second"] / 4
            times = await _paced(one, pool, rate, options.seconds)
    latency = {"hits_per_message": one.hits / len(one.at), **percentiles(times)}
    return {"nats": rounds, "nats paced": latency}


def _total(rounds: Iterable[Times]) -> Times:
    total = Times()
    for each in rounds:
        total.add(each)
    return total


class _Streams:
    """A stream for messages and one for matches, by the mark that their names begin with; and when
    the match of each message came: one statement matches all of them."""

    def __init__(self, url: str, mark: str, stream: Any) -> None:
        self.url = url
        self.mark = mark
        self.stream = stream
        self.at: dict[str, float] = {}
        self.hits = 0
        self.bytes = 0

    def settings(self) -> tuple[str, str]:
        """A source and a sink of the service."""
        mark, about = self.mark, f'kind="nats", url="{self.url}"'
        source = f'{{name="in", {about}, stream="{mark}in", subject="{mark}.in"}}'
        out = f'stream="{mark}out", subject="{mark}.out", dead_subject="{mark}.outd"'
        return f"sources=[{source}]", f'sinks=[{{name="out", {about}, {out}}}]'

    async def send(self, name: str, body: bytes) -> None:
        await self.stream.publish(f"{self.mark}.in", body, headers={"Nats-Msg-Id": name})

    async def take(self, message: Any) -> None:
        self.hits += 1
        self.bytes += len(message.data)
        if b'"statement":"all"' in message.data:
            self.at[json.loads(message.data)["message"]] = time.perf_counter()

    def hit_bytes(self) -> int:
        return self.bytes // self.hits


async def _flooded(process: Process, to: _Streams, pool: list[bytes], seconds: float) -> Times:
    """What a process takes for messages when there are always more."""
    found = Times()
    first = sent = len(to.at)
    began, cpu = time.perf_counter(), process.cpu()
    while time.perf_counter() - began < seconds:
        some = range(sent, sent + 500)
        await asyncio.gather(*(to.send(f"f{n}", pool[n % POOL]) for n in some))
        sent += 500
        await _come(process, to, sent - 4000)
    await _come(process, to, sent)
    found.messages = sent - first
    found.seconds = time.perf_counter() - began
    found.cpu = process.cpu() - cpu
    return found


async def _come(process: Process, to: _Streams, count: int) -> None:
    """Wait for the matches of `count` messages."""
    while len(to.at) < count:
        if process.popen.poll() is not None:
            raise RuntimeError("the process has ended")
        await asyncio.sleep(0.01)


async def _paced(to: _Streams, pool: list[bytes], rate: float, seconds: float) -> list[float]:
    began = time.perf_counter()
    sent: dict[str, float] = {}
    while (now := time.perf_counter()) - began < seconds:
        while len(sent) < (now - began) * rate:
            name = f"p{len(sent)}"
            sent[name] = time.perf_counter()
            await to.send(name, pool[len(sent) % POOL])
        await asyncio.sleep(0.001)
    while not sent.keys() <= to.at.keys():
        await asyncio.sleep(0.01)
    return [to.at[name] - at for name, at in sent.items()]


# --- slow clients -----------------------------------------------------------------------------


async def _slow(
    folder: Path,
    index: Path,
    statements: list[Row],
    pool: list[bytes],
    options: argparse.Namespace,
) -> Row:
    """One good client alone and in bad company, in turns; of each ratio, the middle one counts."""
    found: dict[str, list[Row]] = {"alone": [], "spread": [], "together": []}
    with _served(folder, index, options) as process:
        await register(process.url, statements)
        await load(process.url, pool, seconds=2.0, clients=1)
        for _ in range(options.rounds):
            for kind, rows in found.items():
                rows.append(await _good(process.url, pool, kind, options))
        memory = process.resident()
    ratios = {kind: _ratios(found["alone"], found[kind], "p99_ms") for kind in COMPANY}
    middle = {kind: statistics.median(each) for kind, each in ratios.items()}
    return {
        "slow": options.slow,
        "readers": options.readers,
        "p99_ratio": max(middle.values()),
        "p99_ratio_by": middle,
        "p99_ratios": ratios,
        "p50_ratios": {kind: _ratios(found["alone"], found[kind], "p50_ms") for kind in COMPANY},
        **found,
        "memory": memory,
    }


async def _good(url: str, pool: list[bytes], kind: str, options: argparse.Namespace) -> Row:
    """What one good client meets; with company for so long that all of it is sent away once."""
    if kind not in COMPANY:
        return (await load(url, pool, seconds=options.seconds, clients=1)).record()
    with company(url, options.slow, options.readers, together=kind == "together") as came:
        times = await load(url, pool, seconds=max(options.seconds, STAY), clients=1)
    return {**times.record(), "came": came}


def _ratios(alone: list[Row], beside: list[Row], what: str) -> list[float]:
    return sorted(there[what] / here[what] for here, there in zip(alone, beside, strict=True))
