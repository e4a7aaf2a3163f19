"""What an index says of a join before any input has come: its labels and their candidates.

The clustering power cps(s) of a label is how many nodes of the anchors' tag share it, C(s) how many
candidates a scan for it gives. Both are counted, not estimated, from the lists of labels; where a
tag has very many labels, for those of a sample of its nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cmatch.axes import Axis
from index import format as form
from labeling.runs import Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from index import Index, Segment

    Floats = npt.NDArray[np.float64]
    Int64s = npt.NDArray[np.int64]

__all__ = ["Clusters", "Extent", "Profile"]

MOST = 4096
"""Labels that are looked at; where there are more, so many nodes are."""
MIXED = 3.0
"""Labels of matches a scan, from which what it gives is taken to be in no order."""
STRETCHES = 32
"""Places from which they are taken: neighbours share blocks."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """The labels of the anchors' tag under one scheme: of each, its cps(s) and C(s).

    `weight` is how many labels each of them stands for: 1, unless they are of a sample. `mixed`:
    what a scan gives is in no order, because it has nodes of several labels. `climbs`: how many
    of these it takes one by one, on its way up; None if it takes one run of nodes.
    """

    cps: Int64s
    candidates: Int64s
    weight: Floats
    mixed: bool = False
    climbs: Int64s | None = None

    @cached_property
    def labels(self) -> float:
        return float(self.weight.sum())

    @cached_property
    def anchors(self) -> float:
        return float((self.weight * self.cps).sum())

    @cached_property
    def rps(self) -> Floats:
        """The relative clustering power: the share of all anchors that have a label."""
        return self.cps / max(self.anchors, 1.0)

    @cached_property
    def climb(self) -> float:
        """Labels that a scan takes one by one, for each candidate that it gives."""
        if self.climbs is None:
            return 0.0
        given = float((self.weight * self.candidates).sum())
        return float((self.weight * self.climbs).sum()) / max(given, 1.0)

    @cached_property
    def exact(self) -> bool:
        return bool((self.weight == 1.0).all())

    @classmethod
    def joined(cls, parts: list[Clusters]) -> Clusters:
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0, np.int64)
        return cls(
            np.concatenate([none, *(each.cps for each in parts)]),
            np.concatenate([none, *(each.candidates for each in parts)]),
            np.concatenate([np.empty(0), *(each.weight for each in parts)]),
            any(each.mixed for each in parts),
            _climbs(parts),
        )


@dataclass(frozen=True, slots=True)
class Extent:
    """A list on disk: its rows, its bytes, the rows of a block, and the bytes of its file."""

    rows: int = 0
    size: int = 0
    block: int = 1
    file: int = 0


@dataclass(frozen=True, eq=False)
class Profile:
    """A join of the nodes of one tag, the anchors, with those of another on an axis.

    `fanout` is how many matches an anchor has on average; `places`, at how many places among the
    matches searches for them end. `nodes` are the lists of matches
    that ADMatch asks, one a segment; `postings` and `labels` those that CMatch asks, by scheme.
    """

    axis: Axis
    anchors: int
    matches: int
    fanout: float
    segments: int
    places: float
    schemes: dict[str, Clusters]
    nodes: tuple[Extent, ...] = ()
    postings: dict[str, tuple[Extent, ...]] | None = None
    labels: dict[str, tuple[Extent, ...]] | None = None

    @classmethod
    def of(cls, index: Index, anchors: Tag | str, tag: Tag | str, axis: Axis | str) -> Profile:
        """What an index says of `tag` on an axis of `anchors`."""
        axis = Axis(axis)
        above, below = _tag(anchors), _tag(tag)
        segments = [each for each in index.segments if each.count(above)]
        number = sum(segment.count(above) for segment in segments)
        schemes = {
            scheme: Clusters.joined(
                [_clusters(segment, above, below, axis, scheme) for segment in segments]
            )
            for scheme in index.schemes
        }
        pairs = _pairs(segments, above, below, axis, schemes)
        matches = sum(segment.count(below) for segment in segments)
        return cls(
            axis,
            number,
            matches,
            pairs / number if number else 0.0,
            len(segments),
            # Matches that are in no anchor lie elsewhere: no search ends among them.
            min(matches, pairs),
            schemes,
            tuple(_nodes(segment, below) for segment in segments),
            {scheme: tuple(_postings(each, below) for each in segments) for scheme in schemes},
            {
                scheme: tuple(_labels(each, below, scheme) for each in segments)
                for scheme in schemes
            },
        )


def _climbs(parts: list[Clusters]) -> Int64s | None:
    if all(each.climbs is None for each in parts):
        return None
    return np.concatenate(
        [np.zeros_like(each.cps) if each.climbs is None else each.climbs for each in parts]
    )


def _tag(tag: Tag | str) -> Tag:
    return Tag(0, tag) if isinstance(tag, str) else tag


# --- labels ---------------------------------------------------------------------------------


def _clusters(segment: Segment, above: Tag, below: Tag, axis: Axis, scheme: str) -> Clusters:
    held = segment.files.lists[above]
    rows = held.postings(scheme).labels
    if rows.rows <= MOST:
        ranks, lasts = rows.at(np.arange(rows.rows))
        cps = segment.counts(scheme, above, ranks, lasts, "self")
        # Trie nodes that no node of the tag ends at have no place here.
        used = np.flatnonzero(cps)
        if len(used) < len(ranks):
            ranks, lasts, cps = ranks[used], lasts[used], cps[used]
        weight = np.ones(len(ranks))
    else:
        ranks, lasts, hits = _sampled(segment, above, scheme)
        cps = segment.counts(scheme, above, ranks, lasts, "self")
        weight = hits / hits.sum() * segment.count(above) / cps
    candidates, climbs = segment.sizes(scheme, below, ranks, lasts, axis.side)
    mixed = _mixes(segment, below, scheme, candidates, weight)
    return Clusters(cps, candidates, weight, mixed, climbs if climbs.any() else None)


def _mixes(segment: Segment, below: Tag, scheme: str, candidates: Int64s, weight: Floats) -> bool:
    """Whether a scan gives the nodes of several labels, which are then to be put into order."""
    held = segment.files.lists.get(below)
    if held is None:
        return False
    given = float((weight * candidates).sum())
    # Of a label of matches, how many scans give its nodes.
    scans = given / max(segment.count(below), 1)
    return held.postings(scheme).labels.rows * scans > MIXED * float(weight.sum())


def _sampled(segment: Segment, tag: Tag, scheme: str) -> tuple[Int64s, Int64s, Int64s]:
    """The labels of nodes here and there, and how many of these had each."""
    nodes = segment.count(tag)
    each = min(MOST, nodes) // STRETCHES
    begins = np.linspace(0, nodes - each, STRETCHES).astype(np.int64)
    rows = np.unique(begins[:, None] + np.arange(each))
    ranks, lasts = segment.labels(tag, rows, scheme)
    unique, first, hits = np.unique(ranks, return_index=True, return_counts=True)
    return unique, lasts[first], hits


# --- pairs ----------------------------------------------------------------------------------


def _pairs(
    segments: Iterable[Segment], above: Tag, below: Tag, axis: Axis, schemes: dict[str, Clusters]
) -> float:
    """How many pairs there are, if every anchor comes once."""
    if axis is Axis.SELF:
        return float(sum(each.count(above) for each in segments) if above == below else 0)
    counted = [_counted(segment, above, below, axis) for segment in segments]
    known = [each for each in counted if each is not None]
    if len(known) == len(counted):
        return float(sum(known))
    # Nodes of a label rarely stand in each other, so a candidate has about one of them.
    return min(
        (float((each.weight * each.candidates).sum()) for each in schemes.values()), default=0.0
    )


def _counted(segment: Segment, above: Tag, below: Tag, axis: Axis) -> int | None:
    rows = segment.statistics["fanout"].get("pairs")
    if rows is None:
        return None
    upper, lower = (above, below) if axis.downwards else (below, above)
    try:
        key = [segment.tags.index(upper), segment.tags.index(lower)]
    except ValueError:
        return 0
    return next((row[2 + axis.one_level] for row in rows if row[:2] == key), 0)


# --- lists on disk --------------------------------------------------------------------------


def _nodes(segment: Segment, tag: Tag) -> Extent:
    wide = 14 + 4 * len(segment.schemes)
    return _extent(segment, tag, segment.count(tag), wide, form.AD_ROWS)


def _postings(segment: Segment, tag: Tag) -> Extent:
    return _extent(segment, tag, segment.count(tag), 14, form.SES_ROWS)


def _labels(segment: Segment, tag: Tag, scheme: str) -> Extent:
    held = segment.files.lists.get(tag)
    rows = 0 if held is None else held.postings(scheme).labels.rows
    return _extent(segment, tag, rows, 24, form.LABEL_ROWS)


def _extent(segment: Segment, tag: Tag, rows: int, wide: int, block: int) -> Extent:
    held = segment.files.lists.get(tag)
    if held is None:
        return Extent()
    file = segment.files.about.files[form.nodes_file(held.entry.file)]
    return Extent(rows, rows * wide, block, file.bytes)
