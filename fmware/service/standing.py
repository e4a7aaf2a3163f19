"""How a sink stands: since when it has taken nothing of what it was given.

A sink that fails is tried again, and one that hangs is waited for; both hold up whoever gives. What
is given over HTTP is given up in time, and where no more comes since others see that the service is
not ready, nobody would ever try again. So a sink that nobody is trying is not held to be stuck:
whoever comes next finds out, and if it still fails, it has done so since the first time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Standing"]

QUIET: Final = 15.0
"""Seconds after the last try in which nobody has to try again: more than a sink's longest pause."""


class Standing:
    """One sink's; `begin` and then `took` or `left` for each that gives, `failed` in between."""

    __slots__ = ("_clock", "_since", "_tried", "_trying", "failing", "failures")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._tried = 0.0
        self._trying = 0
        self.failures = 0
        self.failing = False

    def begin(self) -> None:
        """Somebody gives."""
        now = self._clock()
        if self._since is None or (self._quiet(now) and not self.failing):
            self._since = now
        self._trying += 1

    def failed(self) -> None:
        """It did not take it; the same is given again."""
        self.failures += 1
        self.failing = True

    def took(self) -> None:
        """It took something, so it does work."""
        self._trying -= 1
        self._since = self._clock() if self._trying else None
        self.failing = False

    def left(self) -> None:
        """Whoever gave has gone without having been rid of it."""
        self._trying -= 1
        self._tried = self._clock()

    def stuck(self) -> float:
        """Seconds for which it has taken nothing although somebody gives; 0 if that is not so."""
        now = self._clock()
        return 0.0 if self._since is None or self._quiet(now) else now - self._since

    def _quiet(self, now: float) -> bool:
        return not self._trying and now - self._tried > QUIET
