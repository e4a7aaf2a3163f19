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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmatch._kernel import total
from cmatch.model import BATCH, SURE, TIMES
from cmatch.policy import ANY, NEVER

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from cmatch.model import CostModel
    from cmatch.profile import Clusters

    Int64s = npt.NDArray[np.int64]

__all__ = ["Rental", "Terms", "Whole"]

FEW = 16
"""Labels of a size, of which it means nothing how many have come."""
SINGLY = 16
"""Labels that are gone through one by one: columns of so few take longer."""
WHOLE = 0.9
"""The share of a batch that is taken for all of it: some of its inputs have the same label."""
SETTLED = 4
"""Answers in a row that say the same, after which nobody need be asked."""
_ZEROS = np.zeros(1024, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a rental hangs on that is known before any input comes; joins alike share it.

    `horizon` are the inputs that are expected in all; `search` is what AD-only match takes for one,
    its share of a call not included; `far`, how far lists would be if all labels had one. Labels
    are told apart by the power of two of their candidates: `labels` says how many there are of a
    size, `each` how many inputs of one of them are expected, `with_it` the share of all inputs that
    go aside if those of a size do; those of sizes below `large` are fetched in any case.
    """

    model: CostModel
    horizon: float
    search: float
    cheap: int
    together: int
    labels: list[float]
    each: list[float]
    clusters: Clusters
    far: float
    with_it: list[float]
    large: int

    @classmethod
    def of(cls, model: CostModel, clusters: Clusters, *, horizon: float, search: float) -> Terms:
        size, weight = _size(clusters.candidates), clusters.weight
        labels = np.bincount(size, weight, minlength=64)
        anchors = np.bincount(size, weight * clusters.cps, minlength=64)
        times = horizon / max(clusters.anchors, 1.0)
        each = times * anchors / np.maximum(labels, 1.0)
        far = model.far(clusters)
        return cls(
            model,
            horizon,
            search,
            int(model.cheap()),
            model.together(search),
            labels.tolist(),
            each.tolist(),
            clusters,
            far,
            _with_it(model, clusters, anchors.tolist(), each.tolist(), search, far),
            _large(model, clusters),
        )

    def arrivals(self, size: int) -> float:
        """Inputs of a label of a size that are to be expected, where that says more than any have.

        By a few labels nothing can be told: they come as often as anchors are expected to.
        """
        return TIMES * self.each[size] if self.labels[size] < FEW else 0.0

    def sure(self, batch: float) -> bool:
        """Whether all labels are fetched at once, in batches of a size: nobody need be asked."""
        for size, labels in enumerate(self.labels):
            if labels:
                fetch = self.model.fetch_one(2.0**size, self.clusters)
                known = self.model.known(2.0**size, self.far)
                saved = self.model.saved(batch, batch, self.search, known)
                pays = self.arrivals(size) * saved >= SURE * fetch
                if fetch > self.model.little and not pays:
                    return False
        return True


class Whole(NamedTuple):
    """Labels, their candidates, and what it would cost to fetch them: seconds."""

    labels: float
    candidates: float
    fetch: float


class Rental:
    """The policy: fetch what is sure to pay, rent the rest.

    `so_far` says how many inputs have come. The terms say how many labels there are of a size; how
    many of these have come, in so many inputs, says how often each of them will.

    `cheap`: new labels of a batch with no more candidates are fetched without asking; any, once all
    that was asked about was sure so many times in a row. `rows`: how many inputs of a batch have
    gone aside together, at most. `rented`: what it would cost to fetch all labels that were set
    aside.
    """

    def __init__(self, terms: Terms, so_far: Callable[[], int] | None = None) -> None:
        self._terms = terms
        self._model = terms.model
        self.cheap = terms.cheap
        self.together = terms.together
        self._met: dict[int, int] = {}
        self._so_far = so_far
        self.rows = 1
        self.rented = 0.0
        self._large: dict[int, _Kind] = {}
        self._sure = 0

    def aside(self, counts: Int64s, batch: int) -> Int64s:
        """How many inputs of each label go aside before it is fetched; labels of a size alike."""
        number = len(counts)
        if total(counts) <= self.cheap:
            return _none(number)
        sizes, many, candidates = _by_size(counts)
        kinds = self._kinds(many, candidates)
        self._meet(kinds, batch)
        rows = {each.size: self._sharing(each, batch) for each in kinds}
        unsure = [
            each
            for each in kinds
            if each.arrivals * self._saved(each, rows[each.size], batch) < SURE * each.fetch
        ]
        self._sure = 0 if unsure else self._sure + 1
        if self._sure == SETTLED:
            self.cheap = ANY
        all_of_them = sum([each.many * each.fetch for each in unsure])
        if all_of_them <= self._model.units.aside_call:
            return _none(number)
        expected = max([round(rows[each.size]) for each in unsure])
        self.rows = min(max(self.rows, sum([each.many for each in unsure]), expected), batch)
        self.rented += all_of_them
        # Where a batch goes aside as a whole, few inputs of it count for all.
        shared = batch if batch <= self.together else self.rows
        wait = {}
        for each in unsure:
            self._large[each.size] = each
            saved = self._saved(each, shared, batch)
            wait[each.size] = min(math.ceil(each.fetch / saved), NEVER)
        if isinstance(sizes, list):
            return np.array([wait.get(size, 0) for size in sizes], np.int64)
        found: Int64s = np.array([wait.get(size, 0) for size in range(64)], np.int64)[sizes]
        return found

    def _sharing(self, kind: _Kind, batch: int) -> float:
        """How many inputs of a batch share a call, if those of a kind go aside.

        As many as is to be expected by the anchors that there are, or as have come together.
        """
        rows = max(self._terms.with_it[kind.size] * batch, kind.many, self.rows)
        return batch if rows > WHOLE * batch else rows

    def _kinds(self, many: dict[int, int], candidates: dict[int, int]) -> list[_Kind]:
        """New labels of each size that are not fetched in any case."""
        model, clusters, large = self._model, self._terms.clusters, self._terms.large
        kinds = [
            _Kind(size, number, candidates[size] / number, model, clusters)
            for size, number in many.items()
            if size >= large
        ]
        return [each for each in kinds if each.fetch > model.little]

    @property
    def settled(self) -> bool:
        """Whether nothing was ever set aside, nor will be."""
        return self.cheap == ANY and not self.rented

    def whole(self) -> Whole:
        """All labels of the sizes that were set aside, whether they have come or not."""
        labels = candidates = fetch = 0.0
        for each in self._large.values():
            number = max(self._terms.labels[each.size], self._met[each.size])
            labels += number
            candidates += number * each.candidates
            fetch += number * each.fetch
        return Whole(labels, candidates, fetch)

    def _saved(self, kind: _Kind, rows: float, batch: int) -> float:
        terms = self._terms
        known = self._model.known(kind.candidates, terms.far)
        return self._model.saved(rows, batch, terms.search, known)

    def _meet(self, kinds: list[_Kind], batch: int) -> None:
        """Say how many inputs of labels of each size are to come, by what has come of them.

        If every label has come x times on average, a share of exp(-x) has not come yet.
        """
        inputs = batch + (self._so_far() if self._so_far is not None else 0)
        left = max(self._terms.horizon / inputs - 1.0, 1.0)
        for each in kinds:
            met = self._met[each.size] = self._met.get(each.size, 0) + each.many
            labels = max(self._terms.labels[each.size], met)
            arrivals = -math.log(1.0 - met / (labels + 1.0)) * left
            each.arrivals = max(arrivals, self._terms.arrivals(each.size))


class _Kind:
    """New labels of one size: how many, and what each of them costs."""

    __slots__ = ("arrivals", "candidates", "fetch", "many", "size")

    def __init__(
        self, size: int, many: int, candidates: float, model: CostModel, clusters: Clusters
    ) -> None:
        self.size = size
        self.many = many
        self.candidates = candidates
        self.fetch = model.fetch_one(candidates, clusters)
        self.arrivals = 0.0


def _with_it(
    model: CostModel,
    clusters: Clusters,
    anchors: list[float],
    each: list[float],
    search: float,
    far: float,
) -> list[float]:
    """For each size of labels, the share of inputs that goes aside if its own do.

    These go, and those of sizes that do not pay if all come as often as is expected. The fewer go
    aside, the fewer share a call, and the more it saves to fetch one more: so sizes that pay are
    taken out until nothing changes.
    """
    whole = max(sum(anchors), 1.0)
    sizes = [size for size, number in enumerate(anchors) if number]
    fetch = {size: model.fetch_one(2.0**size, clusters) for size in sizes}
    left = [size for size in sizes if fetch[size] > model.little]
    while True:
        others = sum(anchors[size] for size in left) / whole
        shares = [max(others, number / whole) for number in anchors]
        stay = [
            size
            for size in left
            if each[size]
            * model.saved(
                max(shares[size] * BATCH, 1.0), BATCH, search, model.known(2.0**size, far)
            )
            < SURE * fetch[size]
        ]
        if len(stay) == len(left):
            return shares
        left = stay


def _large(model: CostModel, clusters: Clusters) -> int:
    """The first size of which a label may cost more than what is fetched in any case."""
    sizes = (size for size in range(63) if model.fetch_one(2.0**size, clusters) > model.little)
    return next(sizes, 63)


def _none(number: int) -> Int64s:
    return _ZEROS[:number] if number <= len(_ZEROS) else np.zeros(number, np.int64)


def _by_size(counts: Int64s) -> tuple[list[int] | Int64s, dict[int, int], dict[int, int]]:
    """The size of each label; of each size how many there are, and their candidates together.

    Mostly there is a label or two.
    """
    many: dict[int, int] = {}
    candidates: dict[int, int] = {}
    if len(counts) > SINGLY:
        size = _size(counts)
        numbers, sums = np.bincount(size).tolist(), np.bincount(size, counts).tolist()
        there = [each for each, number in enumerate(numbers) if number]
        many.update((each, numbers[each]) for each in there)
        candidates.update((each, int(sums[each])) for each in there)
        return size, many, candidates
    sizes = []
    for count in counts.tolist():
        place = min(count.bit_length(), 63)
        sizes.append(place)
        many[place] = many.get(place, 0) + 1
        candidates[place] = candidates.get(place, 0) + count
    return sizes, many, candidates


def _size(counts: Int64s) -> Int64s:
    """Powers of two, which is how sizes are told apart."""
    found: Int64s = np.minimum(np.frexp(counts.astype(np.float64))[1], 63).astype(np.int64)
    return found
