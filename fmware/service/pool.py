"""The worker processes: which are ready, what each has, and what to do when one ends.

A worker that has nothing gets what is there; one that is at work gets another batch only if that is
full. A few messages wait a moment for a worker that is at work before they wake another. So
messages that come one by one become batches by themselves, and a batch costs far less than its
messages would alone. What a dead worker had not answered is given to others.

Where there are several tenants, none of them makes others wait for long:

- What waits stands in a line for each tenant; the one that has had least is next (see `lines`).
- A batch has as many messages as should take `SPAN` seconds. One that may take longer never goes to
  the last worker that is free of such.
- A message that takes more than a small part of its budget is *deferred*: to further workers, the
  `patient` ones, which have time and give way to all others that want a core. There go also the
  messages of tenants that are slow, and large ones (see `paces`).
- Changes of statements go out in slices (see `orders`).

While there is a doubt about the index, nothing is handed out; see `scrubber`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

from fmware.errors import FMwareError
from fmware.service.envelope import ALL, Outcome
from fmware.service.errors import EngineStopped, WorkerFailed
from fmware.service.found import BLAMED, DAMAGED, deferred_of, outcomes_of
from fmware.service.jobs import Job, Order
from fmware.service.lines import Lines
from fmware.service.orders import Orders
from fmware.service.paces import SLOW, Paces
from fmware.service.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from fmware.service.counts import Counts
    from fmware.service.errors import IndexDamaged
    from fmware.service.gate import Gate
    from fmware.service.jobs import Call, Key
    from fmware.service.scrubber import Scrubber

    Read = tuple[list[Outcome], dict[str, float]]

__all__ = ["BULK", "Pool"]

DEPTH: Final = 3
"""Batches that a worker has before it: one to work on, the others so that it need not wait."""
LEAST: Final = 8
"""Messages that are not parted among workers: a batch costs as much as some messages more."""
LINGER: Final = 0.002
"""Seconds that fewer messages than these wait for a worker that is at work: a batch of a few takes
about as long."""
SPAN: Final = 0.01
"""Seconds that a batch should take at most, where there are several tenants: others wait for it."""
BULK: Final = 200
"""Statements that a worker which starts is told at once."""
PATIENT: Final = 4
"""One more worker for each of so many has time for messages that take long."""
NICE: Final = 5
"""By this they give way: they get a quarter of a core that another process wants as well."""
LARGE: Final = 1 << 20
"""Bytes of an answer that is read on a thread."""
BEAT: Final = 1.0
"""Seconds between two looks at the workers."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds before a dead worker is replaced; doubled while it dies before it was ready."""

log = logging.getLogger("fmware.service")


