"""The service without its HTTP side: what the routes, the flows and the page ask for.

- `publish` matches messages and hands what was found to all sinks before it answers.
- `register` and `withdraw` change statements: in all workers, then on disk.
- `take` keeps messages for later; a task of its own matches them.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

from fmware.service.changes import Changes
from fmware.service.entries import entries_of
from fmware.service.envelope import DEFAULT, Envelope, now, rfc3339
from fmware.service.errors import ServiceError
from fmware.service.events import Readers
from fmware.service.logging import logger
from fmware.service.patience import Patience
from fmware.service.problems import Problem
from fmware.service.receipts import Receipts
from fmware.service.reports import costs_of, seen_by
from fmware.service.sandbox import Sandbox
from fmware.service.screening import wrong
from fmware.service.shelf import Held
from fmware.service.store import Store, size_of
from fmware.statements import read_statements, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from fmware.service.engine import Engine
    from fmware.service.envelope import Outcome
    from fmware.service.flow import Flow, Outlet
    from fmware.service.log import MatchLog
    from fmware.service.metrics import Metrics, Reading
    from fmware.service.settings import Settings
    from fmware.service.tenants import Account, Tenants
    from fmware.service.webhooks import Webhooks

__all__ = ["PART", "Refusal", "Service", "settle"]

TRIED: Final = 10.0
"""Seconds that a statement may be tried out."""
SEEN: Final = ("running", "workers", "workers_wanted", "queue", "generation", "trouble")
"""What one of several tenants sees of the engine, as anybody does at `/readyz`."""
LATER: Final = 4
"""Receipts that are worked on at the same time."""
TOLD: Final = 60.0
"""Seconds for which `/readyz` tells of a write that failed."""
PART: Final = 1 << 20
"""Bytes of an answer that are made at once."""
LOT: Final = 500
"""Statements that are parsed at once, between two looks at everything else."""

Refusal = tuple[str, Problem]
"""A statement that was refused: its name and why."""

log = logger("service")


class Service:
    """All parts together."""

    def __init__(
        self,
        settings: Settings,
        *,
        engine: Engine,
        tenants: Tenants,
        matches: MatchLog,
        outlet: Outlet,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.tenants = tenants
        self.log = matches
        self.outlet = outlet
        self.trial = Sandbox(settings, what="the try-out", seconds=TRIED)
        seconds = settings.server.request_seconds
        self.reading = Sandbox(settings, what="reading the body", seconds=seconds)
        self.metrics = metrics
        self.readers = Readers(matches, self.metrics, settings.server.streams)
        self.webhooks: Webhooks | None = None
        self.flows: list[Flow] = []
        self.fixed: dict[tuple[str, str], dict[str, Any]] = {}
        self.ready = False
        self.patience = Patience(settings.server.stop_seconds)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._later: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._changes = Changes()
        self._reported: dict[str, Any] = {}
        self._unkept = (0.0, "")
        self.metrics.ask(self._readings)

    # --- life -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what is on disk; the engine begins with all statements. Then start it."""
        state = self.settings.state
        self.store = await asyncio.to_thread(Store, state / "statements.db")
        self.receipts = await asyncio.to_thread(Receipts, state / "receipts.db")
        self.fixed = await asyncio.to_thread(_fixed, self.settings)
        for tenant in self.store.tenants():
            kept = await asyncio.to_thread(self.store.all, tenant)
            await self.engine.subscribe_all((tenant, each) for each in kept)
        await self.engine.subscribe_all((tenant, each) for (tenant, _), each in self.fixed.items())

    def begin(self) -> None:
        """Take up what was left to do."""
        for receipt in self.receipts.open():
            self._later.put_nowait(receipt)
        self._tasks = [asyncio.create_task(self._work()) for _ in range(LATER)]
        self.ready = True

    async def end(self) -> None:
        """Stop; what was taken and not matched is taken up at the next start."""
        self.ready = False
        await self._changes.end(self.patience.left)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Let go of processes and files."""
        await self.trial.close()
        await self.reading.close()
        await asyncio.to_thread(self.store.close)
        await asyncio.to_thread(self.receipts.close)

    # --- messages ---------------------------------------------------------------------------

    async def publish(
        self,
        tenant: str,
        messages: Sequence[tuple[str, bytes]],
        source: str = "http",
        taken: str | None = None,
    ) -> list[Outcome]:
        """Match messages, taken in now or at a time; hits are with all sinks when it returns."""
        at = taken or now()
        envelopes = [Envelope(name, body, tenant, source, at) for name, body in messages]
        return await self.engine.match(envelopes, self.outlet.give)

    async def told(self, outcomes: Sequence[Outcome]) -> AsyncIterator[bytes]:
        """The answer to a batch, in parts; between large ones everything else has its turn."""
        held = [b'{"messages":[']
        size = 0
        for place, outcome in enumerate(outcomes):
            held.append(b"," + self.told_one(outcome) if place else self.told_one(outcome))
            size += len(held[-1])
            if size > PART:
                yield b"".join(held) if len(held) > 1 else held[0]
                await asyncio.sleep(0)
                held, size = [], 0
        yield b'%b],"position":%d}' % (b"".join(held), self.log.last)

    def told_one(self, outcome: Outcome) -> bytes:
        """What is said of one message; its hits are as they are in the log."""
        name, duplicate = quoted(outcome.envelope_id), "true" if outcome.duplicate else "false"
        errors = ",".join(map(quoted, outcome.errors)) if outcome.errors else ""
        head = f'{{"message":{name},"unmatched":{outcome.unmatched},"duplicate":{duplicate}'
        head += f',"errors":[{errors}]'
        if outcome.undecided:
            head += f',"undecided":[{",".join(map(quoted, outcome.undecided))}]'
        if outcome.poison is not None:
            head += f',"rejected":{quoted(outcome.poison)}'
        lines = self.log.told(outcome.hits) if outcome.hits else b""
        return b'%b,"matches":[%b]}' % (head.encode(errors="backslashreplace"), lines)

    async def take(self, tenant: str, messages: Sequence[tuple[str, bytes]]) -> str:
        """Keep messages on disk to match them later; the id to ask with."""
        name = await asyncio.to_thread(self.receipts.take, tenant, messages)
        self._later.put_nowait((name, tenant))
        return name

    async def receipt(self, tenant: str, name: str) -> tuple[float, int, bytes | None] | None:
        """When messages were taken, how many, and what was found; None if there is no such."""
        return await asyncio.to_thread(self.receipts.find, tenant, name)

    async def _work(self) -> None:
        while True:
            name, tenant = await self._later.get()
            try:
                messages = await asyncio.to_thread(self.receipts.messages, name)
                found = await self.receipt(tenant, name)
                at = None if found is None else rfc3339(datetime.fromtimestamp(found[0], UTC))
                outcomes = await self._published(tenant, messages, at)
                told = [part async for part in self.told(outcomes)]
                await asyncio.to_thread(self.receipts.answer, name, b"".join(told))
            except Exception as error:
                # It is on disk: it has its turn again, behind the others. Whatever it was, those
                # that come after it must not wait for ever.
                log.warning("receipt put off", receipt=name, tenant=tenant, reason=str(error))
                await asyncio.sleep(1.0)
                self._later.put_nowait((name, tenant))

    async def _published(
        self, tenant: str, messages: Sequence[tuple[str, bytes]], taken: str | None
    ) -> list[Outcome]:
        """Match messages of a receipt; those that fail by our fault again, until they do not."""
        outcomes = await self.publish(tenant, messages, "receipt", taken)
        while left := [place for place, each in enumerate(outcomes) if each.failed]:
            await asyncio.sleep(1.0)
            again = [messages[place] for place in left]
            for place, outcome in zip(
                left, await self.publish(tenant, again, "receipt", taken), strict=True
            ):
                outcomes[place] = outcome
        return outcomes

    # --- statements -------------------------------------------------------------------------

    async def register(
        self,
        account: Account,
        statements: Sequence[dict[str, Any]],
        *,
        replace: bool,
        read: bool = False,
    ) -> tuple[list[str], list[Refusal]]:
        """Register statements; the names of the good ones, and what was wrong with the others.

        `read`: each was parsed already, and is good.
        """
        registering = self._register(account, statements, replace=replace, read=read)
        return await self._changes.whole(registering)

    async def _register(
        self, account: Account, statements: Sequence[dict[str, Any]], *, replace: bool, read: bool
    ) -> tuple[list[str], list[Refusal]]:
        async with self._locks[account.name]:
            good, refused = await self._checked(account, statements, replace=replace, read=read)
            told = await self.engine.subscribe_all((account.name, each) for each in good)
            bad = {name: reason for _, name, reason in told}
            refused += [
                (name, Problem(422, "statement-refused", reason)) for name, reason in bad.items()
            ]
            kept = [each for each in good if each["name"] not in bad]
            try:
                await asyncio.to_thread(self.store.put, account.name, kept)
            except sqlite3.Error:
                await self._undo(account.name, [each["name"] for each in kept])
                raise
        if len(kept) >= LOT:
            settle()
        names = [each["name"] for each in kept]
        log.info(
            "statements registered", tenant=account.name, statements=names[:10], count=len(names)
        )
        return names, refused

    async def _undo(self, tenant: str, names: Sequence[str]) -> None:
        """Have the workers do without statements that could not be kept, as the disk does."""
        for begin in range(0, len(names), LOT):
            lot = names[begin : begin + LOT]
            before = await asyncio.to_thread(self.store.some, tenant, lot)
            there = {each["name"] for each in before}
            await self.engine.subscribe_all((tenant, each) for each in before)
            for name in lot:
                if name not in there:
                    await self.engine.unsubscribe(tenant, name)

    async def _checked(
        self, account: Account, statements: Sequence[dict[str, Any]], *, replace: bool, read: bool
    ) -> tuple[list[dict[str, Any]], list[Refusal]]:
        good: dict[str, dict[str, Any]] = {}
        refused: list[Refusal] = []
        new = More()
        for begin in range(0, len(statements), LOT):
            lot = statements[begin : begin + LOT]
            found, sizes = await asyncio.to_thread(_wrong_and_sizes, lot, read=read)
            names = [each["name"] for each in lot]
            known = await asyncio.to_thread(self.store.known, account.name, names)
            for each, problem, size in zip(lot, found, sizes, strict=True):
                name = each["name"]
                before = new.sizes.get(name, known.get(name))
                problem = problem or self._unfit(
                    account, name, size, before=before, replace=replace, new=new
                )
                if problem is not None:
                    refused.append((name, problem))
                    continue
                new.add(name, size, before)
                good[name] = each
        return list(good.values()), refused

    def _unfit(
        self,
        account: Account,
        name: str,
        size: int,
        *,
        before: int | None,
        replace: bool,
        new: More,
    ) -> Problem | None:
        """Why a good statement cannot be registered all the same.

        `before`: the bytes of the one that is there; `new`: what comes with it.
        """
        if (account.name, name) in self.fixed:
            what = f"statement {name!r} is one of the configuration"
            return Problem(409, "statement-fixed", what, hint="change it there")
        if before is not None and not replace:
            what = f"there is a statement {name!r} already"
            return Problem(409, "statement-exists", what, hint="replace it with PUT")
        if before is None and self.store.count(account.name) + new.count >= account.statements:
            what = f"tenant {account.name} has all its {account.statements:,} statements"
            return Problem(429, "too-many-statements", what, hint="delete some first")
        used = self.store.size(account.name) + new.size
        more, most = size - (before or 0), account.statement_bytes
        if more > 0 and used + more > most:
            what = f"the statements of tenant {account.name} take {used:,} of {most:,} bytes"
            hint = f"this one needs {more:,} more: delete some first, or make them shorter"
            return Problem(429, "too-many-statement-bytes", what, hint=hint)
        return None

    async def withdraw(self, account: Account, name: str) -> None:
        """Take a statement out: on disk, then in all workers."""
        await self._changes.whole(self._withdraw(account, name))

    async def _withdraw(self, account: Account, name: str) -> None:
        async with self._locks[account.name]:
            if (account.name, name) in self.fixed:
                what = f"statement {name!r} is one of the configuration"
                raise Problem(409, "statement-fixed", what, hint="delete it there")
            if await asyncio.to_thread(self.store.get, account.name, name) is None:
                raise Problem(404, "no-statement", f"there is no statement {name!r}")
            await asyncio.to_thread(self.store.delete, account.name, [name])
            await self.engine.unsubscribe(account.name, name)
        self.metrics.forget(account.name, name)
        log.info("statement withdrawn", tenant=account.name, statement=name)

    async def statement(self, tenant: str, name: str) -> dict[str, Any]:
        """One statement."""
        fixed = self.fixed.get((tenant, name))
        found = fixed or await asyncio.to_thread(self.store.get, tenant, name)
        if found is None:
            raise Problem(404, "no-statement", f"there is no statement {name!r}")
        return found | {"fixed": fixed is not None}

    async def statements(self, tenant: str, after: str, limit: int) -> list[dict[str, Any]]:
        """Statements by name; those of the configuration are among them."""
        kept = await asyncio.to_thread(self.store.page, tenant, after, limit)
        fixed = [
            each | {"fixed": True}
            for (whose, name), each in self.fixed.items()
            if whose == tenant and name > after
        ]
        found = [each | {"fixed": False} for each in kept] + fixed
        return sorted(found, key=lambda each: str(each["name"]))[:limit]

    async def unknown(self, tenant: str, names: Sequence[str]) -> list[str]:
        """Those of some names that no statement of a tenant has."""
        there = await asyncio.to_thread(self.store.known, tenant, names)
        return [each for each in names if each not in there and (tenant, each) not in self.fixed]

    def count(self, tenant: str) -> int:
        """How many statements a tenant has."""
        return self.store.count(tenant) + sum(whose == tenant for whose, _ in self.fixed)

    # --- what goes wrong --------------------------------------------------------------------

    def unkept(self, error: sqlite3.Error) -> Problem:
        """The answer to a request that the disk has no room for, or fails."""
        what = f"what is to be kept cannot be written: {error}"
        self._unkept = (time.monotonic(), what)
        return Problem(503, "not-kept", what, headers={"Retry-After": "10"})

    def trouble(self) -> list[str]:
        """What went wrong here within the last minute."""
        at, what = self._unkept
        return [what] if what and time.monotonic() - at < TOLD else []

    # --- how it does ------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """How the engine does; what tells of statements only where all are one tenant's."""
        snapshot = self.engine.snapshot()
        del snapshot["pids"]
        if len(list(self.tenants)) == 1:
            return snapshot
        return {key: snapshot[key] for key in SEEN}

    def hooks(self, tenant: str) -> dict[str, Any]:
        """How the webhooks of a tenant do."""
        senders = self.webhooks.of(tenant) if self.webhooks is not None else []
        return {each.hook.name: each.snapshot() for each in senders}

    async def report(self, tenant: str) -> dict[str, Any]:
        """What was learnt of the costs of a tenant's statements."""
        self._reported = await self.engine.report()
        return self._seen_by(tenant)

    def costs(self, tenant: str) -> dict[str, dict[str, Any]]:
        """What the statements of a tenant cost, as the last report told: one is not free."""
        return costs_of(self._seen_by(tenant))

    def _seen_by(self, tenant: str) -> dict[str, Any]:
        return seen_by(tenant, self._reported, alone=len([*self.tenants]) == 1)

    # --- what is asked when somebody looks --------------------------------------------------

    def _readings(self) -> Iterable[Reading]:
        """Values for Prometheus that others have."""
        snapshot = self.engine.snapshot()
        none: dict[str, str] = {}
        for key in ("workers", "queue", "queue_bytes", "waiting", "dedupe", "generation", "apart"):
            yield f"fmware_engine_{key}", f"{key} of the engine", snapshot.get(key) or 0, none
        yield "fmware_engine_memory_bytes", "Memory of all workers.", snapshot["memory"], none
        index = snapshot["index"]
        damaged = int(index["state"] == "damaged")
        yield (
            "fmware_index_damaged",
            "1 if the index is damaged: nothing is matched.",
            damaged,
            none,
        )
        for key in ("checks", "damages", "scrubbed_bytes", "scrub_passes"):
            yield f"fmware_index_{key}_total", f"{key} of the index", index[key], none
        restarts, faults = (snapshot["counts"][key] for key in ("restarts", "faults"))
        yield "fmware_engine_restarts_total", "Workers that were replaced.", restarts, none
        said = "Messages without an answer by our fault: an error, no memory, workers that ended."
        yield "fmware_engine_faults_total", said, faults, none
        for key, value in snapshot["filter"].items():
            yield f"fmware_filter_{key}", f"{key} of the filters of all workers", value, none
        for name, counters in snapshot["operators"].items():
            for key, value in counters.items():
                if isinstance(value, int | float):
                    labels = {"operator": name}
                    yield f"fmware_operator_{key}", f"{key} of the operators", value, labels
        for account in self.tenants:
            labels = {"tenant": account.name}
            yield "fmware_statements", "Statements.", self.count(account.name), labels
            for what, left in account.left().items():
                yield "fmware_quota_left", "What may come now.", left, labels | {"quota": what}
        yield "fmware_log_first", "The first position of the log.", self.log.first, none
        yield "fmware_log_last", "The last position of the log.", self.log.last, none
        yield "fmware_log_bytes", "Bytes of the log.", self.log.size, none
        yield "fmware_log_repeated_total", "Hits logged before.", self.log.repeated, none
        letters = self.log.letters.shelf
        for tenant in sorted({*letters.held, *(account.name for account in self.tenants)}):
            labels = {"tenant": tenant}
            held = letters.held.get(tenant, Held())
            gone = letters.dropped[tenant]
            yield "fmware_letters", "Dead letters that are kept.", held.number, labels
            yield "fmware_letter_bytes", "Bytes of them.", held.size, labels
            yield "fmware_letters_dropped_total", "Dead letters kept no more.", gone, labels
        lags = self.readers.lags()
        yield "fmware_streams", "Readers that follow matches.", len(lags), none
        yield (
            "fmware_stream_lag",
            "Positions that the last reader is behind.",
            max(lags, default=0),
            none,
        )
        for flow in self.flows:
            labels = {"source": flow.source.name}
            for key, value in flow.snapshot().items():
                yield f"fmware_flow_{key}", f"{key} of the flows", value, labels
        for name, count in self.outlet.snapshot()["failures"].items():
            yield "fmware_sink_failures_total", "Failures of sinks.", count, {"sink": name}
        for name, stuck in self.outlet.stuck().items():
            labels = {"sink": name}
            yield "fmware_sink_stuck_seconds", "How long it has taken nothing.", stuck, labels
        for sender in self.webhooks.senders if self.webhooks is not None else ():
            labels = {"target": sender.hook.name, "tenant": sender.hook.tenant}
            state = sender.snapshot()
            for key in ("behind", "delivered", "requests", "failures", "dead", "dropped", "lost"):
                yield f"fmware_webhook_{key}", f"{key} of webhooks", state[key], labels
            dead = sender.kept_dead
            yield "fmware_webhook_dead_bytes", "Bytes that were given up.", dead.size, labels
        for what, sandbox in (("trial", self.trial), ("reading", self.reading)):
            said = "Try-outs and bodies that took too much, and were ended with their process."
            yield "fmware_sandbox_ended_total", said, sandbox.ended, {"sandbox": what}
        yield "fmware_receipts_waiting", "Messages that wait on disk.", self.receipts.waiting, none


