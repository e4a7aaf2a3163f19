"""Why a document matches a statement, or where it stopped.

The evaluator of `fmware.matching.evaluate` walks the NodeTable step by step; here it writes down
what it sees. It is not there to be fast: the engine answers, this explains, and tests hold the two
together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, Any, Final

from fmware.filtering.engine import FilterEngine
from fmware.filtering.errors import ForeignTable
from fmware.filtering.rules import paths_in
from fmware.labeling import NodeTable, Vocabulary, read
from fmware.matching.evaluate import DOCUMENT, Evaluator, compares, number_of
from fmware.xpath import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Expr,
    Kind,
    Not,
    Op,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
    check_expression,
    check_prefixes,
    guard_text,
    plan,
    plan_of,
    split,
    to_text,
)
from fmware.xpath.printer import expr_text
from fmware.xpath.tree import paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fmware.filtering.result import Tried
    from fmware.xpath import Plan

__all__ = [
    "Explanation",
    "NamespaceHint",
    "Node",
    "Occurrence",
    "PathTrace",
    "PredicateTrace",
    "Reason",
    "StepTrace",
    "Stop",
    "explain",
]

SAMPLES: Final = 3
TUPLES: Final = 5
NAMES: Final = 12
CLIP: Final = 80
"""How much is shown: nodes of a step, path tuples, names at a place, characters of a value."""


# -- what is said --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the document: its path and its string-value, cut when it is long."""

    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name that does occur at a place, and how often; attributes have an `@`."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Where nothing was left.

    `step` and `predicate` count from 1; without a predicate it was the name that nothing had.
    `at` is the character of the statement. `there` is what stands at that place instead.
    """

    step: int
    predicate: int | None
    expression: str
    at: int
    reason: str
    there: list[Occurrence] = field(default_factory=list)
    did_you_mean: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a condition holds on a node or does not.

    `terms` are those of an `and` up to the first that fails, all of an `or`, the one of a `not`;
    `trace` is the way of the condition's own path, if it stopped.
    """

    expression: str
    holds: bool
    text: str
    node: Node
    terms: list[Reason] = field(default_factory=list)
    trace: PathTrace | None = None


@dataclass(frozen=True, slots=True)
class PredicateTrace:
    """One predicate: how many nodes it saw, how many it let pass, and why on some of them."""

    expression: str
    at: int
    tried: int
    passed: int
    reasons: list[Reason]


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step: how many nodes had its axis and name (`found`), how many passed its predicates."""

    expression: str
    at: int
    found: int
    predicates: list[PredicateTrace]
    passed: int
    samples: list[Node]


@dataclass(frozen=True, slots=True)
class PathTrace:
    """The steps of a path up to the one that stopped it, if one did."""

    steps: list[StepTrace]
    stop: Stop | None


@dataclass(frozen=True, slots=True)
class NamespaceHint:
    """The statement would match if namespaces were ignored.

    `uris` are the namespaces of the nodes it would match. `expression` with `namespaces` is the
    statement as it has to be written; None if that cannot be told from the names alone.
    """

    uris: list[str]
    expression: str | None
    namespaces: dict[str, str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document matches a statement (`tuples`) or where it stopped (`trace.stop`).

    `tuples` are the first path tuples in document order, a node a step. `order` is the order in
    which an engine that has filtered this document looks at the conditions.
    """

    expression: str
    matched: bool
    trace: PathTrace
    tuples: list[list[Node]]
    ignoring_namespaces: NamespaceHint | None
    order: list[Tried]
    guard: str | None = None
    """Of an expression that is more than a native path, what must hold before it is looked at; the
    trace is that of a path of it."""

    @property
    def stop(self) -> Stop | None:
        """Where it stopped; None if it matched."""
        return self.trace.stop

    def to_dict(self) -> dict[str, Any]:
        """The same as dictionaries and lists, for JSON."""
        return asdict(self)


