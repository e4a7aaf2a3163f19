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
- **Tenants do not wait for each other** (`own`): each has its share of the queue and of the
  workers (see `gate` and `pool`).
- **Our fault is no answer.** A message that could not be matched because memory or the index
  failed is not handed over: its outcome says so, and it may come again.
- **Once, within the window.** Of messages with the same tenant and id, one is matched and handed
  over. The others wait for it and come back as duplicates; if it failed, the next one has its turn.
  The window is in memory: after a crash, repeats are told by the ids of hits (see `envelope`).
- **Nothing from a damaged index.** If its files are not what was written, `match` raises
  `IndexDamaged` until they are again; no message is called bad because of it (see `scrubber`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from fmware.service.counts import Counts, added
from fmware.service.dedupe import Window
from fmware.service.entries import statement_of
from fmware.service.envelope import Envelope, Outcome
from fmware.service.errors import EngineStopped, StatementRefused, WorkerFailed
from fmware.service.gate import Gate
from fmware.service.jobs import Call, Job, Key, Order, Refused
from fmware.service.pool import Pool
from fmware.service.scrubber import Scrubber

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Give = Callable[[Sequence[Envelope], Sequence[Outcome]], Awaitable[None]]

__all__ = ["Engine", "Refused"]

LONGEST_ID: Final = 100
LOT: Final = 200
"""Statements that are looked at before others have their turn."""
SCRUB: Final = 4 << 20
"""Bytes of the index that are verified a second: one percent of a core, a few of a slow disk."""
REPORT_AGE: Final = 15.0
"""Seconds for which a report is new enough."""


class Engine:
    """Matches envelopes in worker processes; see above for what it promises.

    - `workers`: processes; 0 is one a core. `batch`: the most messages that one gets at once.
    - `patience`: seconds that a worker may take for one batch before it is taken for stuck, and
      ended. `tries`: workers that a message may bring down before it is poison.
    - `scrub`: bytes of the index that are verified a second, in the background; 0 is none.
    - `own`: there are several tenants, and messages of each; `common`: some are for all of them.
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
        scrub: int = SCRUB,
        own: bool = False,
        common: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._counts = Counts()
        self._gate = Gate(queue, queue_bytes, fair=own)
        self._window: Window[Key] = Window(dedupe_seconds, dedupe_messages)
        self._scrubber = Scrubber(index, scrub)
        self._pool = Pool(
            {"index": str(index), "own": own, "common": common, **(options or {})},
            workers=workers or cores(),
            batch=batch,
            patience=patience,
            tries=tries,
            gate=self._gate,
            counts=self._counts,
            lap=self._lapped,
            scrubber=self._scrubber,
            fair=own,
        )
        self._reporting = asyncio.Lock()
        self._reported: tuple[float, dict[str, Any]] | None = None
        self._calls = 0
        self._started = False
        self._running = False
        self._stopping = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait for all of them; a `WorkerFailed` says what is wrong."""
        await self._pool.start()
        self._scrubber.start(self._pool)
        self._running = self._started = True

    async def stop(self, drain: bool = True) -> None:
        """Take no more calls; finish those there are, or with `drain=False` fail them; then end.

        Where finishing takes too long it may be cancelled, and called again without `drain`.
        """
        if not self._started:
            return
        self._running = False
        if drain:
            while self._calls or self._pool.waiting:
                await self._pool.stirred()
        self._stopping = True
        await self._scrubber.stop()
        await self._pool.stop(kill=not drain)
        self._started = False

    async def __aenter__(self) -> Engine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _check(self) -> None:
        if not self._running:
            raise EngineStopped("the engine does not run: start it, or it was stopped")

    async def whole(self) -> None:
        """Wait until the index is not known to be damaged."""
        await self._scrubber.back()

    # --- messages -------------------------------------------------------------------------------

    async def match(self, envelopes: Sequence[Envelope], give: Give | None = None) -> list[Outcome]:
        """What is to be said of each envelope, in their order; waits where the queue is full.

        `give` hands over what was found. Messages are done, and repeats of them duplicates, when it
        has returned; if it raises, so does this, and they may come again. It is called with those
        that are not duplicates and have not `failed`, once or more often. Without it, to return is
        to hand over. What was our `fault` may come again, too, and is then matched again.
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
        """No more at once than should come through the gate, and of one tenant."""
        most, most_bytes = self._gate.share
        chunk: list[Envelope] = []
        size = 0
        for envelope in envelopes:
            size += len(envelope.body)
            full = len(chunk) >= most or size > most_bytes
            if chunk and (full or envelope.tenant != chunk[0].tenant):
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
            mine = {key: left[key] for key in self._window.claim(left)}
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
            tenant = envelopes[0].tenant
            await self._gate.enter(len(envelopes), size, tenant)
            try:
                outcomes = await self._answer(call)
                if give is not None:
                    await _handed(give, envelopes, outcomes)
            finally:
                self._gate.leave(len(envelopes), size + call.size, tenant)
        except BaseException:
            self._window.release(mine)
            raise
        faults = {key for key, outcome in zip(mine, outcomes, strict=True) if outcome.fault}
        self._window.release(faults)
        self._window.done([key for key in mine if key not in faults])
        for outcome in outcomes:
            self._counts.add(outcome)
        return outcomes

    async def _answer(self, call: Call) -> list[Outcome]:
        if self._stopping:
            raise EngineStopped("the engine was stopped before this was done")
        if self._scrubber.damage is not None:
            raise self._scrubber.damage
        self._pool.put(Job(call, place) for place in range(len(call.envelopes)))
        try:
            await call.future
        except BaseException:
            # Nobody waits for it any more, and it has left the gate: it must not wait either.
            self._pool.withdraw(call)
            raise
        return [outcome for outcome in call.outcomes if outcome is not None]

    def _lapped(self, seconds: Mapping[str, float]) -> None:
        """A worker has taken so long for a batch, by stage."""
        self._counts.lap(seconds)

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
        while lot := [(tenant, _plain(about)) for tenant, about in islice(source, LOT)]:
            nameless = [tenant for tenant, about in lot if not about.get("name")]
            if nameless:
                raise StatementRefused(f"a statement of tenant {nameless[0]!r} has no name")
            if self._running:
                for tenant, own in groupby(lot, itemgetter(0)):
                    waited.append(self._order("subscribe", tenant, [*own]))
            else:
                self._pool.statements.update({(tenant, each["name"]): each for tenant, each in lot})
            await asyncio.sleep(0)
        for future in waited:
            refused += await future
        return refused

    async def unsubscribe(self, tenant: str, name: str) -> None:
        """Take a statement out of all workers."""
        if (tenant, name) not in self._pool.statements:
            raise StatementRefused(f"tenant {tenant!r} has no statement {name!r}")
        if self._running:
            await self._order("unsubscribe", tenant, [(tenant, name)])
        else:
            del self._pool.statements[tenant, name]

    def statements(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Those that are registered, of one tenant or of all."""
        kept = self._pool.statements.items()
        return [about for (owner, _), about in kept if tenant in (None, owner)]

    def _order(self, kind: str, tenant: str, about: list[Any]) -> asyncio.Future[list[Refused]]:
        self._check()
        future: asyncio.Future[list[Refused]] = asyncio.get_running_loop().create_future()
        self._pool.put([Order(kind, tenant, about, future)])
        return future

    # --- what it can tell -----------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """How things stand, for metrics and health: no older than a second, and nothing waits.

        `workers` are those that are ready; `operators` are added up over them, as are `filter` and
        `memory`, the bytes of their processes; `generation` is the oldest that is still in use.
        """
        ready = self._pool.ready
        return {
            "running": self._running,
            "index": self._index_state(),
            "workers": len(ready),
            "workers_wanted": self._pool.count,
            "pids": [process.pid for process in ready],
            "queue": self._gate.inside,
            "queue_bytes": self._gate.bytes,
            "waiting": self._gate.waiting,
            "dedupe": len(self._window),
            "statements": len(self._pool.statements),
            **added([process.stats for process in ready if process.stats]),
            **self._counts.snapshot(),
        }

    def _index_state(self) -> dict[str, Any]:
        """Whether the index is what was written, and how much of it was verified."""
        scrubber = self._scrubber
        return {
            "state": scrubber.state,
            "reason": scrubber.reason,
            "checks": scrubber.checks,
            "damages": scrubber.damages,
            "scrubbed_bytes": scrubber.read,
            "scrub_passes": scrubber.passes,
        }

    async def report(self) -> dict[str, Any]:
        """What the workers have learnt of the costs of operators, each for itself.

        A worker spends half a second of processor time on it, beside its messages. They are asked
        one after the other, and no more often than every `REPORT_AGE` seconds, whoever looks.
        """
        self._check()
        async with self._reporting:
            now = asyncio.get_running_loop().time()
            if self._reported is None or now - self._reported[0] > REPORT_AGE:
                told = []
                for process in self._pool.ready:
                    with suppress(WorkerFailed):
                        told += await process.tell("report")
                self._reported = (now, {"workers": told} if told else {})
            return self._reported[1]


async def _handed(give: Give, envelopes: list[Envelope], outcomes: list[Outcome]) -> None:
    """Hand over what has an answer."""
    if any(outcome.failed for outcome in outcomes):
        pairs = zip(envelopes, outcomes, strict=True)
        kept = [(envelope, outcome) for envelope, outcome in pairs if not outcome.failed]
        if not kept:
            return
        envelopes, outcomes = [each for each, _ in kept], [each for _, each in kept]
    await give(envelopes, outcomes)


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
