"""The ways to match, and the cost model: what each is expected to take, and which is chosen.

The terms are those of sections 3.4 to 3.6 of the paper. I inputs, of which I(s) have the label s,
with C(s) candidates of that label, cost

- ADMatch: one search for each input, the sum over labels of I(s) x AD_index_access_cost;
- CMatch: one scan for each label that comes, the sum of SES_index_access_cost, and cleaning, the
  sum of I(s) x log C(s): inputs search the candidates of their label, which lie in order.

A term is a count times a unit cost (`units`). Counts come from the index (`figures`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fmware.cmatch.cclean import BUDGET
from fmware.cmatch.rent import FETCH_ALL, Rent

if TYPE_CHECKING:
    from fmware.cmatch.figures import Figures, Labels
    from fmware.cmatch.units import UnitCosts

__all__ = ["ADMATCH", "Choice", "Cost", "CostModel", "Counts", "Workload"]

BATCH = 16
"""Inputs that a message brings, unless it is known better."""
LIST_ROW, LIST_HEAD = 18, 200
"""Bytes of a candidate in a list of them, and of the list itself."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An operator, the scheme it clusters by, and whether its labels are rented before fetched."""

    operator: Literal["admatch", "cmatch"]
    scheme: str | None = None
    rents: bool = False

    def __str__(self) -> str:
        if self.scheme is None:
            return self.operator
        return f"{self.operator}/{self.scheme}" + ("+admatch" if self.rents else "")

    @classmethod
    def parse(cls, text: str) -> Choice:
        """The reverse of `str`."""
        operator, _, rest = text.partition("/")
        scheme, plus, _ = rest.partition("+")
        if operator == "cmatch" and scheme:
            return cls("cmatch", scheme, bool(plus))
        if text != "admatch":
            raise ValueError(f"no way to match is called {text!r}; e.g. admatch, cmatch/path")
        return ADMATCH


ADMATCH = Choice("admatch")


