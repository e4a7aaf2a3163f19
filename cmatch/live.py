"""What inputs were like lately, and what more of the same would cost: seconds an input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmatch.model import LIST_HEAD, LIST_ROW, ad_doublings, list_doublings

if TYPE_CHECKING:
    import numpy.typing as npt

    from cmatch.inputs import Inputs
    from cmatch.model import CostModel
    from cmatch.profile import Clusters, Profile
    from cmatch.watched import News
    from index import Index
    from labeling.runs import Tag

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

__all__ = ["Live"]

_ENOUGH = 5
"""Labels that must have come twice, for an estimate by them to mean anything."""


@dataclass(slots=True)
class Live:
    """What an input and a new label are like. Not frozen, which would take four times as long.

    Of each input: how many new labels it brings (and how many while such come: they may all come in
    the beginning, in a `burst`), pairs, reads of what was spilled, and whether it goes aside. Of
    each new label: its candidates. `batch`: inputs that come at once; `rows`: how many of those
    that go aside share a call of ADMatch; `steps`: of a search in the list of all matches, and how
    many doublings of it caches do not hold (`far`); `lists` of candidates, and the bytes that are
    `held` in them; `rented`: what it would take, an input, to fetch the labels that go aside.
    """

    clusters: Clusters
    batch: float
    fresh: float
    candidates: float
    pairs: float
    aside: float = 0.0
    rows: float = 1.0
    overflow: float = 0.0
    burst: float = 0.0
    steps: float = 0.0
    far: float = 0.0
    lists: float = 0.0
    held: float = 0.0
    rented: float = math.inf

    @classmethod
    def counted(
        cls,
        now: News,
        since: News,
        batch: float,
        rows: float,
        profile: Profile,
        scheme: str,
        rented: float,
    ) -> Live:
        """By what CMatch has counted since some time."""
        inputs = max(now.inputs - since.inputs, 1)
        fresh = now.labels - since.labels
        return cls(
            profile.schemes[scheme],
            batch,
            fresh / inputs,
            (now.candidates - since.candidates) / max(fresh, 1),
            (now.pairs - since.pairs) / inputs,
            (now.aside - since.aside) / inputs,
            rows,
            (now.overflow_reads - since.overflow_reads) / inputs,
            steps=_steps(profile),
            far=ad_doublings(profile.matches, profile.places),
            lists=now.labels,
            held=now.held,
            rented=rented,
        )

    @classmethod
    def sampled(
        cls,
        model: CostModel,
        index: Index,
        tag: Tag | str,
        profile: Profile,
        scheme: str,
        inputs: Inputs,
        batches: Int64s,
        horizon: float,
        pairs: float,
    ) -> Live:
        """By the labels of some inputs; `batches` says which came together, -1 which came before.

        The inputs whose label had not come before say how often one is new: so it will go on, but
        there are not more labels than there are, or than those that came twice let suppose. If as
        many inputs as a label had would not pay for its candidates, they would go aside.
        """
        assert inputs.rank is not None
        key = (inputs.segment.astype(np.int64) << 32) | inputs.rank
        _, first, of, times = np.unique(
            key, return_index=True, return_inverse=True, return_counts=True
        )
        counts = _candidates(index, tag, profile, scheme, inputs, first)
        now = batches >= 0
        number, batch = int(now.sum()), int(now.sum()) / (int(batches.max()) + 1)
        clusters = profile.schemes[scheme]
        fetch = model.fetch(counts, clusters)
        arrivals = times / len(key) * horizon
        saved = model.saved_each(batch, model.search(profile), counts, clusters)
        large = ~model.small(fetch) & (arrivals * saved < fetch)
        rows = batches[large[of] & now]
        known = np.flatnonzero(~large)
        fresh = int(np.count_nonzero((batches[first] >= 0) & ~large))
        labels = min(
            len(known) + fresh / number * horizon,
            _recaptured(of, now, ~large),
            clusters.labels,
        )
        candidates = float(counts[known].mean()) if len(known) else 0.0
        return cls(
            clusters,
            batch,
            labels / max(horizon, 1.0),
            candidates,
            pairs,
            len(rows) / number,
            len(rows) / max(len(np.unique(rows)), 1),
            burst=fresh / number,
            steps=_steps(profile),
            far=ad_doublings(profile.matches, profile.places),
            lists=labels,
            held=labels * (candidates * LIST_ROW + LIST_HEAD) if candidates else 0.0,
        )

    @property
    def hits(self) -> float:
        return min(self.pairs, 1.0)

    def clustered(self, model: CostModel, fresh: float, candidates: float) -> float:
        """What CMatch takes if so many labels an input are new; known ones have `candidates`."""
        units = model.units
        together = max(self.burst, fresh, 1e-12) * self.batch
        batches = fresh * self.batch * -math.expm1(-together) / together
        scan = units.scan if self.candidates else 0.0
        if self.candidates * max(together, 1.0) > model.cheap():
            scan += units.policy
        depth = math.log2(2.0 + candidates) if candidates else 0.0
        known = units.input + depth * (units.step + self.hits * units.hit)
        if candidates:
            known += units.visit * list_doublings(self.lists, self.held)
        away = model.aside_call(self.rows, self.batch)
        answers = 1.0 - float((1.0 - self.hits) ** self.batch)
        return (
            (units.call + answers * units.answer) / self.batch
            + (1.0 - self.aside) * known
            # What has gone aside for long enough is fetched.
            + min(
                self.aside * (away / max(self.rows, 1.0) + self._probe(model)),
                self.aside * known + self.rented,
            )
            + batches * (units.fresh_call + scan) / self.batch
            + fresh * model.fetch_one(self.candidates, self.clusters)
            + self.overflow * units.overflow_read
        )

    def by_ad(self, model: CostModel) -> float:
        """What ADMatch takes."""
        return model.units.ad_call / self.batch + self._probe(model)

    def _probe(self, model: CostModel) -> float:
        units = model.units
        search = self.steps * units.ad_step + self.far * units.ad_far
        return units.ad_input + search + self.hits * units.ad_hit


def _steps(profile: Profile) -> float:
    return math.log2(2.0 + profile.matches)


def _candidates(
    index: Index, tag: Tag | str, profile: Profile, scheme: str, inputs: Inputs, first: Int64s
) -> Int64s:
    """The candidates of some labels, each given by an input that has it."""
    assert inputs.rank is not None
    assert inputs.last is not None
    found = np.zeros(len(first), np.int64)
    for place in np.unique(inputs.segment).tolist():
        own = np.flatnonzero(inputs.segment[first] == place)
        ranks, lasts = inputs.rank[first[own]], inputs.last[first[own]]
        side = profile.axis.side
        found[own] = index.segments[place].counts(scheme, tag, ranks, lasts, side)
    return found


def _recaptured(of: Int64s, now: Bools, small: Bools) -> float:
    """How many labels there are, at most, if so many of those that came before come again.

    The estimate of Lincoln and Petersen, doubled, because some come less often than others.
    """
    before, recent = np.zeros_like(small), np.zeros_like(small)
    before[of[~now]] = True
    recent[of[now]] = True
    both = int(np.count_nonzero(before & recent & small))
    if both < _ENOUGH:
        return math.inf
    return 2.0 * np.count_nonzero(before & small) * np.count_nonzero(recent & small) / both
