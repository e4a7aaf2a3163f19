"""The middleware: an index, statements, messages in, matches out.

A message, or a batch of them, goes this way:

1. The `FilterEngine` reads the messages and runs the filter parts of all statements at once, in one
   native call. What it finds is columns.
2. `Crossings` takes the statements that go on in the corpus: anchors among the nodes that matched,
   their local counterparts by key or by label, joins with the first step of each match part by
   operators of `cmatch`, and the rest of the match parts. Statements that cross from anchors of the
   same tag to the same tag, on the same axis, share an operator, and with it what it has probed.
3. A tuple of message nodes is a match if all its crossings hold; what the main path selects in the
   corpus is described and comes with it.
4. The columns are `Results`. Objects are made when a caller looks at them.

One bad message, or one failing statement, stops nothing: it is in the result's `errors`.

Threads may publish at the same time. What they share and change is guarded as follows: statements
by the engine's own lock and, for what belongs to a statement here, by `_changes`; operators by the
lock of `Joins`; the generation of the index by a `Gate`, which a batch enters and a new generation
has for itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fmware.errors import FMwareError, kept
from fmware.filtering import FilterEngine
from fmware.gate import Gate
from fmware.matching import Evaluators, Resolver
from fmware.matching.clock import Clock
from fmware.matching.crossings import Crossings, Passed
from fmware.matching.described import Descriptions
from fmware.matching.joins import Joins
from fmware.matching.plan import PATHS, Plan
from fmware.matching.registry import Registry
from fmware.matching.results import LocalMatches, LocalNode, Match, Result, Results, Troubles
from fmware.matching.tally import Totals
from fmware.messages import body_of
from fmware.statements import Statement
from index import Index, StoreError
from labeling import Limits, ReadError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

    import numpy.typing as npt
    import pandas as pd

    from cmatch import Counters
    from fmware.filtering import FilterBatch, FilterLimits
    from fmware.matching.crossings import Crossed
    from fmware.matching.joins import Chosen
    from fmware.messages import Message
    from fmware.report import Report
    from fmware.statements.returns import Wanted
    from labeling import NodeTable, Reader

__all__ = [
    "LocalNode",
    "Match",
    "Middleware",
    "MiddlewareClosed",
    "Result",
    "ResultStream",
    "Results",
    "StatementFailed",
]

BATCH = 64
"""Messages of a stream that are worked on together."""
TRIES = 3
"""How often a batch is filtered while statements change, before changes have to wait for it."""


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

    Args:
        index: the index, or where it lies.
        operator: `auto` leaves the choice to the cost model, join by join; `cmatch` and `admatch`
            hold for all joins.
        scheme: the SES scheme of CMatch; naming one chooses CMatch.
        budget: bytes that all operators together may hold.
        threads: threads that probe the index, for each operator.
        follow: take a newer generation of the index as soon as there is one.
        missing: list anchors without a local counterpart in results, beside counting them.
        limits: caps of the filter; `read_limits`: caps of one message.
        entities: characters by entity name, for messages with a DOCTYPE.

    Threads may share it: they publish at the same time, while others change statements. A message
    is answered by exactly the statements, and by the generation of the index, of one moment.
    `async with` closes it without holding up the event loop.
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
        self._most = (read_limits or Limits()).bytes
        self._engine = FilterEngine(limits=limits, read_limits=read_limits, entities=entities)
        self._evaluators = Evaluators()
        self._crossings = self._crossing()
        self._descriptions = Descriptions(self._index)
        self._changes = threading.RLock()
        self._registry = Registry(version=self._engine.version)
        self._numbers: dict[str, int] = {}
        self._counting = threading.Lock()
        self._totals = Totals()
        self._published = 0
        self._gate = Gate()
        self._closed = False
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
        plan = Plan(statement, self._evaluators)
        with self._changes:
            self._check_open()
            if statement.name in self._numbers:
                raise FMwareError(f"there is a statement {statement.name!r} already")
            number = self._engine.subscribe(
                statement.filter,
                name=statement.name,
                namespaces=statement.namespaces,
                wants=plan.wants,
            )
            with self._counting:
                # Before a batch can be answered by it: counting needs its room.
                self._totals.forget(number)
            self._registry = self._registry.put(number, plan, self._engine.version)
            self._numbers[statement.name] = number
        return statement.name

    def unsubscribe(self, name: str) -> None:
        """Take a statement out."""
        with self._changes:
            number = self._numbers.pop(name, None)
            if number is None:
                raise FMwareError(f"there is no statement {name!r}")
            self._engine.unsubscribe(number)
            self._registry = self._registry.put(number, None, self._engine.version)

    @property
    def statements(self) -> list[Statement]:
        """Those that are subscribed, by name."""
        with self._changes:
            numbers = [number for _, number in sorted(self._numbers.items())]
            return [plan.statement for plan in self._registry.plans(numbers)]

    # --- messages ---------------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        """A reader whose tables can be published in place of bytes."""
        return self._engine.reader

    def publish(self, message: Message, *, name: str | None = None) -> Result:
        """Match one message: bytes, str, bytearray, memoryview, a Path, or a table of `reader`.

        An error that a source gives in place of a message is the error of its result.
        """
        return self.publish_batch([message], names=None if name is None else [name])[0]

    def publish_batch(
        self, messages: Sequence[Message], *, names: Sequence[str] | None = None
    ) -> Results:
        """Match messages together: keys and labels are looked up for all of them at once.

        Anything that is not a message, or that cannot be read, is an error of its own result.
        """
        if names is not None and len(names) != len(messages):
            raise ValueError(f"{len(messages)} messages cannot have {len(names)} names")
        with self._counting:
            first = self._published + 1
            self._published += len(messages)
        clock = Clock()
        troubles = Troubles()
        bodies = self._bodies(messages, troubles)
        with self._gate:
            self._check_open()
            if self._follows:
                self._follow(len(messages), troubles)
                self._check_open()  # Outside the gate, another thread may have closed it.
            found, registry = self._filter(bodies)
            for place, error in found.errors.items():
                troubles.add(place, error)
            clock.lap("filter")
            crossed = found.ends_of(2)
            if crossed and crossed[-1]:
                local = self._cross(found, crossed, registry, troubles, clock)
            else:
                local = LocalMatches([0] * len(messages))
            clock.lap("match")
        results = Results(
            first if names is None else [*names], found, registry, local, troubles, clock.seconds
        )
        with self._counting:
            self._totals.batch(results, self._registry)
        return results

    def stream(self, messages: Iterable[Message], *, batch: int = BATCH) -> ResultStream:
        """The results of any number of messages, in their order, `batch` messages at a time."""
        return ResultStream(self, messages, batch)

    async def publish_async(self, message: Message, *, name: str | None = None) -> Result:
        """`publish`, on a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.publish, message, name=name)

    async def stream_async(
        self, messages: AsyncIterator[Message], *, batch: int = BATCH
    ) -> AsyncIterator[Result]:
        """`stream`, for messages that come as they come."""
        _check_batch(batch)
        taken: list[Message] = []
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
        with self._gate.alone():
            self._check_open()
            if not self._index.newer():
                return False
            old, self._index = self._index, self._index.refresh()
            self._joins.move(self._index)
            self._crossings = self._crossing()
            self._descriptions = Descriptions(self._index)
            if self._owned:
                self._retire(old)
            self._owned = True
            return True

    def _crossing(self) -> Crossings:
        """What answers crossings on the generation that is matched against."""
        resolver = Resolver(self._index)
        resolver.prepare(self._engine.vocabulary)
        return Crossings(self._index, self._joins, resolver)

    def filter_stats(self) -> dict[str, int]:
        """Counts and bytes of the filter: its automaton and its lazy DFAs."""
        return self._engine.stats()

    def counters(self) -> dict[str, Counters]:
        """What each operator has done so far, by `axis::tag`."""
        return self._joins.counters()

    def report(self, *, seconds: float = 10.0) -> Report:
        """What was chosen so far, what it cost, and what else it could have cost.

        Samples of what came are replayed with every alternative, for about this many seconds at
        most; other threads may publish meanwhile.
        """
        from fmware.report.collect import Taken

        with self._gate.alone():
            self._check_open()
            plans = dict(self._registry.items())
            with self._counting:
                taken = Taken.of(self._index, self._joins, plans, self._totals)
            self._lent[taken.index] += 1
        try:
            return taken.report(seconds)
        finally:
            with self._gate.alone():
                self._lent[taken.index] -= 1
                self._let_go()

    def _retire(self, index: Index) -> None:
        """Close an index as soon as no report reads it."""
        self._retired.append(index)
        self._let_go()

    def _let_go(self) -> None:
        for index in [each for each in self._retired if not self._lent[each]]:
            self._retired.remove(index)
            del self._lent[index]
            index.close()

    def close(self) -> None:
        """Wait for the batches under way, then let go of everything."""
        with self._gate.alone():
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _check_open(self) -> None:
        if self._closed:
            raise MiddlewareClosed("this middleware is closed; make another one")

    # --- the way of a batch -----------------------------------------------------------------

    def _bodies(
        self, messages: Sequence[Message], troubles: Troubles
    ) -> list[bytes | NodeTable | None]:
        """The messages as the filter takes them; None, and an error, for what is none."""
        bodies: list[bytes | NodeTable | None] = []
        for place, message in enumerate(messages):
            body: bytes | NodeTable | None = None
            if type(message) is bytes:
                body = message
            elif isinstance(message, Exception):
                troubles.add(place, kept(message))
            else:
                try:
                    body = body_of(message, self._most)
                except (ReadError, FMwareError) as error:
                    troubles.add(place, kept(error))
            bodies.append(body)
        return bodies

    def _follow(self, count: int, troubles: Troubles) -> None:
        """Take a newer generation; if it cannot be had, say so and go on with the one at hand."""
        try:
            if self._index.newer():
                with self._gate.outside():
                    self.refresh()
        except (StoreError, OSError) as error:
            for place in range(count):
                troubles.add(place, kept(error))

    def _filter(self, bodies: list[bytes | NodeTable | None]) -> tuple[FilterBatch, Registry]:
        """Run the filter parts; what passed, and the statements that its numbers mean.

        A statement may come or go meanwhile, and its number may be given to another. So the
        registry counts only if it is of the version that answered.
        """
        for _ in range(TRIES):
            found = self._engine.filter_many(bodies)
            registry = self._registry
            if found.version in (registry.version, -1) and not found.mixed:
                return found, registry
            with self._changes:
                pass  # A change is under way: wait until the registry knows it, too.
            if found.version == self._registry.version and not found.mixed:
                return found, self._registry
        with self._changes:
            return self._engine.filter_many(bodies), self._registry

    def _cross(
        self,
        found: FilterBatch,
        ends: Sequence[int],
        registry: Registry,
        troubles: Troubles,
        clock: Clock,
    ) -> LocalMatches:
        """Match what passed against the corpus; `ends` says which messages anything passed in."""
        lines = found.passed()
        numbers = [number for number, _, _ in lines]
        passed = [
            Passed(plan, tuples, place)
            for plan, (_, tuples, place) in zip(registry.plans(numbers), lines, strict=True)
        ]
        tables = [
            found.table(place) if begin < end else None
            for place, (begin, end) in enumerate(pairwise([0, *ends]))
        ]
        crossed = self._crossings.match(passed, tables, missing=self._missing, clock=clock)
        troubles.unmatched = crossed.unmatched
        for anchor in crossed.missing:
            troubles.missing.setdefault(anchor.message, []).append(anchor)
        for number, error in crossed.failures:
            failure = StatementFailed(passed[number].plan.name, kept(error))
            for place in dict.fromkeys(passed[number].place.tolist()):
                troubles.add(place, failure)
        return self._described(crossed, passed, len(found))

    def _described(self, crossed: Crossed, passed: Sequence[Passed], count: int) -> LocalMatches:
        """The matches in the order of messages, with what is said of their local nodes."""
        columns: list[npt.NDArray[Any]] = [
            crossed.passed,
            crossed.line,
            crossed.place,
            crossed.segment,
            crossed.start,
        ]
        if count > 1:
            order = np.argsort(crossed.place, kind="stable")
            columns = [column[order] for column in columns]
        local = LocalMatches([0] * count)
        describe = self._descriptions.reader().of
        selected: set[tuple[int, int, int]] = set()
        lines = zip(*(column.tolist() for column in columns), strict=True)
        for number, line, place, segment, start in lines:
            plan = passed[number].plan
            rows: tuple[int, ...] = ()
            if plan.nodes:
                rows = tuple(passed[number].tuples[line].tolist())
                if not plan.nodes & PATHS:
                    # Without the tuple, a node that several tuples select is one match.
                    if (number, place, rows[-1]) in selected:
                        continue
                    selected.add((number, place, rows[-1]))
            local.plans.append(plan)
            local.rows.append(rows)
            local.nodes.append(None if segment < 0 else describe(segment, start, plan.read))
            local.ends[place] += 1
        local.ends = [*accumulate(local.ends)]
        return local


