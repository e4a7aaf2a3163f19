"""Operators that somebody watches, at no cost to the batches that are not looked at.

They count what they take anyway; when it is time to look at a batch, they hand it over instead of
taking it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

from cmatch.admatch import FOREVER, ADMatch
from cmatch.cmatch import CMatch
from cmatch.errors import OperatorClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from cmatch._kernel import Group
    from cmatch.inputs import Inputs, Matches

    Int64s = npt.NDArray[np.int64]

__all__ = ["WatchedADMatch", "WatchedCMatch"]


class WatchedADMatch(ADMatch):
    """ADMatch whose batches `look` takes, once, after as many inputs as `watch` says."""

    look: Callable[[Inputs], Matches]

    @property
    def watched(self) -> bool:
        """Whether anybody is to look."""
        return 0 <= self._left < FOREVER >> 1

    def watch(self, inputs: int) -> None:
        """Look once, at the batch that brings more than so many."""
        self._left = inputs

    def leave(self) -> None:
        """Close, and hold nobody."""
        self.close()
        self.look = partial(_gone, repr(self))

    def _over(self, inputs: Inputs) -> Matches:
        if self._closed:
            return super()._over(inputs)
        self._left = FOREVER
        return self.look(inputs)


class WatchedCMatch(CMatch):
    """CMatch that hands a batch over when it is time to look, and tells if labels stay new.

    CClean counts for it.

    - `look(inputs)`: takes a batch, once, after as many as `watch` says.
    - `told()`: as many batches had new labels as `trust` says.
    - `labelled(inputs)`: the same with the labels that are needed, of a batch that has others.
    """

    look: Callable[[Inputs], Matches]
    told: Callable[[], None]
    labelled: Callable[[Inputs], Inputs]

    @property
    def watched(self) -> bool:
        """Whether anybody is to look."""
        return self._clean.watched

    def watch(self, batches: int, least: int = 0, most: int = FOREVER) -> None:
        """Look once: at the batch after so many, or at the next, if it is of another size."""
        self._clean.watch(batches, least, most)

    def trust(self, batches: int) -> None:
        """Tell when so many batches have brought new labels."""
        self._clean.patience = batches

    def leave(self) -> None:
        """Close, and hold nobody."""
        self.close()
        self._policy = None
        self.look = self.labelled = partial(_gone, repr(self))
        self.told = _nobody

    def _learn(self, inputs: Inputs, fresh: list[Group]) -> tuple[Matches, Int64s | None]:
        if not fresh:
            return self.look(inputs), None
        self._clean.patience -= 1
        if self._clean.patience < 0:
            self._clean.patience = FOREVER
            self.told()
        return super()._learn(inputs, fresh)

    def _unlabelled(self, inputs: Inputs) -> Matches:
        return self.feed(self.labelled(inputs))

    def news(self) -> tuple[int, int, int, int]:
        """Inputs, those that went aside, labels, and reads of what was spilled."""
        found = self._clean.tallies()
        return found[0], found[1], found[2], found[8]


def _gone(name: str, inputs: Inputs) -> NoReturn:  # noqa: ARG001
    raise OperatorClosed(name)


def _nobody() -> None:
    """Nobody is told."""
