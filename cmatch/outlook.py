"""What is to be expected of a join before any input has come: the cost of every choice, the best.

That hangs on the index, not on the operator: joins of the same tags share one `Outlook` for as long
as the generation of the index lives. To make one reads the lists of labels, and takes as long as
thousands of inputs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from cmatch.admatch import FOREVER
from cmatch.model import ADMATCH, BATCH, TIMES, Choice, CostModel, Workload
from cmatch.profile import Profile
from cmatch.split import Terms
from labeling.ses import PATH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cmatch.axes import Axis
    from cmatch.cost import Cost
    from cmatch.units import UnitCosts
    from index import Index
    from labeling.runs import Tag

__all__ = ["SWITCHING", "First", "Outlook"]

SIZES = (1, 4, 16, 64, 256, 1024, 1 << 14, 1 << 18)
"""Batches for which the choice is made in advance."""
TIE = 1.02
"""Costs that are so near to each other are the same."""
SWITCHING = 60e-6
"""Seconds that must be saved at least by a change before the first batch."""
MANY, LESS, MORE = 64, 2, 8
"""Batches from which other than what is expected may come: a part of it, or many times as much."""


class First(NamedTuple):
    """The choice for batches of about a size.

    It is as good as any for batches from `least` to `most` inputs: what another would save is less
    than a change costs. `others`: for batches of a size, the
    best, and what that would save, in seconds an input.
    """

    choice: Choice
    least: int
    most: int
    others: tuple[tuple[int, Choice, float], ...]


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a join is expected to cost.

    `expected` is what comes in all. `terms`: for each scheme, on what terms labels are left to
    ADMatch; `under`: the choice, which does so only if there is a label that might not pay.
    `costs`: seconds an input, of every choice. `by_size`: the same for batches of some sizes.
    """

    profile: Profile
    model: CostModel
    expected: Workload
    terms: dict[str, Terms]
    under: dict[str, Choice]
    costs: dict[Choice, Cost]
    by_size: tuple[dict[Choice, Cost], ...]
    _firsts: dict[float, First] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        index: Index,
        anchors: Tag | str,
        tag: Tag | str,
        axis: Axis,
        units: UnitCosts,
        budget: int,
        workload: Workload | None,
        *,
        split: bool,
    ) -> Outlook:
        """The outlook of a join of an index; `split`: whether labels may be left to ADMatch."""
        key = anchors, tag, axis, units, budget, workload, split
        with _LOCK:
            known = _KNOWN.setdefault(index, {})
        found = known.get(key)
        if found is None:
            profile = Profile.of(index, anchors, tag, axis)
            model = CostModel(units, budget)
            found = known.setdefault(key, cls._made(profile, model, workload, split=split))
        return found

    @classmethod
    def _made(
        cls, profile: Profile, model: CostModel, workload: Workload | None, *, split: bool
    ) -> Outlook:
        expected = workload or Workload(max(TIMES * profile.anchors, 1))
        # To fetch a label at once it must be sure to pay: not by what may come again.
        horizon = workload.inputs if workload else profile.anchors
        terms = {
            scheme: Terms.of(model, clusters, horizon=horizon, search=model.search(profile))
            for scheme, clusters in profile.schemes.items()
        }
        under = {
            scheme: Choice("cmatch", scheme, split and not each.sure(expected.batch))
            for scheme, each in terms.items()
        }
        by_size = []
        for size in SIZES:
            inputs = max(expected.inputs, size) if size > BATCH else expected.inputs
            load = replace(expected, inputs=inputs, batch=size)
            by_size.append(_estimated(profile, under, model, load))
        costs = _estimated(profile, under, model, expected)
        return cls(profile, model, expected, terms, under, costs, tuple(by_size))

    def first(self, batch: float) -> First:
        """The choice for batches of about a size, and what others would save in other sizes."""
        found = self._firsts.get(batch)
        if found is None:
            found = self._firsts.setdefault(batch, self._first(batch))
        return found

    def _first(self, batch: float) -> First:
        sizes = zip(self.by_size, SIZES, strict=True)
        best = [self._best(costs, size) for costs, size in sizes]
        at = next((at for at, size in enumerate(SIZES) if size >= batch), -1)
        found = best[at]
        others = tuple(
            (size, choice, costs[found].total - costs[choice].total)
            for size, choice, costs in zip(SIZES, best, self.by_size, strict=True)
        )
        unlike = [
            size for size, choice, saved in others if choice != found and size * saved > SWITCHING
        ]
        next_unlike = min((size for size in unlike if size >= batch), default=FOREVER)
        most = max((size for size in SIZES if size < next_unlike), default=0)
        if next_unlike == FOREVER:
            most = FOREVER
        least = max((size for size in unlike if size < batch), default=-1) + 1
        return First(found, least, most, others)

    def promising(self) -> list[str]:
        """The scheme that is expected to cost least, and those with far fewer labels.

        None of those whose spills alone cost more than ADMatch, whatever comes.
        """
        most = self.costs[ADMATCH].total
        schemes = {
            scheme: clusters
            for scheme, clusters in self.profile.schemes.items()
            if self.costs[self.under[scheme]].spills < most
        }
        if not schemes:
            return []
        least = min(schemes, key=lambda each: self.costs[self.under[each]])
        few = [each for each in schemes if 2 * schemes[each].labels < schemes[least].labels]
        return [least, *few]

    def _best(self, costs: dict[Choice, Cost], size: int) -> Choice:
        """The least; or, of many batches, the one that is least far from it whatever comes.

        How often anchors come is a guess: the worst of what is expected, and of what else may come,
        counts. Of schemes nobody sees later that another would have been better, so it may be less
        or more that comes. CMatch sees by itself if its labels do not come again, but ADMatch has
        none, and would have to look them up: so between these it is more.
        """
        clustered = [choice for choice in costs if choice.scheme is not None]
        if not clustered:
            return ADMATCH
        if self.expected.inputs < MANY * size:
            return self._least(_worst([costs], [*costs]))
        less, more = (self._if_came(times, size) for times in (1 / LESS, MORE))
        scheme = self._least(_worst([less, costs, more], clustered))
        return self._least(_worst([costs, more], [ADMATCH, scheme]))

    def _if_came(self, times: float, size: int) -> dict[Choice, Cost]:
        """The cost of every choice if so many times as many inputs come as are expected."""
        load = replace(self.expected, inputs=times * self.expected.inputs, batch=size)
        return _estimated(self.profile, self.under, self.model, load)

    def _least(self, far: dict[Choice, float]) -> Choice:
        """The least; of those that no estimate can tell apart, the one with the fewest lists.

        If these are as many, too, by `path`: nodes of a label stand nearer to each other there.
        """
        lists = self.profile.labels or {}
        least = min(far.values())
        return min(
            (choice for choice, regret in far.items() if regret <= TIE * least),
            key=lambda each: (
                sum(one.rows for one in lists.get(each.scheme or "", ())),
                each.scheme != PATH.name,
            ),
        )


def _worst(loads: Sequence[dict[Choice, Cost]], choices: Sequence[Choice]) -> dict[Choice, float]:
    """How many times the least of them each choice is, in the load where that is most."""
    found = dict.fromkeys(choices, 0.0)
    for costs in loads:
        least = max(min(costs[choice].total for choice in choices), 1e-15)
        for choice in choices:
            found[choice] = max(found[choice], costs[choice].total / least)
    return found


_KNOWN: WeakKeyDictionary[Index, dict[object, Outlook]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def _estimated(
    profile: Profile, under: dict[str, Choice], model: CostModel, load: Workload
) -> dict[Choice, Cost]:
    """Seconds an input, of every choice.

    A choice that may leave labels to AD-only match need not: it is as good as one that fetches all,
    where that is better.
    """
    found = {ADMATCH: model.cost(profile, ADMATCH, load)}
    for choice in under.values():
        whole = model.cost(profile, replace(choice, split=False), load)
        parted = model.cost(profile, choice, load) if choice.split else whole
        found[choice] = min(whole, parted)
    return {choice: cost * (1 / load.inputs) for choice, cost in found.items()}
