"""CMatch: ask the index once for each SES label, and clean what it gives by AD labels.

1. `feed` hands a batch to CClean. If all its labels are known, CClean answers with pairs.
2. New labels are asked for before any input of the batch is taken. Those with few candidates are
   scanned for at once, together, in the caller: that takes less than storing their inputs. Labels
   without candidates are then known, and nothing more.
3. Labels with many candidates go into a queue, and their inputs are stored. Probe threads take them
   from there, scan the index for each once, and hand the candidates to CClean in vectors. Threads
   are started when there is something to do and end when there is nothing more: an operator that
   has seen its labels has none. What CClean finds out meanwhile comes with the next `feed`, `poll`
   or `drain`.
4. Under a `Policy`, some labels are set aside: AD-only match takes their inputs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmatch._kernel import both, chosen, total
from cmatch.admatch import ADMatch
from cmatch.axes import Axis
from cmatch.cclean import BUDGET, PARTITION, CClean
from cmatch.errors import (
    GenerationGone,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from cmatch.inputs import Matches
from cmatch.policy import ANY
from index import IndexClosed, UnknownScheme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from cmatch._kernel import Group
    from cmatch.counters import Counters
    from cmatch.inputs import Inputs
    from cmatch.policy import Policy
    from cmatch.trace import Step
    from index import Index, Labels, Segment
    from labeling.runs import Tag

    Int64s = npt.NDArray[np.int64]
    Ask = Callable[[Inputs], tuple[Matches, list[Group] | None, Int64s | None]]

__all__ = ["CMatch"]

VECTOR = 1 << 16
"""Candidates that are handed over at once."""
TASK = 256
"""Labels that one probe thread takes at once."""
EACH = 4
"""Candidates that may be fetched for each input of a large batch: to store it takes longer."""
SEVERAL = 64
"""Labels of which it pays to sort out those without candidates before scanning."""


class Task(NamedTuple):
    """New labels of one segment.

    `first` is the place of the first of them among all that are new; as many as `due` says, at the
    end, have been aside.
    """

    place: int
    first: int
    ranks: Int64s
    lasts: Int64s
    due: int = 0


class CMatch:
    """Matches anchors with the nodes of `tag` on an axis, clustered by the labels of a SES scheme.

    Each label of a segment is scanned for once in the life of the operator. `budget` bounds the
    memory of inputs and candidates; what is more is spilled into a file without a name in `place`.
    New labels of a batch with at most `few` candidates together are scanned for by `feed` itself,
    others by `threads`. With no threads `feed` scans for all, and inputs are never stored, unless
    `few` says which are. A `policy` may set labels aside. One thread at a time may call.

    Another kernel may use `feeder` instead of `feed` (`cmatch/feed.pxd`).
    """

    def __init__(
        self,
        index: Index,
        tag: Tag | str,
        axis: Axis | str,
        scheme: str,
        *,
        budget: int = BUDGET,
        partition: int = PARTITION,
        threads: int = 1,
        place: str | Path | None = None,
        vector: int = VECTOR,
        few: int | None = None,
        policy: Policy | None = None,
        trace: list[Step] | None = None,
        jitter: int = 0,
    ) -> None:
        if scheme not in index.schemes:
            raise UnknownScheme(scheme, index.schemes)
        self.index = index
        self.tag = tag
        self.axis = Axis(axis)
        self.scheme = scheme
        self.trace = trace
        self._threads = threads
        self._vector = vector
        self._few = few
        self._side = self.axis.side
        self._policy = policy
        self._rival = None if policy is None else self._by_ad()
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
        self._busy = 0
        self._failure: MatchError | None = None
        self._closed = False
        self._scans = 0
        self._probe_seconds = 0.0
        self._limit()
        self._introduce_all()

    # --- what callers do --------------------------------------------------------------------

    def feed(self, inputs: Inputs) -> Matches:
        """Take a batch; give the pairs that are ready, also those of earlier batches."""
        return self._answered(inputs, self._clean.ask)

    def resume(self, inputs: Inputs) -> Matches:
        """The rest of a batch that came by `feeder`, which could not finish it."""
        return self._answered(inputs, self._clean.rest)

    def _answered(self, inputs: Inputs, ask: Ask) -> Matches:
        try:
            matches, fresh, aside = ask(inputs)
        except MissingLabels:
            return self._unlabelled(inputs)
        except (OperatorClosed, SpillFailed, MemoryError) as error:
            failure = self._ended(error)
            raise failure from failure.__cause__
        if fresh is not None:
            matches, aside = self._learn(inputs, fresh)
        if aside is not None:
            part = inputs if len(aside) == len(inputs.id) else chosen(inputs, aside)
            matches = both(matches, self._ask_by_ad(part))
        if self.trace is not None:
            self.trace += self._clean.steps()
        return matches

    def _unlabelled(self, inputs: Inputs) -> Matches:  # noqa: ARG002
        """The inputs do not carry the labels that are needed: nothing is to be done about it here.

        Called while the error is handled.
        """
        raise

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
        if self._threads:
            with self._state:
                self._state.wait_for(lambda: not self._tasks and not self._busy)
        return self.poll()

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
        self._introduce_all()
        return matches

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        with self._state:
            self._closed = True
            self._tasks.clear()
            workers = [*self._workers]
        self._clean.close()
        for worker in workers:
            worker.join()

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        counters = self._clean.counters
        with self._state:
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
        return f"<CMatch {self.axis.value}::{self.tag} by {self.scheme}>"

    # --- new labels -------------------------------------------------------------------------

    def _limit(self) -> None:
        """Say how many candidates CClean may fetch itself: as many as `feed` would without asking.

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
        if self._policy is not None:
            clean.most, clean.each = min(clean.most, self._policy.cheap), 0
            clean.together = self._policy.together

    def _introduce_all(self) -> None:
        for place in range(len(self._segments)):
            self._introduce(place)

    def _introduce(self, place: int) -> None:
        """Let CClean ask a segment itself, once the list of candidates is open."""
        segment = self._segments[place]
        self._clean.probe(place, segment.probe(self.scheme, self.tag, self._side))

    def _learn(self, inputs: Inputs, fresh: list[Group]) -> tuple[Matches, Int64s | None]:
        """Ask the index for new labels, then take the batch."""
        tasks: list[Task] = []
        task = Task(*fresh[0])
        try:
            for group in fresh:
                task = Task(*group)
                segment = self._segments[task.place]
                many = self._fetch(segment, task, len(inputs))
                if not self._clean.knows(task.place):
                    self._introduce(task.place)
                if many is not None:
                    self._clean.wait(task.first, many)
                    tasks += _tasks(task, many)
            matches, aside = self._clean.answer(inputs)
        except (MatchError, MemoryError) as error:
            failure = self._ended(error)
            raise failure from failure.__cause__
        except Exception as error:
            raise self._fail(self._failed(task, error)) from error
        except BaseException as error:
            # Interrupted: nobody knows what becomes of these labels.
            self._fail(self._failed(task, error))
            raise
        if tasks:
            matches = self._ask(tasks, matches)
        return matches, aside

    def _fetch(self, segment: Segment, task: Task, batch: int) -> Int64s | None:
        """Scan for the new labels of a segment; gives the places of those with many candidates."""
        began = time.perf_counter()
        counts = segment.counts(self.scheme, self.tag, task.ranks, task.lasts, self._side)
        rows = many = None
        policy = self._policy
        if policy is not None:
            cheap = policy.cheap
            rows = self._set_aside(policy, task, counts, batch)
            if policy.cheap != cheap:
                self._limit()
            if rows is not None:
                counts = counts[rows]
        labels, candidates = len(counts), total(counts)
        few = self._few
        if few is None:
            few = max(VECTOR, EACH * batch) if self._threads else candidates
        if candidates > few:
            rows, many = _parted(counts, rows, few)
            labels -= len(many)
        elif candidates and labels > SEVERAL:
            rows = _some(rows, counts)
        if candidates and (rows is None or len(rows)):
            self._settle(segment, task, rows)
        with self._state:
            self._scans += labels
            self._probe_seconds += time.perf_counter() - began
        return many

    def _set_aside(self, policy: Policy, task: Task, counts: Int64s, batch: int) -> Int64s | None:
        """Set new labels aside as the policy says; gives the places of the others, None for all."""
        if not task.due:
            return self._clean.set_aside(task.first, policy.aside(counts, batch))
        asked = len(counts) - task.due
        if not asked:
            return None
        wanted = np.zeros(len(counts), np.int64)
        wanted[:asked] = policy.aside(counts[:asked], batch)
        return self._clean.set_aside(task.first, wanted)

    def _settle(self, segment: Segment, task: Task, rows: Int64s | None) -> None:
        """All candidates of new labels, of all of a task or of some."""
        ranks, lasts = task.ranks, task.lasts
        if rows is not None:
            ranks, lasts = ranks[rows], lasts[rows]
        if self._clean.fetch(task.place, task.first, rows, ranks, lasts):
            return
        left = None
        if len(ranks) == 1:
            rank, last = ranks.item(), lasts.item()
            right = _by_start(segment.scan(self.scheme, self.tag, rank, last, self._side))
        else:
            found = segment.scans(self.scheme, self.tag, ranks, lasts, self._side)
            left, right = found.left, found.right
        self._clean.settle(task.first, rows, left, right.start, right.end, right.level)

    def _by_ad(self) -> ADMatch:
        """Who is asked for inputs whose labels are set aside."""
        return ADMatch(self.index, self.tag, self.axis)

    def _ask_by_ad(self, inputs: Inputs) -> Matches:
        """The pairs of inputs whose labels are set aside."""
        assert self._rival is not None
        try:
            return self._rival.feed(inputs)
        except Exception as error:
            raise self._fail(self._failed(None, error)) from error

    # --- the queue of large labels ----------------------------------------------------------

    def _ask(self, tasks: list[Task], matches: Matches) -> Matches:
        """Have the index scanned for labels whose inputs wait."""
        if not self._threads:
            for task in tasks:
                self._perform(task)
            return Matches.joined([matches, self.poll()])
        with self._state:
            if self._failure is None:
                self._tasks.extend(tasks)
                try:
                    self._start(min(len(self._tasks), self._threads) - len(self._workers))
                except RuntimeError as error:
                    # No thread is to be had: nobody would ever take the tasks.
                    raise self._fail(ProbeFailed(repr(self), str(error))) from error
        return matches

    def _start(self, number: int) -> None:
        for _ in range(number):
            worker = threading.Thread(target=self._work, name=f"probe {self.tag}")
            worker.start()
            self._workers.add(worker)

    def _work(self) -> None:
        """What a probe thread does: one task after the other, until there are none."""
        while True:
            with self._state:
                if not self._tasks:
                    self._workers.discard(threading.current_thread())
                    return
                task = self._tasks.popleft()
                self._busy += 1
            try:
                self._perform(task)
            except BaseException as error:
                self._fail(self._failed(task, error))
            finally:
                with self._state:
                    self._busy -= 1
                    self._state.notify_all()

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

    # --- probes -----------------------------------------------------------------------------

    def _probe(self, segment: Segment, task: Task) -> None:
        """Scan for labels: small ones together, large ones alone and in vectors."""
        began = time.perf_counter()
        counts = segment.counts(self.scheme, self.tag, task.ranks, task.lasts, self._side)
        spent = time.perf_counter() - began
        for rows in _groups(counts, self._vector):
            if len(rows) > 1:
                spent += self._scan_all(segment, task, rows)
            else:
                spent += self._scan(segment, task, int(rows[0]))
            with self._state:
                self._scans += len(rows)
                self._probe_seconds += spent
            spent = 0.0

    def _scan_all(self, segment: Segment, task: Task, rows: Int64s) -> float:
        began = time.perf_counter()
        ranks, lasts = task.ranks[rows], task.lasts[rows]
        found = segment.scans(self.scheme, self.tag, ranks, lasts, self._side)
        spent = time.perf_counter() - began
        right = found.right
        self._clean.right_all(task.place, ranks, found.left, right.start, right.end, right.level)
        return spent

    def _scan(self, segment: Segment, task: Task, row: int) -> float:
        began = time.perf_counter()
        rank, last = int(task.ranks[row]), int(task.lasts[row])
        found = _by_start(segment.scan(self.scheme, self.tag, rank, last, self._side))
        spent = time.perf_counter() - began
        step = self._vector
        for low in range(0, max(1, len(found)), step):
            high = low + step
            self._clean.right(
                task.place,
                rank,
                found.start[low:high],
                found.end[low:high],
                found.level[low:high],
                last=high >= len(found),
            )
        return spent

    # --- what goes wrong --------------------------------------------------------------------

    def _fail(self, error: MatchError) -> MatchError:
        """End it all because of an error, unless it has ended before; gives what it ended of."""
        with self._state:
            self._tasks.clear()
            if self._failure is None and not isinstance(error, OperatorClosed):
                self._failure = error
            error = self._failure or error
        self._clean.close()
        return error

    def _failed(self, task: Task | None, error: BaseException) -> MatchError:
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


