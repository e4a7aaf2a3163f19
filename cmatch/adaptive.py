"""An operator that runs whichever operator is expected to cost least, and changes its mind.

1. When it is made, the cost model weighs ADMatch and CMatch under each scheme by what the index
   says of the anchors' tag. The first batch says how many inputs come at once.
2. Most batches go straight to the operator that was chosen. Now and then one is looked at: what was
   counted since tells how often labels are new, how many candidates they have, how many inputs
   went aside, and whether memory is short. While ADMatch runs, which needs no labels, those of a
   few recent inputs are looked up instead, once that costs little beside what was spent. It is the
   operator itself that counts, and hands a batch over when it is time to look.
3. Once CMatch knows its labels there is nothing to look at, until labels are new again.
4. Another choice must be clearly better, as a rule twice in a row, before it is taken. The old
   operator is drained first: its pairs come with the batch, so that none is lost and none comes
   twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmatch.admatch import FOREVER
from cmatch.cclean import BUDGET
from cmatch.inputs import Matches
from cmatch.model import Choice
from cmatch.outlook import SWITCHING
from cmatch.switched import Switched
from cmatch.thought import Thought, of_admatch, of_clustered, rent_is_paid
from cmatch.watched import News, WatchedCMatch

if TYPE_CHECKING:
    from pathlib import Path

    from cmatch.axes import Axis
    from cmatch.inputs import Inputs
    from cmatch.model import Workload
    from cmatch.units import UnitCosts
    from index import Index
    from labeling.runs import Tag

__all__ = ["Adaptive"]

EARLY, RECENT = 1024, 4
"""Inputs that ADMatch takes before any are kept; consecutive batches that are, then and later."""
FIRST_LOOK, LATER, LONGEST = 64, 4, 4096
"""Batches until something is looked at: at first, how many times as many the next time, unless that
made it doubtful, and at most."""
ALL, SAMPLE = 0.95, 2
"""The share of inputs that goes aside, from which CMatch rests; batches that say whether that is
still so."""
REST, LONGER, LONGEST_REST = 1024, 8, 8192
"""Batches for which it rests at first, how many times as many the next time, and at most: to wake
up costs as much as thirty of them."""
THINKING, THOUGHT = 0.05, 500e-6
"""The share of the time spent that may be spent on thinking it over, and what a thought takes.

