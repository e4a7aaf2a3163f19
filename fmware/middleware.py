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
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from fmware.errors import FMwareError, kept
from fmware.filtering import FilterEngine
from fmware.gate import Gate
from fmware.index import CorruptIndex, Index, StoreError
from fmware.labeling import Limits, ReadError
from fmware.matching import Evaluators, Resolver
from fmware.matching._kernel import Clock
from fmware.matching.crossings import Crossings
from fmware.matching.described import Descriptions
from fmware.matching.joins import Joins
from fmware.matching.limits import MatchLimits
from fmware.matching.plan import Plan
from fmware.matching.registry import Registry
from fmware.matching.results import LocalMatches, LocalNode, Match, Result, Results, Troubles
from fmware.matching.tally import Totals
from fmware.messages import body_of
from fmware.statements import Statement

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Self

    import pandas as pd

    from fmware.cmatch import Counters
    from fmware.filtering import FilterBatch, FilterLimits, Subscription
    from fmware.labeling import NodeTable, Reader
    from fmware.matching._kernel import Batch
    from fmware.matching.joins import Chosen
    from fmware.messages import Message
    from fmware.report import Report
    from fmware.statements.returns import Wanted

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
AHEAD = 16
"""Batches of a stream that may wait for the disk while others go on."""
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
        threads: threads of each operator that fetch candidates which are not in memory; with 0,
            the caller fetches them, and all that comes after waits.
        follow: take a newer generation of the index as soon as there is one.
        missing: list anchors without a local counterpart in results, beside counting them.
        limits: caps of the filter; `read_limits`: caps of one message; `match_limits`: caps of
            what one message may have of the corpus, and of values in what is written of it.
        entities: characters by entity name, for messages with a DOCTYPE.
        owner: gives the owner of a statement by its name; anchors without a local counterpart are
            then also counted by owner, in `Results.troubles.unmatched_by`.

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
        threads: int = 1,
        follow: bool = True,
        missing: bool = False,
        limits: FilterLimits | None = None,
        read_limits: Limits | None = None,
        match_limits: MatchLimits | None = None,
        entities: Mapping[str, str] | None = None,
        owner: Callable[[str], str] | None = None,
    ) -> None:
        self._owner = owner
        self._match_limits = match_limits or MatchLimits()
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
        self._descriptions = Descriptions(self._index.lease())
        self._changes = threading.RLock()
        self._registry = Registry(version=self._engine.version)
        self._counting = threading.Lock()
        self._totals = Totals()
        self._published = 0
        self._gate = Gate()
        self._closed = False
        self._lent: Counter[Index] = Counter()
        """Reports and batches under way that read an index outside the gate."""
        self._lending = threading.Lock()
        self._retired: list[Index] = []

    # --- statements -------------------------------------------------------------------------

    def subscribe(
        self,
        statement: str | Statement,
        *,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        returns: Wanted | None = None,
    ) -> Subscription:
        """Register a statement; what is returned is its id, and has its name.

        Args:
            statement: an XPath, whose steps in `local:` cross into the corpus, or a `Statement`.
            name: what results call it; its text unless said. No two statements have the same.
            namespaces: prefixes of the XPath.
            returns: what a match holds: "message", "local", "value", "fragment", or several.

        Raises:
            XPathError: points at what is wrong.
            DuplicateName: a statement of this name is registered.
            MiddlewareClosed: the middleware is closed.
        """
        if isinstance(statement, str):
            statement = Statement.parse(
                statement, name=name, namespaces=namespaces, returns=returns
            )
        plan = Plan(statement, self._evaluators)
        with self._changes:
            self._check_open()
            number = self._engine.subscribe(
                statement.planned or statement.filter,
                name=statement.name,
                namespaces=statement.namespaces,
                wants=plan.wants,
            )
            with self._counting:
                # Before a batch can be answered by it: counting needs its room.
                self._totals.forget(number)
            self._registry = self._registry.put(int(number), plan, self._engine.version)
        return number

    def unsubscribe(self, statement: int | str) -> None:
        """Take a statement out: by what `subscribe` returned, by its id, or by its name.

        Raises an `UnknownStatement` if it is not there.
        """
        with self._changes:
            number = self._engine.number(statement)
            self._engine.unsubscribe(number)
            self._registry = self._registry.put(number, None, self._engine.version)

    @property
    def statements(self) -> list[Statement]:
        """Those that are subscribed, by name."""
        with self._changes:
            numbers = [number for _, number in sorted(self._engine.named.items())]
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
        return Result(self._begin([message], None if name is None else [name]).finish(), 0)

    def publish_batch(
        self, messages: Sequence[Message], *, names: Sequence[str] | None = None
    ) -> Results:
        """Match messages together: keys and labels are looked up for all of them at once.

        Anything that is not a message, or that cannot be read, is an error of its own result.
        """
        if names is not None and len(names) != len(messages):
            raise ValueError(f"{len(messages)} messages cannot have {len(names)} names")
        return self._begin(messages, names).finish()

    def _begin(self, messages: Sequence[Message], names: Sequence[str] | None) -> Flight:
        """Filter messages, and ask operators for what passed."""
        with self._counting:
            first = self._published + 1
            self._published += len(messages)
        flight = Flight(self, first if names is None else [*names])
        troubles = flight.troubles
        bodies = self._bodies(messages, troubles)
        with self._gate:
            self._check_open()
            if self._follows:
                self._follow(len(messages), troubles)
            found, flight.registry = self._filter(bodies)
            flight.found = found
            for place, error in found.errors.items():
                troubles.add(place, error)
            flight.clock.lap("filter")
            if found.crosses:
                flight.cross(self._crossings, self._descriptions)
            if flight.waits:
                self._lend(flight.index)
            else:
                flight.end()
        return flight

    def _lend(self, index: Index) -> None:
        """Keep an index open until it is given back."""
        with self._lending:
            self._lent[index] += 1

    def _give_back(self, index: Index) -> None:
        with self._lending:
            self._lent[index] -= 1
            self._let_go()

    def stream(
        self, messages: Iterable[Message], *, batch: int = BATCH, ordered: bool = True
    ) -> ResultStream:
        """The results of any number of messages, `batch` messages at a time.

        If candidates have to be fetched from disk for a batch, those after it go on meanwhile, up
        to 16 of them. Results come in the order of messages; unless that is not wanted, and then
        those of a batch that waits come later, and hold up nothing.
        """
        return ResultStream(self, messages, batch, ordered=ordered)

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
            self._move(self._index.refresh())
            self._owned = True
            return True

    def move(self, index: Index) -> None:
        """Go on with this index, of the same corpus, which stays the caller's to close."""
        with self._gate.alone():
            self._check_open()
            self._move(index)
            self._owned = False

    def _move(self, index: Index) -> None:
        """Use another index; REQUIRES: no batch is under way."""
        old, self._index = self._index, index
        self._joins.move(index)
        self._crossings = self._crossing()
        self._descriptions = Descriptions(index.lease())
        if self._owned:
            self._retire(old)

    @property
    def damage(self) -> CorruptIndex | None:
        """What was found to be wrong with the files of this generation; None if nothing was.

        An operator that meets damage is replaced, and its batch is answered from other lists that
        are whole. So the answers are right, and this says that they will not be for ever.
        """
        return self._joins.damage

    def check(self) -> None:
        """See that all that was answered so far can be trusted.

        A file of an index that is written to under its reader can give answers that nobody wrote.
        Every batch is checked before its results are given. A caller that writes values or
        fragments down from results, and must be sure of them, checks when that is done.

        Raises:
            CorruptIndex: a file was written to since it was opened, or damage was found in one.
        """
        try:
            self._index.check()
        except CorruptIndex as error:
            self._joins.met(error)
            raise
        if self._joins.damage is not None:
            raise self._joins.damage

    def _crossing(self) -> Crossings:
        """What answers crossings on the generation that is matched against."""
        resolver = Resolver(self._index)
        resolver.prepare(self._engine.vocabulary)
        pairs = self._match_limits.pairs
        return Crossings(self._index, self._joins, resolver, pairs=pairs)

    def forget(self) -> None:
        """Drop what the filter has learnt of messages; it learns anew from the next ones.

        What a message then costs depends on the statements and on the message alone.
        """
        self._engine.forget()

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
            self._lend(taken.index)
        try:
            return taken.report(seconds)
        finally:
            self._give_back(taken.index)

    def _retire(self, index: Index) -> None:
        """Close an index as soon as nothing reads it."""
        with self._lending:
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
            # Results that need the index keep it by themselves.
            del self._descriptions
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
                self._check_open()  # Outside the gate, another thread may have closed it.
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


