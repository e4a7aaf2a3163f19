"""The engine: statements in, documents through, statements that match out."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from fmware.errors import FMwareError, kept
from fmware.filtering._kernel import Automaton, FilterBatch, Outcome, Runner, Want
from fmware.filtering.changes import (
    Changes,
    Insert,
    InsertPlain,
    InsertRule,
    Remove,
    RemoveRule,
)
from fmware.filtering.errors import (
    DocumentTooActive,
    DuplicateName,
    ForeignTable,
    StatementRefused,
    UnknownStatement,
)
from fmware.filtering.limits import FilterLimits
from fmware.filtering.maximal import MaximalSet
from fmware.filtering.plan import Resolver, elements_of, has_local, is_plain, segments_of
from fmware.filtering.result import FilterResult, Tried
from fmware.filtering.rules import compiled, paths_in
from fmware.filtering.subscription import Subscription
from fmware.labeling import Limits, NodeTable, Reader, ReadError, Vocabulary
from fmware.xpath import Path, Plan, canonical, plan, plan_of, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fmware.filtering.changes import Change
    from fmware.xpath import Step

__all__ = ["FilterEngine"]


class FilterEngine:
    """Filters documents against any number of XPath statements at once.

        engine = FilterEngine()
        engine.subscribe("//article[year > 2003]//author", name="recent")
        engine.filter(b"<article><year>2004</year><author/></article>").names  # ['recent']

    Any number of threads may filter at once, and subscribe while others filter: a document is
    answered by exactly the statements of one moment, no earlier than the call that hands it in.
    Changes do not wait for documents. Ids are small integers; the
    id of a statement that went may be given to a new one.
    """

    def __init__(
        self,
        *,
        vocabulary: Vocabulary | None = None,
        limits: FilterLimits | None = None,
        read_limits: Limits | None = None,
        entities: Mapping[str, str] | None = None,
        maximal: bool = False,
    ) -> None:
        """With `maximal`, only statements that no other one covers are filtered by.

        Results then say exactly whether any statement matches, and name those of the maximal set
        that do. Such an engine takes less memory; it gives no tuples.
        """
        self.vocabulary = vocabulary or Vocabulary()
        self.limits = limits or FilterLimits()
        self._automaton = Automaton(self.vocabulary)
        self._changes = Changes(self._automaton)
        read_limits = read_limits or Limits()
        self._most = read_limits.bytes
        # Names that no statement uses get no ids of their own: a message adds nothing that stays.
        self._reader = Reader(self.vocabulary, limits=read_limits, grow=False, entities=entities)
        self._lock = threading.Lock()
        self._texts: list[str | None] = []
        # By id, as lists: of a dict in which entries come and go, half is gaps.
        self._names: list[str | None] = []
        self._numbers: dict[str, int] = {}
        self._namespaces: dict[int, Mapping[str, str]] = {}
        self._free: deque[int] = deque()
        self._atoms: dict[int, list[int]] = {}
        """By statement with a rule, the numbers that its paths have in the automaton."""
        self._hidden = 0
        self._runners: list[Runner] = []
        self._idle: list[Runner] = []
        self._maximal = MaximalSet(self._place, self._remove) if maximal else None

    def __len__(self) -> int:
        return len(self._texts) - len(self._free) - self._hidden

    @property
    def version(self) -> int:
        """Counts the changes of statements; see `FilterBatch.version`."""
        return self._changes.version

    @property
    def reader(self) -> Reader:
        """The reader whose tables this engine filters."""
        return self._reader

    # -- statements --

    def subscribe(
        self,
        expression: str | Path | Plan,
        *,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        variables: Mapping[str, str | float | bool] | None = None,
        tuples: bool = False,
        wants: Want | None = None,
    ) -> Subscription:
        """Register a statement; what is returned is its id, and has its name.

        Any XPath 1.0 expression will do; its context is the document. A node-set holds if it is not
        empty, any other value by `boolean()`.

        Args:
            expression: an XPath, or a path or plan that was made of one.
            name: what results call it; its id unless said. No two statements have the same.
            namespaces: prefixes; an unprefixed name is in no namespace, as XPath 1.0 has it.
            variables: the values of `$names`.
            tuples: have results hold its path tuples. Those of a path of the native subset have a
                node for each step. Those of any other expression have one node, which it selects;
                where that is no row of the table, its parent or the root element stands for it,
                and the root element for a value.
            wants: more exactly than `tuples`, in which columns `filter_many` gives what it finds.

        Raises:
            XPathError: points at what is wrong.
            DuplicateName: a statement of this name is registered.
            StatementRefused: it goes on in the corpus, or there are too many.
        """
        wants = (Want.TUPLES if tuples else Want.NAME) if wants is None else wants
        planned = _planned(expression, variables)
        self._check(planned)
        self._check_room(planned.text)
        with self._lock:
            if name is not None and name in self._numbers:
                raise DuplicateName(f"there is a statement {name!r} already")
            number = self._number()
            try:
                if self._maximal is None:
                    self._insert(number, planned, namespaces, wants)
                else:
                    self._add_covered(number, planned, namespaces, wants)
            except BaseException:
                self._free.append(number)
                raise
            self._texts[number] = planned.text
            self._names[number] = name
            if name is not None:
                self._numbers[name] = number
        return Subscription(number, name if name is not None else str(number))

    def subscribe_many(
        self, expressions: Iterable[str], *, namespaces: Mapping[str, str] | None = None
    ) -> list[Subscription]:
        """Register many statements; the first that is refused stops it, those before stay."""
        return [self.subscribe(text, namespaces=namespaces) for text in expressions]

    def unsubscribe(self, statement: int | str) -> None:
        """Take a statement out: by what `subscribe` returned, by its id, or by its name.

        Raises an `UnknownStatement` if it is not there.
        """
        with self._lock:
            number = self.number(statement)
            if self._maximal is None:
                self._remove(number)
            else:
                self._maximal.remove(number)
            self._texts[number] = None
            if (name := self._names[number]) is not None:
                del self._numbers[name]
            self._names[number] = None
            self._free.append(number)

    def number(self, statement: int | str) -> int:
        """The id of a statement, by what `subscribe` returned, its id or its name."""
        if isinstance(statement, str):
            if statement in self._numbers:
                return self._numbers[statement]
            raise UnknownStatement(f"there is no statement {statement!r}")
        self.text(statement)
        if isinstance(statement, Subscription) and self.name(statement) != statement.name:
            raise UnknownStatement(f"statement {statement.name!r} was taken out before")
        return int(statement)

    @property
    def named(self) -> Mapping[str, int]:
        """The ids of statements that were given a name, by name."""
        return self._numbers

    def replace(
        self,
        number: int,
        expression: str | Path | Plan,
        *,
        namespaces: Mapping[str, str] | None = None,
        variables: Mapping[str, str | float | bool] | None = None,
        tuples: bool = False,
    ) -> None:
        """Put another statement in a statement's place, under the same id and name.

        The old one is there until the new one is found to be good; a document sees one of them.
        """
        planned = _planned(expression, variables)
        self._check(planned)
        if self._maximal is not None:
            raise StatementRefused(
                f"{planned.text}: unsubscribe and subscribe in an engine with maximal"
            )
        wants = Want.TUPLES if tuples else Want.NAME
        with self._lock:
            self.text(number)
            insertion = self._insertion(number, planned, namespaces, wants)
            self._put(self._removal(number), insertion)
            self._free_atoms(self._atoms.pop(number, []))
            self._keep_atoms(number, insertion)
            if not namespaces:
                self._namespaces.pop(number, None)
            self._texts[number] = planned.text

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
            self._changes.settle()
            runner = max(self._runners, key=lambda each: each.documents, default=None)
            runner = runner or self._runner()
            numbers = self._atoms.get(number, [number])
            return [Tried(*each) for one in numbers for each in runner.order(one)]

    def way(
        self, path: Path, *, namespaces: Mapping[str, str] | None = None
    ) -> list[tuple[Step, int, int]]:
        """The way of a path through the automaton, as far as its statements have made one.

        Of each step on elements: itself, the self-loop state that its `//` waits in, 0 for `/`, and
        the state behind it. What predicates ask is attached to these states.
        """
        self._changes.settle()
        steps = elements_of(canonical(path)) or ()
        resolve = Resolver(self._automaton, namespaces or {}, to_text(path))
        found = self._automaton.way([s.axis for s in steps], [resolve(s) for s in steps])
        return [(step, *states) for step, states in zip(steps, found, strict=False)]

    def _check(self, planned: Plan) -> None:
        limits = self.limits
        if planned.native is not None and has_local(planned.native):
            raise StatementRefused(
                f"{planned.text}: has local: steps; the filter takes its filter part"
            )
        steps = sum(len(path.steps) for path in paths_in(planned.guard))
        if self._automaton.live_states + 2 * steps > limits.states:
            raise StatementRefused(f"{planned.text}: over the limit of {limits.states:,} states")

    def _check_room(self, text: str) -> None:
        most = self.limits.statements
        if len(self) >= most:
            raise StatementRefused(f"{text}: there are already {most:,} statements")

    def _number(self) -> int:
        if self._free:
            return self._free.popleft()
        for column in (self._texts, self._names):
            column.append(None)
        return len(self._texts) - 1

    def _insertion(
        self, number: int, planned: Plan, namespaces: Mapping[str, str] | None, wants: Want
    ) -> Change:
        """What puts a statement into the automaton. All that can be wrong with it is found here."""
        path = _path_of(planned, wants)
        if path is not None:
            return self._path_insertion(number, path, planned.text, namespaces, wants)
        resolve = Resolver(self._automaton, namespaces or {}, planned.text)
        for each in paths_in(planned.guard):
            resolve.prepare(each)
        rule = compiled(planned, resolve, nodes=wants != Want.NAME)
        if namespaces:
            self._namespaces[number] = namespaces
        atoms = [self._number() for _ in rule.paths]
        self._hidden += len(atoms)
        try:
            insertions = [
                self._path_insertion(atom, each, planned.text, namespaces, Want.NAME)
                for atom, each in zip(atoms, rule.paths, strict=True)
            ]
        except BaseException:
            self._free_atoms(atoms)
            raise
        return InsertRule(number, wants, atoms, insertions, rule, planned.exact)

    def _path_insertion(
        self,
        number: int,
        path: Path,
        text: str,
        namespaces: Mapping[str, str] | None,
        wants: Want,
    ) -> Change:
        resolve = Resolver(self._automaton, namespaces or {}, text)
        plain = wants == Want.NAME and is_plain(path)
        if namespaces or not plain:
            resolve.prepare(path)
        if namespaces:
            self._namespaces[number] = namespaces
        if plain:
            axes: list[int] = [step.axis for step in path.steps]
            return InsertPlain(number, axes, [resolve(step) for step in path.steps])
        path = canonical(path)
        steps = elements_of(path)
        if steps is None:
            return InsertPlain(number, None, [])
        key = resolve.key(to_text(path))
        plan = path if wants != Want.NAME else None
        return Insert(number, key, segments_of(steps, resolve), plan, resolve, wants)

    def _add_covered(
        self, number: int, planned: Plan, namespaces: Mapping[str, str] | None, wants: Want
    ) -> None:
        """Add a statement that is filtered by only while no other one covers it."""
        text, path = planned.text, _path_of(planned, wants)
        if wants != Want.NAME or self._maximal is None:
            raise StatementRefused(f"{text}: an engine with maximal gives no tuples")
        if path is None:
            raise StatementRefused(f"{text}: an engine with maximal takes native paths only")
        Resolver(self._automaton, namespaces or {}, text).prepare(path)
        self._maximal.add(number, path, namespaces)

    def _place(self, number: int, path: Path, namespaces: Mapping[str, str]) -> None:
        change = self._path_insertion(number, path, to_text(path), namespaces or None, Want.NAME)
        self._changes.put(change)

    def _insert(
        self, number: int, planned: Plan, namespaces: Mapping[str, str] | None, wants: Want
    ) -> None:
        insertion = self._insertion(number, planned, namespaces, wants)
        self._put(insertion)
        self._keep_atoms(number, insertion)

    def _put(self, *changes: Change) -> None:
        """Make changes; the atoms of one that cannot be made are free again."""
        try:
            self._changes.put(*changes)
        except BaseException:
            for each in changes:
                if isinstance(each, InsertRule):
                    self._free_atoms(each.atoms)
            raise

    def _remove(self, number: int) -> None:
        self._changes.put(self._removal(number))
        self._free_atoms(self._atoms.pop(number, []))
        self._namespaces.pop(number, None)

    def _removal(self, number: int) -> Change:
        """What takes a statement out of the automaton."""
        atoms = self._atoms.get(number)
        return Remove(number) if atoms is None else RemoveRule(number, atoms)

    def _keep_atoms(self, number: int, insertion: Change) -> None:
        if isinstance(insertion, InsertRule):
            self._atoms[number] = insertion.atoms

    def _free_atoms(self, atoms: list[int]) -> None:
        for atom in atoms:
            self._namespaces.pop(atom, None)
        self._free.extend(atoms)
        self._hidden -= len(atoms)

    # -- documents --

    def filter(self, document: bytes | NodeTable, *, source: str | None = None) -> FilterResult:
        """Which statements a document matches.

        Raises a `ReadError` for bytes that are not well-formed. A NodeTable must have been read
        by `reader`, or at least with this engine's vocabulary. If statements with new names have
        come since, its names are looked up again; `ForeignTable` if it no longer has them.
        """
        self._changes.settle()
        runner = self._runner()
        try:
            if isinstance(document, NodeTable):
                self._check_table(document)
                return self._filter_table(document, runner)
            if self._automaton.has_rules:
                # Their expressions may need the document, which the table has.
                return self._filter_table(self._reader.read(document, source=source), runner)
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
        batch = FilterBatch(list(messages), self._reader)
        native = self._reader.native()
        runner = self._runner()
        try:
            runner.begin(self.limits.work, self.limits.tuples)
            while True:
                self._changes.settle()
                batch.run(runner, *native, self._most)
                if batch.whole:
                    return batch
                if batch.outcome != Outcome.STALE_NAMES and not batch.interrupted:
                    self._add_next(batch, runner)
        finally:
            self._idle.append(runner)

    def _add_next(self, batch: FilterBatch, runner: Runner) -> None:
        """Add the next message to a batch whose native reading does not take it."""
        place = batch.done
        message = batch.bodies[place]
        try:
            if batch.outcome != Outcome.DONE:
                raise self._failure(batch.outcome)
            if message is None:
                batch.add(runner, None)
            else:
                batch.keep(place, self._add(batch, runner, message))
        except (ReadError, FMwareError, MemoryError) as error:
            batch.errors[place] = kept(error)
            batch.add(runner, None)

    def _add(self, batch: FilterBatch, runner: Runner, message: bytes | NodeTable) -> NodeTable:
        """Read a message, unless it is a table, and add it."""
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
            self._changes.settle()
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
        self._changes.settle()
        total = dict(self._automaton.stats())
        total["statements"] = len(self)
        for runner in list(self._runners):
            for key, value in runner.stats().items():
                total[key] = total.get(key, 0) + value
        return total


def _planned(
    expression: str | Path | Plan, variables: Mapping[str, str | float | bool] | None
) -> Plan:
    if isinstance(expression, str):
        return plan(expression, variables=variables)
    return plan_of(expression) if isinstance(expression, Path) else expression


def _path_of(planned: Plan, wants: Want) -> Path | None:
    """The path that is all there is to a statement, if there is one."""
    if planned.native is not None:
        return planned.native
    alone = planned.exact and wants == Want.NAME and isinstance(planned.guard, Path)
    return planned.guard if alone and isinstance(planned.guard, Path) else None


def _renamed(table: NodeTable) -> NodeTable:
    """The table with the names that statements use now."""
    renamed = table.renamed()
    if renamed is None:
        raise ForeignTable(
            "statements have come since the table was read, with names that the table did not "
            "keep; read it again with engine.reader"
        )
    return renamed
