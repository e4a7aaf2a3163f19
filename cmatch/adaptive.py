"""An operator that runs whichever operator is expected to cost least, and changes its mind.

1. When it is made, the cost model weighs ADMatch and CMatch under each scheme by what the index
   says of the anchors' tag. The first batch says how many inputs come at once.
2. Most batches go straight to the operator that was chosen. Now and then one is looked at: what was
   counted since tells how often labels are new, how many candidates they have, how many inputs
   went aside, and whether memory is short. While ADMatch runs, which needs no labels, those of a
   few recent inputs are looked up instead, once that costs little beside what was spent.
3. Once CMatch knows its labels there is nothing to watch: its `feed` takes the place of the
   operator's own, and a new label brings that back.
4. Another choice must be clearly better, as a rule twice in a row, before it is taken. The old
   operator is drained first: its pairs come with the batch, so that none is lost and none comes
   twice.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cmatch.admatch import ADMatch
from cmatch.axes import Axis
from cmatch.cclean import BUDGET
from cmatch.cmatch import CMatch
from cmatch.counters import Counters
from cmatch.errors import MissingLabels, OperatorClosed
from cmatch.inputs import Inputs, Matches
from cmatch.live import Live
from cmatch.model import ADMATCH, BATCH, Choice, CostModel, Workload
from cmatch.outlook import FOREVER, First, Outlook
from cmatch.spent import Spent, Switch
from cmatch.split import Rental
from cmatch.units import units_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import numpy.typing as npt

    from cmatch._kernel import Group
    from cmatch.cost import Cost
    from cmatch.operator import Operator
    from cmatch.profile import Profile
    from cmatch.units import UnitCosts
    from index import Index
    from labeling.runs import Tag

    Int64s = npt.NDArray[np.int64]

__all__ = ["Adaptive"]

SAMPLE, RECENT = 16, 4
"""Consecutive batches that are kept: the first ones, and those before a thought."""
FIRST_LOOK, LONGEST = 32, 1024
"""Batches until something is looked at: at first, and at most."""
THINKING, THOUGHT = 0.05, 500e-6
"""The share of the time spent that may be spent on thinking it over, and what a thought takes.

