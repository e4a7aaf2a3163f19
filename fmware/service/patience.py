"""The time that an end may take: it runs from when the end begins, for all its parts together."""

from __future__ import annotations

import time

__all__ = ["Patience"]


class Patience:
    """So many seconds, once it has begun; before that, all of them are left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: float | None = None

    def begin(self) -> None:
        """The end begins; the second time nothing is done."""
        if self._until is None:
            self._until = time.monotonic() + self.seconds

    def lose(self) -> None:
        """Nothing is left of it."""
        self._until = time.monotonic()

    @property
    def left(self) -> float:
        """Seconds that are left, and never less than none."""
        if self._until is None:
            return self.seconds
        return max(self._until - time.monotonic(), 0.0)
