"""Filling a report from a middleware that has run.

Where operators are chosen by cost, the first inputs of each join are recorded: every alternative is
run on them again, each from the beginning, so that what it costs can be compared. That takes time,
so it is done for the joins that cost most, and stops when the time for it is used up.

First all is `Taken` down, between two batches, which takes little time; what is replayed then is
copies, on operators of their own, while the next batches are matched.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fmware import __version__
from fmware.cmatch import Adaptive, CMatch, MatchError, Workload, measure
from fmware.cmatch.units import load_units
from fmware.index import StoreError
from fmware.matching.tally import Share as Tallied
from fmware.report.report import (
    Accuracy,
    Alternative,
    JoinReport,
    Report,
    Share,
    StatementReport,
    Summary,
    Switch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fmware.cmatch import Choice, Cost, CostModel, Inputs, Operator
    from fmware.index import Index
    from fmware.index.summary import Statistics
    from fmware.matching.joins import Join, Joins
    from fmware.matching.plan import Plan
    from fmware.matching.recording import Recording
    from fmware.matching.tally import Totals

__all__ = ["Taken"]

SECONDS = 10.0
"""Time for replaying samples, all together."""
MANY = 2000
"""Inputs that a clock can tell apart: fewer are replayed more often, and the best time counts."""
LEAST = 0.05
"""The share of what an input costs on average that one costs at least, whatever clocks say."""
LISTED = 5000
"""Statements that only filter which are listed; of more, those that let most messages pass."""


@dataclass(slots=True)
class Taken:
    """What a run has to say, as it was at one moment: nothing here changes with the run.

    `index` must stay open until the report is made.
    """

    index: Index
    settings: dict[str, Any]
    joins: list[Replayed]
    summary: Summary
    local: list[StatementReport]
    plain: list[tuple[int, int, Plan]]
    """Statements that messages alone decide: how many passed, and how many matches that made."""

    @classmethod
    def of(cls, index: Index, joins: Joins, plans: Mapping[int, Plan], totals: Totals) -> Taken:
        """Take it down; whoever does this keeps batches waiting meanwhile."""
        shares = _shares(plans.values())
        every = [(plan, totals.passed(number)) for number, plan in plans.items()]
        return cls(
            index,
            joins.settings,
            [
                Replayed.of(join, operator, shares.get(join, Tallied()), joins.recording(join))
                for join, operator in joins
            ],
            _summary(plans, totals),
            [_local(plan, passed) for plan, passed in every if not plan.statement.plain],
            [
                (totals.passed(number), totals.told(number), plan)
                for number, plan in plans.items()
                if plan.statement.plain
            ],
        )

    def report(self, seconds: float = SECONDS) -> Report:
        """The report; samples are replayed for about so many seconds at most."""
        statistics = self.index.statistics
        for each in self.joins:
            each.made.power = _power(each.join, statistics)
        until = time.perf_counter() + seconds
        for each in sorted(self.joins, key=lambda each: -each.made.seconds):
            if each.replays and time.perf_counter() < until:
                each.replay(self.index, self.settings["budget"])
        joins = [each.made.settle() for each in self.joins]
        statements, left_out = self._statements({each.name: each for each in joins})
        units = load_units(self.index.path)
        return Report(
            made=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            version=__version__,
            index=_index(self.index, statistics),
            settings=self.settings,
            summary=self.summary.settle(joins),
            accuracy=Accuracy.of(joins),
            joins=joins,
            statements=statements,
            units=None if units is None else units.to_json(),
            left_out=left_out,
        )

    def _statements(self, joins: Mapping[str, JoinReport]) -> tuple[list[StatementReport], int]:
        """The statements, the most expensive first, and how many are left out."""
        local = [each.settle(joins) for each in self.local]
        local.sort(key=lambda each: (-(each.measured or 0.0), each.name))
        # In the order of subscribing where as many messages passed.
        plain = sorted(self.plain, key=lambda each: -each[0])
        listed = [
            StatementReport(plan.statement.name, plan.statement.text, passed, matches)
            for passed, matches, plan in plain[:LISTED]
        ]
        return local + listed, len(plain) - len(listed)


# -- joins --


def _shares(plans: Iterable[Plan]) -> dict[Join, Tallied]:
    """What joins had, over all statements."""
    found: dict[Join, Tallied] = {}
    for plan in plans:
        for join, share in plan.tally.joins.items():
            whole = found.setdefault(join, Tallied())
            whole.batches += share.batches
            whole.inputs += share.inputs
            whole.pairs += share.pairs
            whole.seconds += share.seconds
    return found


def _join(join: Join, operator: Operator, share: Tallied) -> JoinReport:
    """What an operator did, before anything is replayed."""
    made = JoinReport(
        join.name,
        None if join.anchor is None else str(join.anchor),
        join.axis.value,
        str(join.tag),
        _choice(operator),
        inputs=share.inputs,
        batches=max(round(share.batches), 1) if share.inputs else 0,
        seconds=share.seconds,
        counters=dict(operator.counters.to_json()),
    )
    if isinstance(operator, Adaptive):
        _adapted(made, operator)
    return made


def _adapted(made: JoinReport, operator: Adaptive) -> None:
    """What an operator expected, when it was looked at again, and what changed."""
    made.why = operator.why
    made.ran = {str(choice): inputs for choice, inputs in operator.ran.items()}
    made.looks = [
        Switch(each.inputs, each.seconds, str(each.before), str(each.after), each.why)
        for each in operator.looks
    ]
    made.switches = [each for each in made.looks if each.before != each.after]
    made.alternatives = [
        Alternative(str(choice), cost.total, cost.total, parts=parts_of(cost))
        for choice, cost in operator.estimates.items()
    ]
    if made.inputs:
        load = Workload(made.inputs, made.inputs / max(made.batches, 1))
        made.estimate = operator.model.cost(operator.choice, load).total


def parts_of(cost: Cost) -> dict[str, float]:
    """An estimate, by what is spent."""
    return {name: value for name, value in cost.to_json().items() if name != "total"}


def _choice(operator: Operator) -> str:
    """What runs, as choices are called."""
    if isinstance(operator, Adaptive):
        return str(operator.choice)
    return f"cmatch/{operator.scheme}" if isinstance(operator, CMatch) else "admatch"


def _power(join: Join, statistics: Statistics) -> dict[str, float]:
    """How many nodes of the anchors' tag share a label, by scheme."""
    if join.anchor is None:
        return {name: each.power for name, each in statistics.schemes.items()}
    about = statistics.tags.get(join.anchor)
    return {} if about is None else {name: each.power for name, each in about.schemes.items()}


