"""Per-input adaptation: which labels CMatch fetches, and which it leaves to AD-only match.

To fetch the candidates of a label costs B(c), more for more candidates c; an input saves a - m
then, what AD-only match takes for it less what CMatch takes for an input of a known label. So a
label pays once B(c) / (a - m) of its inputs have come. If the index says that many times as many
will come, it is fetched at once; otherwise its inputs go to AD-only match until they would have
paid for it (the ski-rental rule). A few inputs that go aside cost a whole call of ADMatch, so the
new labels of a batch are weighed together: if they cost less than that call, they are fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmatch._kernel import total
from cmatch.policy import NEVER

if TYPE_CHECKING:
    import numpy.typing as npt

    from cmatch.model import CostModel
    from cmatch.profile import Clusters

    Int64s = npt.NDArray[np.int64]

__all__ = ["Rental"]

_ZEROS = np.zeros(1024, np.int64)


class Rental:
    """The policy: fetch what is sure to pay, rent the rest.

    `horizon` are the inputs that are expected in all.
    """

    def __init__(self, model: CostModel, clusters: Clusters, *, horizon: float) -> None:
        self._model = model
        self.cheap = int(model.cheap())
        self._arrivals = model.arrivals(clusters, horizon)
        self.rows = 1

    def aside(self, counts: Int64s, batch: int) -> Int64s:
        """How many inputs of each label go aside before it is fetched."""
        number = len(counts)
        if total(counts) <= self.cheap:
            return _ZEROS[:number] if number <= len(_ZEROS) else np.zeros(number, np.int64)
        fetch = self._model.fetch(counts)
        arrivals = self._arrivals[_size(counts)]
        # Those that go aside share a call; as many as ever did are likely to again.
        large = ~self._model.small(fetch)
        rows = max(self.rows, int(np.count_nonzero(large)))
        unsure = large & (arrivals * self._model.saved(rows, batch) < self._model.SURE * fetch)
        many = int(np.count_nonzero(unsure))
        if not many or float(fetch[unsure].sum()) <= self._model.units.aside_call:
            return np.zeros(number, np.int64)
        self.rows = min(max(self.rows, many), batch)
        wait = self._model.rent(fetch, self.rows, batch)
        found: Int64s = np.where(unsure, np.minimum(wait, NEVER), 0).astype(np.int64)
        return found


def _size(counts: Int64s) -> Int64s:
    """Powers of two, which is how sizes are told apart."""
    found: Int64s = np.minimum(np.frexp(counts.astype(np.float64))[1], 63).astype(np.int64)
    return found
