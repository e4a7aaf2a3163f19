"""A report: how a run went, and whether what was chosen was the best that could be.

All of it is plain values. What the page shows is computed here, so that the page and its JSON twin
say the same; `fmware.report.collect` fills it from a middleware.

- A **join** is what an operator did: its choice, what each alternative was estimated to cost an
  input, and what each did cost, replayed on a sample of the run's own inputs.
- **Regret** is what the choice costs more than the best alternative, both replayed.
- A **statement** has its share of the joins it asked for, by its inputs.

All times are CPU seconds, but for those of stages, which are by the clock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from fmware.errors import FMwareError
from fmware.labeling.html import html_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

__all__ = [
    "Accuracy",
    "Alternative",
    "JoinReport",
    "Report",
    "ReportError",
    "Share",
    "StatementReport",
    "Summary",
    "Switch",
]

FORMAT = 1
BAND = 2.0
"""An estimate is good if it is off by no more than this factor."""
PLAIN = ("name", "text", "passed", "matches")
CLOSE = 1.2
"""A choice is as good as the best if it costs no more than this many times as much: a replay does
not tell them apart any better."""


class ReportError(FMwareError):
    """A report that cannot be read or made; the message says what to do."""


@dataclass(slots=True)
class Alternative:
    """One way to do a join, in seconds an input.

    `first` is what it was expected to cost before any input had come. `estimate` is what the model
    says for inputs as the sample has them, so many and in batches of that size, and `measured` what
    they cost, replayed; `parts` are those of the estimate: calls, index access, cleaning, spills.
    `cost` is what an input of the whole run would have cost: the same, if all were replayed; if
    there were more, what is done once for a label weighs less.
    """

    choice: str
    first: float | None = None
    estimate: float | None = None
    measured: float | None = None
    cost: float | None = None
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times as much it cost as was thought."""
        if not self.estimate or not self.measured:
            return None
        return self.measured / self.estimate


@dataclass(slots=True)
class Switch:
    """A look at the choice of a join: after how many inputs and seconds, what it changed, and why.

    Where both are the same, the choice stayed.
    """

    inputs: int
    seconds: float
    before: str
    after: str
    why: str


@dataclass(slots=True)
class JoinReport:
    """What one operator did.

    `ran` are the choices that ran, with the inputs of each; `sample` is how many inputs were
    replayed. `power` is, by scheme, how many nodes of the anchors' tag share a label. `estimate` is
    what the choice should have cost an input of the run, `per_input` what it did cost; `regret` is
    an input's, too. `why` says in one sentence what decided; `looks` are the times at which the
    choice was looked at again, and `switches` those of them that changed it. `error` says why
    nothing could be replayed.
    """

    name: str
    anchor: str | None
    axis: str
    tag: str
    choice: str
    inputs: int = 0
    batches: int = 0
    seconds: float = 0.0
    estimate: float | None = None
    ran: dict[str, int] = field(default_factory=dict)
    sample: int = 0
    alternatives: list[Alternative] = field(default_factory=list)
    switches: list[Switch] = field(default_factory=list)
    looks: list[Switch] = field(default_factory=list)
    why: str = ""
    counters: dict[str, float] = field(default_factory=dict)
    power: dict[str, float] = field(default_factory=dict)
    per_input: float | None = None
    best: str | None = None
    regret: float | None = None
    error: str | None = None

    def settle(self) -> Self:
        """Work out what follows from the rest."""
        self.per_input = self.seconds / self.inputs if self.inputs else None
        costs = {a.choice: a.cost for a in self.alternatives if a.cost is not None}
        if self.choice in costs:
            self.best = min(costs, key=lambda choice: costs[choice])
            self.regret = costs[self.choice] - costs[self.best]
        return self

    def _of(self, choice: str) -> Alternative | None:
        return next((each for each in self.alternatives if each.choice == choice), None)

    @property
    def regret_seconds(self) -> float:
        """Over all inputs of the run."""
        return (self.regret or 0.0) * self.inputs

    @property
    def as_good(self) -> bool | None:
        """Whether the choice was as good as the best; None if nobody looked."""
        chosen = self._of(self.choice)
        if self.regret is None or chosen is None or chosen.cost is None:
            return None
        return chosen.cost <= CLOSE * (chosen.cost - self.regret)


