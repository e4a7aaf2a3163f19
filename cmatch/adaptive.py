"""An operator that runs whichever operator is expected to cost least, and changes its mind.

1. When it is made, the cost model weighs ADMatch and CMatch under each scheme by what the index
   says of the anchors' tag. The first batch says how many inputs come at once.
2. Most batches go straight to the operator that was chosen. Now and then one is looked at: what
   the operator has counted since, and a few recent inputs, tell how often labels are new and how
   many candidates they have. Time for thinking is a small share of the time spent.
3. Another choice must be clearly better, twice in a row, before it is taken. The old operator is
   drained first: its pairs come with the batch, so that none is lost and none comes twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cmatch.admatch import ADMatch
from cmatch.axes import Axis
from cmatch.cclean import BUDGET
from cmatch.cmatch import CMatch
from cmatch.counters import Counters
from cmatch.errors import MissingLabels, OperatorClosed
from cmatch.inputs import Inputs, Matches
from cmatch.model import ADMATCH, BATCH, Choice, CostModel, Workload
from cmatch.profile import Profile
from cmatch.units import units_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from cmatch.cost import Cost
    from cmatch.operator import Operator
    from cmatch.units import UnitCosts
    from index import Index
    from labeling.runs import Tag

__all__ = ["Adaptive", "Spent", "Switch", "measure"]

SAMPLE = 16
"""Consecutive batches that are kept, to measure other choices on."""
SIZES = (1, 4, 16, 64, 256, 1024, 1 << 14, 1 << 18)
"""Batches for which the choice is made in advance."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A change of mind: after so many inputs and seconds, from one choice to another."""

    inputs: int
    seconds: float
    before: Choice
    after: Choice
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "seconds": self.seconds,
            "from": str(self.before),
            "to": str(self.after),
            "why": self.why,
        }


@dataclass(slots=True)
class Spent:
    """What was measured: inputs, batches, and seconds in `feed` and `drain`; the same by choice."""

    inputs: int = 0
    batches: int = 0
    seconds: float = 0.0
    choices: dict[Choice, Spent] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "inputs": self.inputs,
            "batches": self.batches,
            "seconds": self.seconds,
        }
        if self.choices:
            found["choices"] = {str(each): own.to_json() for each, own in self.choices.items()}
        return found


