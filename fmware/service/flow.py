"""Flows: from a source through the engine to all sinks.

What is guaranteed:

- **At least once.** A message is acknowledged when every sink has taken its hits, or its dead
  letter, and not before. Whatever ends before that, be it a worker, the service or the machine,
  the source gives the message again. Messages are acknowledged in any order.
- **Once, where both sides can.** A repeated message is not matched again within the engine's
  window. After a crash the window is empty: then the hits come again with the ids they had, and a
  sink that knows ids drops them. NATS does so within the duplicate window of its stream, files and
  the match log for the last hundred thousand hits. RabbitMQ and standard output do not; whoever
  reads there can tell repeats by id.
- **Bounded.** A flow holds at most `lanes + 1` batches. A sink that is slow, or down, holds up the
  flow: it is tried again until it takes what it has not taken yet, and the source is not read.
- **Nothing vanishes.** A message that cannot be read is a dead letter, with its bytes and the
  reason. So is one for which statements failed, beside the hits of the others. One that could not
  be matched because something failed here is given back, until it was tried often enough.
- **A damaged index costs no message.** While it is not whole, messages wait with the flow, or with
  the source: they are neither acknowledged nor given back, so that no attempt counts.
- **An end without loss.** `stop` takes no more from the source, finishes what was taken and
  acknowledges it. What is not finished in time is given back.

A source or a sink of one's own is a class with the methods below; it is given its name, which is in
logs and metrics, and the options of its entry in the configuration (see `fmware.service.brokers`):

    class Tail:
        def __init__(self, name: str, path: str, tenant: str = "default") -> None:
            self.name, self._path, self._tenant = name, path, tenant

        async def open(self) -> None:
            self._file = open(self._path, "rb")

        async def deliveries(self) -> AsyncIterator[Delivery]:
            for number, line in enumerate(self._file):
                yield Line(Envelope(f"{self._path}:{number}", line, self._tenant, self.name))

        async def close(self) -> None:
            self._file.close()

    @dataclass
    class Line:
        envelope: Envelope

        async def ack(self) -> None: ...
        async def nack(self, delay: float) -> None: ...
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from fmware.errors import FMwareError
from fmware.service.envelope import DeadLetter, Envelope
from fmware.service.errors import BrokerDown, BrokerError, IndexDamaged
from fmware.service.hits import HitBatch
from fmware.service.standing import Standing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence

    from fmware.service.engine import Engine
    from fmware.service.envelope import Hit, Outcome

    Told = Callable[[Sequence[Envelope], Sequence[Outcome]], None]

__all__ = ["Delivery", "Flow", "Outlet", "Sink", "Source"]

BATCH: Final = 64
LANES: Final = 4
LINGER: Final = 0.003
"""Seconds for a batch to become larger, while another one is under way."""
HITS: Final = 10_000
"""Hits that a sink is given at once, unless one message has more."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between two tries of a sink or a source that fails; doubled each time."""

log = logging.getLogger("fmware.service")


@runtime_checkable
class Delivery(Protocol):
    """A message that a source has given, until it is acknowledged or given back.

    One that has `attempts`, a number from 1, is a dead letter when they are more than its flow's.
    So is one that has `unreadable`, unless that is empty: it says why.
    """

    @property
    def envelope(self) -> Envelope: ...

    async def ack(self) -> None:
        """The message is done: do not give it again."""

    async def nack(self, delay: float) -> None:
        """The message is not done: give it again, after so many seconds."""


@runtime_checkable
class Source(Protocol):
    """Where messages come from."""

    name: str

    async def open(self) -> None: ...

    def deliveries(self) -> AsyncIterator[Delivery]:
        """Messages as they come; it ends if there can be no more, and may be cancelled."""

    async def close(self) -> None:
        """Give back what nobody has taken, and let go; what was acknowledged stays so."""


@runtime_checkable
class Sink(Protocol):
    """Where hits go. When a method returns, what it was given is safe; if it raises, it is not.

    One that fails is tried again after a pause, of ten seconds at most, or of `longest_pause`.
    """

    name: str

    async def open(self) -> None: ...

    async def write(self, hits: Sequence[Hit]) -> None: ...

    async def dead(self, letter: DeadLetter) -> None: ...

    async def close(self) -> None: ...


