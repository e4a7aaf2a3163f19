"""Per-input adaptation: which labels CMatch fetches, and which it leaves to AD-only match.

To fetch the candidates of a label costs B(c), more for more candidates c; an input saves a - m
then, what AD-only match takes for it less what CMatch takes for an input of a known label. So a
label pays once B(c) / (a - m) of its inputs have come. If clearly more are expected to come, it is
fetched at once; otherwise its inputs go to AD-only match until they would have paid for it (the
ski-rental rule). A few inputs that go aside cost a whole call of ADMatch, so the new labels of a
batch are weighed together: if they cost less than that call, they are fetched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmatch._kernel import total
from cmatch.model import TIMES
from cmatch.policy import ANY, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from cmatch.model import CostModel
    from cmatch.profile import Clusters

    Int64s = npt.NDArray[np.int64]

__all__ = ["Rental"]

FEW = 16
"""Labels of a size, of which it means nothing how many have come."""
SETTLED = 4
"""Answers in a row that say the same, after which nobody need be asked."""
_ZEROS = np.zeros(1024, np.int64)


class Rental:
    """The policy: fetch what is sure to pay, rent the rest.

    `horizon` are the inputs that are expected in all, `so_far` says how many have come; `search` is
    what AD-only match takes for one, its share of a call not included. Labels are told apart by the
    power of two of their candidates. The index says how many there are of a size; how many of these
    have come, in so many inputs, says how often each of them will.

    `cheap`: new labels of a batch with no more candidates are fetched without asking; any, once all
    that was asked about was sure so many times in a row. `rows`: how many inputs of a batch have
    gone aside together, at most. `rented`: what it would cost to fetch all labels that were set
    aside.
    """

    def __init__(
        self,
        model: CostModel,
        clusters: Clusters,
        *,
        horizon: float,
        search: float,
        so_far: Callable[[], int] | None = None,
    ) -> None:
        self._model = model
        self.cheap = int(model.cheap())
        self.together = model.together(search)
        sizes = np.bincount(_size(clusters.candidates), clusters.weight, minlength=64)
        self._labels: list[float] = sizes.tolist()
        times = horizon / max(clusters.anchors, 1.0)
        anchors = np.bincount(
            _size(clusters.candidates), clusters.weight * clusters.cps, minlength=64
        )
        self._each: list[float] = (times * anchors / np.maximum(sizes, 1.0)).tolist()
        self._mixed = clusters.mixed
        self._met = [0] * 64
        self._horizon = horizon
        self._search = search
        self._so_far = so_far
        self.rows = 1
        self.rented = 0.0
        self._sure = 0

    def aside(self, counts: Int64s, batch: int) -> Int64s:
        """How many inputs of each label go aside before it is fetched; labels of a size alike."""
        number = len(counts)
        if total(counts) <= self.cheap:
            return _none(number)
        size = _size(counts)
        many, together = np.bincount(size), np.bincount(size, counts)
        kinds = [
            _Kind(each, int(many[each]), float(together[each]), self._model, self._mixed)
            for each in np.flatnonzero(many).tolist()
        ]
        self._meet(kinds, batch)
        # Those that go aside share a call; as many as ever did are likely to again.
        rows = max(self.rows, sum(each.many for each in kinds if each.large))
        saved, sure = self._model.saved(rows, batch, self._search), self._model.SURE
        unsure = [
            each for each in kinds if each.large and each.arrivals * saved < sure * each.fetch
        ]
        self._sure = 0 if unsure else self._sure + 1
        if self._sure == SETTLED:
            self.cheap = ANY
        all_of_them = sum(each.many * each.fetch for each in unsure)
        if all_of_them <= self._model.units.aside_call:
            return _none(number)
        self.rows = min(max(self.rows, sum(each.many for each in unsure)), batch)
        self.rented += all_of_them
        wait = np.zeros(len(many), np.int64)
        saved = self._model.saved(self.rows, batch, self._search)
        for each in unsure:
            wait[each.size] = min(math.ceil(each.fetch / saved), NEVER)
        found: Int64s = wait[size]
        return found

    def _meet(self, kinds: list[_Kind], batch: int) -> None:
        """Say how many inputs of labels of each size are to come, by what has come of them.

        If every label has come x times on average, a share of exp(-x) has not come yet.
        """
        inputs = batch + (self._so_far() if self._so_far is not None else 0)
        left = max(self._horizon / inputs - 1.0, 1.0)
        for each in kinds:
            met = self._met[each.size] = self._met[each.size] + each.many
            labels = max(self._labels[each.size], met)
            each.arrivals = -math.log(1.0 - met / (labels + 1.0)) * left
            if labels < FEW:
                # By so few nothing can be told: as often as anchors are expected to come.
                each.arrivals = max(each.arrivals, TIMES * self._each[each.size])


class _Kind:
    """New labels of one size: how many, and what each of them costs."""

    __slots__ = ("arrivals", "fetch", "large", "many", "size")

    def __init__(
        self, size: int, many: int, candidates: float, model: CostModel, mixed: bool
    ) -> None:
        self.size = size
        self.many = many
        self.fetch = model.fetch_one(candidates / many, mixed=mixed)
        self.large = self.fetch > model.little
        self.arrivals = 0.0


def _none(number: int) -> Int64s:
    return _ZEROS[:number] if number <= len(_ZEROS) else np.zeros(number, np.int64)


def _size(counts: Int64s) -> Int64s:
    """Powers of two, which is how sizes are told apart."""
    found: Int64s = np.minimum(np.frexp(counts.astype(np.float64))[1], 63).astype(np.int64)
    return found