The second thought may take half of that, the third a third."""
BETTER, FAR_BETTER = 0.8, 0.6
"""What another choice may cost, beside the current one, to be taken the second time, or at once."""
QUIET, TRUSTED = 0.1, 100
"""The share of batches that may bring new labels for nothing to be watched any more, and how many
such batches then end that."""
_NO_NEWS, _BEGUN = News(), News()


class Adaptive(Switched):
    """Matches anchors with the nodes of `tag` on an axis, in the way that costs least.

    All that `Switched` is told and tells; with `fixed`, the first choice is the only one.
    """

    __slots__ = (
        "_early",
        "_fixed",
        "_period",
        "_recent",
        "_rest",
        "_since",
        "_strikes",
        "_thoughts",
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
        self._fixed = fixed
        self._thoughts = 0
        super().__init__(
            index,
            tag,
            axis,
            anchors=anchors,
            budget=budget,
            threads=threads,
            units=units,
            place=place,
            workload=workload,
            choice=choice,
            split=split,
        )
        if not fixed:
            self._begin()

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        matches = super().move(index)
        if self.anchors is not None and not self._fixed:
            self._outlook = self._looking_out()
            self._awake()
            self._watch()
        return matches

    def _start(self) -> None:
        super()._start()
        self._period = FIRST_LOOK
        self._rest = REST
        self._since: News | None = None
        self._strikes = 0
        self._early: list[Inputs] = []
        self._recent: list[Inputs] = []
        if not self._fixed:
            self._look_after(0)

    # --- when to look -----------------------------------------------------------------------

    def _look_after(self, batches: int) -> None:
        """Look at the batch after so many."""
        operator = self._operator
        if isinstance(operator, WatchedCMatch):
            operator.watch(batches)
        else:
            operator.watch(min(int(batches * self._batch), FOREVER))

    def _begin(self) -> None:
        """The first batch of all is not looked at, unless it has other inputs than was expected.

        It may be the only one, and be over sooner than a look.
        """
        self._since = _NO_NEWS
        first, operator = self._first, self._operator
        if isinstance(operator, WatchedCMatch) and self._policy is not None:
            # It may all go aside, and there is no need to see that for long.
            operator.watch(2 * SAMPLE, first.least, first.most)
        elif isinstance(operator, WatchedCMatch):
            self._pause(first.least, first.most)
        else:
            operator.watch(min(first.most, EARLY))

    def _pause(self, least: int = 0, most: int = FOREVER) -> None:
        """Look again after a while, each time a longer one; or if the next is of another size."""
        operator, period = self._operator, self._period
        if not isinstance(operator, WatchedCMatch):
            self._look_after(self._next_thought())
            return
        self._longer()
        if not self._candid(period):
            operator.trust(FOREVER)
            operator.watch(period, least, most)
            return
        # Only new labels could change anything, and these it counts itself.
        if self._since is not None and self._since.inputs:
            operator.trust(period)
        else:
            # What comes first is new, whatever comes later: it says nothing.
            operator.trust(period, self._period)
            self._longer()
        operator.watch(FOREVER, least, most)

    def _longer(self) -> None:
        """The next while is a longer one, unless what was seen last is doubtful."""
        self._period = min(self._period if self._strikes else LATER * self._period, LONGEST)

    def _candid(self, period: int) -> bool:
        """Whether CMatch tells by itself, in time, all that would have another choice considered.

        Memory that is short it does not tell, nor what goes aside.
        """
        if self._outlook is None or self._parts or (self.switches and period == FIRST_LOOK):
            return False
        expected = self._outlook.costs.get(self.choice)
        return expected is not None and not expected.spills

    @property
    def _parts(self) -> bool:
        """Whether anything has gone aside, or still may."""
        return self._policy is not None and not self._policy.settled

    def _watch(self) -> None:
        """Look at what comes next, as if it were the first."""
        self._since = None
        self._period = FIRST_LOOK
        self._early, self._recent = [], []
        self._look_after(0)
        if isinstance(self._operator, WatchedCMatch):
            self._operator.trust(FOREVER)

    def _trust(self, operator: WatchedCMatch) -> None:
        """Nothing is new: nothing is looked at, until labels are."""
        self._since = None
        self._period = FIRST_LOOK
        # What ADMatch has counted by itself would not be noted.
        operator.trust(TRUSTED, 0 if self._parts else FIRST_LOOK)
        operator.watch(FOREVER)

    def _next_thought(self) -> int:
        """So many batches later ADMatch will have taken so long that another thought is allowed.

        By unit costs, not by the clock, which tells more of other processes.
        """
        outlook = self._outlook
        if outlook is None or not outlook.profile.anchors or not outlook.promising():
            return FOREVER
        if len(self._early) < RECENT:
            return 0
        turn = self._thoughts + 1
        each = THINKING * max(self.model.units.ad_call, 1e-9)
        return RECENT + int((turn * turn - self._thoughts * self._thoughts) * THOUGHT / each)

    # --- batches that are looked at ---------------------------------------------------------

    def _looked(self, inputs: Inputs) -> Matches:
        """Take a batch, and see."""
        operator, since = self._operator, self._since
        if isinstance(operator, WatchedCMatch):
            since = operator.noted or since
        if since is None or (since is _NO_NEWS and not operator.taken):
            return self._began(inputs)
        if isinstance(operator, WatchedCMatch):
            return self._considered(operator.feed(inputs), operator, since)
        return self._collected(operator.feed(inputs), inputs)

    def _began(self, inputs: Inputs) -> Matches:
        """A first batch; the first of all says how many inputs come at once."""
        number = len(inputs.id)
        if self._since is not None and not self._first.least <= number <= self._first.most:
            self._resize(inputs, number)
        operator = self._operator
        self._since = operator.news() if isinstance(operator, WatchedCMatch) else _BEGUN
        self._pause()
        return operator.feed(inputs)

    def _resize(self, inputs: Inputs, number: int) -> None:
        """Batches are of another size than was expected: choose again, before anything is done."""
        self._batch = float(max(number, 1))
        for size, choice, saved in self._first.others:
            if size >= number or size == self._first.others[-1][0]:
                carried = choice.scheme is None or inputs.scheme == choice.scheme
                if carried and number * saved > SWITCHING:
                    self.switch(choice, f"{number:,} inputs at once")
                return

    def _collected(self, matches: Matches, inputs: Inputs) -> Matches:
        """One of the batches that are kept, in a row, because ADMatch needs no labels."""
        if len(self._early) < RECENT:
            self._early.append(inputs)
            self._pause()
            return matches
        self._recent.append(inputs)
        if len(self._recent) < RECENT:
            self._look_after(0)
            return matches
        self._batch = max(sum(map(len, self._recent)) / RECENT, 1.0)
        change = self._other_than_ad()
        self._recent.clear()
        if change is None:
            self._pause()
            return matches
        return Matches.joined([matches, self.switch(*change)])

    # --- thinking it over -------------------------------------------------------------------

    def _considered(self, matches: Matches, operator: WatchedCMatch, since: News) -> Matches:
        """Stay, rest or switch; pairs that a switch brings to light come with the others."""
        now = operator.news()
        fed, away = now.inputs - since.inputs, now.aside - since.aside
        if not fed:
            # Batches without inputs say nothing.
            self._look_after(SAMPLE)
            return matches
        quiet = (now.labels - since.labels) * self._batch <= QUIET * fed or now.labels == 1
        if self._policy is not None and away >= ALL * fed:
            return self._rested(matches, operator, now, since)
        self._rest = REST
        calm = quiet and now.overflow_reads == since.overflow_reads
        if calm and not away:
            self._strikes = 0
            self._trust(operator)
            return matches
        self._since = now
        # What comes first is new, whatever comes later.
        if self.profile is not None and since.inputs:
            change = self._other_than_clustered(now, since)
            if change is not None:
                return Matches.joined([matches, self.switch(*change)])
            if calm:
                self._trust(operator)
                return matches
        self._pause()
        return matches

    # --- while all goes aside ---------------------------------------------------------------

    def _rested(self, matches: Matches, operator: WatchedCMatch, now: News, since: News) -> Matches:
        """Have ADMatch take all for a while, each time a longer one: labels need not be looked at.

        Unless that has cost so much by now that what goes aside is to be fetched.
        """
        outlook, policy, scheme = self._outlook, self._policy, self.choice.scheme
        assert outlook is not None
        assert policy is not None
        assert scheme is not None
        if rent_is_paid(outlook, scheme, policy, now, since, self._batch):
            fetching = Choice("cmatch", scheme)
            why = "what goes aside has cost as much as to fetch it"
            return Matches.joined([matches, self.switch(fetching, why)])
        self.feed = operator.rest(int(self._rest * self._batch), self._woken).feed
        self.feeder = self.needs = None
        self._rest = min(LONGER * self._rest, LONGEST_REST)
        return matches

    def _awake(self) -> None:
        """The operator takes its batches itself again."""
        self.feed, self.feeder = self._operator.feed, self._operator.feeder
        self.needs = self.choice.scheme

    def _woken(self, inputs: Inputs) -> Matches:
        """A batch after a rest: see if what comes still goes aside."""
        operator = self._operator
        assert isinstance(operator, WatchedCMatch)
        # This one need not carry labels; the next ones do.
        matches = self.feed(inputs)
        self._awake()
        self._since = operator.news()
        operator.watch(SAMPLE)
        return matches

    def _horizon(self, inputs: int) -> float:
        """Inputs to come: what is left of those expected, or twice as many as have come."""
        so_far = self._done.inputs + inputs
        return float(max(self.expected.inputs - so_far, 2 * so_far))

    def _worse(self, stay: float, other: float) -> bool:
        """Whether the current choice is so much worse that it is given up; each time, more."""
        patience = BETTER ** (len(self.switches) / 2)
        if other >= BETTER * patience * stay:
            self._strikes = 0
            return False
        self._strikes += 1
        return self._strikes > 1 or other < FAR_BETTER * patience * stay

    def _other_than_clustered(self, now: News, since: News) -> tuple[Choice, str] | None:
        outlook, scheme, batch = self._outlook, self.choice.scheme, self._batch
        assert outlook is not None
        assert scheme is not None
        horizon = self._horizon(now.inputs)
        return self._changed(
            of_clustered(outlook, scheme, self._policy, now, since, batch, horizon)
        )

    def _other_than_ad(self) -> tuple[Choice, str] | None:
        assert self._outlook is not None
        assert self.anchors is not None
        self._thoughts += 1
        counters = self._operator.counters
        return self._changed(
            of_admatch(
                self._outlook,
                self.index,
                self.tag,
                self.anchors,
                self._early,
                self._recent,
                counters,
                self._horizon(counters.inputs),
                split=self._split,
            )
        )

    def _changed(self, thought: Thought | None) -> tuple[Choice, str] | None:
        if thought is None or not self._worse(thought.stay, thought.other):
            return None
        return thought.choice, thought.why