class Outlet:
    """All sinks together: `give` returns when each has taken what was found.

    A sink that fails is tried again, alone, until it succeeds or `give_up` was called.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = list(sinks)
        self._over = asyncio.Event()
        self._standings = {sink.name: Standing() for sink in self.sinks}
        self._closed: dict[str, asyncio.Lock] = {}
        """Sinks that could not be opened yet."""
        self._hits = 0
        self._letters = 0

    async def open(self) -> None:
        """Open all sinks; one whose broker is down is opened when it is first given something."""
        for sink in self.sinks:
            try:
                await sink.open()
            except BrokerDown as error:
                log.warning("sink %s fails, and is tried again: %s", sink.name, _said(error))
                self._standings[sink.name].failed()
                self._closed[sink.name] = asyncio.Lock()

    async def _opened(self, sink: Sink) -> None:
        """Open a sink that is not, once, however many wait for it."""
        if (lock := self._closed.get(sink.name)) is not None:
            async with lock:
                if sink.name in self._closed:
                    await sink.open()
                    del self._closed[sink.name]

    async def close(self) -> None:
        for sink in self.sinks:
            if sink.name not in self._closed:
                await sink.close()

    def give_up(self) -> None:
        """From now on, a failure is a failure."""
        self._over.set()

    def snapshot(self) -> dict[str, Any]:
        """Hits and letters handed over; by sink, failures so far, and those that fail now."""
        return {
            "hits": self._hits,
            "letters": self._letters,
            "failures": {name: each.failures for name, each in self._standings.items()},
            "stuck": sorted(name for name, each in self._standings.items() if each.failing),
        }

    def stuck(self) -> dict[str, float]:
        """By sink, for how many seconds it has taken nothing of what it is given."""
        return {name: each.stuck() for name, each in self._standings.items()}

    async def give(self, envelopes: Sequence[Envelope], outcomes: Sequence[Outcome]) -> None:
        """Hand over what was found: for `Engine.match`, which then holds the messages for done."""
        hits = HitBatch([outcome.hits for outcome in outcomes if outcome.hits]).pieces(HITS)
        pairs = zip(envelopes, outcomes, strict=True)
        letters = [_letter(*pair) for pair in pairs if pair[1].poison or pair[1].errors]
        if hits or letters:
            await _all(self._hand(sink, hits, letters) for sink in self.sinks)
            self._hits += sum(map(len, hits))
            self._letters += len(letters)

    async def bury(self, letter: DeadLetter) -> None:
        """Hand over a dead letter."""
        await _all(self._hand(sink, [], [letter]) for sink in self.sinks)
        self._letters += 1

    async def _hand(
        self, sink: Sink, hits: Sequence[Sequence[Hit]], letters: list[DeadLetter]
    ) -> None:
        for some in hits:
            await self._insist(sink, lambda some=some: sink.write(some))  # type: ignore[misc]
        for letter in letters:
            await self._insist(sink, lambda letter=letter: sink.dead(letter))  # type: ignore[misc]

    async def _insist(self, sink: Sink, act: Callable[[], Awaitable[None]]) -> None:
        standing = self._standings[sink.name]
        standing.begin()
        try:
            await self._try(sink, standing, act)
        except BaseException:
            standing.left()
            raise
        standing.took()

    async def _try(
        self, sink: Sink, standing: Standing, act: Callable[[], Awaitable[None]]
    ) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                if self._closed:
                    await self._opened(sink)
                await act()
            except Exception as error:  # A sink of whatever kind may fail in whatever way.
                if not standing.failing:
                    log.warning("sink %s fails, and is tried again: %s", sink.name, _said(error))
                standing.failed()
                if self._over.is_set():
                    raise BrokerError(f"sink {sink.name}: {_said(error)}") from error
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), pause)
                pause = min(2 * pause, getattr(sink, "longest_pause", LONGEST_PAUSE))
            else:
                return


@dataclass(slots=True)
class Counts:
    """What a flow has done so far."""

    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    duplicates: int = 0
    letters: int = 0
    failures: int = 0


class Flow:
    """From one source to the outlet, so many batches at a time.

    - `attempts`: how often a message is tried that the source gives again and again, before it is
      a dead letter; 0 is without end.
    - `told`: is called with every batch that is done, for metrics.
    """

    def __init__(
        self,
        source: Source,
        engine: Engine,
        outlet: Outlet,
        *,
        batch: int = BATCH,
        lanes: int = LANES,
        attempts: int = 0,
        told: Told | None = None,
    ) -> None:
        self.source = source
        self._engine = engine
        self._outlet = outlet
        self._batch = batch
        self._attempts = attempts
        self._tell = told
        self._lanes = lanes
        self._queue: asyncio.Queue[Delivery | None] = asyncio.Queue(batch)
        self._counts = Counts()
        self._opened = False
        self._taking = asyncio.Lock()
        self._busy = 0
        self._pumping: asyncio.Task[None] | None = None
        self._working: list[asyncio.Task[None]] = []

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the source and begin; one whose broker is down is tried again, as later on."""
        name = self.source.name
        try:
            await self.source.open()
            self._opened = True
        except BrokerDown as error:
            self._counts.failures += 1
            log.warning("source %s fails, and is tried again: %s", *self._told(error))
        self._pumping = asyncio.create_task(self._pump(), name=f"source {name}")
        self._working = [
            asyncio.create_task(self._lane(), name=f"flow {name} {number}")
            for number in range(self._lanes)
        ]

    async def wait(self) -> None:
        """Until the source has ended and all of it is done; to stop waiting stops nothing."""
        await asyncio.wait(self._working)

    async def stop(self, patience: float | None = None) -> None:
        """Take no more, finish what was taken and acknowledge it; give back what takes too long."""
        if self._pumping is None:
            return
        self._pumping.cancel()
        await asyncio.gather(self._pumping, return_exceptions=True)
        _, late = await asyncio.wait(self._working, timeout=patience)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        while not self._queue.empty():
            await self._back([each for each in [self._queue.get_nowait()] if each is not None], 0.0)
        await self.source.close()
        self._pumping = None

    def snapshot(self) -> dict[str, int]:
        """How many messages went which way; those `under_way` are neither done nor given back."""
        counts: dict[str, int] = asdict(self._counts)
        ended = counts["acknowledged"] + counts["returned"]
        return {**counts, "under_way": counts["received"] - ended}

    # --- the way of a message -------------------------------------------------------------------

    async def _pump(self) -> None:
        """Take from the source what there is room for; open it again when it fails."""
        pause = FIRST_PAUSE
        try:
            while not await self._drained():
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        finally:
            # The queue may be full, and lanes may wait at the other end.
            asyncio.get_running_loop().create_task(self._end())

    async def _drained(self) -> bool:
        """Whether the source has come to its end; or else it failed."""
        try:
            if not self._opened:
                await self.source.open()
                self._opened = True
            async for delivery in self.source.deliveries():
                self._counts.received += 1
                await self._put(delivery)
        except Exception as error:  # A source of whatever kind may fail in whatever way.
            self._counts.failures += 1
            log.warning("source %s fails, and is tried again: %s", *self._told(error))
            self._opened = False
            with suppress(Exception):
                await self.source.close()
            return False
        return True

    async def _end(self) -> None:
        for _ in range(self._lanes):
            await self._queue.put(None)

    async def _put(self, delivery: Delivery) -> None:
        try:
            await self._queue.put(delivery)
        except asyncio.CancelledError:
            await self._back([delivery], 0.0)
            raise

    async def _lane(self) -> None:
        while batch := await self._take():
            self._busy += 1
            try:
                await self._see_through(batch)
            except asyncio.CancelledError:
                await self._back(batch, 0.0)
                raise
            finally:
                self._busy -= 1

    async def _take(self) -> list[Delivery]:
        """The next delivery, and those that are there already; none at the end.

        Where another lane is at work there is no haste, and a little later there are more.
        """
        async with self._taking:
            first = await self._queue.get()
            if first is None:
                return []
            batch = [first]
            try:
                if self._busy and not self._queue.full():
                    await asyncio.sleep(LINGER)
            except asyncio.CancelledError:
                await self._back(batch, 0.0)
                raise
            while len(batch) < self._batch and not self._queue.empty():
                more = self._queue.get_nowait()
                if more is None:
                    self._queue.put_nowait(None)
                    break
                batch.append(more)
            return batch

    async def _see_through(self, batch: list[Delivery]) -> None:
        try:
            await self._engine.whole()
            good: list[Delivery] = []
            for each in batch:
                if (why := self._lost(each)) is None:
                    good.append(each)
                    continue
                await self._outlet.bury(_letter_of(each.envelope, why))
                self._counts.letters += 1
            envelopes = [each.envelope for each in good]
            outcomes = await self._matched(envelopes)
        except Exception as error:  # Whatever it is, nothing must be left in the lurch.
            self._counts.failures += 1
            known = isinstance(error, FMwareError)
            said = "flow %s: messages are given back: %s"
            log.warning(said, *self._told(error), exc_info=not known)
            await self._back(batch, 1.0)
            return
        for outcome in outcomes:
            self._counts.duplicates += outcome.duplicate
            self._counts.letters += bool(outcome.poison or outcome.errors) and not outcome.failed
        if self._tell is not None:
            self._tell(envelopes, outcomes)
        failed = [each for each, outcome in zip(good, outcomes, strict=True) if outcome.failed]
        if failed:
            self._counts.failures += len(failed)
            why = next(outcome.errors[0] for outcome in outcomes if outcome.failed)
            said = "flow %s: %d messages are given back: %s"
            log.warning(said, self.source.name, len(failed), why)
            await self._back(failed, 1.0)
        await self._done([each for each in batch if each not in failed])

    async def _matched(self, envelopes: list[Envelope]) -> list[Outcome]:
        """What the engine says; if the index is damaged, when it is whole again."""
        while True:
            try:
                return await self._engine.match(envelopes, self._outlet.give)
            except IndexDamaged as error:
                log.warning("flow %s: messages wait: %s", *self._told(error))
                await self._engine.whole()

    def _lost(self, delivery: Delivery) -> str | None:
        """Why a delivery is a dead letter before it is matched."""
        attempts: int = getattr(delivery, "attempts", 1)
        if 0 < self._attempts < attempts:
            return f"given {attempts} times, and never done"
        return getattr(delivery, "unreadable", "") or None

    async def _done(self, batch: list[Delivery]) -> None:
        """Acknowledge; what does not get through comes again, and is a duplicate then."""
        lost: list[Exception] = []
        for each in batch:
            try:
                await each.ack()
            except Exception as error:  # The connection is gone, in whatever way.
                lost.append(error)
            self._counts.acknowledged += 1
        self._lament("not acknowledged", lost)

    async def _back(self, batch: list[Delivery], delay: float) -> None:
        """Give back; what does not get through comes again all the same, in time."""
        lost: list[Exception] = []
        for each in batch:
            try:
                await each.nack(delay)
            except Exception as error:
                lost.append(error)
            self._counts.returned += 1
        self._lament("not given back", lost)

    def _lament(self, what: str, lost: list[Exception]) -> None:
        self._counts.failures += len(lost)
        if lost:
            name, said = self._told(lost[0])
            log.warning("source %s: %d messages were %s: %s", name, len(lost), what, said)

    def _told(self, error: Exception) -> tuple[str, str]:
        return self.source.name, _said(error)


def _letter(envelope: Envelope, outcome: Outcome) -> DeadLetter:
    return _letter_of(envelope, outcome.poison or "; ".join(outcome.errors))


def _letter_of(envelope: Envelope, reason: str) -> DeadLetter:
    return DeadLetter(envelope.id, envelope.body, reason, envelope.tenant, envelope.source)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all, also when one raises: none goes on behind the caller's back."""
    each = list(coroutines)
    if len(each) == 1:
        await each[0]  # Without a task of its own.
        return
    said = await asyncio.gather(*each, return_exceptions=True)
    for one in said:
        if isinstance(one, BaseException):
            raise one
