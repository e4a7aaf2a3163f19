"""What the filter says of one document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fmware.labeling.html import html_table

if TYPE_CHECKING:
    import numpy.typing as npt

    from fmware.filtering.engine import FilterEngine
    from fmware.labeling import NodeTable

__all__ = ["FilterResult"]


@dataclass(slots=True)
class FilterResult:
    """The statements that match, and for those that asked, the nodes.

    - `ids`: statements that match, each once, in no order; `names` has them in order.
    - `tuples`: by statement, one line a path tuple: the row of the NodeTable of each step.
    - `undecided`: statements that were not decided when the work was used up.
    - `truncated`: statements with more tuples than the limit, or than the work allowed to find.
    - `work`: the units of work that the document was charged, see `FilterLimits`.
    """

    ids: npt.NDArray[np.int32]
    table: NodeTable
    engine: FilterEngine = field(repr=False)
    tuples: dict[int, npt.NDArray[np.int32]] = field(default_factory=dict)
    undecided: list[int] = field(default_factory=list)
    truncated: list[int] = field(default_factory=list)
    work: int = 0

    @property
    def names(self) -> list[str]:
        """The names of the statements that match, in the order of their ids."""
        name = self.engine.name
        return [name(number) for number in np.sort(self.ids).tolist()]

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return len(self.ids) > 0

    def __contains__(self, number: int) -> bool:
        return bool((self.ids == number).any())

    def _repr_html_(self) -> str:
        """The first statements that match, as a notebook shows them."""
        engine, numbers = self.engine, np.sort(self.ids).tolist()
        rows = (
            (engine.name(number), len(self.tuples.get(number, ())) or None) for number in numbers
        )
        caption = f"FilterResult of {len(self)} statements, {len(self.undecided)} undecided"
        return html_table(caption, ("statement", "tuples"), rows, len(self))


@dataclass(frozen=True, slots=True)
class Tried:
    """A condition of a statement, as `FilterEngine.order` lists them."""

    condition: str
    share: float
    """At what part of the nodes it is expected to hold, from counts of what documents contained and
    of the keys that statements ask for. Over 1 if it cannot be looked up."""
    looked_up: bool
    """Whether the statement is found by it. The others are evaluated only then."""
