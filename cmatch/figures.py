"""What an index says of a join before any input has come.

Sums are taken from the statistics that were counted when the segments were built: nodes, labels and
pairs of the tags. How nodes spread over labels, and how many candidates these have, is taken from a
sample of the anchors: a bounded number of nodes, of the most frequent tags, whatever the join.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fmware.cmatch.axes import Axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fmware.index import Index, Segment
    from fmware.index.segment import SegmentFiles
    from fmware.labeling.runs import Tag

    Floats = npt.NDArray[np.float64]
    Int64s = npt.NDArray[np.int64]

__all__ = ["Figures", "Labels", "fewest_labels"]

SAMPLE = 32
"""Anchors whose labels are looked up: the error of a mean over them is about a sixth."""
MOST_TAGS = 8
"""Tags of anchors, and of matches, that are looked at; what they hold is scaled to all."""
_SPREAD = np.array([math.modf((at + 1) * (math.sqrt(5) - 1) / 2)[0] for at in range(SAMPLE)])
"""Places in [0, 1) that are spread evenly and repeat no period: multiples of the golden ratio."""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The SES labels of the anchors under one scheme.

    `total` is how many there are. The columns have a row for each anchor of the sample: how many
    anchors share its label, and how many candidates a scan for that label gives.
    """

    total: int
    sharing: Floats
    candidates: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """A join in numbers: `anchors` and `matches` are nodes, `pairs` those on its axis."""

    anchors: int
    matches: int
    pairs: float
    schemes: dict[str, Labels]

    @property
    def fanout(self) -> float:
        """The pairs of an anchor, on average."""
        return self.pairs / self.anchors if self.anchors else 0.0

    @classmethod
    def of(
        cls, index: Index, anchors: Sequence[Tag] | None, tags: Sequence[Tag], axis: Axis
    ) -> Figures:
        """The figures of a join; anchors may have any tag if `anchors` is None."""
        parts = [_Numbers.of(segment, anchors, tags) for segment in index.segments]
        sampled = [each for each in parts if each.anchors and each.above]
        nodes = sum(part.anchors for part in parts)
        schemes = {scheme: _labels(sampled, nodes, scheme, axis) for scheme in index.schemes}
        pairs = [part.pairs(axis) for part in parts]
        known = [each for each in pairs if each is not None]
        total = float(sum(known))
        if len(known) < len(pairs):
            total = min((_most_pairs(each) for each in schemes.values()), default=0.0)
        return cls(nodes, sum(part.matches for part in parts), total, schemes)


def fewest_labels(index: Index, anchors: Sequence[Tag] | None) -> str:
    """The scheme under which anchors have the fewest labels; no list is read."""
    parts = [_Numbers.of(segment, anchors, ()) for segment in index.segments]
    return min(index.schemes, key=lambda scheme: sum(part.total(scheme) for part in parts))


def _most_pairs(labels: Labels) -> float:
    """Pairs, where none were counted: nodes of a label rarely stand in each other, so that each
    candidate of it belongs to one of them."""
    single = 1.0 / labels.sharing
    return labels.total * float((single * labels.candidates).sum() / max(single.sum(), 1e-12))


# --- one segment ----------------------------------------------------------------------------


class _Table(NamedTuple):
    """The tags of a segment by name, and its pairs of tags: above, below, pairs, children."""

    numbers: dict[Tag, int]
    pairs: Int64s | None

    @classmethod
    def of(cls, segment: Segment) -> _Table:
        files = segment.files
        found = _TABLES.get(files)
        if found is None:
            rows = segment.statistics["fanout"].get("pairs")
            pairs = None if rows is None else np.array(rows, np.int64).reshape(-1, 4)
            found = cls({tag: number for number, tag in enumerate(segment.tags)}, pairs)
            _TABLES[files] = found
        return found


_TABLES: WeakKeyDictionary[SegmentFiles, _Table] = WeakKeyDictionary()


class _Numbers(NamedTuple):
    """The tags of a join in one segment, by number."""

    segment: Segment
    above: list[int]
    below: list[int]
    anchors: int
    matches: int

    @classmethod
    def of(cls, segment: Segment, anchors: Sequence[Tag] | None, tags: Sequence[Tag]) -> _Numbers:
        numbers = _Table.of(segment).numbers
        counted = segment.statistics["tags"]
        if anchors is None:
            above = [number for tag, number in numbers.items() if tag.kind == 0]
        else:
            above = [numbers[tag] for tag in anchors if tag in numbers]
        below = [numbers[tag] for tag in tags if tag in numbers]
        return cls(
            segment,
            above,
            below,
            sum(counted[each]["nodes"] for each in above),
            sum(counted[each]["nodes"] for each in below),
        )

    def pairs(self, axis: Axis) -> int | None:
        """The pairs on an axis; None where they were not counted."""
        if axis is Axis.SELF:
            counted = self.segment.statistics["tags"]
            return sum(int(counted[each]["nodes"]) for each in {*self.above} & {*self.below})
        rows = _Table.of(self.segment).pairs
        if rows is None:
            return None
        upper, lower = (self.above, self.below) if axis.downwards else (self.below, self.above)
        inside = np.zeros((2, len(self.segment.tags)), np.bool_)
        inside[0, upper] = inside[1, lower] = True
        own = inside[0, rows[:, 0]] & inside[1, rows[:, 1]]
        return int(rows[own, 3 if axis.one_level else 2].sum())

    def most(self, numbers: Sequence[int]) -> list[int]:
        """The tags with most nodes."""
        if len(numbers) <= MOST_TAGS:
            return [*numbers]
        counted = self.segment.statistics["tags"]
        return sorted(numbers, key=lambda each: -counted[each]["nodes"])[:MOST_TAGS]

    def total(self, scheme: str) -> int:
        """The labels of all tags of anchors."""
        counted = self.segment.statistics["schemes"][scheme]["tags"]
        return sum(counted[each]["labels"] for each in self.above)

    def sample(self, scheme: str, number: int, axis: Axis) -> tuple[Floats, Floats]:
        """A sample of anchors: how many nodes share the label of each, and its candidates."""
        segment, tags = self.segment, self.segment.tags
        counted = segment.statistics["tags"]
        above, below = self.most(self.above), self.most(self.below)
        nodes = sum(counted[each]["nodes"] for each in above)
        ranks, lasts, sharing = [], [], []
        for each in above:
            own = counted[each]["nodes"]
            some = math.ceil(number * own / nodes)
            if not some:
                continue
            rows = (_SPREAD[:some] * own).astype(np.int64)
            rank, last = segment.labels(tags[each], rows, scheme)
            ranks.append(rank)
            lasts.append(last)
            sharing.append(segment.counts(scheme, tags[each], rank, last, "self"))
        rank, last = np.concatenate(ranks), np.concatenate(lasts)
        candidates = np.zeros(len(rank), np.float64)
        for each in below:
            candidates += segment.counts(scheme, tags[each], rank, last, axis.side)
        seen = sum(counted[each]["nodes"] for each in below)
        if seen:
            candidates *= self.matches / seen
        return np.maximum(np.concatenate(sharing), 1).astype(np.float64), candidates


def _labels(parts: Sequence[_Numbers], nodes: int, scheme: str, axis: Axis) -> Labels:
    """The labels of all segments: each has its own."""
    found = [part.sample(scheme, math.ceil(SAMPLE * part.anchors / nodes), axis) for part in parts]
    none = np.empty(0)
    return Labels(
        sum(part.total(scheme) for part in parts),
        np.concatenate([none, *(sharing for sharing, _ in found)]),
        np.concatenate([none, *(candidates for _, candidates in found)]),
    )