def explain(
    document: bytes | NodeTable,
    expression: str | Path,
    *,
    namespaces: Mapping[str, str] | None = None,
) -> Explanation:
    """Why a document matches a statement, or at which step it stopped and what was there instead.

        explain(b"<sale><units>2</units></sale>", "//sale[units > 3]").stop.reason
        # 'none of 1 passed: units was "2", needed > 3'

    Of a statement with `local:` steps the filter part is explained: the rest asks the corpus. Of an
    expression that is more than a native path, a path of its guard is traced.
    Raises an `XPathError` for a bad expression and a `ReadError` for a bad document.
    """
    spaces = dict(namespaces or {})
    text = expression if isinstance(expression, str) else to_text(expression)
    planned = plan(expression) if isinstance(expression, str) else plan_of(expression)
    if planned.expression is not None:
        check_expression(planned.expression, spaces, text)
    path = planned.native or next(paths_in(planned.guard))
    check_prefixes(path, spaces, text)
    path = split(path, text).filter
    if not isinstance(document, NodeTable):
        document = read(document, vocabulary=Vocabulary())
    if not document.has_values:
        raise ForeignTable("the table was read without values, and an explanation shows them")
    if planned.native is None:
        return _explain_planned(document, planned, path, spaces)
    document = document.spelled()
    tracer = _Tracer(document, spaces)
    trace, left = tracer.trace(path, [DOCUMENT], SAMPLES)
    tuples = [[tracer.node(row) for row in rows] for rows in tracer.tuples(path, left)]
    hint = _ignoring_namespaces(document, path, spaces) if trace.stop else None
    order = _order(document, path, spaces)
    return Explanation(text, trace.stop is None, trace, tuples, hint, order)


def _explain_planned(
    document: NodeTable, planned: Plan, path: Path, spaces: Mapping[str, str]
) -> Explanation:
    """A path of the guard, traced, and what the whole expression gave."""
    engine = FilterEngine(vocabulary=document.vocabulary)
    number = engine.subscribe(planned, namespaces=spaces)
    matches = number in engine.filter(document)
    spelled = document.spelled()
    tracer = _Tracer(spelled, spaces)
    trace, left = tracer.trace(path, [DOCUMENT], SAMPLES)
    tuples = [[tracer.node(row) for row in rows] for rows in tracer.tuples(path, left)]
    order, guard = engine.order(number), guard_text(planned.guard)
    return Explanation(planned.text, matches, trace, tuples, None, order, guard)


def _order(document: NodeTable, path: Path, spaces: Mapping[str, str]) -> list[Tried]:
    engine = FilterEngine(vocabulary=document.vocabulary)
    number = engine.subscribe(path, namespaces=spaces)
    engine.filter(document)
    return engine.order(number)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _uri(name: str) -> str:
    return name[1:].partition("}")[0] if name.startswith("{") else ""


# -- tracing -------------------------------------------------------------------------------------


