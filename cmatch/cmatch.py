"""CMatch: ask the index once for each SES label, and clean what it gives by AD labels.

1. `feed` hands a batch to CClean. If all its labels are known, CClean answers with pairs.
2. New labels are asked for before any input of the batch is taken. Those with few candidates, all
   of them in memory, are scanned for at once, together, in the caller: that takes less than storing
   their inputs. Labels without candidates are then known, and nothing more.
3. Labels that have many candidates, or some that are not in memory, go into a queue, and their
   inputs are stored. Probe threads take them from there, scan the index for each once, and hand the
   candidates to CClean in vectors. Threads are started when there is something to do and end when
   there is nothing more for a while: an operator that has seen its labels has none. What CClean
   finds out meanwhile comes with the next `feed`, `poll` or `drain`.
4. With a `Rent`, the first inputs of a new label are deferred: ADMatch takes them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from fmware.cmatch._kernel import both, chosen, total
from fmware.cmatch.admatch import ADMatch
from fmware.cmatch.axes import Axis
from fmware.cmatch.cclean import BUDGET, PARTITION, CClean
from fmware.cmatch.errors import (
    GenerationGone,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from fmware.cmatch.inputs import Matches
from fmware.cmatch.operator import FOREVER, named, tags_of
from fmware.cmatch.rent import FETCH_ALL, Rent
from fmware.index import IndexClosed, UnknownScheme

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from fmware.cmatch._kernel import Group
    from fmware.cmatch.counters import Counters
    from fmware.cmatch.inputs import Inputs
    from fmware.cmatch.operator import Tags
    from fmware.cmatch.trace import Step
    from fmware.index import Index, Segment

    Int64s = npt.NDArray[np.int64]
    Ask = Callable[[Inputs], tuple[Matches, list[Group] | None, Int64s | None]]

__all__ = ["CMatch"]

VECTOR = 1 << 16
"""Candidates that are handed over at once."""
TASK = 256
"""Labels that one probe thread takes at once."""
EACH = 4
"""Candidates that may be fetched for each input of a large batch: to store it takes longer."""
IDLE = 0.05
"""Seconds that a probe thread waits for more: to start one takes longer than to wake it."""
SEVERAL = 64
"""Labels of which it pays to sort out those without candidates before scanning."""
ANY = 1 << 40
"""Candidates, however many."""


class Fresh(NamedTuple):
    """New labels of one segment.

    `first` is the place of the first of them among all that are new.
    """

    place: int
    first: int
    ranks: Int64s
    lasts: Int64s


class Task(NamedTuple):
    """Labels of one segment that a probe thread fetches; `serial` counts tasks."""

    serial: int
    place: int
    ranks: Int64s
    lasts: Int64s


class CMatch:
    """Matches anchors with the nodes of `tags` on an axis, clustered by the labels of a SES scheme.

    Each label of a segment is scanned for once in the life of the operator. `budget` bounds the
    memory of inputs and candidates; what is more is spilled into a file without a name in `place`.
    New labels of a batch with at most `few` candidates together, all in memory, are scanned for by
    `feed` itself, others by `threads`. With no threads `feed` scans for all, and inputs are never
    stored, unless `few` says which are. `rent` says when a label whose candidates are in memory is
    fetched; until then its inputs go to ADMatch. One thread at a time may call.

    Another kernel may use `feeder` instead of `feed` (`cmatch/feed.pxd`).
    """

    def __init__(
        self,
        index: Index,
        tags: Tags,
        axis: Axis | str,
        scheme: str,
        *,
        budget: int = BUDGET,
        partition: int = PARTITION,
        threads: int = 1,
        place: str | Path | None = None,
        vector: int = VECTOR,
        few: int | None = None,
        rent: Rent = FETCH_ALL,
        trace: list[Step] | None = None,
        jitter: int = 0,
    ) -> None:
        if scheme not in index.schemes:
            raise UnknownScheme(scheme, index.schemes)
        self.index = index
        self.tags = tags_of(tags)
        self.axis = Axis(axis)
        self.scheme = scheme
        self.trace = trace
        self._threads = threads
        self._vector = vector
        self._few = few
        self._side = self.axis.side
        # Takes the inputs that are deferred.
        self._rival: ADMatch | None = None
        self._clean = CClean(
            self.axis,
            budget=budget,
            partition=partition,
            place=place,
            scheme=scheme,
            trace=trace is not None,
            jitter=jitter,
        )
        # Traces are fetched after every batch, so these are fed one by one.
        self.feeder: object | None = None if trace is not None else self._clean.feeder()
        self.needs: str | None = scheme
        self._segments = index.segments
        self._held = [*map(_identity, self._segments)]
        # Guards all below; waited on for a task to be done.
        self._state = threading.Condition()
        self._tasks: deque[Task] = deque()
        self._workers: set[threading.Thread] = set()
        self._busy: set[int] = set()
        self._idle = 0
        self._queued = 0
        self._failure: MatchError | None = None
        self._closed = False
        # What `feed` has done itself; CClean counts what it does.
        self._scans = 0
        self._probe_seconds = 0.0
        self.rent = rent
        self._limit()
        self._clean.wary = threads > 0
        self._clean.aim(self._segments, self.tags)

    # --- what callers do --------------------------------------------------------------------

    def feed(self, inputs: Inputs) -> Matches:
        """Take a batch; give the pairs that are ready, also those of earlier batches."""
        return self._answered(inputs, self._clean.ask)

    def resume(self, inputs: Inputs) -> Matches:
        """The rest of a batch that came by `feeder`, which could not finish it."""
        return self._answered(inputs, self._clean.rest)

    def _answered(self, inputs: Inputs, ask: Ask) -> Matches:
        try:
            matches, fresh, deferred = ask(inputs)
        except MissingLabels:
            return self._unlabelled(inputs)
        except (OperatorClosed, SpillFailed, MemoryError) as error:
            failure = self._ended(error)
            raise failure from failure.__cause__
        if fresh is not None:
            if not fresh:
                return self._handed_back(inputs)
            matches, deferred = self._learn(inputs, fresh)
        if self._clean.cold is not None:
            cold, self._clean.cold = self._clean.cold, None
            for place, ranks, lasts in cold:
                self._queue(place, ranks, lasts)
            self._start()
        if deferred is not None:
            part = inputs if len(deferred) == len(inputs.id) else chosen(inputs, deferred)
            matches = both(matches, self._ask_by_ad(part))
        if self.trace is not None:
            self.trace += self._clean.steps()
        return matches

    def _unlabelled(self, inputs: Inputs) -> Matches:  # noqa: ARG002
        """The inputs do not carry the labels that are needed: nothing is to be done about it here.

        Called while the error is handled.
        """
        raise

    @property
    def ahead(self) -> int:
        """Inputs that are taken before a batch is handed back to be looked at."""
        return self._clean.ahead

    @ahead.setter
    def ahead(self, inputs: int) -> None:
        self._clean.ahead = inputs

    def _handed_back(self, inputs: Inputs) -> Matches:
        """A batch that was not taken, because it has more inputs than `ahead` were allowed."""
        self.ahead = FOREVER
        return self.feed(inputs)

    @property
    def rent(self) -> Rent:
        """When new labels are fetched. It may be changed at any time."""
        return Rent(*self._clean.rent)

    @rent.setter
    def rent(self, rent: Rent) -> None:
        if self._rival is None and rent != FETCH_ALL:
            self._rival = ADMatch(self.index, self.tags, self.axis)
        self._clean.rent = rent

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        try:
            matches = self._clean.take()
        except (OperatorClosed, MemoryError) as error:
            failure = self._ended(error)
            raise failure from failure.__cause__
        if self.trace is not None:
            self.trace += self._clean.steps()
        return matches

    def drain(self) -> Matches:
        """Wait for all that is under way, and give its pairs."""
        self.wait(self.mark)
        return self.poll()

    @property
    def stored(self) -> int:
        """Inputs that were stored so far, because candidates of their label were still to come."""
        return self._clean.stored

    @property
    def mark(self) -> int:
        """The number of the last fetch that was queued for probe threads; 0 if none ever was."""
        return self._queued

    def reached(self, mark: int) -> bool:
        """Whether all fetches up to one are done, so that `poll` or `feed` gives their pairs.

        It is, too, if the operator has failed; these say so then.
        """
        with self._state:
            return self._reached(mark)

    def wait(self, mark: int, timeout: float | None = None) -> bool:
        """Wait until `reached` holds, `timeout` seconds at most; return whether it holds."""
        with self._state:
            return self._state.wait_for(lambda: self._reached(mark), timeout)

    def _reached(self, mark: int) -> bool:
        # Tasks are taken in the order of their numbers.
        waiting = bool(self._tasks) and self._tasks[0].serial <= mark
        return not waiting and not any(serial <= mark for serial in self._busy)

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one.

        Candidates of segments that both have, with the same records removed, are kept.
        """
        if self.scheme not in index.schemes:
            raise UnknownScheme(self.scheme, index.schemes)
        matches = self.drain()
        held = [*map(_identity, index.segments)]
        places = [held.index(each) if each in held else -1 for each in self._held]
        self._clean.renumber(np.array(places, np.int32))
        self.index, self._segments, self._held = index, index.segments, held
        if self._rival is not None:
            self._rival.move(index)
        self._clean.aim(self._segments, self.tags)
        return matches

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        with self._state:
            self._closed = True
            self._tasks.clear()
            self._state.notify_all()
            workers = [*self._workers]
        self._clean.close()
        for worker in workers:
            worker.join()

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        counters = self._clean.counters
        counters.index_scans += self._scans
        counters.probe_seconds += self._probe_seconds
        if self._rival is not None:
            by_ad = self._rival.counters
            counters.ad_probes = by_ad.ad_probes
            counters.pairs += by_ad.pairs
            counters.probe_seconds += by_ad.probe_seconds
        return counters

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CMatch {self.axis.value}::{named(self.tags)} by {self.scheme}>"

    # --- new labels -------------------------------------------------------------------------

    def _limit(self) -> None:
        """Say how many candidates CClean may fetch itself: as many as `_learn` would in the caller.

        It takes a third of the time that `_learn` takes for a label or two.
        """
        clean = self._clean
        clean.each = 0
        if self._few is not None:
            clean.most = self._few
        elif self._threads:
            clean.most, clean.each = VECTOR, EACH
        else:
            clean.most = ANY

    def _learn(self, inputs: Inputs, groups: list[Group]) -> tuple[Matches, Int64s | None]:
        """Ask the index for new labels, then take the batch."""
        queued = self._queued
        fresh = Fresh(*groups[0])
        try:
            for group in groups:
                fresh = Fresh(*group)
                rows = self._fetch(self._segments[fresh.place], fresh, len(inputs))
                if len(rows):
                    self._clean.wait(fresh.first, rows)
                    self._queue(fresh.place, fresh.ranks[rows], fresh.lasts[rows])
            matches, deferred = self._clean.answer(inputs)
        except (MatchError, MemoryError) as error:
            failure = self._ended(error)
            raise failure from failure.__cause__
        except Exception as error:
            raise self._fail(self._failed(fresh, error)) from error
        except BaseException as error:
            # Interrupted: the state of these labels is not known.
            self._fail(self._failed(fresh, error))
            raise
        if self._queued > queued:
            self._start()
            if not self._threads:
                matches = Matches.joined([matches, self.poll()])
        return matches, deferred

    def _fetch(self, segment: Segment, fresh: Fresh, batch: int) -> Int64s:
        """Scan for new labels of a segment; gives the places of those that threads are to fetch."""
        began = time.perf_counter()
        warm, cold = self._parted(segment, fresh)
        counts = self._counts(segment, fresh, warm)
        rows = warm
        # Labels that are not in memory were counted as if they had no candidates: none is rented.
        kept = self._clean.defer(fresh.first, counts)
        if kept is not None:
            rows = kept[np.isin(kept, warm)]
        counts = counts[rows]
        labels, candidates = len(counts), total(counts)
        few = self._few
        if few is None:
            few = max(VECTOR, EACH * batch) if self._threads else candidates
        if candidates > few:
            rows, many = _smallest(counts, rows, few)
            cold = np.concatenate([cold, many])
            labels -= len(many)
        elif labels > SEVERAL:
            rows = rows[counts > 0]
        self._settle(segment, fresh, rows)
        self._scans += labels
        self._probe_seconds += time.perf_counter() - began
        return cold

    def _parted(self, segment: Segment, fresh: Fresh) -> tuple[Int64s, Int64s]:
        """The places of new labels whose candidates are in memory, and of the others.

        Without threads that could wait for the disk, it makes no difference.
        """
        cold = np.zeros(len(fresh.ranks), np.bool_)
        for tag in self.tags if self._threads else ():
            cold |= segment.cold(self.scheme, tag, fresh.ranks, fresh.lasts, self._side)
        return np.flatnonzero(~cold), np.flatnonzero(cold)

    def _counts(self, segment: Segment, fresh: Fresh, rows: Int64s) -> Int64s:
        """How many candidates some new labels have; of the others, none."""
        counts = np.zeros(len(fresh.ranks), np.int64)
        ranks, lasts = fresh.ranks[rows], fresh.lasts[rows]
        for tag in self.tags if len(rows) else ():
            counts[rows] += segment.counts(self.scheme, tag, ranks, lasts, self._side)
        return counts

    def _settle(self, segment: Segment, fresh: Fresh, rows: Int64s) -> None:
        """All candidates of some new labels."""
        ranks, lasts = fresh.ranks[rows], fresh.lasts[rows]
        self._prepare(segment, fresh.place, ranks, lasts)
        if len(rows) and not self._clean.fetch(fresh.place, fresh.first, rows, ranks, lasts):
            self._gone(segment)

    def _prepare(self, segment: Segment, place: int, ranks: Int64s, lasts: Int64s) -> None:
        """Have all that is needed to scan for labels natively."""
        for tag in self.tags:
            segment.prepare(self.scheme, tag, ranks, lasts, self._side)
        if not self._clean.knows(place):
            probes = [segment.probe(self.scheme, tag, self._side) for tag in self.tags]
            self._clean.introduce(place, probes)

    def _gone(self, segment: Segment) -> NoReturn:
        """A segment that was ready cannot be asked: it says that it was closed."""
        raise IndexClosed(segment.files.folder.name)

    def _ask_by_ad(self, inputs: Inputs) -> Matches:
        """The pairs of inputs that are deferred."""
        assert self._rival is not None
        try:
            return self._rival.feed(inputs)
        except Exception as error:
            raise self._fail(self._failed(None, error)) from error

    # --- the queue --------------------------------------------------------------------------

    def _queue(self, place: int, ranks: Int64s, lasts: Int64s) -> None:
        """Queue scans of the index for labels whose inputs wait; `_start` has them done."""
        with self._state:
            for low in range(0, len(ranks), TASK):
                high = low + TASK
                self._queued += 1
                if self._failure is None:
                    task = Task(self._queued, place, ranks[low:high], lasts[low:high])
                    self._tasks.append(task)

    def _start(self) -> None:
        """Have tasks done: by as many threads as there may be, or here and now."""
        if not self._threads:
            while self._tasks:
                self._perform(self._tasks.popleft())
            return
        with self._state:
            number = min(len(self._tasks) - self._idle, self._threads - len(self._workers))
            self._state.notify_all()
            try:
                for _ in range(number):
                    worker = threading.Thread(target=self._work, name=f"probe {named(self.tags)}")
                    worker.start()
                    self._workers.add(worker)
            except RuntimeError as error:
                # No thread can be started, so that the tasks would never be done.
                raise self._fail(ProbeFailed(repr(self), str(error))) from error

    def _work(self) -> None:
        """What a probe thread does: one task after the other, until there are none for a while."""
        while True:
            with self._state:
                self._idle += 1
                self._state.wait_for(self._called, IDLE)
                self._idle -= 1
                if not self._tasks:
                    self._workers.discard(threading.current_thread())
                    return
                task = self._tasks.popleft()
                self._busy.add(task.serial)
            try:
                self._perform(task)
            except BaseException as error:
                self._fail(self._failed(task, error))
            finally:
                with self._state:
                    self._busy.discard(task.serial)
                    self._state.notify_all()

    def _called(self) -> bool:
        """Whether a probe thread has something to do, be it to end."""
        return bool(self._tasks) or self._closed or self._failure is not None

    def _perform(self, task: Task) -> None:
        try:
            self._probe(self._segments[task.place], task)
        except MatchError as error:
            failure = self._fail(error)
            raise failure from failure.__cause__
        except Exception as error:
            raise self._fail(self._failed(task, error)) from error
        except BaseException as error:
            # Interrupted: the labels of this task would wait for ever.
            self._fail(self._failed(task, error))
            raise

    def _probe(self, segment: Segment, task: Task) -> None:
        """Scan for labels, and hand their candidates over."""
        labels = task.place, task.ranks, task.lasts
        if not self._clean.bring(*labels, self._vector):
            self._prepare(segment, *labels)
            if not self._clean.bring(*labels, self._vector):
                self._gone(segment)

    # --- what goes wrong --------------------------------------------------------------------

    def _fail(self, error: MatchError) -> MatchError:
        """End it all because of an error, unless it has ended before; gives what it ended of."""
        with self._state:
            self._tasks.clear()
            if self._failure is None and not isinstance(error, OperatorClosed):
                self._failure = error
            error = self._failure or error
            self._state.notify_all()
        self._clean.close()
        return error

    def _failed(self, task: Fresh | Task | None, error: BaseException) -> MatchError:
        """The error of a probe."""
        if isinstance(error, MatchError):
            return error
        what = repr(self)
        if task is not None:
            name = self._segments[task.place].name
            what += f", segment {name}, labels {task.ranks[0]} to {task.ranks[-1]}"
        kind = GenerationGone if isinstance(error, IndexClosed) else ProbeFailed
        failure = kind(what, f"{type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _ended(self, error: MatchError | MemoryError) -> MatchError:
        """What to tell the caller when CClean has ended; threads have ended, too, by then."""
        if isinstance(error, MemoryError):
            failure: MatchError = MatchError(f"{self!r}: no memory for inputs and candidates")
            failure.__cause__ = error
        else:
            failure = error
        failure = self._fail(failure)
        with self._state:
            workers = [*self._workers]
        for worker in workers:
            worker.join()
        return OperatorClosed(repr(self)) if self._closed else failure


def _smallest(counts: Int64s, rows: Int64s, few: int) -> tuple[Int64s, Int64s]:
    """Of labels, those that have few candidates together, but some; and the others."""
    order = np.argsort(counts, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts[order]), few, "right")) if few >= 0 else 0
    small, large = np.sort(order[:enough]), np.sort(order[enough:])
    return rows[small[counts[small] > 0]], rows[large]


def _identity(segment: Segment) -> tuple[str, str, bytes, bytes]:
    """What candidates of a segment hang on: its content, and what was removed from it."""
    removed = segment.removed
    return (
        segment.name,
        segment.files.sha256,
        np.asarray(removed.starts).tobytes(),
        np.asarray(removed.ends).tobytes(),
    )
