"""The cost model: what each way to match is expected to cost, from statistics and unit costs.

With I inputs, of which I(s) = I x rps(s) have the label s, and C(s) candidates of that label:

- ADMatch: the sum over labels of I(s) x AD_index_access_cost. An access is one input's share of a
  call, a search in a list of matches, which takes longer where caches do not hold the places at
  which searches end, and its pairs.
- CMatch: the sum over unique labels of SES_index_access_cost, and the cleaning. An access is a
  scan: the share of the call that finds new labels, the label, and its candidates. Cleaning is the
  sum over unique labels of (I(s) + C(s)) x log: candidates are put into order, inputs search them.
- CMatch and AD-only, by input: labels whose inputs would not pay for their candidates are left to
  ADMatch.

What the paper counts in disk accesses is counted here in what was measured (`cmatch.units`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cmatch.cclean import BUDGET
from cmatch.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from cmatch.profile import Clusters, Extent, Profile
    from cmatch.units import UnitCosts

    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]

__all__ = ["Choice", "CostModel", "Expected", "Workload"]

NEAR, NEAR_BYTES = 4096, 1 << 18
"""Labels, and bytes of lists of candidates, that caches hold."""
BATCH = 16
"""Inputs that a message brings, unless it is known better."""
TIMES = 2
"""How often an anchor is expected to come, if nobody says: statements stay for long."""
SURE = 2.5
"""A label that is expected to pay for itself so many times is fetched at once."""
LIST_ROW = 18
LIST_HEAD = 200
"""Bytes of a candidate in a list of them, and of the list itself."""
LABEL_ROW, POSTING = 24, 14
"""Bytes of a label and of a posting in their lists."""
AD_NEAR, AD_ROW, AD_PLACE = 1 << 20, 10, 128
"""Bytes of the list that ADMatch searches which caches hold, of a match in it, and of a place where
searches end."""
SPILL_PAGE = 128 * LIST_ROW
"""Bytes that are read at once of what was spilled."""
PAGE, TREE = 4096, 2
"""Bytes of a page, and pages on the way to a list."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An operator, the scheme it clusters by, and whether some labels are left to ADMatch."""

    operator: Literal["admatch", "cmatch"]
    scheme: str | None = None
    split: bool = False

    def __str__(self) -> str:
        if self.scheme is None:
            return self.operator
        return f"{self.operator}/{self.scheme}" + ("+admatch" if self.split else "")

    @classmethod
    def parse(cls, text: str) -> Choice:
        """The reverse of `str`."""
        operator, _, rest = text.partition("/")
        scheme, plus, _ = rest.partition("+")
        if operator == "cmatch" and scheme:
            return cls("cmatch", scheme, bool(plus))
        if text != "admatch":
            raise ValueError(f"no way to match is called {text!r}; e.g. admatch, cmatch/path")
        return ADMATCH


ADMATCH = Choice("admatch")


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs to come, so many in a batch.

    `once`: every anchor comes once at most, until all have come; otherwise any may come again.
    `cold`: no page of the index is in memory when the first comes.
    """

    inputs: float
    batch: float = BATCH
    once: bool = True
    cold: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What an operator is expected to count.

    `calls` of `feed`; those with new labels among them, those that `scan` because some of these
    have candidates, those in which a policy is `asked` about them, those with any pair (`answers`),
    and those in which AD-only match is asked.
    `probed`: steps of finding labels among those of the matches; `far`: doublings of the labels
    beyond what caches hold, a label each. `lists`: labels that have candidates. `hits`: inputs that
    have any pair; `aside`: inputs that AD-only match is asked for. `searched`, `found` and
    `ordered` are the steps of the searches, of those that hit, and of putting candidates into
    order: the logarithms of the paper's sum. `visited`: doublings of all lists beyond what caches
    hold, an input each that searches one. `climbed`: labels of matches that scans take one by
    one. `remote`: doublings of the index's lists beyond what caches hold, of labels for each that
    is looked for or climbed, of postings for each label that has any.
    `reads` are bytes of lists that are used for the first time, `faults` how often the disk is
    waited for.
    """

    inputs: float = 0.0
    calls: float = 0.0
    hits: float = 0.0
    pairs: float = 0.0
    answers: float = 0.0
    fresh_calls: float = 0.0
    scan_calls: float = 0.0
    asked: float = 0.0
    unique_labels: float = 0.0
    probed: float = 0.0
    far: float = 0.0
    lists: float = 0.0
    candidates: float = 0.0
    searched: float = 0.0
    found: float = 0.0
    ordered: float = 0.0
    visited: float = 0.0
    climbed: float = 0.0
    remote: float = 0.0
    aside: float = 0.0
    ad_calls: float = 0.0
    spilled_bytes: float = 0.0
    overflow_reads: float = 0.0
    faults: float = 0.0
    reads: float = 0.0

    @property
    def index_scans(self) -> float:
        """Scans by SES label: one for each label that is fetched."""
        return self.unique_labels

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


