"""The time that an end may take: it runs from when the end begins, for all its parts together.

A part of it is kept for what the end does in any case: it ends processes and closes files.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["Patience"]


KEPT: Final = 1.0
"""Seconds that are kept for the end itself, or a quarter of all if that is less."""


class Patience:
    """So many seconds, once it has begun; before that, all of them are left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds - min(KEPT, seconds / 4)
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
