"""What the engine has done so far, and what its workers say of themselves, added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fmware.service.envelope import Outcome

__all__ = ["Counts", "added"]


@dataclass(slots=True)
class Counts:
    """What the engine has done so far."""

    messages: int = 0
    matched: int = 0
    hits: int = 0
    poison: int = 0
    faults: int = 0
    duplicates: int = 0
    errors: int = 0
    unmatched: int = 0
    restarts: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        self.messages += 1
        self.matched += bool(outcome.hits)
        self.hits += len(outcome.hits)
        self.poison += outcome.poison is not None
        self.faults += outcome.fault
        self.errors += len(outcome.errors)
        self.unmatched += outcome.unmatched

    def lap(self, seconds: Mapping[str, float]) -> None:
        for stage, taken in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + taken

    def snapshot(self) -> dict[str, Any]:
        """The counts, and the seconds by stage."""
        return {
            "counts": {
                "messages": self.messages,
                "matched": self.matched,
                "hits": self.hits,
                "poison": self.poison,
                "faults": self.faults,
                "duplicates": self.duplicates,
                "errors": self.errors,
                "unmatched": self.unmatched,
                "restarts": self.restarts,
            },
            "seconds": dict(self.seconds),
        }


def added(stats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What workers say of themselves, as one; `generation` is the oldest that is in use.

    `apart`: tenants that are set apart, in the worker where they are most.
    """
    return {
        "apart": max((each["apart"] for each in stats), default=0),
        "generation": min((each["generation"] for each in stats), default=None),
        "memory": sum(each["memory"] for each in stats),
        "filter": _sum(each["filter"] for each in stats),
        "operators": _operators(stats),
        "trouble": sorted({each["trouble"] for each in stats} - {""}),
    }


def _sum(tables: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for table in tables:
        for key, value in table.items():
            total[key] = total.get(key, 0) + value
    return total


def _operators(stats: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    names = sorted({name for each in stats for name in each["operators"]})
    return {
        name: _sum(each["operators"][name] for each in stats if name in each["operators"])
        for name in names
    }
