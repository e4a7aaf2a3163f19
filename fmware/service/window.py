"""What happened within the last minute: counts and times, second by second.

Times go into classes, four to an octave, so that a percentile is right to a fifth and a second of
any load takes a few hundred bytes.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Window"]

SPAN: Final = 60
CLASSES: Final = 4
"""Classes of times to an octave."""
LEAST: Final = 1e-6
PERCENTILES: Final = (50, 90, 99)


class Second:
    """The counts of one second, and its times by stage and class."""

    __slots__ = ("at", "counts", "times")

    def __init__(self, at: int) -> None:
        self.at = at
        self.counts: Counter[str] = Counter()
        self.times: defaultdict[str, Counter[int]] = defaultdict(Counter)


class Window:
    """Counts and times of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seconds: list[Second] = [Second(-1) for _ in range(SPAN + 1)]

    def _now(self) -> Second:
        at = int(self._clock())
        place = at % len(self._seconds)
        second = self._seconds[place]
        if second.at != at:
            second = self._seconds[place] = Second(at)
        return second

    def count(self, times: Mapping[str, int]) -> None:
        """Add to the counts of the current second."""
        counts = self._now().counts
        for what, more in times.items():
            counts[what] += more

    def took(self, stage: str, seconds: float) -> None:
        """A stage took so long, once."""
        each = math.floor(math.log2(max(seconds, LEAST) / LEAST) * CLASSES)
        self._now().times[stage][each] += 1

    def rates(self) -> dict[str, float]:
        """Counts a second, over the last minute or since the start."""
        total: Counter[str] = Counter()
        for second in self._recent():
            total += second.counts
        span = min(max(self._clock() - self._began, 1.0), SPAN)
        return {what: count / span for what, count in sorted(total.items())}

    def latency(self) -> dict[str, dict[str, Any]]:
        """Milliseconds of each stage, by percentile, and how often it was done."""
        total: dict[str, Counter[int]] = {}
        for second in self._recent():
            for stage, times in second.times.items():
                total.setdefault(stage, Counter()).update(times)
        return {stage: _percentiles(times) for stage, times in sorted(total.items())}

    def _recent(self) -> list[Second]:
        oldest = int(self._clock()) - SPAN
        return [second for second in self._seconds if second.at >= max(oldest, 0)]


def _percentiles(times: Counter[int]) -> dict[str, Any]:
    count = times.total()
    found: dict[str, Any] = {"count": count}
    classes = sorted(times)
    for percent in PERCENTILES:
        wanted, seen = count * percent / 100, 0
        for each in classes:
            seen += times[each]
            if seen >= wanted:
                # The middle of the class, on its own scale.
                found[f"p{percent}"] = 1e3 * LEAST * 2 ** ((each + 0.5) / CLASSES)
                break
    return found