class Workload(NamedTuple):
    """How many inputs come, and how many in a batch."""

    inputs: float
    batch: float = BATCH


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds an input, by what they are spent on.

    - `calls`: its share of a call.
    - `index_access`: searches of ADMatch; new labels and their candidates of CMatch.
    - `cleaning`: searches among the candidates of known labels, and pairs.
    - `spills`: candidates that memory has no room for.
    """

    calls: float = 0.0
    index_access: float = 0.0
    cleaning: float = 0.0
    spills: float = 0.0

    @property
    def total(self) -> float:
        return self.calls + self.index_access + self.cleaning + self.spills

    def to_json(self) -> dict[str, float]:
        """The parts and their total."""
        return {**asdict(self), "total": self.total}


class Counts(NamedTuple):
    """What CMatch counts for each input, expected or observed.

    New labels; those of them that have candidates and are fetched; their candidates; the share of
    inputs that are deferred; the steps of a search among candidates; pairs; and the share of inputs
    that look on disk.
    """

    labels: float
    lists: float
    candidates: float
    deferred: float
    steps: float
    pairs: float
    spilled: float


class _Row(NamedTuple):
    """Anchors of a sample that are alike.

    Their share of the sample; how many labels they stand for; the share of all anchors that have
    such a label; the logarithm of how likely an input does not have it; its candidates.
    """

    part: float
    labels: float
    share: float
    absent: float
    candidates: float


def _rows(labels: Labels, anchors: int) -> list[_Row]:
    """The sample of a scheme. A few rows: plain numbers are faster than arrays."""
    alike = Counter(zip(labels.sharing.tolist(), labels.candidates.tolist(), strict=True))
    # A label that n anchors share is met n times as often as one of a single anchor.
    single = sum(times / sharing for (sharing, _), times in alike.items())
    return [
        _Row(
            times / alike.total(),
            labels.total * times / sharing / single,
            sharing / anchors,
            math.log1p(-min(sharing / anchors, 1 - 1e-12)),
            candidates,
        )
        for (sharing, candidates), times in alike.items()
    ]


class CostModel:
    """What each way takes for a join, by the unit costs and the memory that are given."""

    def __init__(self, figures: Figures, units: UnitCosts, budget: int = BUDGET) -> None:
        self.figures = figures
        self.units = units
        self.budget = budget
        self._rows = {
            scheme: _rows(labels, figures.anchors) for scheme, labels in figures.schemes.items()
        }
        self._steps = {
            scheme: sum(
                row.part * math.log2(2.0 + row.candidates) for row in rows if row.candidates
            )
            for scheme, rows in self._rows.items()
        }

    @property
    def expected(self) -> Workload:
        """What comes, if the caller does not say: each anchor of the corpus once."""
        return Workload(max(self.figures.anchors, 1))

    def costs(
        self, load: Workload, *, skew: float = 1.0, pairs: float | None = None
    ) -> dict[Choice, Cost]:
        """The cost of ADMatch, and of CMatch by each scheme, with rented labels if that is less."""
        found = {ADMATCH: self.cost(ADMATCH, load, pairs=pairs)}
        for scheme in self.figures.schemes:
            both = {
                each: self.cost(each, load, skew=skew, pairs=pairs)
                for each in (Choice("cmatch", scheme), Choice("cmatch", scheme, rents=True))
            }
            best = self.best(both)
            found[best] = both[best]
        return found

    def cost(
        self, choice: Choice, load: Workload, *, skew: float = 1.0, pairs: float | None = None
    ) -> Cost:
        """Seconds an input, if `load` comes and nothing was fetched before.

        `skew`: how many labels come, as a share of those that would if any anchor were as likely to
        come as any other. `pairs`: of an input, if that is known better than from the index.
        """
        if pairs is None:
            pairs = self.figures.fanout
        if choice.scheme is None:
            return self.by_ad(load.batch, pairs)
        rent = self.rent(choice, load)
        return self.by_label(self._counts(choice.scheme, load, rent, skew, pairs), load.batch)

    def by_ad(self, batch: float, pairs: float) -> Cost:
        """What ADMatch takes for an input with that number of pairs."""
        units = self.units
        return Cost(units.ad_call / batch, self._search, pairs * units.pair)

    def by_label(self, counts: Counts, batch: float) -> Cost:
        """What CMatch takes for an input, by what it counts."""
        # A sum of parts: it may be more than all of them by what rounding adds.
        units, deferred = self.units, min(counts.deferred, 1.0)
        parted = units.deferral * (1.0 - (1.0 - deferred) ** batch)
        fetched = counts.labels * units.label + counts.lists * units.list
        fetched += counts.candidates * units.candidate
        known = (1.0 - deferred) * (units.input + counts.steps * units.step)
        return Cost(
            (units.call + parted) / batch,
            fetched + deferred * self._search,
            known + counts.pairs * units.pair,
            counts.spilled * units.spilled,
        )

    def rent(self, choice: Choice, load: Workload) -> Rent:
        """How long labels are rented: until their inputs have cost as much as to fetch them.

        An input that is deferred costs its search and its share of a call, which the deferred
        inputs of a batch share.
        """
        if choice.scheme is None or not choice.rents:
            return FETCH_ALL
        known = self.units.input + self.units.step * self._steps[choice.scheme]
        rent = self._rent(known, load.batch)
        # As many inputs of a batch share a call as are deferred with that rent.
        deferred = self._counts(choice.scheme, load, rent).deferred
        return self._rent(known, max(deferred * load.batch, 1.0))

    def observed_rent(self, counts: Counts, batch: float) -> Rent:
        """The same, with the share of inputs that were seen to be deferred."""
        known = self.units.input + self.units.step * counts.steps
        return self._rent(known, max(counts.deferred * batch, 1.0))

    def _rent(self, known: float, rows: float) -> Rent:
        units = self.units
        saved = max(self._search + units.deferral / rows - known, 1e-12)
        return Rent(units.list / saved, units.candidate / saved)

    @property
    def _search(self) -> float:
        """What ADMatch takes to search for an input."""
        units = self.units
        return units.ad_input + units.ad_step * math.log2(2.0 + self.figures.matches)

    def _counts(
        self, scheme: str, load: Workload, rent: Rent, skew: float = 1.0, pairs: float = 0.0
    ) -> Counts:
        """What CMatch is expected to count for each input."""
        inputs, batch = max(load.inputs, 1.0) / skew, load.batch / skew
        labels = lists = candidates = deferred = searched = 0.0
        for row in self._rows[scheme]:
            # How many of the labels that it stands for come, and how often each of them does.
            seen = row.labels * skew * -math.expm1(inputs * skew * row.absent)
            labels += seen
            if not row.candidates:
                continue
            arrivals = inputs * row.share
            rented = rent.label + rent.candidate * row.candidates
            # A batch that has as many inputs of a label as are to be deferred has it fetched.
            if rented <= max(batch * row.share, 1.0):
                rented = 0.0
            away = min(rented / arrivals, 1.0)
            deferred += row.part * away
            searched += row.part * (1.0 - away)
            if arrivals >= rented:
                lists += seen
                candidates += seen * row.candidates
        size = candidates * LIST_ROW + lists * LIST_HEAD
        spilled = max(1.0 - self.budget / size, 0.0) if size else 0.0
        number = inputs * skew
        return Counts(
            labels / number,
            lists / number,
            candidates / number,
            deferred,
            self._steps[scheme],
            pairs,
            spilled * searched,
        )

    def labels(self, scheme: str, load: Workload) -> float:
        """How many labels are expected to come."""
        return self._counts(scheme, load, FETCH_ALL).labels * load.inputs

    # --- choosing ---------------------------------------------------------------------------

    def best(self, costs: dict[Choice, Cost]) -> Choice:
        """The way that costs least."""
        return min(costs, key=lambda each: costs[each].total)

    def why(self, choice: Choice, costs: dict[Choice, Cost]) -> str:
        """Why a way was chosen, in one sentence: against which other, and which figure decided."""
        others = [each for each in costs if each.operator != choice.operator]
        if not others or choice not in costs:
            return "there is no other way"
        other = min(others, key=lambda each: costs[each].total)
        mine, its = costs[choice], costs[other]
        part = max(PARTS, key=lambda name: getattr(its, name) - getattr(mine, name))
        return (
            f"{other} would take {shown(its.total)} an input instead of {shown(mine.total)}, "
            f"mostly for {PARTS[part]}"
            f" ({shown(getattr(its, part))} instead of {shown(getattr(mine, part))})"
        )


PARTS = {
    "calls": "calls",
    "index_access": "access to the index",
    "cleaning": "searches among candidates and pairs",
    "spills": "candidates on disk",
}
"""The parts of a cost, in words."""


def shown(seconds: float) -> str:
    """A time an input, in a sentence."""
    return f"{seconds * 1e6:.2f} µs" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"