@dataclass(slots=True)
class Share:
    """What a statement had of a join."""

    join: str
    inputs: int
    pairs: int
    seconds: float


@dataclass(slots=True)
class StatementReport:
    """What one statement did: messages that passed its filter part, matches, its joins.

    `seconds` is all of its match part, `measured` the joins alone; `estimate` what they were
    thought to cost, `best` what they would have cost with the best choices, `regret` what the
    choices cost more than that. These are None where nothing was estimated or replayed.
    """

    name: str
    text: str
    passed: int
    matches: int
    local: bool = False
    failed: int = 0
    seconds: float = 0.0
    joins: list[Share] = field(default_factory=list)
    choice: str | None = None
    inputs: int = 0
    pairs: int = 0
    measured: float | None = None
    estimate: float | None = None
    best: float | None = None
    regret: float | None = None
    switches: int = 0
    false_hits: int = 0
    spills: int = 0
    power: float | None = None

    def settle(self, joins: Mapping[str, JoinReport]) -> Self:
        """Work out its part of its joins."""
        asked = [(share, joins[share.join]) for share in self.joins if share.join in joins]
        if not asked:
            return self
        self.choice = ", ".join(dict.fromkeys(join.choice for _, join in asked))
        self.inputs = sum(share.inputs for share, _ in asked)
        self.pairs = sum(share.pairs for share, _ in asked)
        self.measured = sum(share.seconds for share, _ in asked)
        self.estimate = _sum((join.estimate, share.inputs) for share, join in asked)
        self.regret = _sum((join.regret, share.inputs) for share, join in asked)
        if self.regret is not None:
            self.best = max(self.measured - self.regret, 0.0)
        self.switches = sum(len(join.switches) for _, join in asked)
        self.false_hits = sum(round(_part(share, join, "false_hits")) for share, join in asked)
        self.spills = sum(round(_part(share, join, "spills")) for share, join in asked)
        self.power = max((_power(join) for _, join in asked), default=None)
        return self

    def to_json(self) -> dict[str, Any]:
        """As plain values: of those that only filter, of which there may be thousands, no more
        than there is to say."""
        found = asdict(self)
        return found if self.local else {name: found[name] for name in PLAIN}


def _sum(terms: Iterable[tuple[float | None, int]]) -> float | None:
    """The sum of what an input costs times inputs; None if one of them is not known."""
    found = [(each, times) for each, times in terms if times]
    if not found or any(each is None for each, _ in found):
        return None
    return sum((each or 0.0) * times for each, times in found)


def _part(share: Share, join: JoinReport, counter: str) -> float:
    return join.counters.get(counter, 0) * share.inputs / join.inputs if join.inputs else 0.0


def _power(join: JoinReport) -> float:
    """The clustering power under the scheme that was chosen; the best there is for AD-only."""
    scheme = join.choice.partition("/")[2].partition("+")[0]
    return join.power.get(scheme, max(join.power.values(), default=0.0))


@dataclass(slots=True)
class Accuracy:
    """How well the cost model knew, over all alternatives that were estimated and replayed.

    `within` is the share of estimates that are off by at most a factor of two, `ratio` the median
    of measured over estimated, `right` the share of joins whose choice was as good as the best.
    """

    points: int = 0
    within: float | None = None
    ratio: float | None = None
    joins: int = 0
    right: float | None = None

    @classmethod
    def of(cls, joins: Iterable[JoinReport]) -> Accuracy:
        """What reports of joins say of the model."""
        joins = list(joins)
        ratios = [a.ratio for join in joins for a in join.alternatives if a.ratio is not None]
        good = [each for each in ratios if 1 / BAND <= each <= BAND]
        judged = [join.as_good for join in joins if join.as_good is not None]
        return cls(
            len(ratios),
            len(good) / len(ratios) if ratios else None,
            median(ratios) if ratios else None,
            len(judged),
            sum(judged) / len(judged) if judged else None,
        )


