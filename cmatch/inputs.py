"""What operators take and give: labelled anchors, and the pairs that hold, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy.typing as npt

    from fmware.index import Index, Labels
    from fmware.labeling.runs import Tag

    Int16s = npt.NDArray[np.int16]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

__all__ = ["Inputs", "Matches"]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Anchors of one tag with the labels of their local nodes: one batch.

    `id` is the caller's own and comes back with every pair; it may come as often as it likes.
    `segment` is a place in `Index.segments` of the generation the operator stands on; (start, end,
    level) is the AD label; (rank, last) the SES label, of the scheme the operator clusters by.
    `scheme` names that one, where whoever made the labels says so.
    """

    id: Int64s
    segment: Int32s
    start: Int64s
    end: Int64s
    level: Int16s
    rank: Int64s | None = None
    last: Int64s | None = None
    scheme: str | None = None

    def __len__(self) -> int:
        return len(self.id)

    def take(self, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Inputs:
        """Some of the anchors."""
        return Inputs(
            self.id[rows],
            self.segment[rows],
            self.start[rows],
            self.end[rows],
            self.level[rows],
            None if self.rank is None else self.rank[rows],
            None if self.last is None else self.last[rows],
            self.scheme,
        )

    @classmethod
    def empty(cls, *, labelled: bool = True) -> Self:
        none = np.empty(0, np.int64)
        label = none if labelled else None
        return cls(none, np.empty(0, np.int32), none, none, np.empty(0, np.int16), label, label)

    @classmethod
    def joined(cls, parts: Sequence[Inputs]) -> Inputs:
        """Several batches as one; SES labels stay if all of them have some."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        ranks = [part.rank for part in parts if part.rank is not None]
        lasts = [part.last for part in parts if part.last is not None]
        labelled = len(ranks) == len(lasts) == len(parts)
        schemes = {part.scheme for part in parts}
        return cls(
            np.concatenate([part.id for part in parts]),
            np.concatenate([part.segment for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
            np.concatenate([part.level for part in parts]),
            np.concatenate(ranks) if labelled else None,
            np.concatenate(lasts) if labelled else None,
            schemes.pop() if labelled and len(schemes) == 1 else None,
        )

    @classmethod
    def of(
        cls,
        index: Index,
        tag: Tag | str,
        scheme: str | None,
        ids: npt.ArrayLike,
        starts: npt.ArrayLike,
    ) -> Inputs:
        """The anchors whose local nodes are those of `tag` that begin at `starts`.

        A start at which no such node begins (any more) is left out: the length tells.
        """
        ids = np.ascontiguousarray(ids, np.int64)
        starts = np.ascontiguousarray(starts, np.int64)
        if len(index.segments) == 1:
            return _found(index, tag, scheme, 0, ids, index.segments[0].locate(tag, starts))
        located = index.locate(tag, starts)
        parts = []
        for place in np.unique(located.segment).tolist():
            if place >= 0:
                own = located.segment == place
                parts.append(_found(index, tag, scheme, place, ids[own], located.row[own]))
        return cls.joined(parts) if parts else cls.empty(labelled=scheme is not None)

    @classmethod
    def at(
        cls,
        index: Index,
        tag: Tag | str,
        scheme: str | None,
        place: int,
        ids: npt.ArrayLike,
        rows: npt.ArrayLike,
        labels: Labels | None = None,
    ) -> Inputs:
        """The anchors whose rows in one segment are known, as `Segment.identify` tells them.

        Their AD `labels`, where they are known too, are not looked up again.
        """
        segment = index.segments[place]
        ids = np.ascontiguousarray(ids, np.int64)
        rows = np.ascontiguousarray(rows, np.int64)
        if not len(rows):
            return cls.empty(labelled=scheme is not None)
        if labels is None:
            labels = segment.at(tag, rows)
        places = np.zeros(len(rows), np.int32)
        if place:
            places.fill(place)
        if scheme is None:
            return cls(ids, places, labels.start, labels.end, labels.level)
        rank, last = segment.labels(tag, rows, scheme)
        return cls(ids, places, labels.start, labels.end, labels.level, rank, last, scheme)


def _found(
    index: Index, tag: Tag | str, scheme: str | None, place: int, ids: Int64s, rows: Int64s
) -> Inputs:
    there = rows >= 0
    if not there.all():
        ids, rows = ids[there], rows[there]
    return Inputs.at(index, tag, scheme, place, ids, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs that hold: the anchor by its `id`, the local node by its segment and AD label."""

    id: Int64s
    segment: Int32s
    start: Int64s
    end: Int64s
    level: Int16s

    def __len__(self) -> int:
        return len(self.id)

    def take(self, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Matches:
        """Some of the pairs."""
        return Matches(
            self.id[rows], self.segment[rows], self.start[rows], self.end[rows], self.level[rows]
        )

    @classmethod
    def empty(cls) -> Self:
        none = np.empty(0, np.int64)
        return cls(none, np.empty(0, np.int32), none, none, np.empty(0, np.int16))

    @classmethod
    def joined(cls, parts: Sequence[Matches]) -> Matches:
        """The pairs of several answers as one."""
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        return cls(
            np.concatenate([part.id for part in parts]),
            np.concatenate([part.segment for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
            np.concatenate([part.level for part in parts]),
        )
