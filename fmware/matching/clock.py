"""The clock of a batch."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """Seconds of stages that follow each other."""

    __slots__ = ("_last", "seconds")

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """A stage has ended."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now
