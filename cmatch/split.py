"""Per-input adaptation: which labels CMatch fetches, and which it leaves to AD-only match.

To fetch the candidates of a label costs B(c), more for more candidates c; an input saves a - m
then, what AD-only match takes for it less what CMatch takes for an input of a known label. So a
label pays once B(c) / (a - m) of its inputs have come. If twice as many are expected to come, it is
fetched at once; otherwise its inputs go to AD-only match until they would have paid for it (the
ski-rental rule). A few inputs that go aside cost a whole call of ADMatch, so the
new labels of a batch are weighed together: if they cost less than that call, they are fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmatch._kernel import total
from cmatch.policy import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from cmatch.model import CostModel
    from cmatch.profile import Clusters

    Floats = npt.NDArray[np.float64]
    Int64s = npt.NDArray[np.int64]

__all__ = ["Rental"]

_ZEROS = np.zeros(1024, np.int64)


class Rental:
    """The policy: fetch what is sure to pay, rent the rest.

    `horizon` are the inputs that are expected in all, `so_far` says how many have come. Labels are
    told apart by the power of two of their candidates. The index says how many there are of a size;
    how many of these have come, in so many inputs, says how often each of them will.

    `rows`: how many inputs of a batch have gone aside together, at most. `rented`: what it would
    cost to fetch all labels that were set aside.
    """

    SURE = 1.2

    def __init__(
        self,
        model: CostModel,
        clusters: Clusters,
        *,
        horizon: float,
        so_far: Callable[[], int] | None = None,
    ) -> None:
        self._model = model
        self.cheap = int(model.cheap())
        self._labels = np.bincount(_size(clusters.candidates), clusters.weight, minlength=64)
        self._mixed = clusters.mixed
        self._met = np.zeros(64)
        self._horizon = horizon
        self._so_far = so_far
        self.rows = 1
        self.rented = 0.0

    def aside(self, counts: Int64s, batch: int) -> Int64s:
        """How many inputs of each label go aside before it is fetched."""
        number = len(counts)
        if total(counts) <= self.cheap:
            return _ZEROS[:number] if number <= len(_ZEROS) else np.zeros(number, np.int64)
        fetch = self._model.fetch(counts, mixed=self._mixed)
        arrivals = self._arrivals(_size(counts), batch)
        # Those that go aside share a call; as many as ever did are likely to again.
        large = ~self._model.small(fetch)
        rows = max(self.rows, int(np.count_nonzero(large)))
        unsure = large & (arrivals * self._model.saved(rows, batch) < self.SURE * fetch)
        many = int(np.count_nonzero(unsure))
        if not many or float(fetch[unsure].sum()) <= self._model.units.aside_call:
            return np.zeros(number, np.int64)
        self.rows = min(max(self.rows, many), batch)
        self.rented += float(fetch[unsure].sum())
        wait = self._model.rent(fetch, self.rows, batch)
        found: Int64s = np.where(unsure, np.minimum(wait, NEVER), 0).astype(np.int64)
        return found

    def _arrivals(self, size: Int64s, batch: int) -> Floats:
        """How many inputs of each of some new labels are to come, by what has come of their size.

        If every label has come x times on average, a share of exp(-x) has not come yet.
        """
        self._met += np.bincount(size, minlength=64)
        missing = 1.0 - self._met / np.maximum(self._labels + 1.0, self._met + 1.0)
        times = -np.log(missing[size])
        inputs = batch + (self._so_far() if self._so_far is not None else 0)
        found: Floats = times * max(self._horizon / inputs - 1.0, 1.0)
        return found


def _size(counts: Int64s) -> Int64s:
    """Powers of two, which is how sizes are told apart."""
    found: Int64s = np.minimum(np.frexp(counts.astype(np.float64))[1], 63).astype(np.int64)
    return found