class CostModel:
    """Estimates what choices cost, in seconds, with the memory that an operator has."""

    def __init__(self, units: UnitCosts, budget: int = BUDGET) -> None:
        self.units = units
        self.budget = budget

    # --- all choices ------------------------------------------------------------------------

    def choices(self, profile: Profile, *, split: bool = False) -> list[Choice]:
        """What there is to choose from."""
        found = [ADMATCH, *(Choice("cmatch", scheme) for scheme in profile.schemes)]
        if split:
            found += [Choice("cmatch", scheme, split=True) for scheme in profile.schemes]
        return found

    def estimate(
        self, profile: Profile, workload: Workload, choices: Iterable[Choice] | None = None
    ) -> dict[Choice, Cost]:
        """The cost of each choice for all of a workload."""
        wanted = self.choices(profile) if choices is None else choices
        return {choice: self.cost(profile, choice, workload) for choice in wanted}

    def cost(self, profile: Profile, choice: Choice, workload: Workload) -> Cost:
        """The cost of one choice."""
        return self.price(self.expect(profile, choice, workload), profile, choice)

    # --- what is expected to be counted -----------------------------------------------------

    def expect(self, profile: Profile, choice: Choice, workload: Workload) -> Expected:
        """What the operator of a choice will have counted when a workload is done."""
        if choice.scheme is None:
            return self._expect_ad(profile, workload)
        clusters = profile.schemes[choice.scheme]
        rents = None
        if choice.split:
            rents = self.rents(clusters, workload, self.search(profile))
        return self._expect_clustered(profile, choice.scheme, clusters, workload, rents)

    def _expect_ad(self, profile: Profile, workload: Workload) -> Expected:
        inputs = workload.inputs
        calls = _calls(workload)
        touched = [
            min(
                each.size,
                _blocks(each, min(inputs, profile.places) * (1 + profile.fanout / each.block))
                * _block_bytes(each),
            )
            for each in profile.nodes
        ]
        return Expected(
            inputs=inputs,
            calls=calls,
            hits=inputs * min(profile.fanout, 1.0),
            pairs=inputs * profile.fanout,
            aside=inputs,
            ad_calls=calls,
            faults=_faults(profile.nodes, touched) if workload.cold else 0.0,
            reads=sum(touched) if workload.cold else 0.0,
        )

    def _expect_clustered(
        self,
        profile: Profile,
        scheme: str,
        clusters: Clusters,
        workload: Workload,
        rents: Floats | None,
    ) -> Expected:
        inputs, calls = workload.inputs, _calls(workload)
        seen = _seen(clusters, inputs, once=workload.once) * clusters.weight
        fetched = clusters.weight
        each = inputs * clusters.rps
        left = 0.0
        if rents is not None:
            rented = np.minimum(each, rents)
            left = float((clusters.weight * rented).sum()) / max(inputs, 1.0)
            paid = (each > rents) | (rents == 0)
            seen, fetched = np.where(paid, seen, 0.0), np.where(paid, fetched, 0.0)
            each = each - rented
        arrivals = clusters.weight * each
        counts = clusters.candidates
        candidates = float((seen * counts).sum())
        depth = _depth(counts)
        candidates_steps = float((seen * counts * depth).sum())
        spilled, reads = self._spills(clusters, seen, arrivals, calls)
        fresh_calls = _fresh_calls(clusters, workload, fetched)
        unique, lists = float(seen.sum()), float(seen[counts > 0].sum())
        climbed = 0.0 if clusters.climbs is None else float((seen * clusters.climbs).sum())
        expected = Expected(
            inputs=inputs,
            calls=calls,
            hits=inputs * min(profile.fanout, 1.0),
            pairs=inputs * profile.fanout,
            answers=_with_any(calls, min(profile.fanout, 1.0), inputs / max(calls, 1.0)),
            fresh_calls=fresh_calls,
            asked=0.0 if rents is None else self._asked(clusters, workload, fresh_calls),
            scan_calls=_fresh_calls(clusters, workload, np.where(counts > 0, fetched, 0.0)),
            unique_labels=unique,
            probed=unique * _probe_depth(profile, scheme),
            far=far_labels(unique),
            lists=lists,
            candidates=candidates,
            searched=float((arrivals * depth).sum()),
            found=float((arrivals * depth).sum()) * min(profile.fanout, 1.0),
            ordered=candidates_steps if clusters.mixed else 0.0,
            visited=float(arrivals[counts > 0].sum()) * _list_doublings(seen, counts),
            climbed=climbed,
            remote=remote_rows(
                unique + climbed,
                _list_bytes((profile.labels or {}).get(scheme, ())),
                lists,
                _list_bytes((profile.postings or {}).get(scheme, ())),
            ),
            aside=inputs * left,
            ad_calls=_with_any(calls, min(left, 1.0), inputs / max(calls, 1.0)),
            spilled_bytes=spilled,
            overflow_reads=reads,
        )
        if not workload.cold:
            return expected
        return self._with_cold(expected, profile, scheme)

    def _asked(self, clusters: Clusters, workload: Workload, fresh_calls: float) -> float:
        """Batches whose new labels have more candidates together than are fetched unasked."""
        heavy = clusters.candidates > self.cheap()
        light = _seen(clusters, workload.inputs, once=workload.once) * clusters.weight
        together = float((light * clusters.candidates)[~heavy].sum()) / max(fresh_calls, 1.0)
        if together > self.cheap():
            return fresh_calls
        return _fresh_calls(clusters, workload, np.where(heavy, clusters.weight, 0.0))

    # --- labels that may be left to ADMatch -------------------------------------------------

    def aside_call(self, rows: float, batch: float) -> float:
        """What a call takes more if so many rows of a batch go aside; to part one takes longest."""
        units = self.units
        return units.ad_call if rows >= batch else units.aside_call

    def search(self, profile: Profile) -> float:
        """What ADMatch takes for an input, its share of a call not included."""
        units = self.units
        steps = units.ad_step * math.log2(2.0 + profile.matches)
        far = units.ad_far * ad_doublings(profile.matches, profile.places)
        return units.ad_input + steps + far + min(profile.fanout, 1.0) * units.ad_hit

    def together(self, search: float) -> int:
        """Batches of at most so many inputs are not parted: to ask for all of them costs less.

        Those that could stay would be searched for instead of known, but nothing is put together.
        """
        units = self.units
        more = max(units.aside_call + units.answer - units.ad_call, 0.0)
        return int(min(more / max(search - self.known(0.0, 0.0), 1e-9), 1e6))

    def known(self, candidates: float, far: float) -> float:
        """What CMatch takes for an input of a fetched label, its share of a call not included.

        `far`: how far the lists of all labels would be from where they are at hand.
        """
        units = self.units
        return units.input + units.step * math.log2(2.0 + candidates) + units.visit * far

    def far(self, clusters: Clusters) -> float:
        """How often the lists of all labels are twice what caches hold."""
        return _list_doublings(clusters.weight, clusters.candidates)

    def saved(self, rows: float, batch: float, search: float, known: float) -> float:
        """What an input of a fetched label saves, if so many of a batch would go aside with it."""
        units = self.units
        call = self.aside_call(rows, batch)
        if rows < batch <= self.together(search):
            call = max(units.ad_call + (batch - rows) * search - units.answer, 0.0)
        return max(call / max(rows, 1.0) + search - known, 1e-9)

    def saved_each(
        self, batch: float, search: float, candidates: npt.NDArray[Any], clusters: Clusters
    ) -> Floats:
        """The same for labels of which all inputs of a batch go aside together."""
        steps = self.units.step * np.log2(2.0 + candidates)
        least = self.known(-1.0, self.far(clusters))
        found: Floats = np.maximum(self.saved(batch, batch, search, least) - steps, 1e-9)
        return found

    @property
    def little(self) -> float:
        """A label that costs no more is fetched in any case: an input aside alone costs more."""
        return self.units.aside_call

    def cheap(self) -> float:
        """So many candidates cost less to fetch than to let rows go aside, whoever has them."""
        return self.units.aside_call / max(self.units.candidate, 1e-12)

    def small(self, fetch: Floats) -> Bools:
        """Labels that are fetched in any case."""
        found: Bools = fetch <= self.little
        return found

    def rents(self, clusters: Clusters, workload: Workload, search: float) -> Floats:
        """After how many inputs each label is fetched; 0: at once."""
        counts = clusters.candidates
        fetch = self.fetch(counts, clusters)
        arrivals = workload.inputs * clusters.rps
        saved = self.saved_each(workload.batch, search, counts, clusters)
        sure = arrivals * saved >= SURE * fetch
        rent = np.ceil(fetch / saved)
        found: Floats = np.where(sure | self.small(fetch), 0.0, rent)
        return found

    def fetch(self, candidates: npt.NDArray[Any], clusters: Clusters) -> Floats:
        """What labels cost by their candidates: B(c), their share of a call not included."""
        units = self.units
        steps = units.candidate_step * _depth(candidates) if clusters.mixed else 0.0
        each = units.candidate + units.climb * clusters.climb + steps
        found: Floats = units.label + (candidates > 0) * units.list + candidates * each
        return found

    def fetch_one(self, candidates: float, clusters: Clusters) -> float:
        """The same of one label."""
        units = self.units
        if candidates <= 0:
            return units.label
        each = units.candidate + units.climb * clusters.climb
        if clusters.mixed:
            each += units.candidate_step * math.log2(2.0 + candidates)
        return units.label + units.list + candidates * each

    def _spills(
        self, clusters: Clusters, seen: Floats, arrivals: Floats, calls: float
    ) -> tuple[float, float]:
        """Bytes that are spilled, and how often a page of them is read.

        Inputs of a batch stand in the order of the corpus, as a rule: each page is read once.
        """
        counts = clusters.candidates
        size = _list_size(counts)
        held = seen * size
        if held.sum() <= self.budget:
            return 0.0, 0.0
        # What alone has no room is always looked for on disk; of the rest, what is asked for least.
        large = size > self.budget
        share = arrivals / np.maximum(held, 1e-12)
        order = np.argsort(-share, kind="stable")
        order = order[~large[order]]
        left = np.maximum(self.budget - np.cumsum(held[order]) + held[order], 0.0)
        inside = np.minimum(held[order], left)
        reads = float(arrivals[counts > 0].sum() - (inside * share[order]).sum())
        spilled = float(held.sum() - inside.sum())
        return spilled, max(min(reads, calls * math.ceil(spilled / SPILL_PAGE)), 0.0)

    # --- cold pages -------------------------------------------------------------------------

    def _with_cold(self, expected: Expected, profile: Profile, scheme: str) -> Expected:
        postings = (profile.postings or {}).get(scheme, ())
        labels = (profile.labels or {}).get(scheme, ())
        share = 1.0 / max(len(postings), 1)
        touched = [
            min(each.size, expected.candidates * share * POSTING + _block_bytes(each))
            for each in postings
        ]
        touched += [
            min(each.size, _blocks(each, expected.unique_labels * share) * _block_bytes(each))
            for each in labels
        ]
        faults = _faults((*postings, *labels), touched)
        return replace(expected, faults=faults, reads=sum(touched))

    # --- what that costs --------------------------------------------------------------------

    def price(self, expected: Expected, profile: Profile, choice: Choice) -> Cost:
        """What so much of everything costs."""
        units = self.units
        several = min(max(profile.segments, 1), expected.inputs / max(expected.calls, 1.0)) - 1.0
        more = max(several, 0.0)
        call = units.ad_call if choice.scheme is None else units.aside_call
        access = expected.ad_calls * (call + units.ad_segment * more)
        access += expected.aside * self.search(profile)
        left = expected.aside / expected.inputs if expected.inputs else 0.0
        access += left * expected.pairs * units.ad_pair
        cold = expected.faults * units.fault
        cold += expected.reads * (units.read_byte + units.checked_byte)
        if choice.scheme is None:
            return Cost(access, 0.0, 0.0, cold)
        access += min(expected.unique_labels, 1.0) * units.start
        access += expected.fresh_calls * units.fresh_call * (1.0 + more)
        access += expected.scan_calls * units.scan * (1.0 + more)
        access += expected.unique_labels * units.label + expected.lists * units.list
        access += expected.probed * units.label_step + expected.far * units.label_far
        access += expected.candidates * units.candidate + expected.climbed * units.climb
        access += expected.remote * units.visit
        access += expected.asked * units.policy
        cleaning = (
            expected.calls * units.call
            + expected.answers * units.answer
            + (expected.inputs - expected.aside) * units.input
            + expected.searched * units.step
            + expected.ordered * units.candidate_step
            + expected.found * units.hit
            + expected.visited * units.visit
            + (1.0 - left) * expected.pairs * units.pair
        )
        spills = (
            expected.spilled_bytes * units.spilled_byte
            + expected.overflow_reads * units.overflow_read
        )
        return Cost(access, cleaning, spills, cold)


