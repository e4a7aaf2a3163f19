"""Ways to do a case, in turns on the same batches: ADMatch, CMatch under each scheme, Adaptive."""

from __future__ import annotations

import gc
import time
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.mq import SCHEMES, SEED
from cmatch import Adaptive, ADMatch, Choice, CMatch, Inputs
from cmatch.heap import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cmatch import Axis, Matches, Operator, UnitCosts
    from index import Index

__all__ = [
    "ADAPTIVE",
    "ENOUGH_SECONDS",
    "FIXED",
    "NAMES",
    "Case",
    "Turns",
    "by_need",
    "fed",
    "make",
]

ADAPTIVE = "adaptive"
FIXED = (Choice("admatch"), *(Choice("cmatch", scheme) for scheme in SCHEMES))
NAMES = (*map(str, FIXED), ADAPTIVE)
ENOUGH_SECONDS = 2.5
"""A choice that took so long in a case has had its rounds."""
NEAR, LEAST, MOST, ALIKE = 1.1, 5, 15, 0.005
"""Adaptive and those that take at most so much more than the best fixed choice go on at so many
other places: at as few as are needed for two that are alike to be so near to each other, and for
that not to be by luck."""
SPAN, TIMES = 0.1, 5
"""Seconds that each of them is to run at a place, if so many times the rounds are enough for it."""
TWIN = " again"
INFINITE = float("inf")


@dataclass(frozen=True)
class Case:
    """One feed of one join, with so much memory. `labelled` has its batches under each scheme."""

    name: str
    state: str
    match: str
    axis: Axis
    anchors: str
    budget: int
    labelled: Mapping[str, Sequence[Inputs]]
    mixed: bool = False

    @property
    def inputs(self) -> int:
        return sum(map(len, self.labelled[SCHEMES[0]]))

    def first(self, batches: int) -> dict[str, Sequence[Inputs]]:
        return {scheme: each[:batches] for scheme, each in self.labelled.items()}


class Fixed:
    """A fixed choice as `fed` wants it: one loop serves all, and costs all the same.

    The operator itself is left as it is: what is added to an object makes it slower.
    """

    __slots__ = ("close", "drain", "feed", "needs")

    def __init__(self, operator: Operator, needs: str | None) -> None:
        self.feed, self.drain, self.close = operator.feed, operator.drain, operator.close
        self.needs = needs


def make(case: Case, name: str, index: Index, units: UnitCosts) -> Adaptive | Fixed:
    if name == ADAPTIVE:
        return Adaptive(
            index, case.match, case.axis, anchors=case.anchors, budget=case.budget, units=units
        )
    choice = Choice.parse(name.removesuffix(TWIN))
    operator: Operator
    if choice.scheme is None:
        operator = ADMatch(index, case.match, case.axis)
    else:
        operator = CMatch(
            index, case.match, case.axis, choice.scheme, budget=case.budget, threads=0
        )
    return Fixed(operator, choice.scheme)


def fed(
    operator: Adaptive | Fixed,
    labelled: Mapping[str | None, Sequence[Inputs]],
    keep: Callable[[Matches], None],
) -> None:
    """Feed all batches, with the labels that are needed."""
    at, number = 0, len(labelled[None])
    while at < number:
        needs, feed = operator.needs, operator.feed
        for batch in labelled[needs][at:] if at else labelled[needs]:
            keep(feed(batch))
            at += 1
            if operator.feed is not feed:
                feed = operator.feed
                if operator.needs is not needs:
                    break
    keep(operator.drain())


def by_need(labelled: Mapping[str, Sequence[Inputs]]) -> dict[str | None, Sequence[Inputs]]:
    """Batches by the scheme that is needed; who needs none gets any."""
    found: dict[str | None, Sequence[Inputs]] = {None: labelled[SCHEMES[0]]}
    found.update(labelled.items())
    return found


def elsewhere(batches: Sequence[Inputs]) -> list[Inputs]:
    """The same batches at another place in memory."""
    whole = Inputs.joined(batches)
    if len(batches) == 1:
        whole = whole.take(np.arange(len(whole)))
    ends = np.cumsum([len(batch) for batch in batches]).tolist()
    return [whole.take(slice(*each)) for each in zip([0, *ends[:-1]], ends, strict=True)]


