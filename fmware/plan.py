"""The plan of a statement: what is asked of messages, what of the corpus, and what that costs.

`plan_of` says it beforehand: the filter part and its way through the automaton, then for each
crossing the joins it asks for, with the estimated cost of every alternative. `Plan.take` adds, from
the report of a run, what every alternative did cost on the same inputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cmatch import Adaptive, Workload
from fmware.filtering import FilterEngine
from fmware.matching import LocalPart, Resolver, advice
from fmware.matching.joins import Join
from fmware.report.collect import parts_of
from fmware.report.report import Alternative, JoinReport
from fmware.statements import anchor_text, match_text
from fmware.xpath import Path, clark, to_text
from fmware.xpath.printer import expr_text
from labeling.runs import Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmware.report.report import Report
    from fmware.statements import Statement
    from fmware.xpath import Crossing
    from index import Index

__all__ = ["CrossingPlan", "JoinPlan", "Plan", "Ran", "Way", "plan_of"]

JOINS = 12
"""Joins of a crossing that are looked at; where `*` stands for more tags, those with most nodes."""


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

    `report` is what it did, once it has been run.
    """

    name: str
    anchors: int
    matches: int
    choice: str
    alternatives: list[Alternative]
    report: JoinReport | None = None

    def take(self, report: JoinReport) -> None:
        """Add what was done; that pages are warm by now is no news."""
        self.report = report
        cold = {each.choice: each.parts["cold_pages"] for each in self.alternatives}
        for each in report.alternatives:
            each.parts["cold_pages"] = cold.get(each.choice, 0.0)
        report.alternatives.sort(key=lambda each: each.estimate or 0.0)


@dataclass(slots=True)
class CrossingPlan:
    """A crossing: from which anchor, on which axis, to what.

    `steps` are the first steps into the corpus, one a tag; `left_out` joins are not told. A `note`
    says why there is none.
    """

    anchor: str
    axis: str
    match: str
    selects: bool
    joins: list[JoinPlan] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    left_out: int = 0
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
        """Add what a run of the statement alone did: joins that it had not thought of, too."""
        run, [mine] = report.summary, report.statements
        self.ran = Ran(
            run.messages, mine.passed, mine.matches, run.failed, run.unmatched, dict(run.seconds)
        )
        done = {join.name: join for join in report.joins}
        for crossing in self.crossings:
            for join in crossing.joins:
                if join.name in done:
                    join.take(done[join.name])
            known = {join.name for join in crossing.joins}
            ends = crossing.steps
            crossing.joins += [
                JoinPlan(name, 0, 0, join.choice, join.alternatives, join)
                for name, join in done.items()
                if name not in known and f"{join.axis}::{join.tag}" in ends
            ]

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
    anchors = _anchors(index, resolver, statement, crossing)
    joins = [Join(anchor, tag, part.axis) for anchor in anchors for tag in tags]
    made.steps = [f"{part.axis.value}::{tag}" for tag in tags]
    if not tags:
        made.note = "no node of the corpus has this name: nothing can match"
    elif not anchors:
        made.note = "no node of the corpus has the anchor's name: only fm:mi leads to others"
    made.left_out = max(len(joins) - JOINS, 0)
    if made.left_out:
        joins.sort(key=lambda join: -_count(index, join.anchor) * _count(index, join.tag))
    made.joins = [_join(index, join, workload) for join in joins[:JOINS]]
    return made


def _anchors(
    index: Index, resolver: Resolver, statement: Statement, crossing: Crossing
) -> list[Tag]:
    """The tags that anchors have in the corpus: that of their name, or all that have keys."""
    anchor = crossing.anchor
    step = (statement.filter.steps[anchor.step], *anchor.branch.steps)[-1]
    name = clark(step.prefix, step.name, statement.namespaces)
    if name.endswith("*"):
        return [tag for tag in resolver.elements if resolver.has_key(tag.name)]
    return [tag] if _count(index, tag := Tag(0, name)) else []


def _count(index: Index, tag: Tag | None) -> int:
    return 0 if tag is None else sum(segment.count(tag) for segment in index.segments)


def _join(index: Index, join: Join, workload: Workload | None) -> JoinPlan:
    """A join with the estimates of all ways: hot, and what cold pages add the first time."""
    with Adaptive(index, join.tag, join.axis, anchors=join.anchor, workload=workload) as operator:
        found: list[Alternative] = []
        for choice, cost in operator.estimates.items():
            assert operator.profile is not None
            cold = replace(operator.expected, cold=True)
            first = operator.model.cost(operator.profile, choice, cold) * (1 / cold.inputs)
            parts = parts_of(cost) | {"cold_pages": first.cold_pages}
            found.append(Alternative(str(choice), cost.total, cost.total, parts=parts))
        found.sort(key=lambda each: each.estimate or 0.0)
        return JoinPlan(
            join.name,
            _count(index, join.anchor),
            _count(index, join.tag),
            str(operator.choice),
            found,
        )
