"""The engine: statements in, documents through, statements that match out."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from fmware.errors import FMwareError, kept
from fmware.filtering._kernel import Automaton, Batch, Outcome, Runner, Want
from fmware.filtering.batch import FilterBatch
from fmware.filtering.errors import (
    DocumentTooActive,
    ForeignTable,
    StatementRefused,
    UnknownStatement,
)
from fmware.filtering.limits import FilterLimits
from fmware.filtering.plan import Resolver, elements_of, has_local, is_plain, segments_of
from fmware.filtering.result import FilterResult, Tried
from fmware.xpath import Path, canonical, parse, to_text
from labeling import Limits, NodeTable, Reader, ReadError, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fmware.xpath import Step

__all__ = ["FilterEngine"]


class FilterEngine:
    """Filters documents against any number of XPath statements at once.

        engine = FilterEngine()
        engine.subscribe("//article[year > 2003]//author", name="recent")
        engine.filter(b"<article><year>2004</year><author/></article>").names  # ['recent']

    Any number of threads may filter at once, and subscribe while others filter: a document is
    answered by exactly the statements there are when its turn comes. Ids are small integers; the
    id of a statement that went may be given to a new one.
    """

    def __init__(
        self,
        *,
        vocabulary: Vocabulary | None = None,
        limits: FilterLimits | None = None,
        read_limits: Limits | None = None,
        entities: Mapping[str, str] | None = None,
    ) -> None:
        self.vocabulary = vocabulary or Vocabulary()
        self.limits = limits or FilterLimits()
        self._automaton = Automaton(self.vocabulary)
        read_limits = read_limits or Limits()
        self._most = read_limits.bytes
        # Names that no statement uses get no ids of their own: a message adds nothing that stays.
        self._reader = Reader(self.vocabulary, limits=read_limits, grow=False, entities=entities)
        self._lock = threading.Lock()
        self._texts: list[str | None] = []
        # By id, as lists: of a dict in which entries come and go, half is gaps.
        self._names: list[str | None] = []
        self._namespaces: dict[int, Mapping[str, str]] = {}
        self._keys: list[object] = []
        self._patterns: dict[object, int] = {}
        self._free: deque[int] = deque()
        self._runners: list[Runner] = []
        self._idle: list[Runner] = []

    def __len__(self) -> int:
        return len(self._texts) - len(self._free)

    @property
    def version(self) -> int:
        """Counts the changes of statements; see `FilterBatch.version`."""
        return self._automaton.version

    @property
    def reader(self) -> Reader:
        """The reader whose tables this engine filters."""
        return self._reader

    # -- statements --

    def subscribe(
        self,
        expression: str | Path,
        *,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        tuples: bool = False,
        wants: Want | None = None,
    ) -> int:
        """Register a statement and get its id; with `tuples`, results hold its path tuples.

        An unprefixed name is in no namespace, as XPath 1.0 has it; prefixes are those of
        `namespaces`. `wants` says more exactly than `tuples` in which columns `filter_many` gives
        what it finds. Raises an `XPathError` that points at what is wrong.
        """
        wants = (Want.TUPLES if tuples else Want.NAME) if wants is None else wants
        path = parse(expression) if isinstance(expression, str) else expression
        text = expression if isinstance(expression, str) else to_text(expression)
        self._check(path, text)
        self._check_room(text)
        with self._lock:
            number = self._number()
            try:
                self._insert(number, path, text, namespaces, wants)
            except BaseException:
                self._free.append(number)
                raise
            self._texts[number] = text
            self._names[number] = name
        return number

    def subscribe_many(
        self, expressions: Iterable[str], *, namespaces: Mapping[str, str] | None = None
    ) -> list[int]:
        """Register many statements; the first that is refused stops it, those before stay."""
        return [self.subscribe(text, namespaces=namespaces) for text in expressions]

    def unsubscribe(self, number: int) -> None:
        """Take a statement out."""
        with self._lock:
            self.text(number)
            self._remove(number)
            self._texts[number] = None
            self._names[number] = None
            self._free.append(number)

    def replace(
        self,
        number: int,
        expression: str | Path,
        *,
        namespaces: Mapping[str, str] | None = None,
        tuples: bool = False,
    ) -> None:
        """Put another statement in a statement's place, under the same id and name.

        The old one is there until the new one is found to be good; a document sees one of them.
        """
        path = parse(expression) if isinstance(expression, str) else expression
        text = expression if isinstance(expression, str) else to_text(expression)
        self._check(path, text)
        with self._lock:
            self.text(number)
            Resolver(self._automaton, namespaces or {}, text).prepare(path)
            self._automaton.begin_change()
            try:
                self._remove(number)
                wants = Want.TUPLES if tuples else Want.NAME
                self._insert(number, path, text, namespaces, wants)
            finally:
                self._automaton.end_change()
            self._texts[number] = text

    def text(self, number: int) -> str:
        """The expression of a statement."""
        text = self._texts[number] if 0 <= number < len(self._texts) else None
        if text is None:
            raise UnknownStatement(f"no statement has the id {number}")
        return text

    def name(self, number: int) -> str:
        """The name of a statement: the one it was given, or its id."""
        return (self._names[number] if number < len(self._names) else None) or str(number)

    def namespaces(self, number: int) -> Mapping[str, str]:
        """The prefixes of a statement."""
        return self._namespaces.get(number, {})

    def statements(self) -> Iterable[tuple[int, str]]:
        """Ids and expressions of all statements."""
        return [(number, text) for number, text in enumerate(self._texts) if text is not None]

    def order(self, number: int) -> list[Tried]:
        """The conditions of a statement, in the order in which the engine looks at them.

        The order depends on the documents that were filtered so far. It is that of the runner that
        has filtered most of them; a set of states takes it over when its next groups are made.
        """
        with self._lock:
            self.text(number)
            runner = max(self._runners, key=lambda each: each.documents, default=None)
            runner = runner or self._runner()
            return [Tried(*each) for each in runner.order(number)]

    def way(
        self, path: Path, *, namespaces: Mapping[str, str] | None = None
    ) -> list[tuple[Step, int, int]]:
        """The way of a path through the automaton, as far as its statements have made one.

        Of each step on elements: itself, the self-loop state that its `//` waits in, 0 for `/`, and
        the state behind it. What predicates ask is attached to these states.
        """
        steps = elements_of(canonical(path)) or ()
        resolve = Resolver(self._automaton, namespaces or {}, to_text(path))
        found = self._automaton.way([s.axis for s in steps], [resolve(s) for s in steps])
        return [(step, *states) for step, states in zip(steps, found, strict=False)]

    def _check(self, path: Path, text: str) -> None:
        limits = self.limits
        if has_local(path):
            raise StatementRefused(f"{text}: has local: steps; the filter takes its filter part")
        if self._automaton.live_states + 2 * len(path.steps) > limits.states:
            raise StatementRefused(f"{text}: over the limit of {limits.states:,} states")

    def _check_room(self, text: str) -> None:
        most = self.limits.statements
        if len(self) >= most:
            raise StatementRefused(f"{text}: there are already {most:,} statements")

    def _number(self) -> int:
        if self._free:
            return self._free.popleft()
        for column in (self._texts, self._names, self._keys):
            column.append(None)
        return len(self._texts) - 1

    def _insert(
        self,
        number: int,
        path: Path,
        text: str,
        namespaces: Mapping[str, str] | None,
        wants: Want,
    ) -> None:
        tuples = wants != Want.NAME
        resolve = Resolver(self._automaton, namespaces or {}, text)
        plain = not tuples and is_plain(path)
        if namespaces or not plain:
            resolve.prepare(path)
        if namespaces:
            self._namespaces[number] = namespaces
        if plain:
            axes = [step.axis for step in path.steps]
            self._automaton.add_plain(number, axes, [resolve(step) for step in path.steps])
            return
        path = canonical(path)
        steps = elements_of(path)
        if steps is None:
            self._automaton.add_dead(number)
            return
        key = resolve.key(to_text(path))
        pattern = self._patterns.get(key)
        if pattern is None:
            plan = path if tuples else None
            pattern = self._automaton.add_pattern(segments_of(steps, resolve), plan, resolve)
            self._patterns[key] = pattern
        elif tuples:
            self._automaton.add_plan(pattern, path, resolve)
        self._automaton.add_to_pattern(number, pattern, wants)
        self._keys[number] = key

    def _remove(self, number: int) -> None:
        gone = self._automaton.remove(number)
        key, self._keys[number] = self._keys[number], None
        if gone >= 0:
            del self._patterns[key]
        self._namespaces.pop(number, None)

    # -- documents --

    def filter(self, document: bytes | NodeTable, *, source: str | None = None) -> FilterResult:
        """Which statements a document matches.

        Raises a `ReadError` for bytes that are not well-formed. A NodeTable must have been read
        by `reader`, or at least with this engine's vocabulary. If statements with new names have
        come since, its names are looked up again; `ForeignTable` if it no longer has them.
        """
        runner = self._runner()
        try:
            if isinstance(document, NodeTable):
                self._check_table(document)
                return self._filter_table(document, runner)
            while True:
                runner.begin(self.limits.work, self.limits.tuples)
                table = self._reader.read(document, source=source, consumer=runner)
                if not runner.consumed:
                    runner.run(table)
                result = self._result(runner, table)
                if result is not None:
                    return result
                # A statement with a new name came between the reading and the run: read again.
        finally:
            self._idle.append(runner)

    def filter_many(self, messages: Sequence[bytes | NodeTable | None]) -> FilterBatch:
        """Which statements each of many messages matches, as columns.

        Messages are read and filtered in one native call, for the length of which other threads
        run. A message that cannot be read or filtered is in the `errors` of what comes back, and
        None stands for a message in which nothing is to be found.
        """
        bodies = list(messages)
        batch = Batch(bodies)
        tables: dict[int, NodeTable] = {}
        errors: dict[int, Exception] = {}
        native = self._reader.native()
        runner = self._runner()
        try:
            runner.begin(self.limits.work, self.limits.tuples)
            while True:
                if native is not None:
                    batch.run(runner, *native, self._most)
                place = len(batch)
                if place == len(bodies):
                    return FilterBatch(batch, bodies, tables, errors, self._reader)
                if batch.outcome == Outcome.STALE_NAMES:
                    continue
                try:
                    if batch.outcome != Outcome.DONE:
                        raise self._failure(batch.outcome)
                    message = bodies[place]
                    if message is None:
                        batch.add(runner, None)
                    else:
                        tables[place] = self._add(batch, runner, message)
                except (ReadError, FMwareError, MemoryError) as error:
                    errors[place] = kept(error)
                    batch.add(runner, None)
        finally:
            self._idle.append(runner)

    def _add(self, batch: Batch, runner: Runner, message: bytes | NodeTable) -> NodeTable:
        """Add a message to a batch that its native reading does not take."""
        if isinstance(message, NodeTable):
            self._check_table(message)
            table = message
        else:
            table = self._reader.read(message)
        while True:
            outcome = batch.add(runner, table)
            if outcome == Outcome.DONE:
                return table
            if outcome != Outcome.STALE_NAMES:
                raise self._failure(outcome, table.source)
            table = _renamed(table)

    def _filter_table(self, table: NodeTable, runner: Runner) -> FilterResult:
        while True:
            runner.begin(self.limits.work, self.limits.tuples)
            runner.run(table)
            result = self._result(runner, table)
            if result is not None:
                return result
            # A statement with a new name has come since the table was read.
            table = _renamed(table)

    def filter_batches(
        self, chunks: Iterable[bytes], *, nodes: int = 65_536, source: str | None = None
    ) -> Iterator[FilterResult]:
        """Filter one document of any length, or without an end, in bounded memory.

        Gives a result a batch of about `nodes` rows. A statement matches the document if it
        matches in one of the batches. An element that fits into half a batch is whole in one, so
        predicates on it are exact. Of larger ones, such as the root, a batch knows the attributes
        and what lies in it: a statement that may hang on more is named in the `undecided` of the
        batch, unless it matches there. A match is never taken back.
        """
        for table in self._reader.read_batches(chunks, nodes=nodes, source=source):
            runner = self._runner()
            try:
                result = self._filter_table(table, runner)
            finally:
                self._idle.append(runner)
            yield result

    def _runner(self) -> Runner:
        """A runner that is idle; as many are made as documents are filtered at once."""
        try:
            return self._idle.pop()
        except IndexError:
            runner = Runner(self._automaton, self.limits.cache, self.limits.active)
            self._runners.append(runner)
            return runner

    def _result(self, runner: Runner, table: NodeTable) -> FilterResult | None:
        """What a runner found; None if the table lacks names that statements use."""
        outcome, ids, tuples, undecided = runner.take()
        if outcome != Outcome.DONE:
            if outcome == Outcome.STALE_NAMES:
                return None
            raise self._failure(outcome, table.source)
        result = FilterResult(ids, table, self, work=runner.work)
        if undecided is not None:
            result.undecided = undecided.tolist()
        for numbers, rows, more in tuples or ():
            result.tuples.update(dict.fromkeys(numbers, rows))
            if more:
                result.truncated += numbers
        return result

    def _failure(self, outcome: int, source: str | None = None) -> Exception:
        if outcome == Outcome.NO_VALUES:
            return ForeignTable("the table was read without values, and statements ask for them")
        if outcome == Outcome.NO_TREE:
            return ForeignTable("the rows of the table are not those of one tree")
        if outcome == Outcome.TOO_ACTIVE:
            return DocumentTooActive(
                f"{source or 'document'}: more than {self.limits.active:,} states are "
                "active at one element; raise FilterLimits.active"
            )
        return MemoryError("no memory was left to filter a document")

    def _check_table(self, table: NodeTable) -> None:
        if table.vocabulary is not self.vocabulary:
            raise ForeignTable("the table was read with another vocabulary; use engine.reader")

    def forget(self) -> None:
        """Drop the lazy DFAs; they grow anew with the next documents."""
        self._idle.clear()
        self._runners.clear()

    def stats(self) -> dict[str, int]:
        """Counts and bytes of the automaton and of the lazy DFAs."""
        total = dict(self._automaton.stats())
        total["statements"] = len(self)
        for runner in list(self._runners):
            for key, value in runner.stats().items():
                total[key] = total.get(key, 0) + value
        return total


def _renamed(table: NodeTable) -> NodeTable:
    """The table with the names that statements use now."""
    renamed = table.renamed()
    if renamed is None:
        raise ForeignTable(
            "statements have come since the table was read, with names that the table did not "
            "keep; read it again with engine.reader"
        )
    return renamed
