"""What probes answer with: AD labels as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy.typing as npt

    from fmware.labeling.runs import Tag

__all__ = ["Labels", "Located", "Node", "Pairs"]


@dataclass(slots=True, eq=False)
class Labels:
    """AD labels. The columns may look into the index itself; they are not to be written to."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    level: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Labels:
        """Some of the rows."""
        return Labels(self.start[rows], self.end[rows], self.level[rows])

    @classmethod
    def empty(cls) -> Self:
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int16))


@dataclass(slots=True, eq=False)
class Pairs:
    """Pairs of an input, by its place in the batch, and a label; by `left`, then as found.

    `rows`, where a probe gives them, are the rows of the labels in their tag's list of a segment.
    """

    left: npt.NDArray[np.int64]
    right: Labels
    rows: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.left)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Pairs:
        """Some of the pairs."""
        kept = None if self.rows is None else self.rows[rows]
        return Pairs(self.left[rows], self.right.take(rows), kept)

    @classmethod
    def empty(cls) -> Self:
        return cls(np.empty(0, np.int64), Labels.empty())

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """The pairs of several batches of the same inputs as one, by `left`."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        left = np.concatenate([part.left for part in parts])
        right = Labels(
            np.concatenate([part.right.start for part in parts]),
            np.concatenate([part.right.end for part in parts]),
            np.concatenate([part.right.level for part in parts]),
        )
        pairs = cls(left, right)
        if (left[:-1] <= left[1:]).all():
            return pairs
        return pairs.take(np.argsort(left, kind="stable"))


class Located(NamedTuple):
    """Where nodes lie: the place of the segment in `Index.segments` and the row there, or -1."""

    segment: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]


class Node(NamedTuple):
    """One node."""

    tag: Tag
    start: int
    end: int
    level: int