class _Tuples(Evaluator):
    """An evaluator that also gives path tuples."""

    def tuples(self, path: Path, left: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """The first path tuples, from the rows that each step has left."""
        if len(left) < len(path.steps) or not left[-1]:
            return iter(())
        # Rows that lead nowhere go first, so that the search below has no dead ends.
        alive = [list(left[-1])]
        for step, rows in zip(path.steps[:0:-1], left[-2::-1], strict=True):
            alive.insert(0, [row for row in rows if any(self._under(step, row, alive[0]))])
        return islice(self._chains(path.steps, alive, [DOCUMENT]), TUPLES)

    def _chains(
        self, steps: Sequence[Step], alive: list[list[int]], chain: list[int]
    ) -> Iterator[list[int]]:
        depth = len(chain) - 1
        if depth == len(steps):
            yield chain[1:]
            return
        for row in self._under(steps[depth], chain[-1], alive[depth]):
            yield from self._chains(steps, alive, [*chain, row])

    def _under(self, step: Step, upper: int, rows: Iterable[int]) -> Iterator[int]:
        for row in rows:
            if upper < row < self.last[upper] and (
                step.axis == Axis.DESCENDANT or self.parent[row] == upper
            ):
                yield row


class _Tracer(_Tuples):
    """Evaluates and writes down what it sees."""

    def node(self, row: int) -> Node:
        return Node(self.table.path(row), _clipped(self.value(row)))

    def trace(
        self, path: Path, contexts: Sequence[int], samples: int
    ) -> tuple[PathTrace, list[list[int]]]:
        """The way of a path, and the rows that each of its steps has left."""
        steps: list[StepTrace] = []
        left: list[list[int]] = []
        rows = list(contexts)
        for number, step in enumerate(path.steps, 1):
            before = rows
            rows = found = self.found(step, before)
            tests: list[PredicateTrace] = []
            for test in step.predicates:
                if not rows:
                    break
                tried, rows = rows, self.passing(test, rows)
                tests.append(self._predicate(test, tried, rows, samples))
            shown = [self.node(row) for row in (rows or found)[:samples]]
            steps.append(StepTrace(_step_text(step), step.at, len(found), tests, len(rows), shown))
            left.append(rows)
            if not rows:
                stop = self._failed(number, step, tests) if found else None
                return PathTrace(steps, stop or self._absent(number, step, before)), left
        return PathTrace(steps, None), left

    def _predicate(
        self, test: Expr, tried: Sequence[int], passed: Sequence[int], samples: int
    ) -> PredicateTrace:
        places = self.places(tried)
        # Why the first one passed, or why the first few did not.
        asked = passed[:1] or tried[:samples]
        reasons = [self.reason(test, row, places[row]) for row in asked]
        return PredicateTrace(_test_text(test), test.at, len(tried), len(passed), reasons)

    def _failed(self, number: int, step: Step, tests: Sequence[PredicateTrace]) -> Stop:
        last = tests[-1]
        reason = f"none of {last.tried:,} passed: {last.reasons[0].text}"
        return Stop(number, len(tests), f"[{last.expression}]", last.at or step.at, reason)

    # -- a name that is not there --

    def _absent(self, number: int, step: Step, contexts: Sequence[int]) -> Stop:
        wanted = _label(step)
        around = self.reached(step, contexts)
        there = self._occurring(around, step.kind)
        close = [] if step.kind == Kind.TEXT else _close(step, there)
        return Stop(
            step=number,
            predicate=None,
            expression=_step_text(step),
            at=step.at,
            reason=self._absence(step, wanted, contexts, there),
            there=there[:NAMES],
            did_you_mean=close,
            hints=list(self._hints(step, around)),
        )

    def _occurring(self, rows: Iterable[int], kind: int) -> list[Occurrence]:
        if kind == Kind.TEXT:
            kind = Kind.ELEMENT
        counts = Counter(self.name[row] for row in rows if self.kind[row] == kind)
        mark = "@" if kind == Kind.ATTRIBUTE else ""
        return [Occurrence(mark + name, count) for name, count in counts.most_common()]

    def _absence(
        self, step: Step, wanted: str, contexts: Sequence[int], there: Sequence[Occurrence]
    ) -> str:
        if list(contexts) != [DOCUMENT]:
            where = "in" if step.axis == Axis.CHILD else "below"
            more = f" and {len(contexts) - 1:,} more" if len(contexts) > 1 else ""
            return f"no {wanted} {where} {self.table.path(contexts[0])}{more}"
        if step.axis == Axis.DESCENDANT:
            return f"no {wanted} in the document"
        if step.kind != Kind.ELEMENT:
            return f"the document itself has no {wanted}: only elements have"
        return f"the root is {there[0].name}, not {wanted}"

    def _hints(self, step: Step, around: Sequence[int]) -> Iterator[str]:
        """What is nearly there: the other kind, another namespace, another place."""
        if step.kind == Kind.TEXT or step.name == "*":
            return
        for row in around:
            if _local(self.name[row]) == step.name and self.kind[row] not in (step.kind, Kind.TEXT):
                other = "an element, not an attribute" if step.kind else "an attribute: write @"
                yield f"{self.table.path(row)} is {other}{'' if step.kind else step.name}"
                break
        here = {self.name[row] for row in around if self.kind[row] == step.kind}
        for name in sorted(name for name in here if _local(name) == step.name):
            space = f"the namespace {_uri(name)}" if _uri(name) else "no namespace"
            yield f"{step.name} is there in {space}"
        elsewhere = [row for row in range(len(self.name)) if self.fits(step, row)]
        if elsewhere:
            more = f" and {len(elsewhere) - 1:,} more" if len(elsewhere) > 1 else ""
            yield f"{_label(step)} occurs elsewhere: {self.table.path(elsewhere[0])}{more}"

    # -- a condition on one node --

    def reason(self, test: Expr, row: int, place: int) -> Reason:
        """Why a condition holds on a row, or does not."""
        holds = self.holds(test, row, place)
        terms: list[Reason] = []
        trace: PathTrace | None = None
        match test:
            case And() | Or():
                terms = self._term_reasons(test, row, place)
                text = _joined(test, terms, holds)
            case Not(term):
                terms = [self.reason(term, row, place)]
                text = terms[0].text if holds else f"not() refused: {terms[0].text}"
            case Position():
                needed = expr_text(test).removeprefix("position() ")
                text = f"was number {place}" + ("" if holds else f", needed {needed}")
            case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
                trace, left = self.trace(path, [row], 1)
                rows = left[-1] if left else [row]
                if rows or holds:
                    text = self._value_text(test, path, rows, holds)
                else:
                    text = trace.stop.reason if trace.stop else ""
                trace = trace if trace.stop else None
        return Reason(_test_text(test), holds, text, self.node(row), terms, trace)

    def _term_reasons(self, test: And | Or, row: int, place: int) -> list[Reason]:
        reasons: list[Reason] = []
        for term in test.terms:
            reasons.append(self.reason(term, row, place))
            if isinstance(test, And) and not reasons[-1].holds:
                break
        return reasons

    def _value_text(
        self,
        test: Exists | Compare | Contains | StartsWith,
        path: Path,
        rows: Sequence[int],
        holds: bool,
    ) -> str:
        subject = to_text(path) if path.steps else "its value"
        if isinstance(test, Exists):
            return f"{self.table.path(rows[0])} is there"
        if isinstance(test, Compare):
            return self._compared(test, subject, rows, holds)
        verb = "contain" if isinstance(test, Contains) else "start with"
        if not rows:
            return f"there is no {subject}, and the empty string does {verb} {test.text!r}"
        text = f"{subject} was {_quoted(self.value(rows[0]))}"
        if holds:
            return text
        text += f", needed to {verb} {_quoted(test.text)}"
        if len(rows) > 1:
            text += f" (of {len(rows):,} only the first counts)"
        return text + _nearly(test.text, [self.value(rows[0])])

    def _compared(self, test: Compare, subject: str, rows: Sequence[int], holds: bool) -> str:
        values = [self.value(row) for row in rows]
        if holds:
            value = next(each for each in values if compares(each, test.op, test.value))
            return f"{subject} was {_quoted(value)}"
        shown = ", ".join(_quoted(value) for value in values[:SAMPLES])
        more = f" and {len(values) - SAMPLES:,} more" if len(values) > SAMPLES else ""
        needed = expr_text(Compare(Path(()), test.op, test.value)).removeprefix(". ")
        text = f"{subject} was {shown}{more}, needed {needed}"
        if test.op == Op.EQ and isinstance(test.value, str):
            return text + _nearly(test.value, values)
        odd = next((value for value in values if isnan(number_of(value))), None)
        if odd is None or test.op == Op.NE:
            return text
        return f"{text} ({_quoted(odd)} is not a number)"


def _joined(test: And | Or, terms: Sequence[Reason], holds: bool) -> str:
    if isinstance(test, And):
        return "; ".join(term.text for term in terms) if holds else terms[-1].text
    if holds:
        return next(term.text for term in terms if term.holds)
    return "none of these: " + "; ".join(term.text for term in terms)


def _nearly(wanted: str, values: Sequence[str]) -> str:
    """A word on a string that all but equals the one that was wanted."""
    for change, word in ((str.strip, "white space"), (str.casefold, "case")):
        if any(change(value) == change(wanted) for value in values):
            return f" (only {word} differs)"
    return ""


def _close(step: Step, there: Sequence[Occurrence]) -> list[str]:
    """Names at the place that look like the one that was wanted."""
    folded: dict[str, list[str]] = {}
    for each in there:
        local = _local(each.name).removeprefix("@")
        if local != step.name:
            folded.setdefault(local.casefold(), []).append(each.name)
    matches = get_close_matches(step.name.casefold(), list(folded), n=SAMPLES)
    return [name for match in matches for name in folded[match]]


def _clipped(text: str) -> str:
    return text if len(text) <= CLIP else text[: CLIP - 1] + "…"


def _quoted(text: str) -> str:
    return f'"{_clipped(text)}"'


def _label(step: Step) -> str:
    if step.kind == Kind.TEXT:
        return "text()"
    name = f"{step.prefix}:{step.name}" if step.prefix else step.name
    if name == "*":
        return "attribute" if step.kind == Kind.ATTRIBUTE else "element"
    return f"@{name}" if step.kind == Kind.ATTRIBUTE else name


def _step_text(step: Step) -> str:
    return to_text(Path((replace(step, predicates=()),), absolute=True))


def _test_text(test: Expr) -> str:
    if isinstance(test, Position) and test.op == Op.EQ:
        return expr_text(test).removeprefix("position() = ")
    return expr_text(test)


# -- namespaces ----------------------------------------------------------------------------------


def _ignoring_namespaces(
    table: NodeTable, path: Path, namespaces: dict[str, str]
) -> NamespaceHint | None:
    """Whether the statement matches by local names alone, and how it would have to be written."""
    loose = _Tuples(table, None)
    left: list[list[int]] = [[DOCUMENT]]
    for step in path.steps:
        left.append(loose.select(Path((step,)), left[-1]))
    rows = next(loose.tuples(path, left[1:]), None)
    if rows is None:
        return None
    writer = _Rewriter(table, loose.name, namespaces)
    better = writer.path(path, rows)
    works = bool(Evaluator(table, writer.namespaces).select(better, [DOCUMENT]))
    used = {step.prefix for step in _steps(better)}
    declared = {prefix: uri for prefix, uri in writer.namespaces.items() if prefix in used}
    uris = [uri for row in rows if (uri := _uri(loose.name[row]))] + list(declared.values())
    return NamespaceHint(
        list(dict.fromkeys(uris)), to_text(better) if works else None, declared if works else {}
    )


def _steps(path: Path) -> Iterator[Step]:
    """All steps of a path, those inside its predicates too."""
    for step in path.steps:
        yield step
        for test in step.predicates:
            for inner in paths_of(test):
                yield from _steps(inner)


class _Rewriter:
    """Gives the names of a statement the namespaces that they have in the document."""

    def __init__(
        self, table: NodeTable, names: Sequence[str], namespaces: Mapping[str, str]
    ) -> None:
        self.namespaces = dict(namespaces)
        self._names = names
        self._uris: dict[tuple[int, str], set[str]] = {}
        for kind, name in zip(table.kind.tolist(), names, strict=True):
            self._uris.setdefault((kind, _local(name)), set()).add(_uri(name))
        own = table.root.nsmap if table.root is not None else {}
        self._prefixes = {uri: prefix for prefix, uri in own.items() if prefix}

    def path(self, path: Path, rows: Sequence[int]) -> Path:
        """The path that matches these rows, a row a step."""
        steps = (
            self._step(step, self._prefix(_uri(self._names[row])))
            for step, row in zip(path.steps, rows, strict=True)
        )
        return Path(tuple(steps), path.absolute, path.at)

    def _step(self, step: Step, prefix: str | None) -> Step:
        if step.kind == Kind.TEXT or (step.name == "*" and not step.prefix):
            prefix = step.prefix
        tests = tuple(self._test(test) for test in step.predicates)
        return replace(step, prefix=prefix, predicates=tests)

    def _test(self, test: Expr) -> Expr:
        match test:
            case And(terms) | Or(terms):
                return replace(test, terms=tuple(self._test(term) for term in terms))
            case Not(term):
                return replace(test, term=self._test(term))
            case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
                return replace(test, path=self._inner(path))
            case Position():
                return test

    def _inner(self, path: Path) -> Path:
        return replace(path, steps=tuple(self._step(s, self._only(s)) for s in path.steps))

    def _only(self, step: Step) -> str | None:
        """The prefix of a name that has one namespace in the document; else the one it had."""
        uris = self._uris.get((step.kind, step.name), set())
        own = self.namespaces.get(step.prefix, "") if step.prefix else ""
        return self._prefix(next(iter(uris))) if len(uris) == 1 and own not in uris else step.prefix

    def _prefix(self, uri: str) -> str | None:
        if not uri:
            return None
        for prefix, known in self.namespaces.items():
            if known == uri:
                return prefix
        prefix = self._prefixes.get(uri, "n")
        number = 1
        while prefix in self.namespaces or prefix == "local":
            number += 1
            prefix = f"n{number}"
        self.namespaces[prefix] = uri
        return prefix