# --- expectations ---------------------------------------------------------------------------


def far_labels(labels: float) -> float:
    """How often each of so many labels is looked up beyond what caches hold, in doublings."""
    return labels * max(math.log2(max(labels, 1.0) / NEAR), 0.0)


def list_doublings(lists: float, size: float) -> float:
    """How often so many lists, of so many bytes together, are twice what caches hold.

    Where one alone is searched, again and again, the first steps of the search stay at hand.
    """
    others = size * (1.0 - 1.0 / max(lists, 1.0))
    return math.log2(max(others / NEAR_BYTES, 1.0))


def remote_rows(labels: float, label_bytes: float, lists: float, posting_bytes: float) -> float:
    """How often rows of lists of the index are twice as far as caches reach.

    So many labels are looked at in a list of so many bytes, and postings of some in another.
    """
    doublings = [math.log2(max(size / NEAR_BYTES, 1.0)) for size in (label_bytes, posting_bytes)]
    return labels * doublings[0] + lists * doublings[1]


def ad_doublings(matches: float, places: float) -> float:
    """How often what ADMatch looks at, in a list of so many matches, is twice what caches hold."""
    return math.log2(max(min(AD_ROW * matches, AD_PLACE * places) / AD_NEAR, 1.0))


def _list_size(candidates: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.where(candidates > 0, candidates * LIST_ROW + LIST_HEAD, 0)
    return found


def _list_doublings(seen: Floats, candidates: npt.NDArray[Any]) -> float:
    lists = float(seen[candidates > 0].sum())
    return list_doublings(lists, float((seen * _list_size(candidates)).sum()))


def _probe_depth(profile: Profile, scheme: str) -> float:
    """The steps of finding a label among those of the matches."""
    lists = (profile.labels or {}).get(scheme, ())
    rows = sum(each.rows for each in lists) / max(len(lists), 1)
    return math.log2(2.0 + rows)


def _calls(workload: Workload) -> float:
    return float(np.ceil(workload.inputs / max(workload.batch, 1.0)))


def _seen(clusters: Clusters, inputs: float, *, once: bool) -> Floats:
    """How likely each label is among so many inputs."""
    found: Floats
    if once and inputs >= clusters.anchors * (1 - 1e-12):
        found = np.full(len(clusters.cps), 1.0 if inputs else 0.0)
    elif once:
        found = 1.0 - np.power(1.0 - inputs / clusters.anchors, clusters.cps, dtype=np.float64)
    else:
        found = 1.0 - (1.0 - clusters.rps) ** inputs
    return found


def _with_any(calls: float, share: float, each: float) -> float:
    """Calls in which any of `each` inputs is of a kind that has a share in all."""
    return float(calls * (1.0 - (1.0 - share) ** each))


def _fresh_calls(clusters: Clusters, workload: Workload, weight: Floats) -> float:
    """How many batches have a label that none before them had, of labels that count so much.

    A batch in which a number of new labels is expected has none of them with the probability
    exp(-number). Batches are many, so they are taken in stretches, each twice as long as the last.
    """
    if workload.inputs <= 0 or not weight.any():
        return 0.0
    calls = _calls(workload)
    total = before = at = 0.0
    for end in _stretches(calls):
        inputs = min(end * workload.batch, workload.inputs)
        seen = float((_seen(clusters, inputs, once=workload.once) * weight).sum())
        number = (seen - before) / (end - at)
        total += (end - at) * (-np.expm1(-number) if at else min(number, 1.0))
        before, at = seen, end
    return float(total)


def _stretches(calls: float) -> Iterator[float]:
    end = 1.0
    while end < calls:
        yield end
        end *= 2.0
    yield max(calls, 1.0)


def _faults(lists: Iterable[Extent], touched: Iterable[float]) -> float:
    """How often the disk is waited for: on the way to a list, and for each page of its first block.

    Blocks behind it are announced, and read while others are used.
    """
    found = 0.0
    for each, size in zip(lists, touched, strict=True):
        if size:
            found += TREE + math.ceil(min(size, _block_bytes(each)) / PAGE)
    return found


def _depth(candidates: npt.NDArray[Any]) -> Floats:
    """Steps of a search among candidates; none where there is nothing to search."""
    found: Floats = np.where(candidates > 0, np.log2(2.0 + candidates), 0.0)
    return found


def _blocks(each: Extent, rows: float) -> float:
    return min(float(-(-each.rows // each.block)), max(rows, 1.0))


def _list_bytes(lists: Sequence[Extent]) -> float:
    """Bytes of a list of one segment."""
    return sum(each.size for each in lists) / max(len(lists), 1)


def _block_bytes(each: Extent) -> float:
    return each.size / each.rows * min(each.block, each.rows) if each.rows else 0.0