def settle() -> None:
    """Have the collector look no more at what is there to stay.

    It would walk all statements, for a tenth of a second and in the middle of a request.
    """
    gc.collect()
    gc.freeze()


@dataclass(slots=True)
class More:
    """What a request brings: statements that are new, their bytes, and those of each by name."""

    count: int = 0
    size: int = 0
    sizes: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: int, before: int | None) -> None:
        """One more, in the place of one of so many bytes before it, if there was one."""
        self.count += before is None
        self.size += size - (before or 0)
        self.sizes[name] = size


def _wrong_and_sizes(
    statements: Sequence[dict[str, Any]], *, read: bool
) -> tuple[list[Problem | None], list[int]]:
    """What is wrong with each, nothing if they were `read` before; and the bytes of each."""
    found: list[Problem | None] = [None] * len(statements) if read else _wrong(statements)
    return found, [*map(size_of, statements)]


def _wrong(statements: Sequence[Mapping[str, Any]]) -> list[Problem | None]:
    """What is wrong with each."""
    return [wrong(each) for each in statements]


def _fixed(settings: Settings) -> dict[tuple[str, str], dict[str, Any]]:
    """The statements of the configuration; one that is not good stops the start."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for each in settings.statements:
        each.statement()
        about = each.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
        found[each.tenant, each.name] = about
    for path in settings.statements_files:
        entries, _ = entries_of(path.read_bytes(), str(path))
        if bad := read_statements(path).bad:
            raise ServiceError(refusal(path, bad[0]))
        found |= {(DEFAULT, each["name"]): each for each in entries}
    return found
