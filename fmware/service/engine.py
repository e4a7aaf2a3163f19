"""The engine: envelopes in, outcomes out, matched by worker processes.

What is guaranteed:

- **Bounded.** No more than `queue` messages are under way, and none comes in while they and what
  was found in them are more than `queue_bytes`; `match` waits for room, in the order of the calls.
  Beside them there are the ids of the window, bounded by time and number, and the statements.
- **A worker's death loses nothing.** Another one is started with all statements, and what the dead
  one had not answered is given to others: matching has no side effects. A message that `tries`
  workers died of, at last alone, is poison.
- **In order with statements.** A message sees the statements whose `subscribe` was called before
  its `match`, and none whose `unsubscribe` was. Messages among themselves are matched in any order.
- **Once, within the window.** Of messages with the same tenant and id, one is matched and handed
  over. The others wait for it and come back as duplicates; if it failed, the next one has its turn.
  The window is in memory: after a crash, repeats are told by the ids of hits (see `envelope`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fmware.errors import FMwareError
from fmware.service.dedupe import Window
from fmware.service.envelope import Envelope, Hit, Outcome
from fmware.service.errors import EngineStopped, StatementRefused, WorkerFailed
from fmware.service.gate import Gate
from fmware.service.process import Process
from fmware.service.worker import statement_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Give = Callable[[Sequence[Envelope], Sequence[Outcome]], Awaitable[None]]
    Key = tuple[str, str]

__all__ = ["Engine", "Refused"]

DEPTH: Final = 3
"""Batches that a worker has before it: one to work on, the others so that it need not wait."""
BULK: Final = 2_000
"""Statements that are sent at once: messages between two lots do not wait for all of them."""
BEAT: Final = 1.0
"""Seconds between two looks at the workers."""
LONGEST_ID: Final = 100
REPORT_AGE: Final = 15.0
"""Seconds for which a report is new enough."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds before a dead worker is replaced; doubled while it dies before it was ready."""

Refused = tuple[str, str, str]
"""A statement that was refused: its tenant, its name and why."""

log = logging.getLogger("fmware.service")


@dataclass(slots=True, eq=False)
class Call:
    """Envelopes of one `match` that are under way."""

    envelopes: list[Envelope]
    outcomes: list[Outcome | None]
    left: int
    future: asyncio.Future[None]
    size: int = 0
    """Bytes of what was found."""


