"""The worker processes: which are ready, what each has, and what to do when one ends.

Jobs and orders are handed out in the order they came. A worker that has nothing gets what is
there; one that is at work gets another batch only if that is full. A few messages wait a moment for
a worker that is at work before they wake another. So messages that come one by one become batches
by themselves, and a batch costs far less than its messages would alone. What a dead worker had not
answered is given to others.

Messages of tenants that are slow (`paces`) stand aside: they are handed out one by one, and one
worker is always left to the others. Those of other tenants, and orders, overtake them.

While there is a doubt about the index, nothing is handed out; see `scrubber`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from fmware.errors import FMwareError
from fmware.service.envelope import Outcome
from fmware.service.errors import EngineStopped, WorkerFailed
from fmware.service.found import BLAMED, DAMAGED, outcomes_of
from fmware.service.jobs import Job, Order
from fmware.service.paces import Paces
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
BULK: Final = 200
"""Statements that are sent at once: messages between two lots do not wait for all of them."""
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
    - `options`: what workers begin with. `statements` are those of all workers, by tenant and name.
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
    ) -> None:
        self.count = workers
        self.statements: dict[Key, dict[str, Any]] = {}
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
        self._pending: deque[Job | Order] = deque()
        self._aside: deque[Job] = deque()
        self._paces = Paces()
        self._slow: dict[Process, int] = {}
        """How many messages of slow tenants a worker has."""
        self._was_slow = False
        """Whether the last message that was handed out was one of these."""
        self._since: dict[Process, float] = {}
        """When a worker last answered."""
        self._ready: set[Process] = set()
        self._processes: set[Process] = set()
        self._flying: dict[Process, dict[int, list[Job]]] = {}
        self._stirred = False
        self._lingering: asyncio.TimerHandle | None = None
        self._lingered = False
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> list[Process]:
        """The workers that are ready."""
        return sorted(self._ready, key=lambda process: process.number)

    @property
    def waiting(self) -> bool:
        """Whether anything is still to be handed out."""
        return bool(self._pending or self._aside)

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait for all of them; a `WorkerFailed` says what is wrong."""
        first = [Process(number) for number in range(self.count)]
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
        error = EngineStopped("the engine was stopped before this was done")
        for each in (*self._pending, *self._aside):
            each.fail(error)
        self._pending.clear()
        self._aside.clear()

    def put(self, jobs: Iterable[Job | Order]) -> None:
        """Hand these out when it is their turn."""
        self._pending.extend(jobs)
        self._stir()

    def withdraw(self, call: Call) -> None:
        """Have no worker begin with what is left of a call."""
        left = [each for each in self._pending if isinstance(each, Order) or each.call is not call]
        aside = [each for each in self._aside if each.call is not call]
        if len(left) + len(aside) < len(self._pending) + len(self._aside):
            self._pending = deque(left)
            self._aside = deque(aside)
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
        """Give what is pending, in its order, to the workers that have room."""
        self._stirred = False
        self._hand_out_aside()
        self._hand_out_pending()
        self._hand_out_aside()

    def _hand_out_aside(self) -> None:
        """Give messages of slow tenants to workers that are idle, but for one."""
        while self._aside and self._tasks and self._refusal is not None:
            self._aside.popleft().fail(self._refusal)
        while self._aside and self._tasks and not self._held:
            busy = sum(bool(self._slow.get(process)) for process in self._ready)
            idle = [process for process in self._ready if not self._flying[process]]
            if not idle or busy >= max(len(self._ready) - 1, 1):
                return
            # A single worker takes turns.
            if len(self._ready) == 1 and self._pending and self._was_slow:
                return
            self._was_slow = True
            self._send(idle[0], [self._aside.popleft()])

    def _hand_out_pending(self) -> None:
        while self._pending and self._tasks:
            head = self._pending[0]
            if isinstance(head, Job) and head.envelope.tenant in self._paces:
                self._pending.popleft()
                self._aside.append(head)
                continue
            if isinstance(head, Order):
                self._pending.popleft()
                self._spread(head)
                self._stir()  # Each worker is told a lot: the next order has its own turn.
                return
            if self._refusal is not None:
                self._pending.popleft()
                head.fail(self._refusal)
                continue
            if self._held:
                return
            flying, slow = self._flying, self._slow
            process = min(
                self._ready, key=lambda each: (slow.get(each, 0), len(flying[each])), default=None
            )
            if process is None or not self._has_room(process) or self._linger(head):
                return
            self._was_slow = False
            self._send(process, self._next_batch())

    def _has_room(self, process: Process) -> bool:
        """Whether a worker is to get what is there now."""
        has = len(self._flying[process])
        return not has or (has < DEPTH and len(self._pending) >= self._batch)

    def _linger(self, head: Job) -> bool:
        """Whether to wait a moment for a worker that is at work, and for more messages."""
        few = len(self._pending) < LEAST and not head.alone
        busy = any(self._flying[process] for process in self._ready)
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
        """As many as a worker gets, up to the next order: its share, or a full batch."""
        idle = sum(not self._flying[process] for process in self._ready)
        share = -(-len(self._pending) // idle) if idle else self._batch
        most = min(self._batch, max(share, LEAST))
        jobs: list[Job] = []
        while self._pending and len(jobs) < most:
            head = self._pending[0]
            if isinstance(head, Order) or (head.alone and jobs):
                break
            self._pending.popleft()
            if head.envelope.tenant in self._paces:
                self._aside.append(head)
                continue
            jobs.append(head)
            if head.alone:
                break
        return jobs

    def _send(self, process: Process, jobs: list[Job]) -> None:
        envelopes = [each.envelope for each in jobs]
        told = [
            [each.tenant for each in envelopes],
            [each.id for each in envelopes],
            [each.time for each in envelopes],
        ]
        self._flying[process][id(jobs)] = jobs
        slow = sum(tenant in self._paces for tenant in told[0])
        self._slow[process] = self._slow.get(process, 0) + slow
        sent = time.monotonic()

        def answered(future: asyncio.Future[Any]) -> None:
            # It has worked on these since it was done with what it had before.
            now = time.monotonic()
            begun = max(sent, self._since.get(process, 0.0))
            if process in self._flying:
                self._since[process] = now
                self._slow[process] -= slow
            self._paces.took({*told[0]}, len(jobs), now - begun)
            self._answered(process, jobs, future)

        future = process.ask("match", told, [each.body for each in envelopes])
        future.add_done_callback(answered)

    def _spread(self, order: Order) -> None:
        """Tell all workers; those that are still starting learn it after what they begin with."""
        kept = self.statements
        if order.kind == "subscribe":
            told = {(tenant, each["name"]): each for tenant, each in order.about}
            order.before = {key: kept[key] for key in told if key in kept}
            kept.update(told)
        else:
            for key in order.about:
                self.statements.pop(key, None)
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
            self.statements[key] = before[key]
        else:
            self.statements.pop(key, None)

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
        except (WorkerFailed, TypeError, ValueError, IndexError):
            process.kill()  # Unless it is gone, it talks nonsense.
            self._again(jobs, blamed=not process.blamed)
            process.blamed = True  # Those behind had not been looked at yet.
        else:
            self._lap(seconds)
            self._weigh(jobs, size)
            for job, outcome in zip(jobs, found, strict=True):
                self._finish(job, outcome)
        self._stir()

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
        self._gate.grow(share * len(waited))

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
                self._pending.appendleft(job)
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
            await process.start(self._options)
            await self._teach(process)
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
            refused = {(one[0], one[1]): one[2] for one in await process.tell("subscribe", told)}
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
            self._slow.pop(process, None)
            self._since.pop(process, None)
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
            for process in self.ready:
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
