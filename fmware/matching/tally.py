"""What statements have done so far, kept while messages are matched, for reports.

Counting must cost next to nothing: of statements that messages alone decide, thousands may match
every message, so they are counted as a column; the others by statement and join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fmware.matching._kernel import Share, Tally

if TYPE_CHECKING:
    from fmware.matching.registry import Registry
    from fmware.matching.results import Results

__all__ = ["Share", "Tally", "Totals"]


class Totals:
    """What a middleware has done, over all statements; `seconds` by stage, by the clock.

    Callers see to it that one thread at a time counts.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.batches = 0
        self.matches = 0
        self.matched = 0
        self.failed = 0
        self.unmatched = 0
        self.seconds: dict[str, float] = {}
        self._passed = np.zeros(1024, np.int64)
        self._told = np.zeros(1024, np.int64)

    def passed(self, number: int) -> int:
        """How many messages the filter part of a statement let pass."""
        return int(self._passed[number]) if number < len(self._passed) else 0

    def told(self, number: int) -> int:
        """How many matches a statement had that messages alone decide."""
        return int(self._told[number]) if number < len(self._told) else 0

    def forget(self, number: int) -> None:
        """The number is another statement's from now on."""
        self._room(number)
        self._passed[number] = 0
        self._told[number] = 0

    def _room(self, number: int) -> None:
        if number >= len(self._passed):
            for name in ("_passed", "_told"):
                counts = getattr(self, name)
                setattr(self, name, np.pad(counts, (0, 2 * number - len(counts))))

    def batch(self, results: Results, registry: Registry) -> None:
        """Count a batch that is done; `registry` are the statements that there are by now."""
        found, troubles = results.found, results.troubles
        matches, matched = found.totals(results.local.hits.ends)
        self.batches += 1
        self.messages += len(found)
        self.matches += matches
        self.matched += matched
        if troubles.errors or troubles.unmatched:
            self.failed += len(troubles.errors)
            self.unmatched += sum(troubles.unmatched.values())
        for stage, spent in results.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
        self._count(results, registry)

    def _count(self, results: Results, registry: Registry) -> None:
        # `forget` has made room for every statement when it was subscribed.
        if results.registry is registry:
            results.found.count(self._passed, self._told)
            return
        # Numbers may have become those of other statements while the batch was under way.
        passed, told = np.zeros_like(self._passed), np.zeros_like(self._told)
        results.found.count(passed, told)
        numbers = np.flatnonzero(passed).tolist()
        then, now = results.registry.plans(numbers), registry.plans(numbers)
        same = [n for n, old, new in zip(numbers, then, now, strict=True) if old is new]
        self._passed[same] += passed[same]
        self._told[same] += told[same]