class Flight:
    """A batch that is under way.

    It is filtered, and operators were asked for what passed. Mostly that is all: its results are
    there. If an operator still fetches candidates that were not in memory, the batch waits for
    them outside the gate, and `finish` ends it; its index stays open until then.
    """

    __slots__ = (
        "_batch",
        "_crossings",
        "_descriptions",
        "_middleware",
        "_names",
        "_results",
        "clock",
        "found",
        "registry",
        "troubles",
    )

    found: FilterBatch
    registry: Registry
    _crossings: Crossings
    _descriptions: Descriptions

    def __init__(self, middleware: Middleware, names: list[str] | int) -> None:
        self._middleware = middleware
        self._names = names
        self._batch: Batch | None = None
        self._results: Results | None = None
        self.clock = Clock()
        self.troubles = Troubles()

    def cross(self, crossings: Crossings, descriptions: Descriptions) -> None:
        """Ask for what passed."""
        self._crossings = crossings
        self._descriptions = descriptions
        self._batch = crossings.begin(self.found, self.registry, clock=self.clock)

    @property
    def index(self) -> Index:
        """The one that was asked."""
        return self._crossings.index

    @property
    def waits(self) -> bool:
        """Whether an operator still fetches candidates."""
        return self._batch is not None and self._batch.waiting

    @property
    def ready(self) -> bool:
        """Whether `finish` would not wait."""
        return self._results is not None or (self._batch is not None and self._batch.ready)

    def finish(self) -> Results:
        """The results, when all that was asked for has come."""
        if self._results is None:
            try:
                self.end()
            finally:
                self._middleware._give_back(self.index)
        assert self._results is not None
        return self._results

    def drop(self) -> None:
        """Give the batch up."""
        if self._results is None and self._batch is not None:
            self._batch.give_up(self._crossings.joins)
            self._middleware._give_back(self.index)

    def end(self) -> None:
        """Make the results; REQUIRES: the thread is inside the gate, or the index was lent."""
        middleware, found, batch = self._middleware, self.found, self._batch
        local = LocalMatches.none(len(found)) if batch is None else self._crossed(batch)
        self.clock.lap("match")
        self._results = results = Results(
            self._names,
            found,
            self.registry,
            local,
            self.troubles,
            self.clock.seconds,
            middleware._match_limits,
        )
        with middleware._counting:
            middleware._totals.batch(results, middleware._registry)

    def _crossed(self, batch: Batch) -> LocalMatches:
        """What crossed into the corpus, and what went wrong there."""
        crossings = self._crossings
        crossings.end(batch)
        for _, error, _ in batch.failures:
            crossings.joins.met(error)
        try:
            crossings.index.check()
        except CorruptIndex as changed:
            return self._distrusted(batch, changed)
        if batch.troubled:
            self._note(batch)
        return LocalMatches(
            batch.hits, batch.plans, batch.numbers, batch.widths, self._descriptions
        )

    def _note(self, batch: Batch) -> None:
        """Note what a batch could not answer, or not wholly."""
        troubles, owner = self.troubles, self._middleware._owner
        troubles.full = batch.full()
        troubles.unmatched = batch.unmatched()
        if owner is not None:
            owners = [owner(plan.name) for plan in batch.plans]
            troubles.unmatched_by = batch.unmatched_by(owners)
        if self._middleware._missing:
            for anchor in self._crossings.missing(batch):
                troubles.missing.setdefault(anchor.message, []).append(anchor)
        for number, error, places in batch.failures:
            failure = StatementFailed(batch.plans[number].name, kept(error))
            for place in places:
                troubles.add(place, failure)
        for number, place in sorted(batch.truncated):
            troubles.cut(place, batch.plans[number].name)

    def _distrusted(self, batch: Batch, error: CorruptIndex) -> LocalMatches:
        """No statement that asked the corpus has an answer: what was read cannot be trusted."""
        self._crossings.joins.met(error)
        for number, plan in enumerate(batch.plans):
            failure = StatementFailed(plan.name, kept(error))
            for place in batch.places_of(number):
                self.troubles.add(place, failure)
        return LocalMatches.none(len(self.found))