@dataclass(slots=True)
class Summary:
    """The run as a whole; `seconds` by stage, by the clock, and `rate` messages a second of it."""

    messages: int = 0
    batches: int = 0
    matches: int = 0
    matched: int = 0
    failed: int = 0
    unmatched: int = 0
    statements: int = 0
    local_statements: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    busy: float = 0.0
    rate: float = 0.0
    inputs: int = 0
    pairs: int = 0
    joins: int = 0
    switches: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    join_seconds: float = 0.0
    regret_seconds: float | None = None
    regret_share: float | None = None

    def settle(self, joins: Iterable[JoinReport]) -> Self:
        """Add up what joins did."""
        joins = list(joins)
        self.busy = sum(self.seconds.values())
        self.rate = self.messages / self.busy if self.busy else 0.0
        self.joins = len(joins)
        self.inputs = sum(join.inputs for join in joins)
        self.switches = sum(len(join.switches) for join in joins)
        self.join_seconds = sum(join.seconds for join in joins)
        for join in joins:
            for name, value in join.counters.items():
                self.counters[name] = self.counters.get(name, 0) + value
        self.pairs = int(self.counters.get("pairs", 0))
        judged = [join for join in joins if join.regret is not None]
        if judged:
            self.regret_seconds = sum(join.regret_seconds for join in judged)
            spent = sum(join.seconds for join in judged)
            self.regret_share = self.regret_seconds / spent if spent else 0.0
        return self


@dataclass(slots=True)
class Report:
    """All there is to say of a run.

    `index`, `settings` and `units` are told as they are. `left_out` is how many statements that
    only filter are not listed, where there are very many.
    """

    made: str
    version: str
    index: dict[str, Any]
    settings: dict[str, Any]
    summary: Summary
    accuracy: Accuracy
    joins: list[JoinReport]
    statements: list[StatementReport]
    units: dict[str, Any] | None = None
    left_out: int = 0
    title: str = "FMware report"

    @property
    def by_cost(self) -> list[JoinReport]:
        """The joins, the most expensive first."""
        return sorted(self.joins, key=lambda join: -join.seconds)

    def _repr_html_(self) -> str:
        """The most expensive joins, as a notebook shows them; `write` makes the whole page."""
        run = self.summary
        caption = f"{self.title}: {run.messages:,} messages, {run.matches:,} matches"
        rows = (
            (join.name, join.choice, join.inputs, f"{join.seconds:.3g}") for join in self.by_cost
        )
        header = ("join", "operator", "inputs", "seconds")
        return html_table(caption, header, rows, len(self.joins))

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        told = replace(self, statements=[])
        statements = [each.to_json() for each in self.statements]
        return {"format": FORMAT, **asdict(told), "statements": statements}

    @classmethod
    def from_json(cls, data: Any) -> Report:
        """The reverse of `to_json`; a `ReportError` if that is not what it is."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ReportError(f"not a report of format {FORMAT}; `fmware report` makes one")
        try:
            found = {each.name: data[each.name] for each in fields(cls)}
            found["summary"] = Summary(**found["summary"])
            found["accuracy"] = Accuracy(**found["accuracy"])
            found["joins"] = [_join(each) for each in found["joins"]]
            found["statements"] = [_statement(each) for each in found["statements"]]
            return cls(**found)
        except (KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"a report with parts that are missing or wrong: {error}") from None

    @classmethod
    def load(cls, path: Path) -> Report:
        """A report from its JSON twin."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ReportError(f"{path}: not JSON: {error}") from None
        try:
            return cls.from_json(data)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from None

    def write(self, path: Path) -> Path:
        """Write the page to `path` and the JSON twin beside it; gives where the twin is."""
        from fmware.report.page import page

        twin = path.with_suffix(".json")
        if twin == path:
            raise ReportError(f"{path}: the page needs another suffix than .json, say .html")
        lines = json.dumps(self.to_json(), ensure_ascii=False, indent=1, allow_nan=False)
        twin.write_text(lines + "\n", encoding="utf-8")
        path.write_text(page(self), encoding="utf-8")
        return twin


def _join(data: dict[str, Any]) -> JoinReport:
    made = JoinReport(**data)
    made.alternatives = [Alternative(**each) for each in data["alternatives"]]
    made.switches = [Switch(**each) for each in data["switches"]]
    made.looks = [Switch(**each) for each in data.get("looks", ())]
    return made


def _statement(data: dict[str, Any]) -> StatementReport:
    made = StatementReport(**data)
    made.joins = [Share(**each) for each in data.get("joins", ())]
    return made


def points(joins: Iterable[JoinReport]) -> Iterator[tuple[JoinReport, Alternative]]:
    """The alternatives that were both estimated and replayed."""
    for join in joins:
        for each in join.alternatives:
            if each.ratio is not None:
                yield join, each
