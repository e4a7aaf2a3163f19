"""The cost model: what each way to match is expected to cost, from statistics and unit costs.

With I inputs, of which I(s) = I x rps(s) have the label s, and C(s) candidates of that label:

- ADMatch: the sum over labels of I(s) x AD_index_access_cost. An access is one input's share of a
  call, a search in a list as long as the tag of matches has nodes, and its pairs.
- CMatch: the sum over unique labels of SES_index_access_cost, and the cleaning. An access is a
  scan: the share of the call that finds new labels, the label, and its candidates. Cleaning is the
  sum over unique labels of (I(s) + C(s)) x log: candidates are put into order, inputs search them.
- CMatch and AD-only, by input: labels whose inputs would not pay for their candidates are left to
  ADMatch.

What the paper counts in disk accesses is counted here in what was measured (`cmatch.units`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cmatch.cclean import BUDGET
from cmatch.cost import Cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from cmatch.profile import Clusters, Extent, Profile
    from cmatch.units import UnitCosts

    Bools = npt.NDArray[np.bool_]
    Floats = npt.NDArray[np.float64]

__all__ = ["Choice", "CostModel", "Expected", "Workload"]

BATCH = 16
"""Inputs that a message brings, unless it is known better."""
LIST_ROW = 20
LIST_HEAD = 200
"""Bytes of a candidate in a list of them, and of the list itself."""
ENTRY = 40
"""Bytes of a candidate before its label is complete."""


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
    have candidates, those with any pair (`answers`), and those in which AD-only match is asked.
    `lists`: labels that have candidates. `hits`: inputs that have any pair; `aside`: inputs that
    AD-only match is asked for. `searched`, `found` and `ordered` are the steps of the searches, of
    those that hit, and of putting candidates into order: the logarithms of the paper's sum.
    `reads` are bytes of lists that are used for the first time, `faults` how often the disk is
    waited for, `window` what it then gives.
    """

    inputs: float = 0.0
    calls: float = 0.0
    hits: float = 0.0
    pairs: float = 0.0
    answers: float = 0.0
    fresh_calls: float = 0.0
    scan_calls: float = 0.0
    unique_labels: float = 0.0
    lists: float = 0.0
    candidates: float = 0.0
    searched: float = 0.0
    found: float = 0.0
    ordered: float = 0.0
    aside: float = 0.0
    ad_calls: float = 0.0
    spilled_bytes: float = 0.0
    overflow_reads: float = 0.0
    faults: float = 0.0
    window: float = 0.0
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
        aside = self.aside(profile, clusters, workload) if choice.split else None
        return self._expect_clustered(profile, choice.scheme, clusters, workload, aside)

    def _expect_ad(self, profile: Profile, workload: Workload) -> Expected:
        inputs = workload.inputs
        calls = _calls(workload)
        touched = [
            min(
                each.size,
                _blocks(each, inputs * (1 + profile.fanout / each.block)) * _block_bytes(each),
            )
            for each in profile.nodes
        ]
        faults, window = self._faults(profile.nodes, touched) if workload.cold else (0.0, 0.0)
        return Expected(
            inputs=inputs,
            calls=calls,
            hits=inputs * min(profile.fanout, 1.0),
            pairs=inputs * profile.fanout,
            aside=inputs,
            ad_calls=calls,
            faults=faults,
            window=window,
            reads=sum(touched) if workload.cold else 0.0,
        )

    def _expect_clustered(
        self,
        profile: Profile,
        scheme: str,
        clusters: Clusters,
        workload: Workload,
        aside: Bools | None,
    ) -> Expected:
        inputs, calls = workload.inputs, _calls(workload)
        seen = _seen(clusters, inputs, once=workload.once) * clusters.weight
        share = clusters.rps * clusters.weight
        left = 0.0
        fetched = clusters.weight
        if aside is not None:
            seen = np.where(aside, 0.0, seen)
            left = float(share[aside].sum())
            share = np.where(aside, 0.0, share)
            fetched = np.where(aside, 0.0, fetched)
        arrivals = inputs * share
        counts = clusters.candidates
        candidates = float((seen * counts).sum())
        depth = _depth(counts)
        spilled, reads = self._spills(clusters, seen, arrivals)
        expected = Expected(
            inputs=inputs,
            calls=calls,
            hits=inputs * min(profile.fanout, 1.0),
            pairs=inputs * profile.fanout,
            answers=_with_any(calls, min(profile.fanout, 1.0), inputs / max(calls, 1.0)),
            fresh_calls=_fresh_calls(clusters, workload, fetched),
            scan_calls=_fresh_calls(clusters, workload, np.where(counts > 0, fetched, 0.0)),
            unique_labels=float(seen.sum()),
            lists=float(seen[counts > 0].sum()),
            candidates=candidates,
            searched=float((arrivals * depth).sum()),
            found=float((arrivals * depth).sum()) * min(profile.fanout, 1.0),
            ordered=float((seen * counts * depth).sum()),
            aside=inputs * left,
            ad_calls=_with_any(calls, min(left, 1.0), inputs / max(calls, 1.0)),
            spilled_bytes=spilled,
            overflow_reads=reads,
        )
        if not workload.cold:
            return expected
        return self._with_cold(expected, profile, scheme)

    def aside(self, profile: Profile, clusters: Clusters, workload: Workload) -> Bools:
        """Labels whose inputs would cost ADMatch less than their candidates cost CMatch."""
        units = self.units
        arrivals = workload.inputs * clusters.rps
        saved = self.probe(profile, workload.batch) - units.input
        found: Bools = arrivals * max(saved, 0.0) < self.fetch(clusters.candidates)
        return found

    def probe(self, profile: Profile, rows: float) -> float:
        """An input's AD_index_access_cost, without its pairs, with so many in a call."""
        units = self.units
        search = units.ad_input + units.ad_step * float(np.log2(2.0 + profile.matches))
        return units.ad_call / max(rows, 1.0) + search

    def fetch(self, candidates: npt.NDArray[Any]) -> Floats:
        """What a label costs by its candidates: B(c), its share of a call not included."""
        units = self.units
        each = units.candidate + units.candidate_step * _depth(candidates)
        found: Floats = units.label + (candidates > 0) * units.list + candidates * each
        return found

    def _spills(self, clusters: Clusters, seen: Floats, arrivals: Floats) -> tuple[float, float]:
        """Bytes that are spilled, and inputs that look for candidates there."""
        counts = clusters.candidates
        lists = seen * np.where(counts > 0, counts * LIST_ROW + LIST_HEAD, 0)
        held = float(lists.sum())
        over = max(held - self.budget, 0.0)
        large = counts * ENTRY > self.budget
        spilled = over + float((seen * counts * ENTRY)[large].sum())
        if not over:
            return spilled, 0.0
        return spilled, float(arrivals[counts > 0].sum()) * over / held

    # --- cold pages -------------------------------------------------------------------------

    def _with_cold(self, expected: Expected, profile: Profile, scheme: str) -> Expected:
        postings = (profile.postings or {}).get(scheme, ())
        labels = (profile.labels or {}).get(scheme, ())
        share = 1.0 / max(len(postings), 1)
        touched = [
            min(each.size, expected.candidates * share * 14 + _block_bytes(each))
            for each in postings
        ]
        touched += [
            min(each.size, _blocks(each, expected.unique_labels * share) * _block_bytes(each))
            for each in labels
        ]
        faults, window = self._faults((*postings, *labels), touched)
        counted = {name: getattr(expected, name) for name in expected.__slots__}
        return Expected(**counted | {"faults": faults, "window": window, "reads": sum(touched)})

    def _faults(self, lists: Iterable[Extent], touched: list[float]) -> tuple[float, float]:
        """How often the disk is waited for, and the bytes it gives then, on average."""
        faults = bytes_read = 0.0
        files: set[int] = set()
        for each, size in zip(lists, touched, strict=True):
            if not each.rows:
                continue
            window = min(self.units.window, float(each.file))
            times = 1.0 + size // self.units.window
            if each.file not in files:
                # The tree that leads to a file's lists lies elsewhere in it.
                files.add(each.file)
                times += 1.0
            faults += times
            bytes_read += times * window
        return faults, bytes_read / faults if faults else 0.0

    # --- what that costs --------------------------------------------------------------------

    def price(self, expected: Expected, profile: Profile, choice: Choice) -> Cost:
        """What so much of everything costs."""
        units = self.units
        several = min(max(profile.segments, 1), expected.inputs / max(expected.calls, 1.0)) - 1.0
        more = max(several, 0.0)
        access = expected.ad_calls * (units.ad_call + units.ad_segment * more)
        search = units.ad_input + units.ad_step * float(np.log2(2.0 + profile.matches))
        access += expected.aside * search
        left = expected.aside / expected.inputs if expected.inputs else 0.0
        access += left * (expected.hits * units.ad_hit + expected.pairs * units.ad_pair)
        cold = expected.faults * (units.fault + expected.window * units.read_byte)
        cold += expected.reads * units.checked_byte
        if choice.scheme is None:
            return Cost(access, 0.0, 0.0, cold)
        access += expected.fresh_calls * units.fresh_call * (1.0 + more)
        access += expected.scan_calls * units.scan * (1.0 + more)
        access += expected.unique_labels * units.label + expected.lists * units.list
        access += expected.candidates * units.candidate
        if choice.split:
            access += expected.fresh_calls * units.policy
        cleaning = (
            expected.calls * units.call
            + expected.answers * units.answer
            + (expected.inputs - expected.aside) * units.input
            + expected.searched * units.step
            + expected.ordered * units.candidate_step
            + expected.found * units.hit
            + (1.0 - left) * expected.pairs * units.pair
        )
        spills = (
            expected.spilled_bytes * units.spilled_byte
            + expected.overflow_reads * units.overflow_read
        )
        return Cost(access, cleaning, spills, cold)


# --- expectations ---------------------------------------------------------------------------


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


def _depth(candidates: npt.NDArray[Any]) -> Floats:
    """Steps of a search among candidates; none where there is nothing to search."""
    found: Floats = np.where(candidates > 0, np.log2(2.0 + candidates), 0.0)
    return found


def _blocks(each: Extent, rows: float) -> float:
    return min(float(-(-each.rows // each.block)), max(rows, 1.0))


def _block_bytes(each: Extent) -> float:
    return each.size / each.rows * min(each.block, each.rows) if each.rows else 0.0