The second thought may take half of that, the third a third."""
BETTER, FAR_BETTER = 0.8, 0.6
"""What another choice may cost, beside the current one, to be taken the second time, or at once."""
SWITCHING = 60e-6
"""Seconds that must be saved at least by a change before the first batch."""
QUIET = 0.1
"""The share of batches that may bring new labels while nothing is watched."""
_NOTHING = Counters()
_ANY = First(ADMATCH, 0, FOREVER, ())


class Feed(Protocol):
    """Takes a batch; gives the pairs that are ready, also those of earlier batches."""

    def __call__(self, inputs: Inputs) -> Matches: ...


class Watched(CMatch):
    """CMatch that is trusted for a while; then, if labels are still new, it tells."""

    told: Callable[[], None]
    """Called when trust is at an end."""

    def attend(self, policy: Rental | None) -> None:
        """Ask the policy about new labels from now on; None: nobody."""
        self._policy = policy
        self._limit()

    def leave(self) -> None:
        """Ask and tell nobody any more."""
        self.attend(None)
        self.told = _nothing

    def trust(self, batches: int) -> None:
        """Tell when so many batches have brought new labels."""
        self._clean.patience = batches

    def _learn(self, inputs: Inputs, fresh: list[Group]) -> tuple[Matches, Int64s | None]:
        self._clean.patience -= 1
        if self._clean.patience < 0:
            self._clean.patience = FOREVER
            self.told()
        return super()._learn(inputs, fresh)

    def news(self) -> tuple[int, int, int, int]:
        """Inputs, those that went aside, labels, and reads of what was spilled."""
        found = self._clean.tallies()
        return found[0], found[1], found[2], found[8]


class Adaptive:
    """Matches anchors with the nodes of `tag` on an axis, in the way that costs least.

    `anchors` is the tag of the anchors; without it nothing is known of their labels, and AD-only
    match is all there is. `workload` says what to expect, if that is known: otherwise each of them
    twice, in batches of 16. `choice` is the first choice, and with `fixed` the only one. With
    `split`, single labels may be left to AD-only match.

    - `choice`: what runs now. `needs`: the scheme whose labels inputs are to carry now, or None.
      It changes only in `feed` and `move`. Inputs that were made before, and say that they carry
      others or none, are labelled anew, which costs more than a match; once nothing is watched,
      CMatch refuses them (`MissingLabels`).
    - `expected`: what is expected to come in all. `estimates`: seconds an input, if that comes, as
      it was when the operator was made.
    - `switches`, `spent`, `counters`: what happened.
    - `sample`: some consecutive batches, to `measure` other choices on; one at least.
    - `feed`: takes a batch, and gives the pairs that are ready. It is an attribute, because to hand
      a batch on would take a tenth of what CMatch takes for it. So take it from the operator for
      every batch: after a change of mind it is another one.
    """

    __slots__ = (
        "_batch",
        "_batches",
        "_budget",
        "_closed",
        "_collecting",
        "_done",
        "_first",
        "_fixed",
        "_left",
        "_operator",
        "_outlook",
        "_outside",
        "_period",
        "_place",
        "_policy",
        "_recent",
        "_since",
        "_spent",
        "_split",
        "_strikes",
        "_thoughts",
        "_threads",
        "_workload",
        "anchors",
        "axis",
        "choice",
        "estimates",
        "feed",
        "index",
        "model",
        "needs",
        "sample",
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
        self._budget, self._threads, self._place = budget, threads, place
        self._fixed, self._split = fixed, split
        self._done = Counters()
        self._spent = Spent()
        self._closed = False
        self._workload = workload
        self._outlook = self._looking_out()
        self._first = _ANY
        if self._outlook is not None:
            self.estimates = dict(self._outlook.costs)
            self._first = self._outlook.first(workload.batch if workload else BATCH)
        if choice is not None:
            self._first = First(choice, 0, FOREVER, ())
        self.choice = self._first.choice
        self._batch = float(BATCH)
        self._thoughts = 0
        self._recent: list[Inputs] = []
        self.needs: str | None = None
        self._policy: Rental | None = None
        self._operator: Operator = self._make(self.choice)
        self.feed: Feed = self._feed
        self._start()
        if not fixed:
            self.feed = self._beginning()

    # --- what callers do --------------------------------------------------------------------

    def _feed(self, inputs: Inputs) -> Matches:
        """A batch while all is watched."""
        self._left -= 1
        if not self._left:
            return self._looked(inputs)
        if inputs.scheme is not self.needs:
            inputs = self._labelled(inputs)
        return self._operator.feed(inputs)

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        return self._operator.poll()

    def drain(self) -> Matches:
        """Wait for all that is under way, and give its pairs."""
        return self._operator.drain()

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        if self.needs is not None and self.needs not in index.schemes:
            matches = self.switch(ADMATCH, f"the index has no scheme {self.needs} any more")
            self._operator.move(index)
        else:
            matches = self._operator.move(index)
        self.index = index
        self.sample.clear()
        if self.anchors is not None and not self._fixed:
            self._outlook = self._looking_out()
            self._watch()
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
        self._closed = True
        self._operator.close()
        # Nothing leads back to here: what the index has in memory is let go of at once.
        self.feed = partial(_refused, repr(self))
        self._policy = None
        if isinstance(self._operator, Watched):
            self._operator.leave()

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
            self.model,
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
        return f"<Adaptive {self.axis.value}::{self.tag} by {self.choice}>"

    # --- operators --------------------------------------------------------------------------

    def _make(self, choice: Choice) -> Operator:
        self.needs = choice.scheme
        self._policy = None
        if choice.scheme is None:
            return ADMatch(self.index, self.tag, self.axis)
        if self.profile is not None and choice.scheme in self.profile.schemes:
            clusters = self.profile.schemes[choice.scheme]
            # To fetch a label at once it must be sure to pay: not by what may come again.
            horizon = self._workload.inputs if self._workload else self.profile.anchors
            self._policy = Rental(
                self.model,
                clusters,
                horizon=horizon,
                search=self.model.search(self.profile),
                so_far=self._so_far,
            )
        made = Watched(
            self.index,
            self.tag,
            self.axis,
            choice.scheme,
            budget=self._budget,
            threads=self._threads,
            place=self._place,
            policy=self._policy,
        )
        made.told = self._told
        made.attend(self._policy if choice.split else None)
        return made

    def _so_far(self) -> int:
        """The inputs of the operator that runs."""
        return self._operator.news()[0] if isinstance(self._operator, Watched) else 0

    @property
    def expected(self) -> Workload:
        """What is expected to come in all."""
        if self._outlook is not None:
            return self._outlook.expected
        return self._workload or Workload(1)

    def _start(self) -> None:
        """An operator begins, of which nothing is known yet."""
        self.feed = self._feed
        self._left = FOREVER if self._fixed else 1
        self._period = FIRST_LOOK
        self._since: Counters | None = None
        self._strikes = 0
        self._collecting = self._batches = False
        self._recent = []
        self._outside = self.model.units.call

    def _retire(self, old: Operator, choice: Choice) -> None:
        counters = old.counters
        self._spent = self._spent.plus(choice, self._spent_now(counters))
        counters.bytes_held = counters.table_bytes = 0
        self._done += counters
        old.close()

    def _spent_now(self, counters: Counters) -> Spent:
        """What the operator that runs has taken: by its own clocks, and what they do not see."""
        batches = round(counters.inputs / self._batch)
        return Spent(counters.inputs, batches, _inside(counters) + batches * self._outside)

    # --- batches that are looked at ---------------------------------------------------------

    def _pause(self) -> None:
        """Look again after a while, each time a longer one."""
        if self.choice.scheme is None:
            self.feed = _counting(self._operator.feed, self._next_thought(), self._looked)
            return
        feed, needs, left = self._operator.feed, self.needs, self._period
        self._period = min(self._period * 3 // 2, LONGEST)
        if self._candid(left):
            # Only new labels could change anything, and these it counts itself.
            assert isinstance(self._operator, Watched)
            self._operator.trust(left)
            self.feed = feed
            return

        def fed(inputs: Inputs) -> Matches:
            nonlocal left
            left -= 1
            if not left:
                return self._looked(inputs)
            return feed(inputs if inputs.scheme is needs else self._labelled(inputs))

        self.feed = fed

    def _candid(self, period: int) -> bool:
        """Whether CMatch tells by itself, in time, all that would have another choice considered.

        Memory that is short it does not tell, nor what goes aside; and batches that were labelled
        before the last change have to be looked at.
        """
        if self._outlook is None or self.choice.split or (self.switches and period == FIRST_LOOK):
            return False
        expected = self._outlook.costs.get(self.choice)
        return expected is not None and not expected.spills

    def _told(self) -> None:
        """Labels were new, in as many batches as CMatch was trusted for."""
        if self._since is None:
            self._watch()
        else:
            self.feed = self._feed
            self._left = 1

    def _next_thought(self) -> int:
        """So many batches later ADMatch will have taken so long that another thought is allowed.

        By unit costs, not by the clock, which tells more of other processes.
        """
        outlook = self._outlook
        if outlook is None or not outlook.profile.anchors or not outlook.promising():
            return FOREVER
        turn = self._thoughts + 1
        each = THINKING * max(self.model.units.ad_call, 1e-9)
        return RECENT + int((turn * turn - self._thoughts * self._thoughts) * THOUGHT / each)

    def _watch(self) -> None:
        """Look at what comes next: new labels have come while nothing was watched."""
        self.feed = self._feed
        self._left = 1
        self._since = None
        self._period = FIRST_LOOK
        if isinstance(self._operator, Watched):
            self._operator.trust(FOREVER)

    def _looked(self, inputs: Inputs) -> Matches:
        self.feed = self._feed
        if self._since is None:
            return self._began(inputs)
        inputs = self._labelled(inputs)
        if self._collecting:
            return self._collected(inputs)
        matches = self._operator.feed(inputs)
        if isinstance(self._operator, Watched):
            return self._considered(matches, self._operator, self._since)
        self._collecting = True
        self._left = 1
        return matches

    def _beginning(self) -> Feed:
        """Takes the first batch of all in as little time as can be: it may be the only one."""
        operator, sample, needs = self._operator.feed, self.sample, self.needs
        least, most = self._first.least, self._first.most
        self._since, self._batches = _NOTHING, True
        self._pause()
        after = self.feed if needs is not None else self._keeping(operator, self.feed)

        def first(inputs: Inputs) -> Matches:
            if not least <= len(inputs.id) <= most or (needs and inputs.scheme != needs):
                self._start()
                return self._looked(inputs)
            sample.append(inputs)
            self.feed = after
            return operator(inputs)

        return first

    def _began(self, inputs: Inputs) -> Matches:
        """A first batch; the first of all says how many inputs come at once."""
        if not self.sample:
            self.sample.append(inputs)
            number = len(inputs.id)
            if not self._first.least <= number <= self._first.most:
                self._resize(inputs, number)
        self._since = copy(self._operator.counters) if self._batches else _NOTHING
        self._batches = True
        self._pause()
        if self.choice.scheme is None and len(self.sample) < SAMPLE:
            self.feed = self._keeping(self._operator.feed, self.feed)
        return self._operator.feed(self._labelled(inputs))

    def _resize(self, inputs: Inputs, number: int) -> None:
        """Batches are of another size than was expected: choose again, before anything is done."""
        self._batch = float(max(number, 1))
        for size, choice, saved in self._first.others:
            if size >= number or size == self._first.others[-1][0]:
                carried = choice.scheme is None or inputs.scheme == choice.scheme
                if carried and number * saved > SWITCHING:
                    self.switch(choice, f"{number:,} inputs at once")
                return

    def _collected(self, inputs: Inputs) -> Matches:
        """One of the batches that are kept, in a row, because ADMatch needs no labels."""
        matches = self._operator.feed(inputs)
        self._recent.append(inputs)
        self._left = 1
        if len(self._recent) < RECENT:
            return matches
        self._collecting = False
        self._batch = max(sum(map(len, self._recent)) / RECENT, 1.0)
        change = self._other_than_ad(self._operator.counters)
        self._recent.clear()
        if change is None:
            self._pause()
            return matches
        return Matches.joined([matches, self.switch(*change)])

    def _labelled(self, inputs: Inputs) -> Inputs:
        """Inputs with the labels that are needed now."""
        needed = self.needs
        if needed is None or (inputs.rank is not None and inputs.scheme in (needed, None)):
            return inputs
        if self.anchors is None:
            raise MissingLabels(needed)
        return Inputs.of(self.index, self.anchors, needed, inputs.id, inputs.start)

    # --- thinking it over -------------------------------------------------------------------

    def _considered(self, matches: Matches, operator: Watched, since: Counters) -> Matches:
        """Stay or switch; the pairs that a switch brings to light come with the others."""
        inputs, aside, labels, overflow = operator.news()
        fed = inputs - since.inputs
        quiet = (labels - since.unique_labels) * self._batch <= QUIET * fed or labels == 1
        if quiet and overflow == since.overflow_reads and aside == since.aside:
            self._strikes = 0
            self._trust(operator)
            return matches
        counters = operator.counters
        self._since = counters
        self._pause()
        if self.profile is None or since.inputs == 0:
            # What comes first is new, whatever comes later.
            return matches
        change = self._other_than_clustered(counters, since)
        if change is not None:
            return Matches.joined([matches, self.switch(*change)])
        if quiet and overflow == since.overflow_reads:
            self._trust(operator)
        return matches

    def _horizon(self, counters: Counters) -> float:
        """Inputs to come: what is left of those expected, or twice as many as have come."""
        so_far = self._done.inputs + counters.inputs
        return float(max(self.expected.inputs - so_far, 2 * so_far))

    def _worse(self, stay: float, other: float) -> bool:
        """Whether the current choice is so much worse that it is given up; each time, more."""
        patience = BETTER ** (len(self.switches) / 2)
        if other >= BETTER * patience * stay:
            self._strikes = 0
            return False
        self._strikes += 1
        return self._strikes > 1 or other < FAR_BETTER * patience * stay

    def _other_than_clustered(
        self, counters: Counters, since: Counters
    ) -> tuple[Choice, str] | None:
        """ADMatch, if labels go on to be new, or to go aside, and it takes less."""
        assert self.profile is not None
        assert self.choice.scheme is not None
        scheme, policy, horizon = self.choice.scheme, self._policy, self._horizon(counters)
        rows, rented = 1.0, 0.0
        if policy is not None:
            whole = self._batch <= policy.together
            rows, rented = self._batch if whole else policy.rows, policy.rented / horizon
        live = Live.counted(counters, since, self._batch, rows, self.profile, scheme, rented)
        labels = self.profile.schemes[scheme].labels
        unknown = max(labels - counters.unique_labels, 0.0)
        fresh = min(live.fresh, unknown / horizon)
        known = counters.candidates / max(counters.unique_labels, 1)
        stay = live.clustered(self.model, fresh, known)
        if not self._worse(stay, live.by_ad(self.model)):
            return None
        return ADMATCH, f"{live.fresh:.1%} of inputs have new labels, {live.aside:.0%} go aside"

    def _trust(self, operator: Watched) -> None:
        """Nothing is new: batches go to CMatch itself, until labels are."""
        self._since = None
        operator.trust(int(QUIET * LONGEST))
        if len(self.sample) < SAMPLE:
            self.sample.clear()
            self.feed = self._keeping(operator.feed, operator.feed)
        else:
            self.feed = operator.feed

    def _keeping(self, feed: Feed, after: Feed) -> Feed:
        """Batches go to `feed`, and the first ones are kept; then `after` takes its place."""
        sample = self.sample

        def fed(inputs: Inputs) -> Matches:
            sample.append(inputs)
            if len(sample) >= SAMPLE and self.feed is fed:
                self.feed = after
            return feed(inputs)

        return fed

    def _other_than_ad(self, counters: Counters) -> tuple[Choice, str] | None:
        """CMatch, if the labels of the first inputs and of recent ones say that it takes less."""
        outlook, anchors = self._outlook, self.anchors
        if outlook is None or anchors is None:
            return None
        self._thoughts += 1
        before = self.sample[:RECENT]
        some = Inputs.joined([*before, *self._recent])
        first = sum(map(len, before))
        batches = np.full(len(some), -1, np.int64)
        batches[first:] = np.repeat(np.arange(RECENT), [*map(len, self._recent)])
        pairs = counters.pairs / max(counters.inputs, 1)
        best: tuple[float, str, Live] | None = None
        for scheme in outlook.promising():
            labelled = Inputs.of(self.index, anchors, scheme, np.arange(len(some)), some.start)
            if len(labelled) < len(some) or first == len(some):
                continue
            live = Live.sampled(
                self.model,
                self.index,
                self.tag,
                outlook.profile,
                scheme,
                labelled,
                batches[labelled.id],
                self._horizon(counters),
                pairs,
            )
            cost = live.clustered(self.model, live.fresh, live.candidates)
            cost += outlook.costs[outlook.under[scheme]].spills
            if best is None or cost < best[0]:
                best = cost, scheme, live
        if best is None or not self._worse(best[2].by_ad(self.model), best[0]):
            return None
        _, scheme, live = best
        why = f"by {scheme}, {live.fresh:.1%} of inputs would have new labels"
        if live.aside:
            why += f", {live.aside:.0%} would go aside"
        split = outlook.under[scheme].split or (self._split and live.aside > 0)
        return Choice("cmatch", scheme, split), why


def _nothing() -> None:
    """Nobody is told."""


def _refused(name: str, inputs: Inputs) -> Matches:  # noqa: ARG001
    raise OperatorClosed(name)


def _counting(feed: Feed, number: int, look: Feed) -> Feed:
    """So many batches go to `feed`, the one after them to `look`."""
    left = number

    def fed(inputs: Inputs) -> Matches:
        nonlocal left
        left -= 1
        return feed(inputs) if left else look(inputs)

    return fed


def _inside(counters: Counters) -> float:
    return counters.probe_seconds + counters.insert_seconds + counters.query_seconds
