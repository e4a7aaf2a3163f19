"""The service over HTTP, over NATS and in-process: messages a second, latencies, slow clients.

Messages are 4 KB and cite records of a bibliography of `--size`; statements are 1,000 and 100,000
filters, which seldom match, and 100 that go on in the corpus. Each is measured in one run:

- `middleware`: `Middleware.publish_batch`, and one at a time; `engine`: `Engine.match`, in worker
  processes, from this process.
- `http batch`: 100 messages a request; `http single`: one a request. Latencies are of requests.
- `bare`: the same server with a route that reads the body, does nothing, and answers as much.
- `nats`: from a JetStream stream; latencies are from publishing to the match in another stream, at
  a quarter of that rate.

`overhead_ratio` is the CPU time of the service for a message, all its processes, over that of the
bare server and of the middleware together: what queues, processes, the log and metrics cost.

`slow`: one client posts single messages, alone, and then beside `--slow` connections that say a
byte a second, of headers or of bodies, and `--readers` that follow matches and never read. These
are a process of their own, see `bench.company`: the client must not wait for what they cost
themselves. `spread` over the second is what strangers do who know nothing of each other, `together`
has all of them write in the same moment. `p99_ratio` is the worse of the two, to be at most 2.
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
from nats.errors import TimeoutError
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
        except TimeoutError:
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
            result[f"{count} filters"] = case
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
    case: Row = {"middleware": _middleware(index, statements, pool, options.seconds)}
    case["engine"] = asyncio.run(_engine(index, statements, pool, options))
    http = asyncio.run(_http(folder, index, statements, pool, options))
    bare = asyncio.run(_bare(folder, pool, http, options.seconds))
    for kind in CLIENTS:
        case[f"http {kind}"] = http[kind]
        case[f"bare {kind}"] = bare[kind]
    inside = {"single": "single_cpu_us", "batch": "cpu_us"}
    case["overhead"] = {
        kind: http[kind]["cpu_us"] / (bare[kind]["cpu_us"] + case["middleware"][inside[kind]])
        for kind in CLIENTS
    }
    with suppress(OSError):
        case["nats"] = asyncio.run(_nats(folder, index, statements, pool, options))
        case["bare nats"] = asyncio.run(_bare_nats(folder, pool, case["nats"], options))
        beside = case["bare nats"]["cpu_us"] + case["middleware"]["cpu_us"]
        case["overhead"]["nats"] = case["nats"]["cpu_us"] / beside
    return case


def _middleware(index: Path, statements: list[Row], pool: list[bytes], seconds: float) -> Row:
    """In this process, batch by batch, and one by one."""
    with Middleware(index) as middleware:
        for each in statements:
            middleware.subscribe(
                each["expression"], name=each["name"], returns=list(each["returns"])
            )
        hits = sum(len(middleware.publish(body).matches) for body in pool[:500]) / 500
        batches = _batches(pool, IN_PROCESS)
        many, cpu = _timed(lambda some: middleware.publish_batch(some), batches, seconds)
        ones, single = _timed(lambda some: middleware.publish(some[0]), _batches(pool, 1), seconds)
    many.messages *= IN_PROCESS
    return {
        **many.record(),
        "cpu_us": cpu / many.messages * 1e6,
        "single": ones.record(),
        "single_cpu_us": single / ones.messages * 1e6,
        "matches_per_message": hits,
    }


def _timed(call: Any, batches: list[list[bytes]], seconds: float) -> tuple[Times, float]:
    found = Times()
    began, cpu = time.perf_counter(), time.process_time()
    while (now := time.perf_counter()) - began < seconds:
        call(batches[found.messages % len(batches)])
        found.each.append(time.perf_counter() - now)
        found.messages += 1
    found.seconds = time.perf_counter() - began
    return found, time.process_time() - cpu


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
    pool: list[bytes],
    options: argparse.Namespace,
) -> Row:
    with _served(folder, index, options) as process:
        await register(process.url, statements)
        found: Row = {}
        for kind, bodies, each in _kinds(pool):
            await load(process.url, bodies, seconds=2.0, clients=CLIENTS[kind], each=each)
            cpu = process.cpu()
            times = await load(
                process.url, bodies, seconds=options.seconds, clients=CLIENTS[kind], each=each
            )
            found[kind] = {
                **times.record(),
                "cpu_us": (process.cpu() - cpu) / times.messages * 1e6,
                "answer_bytes": times.answers / len(times.each),
            }
        return found


def _kinds(pool: list[bytes]) -> list[tuple[str, list[bytes], int]]:
    return [
        ("single", pool, 1),
        ("batch", [b"".join(some) for some in _batches(pool, BATCH)], BATCH),
    ]


async def _bare(folder: Path, pool: list[bytes], http: Row, seconds: float) -> Row:
    """The same bodies to a server that does nothing, and answers as much."""
    sizes = [str(int(http[kind]["answer_bytes"])) for kind in ("single", "batch")]
    with Process(folder, ["-c", BARE, *sizes]) as process:
        found: Row = {}
        for kind, bodies, each in _kinds(pool):
            await load(process.url, bodies, seconds=1.0, clients=CLIENTS[kind], each=each)
            cpu = process.cpu()
            times = await load(
                process.url, bodies, seconds=seconds, clients=CLIENTS[kind], each=each
            )
            found[kind] = {
                **times.record(),
                "cpu_us": (process.cpu() - cpu) / times.messages * 1e6,
            }
        return found


# --- NATS -------------------------------------------------------------------------------------


@asynccontextmanager
async def _streams(url: str) -> AsyncIterator[tuple[str, Any, _Arrivals]]:
    """Two streams, by the mark that their names begin with, and what arrives in the second."""
    import nats

    mark = f"bench{uuid4().hex[:8]}"
    connection = await nats.connect(url, connect_timeout=2, max_reconnect_attempts=1)
    stream = connection.jetstream()
    try:
        for name in ("in", "out"):
            subjects = [f"{mark}.{name}", f"{mark}.{name}d"]
            await stream.add_stream(name=f"{mark}{name}", subjects=subjects)
        counted = _Arrivals()
        await connection.subscribe(f"{mark}.out", cb=counted.take)
        yield mark, stream, counted
    finally:
        for name in ("in", "out"):
            with suppress(nats.errors.Error):
                await stream.delete_stream(f"{mark}{name}")
        await connection.close()


async def _nats(
    folder: Path,
    index: Path,
    statements: list[Row],
    pool: list[bytes],
    options: argparse.Namespace,
) -> Row:
    """From stream to stream; every message has a match, so that each can be timed."""
    async with _streams(options.nats) as (mark, stream, counted):
        about = f'kind="nats", url="{options.nats}"'
        source = f'sources=[{{name="in", {about}, stream="{mark}in", subject="{mark}.in"}}]'
        sink = (
            f'sinks=[{{name="out", {about}, stream="{mark}out", subject="{mark}.out", '
            f'dead_subject="{mark}.outd"}}]'
        )
        everything = {"name": "all", "expression": "/notice", "returns": ["name"]}
        with _served(folder, index, options, source, sink) as process:
            await register(process.url, [*statements, everything])
            found = await _flooded(process, stream, mark, pool, counted, options.seconds)
            rate = found["messages_per_second"] / 4
            times = await _paced(stream, mark, pool, counted, rate, options.seconds)
            return {**found, **percentiles(times)}


async def _bare_nats(
    folder: Path, pool: list[bytes], like: Row, options: argparse.Namespace
) -> Row:
    """From stream to stream, with as much to publish for each message, and nothing matched."""
    async with _streams(options.nats) as (mark, stream, counted):
        about = [options.nats, mark, str(like["hits_per_message"]), str(int(like["hit_bytes"]))]
        with Process(folder, ["-c", BARE_NATS, *about]) as process:
            return await _flooded(process, stream, mark, pool, counted, options.seconds)


class _Arrivals:
    """When the match of each message came; one statement matches all of them."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.hits = 0
        self.bytes = 0

    async def take(self, message: Any) -> None:
        self.hits += 1
        self.bytes += len(message.data)
        if b'"statement":"all"' in message.data:
            self.at[json.loads(message.data)["message"]] = time.perf_counter()


