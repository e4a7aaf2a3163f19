"""What a way to match costs, in parts that can be told apart.

The parts follow the paper's sections 3.4 to 3.6. Index access is one scan a unique label for CMatch
(`SES_index_access_cost`), one probe an input for ADMatch (`AD_index_access_cost`). Cleaning is what
inputs and candidates of a label cost each other, the sum over labels of (I(s) + C(s)) log; ADMatch
has none. Spills and cold pages are what the paper leaves to its measurements: candidates that
memory has no room for, and pages that the disk has to give first.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cost"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, by what they are spent on. Costs are compared by their total."""

    index_access: float = 0.0
    cleaning: float = 0.0
    spills: float = 0.0
    cold_pages: float = 0.0

    @property
    def total(self) -> float:
        return self.index_access + self.cleaning + self.spills + self.cold_pages

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.index_access + other.index_access,
            self.cleaning + other.cleaning,
            self.spills + other.spills,
            self.cold_pages + other.cold_pages,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(
            self.index_access * times,
            self.cleaning * times,
            self.spills * times,
            self.cold_pages * times,
        )

    __rmul__ = __mul__

    def __lt__(self, other: Cost) -> bool:
        return self.total < other.total

    def __le__(self, other: Cost) -> bool:
        return self.total <= other.total

    def __gt__(self, other: Cost) -> bool:
        return self.total > other.total

    def __ge__(self, other: Cost) -> bool:
        return self.total >= other.total

    def to_json(self) -> dict[str, float]:
        """The parts and their total."""
        return {
            "index_access": self.index_access,
            "cleaning": self.cleaning,
            "spills": self.spills,
            "cold_pages": self.cold_pages,
            "total": self.total,
        }