class Turns:
    """What each way to do a case takes, all in turns.

    Whoever comes next finds memory and caches as the one before has left them, so the order is
    drawn anew for every round. Where inputs lie makes some percent of difference, and each scheme
    has its own: so they are put at several places. At each, the best round counts, and of places
    the median. What an operator holds for long lies in memory that nothing has lain in before: what
    is left of others is given back to the system first.
    """

    def __init__(self, case: Case, index: Index, units: UnitCosts) -> None:
        self._case, self._index, self._units = case, index, units
        self._feed = by_need(case.labelled)
        # What is over too soon for the clock is done several times, each with its own operator.
        self.again = max(1, min(50, 50_000 // case.inputs))
        self._random = Random(SEED)
        self.at_places: dict[str, list[float]] = {}

    @property
    def taken(self) -> dict[str, float]:
        """Seconds that each of them takes."""
        return {name: float(np.median(each)) for name, each in self.at_places.items()}

    def take(self, names: Sequence[str], rounds: int) -> None:
        """So many rounds at another place; whoever has had enough time leaves."""
        self._feed = by_need({name: elsewhere(it) for name, it in self._case.labelled.items()})
        best, spent = dict.fromkeys(names, INFINITE), dict.fromkeys(names, 0.0)
        for _ in range(rounds):
            for name in self._random.sample(names, len(names)):
                if spent[name] < ENOUGH_SECONDS:
                    _, seconds = self.one(name, deque(maxlen=1))
                    best[name] = min(best[name], seconds)
                    spent[name] += seconds * self.again
        for name, seconds in best.items():
            self.at_places.setdefault(name, []).append(seconds)

    def one(self, name: str, found: deque[Matches]) -> tuple[Adaptive | Fixed, float]:
        """One turn; gives the operator, closed, and the seconds; and all that was found."""
        made = [make(self._case, name, self._index, self._units) for _ in range(self.again)]
        gc.collect()
        give_back()
        gc.disable()
        began = time.process_time_ns()
        for operator in made:
            fed(operator, self._feed, found.append)
        taken = (time.process_time_ns() - began) / 1e9
        gc.enable()
        for operator in made:
            operator.close()
        return made[0], taken / self.again

    def final(self, rounds: int) -> Final:
        """More rounds, at other places, for Adaptive and whoever may be the best fixed choice."""
        taken = self.taken
        fixed = {name: taken[name] for name in map(str, FIXED)}
        best = min(fixed, key=lambda name: fixed[name])
        near = [name for name in fixed if fixed[name] <= NEAR * fixed[best]]
        twin = f"{best}{TWIN}"
        before = {name: len(self.at_places.get(name, ())) for name in (*near, ADAPTIVE)}
        enough = int(SPAN / (fixed[best] * self.again))
        for times in range(1, MOST + 1):
            self.take([*near, twin, ADAPTIVE], max(rounds, min(enough, TIMES * rounds)))
            there = {name: self.at_places[name][at:] for name, at in before.items()}
            noise, error = unlike(self.at_places[twin], there[best])
            if times >= LEAST and max(noise, error) <= ALIKE:
                break
        again = {best: self.at_places.pop(twin)}
        return Final(over_best(there, near, again), noise)


class Final(NamedTuple):
    """How many times the best fixed choice Adaptive takes; and how far two that are alike differ.

    The best fixed choice runs as two. What these differ by, nobody is to blame for.
    """

    over: float
    noise: float


def unlike(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """How far two are from each other, place by place; and the standard error of that."""
    ratios = np.divide(one, other)
    middle = float(np.median(ratios))
    # A median of n is as sure as a mean of two thirds as many.
    error = 1.25 * float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    return max(middle, 1 / middle) - 1, error


def over_best(
    there: Mapping[str, Sequence[float]], fixed: Sequence[str], again: Mapping[str, Sequence[float]]
) -> float:
    """Adaptive over the best fixed choice: at each place, and of these the median.

    Which is the best at a place, the others say: the least of several that are alike, where it is
    the least, is less than any of them takes. Who ran as two is taken for the mean of both.
    """
    times = {name: np.array(there[name]) for name in fixed}
    for name, more in again.items():
        times[name] = (times[name] + np.array(more)) / 2
    ratios = []
    for place, taken in enumerate(there[ADAPTIVE]):
        elsewhere = {name: np.median(np.delete(each, place)) for name, each in times.items()}
        best = min(elsewhere, key=lambda name: elsewhere[name])
        ratios.append(taken / times[best][place])
    return float(np.median(ratios))
