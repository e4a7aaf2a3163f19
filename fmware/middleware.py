"""The middleware: an index, statements, messages in, matches out.

A message, or a batch of them, goes this way:

1. The `FilterEngine` reads it and runs the filter parts of all statements at once.
2. For every statement that passed, the anchors of its crossings are found among the nodes that
   matched, and the `Resolver` finds their local counterparts, by key or by label.
3. Operators of `cmatch` join the counterparts with the first step of each match part, in the way
   that is expected to cost least. Statements that cross from anchors of the same tag to the same
   tag, on the same axis, share one, and with it what it has already probed.
4. `LocalPart` follows the match parts to their end, in the corpus.
5. A tuple of message nodes is a match if all its crossings hold; what the main path selects in the
   corpus comes with it.

One bad message, or one failing statement, stops nothing: it is in the result's `errors`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from fmware.errors import FMwareError, kept
from fmware.filtering import FilterEngine
from fmware.matching import Evaluators, Resolver
from fmware.matching.batch import Clock, Plan
from fmware.matching.crossings import Crossings, Passed
from fmware.matching.described import Descriptions
from fmware.matching.joins import Joins
from fmware.matching.results import LocalNode, Match, Result
from fmware.matching.tally import Totals
from fmware.statements import Returns, Statement
from index import Index, StoreError
from labeling import Limits, Reader, ReadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from cmatch import Counters
    from fmware.filtering import FilterLimits
    from fmware.matching.joins import Chosen
    from fmware.report import Report
    from fmware.statements.returns import Wanted
    from labeling import NodeTable

    Message = tuple[str, bytes | NodeTable]

__all__ = ["LocalNode", "Match", "Middleware", "MiddlewareClosed", "Result", "StatementFailed"]

NO_TUPLE: Final = np.empty((1, 0), np.int32)
"""Stands for a match whose nodes were not asked for."""
BATCH = 64
"""Messages of a stream that are worked on together."""


class MiddlewareClosed(FMwareError):
    """Used after it was closed."""


class StatementFailed(FMwareError):
    """A statement could not be answered for a message; `cause` says why."""

    def __init__(self, statement: str, cause: Exception) -> None:
        self.statement = statement
        self.cause = cause
        super().__init__(f"statement {statement}: {cause}")


class Middleware:
    """Filters messages and matches what passes against an index.

        with Middleware("corpus.fm") as middleware:
            middleware.subscribe("//order/book[quantity > 5]/local:publisher", name="bulk")
            for match in middleware.publish(message).matches: ...

    - `operator`: `auto` leaves it to the cost model, join by join; `cmatch` and `admatch` are for
      all of them. `scheme`: the SES scheme of CMatch; who names one has chosen CMatch.
    - `budget`: bytes that all operators together may hold; `threads`: those that probe, for each.
    - `follow`: take a newer generation of the index as soon as there is one.
    - `missing`: list anchors without a local counterpart in results, beside counting them.

    Safe to share between threads; batches are worked on one at a time.
    """

    def __init__(
        self,
        index: str | Path | Index,
        *,
        operator: Chosen = "auto",
        scheme: str | None = None,
        budget: int = 64 << 20,
        threads: int = 0,
        follow: bool = True,
        missing: bool = False,
        limits: FilterLimits | None = None,
        read_limits: Limits | None = None,
        entities: Mapping[str, str] | None = None,
    ) -> None:
        self._owned = not isinstance(index, Index)
        self._index = index if isinstance(index, Index) else Index.open(index)
        self._joins = Joins(
            self._index, operator=operator, scheme=scheme, budget=budget, threads=threads
        )
        self._follows = follow
        self._missing = missing
        self._engine = FilterEngine(limits=limits, read_limits=read_limits, entities=entities)
        # Paths of results have names that no statement has; a closed reader would not keep them.
        self._reader = Reader(
            self._engine.vocabulary, limits=read_limits or Limits(), entities=entities
        )
        self._evaluators = Evaluators()
        self._crossings = self._crossing()
        self._described = Descriptions(self._index)
        self._plans: dict[int, Plan] = {}
        self._numbers: dict[str, int] = {}
        self._totals = Totals()
        self._lock = threading.RLock()
        self._closed = False
        self._published = 0
        self._lent: Counter[Index] = Counter()
        """Reports under way that read an index, beside the batches."""
        self._retired: list[Index] = []

    # --- statements -------------------------------------------------------------------------

    def subscribe(
        self,
        statement: str | Statement,
        *,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        returns: Wanted | None = None,
    ) -> str:
        """Register a statement; its name, its text unless another is given, is returned."""
        if isinstance(statement, str):
            statement = Statement.parse(
                statement, name=name, namespaces=namespaces, returns=returns
            )
        with self._lock:
            self._check_open()
            if statement.name in self._numbers:
                raise FMwareError(f"there is a statement {statement.name!r} already")
            number = self._engine.subscribe(
                statement.filter,
                name=statement.name,
                namespaces=statement.namespaces,
                tuples=bool(statement.crossings) or Returns.MESSAGE in statement.returns,
            )
            self._plans[number] = Plan(statement, self._evaluators)
            self._totals.forget(number)
            self._numbers[statement.name] = number
        return statement.name

    def unsubscribe(self, name: str) -> None:
        """Take a statement out."""
        with self._lock:
            number = self._numbers.pop(name, None)
            if number is None:
                raise FMwareError(f"there is no statement {name!r}")
            del self._plans[number]
            self._engine.unsubscribe(number)

    @property
    def statements(self) -> list[Statement]:
        """Those that are subscribed, by name."""
        return [self._plans[number].statement for _, number in sorted(self._numbers.items())]

    def _crossing(self) -> Crossings:
        """What answers crossings on the generation that is matched against."""
        resolver = Resolver(self._index)
        resolver.prepare(self._engine.vocabulary)
        return Crossings(self._index, self._joins, resolver)

    # --- messages ---------------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        """A reader whose tables can be published in place of bytes."""
        return self._reader

    def publish(self, message: bytes | NodeTable, *, name: str | None = None) -> Result:
        """Match one message."""
        return self.publish_batch([message], names=None if name is None else [name])[0]

    def publish_batch(
        self, messages: Sequence[bytes | NodeTable], *, names: Sequence[str] | None = None
    ) -> list[Result]:
        """Match messages together: keys and labels are looked up for all of them at once."""
        with self._lock:
            self._check_open()
            first = self._published + 1
            called = names or [str(first + place) for place in range(len(messages))]
            self._published += len(messages)
            return self._run(list(zip(called, messages, strict=True)))

    def stream(self, messages: Iterable[bytes], *, batch: int = BATCH) -> Iterator[Result]:
        """The results of any number of messages, in their order, so many at a time."""
        source = iter(messages)
        while taken := list(islice(source, batch)):
            yield from self.publish_batch(taken)

    async def publish_async(self, message: bytes, *, name: str | None = None) -> Result:
        """`publish`, on a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.publish, message, name=name)

    async def stream_async(
        self, messages: AsyncIterator[bytes], *, batch: int = BATCH
    ) -> AsyncIterator[Result]:
        """`stream`, for messages that come as they come."""
        taken: list[bytes] = []
        async for message in messages:
            taken.append(message)
            if len(taken) == batch:
                for result in await asyncio.to_thread(self.publish_batch, taken):
                    yield result
                taken = []
        for result in await asyncio.to_thread(self.publish_batch, taken) if taken else ():
            yield result

    # --- the index --------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The generation that is matched against."""
        return self._index

    def refresh(self) -> bool:
        """Go on with the newest generation of the index; whether there was a newer one."""
        with self._lock:
            self._check_open()
            if not self._index.newer():
                return False
            old, self._index = self._index, self._index.refresh()
            self._joins.move(self._index)
            self._crossings = self._crossing()
            self._described = Descriptions(self._index)
            if self._owned:
                self._retire(old)
            self._owned = True
            return True

    def filter_stats(self) -> dict[str, int]:
        """Counts and bytes of the filter: its automaton and its lazy DFAs."""
        return self._engine.stats()

    def counters(self) -> dict[str, Counters]:
        """What each operator has done so far, by `axis::tag`."""
        return self._joins.counters()

    def report(self, *, seconds: float = 10.0) -> Report:
        """What was chosen so far, what it cost, and what else it could have cost.

        Samples of what came are replayed with every alternative, for about so many seconds at most;
        other threads may publish meanwhile.
        """
        from fmware.report.collect import Taken

        with self._lock:
            self._check_open()
            taken = Taken.of(self._index, self._joins, self._plans, self._totals)
            self._lent[taken.index] += 1
        try:
            return taken.report(seconds)
        finally:
            with self._lock:
                self._lent[taken.index] -= 1
                self._let_go()

    def _retire(self, index: Index) -> None:
        """Close an index when nobody reads it any more."""
        self._retired.append(index)
        self._let_go()

    def _let_go(self) -> None:
        for index in [each for each in self._retired if not self._lent[each]]:
            self._retired.remove(index)
            del self._lent[index]
            index.close()

    def close(self) -> None:
        """Wait for what is under way, then let go of everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._joins.close()
            if self._owned:
                self._retire(self._index)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise MiddlewareClosed("this middleware is closed; make another one")

    # --- the way of a batch -----------------------------------------------------------------

    def _run(self, messages: list[Message]) -> list[Result]:
        clock = Clock()
        results = [Result(name) for name, _ in messages]
        if self._follows:
            self._follow(results)
        passed = self._filter(results, messages)
        clock.lap("filter")
        self._cross(passed, results, clock)
        self._described.turn()
        clock.lap("match")
        for result in results:
            result.seconds = clock.seconds
        self._totals.batch(results, clock.seconds)
        return results

    def _follow(self, results: list[Result]) -> None:
        """Take a newer generation; if it cannot be had, say so and go on with the one at hand."""
        try:
            self.refresh()
        except (StoreError, OSError) as error:
            for result in results:
                result.errors.append(kept(error))

    def _filter(self, results: list[Result], messages: list[Message]) -> list[Passed]:
        """Run the filter parts; the statements that let messages pass."""
        passed: dict[int, tuple[Plan, list[int], list[npt.NDArray[np.int32]]]] = {}
        ids: list[npt.NDArray[np.int32]] = []
        for place, (result, (_, message)) in enumerate(zip(results, messages, strict=True)):
            try:
                table = self._reader.read(message) if isinstance(message, bytes) else message
                found = self._engine.filter(table)
            except (ReadError, FMwareError) as error:
                result.errors.append(kept(error))
                continue
            result.table = found.table
            result.undecided = [self._engine.name(number) for number in found.undecided]
            ids.append(found.ids)
            for number in found.ids.tolist():
                plan = self._plans[number]
                if plan.by_name is not None:
                    result.matches.append(plan.by_name)
                else:
                    _, places, tuples = passed.setdefault(number, (plan, [], []))
                    own = found.tuples.get(number, NO_TUPLE)
                    places += [place] * len(own)
                    tuples.append(own)
        self._totals.passing(ids)
        return [
            Passed(plan, np.concatenate(tuples), np.array(places, np.int64))
            for plan, places, tuples in passed.values()
        ]

    def _cross(self, passed: Sequence[Passed], results: list[Result], clock: Clock) -> None:
        """Match what passed against the corpus, and put it into the results."""
        tables = [result.table for result in results]
        found = self._crossings.match(passed, tables, missing=self._missing, clock=clock)
        for place, count in found.unmatched.items():
            results[place].unmatched = count
        for anchor in found.missing:
            results[anchor.message].missing.append(anchor)
        for number, error in found.failures:
            failure = StatementFailed(passed[number].plan.statement.name, kept(error))
            for place in dict.fromkeys(passed[number].place.tolist()):
                results[place].errors.append(failure)
        columns = (found.passed, found.line, found.place, found.segment, found.start)
        describe = self._described.of
        for number, line, place, segment, start in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            plan = passed[number].plan
            rows = tuple(passed[number].tuples[line].tolist()) if plan.told else ()
            local = None if segment < 0 else describe(segment, start, plan.read)
            results[place].matches.append(Match(plan.statement.name, rows, local))