@dataclass(slots=True)
class Replayed:
    """A join: what its operator did, what it knew, and the recorded inputs, if there are any."""

    join: Join
    made: JoinReport
    choices: list[Choice]
    model: CostModel | None
    recording: Recording | None

    @classmethod
    def of(
        cls, join: Join, operator: Operator, share: Tallied, recording: Recording | None
    ) -> Replayed:
        made = _join(join, operator, share)
        if not isinstance(operator, Adaptive):
            return cls(join, made, [], None, None)
        choices = list(dict.fromkeys([*operator.estimates, operator.choice]))
        return cls(join, made, choices, operator.model, recording)

    @property
    def replays(self) -> bool:
        """Whether there is anything to replay."""
        return self.recording is not None

    def replay(self, index: Index, budget: int) -> None:
        """Measure every alternative on the sample, and estimate it for that sample."""
        sample = list(self.recording or ())
        try:
            self._replay(index, sample, budget)
        except (MatchError, StoreError) as error:
            self.made.error = str(error)

    def _replay(self, index: Index, sample: list[Inputs], budget: int) -> None:
        made, join = self.made, self.join
        made.sample = number = sum(map(len, sample))
        rounds = max(3, min(11, MANY // number))

        def measured(batches: list[Inputs]) -> dict[Choice, float]:
            return measure(
                *(index, join.tags(index), join.axis, batches, self.choices),
                anchors=join.anchor,
                budget=budget,
                rounds=rounds,
            )

        taken = measured(sample)
        first = sample[: len(sample) // 2] if made.inputs > number else []
        before = measured(first)
        part = sum(map(len, first)) / number
        load = Workload(number, number / len(sample))
        known = {each.choice: each for each in made.alternatives}
        for choice, seconds in taken.items():
            each = known.get(str(choice))
            if each is None:
                each = Alternative(str(choice))
                made.alternatives.append(each)
            each.measured = each.cost = seconds
            if self.model is not None:
                cost = self.model.cost(choice, load)
                each.estimate, each.parts = cost.total, parts_of(cost)
            if choice in before:
                # What is done once for a label weighs less the longer it runs: what came after the
                # recording is taken to cost what the second half of it did.
                later = max((seconds - before[choice] * part) / (1 - part), LEAST * seconds)
                share = number / made.inputs
                each.cost = seconds * share + later * (1 - share)


# -- statements --


def _local(plan: Plan, passed: int) -> StatementReport:
    tally = plan.tally
    shares = [
        Share(join.name, share.inputs, share.pairs, share.seconds)
        for join, share in tally.joins.items()
    ]
    statement = plan.statement
    return StatementReport(
        statement.name,
        statement.text,
        passed,
        tally.matches,
        local=True,
        failed=tally.failed,
        seconds=tally.seconds,
        joins=shares,
    )


# -- the run --


def _summary(plans: Mapping[int, Plan], totals: Totals) -> Summary:
    return Summary(
        messages=totals.messages,
        batches=totals.batches,
        matches=totals.matches,
        matched=totals.matched,
        failed=totals.failed,
        unmatched=totals.unmatched,
        statements=len(plans),
        local_statements=sum(not plan.statement.plain for plan in plans.values()),
        seconds=dict(totals.seconds),
    )


def _index(index: Index, statistics: Statistics) -> dict[str, Any]:
    return {
        "path": str(index.path),
        "generation": index.generation,
        "segments": len(index.segments),
        "nodes": statistics.nodes,
        "schemes": {
            name: {"labels": each.labels, "power": each.power}
            for name, each in statistics.schemes.items()
        },
    }