def _tasks(task: Task, rows: Int64s) -> Iterator[Task]:
    """Some labels of a task as tasks for probe threads."""
    for low in range(0, len(rows), TASK):
        own = rows[low : low + TASK]
        yield task._replace(ranks=task.ranks[own], lasts=task.lasts[own])


def _parted(counts: Int64s, rows: Int64s | None, few: int) -> tuple[Int64s, Int64s]:
    """The places of labels that have few candidates together, but some; and of the others."""
    order = np.argsort(counts, kind="stable")
    enough = int(np.searchsorted(np.cumsum(counts[order]), few, "right")) if few >= 0 else 0
    small, large = np.sort(order[:enough]), np.sort(order[enough:])
    small = small[counts[small] > 0]
    return (small, large) if rows is None else (rows[small], rows[large])


def _some(rows: Int64s | None, counts: Int64s) -> Int64s:
    """The places of labels that have candidates."""
    found = np.flatnonzero(counts)
    return found if rows is None else rows[found]


def _groups(counts: Int64s, most: int) -> Iterator[Int64s]:
    """The labels that are scanned for together: as many as give a vector."""
    rows = np.argsort(counts, kind="stable")
    sums = np.cumsum(counts[rows])
    low = 0
    while low < len(rows):
        before = int(sums[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(sums, before + most, "right")))
        yield rows[low:high]
        low = high


def _by_start(found: Labels) -> Labels:
    """In AD order, so that vectors follow each other; a few are sorted sooner than looked at."""
    if len(found) < SEVERAL or (found.start[:-1] <= found.start[1:]).all():
        return found
    return found.take(np.argsort(found.start, kind="stable"))


def _identity(segment: Segment) -> tuple[str, str, bytes, bytes]:
    """What candidates of a segment hang on: its content, and what was removed from it."""
    removed = segment.removed
    return (
        segment.name,
        segment.files.sha256,
        np.asarray(removed.starts).tobytes(),
        np.asarray(removed.ends).tobytes(),
    )
