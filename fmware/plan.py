"""The plan of a statement: what is asked of messages, what of the corpus, and what that costs.

`plan_of` says it beforehand: the filter part and its way through the automaton, then for each
crossing the joins it asks for, with the estimated cost of every alternative. `Plan.take` adds, from
the report of a run, what every alternative did cost on the same inputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fmware.cmatch import Adaptive, Workload
from fmware.filtering import FilterEngine
from fmware.labeling.runs import Tag
from fmware.matching import LocalPart, Resolver, advice
from fmware.matching.joins import Join
from fmware.report.collect import parts_of
from fmware.report.report import Alternative, JoinReport
from fmware.statements import anchor_text, match_text
from fmware.xpath import Path, clark, to_text
from fmware.xpath.printer import expr_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fmware.index import Index
    from fmware.report.report import Report
    from fmware.statements import Statement
    from fmware.xpath import Crossing

__all__ = ["CrossingPlan", "JoinPlan", "Plan", "Ran", "Way", "plan_of"]


@dataclass(slots=True)
class Way:
    """A step through the automaton: the self-loop state that `//` waits in, if it is one, and the
    state behind its name. `shared`: other statements go this way, too. `asks`: what must hold."""

    step: str
    loop: int | None
    state: int
    shared: bool
    asks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class JoinPlan:
    """A join: how many anchors and matches the corpus has for it, what is chosen, and all ways.

    `why` says in one sentence what decided. `report` is what it did, once it has been run.
    """

    name: str
    anchors: int
    matches: int
    choice: str
    alternatives: list[Alternative]
    why: str = ""
    report: JoinReport | None = None

    def take(self, report: JoinReport) -> None:
        """Add what was done."""
        self.report = report
        report.alternatives.sort(key=lambda each: each.estimate or 0.0)


@dataclass(slots=True)
class CrossingPlan:
    """A crossing: from which anchor, on which axis, to what.

    `joins` has the join of its first step. A `note` says why there is none.
    """

    anchor: str
    axis: str
    match: str
    selects: bool
    joins: list[JoinPlan] = field(default_factory=list)
    note: str | None = None


@dataclass(slots=True)
class Ran:
    """What a run of the statement alone gave."""

    messages: int
    passed: int
    matches: int
    failed: int
    unmatched: int
    seconds: dict[str, float]


@dataclass(slots=True)
class Plan:
    """How a statement is answered; `advice` is what of it the index cannot answer."""

    statement: str
    filter: str
    way: list[Way]
    statements: int
    crossings: list[CrossingPlan]
    advice: list[str]
    ran: Ran | None = None

    def take(self, report: Report) -> None:
        """Add what a run of the statement alone did."""
        run, [mine] = report.summary, report.statements
        self.ran = Ran(
            run.messages, mine.passed, mine.matches, run.failed, run.unmatched, dict(run.seconds)
        )
        done = {join.name: join for join in report.joins}
        for crossing in self.crossings:
            for join in crossing.joins:
                if join.name in done:
                    join.take(done[join.name])

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def plan_of(
    index: Index,
    statement: Statement,
    *,
    others: Iterable[Statement] = (),
    workload: Workload | None = None,
) -> Plan:
    """How a statement would be answered, beside others that share the automaton with it.

    `workload` is what to expect; without it, every anchor of the corpus once.
    """
    way, number = _way(statement, others)
    resolver = Resolver(index)
    crossings = [_crossing(index, resolver, statement, c, workload) for c in statement.crossings]
    return Plan(
        statement.text,
        to_text(statement.filter),
        way,
        number,
        crossings,
        advice(statement, resolver),
    )


# -- the filter part --


def _way(statement: Statement, others: Iterable[Statement]) -> tuple[list[Way], int]:
    """The states of the filter part, and how many statements the automaton is for."""
    engine = FilterEngine()
    for other in others:
        if _same(other, statement):
            continue  # The file that it is explained beside has the statement itself.
        engine.subscribe(other.filter, namespaces=other.namespaces)
    spaces = statement.namespaces
    known = len(engine.way(statement.filter, namespaces=spaces))
    engine.subscribe(statement.filter, namespaces=spaces, tuples=bool(statement.crossings))
    found = engine.way(statement.filter, namespaces=spaces)
    return [
        Way(
            to_text(Path((replace(step, predicates=()),), absolute=True)),
            loop or None,
            state,
            number < known,
            [f"[{expr_text(test)}]" for test in step.predicates],
        )
        for number, (step, loop, state) in enumerate(found)
    ], len(engine)


def _same(one: Statement, other: Statement) -> bool:
    """Whether two statements ask the same, whatever their names are."""
    return (one.split, one.namespaces) == (other.split, other.namespaces)


# -- the match parts --


def _crossing(
    index: Index,
    resolver: Resolver,
    statement: Statement,
    crossing: Crossing,
    workload: Workload | None,
) -> CrossingPlan:
    part = LocalPart(crossing, statement.namespaces)
    made = CrossingPlan(
        anchor_text(crossing.anchor, statement.filter),
        crossing.axis.name.lower(),
        match_text(crossing.match),
        crossing.selects,
    )
    if part.itself:
        made.note = "the anchor's local node itself: nothing to join"
        return made
    tags = part.tags(index)
    anchors, named = _anchors(index, resolver, statement, crossing)
    if not tags:
        made.note = "no node of the corpus has this name: nothing can match"
    elif not anchors:
        made.note = "no node of the corpus has the anchor's name: only fm:mi leads to others"
    if tags and anchors:
        _, kind, name = part.sought
        join = Join(anchors[0] if named else None, Tag(kind, name), part.axis)
        made.joins = [_join(index, join, tags, anchors, workload)]
    return made


def _anchors(
    index: Index, resolver: Resolver, statement: Statement, crossing: Crossing
) -> tuple[list[Tag], bool]:
    """The tags that anchors have in the corpus, and whether that is the one of their name.

    Where they may have any name, it is all tags that have keys.
    """
    anchor = crossing.anchor
    step = (statement.filter.steps[anchor.step], *anchor.branch.steps)[-1]
    name = clark(step.prefix, step.name, statement.namespaces)
    if name.endswith("*"):
        return [tag for tag in resolver.elements if resolver.has_key(tag.name)], False
    return [tag] if _count(index, [tag := Tag(0, name)]) else [], True


def _count(index: Index, tags: Iterable[Tag]) -> int:
    return sum(segment.count(tag) for segment in index.segments for tag in tags)


def _join(
    index: Index,
    join: Join,
    tags: Sequence[Tag],
    anchors: Sequence[Tag],
    workload: Workload | None,
) -> JoinPlan:
    """A join with the estimates of all ways."""
    with Adaptive(index, tags, join.axis, anchors=anchors, workload=workload) as operator:
        found = [
            Alternative(str(choice), cost.total, cost.total, parts=parts_of(cost))
            for choice, cost in operator.estimates.items()
        ]
        found.sort(key=lambda each: each.estimate or 0.0)
        return JoinPlan(
            join.name,
            _count(index, anchors),
            _count(index, tags),
            str(operator.preferred),
            found,
            operator.model.why(operator.preferred, operator.estimates),
        )
