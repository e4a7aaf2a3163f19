"""Values of nodes, as columns: what an index keeps of them so that no record need be read.

An attribute has a value, and so has an element that holds no other element: all its text. Elements
that hold elements have none here, and neither has a node whose value is long: the record has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from fmware.labeling._values import Sorter, taken, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    import numpy.typing as npt

    from fmware.labeling.table import NodeTable

__all__ = ["ELSEWHERE", "INNER", "LONGEST", "SPLIT", "Values"]

ELSEWHERE: Final = 1
"""Mark of a node whose value is not here, but in its record."""
INNER: Final = 2
"""Mark of an element that holds elements; it is also `ELSEWHERE`."""
SPLIT: Final = 4
"""Mark of an element whose text is not one text node, or none if there is no text: a comment
stands in it, or an empty CDATA section."""

LONGEST: Final = 4096
"""Bytes of a value that is kept here. A longer one is text to be read, not to be compared, and
would only push others out of memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of some nodes: the i-th is `data[offsets[i]:offsets[i + 1]]`, in UTF-8.

    `mark` has bits: `ELSEWHERE`, `INNER`, `SPLIT`. A value that is elsewhere is empty here.
    """

    mark: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.mark)

    @classmethod
    def of(cls, table: NodeTable) -> Self:
        """The values of the elements and attributes of a table that was read with values."""
        columns = table.kind, table.parent, table.start, table.end
        return cls(*values_of(*columns, table.value_offsets, table.value_bytes, LONGEST))

    @classmethod
    def none(cls, count: int) -> Self:
        """The values of `count` nodes of which none is known: their records have them."""
        mark = np.full(count, ELSEWHERE, np.uint8)
        return cls(mark, np.zeros(count + 1, np.int64), np.empty(0, np.uint8))

    @classmethod
    def taken(cls, parts: Sequence[Values], order: npt.NDArray[np.intp]) -> Self:
        """Some of those of several parts, counted through all of them, in any order."""
        columns = [(part.mark, part.offsets, part.data) for part in parts]
        return cls(*taken(columns, np.ascontiguousarray(order, np.intp)))

    @classmethod
    def sorted(cls, parts: Sequence[Values], by: Sorter) -> Self:
        """All those of several parts, sorted by a number of each."""
        return cls(*by.values([(part.mark, part.offsets, part.data) for part in parts]))

    def take(self, order: npt.NDArray[np.intp]) -> Values:
        """Some of them, in another order."""
        return Values.taken([self], order)

    def slice(self, begin: int, end: int) -> Values:
        """Those from one place to before another, not copied."""
        return Values(self.mark[begin:end], self.offsets[begin : end + 1], self.data)

    def text(self, place: int) -> str | None:
        """One value; None if it is elsewhere."""
        if self.mark[place] & ELSEWHERE:
            return None
        return self.data[self.offsets[place] : self.offsets[place + 1]].tobytes().decode()