class Adaptive:
    """Matches anchors with the nodes of `tag` on an axis, in the way that costs least.

    `anchors` is the tag of the anchors; without it nothing is known of their labels, and AD-only
    match is all there is. `workload` says what to expect, if that is known: otherwise each of them
    once, in batches of 16. `choice` fixes the first choice, and with `fixed` all others.

    - `choice`: what runs now. `needs`: the scheme whose labels inputs are to carry now, or None.
      It changes only in `feed`, `drain` and `move`. Inputs that say they carry others are labelled
      anew, which costs more than a match.
    - `estimates`: seconds an input, as expected when it was made.
    - `switches`, `spent`, `counters`: what happened.
    - `sample`: some consecutive batches, to `measure` other choices on.
    """

    def __init__(
        self,
        index: Index,
        tag: Tag | str,
        axis: Axis | str,
        *,
        anchors: Tag | str | None = None,
        budget: int = BUDGET,
        threads: int = 0,
        units: UnitCosts | None = None,
        place: str | Path | None = None,
        workload: Workload | None = None,
        choice: Choice | None = None,
        fixed: bool = False,
        split: bool = True,
    ) -> None:
        self.index = index
        self.tag = tag
        self.axis = Axis(axis)
        self.anchors = anchors
        self.model = CostModel(units or units_of(index), budget)
        self.switches: list[Switch] = []
        self.sample: list[Inputs] = []
        self.estimates: dict[Choice, Cost] = {}
        self.profile: Profile | None = None
        self._budget, self._threads, self._place = budget, threads, place
        self._fixed = fixed
        self._split = split
        self._done = Counters()
        self._spent = Spent()
        self._closed = False
        self._table: list[tuple[int, Choice]] = []
        if anchors is not None:
            self._weigh(anchors, workload)
        self.choice = choice or self._first(workload.batch if workload else BATCH)
        self._asked = choice is not None
        self.needs: str | None = None
        self._operator: Operator = self._make(self.choice)
        self._left = 1

    # --- what callers do --------------------------------------------------------------------

    def feed(self, inputs: Inputs) -> Matches:
        """Take a batch; give the pairs that are ready, also those of earlier batches."""
        self._left -= 1
        if self._left:
            try:
                return self._operator.feed(inputs)
            except MissingLabels:
                return self._operator.feed(self._labelled(inputs))
        return self._looked(inputs)

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        return self._operator.poll()

    def drain(self) -> Matches:
        """Wait for all that is under way, and give its pairs."""
        return self._operator.drain()

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        if self.needs is not None and self.needs not in index.schemes:
            matches = self._switch(ADMATCH, f"the index has no scheme {self.needs} any more")
            self._operator.move(index)
        else:
            matches = self._operator.move(index)
        self.index = index
        self._left = 1
        return matches

    def switch(self, choice: Choice, why: str = "asked for") -> Matches:
        """Drain, and go on with another choice; gives the pairs of what was under way."""
        return self._switch(choice, why)

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        self._closed = True
        self._operator.close()

    @property
    def counters(self) -> Counters:
        """What all operators that ran have done so far."""
        return self._done + self._operator.counters

    @property
    def spent(self) -> Spent:
        return self._spent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Adaptive {self.axis.value}::{self.tag} by {self.choice}>"

    # --- the first choice -------------------------------------------------------------------

    def _weigh(self, anchors: Tag | str, workload: Workload | None) -> None:
        """Estimate every choice, and choose for batches of every size."""
        self.profile = profile = Profile.of(self.index, anchors, self.tag, self.axis)
        expected = workload or Workload(max(profile.anchors, 1))
        found = self.model.estimate(profile, expected)
        self.estimates = {each: cost * (1 / expected.inputs) for each, cost in found.items()}
        for size in SIZES:
            inputs = max(expected.inputs, size)
            load = Workload(inputs, size, expected.once)
            costs = self.model.estimate(profile, load)
            self._table.append((size, min(costs, key=lambda each: costs[each].total)))

    def _first(self, batch: float) -> Choice:
        """The choice for batches of about a size."""
        found = ADMATCH
        for size, choice in self._table:
            found = choice
            if size >= batch:
                break
        return found

    # --- operators --------------------------------------------------------------------------

    def _make(self, choice: Choice) -> Operator:
        self.needs = choice.scheme
        if choice.scheme is None:
            return ADMatch(self.index, self.tag, self.axis)
        return CMatch(
            self.index,
            self.tag,
            self.axis,
            choice.scheme,
            budget=self._budget,
            threads=self._threads,
            place=self._place,
        )

    def _switch(self, choice: Choice, why: str) -> Matches:
        if self._closed:
            raise OperatorClosed(repr(self))
        old = self._operator
        matches = old.drain()
        # Made first: if that fails, the old one goes on.
        self._operator = self._make(choice)
        self._retire(old)
        self.switches.append(
            Switch(self.counters.inputs, self._spent.seconds, self.choice, choice, why)
        )
        self.choice = choice
        self._left = 1
        return matches

    def _retire(self, old: Operator) -> None:
        counters = old.counters
        counters.bytes_held = counters.table_bytes = 0
        self._done += counters
        old.close()

    # --- batches that are looked at ---------------------------------------------------------

    def _looked(self, inputs: Inputs) -> Matches:
        self._left = 1 << 30
        return self._operator.feed(self._labelled(inputs))

    def _labelled(self, inputs: Inputs) -> Inputs:
        """Inputs with the labels that are needed now."""
        needed = self.needs
        if needed is None or (inputs.rank is not None and inputs.scheme in (needed, None)):
            return inputs
        if self.anchors is None:
            raise MissingLabels(needed)
        return Inputs.of(self.index, self.anchors, needed, inputs.id, inputs.start)


def measure(
    index: Index,
    tag: Tag | str,
    axis: Axis | str,
    sample: Sequence[Inputs],
    choices: Iterable[Choice],
    *,
    anchors: Tag | str | None = None,
    budget: int = BUDGET,
    rounds: int = 3,
) -> dict[Choice, float]:
    """CPU seconds an input that choices take for a sample, each on an operator of its own.

    They take turns, and the best turn counts. Choices whose labels the sample does not carry need
    the tag of the anchors, and are left out without it.
    """
    number = sum(map(len, sample))
    if not number:
        return {}
    feeds: dict[Choice, list[Inputs]] = {}
    for choice in choices:
        labelled = [_relabelled(index, anchors, choice.scheme, each) for each in sample]
        batches = [each for each in labelled if each is not None]
        if len(batches) == len(sample):
            feeds[choice] = batches
    taken = dict.fromkeys(feeds, float("inf"))
    for _ in range(rounds):
        for choice, batches in feeds.items():
            with Adaptive(
                index, tag, axis, anchors=None, budget=budget, choice=choice, fixed=True
            ) as operator:
                began = time.process_time_ns()
                for batch in batches:
                    operator.feed(batch)
                operator.drain()
                taken[choice] = min(taken[choice], (time.process_time_ns() - began) / 1e9)
    return {choice: seconds / number for choice, seconds in taken.items()}


def _relabelled(
    index: Index, anchors: Tag | str | None, scheme: str | None, inputs: Inputs
) -> Inputs | None:
    if scheme is None or (inputs.rank is not None and inputs.scheme == scheme):
        return inputs
    if anchors is None:
        return None
    return Inputs.of(index, anchors, scheme, inputs.id, inputs.start)