class ResultStream:
    """The results of a stream of messages, made as they are asked for.

    To iterate gives a `Result` a message, `batches` gives `Results`. `to_arrow`, `to_pandas`,
    `to_json_lines` and the Arrow PyCapsule interface read the stream to its end; messages that
    could not be answered have no row there, `errors` counts them.
    """

    def __init__(
        self, middleware: Middleware, messages: Iterable[Message], batch: int, *, ordered: bool
    ) -> None:
        _check_batch(batch)
        self._middleware = middleware
        self._source = iter(messages)
        self._batch = batch
        self._ordered = ordered
        self.errors = 0
        """Messages so far whose answer is not whole, see `Result.problems`."""

    def batches(self) -> Generator[Results, None, None]:
        """The results, batch by batch."""
        flights: deque[Flight] = deque()
        try:
            while taken := list(islice(self._source, self._batch)):
                flights.append(self._middleware._begin(taken, None))
                yield from self._landed(flights, AHEAD)
            yield from self._landed(flights, 0)
        finally:
            for flight in flights:
                flight.drop()

    def _landed(self, flights: deque[Flight], most: int) -> Iterator[Results]:
        """End batches that have all they need, and as many more that `most` are left."""
        while flights:
            ready = [flight for flight in flights if flight.ready]
            if self._ordered:
                ready = ready[:1] if ready and ready[0] is flights[0] else []
            if not ready and len(flights) <= most:
                return
            for flight in ready or [flights[0]]:
                flights.remove(flight)
                results = flight.finish()
                self.errors += len(results.incomplete)
                yield results

    def __iter__(self) -> Iterator[Result]:
        for results in self.batches():
            yield from results

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.Table:
        """All matches of the stream, see `Results.to_arrow`."""
        return self._reader(columns).read_all()

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

    def _reader(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        from fmware.matching.arrow import schema_of

        schema = schema_of(columns)
        tables = (results.to_arrow(schema.names) for results in self.batches())
        made = (batch for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(schema, made)


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ValueError(f"a batch has at least one message, not {batch}")