@dataclass(slots=True, eq=False)
class Job:
    """One envelope of a call; `deaths`: workers that ended while they had it."""

    call: Call
    place: int
    deaths: int = 0
    alone: bool = False

    @property
    def envelope(self) -> Envelope:
        return self.call.envelopes[self.place]

    def finish(self, outcome: Outcome) -> None:
        self.call.outcomes[self.place] = outcome
        self.call.left -= 1
        if not self.call.left and not self.call.future.done():
            self.call.future.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.call.future.done():
            self.call.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Order:
    """A change of statements, in its place among the messages."""

    kind: str
    about: list[Any]
    future: asyncio.Future[list[Refused]]
    before: dict[Key, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Counts:
    """What the engine has done so far."""

    messages: int = 0
    matched: int = 0
    hits: int = 0
    poison: int = 0
    duplicates: int = 0
    errors: int = 0
    unmatched: int = 0
    restarts: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        self.messages += 1
        self.matched += bool(outcome.hits)
        self.hits += len(outcome.hits)
        self.poison += outcome.poison is not None
        self.errors += len(outcome.errors)
        self.unmatched += outcome.unmatched

    def lap(self, seconds: Mapping[str, float]) -> None:
        for stage, taken in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + taken


class Engine:
    """Matches envelopes in worker processes; see above for what it promises.

    - `workers`: processes; 0 is one a core. `batch`: the most messages that one gets at once.
    - `patience`: seconds that a worker may take for one batch before it is taken for stuck, and
      ended. `tries`: workers that a message may bring down before it is poison.
    - `options`: those of each worker's `Middleware`, and `limits` and `entities` for messages.
    """

    def __init__(
        self,
        index: str | Path,
        *,
        workers: int = 0,
        queue: int = 1024,
        queue_bytes: int = 256 << 20,
        batch: int = 64,
        dedupe_seconds: float = 120.0,
        dedupe_messages: int = 100_000,
        patience: float = 30.0,
        tries: int = 3,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = {"index": str(index), **(options or {})}
        self._count = workers or cores()
        self._batch = batch
        self._patience = patience
        self._tries = tries
        self._gate = Gate(queue, queue_bytes)
        self._window = Window(dedupe_seconds, dedupe_messages)
        self._statements: dict[Key, dict[str, Any]] = {}
        self._pending: deque[Job | Order] = deque()
        self._free: dict[Process, int] = {}
        """The workers that are ready, and how many batches each has yet room for."""
        self._processes: set[Process] = set()
        self._flying: dict[Process, dict[int, list[Job]]] = {}
        self._stirred = asyncio.Event()
        self._counts = Counts()
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: set[asyncio.Task[None]] = set()
        self._reporting = asyncio.Lock()
        self._reported: tuple[float, dict[str, Any]] | None = None
        self._calls = 0
        self._running = False
        self._stopping = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait for all of them; a `WorkerFailed` says what is wrong."""
        first = [Process(number) for number in range(self._count)]
        begun = [asyncio.create_task(self._begin(process)) for process in first]
        try:
            await asyncio.gather(*begun)
        except BaseException:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            await asyncio.gather(*(process.close(0.5) for process in first))
            for kept in (self._processes, self._free, self._flying):
                kept.clear()
            raise
        self._running = True
        self._tasks = [
            asyncio.create_task(self._dispatch(), name="dispatch"),
            asyncio.create_task(self._watch(), name="watch"),
            *(asyncio.create_task(self._keep(process), name="keep") for process in first),
        ]

    async def stop(self, drain: bool = True) -> None:
        """Take no more calls; finish those there are, or with `drain=False` fail them; then end.

        Where finishing takes too long it may be cancelled, and called again without `drain`.
        """
        if not self._tasks:
            return
        self._running = False
        if drain:
            while self._calls or self._pending:
                await self._stir()
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._processes:
            if not drain:
                process.kill()
        await asyncio.gather(*(process.close() for process in self._processes))
        await asyncio.gather(*self._answers, return_exceptions=True)
        error = EngineStopped("the engine was stopped before this was done")
        for each in self._pending:
            if isinstance(each, Job):
                each.fail(error)
            elif not each.future.done():
                each.future.set_exception(error)
        self._pending.clear()
        self._tasks.clear()

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _check(self) -> None:
        if not self._running:
            raise EngineStopped("the engine does not run: start it, or it was stopped")

    # --- messages -------------------------------------------------------------------------------

    async def match(self, envelopes: Sequence[Envelope], give: Give | None = None) -> list[Outcome]:
        """What is to be said of each envelope, in their order; waits where the queue is full.

        `give` hands over what was found. Messages are done, and repeats of them duplicates, when it
        has returned; if it raises, so does this, and they may come again. It is called with those
        that are not duplicates, once or more often. Without it, to return is to hand over.
        """
        self._check()
        found: list[Outcome] = []
        self._calls += 1
        try:
            for chunk in self._chunks(envelopes):
                found += await self._match_chunk(chunk, give)
        finally:
            self._calls -= 1
        return found

    def _chunks(self, envelopes: Sequence[Envelope]) -> Iterator[list[Envelope]]:
        """No more at once than the gate can hold."""
        chunk: list[Envelope] = []
        size = 0
        for envelope in envelopes:
            size += len(envelope.body)
            if chunk and (len(chunk) >= self._gate.messages or size > self._gate.size):
                yield chunk
                chunk, size = [], len(envelope.body)
            chunk.append(envelope)
        if chunk:
            yield chunk

    async def _match_chunk(self, envelopes: list[Envelope], give: Give | None) -> list[Outcome]:
        """Claim what can be claimed and see it through, then look at what others had claimed.

        Nothing that is claimed ever waits for a claim, so that no two calls wait for each other.
        """
        left: dict[Key, Envelope] = {}
        for each in envelopes:
            left.setdefault(_key(each), each)
        found: dict[Key, Outcome] = {}
        while left:
            mine = {key: left[key] for key in left if self._window.claim(key)}
            if mine:
                outcomes = await self._run(mine, give)
                found.update(zip(mine, outcomes, strict=True))
            others = [key for key in left if key not in mine]
            await self._window.settled(others)
            left = {key: left[key] for key in others if key not in self._window}
        answers = []
        for envelope in envelopes:
            outcome = found.pop(_key(envelope), None)
            self._counts.duplicates += outcome is None
            answers.append(outcome or Outcome(envelope.id, duplicate=True))
        return answers

    async def _run(self, mine: dict[Key, Envelope], give: Give | None) -> list[Outcome]:
        envelopes = list(mine.values())
        size = sum(len(each.body) for each in envelopes)
        future = asyncio.get_running_loop().create_future()
        call = Call(envelopes, [None] * len(envelopes), len(envelopes), future)
        try:
            await self._gate.enter(len(envelopes), size)
            try:
                outcomes = await self._answer(call)
                if give is not None:
                    await give(envelopes, outcomes)
            finally:
                self._gate.leave(len(envelopes), size + call.size)
        except BaseException:
            self._window.release(mine)
            raise
        self._window.done(mine)
        for outcome in outcomes:
            self._counts.add(outcome)
        return outcomes

    async def _answer(self, call: Call) -> list[Outcome]:
        if self._stopping:
            raise EngineStopped("the engine was stopped before this was done")
        self._pending.extend(Job(call, place) for place in range(len(call.envelopes)))
        self._stirred.set()
        await call.future
        return [outcome for outcome in call.outcomes if outcome is not None]

    # --- statements -----------------------------------------------------------------------------

    async def subscribe(self, tenant: str, statement: Mapping[str, Any]) -> None:
        """Register a statement with all workers, in the place of one of the same name.

        It has the keys of an entry in a file of statements. One that is not good raises the
        `XPathError` that says where, or a `StatementRefused`.
        """
        statement_of(statement)
        refused = await self.subscribe_all([(tenant, statement)])
        if refused:
            raise StatementRefused(f"statement {refused[0][1]!r}: {refused[0][2]}")

    async def subscribe_all(
        self, statements: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> list[Refused]:
        """Register many; those that were refused, and why. The others are there when it returns.

        Before `start` they are only noted, and the workers begin with them.
        """
        source = iter(statements)
        waited: list[asyncio.Future[list[Refused]]] = []
        refused: list[Refused] = []
        while lot := [(tenant, _plain(about)) for tenant, about in islice(source, BULK)]:
            nameless = [tenant for tenant, about in lot if not about.get("name")]
            if nameless:
                raise StatementRefused(f"a statement of tenant {nameless[0]!r} has no name")
            if self._running:
                waited.append(self._order("subscribe", lot))
            else:
                self._statements.update({(tenant, each["name"]): each for tenant, each in lot})
            await asyncio.sleep(0)
        for future in waited:
            refused += await future
        return refused

    async def unsubscribe(self, tenant: str, name: str) -> None:
        """Take a statement out of all workers."""
        if (tenant, name) not in self._statements:
            raise StatementRefused(f"tenant {tenant!r} has no statement {name!r}")
        if self._running:
            await self._order("unsubscribe", [(tenant, name)])
        else:
            del self._statements[tenant, name]

    def statements(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Those that are registered, of one tenant or of all."""
        kept = self._statements.items()
        return [about for (owner, _), about in kept if tenant in (None, owner)]

    def _order(self, kind: str, about: list[Any]) -> asyncio.Future[list[Refused]]:
        self._check()
        future: asyncio.Future[list[Refused]] = asyncio.get_running_loop().create_future()
        self._pending.append(Order(kind, about, future))
        self._stirred.set()
        return future

    # --- to the workers -------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        """Hand out what is pending, in its order, to whoever has room."""
        while True:
            while self._pending:
                head = self._pending[0]
                if isinstance(head, Order):
                    self._pending.popleft()
                    self._spread(head)
                    continue
                process = max(self._free, key=self._free.__getitem__, default=None)
                if process is None or not self._free[process]:
                    break
                self._send(process, self._next_batch())
            self._stirred.clear()
            if not self._pending or not any(self._free.values()):
                await self._stirred.wait()

    def _next_batch(self) -> list[Job]:
        """As many as a worker gets: its share of what is there, up to the next order."""
        share = -(-len(self._pending) // self._count)
        most = min(self._batch, share)
        jobs: list[Job] = []
        while self._pending and len(jobs) < most:
            head = self._pending[0]
            if isinstance(head, Order) or (head.alone and jobs):
                break
            self._pending.popleft()
            jobs.append(head)
            if head.alone:
                break
        return jobs

    def _send(self, process: Process, jobs: list[Job]) -> None:
        told = [(each.envelope.tenant, each.envelope.id, each.envelope.body) for each in jobs]
        self._free[process] -= 1
        self._flying[process][id(jobs)] = jobs
        self._await(self._take(process, jobs, process.ask("match", told)))

    def _spread(self, order: Order) -> None:
        """Tell all workers; those that are still starting learn it after what they begin with."""
        kept = self._statements
        if order.kind == "subscribe":
            told = {(tenant, each["name"]): each for tenant, each in order.about}
            order.before = {key: kept[key] for key in told if key in kept}
            kept.update(told)
        else:
            for key in order.about:
                self._statements.pop(key, None)
        asked = [process.ask(order.kind, order.about) for process in self._flying]
        self._await(self._obeyed(order, asked))

    async def _obeyed(self, order: Order, asked: list[asyncio.Future[Any]]) -> None:
        said = await asyncio.gather(*asked, return_exceptions=True)
        # One that is gone is replaced by one that begins with all statements.
        refused = {tuple(one) for each in said if isinstance(each, tuple) for one in each[0] or ()}
        for tenant, name, _ in refused:
            self._refuse((tenant, name), order.before)
        if not order.future.done():
            order.future.set_result(sorted(refused))

    def _refuse(self, key: Key, before: Mapping[Key, dict[str, Any]]) -> None:
        """What is refused is not there, and what it was to replace still is."""
        if key in before:
            self._statements[key] = before[key]
        else:
            self._statements.pop(key, None)

    async def _take(self, process: Process, jobs: list[Job], future: asyncio.Future[Any]) -> None:
        try:
            (outcomes, seconds), size = await future
            found = [
                outcome_of(job.envelope, told, seconds)
                for job, told in zip(jobs, outcomes, strict=True)
            ]
        except (WorkerFailed, TypeError, ValueError):
            process.kill()  # Unless it is gone, it talks nonsense.
            self._flying[process].pop(id(jobs))
            self._again(jobs, blamed=not process.blamed)
            process.blamed = True  # Those behind had not been looked at yet.
        else:
            self._counts.lap(seconds)
            del self._flying[process][id(jobs)]
            if process in self._free:
                self._free[process] += 1
            self._weigh(jobs, size)
            for job, outcome in zip(jobs, found, strict=True):
                job.finish(outcome)
        self._stirred.set()

    def _weigh(self, jobs: list[Job], size: int) -> None:
        """What was found takes room, too, until it is handed over."""
        for job in jobs:
            if not job.call.future.done():
                job.call.size += size // len(jobs)
                self._gate.grow(size // len(jobs))

    def _again(self, jobs: list[Job], *, blamed: bool) -> None:
        """Give others what a dead worker had; one by one what it may have died of."""
        for job in reversed(jobs):
            job.deaths += blamed
            job.alone |= blamed
            if blamed and len(jobs) == 1 and job.deaths >= self._tries:
                said = f"{job.deaths} workers ended while they matched it"
                job.finish(Outcome(job.envelope.id, poison=said))
            else:
                self._pending.appendleft(job)

    def _await(self, answer: Any) -> None:
        task = asyncio.ensure_future(answer)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    # --- the workers ----------------------------------------------------------------------------

    async def _begin(self, process: Process) -> None:
        """Start a worker and give it all statements; it is ready then."""
        self._flying[process] = {}
        self._processes.add(process)
        try:
            await process.start(self._options)
            kept = [(tenant, about) for (tenant, _), about in self._statements.items()]
            lots = [kept[at : at + BULK] for at in range(0, len(kept), BULK)]
            asked = [process.ask("subscribe", lot) for lot in lots]
            for said, _ in await asyncio.gather(*asked):
                for tenant, name, reason in said:
                    log.error("statement %r of tenant %r is refused: %s", name, tenant, reason)
                    self._statements.pop((tenant, name), None)
            process.stats = await process.tell("stats")
        except BaseException:
            process.kill()
            del self._flying[process]
            raise
        self._free[process] = DEPTH
        self._stirred.set()

    async def _keep(self, process: Process) -> None:
        """Replace a worker whenever it ends."""
        pause = FIRST_PAUSE
        while True:
            await process.gone.wait()
            self._free.pop(process, None)
            while self._flying.get(process):
                await asyncio.sleep(0)
            self._flying.pop(process, None)
            self._processes.discard(process)
            log.warning("worker %d ended; another takes its place", process.number)
            self._counts.restarts += 1
            await asyncio.sleep(pause)
            process = Process(process.number)
            try:
                await self._begin(process)
                pause = FIRST_PAUSE
            except (FMwareError, OSError) as error:
                said = "worker %d cannot be started: %s"
                log.error(said, process.number, error)  # noqa: TRY400 - it says what to do
                pause = min(pause * 2, LONGEST_PAUSE)
                await process.close(0.5)
                process.gone.set()

    async def _watch(self) -> None:
        """Ask the workers how they are, and end those that are stuck."""
        while True:
            await asyncio.sleep(BEAT)
            for process in list(self._free):
                if process.oldest > self._patience:
                    said = "worker %d has taken %.0f seconds for a batch; it is ended"
                    log.error(said, process.number, process.oldest)
                    process.kill()
                elif process.told:
                    self._await(self._ask_stats(process))

    async def _ask_stats(self, process: Process) -> None:
        process.told = False
        with suppress(WorkerFailed):  # Its last ones are as good.
            process.stats = await process.tell("stats")
        process.told = True

    async def _stir(self) -> None:
        """Wait a little, or until something has come back."""
        answers = list(self._answers)
        if answers:
            await asyncio.wait(answers, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0.01)

    # --- what it can tell -----------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """How things stand, for metrics and health: no older than a second, and nothing waits.

        `workers` are those that are ready; `operators` are added up over them, as are `filter` and
        `memory`, the bytes of their processes; `generation` is the oldest that is still in use.
        """
        stats = [process.stats for process in self._free if process.stats]
        return {
            "running": self._running,
            "workers": len(self._free),
            "workers_wanted": self._count,
            "pids": [process.pid for process in self._free],
            "queue": self._gate.inside,
            "queue_bytes": self._gate.bytes,
            "waiting": self._gate.waiting,
            "dedupe": len(self._window),
            "statements": len(self._statements),
            "generation": min((each["generation"] for each in stats), default=None),
            "memory": sum(each["memory"] for each in stats),
            "renewals": sum(each["renewals"] for each in stats),
            "filter": _sum(each["filter"] for each in stats),
            "operators": _operators(stats),
            "trouble": sorted({each["trouble"] for each in stats} - {""}),
            "counts": {
                "messages": self._counts.messages,
                "matched": self._counts.matched,
                "hits": self._counts.hits,
                "poison": self._counts.poison,
                "duplicates": self._counts.duplicates,
                "errors": self._counts.errors,
                "unmatched": self._counts.unmatched,
                "restarts": self._counts.restarts,
            },
            "seconds": dict(self._counts.seconds),
        }

    async def report(self) -> dict[str, Any]:
        """What the workers have learnt of the costs of operators, each for itself.

        A worker takes half a second for it. They are asked one after the other, so that the others
        go on, and no more often than every `REPORT_AGE` seconds, whoever looks.
        """
        self._check()
        async with self._reporting:
            now = asyncio.get_running_loop().time()
            if self._reported is None or now - self._reported[0] > REPORT_AGE:
                told = []
                for process in list(self._free):
                    with suppress(WorkerFailed):
                        told.append(await process.tell("report"))
                self._reported = (now, {"workers": told} if told else {})
            return self._reported[1]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _key(envelope: Envelope) -> Key:
    """What repeats are known by; whoever makes up endless ids must not fill the memory."""
    name = envelope.id
    if len(name) > LONGEST_ID:
        name = blake2b(name.encode(errors="surrogatepass"), digest_size=24).hexdigest()
    return envelope.tenant, name


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if value is not None}


def outcome_of(envelope: Envelope, told: list[Any], seconds: dict[str, float]) -> Outcome:
    hits, errors, poison, unmatched = told
    found = [
        Hit.of_line(name, envelope.id, tenant, statement, _line(line))
        for name, tenant, statement, line in hits
    ]
    return Outcome(envelope.id, found, errors, poison, unmatched, seconds)


def _line(told: object) -> bytes:
    """A line of a worker's, to be handed on as it is: it must be one."""
    if not isinstance(told, str) or "\n" in told:
        raise ValueError("not a line")
    return told.encode(errors="backslashreplace")


def _sum(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for table in tables:
        for key, value in table.items():
            total[key] = total.get(key, 0) + value
    return total


def _operators(stats: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    names = sorted({name for each in stats for name in each["operators"]})
    return {
        name: _sum(each["operators"][name] for each in stats if name in each["operators"])
        for name in names
    }