async def _flooded(
    process: Process, stream: Any, mark: str, pool: list[bytes], counted: _Arrivals, seconds: float
) -> Row:
    """What a process takes for a message when there is always more, after a while of it."""
    await _flood(stream, mark, pool, counted, 1.0)
    cpu, hits, size = process.cpu(), counted.hits, counted.bytes
    count, rate = await _flood(stream, mark, pool, counted, seconds)
    hits, size = counted.hits - hits, counted.bytes - size
    return {
        "messages_per_second": rate,
        "cpu_us": (process.cpu() - cpu) / count * 1e6,
        "hits_per_message": hits / count,
        "hit_bytes": size / max(hits, 1),
    }


async def _flood(
    stream: Any, mark: str, pool: list[bytes], counted: _Arrivals, seconds: float
) -> tuple[int, float]:
    """Messages, and how many a second, when there is always more."""
    first = sent = len(counted.at)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        some = range(sent, sent + 500)
        await asyncio.gather(
            *(
                stream.publish(f"{mark}.in", pool[n % POOL], headers={"Nats-Msg-Id": f"f{n}"})
                for n in some
            )
        )
        sent += 500
        while sent - len(counted.at) > 4000:
            await asyncio.sleep(0.01)
    while len(counted.at) < sent:
        await asyncio.sleep(0.01)
    return sent - first, (sent - first) / (time.perf_counter() - began)


async def _paced(
    stream: Any, mark: str, pool: list[bytes], counted: _Arrivals, rate: float, seconds: float
) -> list[float]:
    began = time.perf_counter()
    sent: dict[str, float] = {}
    while (now := time.perf_counter()) - began < seconds:
        while len(sent) < (now - began) * rate:
            name = f"p{len(sent)}"
            sent[name] = time.perf_counter()
            await stream.publish(
                f"{mark}.in", pool[len(sent) % POOL], headers={"Nats-Msg-Id": name}
            )
        await asyncio.sleep(0.001)
    while not sent.keys() <= counted.at.keys():
        await asyncio.sleep(0.01)
    return [counted.at[name] - at for name, at in sent.items()]


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