class Pool:
    """Worker processes, and what waits for them.

    - `workers`: how many; `batch`: the most messages that one gets at once.
    - `patience`: seconds that one may take for a batch before it is taken for stuck, and ended.
    - `tries`: workers that a message may bring down before it is poison.
    - `fair`: there are several tenants, of which none may make others wait.
    - `options`: what workers begin with.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        workers: int,
        batch: int,
        patience: float,
        tries: int,
        gate: Gate,
        counts: Counts,
        lap: Callable[[Mapping[str, float]], None],
        scrubber: Scrubber,
        fair: bool = False,
    ) -> None:
        self.count = workers
        self._fair = fair
        self._options = options
        self._batch = batch
        self._patience = patience
        self._tries = tries
        self._gate = gate
        self._counts = counts
        self._lap = lap
        self._scrubber = scrubber
        self._held = False
        self._refusal: IndexDamaged | None = None
        self._lines = Lines(fair=fair)
        self._late = Lines(fair=fair)
        """Messages for the workers that have time."""
        self._orders = Orders(self._lines, self._stir)
        self._paces = Paces()
        self._long: dict[Process, int] = {}
        """Batches that a worker has which may take long."""
        self._ready: set[Process] = set()
        self._processes: set[Process] = set()
        self._flying: dict[Process, dict[int, list[Job]]] = {}
        self._stirred = False
        self._lingering: asyncio.TimerHandle | None = None
        self._lingered = False
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def statements(self) -> dict[Key, dict[str, Any]]:
        """Those of all workers, by tenant and name."""
        return self._orders.statements

    @property
    def ready(self) -> list[Process]:
        """The workers that are ready, without those that have time."""
        return sorted(self._quick(self._ready), key=lambda process: process.number)

    @property
    def waiting(self) -> bool:
        """Whether anything is still to be handed out."""
        return bool(self._lines or self._late)

    def _quick(self, processes: Iterable[Process]) -> list[Process]:
        """Of these workers, those that serve all tenants."""
        return [process for process in processes if process.number < self.count]

    def _patient(self, processes: Iterable[Process]) -> list[Process]:
        return [process for process in processes if process.number >= self.count]

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait for all of them; a `WorkerFailed` says what is wrong."""
        more = -(-self.count // PATIENT) if self._fair else 0
        first = [Process(number) for number in range(self.count + more)]
        begun = [asyncio.create_task(self._begin(process)) for process in first]
        try:
            await asyncio.gather(*begun)
        except BaseException:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
            await asyncio.gather(*(process.close(0.5) for process in first))
            for kept in (self._processes, self._ready, self._flying):
                kept.clear()
            raise
        self._tasks = [
            asyncio.create_task(self._watch(), name="watch"),
            *(asyncio.create_task(self._keep(process), name="keep") for process in first),
        ]
        self._stir()

    async def stop(self, *, kill: bool) -> None:
        """End the workers, at once or when they are done; what was not handed out has failed."""
        tasks, self._tasks = self._tasks, []  # Without them nothing is handed out.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for process in self._processes if kill else ():
            process.kill()
        await asyncio.gather(*(process.close() for process in self._processes))
        await asyncio.gather(*self._answers, return_exceptions=True)
        await self._orders.settle()
        error = EngineStopped("the engine was stopped before this was done")
        for each in chain(self._lines.clear(), self._late.clear()):
            each.fail(error)

    def put(self, jobs: Iterable[Job | Order]) -> None:
        """Hand these out when it is their turn."""
        for each in jobs:
            self._lines.put(each)
        self._stir()

    def withdraw(self, call: Call) -> None:
        """Have no worker begin with what is left of a call."""
        removed = [
            lines.remove(lambda job: job.call is call) for lines in (self._lines, self._late)
        ]
        if any(removed):
            self._stir()

    # --- while the index is in doubt ------------------------------------------------------------

    def hold(self) -> None:
        """Hand out no messages, and use no answer to those that were handed out."""
        self._held = True

    def refuse(self, error: IndexDamaged) -> None:
        """Fail the messages that wait and those that come."""
        self._held = True
        self._refusal = error
        self._stir()

    def go_on(self) -> None:
        """Replace all workers: they may have read what was there for a moment. Hand out again."""
        self._held = False
        self._refusal = None
        for process in [*self._ready]:
            self._ready.discard(process)
            process.blamed = True  # It ends because it is told to.
            process.kill()
        self._stir()

    async def stirred(self) -> None:
        """Wait a little."""
        await asyncio.sleep(0.01)

    # --- to the workers -------------------------------------------------------------------------

    def _stir(self) -> None:
        """Hand out what is pending, soon: what comes in the same turn goes out together."""
        if not self._stirred:
            self._stirred = True
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Give what waits to the workers that have room."""
        self._stirred = False
        if not self._tasks:
            return
        awaited = self._quick(self._ready) or self._quick(self._flying)
        others = [process for process in self._flying if process not in awaited]
        self._orders.hand_out(awaited, others)
        if self._refusal is not None:
            self._fail_all(self._refusal)
        if not self._held:
            self._sort_out()
            self._hand_out_late()
            self._hand_out_jobs()

    def _fail_all(self, error: Exception) -> None:
        for lines in (self._lines, self._late):
            for tenant in lines.tenants():
                while isinstance(head := lines.head(tenant), Job):
                    lines.take(tenant)
                    head.fail(error)

    def _sort_out(self) -> None:
        """Have messages wait for the workers that have time, if they are likely to take long."""
        for tenant in self._lines.tenants() if self._fair else ():
            while isinstance(head := self._lines.head(tenant), Job) and self._is_slow(head):
                self._lines.take(tenant)
                self._late.put(head)

    def _is_slow(self, job: Job) -> bool:
        if job.tenant == ALL:
            return False
        size = len(job.envelope.body)
        return job.late or job.tenant in self._paces or self._paces.at_least(size) > SLOW

    def _hand_out_late(self) -> None:
        """Give workers that have time one message each, tenant by tenant."""
        idle = [each for each in self._patient(self._ready) if not self._flying[each]]
        while idle and self._late:
            self._send(idle.pop(), [self._take_job(self._late, self._late.tenants()[0])])

    def _take_job(self, lines: Lines, tenant: str) -> Job:
        job = lines.take(tenant)
        assert isinstance(job, Job)
        return job

    def _hand_out_jobs(self) -> None:
        while self._lines.jobs:
            flying = self._flying
            process = min(
                self._quick(self._ready),
                key=lambda each: (self._long.get(each, 0), len(flying[each])),
                default=None,
            )
            if process is None or not self._has_room(process) or self._linger():
                return
            jobs = self._next_batch()
            if not jobs:
                return
            self._send(process, jobs)

    def _has_room(self, process: Process) -> bool:
        """Whether a worker is to get what is there now."""
        has = len(self._flying[process])
        return not has or (has < DEPTH and self._lines.jobs >= self._batch)

    def _linger(self) -> bool:
        """Whether to wait a moment for a worker that is at work, and for more messages."""
        few = self._lines.jobs < LEAST
        busy = any(self._flying[process] for process in self._quick(self._ready))
        if few and busy and not self._lingered:
            if self._lingering is None:
                loop = asyncio.get_running_loop()
                self._lingering = loop.call_later(LINGER, self._linger_no_more)
            return True
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        return False

    def _linger_no_more(self) -> None:
        self._lingering = None
        self._lingered = True
        self._hand_out()
        self._lingered = False

    def _next_batch(self) -> list[Job]:
        """What a worker gets: its share, or a full batch, or what should take `SPAN` seconds."""
        idle = sum(not self._flying[process] for process in self._quick(self._ready))
        share = -(-self._lines.jobs // idle) if idle else self._batch
        most = min(self._batch, max(share, LEAST))
        jobs: list[Job] = []
        left = SPAN
        for tenant in self._lines.tenants():
            while len(jobs) < most and isinstance(head := self._lines.head(tenant), Job):
                seconds = self._expected(head)
                if jobs and (head.alone or seconds > left):
                    return jobs
                if seconds > SPAN and not self._may_take_long():
                    break
                jobs.append(self._take_job(self._lines, tenant))
                left -= seconds
                if head.alone:
                    return jobs
        return jobs

    def _expected(self, job: Job) -> float:
        """Seconds that a message should take; where there is one tenant, that does not matter."""
        return self._paces.expected(job.tenant, len(job.envelope.body)) if self._fair else 0.0

    def _may_take_long(self) -> bool:
        """Whether another worker is there that has nothing which may take long."""
        quick = self._quick(self._ready)
        free = sum(not self._long.get(process) for process in quick)
        return free > 1 or len(quick) == 1

    def _send(self, process: Process, jobs: list[Job]) -> None:
        envelopes = [each.envelope for each in jobs]
        told = [
            [each.tenant for each in envelopes],
            [each.id for each in envelopes],
            [each.time for each in envelopes],
        ]
        self._flying[process][id(jobs)] = jobs
        long = sum(map(self._expected, jobs)) > SPAN
        self._long[process] = self._long.get(process, 0) + long

        def answered(future: asyncio.Future[Any]) -> None:
            if process in self._long:
                self._long[process] -= long
            self._answered(process, jobs, future)

        future = process.ask("match", told, [each.body for each in envelopes])
        future.add_done_callback(answered)

    def _answered(self, process: Process, jobs: list[Job], future: asyncio.Future[Any]) -> None:
        """Take what a worker said; if it is much, it is read on a thread."""
        envelopes = [job.envelope for job in jobs]
        if future.exception() is None and future.result()[2] > LARGE:
            told, text, _ = future.result()
            reading = asyncio.to_thread(outcomes_of, envelopes, told, text)
            self._await(self._take_later(process, jobs, future, reading))
        else:
            self._take(process, jobs, future, lambda: outcomes_of(envelopes, *future.result()[:2]))

    async def _take_later(
        self,
        process: Process,
        jobs: list[Job],
        future: asyncio.Future[Any],
        reading: Coroutine[Any, Any, Read],
    ) -> None:
        read = asyncio.ensure_future(reading)
        await asyncio.wait([read])
        self._take(process, jobs, future, read.result)

    def _take(
        self,
        process: Process,
        jobs: list[Job],
        future: asyncio.Future[Any],
        read: Callable[[], Read],
    ) -> None:
        del self._flying[process][id(jobs)]
        try:
            told, _, size = future.result()
            if isinstance(told, dict) and DAMAGED in told:
                reason = str(told[DAMAGED])
                self._scrubber.doubt(reason)
                self._again(jobs, blamed=bool(told[BLAMED]), reason=reason)
                return
            if self._held:
                self._again(jobs, blamed=False)
                return
            found, seconds = read()
            deferred = deferred_of(told, len(jobs))
            self._charge(jobs, told[4], deferred)
        except (WorkerFailed, TypeError, ValueError, IndexError, KeyError):
            process.kill()  # Unless it is gone, it talks nonsense.
            self._again(jobs, blamed=not process.blamed)
            process.blamed = True  # Those behind had not been looked at yet.
        else:
            self._lap(seconds)
            self._weigh(jobs, size)
            for place, (job, outcome) in enumerate(zip(jobs, found, strict=True)):
                if place in deferred:
                    self._defer(job)
                else:
                    self._finish(job, outcome)
        self._stir()

    def _charge(
        self, jobs: list[Job], costs: Mapping[str, float], deferred: frozenset[int]
    ) -> None:
        """Note what messages have cost, tenant by tenant."""
        for tenant, seconds in costs.items():
            mine = [place for place, job in enumerate(jobs) if job.tenant == tenant]
            again = len(deferred.intersection(mine))
            self._paces.took(tenant, len(mine), float(seconds), deferred=again)
            for lines in (self._lines, self._late):
                lines.charge(tenant, float(seconds))

    def _defer(self, job: Job) -> None:
        """Have a worker answer that has time."""
        if not job.call.future.done():
            job.late = True
            self._late.put(job)

    def _finish(self, job: Job, outcome: Outcome) -> None:
        """Say what became of a message; before it is called bad, see whether the index is."""
        if outcome.fault:
            self._await(self._judge(job, outcome))
        else:
            job.finish(outcome)

    async def _judge(self, job: Job, outcome: Outcome) -> None:
        if await self._scrubber.sound():
            job.finish(outcome)
        else:
            job.fail(self._refusal or EngineStopped("the engine was stopped before this was done"))

    def _weigh(self, jobs: list[Job], size: int) -> None:
        """What was found takes room, too, until it is handed over."""
        share = size // len(jobs)
        waited = [job.call for job in jobs if not job.call.future.done()]
        for call in waited:
            call.size += share
            self._gate.grow(share, call.envelopes[0].tenant)

    def _again(self, jobs: list[Job], *, blamed: bool, reason: str = "") -> None:
        """Give others what a worker did not answer; one by one what may have been the reason."""
        for job in reversed(jobs):
            if job.call.future.done():
                continue
            job.deaths += blamed
            job.alone |= blamed
            if blamed and len(jobs) == 1 and job.deaths >= self._tries:
                said = reason or f"{job.deaths} workers ended while they matched it"
                self._finish(job, Outcome(job.envelope.id, poison=said, fault=True))
            else:
                (self._late if job.late else self._lines).put(job, first=True)
        self._stir()

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
            own = {"quick": process.number < self.count} if self._fair else {}
            await process.start({**self._options, **own})
            await self._teach(process)
            if process.number >= self.count:
                await process.tell("stand_back", NICE)
            process.stats = await process.tell("stats")
        except BaseException:
            process.kill()
            del self._flying[process]
            raise
        self._ready.add(process)
        self._stir()

    async def _teach(self, process: Process) -> None:
        """Give a worker all statements.

        One that takes the place of another must take them all: what it matched without one of them
        would be acknowledged, and nobody would know what it has missed.
        """
        keys = list(self.statements)
        for begin in count(0, BULK):
            # Each lot as it is now: what is changed meanwhile goes to this worker, too, behind it.
            some = keys[begin : begin + BULK]
            if not some:
                return
            lot = {key: self.statements[key] for key in some if key in self.statements}
            told = [(tenant, about) for (tenant, _), about in lot.items()]
            said, _ = await process.tell("subscribe", told)
            refused = {(one[0], one[1]): one[2] for one in said}
            changed = [key for key in refused if self.statements.get(key) is not lot[key]]
            keys += changed
            self._check_taught({key: refused[key] for key in refused if key not in changed})

    def _check_taught(self, refused: Mapping[Key, str]) -> None:
        for (tenant, name), reason in refused.items():
            if self._tasks:
                said = f"it refuses statement {name!r} of tenant {tenant!r}, which others have"
                raise WorkerFailed(f"{said}: {reason}")
            log.error("statement %r of tenant %r is refused: %s", name, tenant, reason)
            self.statements.pop((tenant, name), None)

    async def _keep(self, process: Process) -> None:
        """Replace a worker whenever it ends."""
        pause = FIRST_PAUSE
        while True:
            await process.gone.wait()
            self._ready.discard(process)
            while self._flying.get(process):
                await asyncio.sleep(0)
            self._flying.pop(process, None)
            self._long.pop(process, None)
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
                if self._scrubber.damage is None:
                    await self._scrubber.sound()  # If it is not, that may be why.
                process.gone.set()

    async def _watch(self) -> None:
        """Ask the workers how they are, and end those that are stuck."""
        while True:
            await asyncio.sleep(BEAT)
            for process in [*self._ready]:
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