class ResultStream:
    """The results of a stream of messages, made as they are asked for.

    To iterate gives a `Result` a message, `batches` gives `Results`. `to_arrow`, `to_pandas`,
    `to_json_lines` and the Arrow PyCapsule interface read the stream to its end; messages that
    could not be answered have no row there, `errors` counts them.
    """

    def __init__(self, middleware: Middleware, messages: Iterable[Message], batch: int) -> None:
        _check_batch(batch)
        self._middleware = middleware
        self._source = iter(messages)
        self._batch = batch
        self.errors = 0
        """Messages so far whose answer is not whole, see `Result.problems`."""

    def batches(self) -> Iterator[Results]:
        """The results, batch by batch."""
        while taken := list(islice(self._source, self._batch)):
            results = self._middleware.publish_batch(taken)
            self.errors += len(results.incomplete)
            yield results

    def __iter__(self) -> Iterator[Result]:
        for results in self.batches():
            yield from results

    def to_arrow(self) -> pa.Table:
        """All matches of the stream, see `Results.to_arrow`."""
        return self._reader().read_all()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The same as a pandas DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_json_lines(self) -> bytes:
        """The same as lines of JSON, as `fmware match` writes them."""
        return b"".join(results.to_json_lines() for results in self.batches())

    def __arrow_c_schema__(self) -> object:
        from fmware.matching.arrow import SCHEMA

        return SCHEMA.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._reader().__arrow_c_stream__(requested_schema)

    def _reader(self) -> pa.RecordBatchReader:
        from fmware.matching.arrow import SCHEMA

        made = (batch for results in self.batches() for batch in results.to_arrow().to_batches())
        return pa.RecordBatchReader.from_batches(SCHEMA, made)


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"a batch has at least one message, not {batch}")
