"""One operator at a time, and another from the next batch on: no pair is lost, none comes twice.

The old operator is drained first: its pairs come with those of the batch. What all of them have
done is told as if one had done it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from cmatch.admatch import FOREVER
from cmatch.axes import Axis
from cmatch.cclean import BUDGET
from cmatch.counters import Counters
from cmatch.errors import MissingLabels, OperatorClosed
from cmatch.inputs import Inputs
from cmatch.model import ADMATCH, BATCH, Choice, CostModel, Workload
from cmatch.outlook import First, Outlook
from cmatch.spent import Spent, Switch
from cmatch.split import Rental
from cmatch.units import units_of
from cmatch.watched import WatchedADMatch, WatchedCMatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from cmatch.cost import Cost
    from cmatch.inputs import Matches
    from cmatch.profile import Profile
    from cmatch.units import UnitCosts
    from index import Index
    from labeling.runs import Tag

__all__ = ["Switched"]

_NOTHING, _NO_TIME = Counters(), Spent()
_ANY = First(ADMATCH, 0, FOREVER, ())

Watched = WatchedADMatch | WatchedCMatch


class Feed(Protocol):
    """Takes a batch; gives the pairs that are ready, also those of earlier batches."""

    def __call__(self, inputs: Inputs) -> Matches: ...


class Drain(Protocol):
    """Waits for all that is under way, and gives its pairs."""

    def __call__(self) -> Matches: ...


class Switched:
    """Matches anchors with the nodes of `tag` on an axis, in a way that may be another later.

    `anchors` is the tag of the anchors; without it nothing is known of their labels, and AD-only
    match is all there is. `workload` says what to expect, if that is known: otherwise each of them
    twice, in batches of 16. `choice` is the first choice, if it is not to be the one that is
    expected to cost least. With `split`, single labels may be left to AD-only match.

    - `choice`: what runs now. `needs`: the scheme whose labels inputs are to carry now, or None.
      It changes only in `feed`, `move` and `switch`. Inputs that were made before, and carry others
      or none, are labelled anew, which costs more than a match.
    - `expected`: what is expected to come in all. `estimates`: seconds an input, if that comes, as
      it was when the operator was made.
    - `switches`, `spent`, `counters`: what happened.
    - `feed`, `feeder`, `resume`, `drain`: those of the operator that runs, because to hand a batch
      on would take a tenth of what CMatch takes for it. So take them from here for every batch:
      after a switch they are others.
    """

    __slots__ = (
        "_batch",
        "_budget",
        "_closed",
        "_done",
        "_first",
        "_operator",
        "_outlook",
        "_outside",
        "_place",
        "_policy",
        "_spent",
        "_split",
        "_threads",
        "_units",
        "_workload",
        "anchors",
        "axis",
        "choice",
        "drain",
        "estimates",
        "feed",
        "feeder",
        "index",
        "model",
        "needs",
        "resume",
        "switches",
        "tag",
    )

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
        split: bool = True,
    ) -> None:
        self.index = index
        self.tag = tag
        self.axis = Axis(axis)
        self.anchors = anchors
        self.switches: list[Switch] = []
        self.estimates: Mapping[Choice, Cost] = {}
        self._budget, self._threads, self._place = budget, threads, place
        self._split = split
        self._done, self._spent = _NOTHING, _NO_TIME
        self._closed = False
        self._workload = workload
        self._units = units or units_of(index)
        self._outlook = outlook = self._looking_out()
        self._first = _ANY
        if outlook is not None:
            self.model = outlook.model
            self.estimates = outlook.costs
            self._first = outlook.first(workload.batch if workload else BATCH)
        else:
            self.model = CostModel(self._units, budget)
        if choice is not None:
            self._first = First(choice, 0, FOREVER, ())
        self.choice = self._first.choice
        self._batch = float(BATCH)
        self.needs: str | None = None
        self._policy: Rental | None = None
        self._operator: Watched = self._make(self.choice)
        self.feed: Feed
        self.feeder: object | None
        self.resume: Feed
        self.drain: Drain
        self._start()

    # --- what callers do --------------------------------------------------------------------

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        return self._operator.poll()

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        # Not by `needs`: while CMatch rests, inputs need no labels.
        scheme = self.choice.scheme
        if scheme is not None and scheme not in index.schemes:
            matches = self.switch(ADMATCH, f"the index has no scheme {scheme} any more")
            self._operator.move(index)
        else:
            matches = self._operator.move(index)
        self.index = index
        return matches

    def switch(self, choice: Choice, why: str = "asked for") -> Matches:
        """Drain, and go on with another choice; gives the pairs of what was under way."""
        if self._closed:
            raise OperatorClosed(repr(self))
        old, before = self._operator, self.choice
        matches = old.drain()
        needs, policy = self.needs, self._policy
        # Made first: if that fails, the old one goes on.
        try:
            self._operator = self._make(choice)
        except BaseException:
            self.needs, self._policy = needs, policy
            raise
        self._retire(old, before)
        self.choice = choice
        spent = self._spent
        self.switches.append(Switch(spent.inputs, spent.seconds, before, choice, why))
        self._start()
        return matches

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        if self._closed:
            return
        self._closed = True
        # Nothing leads back to here: what the index has in memory is let go of at once.
        self._operator.leave()
        self._policy = None
        self.feed = partial(_refused, repr(self))
        self.feeder = None

    @property
    def profile(self) -> Profile | None:
        """What the index says of the join; None if the tag of the anchors is not known."""
        return None if self._outlook is None else self._outlook.profile

    def _looking_out(self) -> Outlook | None:
        if self.anchors is None:
            return None
        return Outlook.of(
            self.index,
            self.anchors,
            self.tag,
            self.axis,
            self._units,
            self._budget,
            self._workload,
            split=self._split,
        )

    @property
    def counters(self) -> Counters:
        """What all operators that ran have done so far."""
        found = self._operator.counters
        return self._done + found if self.switches else found

    @property
    def spent(self) -> Spent:
        """What was measured so far; batches are counted by their inputs."""
        return self._spent.plus(self.choice, self._spent_now(self._operator.counters))

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
        return f"<{type(self).__name__} {self.axis.value}::{self.tag} by {self.choice}>"

    # --- operators --------------------------------------------------------------------------

    def _make(self, choice: Choice) -> Watched:
        self.needs = choice.scheme
        self._policy = None
        if choice.scheme is None:
            by_ad = WatchedADMatch(self.index, self.tag, self.axis)
            by_ad.look = self._looked
            return by_ad
        outlook = self._outlook
        if choice.split and outlook is not None and choice.scheme in outlook.profile.schemes:
            self._policy = Rental(outlook.terms[choice.scheme], self._so_far)
        made = WatchedCMatch(
            self.index,
            self.tag,
            self.axis,
            choice.scheme,
            budget=self._budget,
            threads=self._threads,
            place=self._place,
            policy=self._policy,
        )
        made.look, made.labelled = self._looked, self._labelled
        return made

    def _labelled(self, inputs: Inputs) -> Inputs:
        """Inputs with the labels that are needed now."""
        assert self.needs is not None
        if self.anchors is None:
            raise MissingLabels(self.needs)
        return Inputs.of(self.index, self.anchors, self.needs, inputs.id, inputs.start)

    def _looked(self, inputs: Inputs) -> Matches:
        """A batch that the operator hands over, as it is time to look; nobody is to, here."""
        return self._operator.feed(inputs)

    def _so_far(self) -> int:
        """The inputs of the operator that runs."""
        return self._operator.taken if isinstance(self._operator, WatchedCMatch) else 0

    @property
    def expected(self) -> Workload:
        """What is expected to come in all."""
        if self._outlook is not None:
            return self._outlook.expected
        return self._workload or Workload(1)

    def _start(self) -> None:
        """An operator begins, of which nothing is known yet."""
        self.feed = self._operator.feed
        self.feeder, self.resume = self._operator.feeder, self._operator.resume
        self.drain = self._operator.drain
        self._outside = self.model.units.call

    def _retire(self, old: Watched, choice: Choice) -> None:
        counters = old.counters
        self._spent = self._spent.plus(choice, self._spent_now(counters))
        counters.bytes_held = counters.table_bytes = 0
        self._done += counters
        old.leave()

    def _spent_now(self, counters: Counters) -> Spent:
        """What the operator that runs has taken: by its own clocks, and what they do not see."""
        batches = round(counters.inputs / self._batch)
        return Spent(counters.inputs, batches, _inside(counters) + batches * self._outside)


def _refused(name: str, inputs: Inputs) -> Matches:  # noqa: ARG001
    raise OperatorClosed(name)


def _inside(counters: Counters) -> float:
    return counters.probe_seconds + counters.insert_seconds + counters.query_seconds
