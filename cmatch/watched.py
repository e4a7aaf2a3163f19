"""Operators that somebody watches, at no cost to the batches that are not looked at.

They count what they take anyway; when it is time to look at a batch, they hand it over instead of
taking it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from cmatch.admatch import FOREVER, ADMatch
from cmatch.cmatch import CMatch
from cmatch.errors import OperatorClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from cmatch._kernel import Group, Tallies
    from cmatch.counters import Counters
    from cmatch.inputs import Inputs, Matches

    Int64s = npt.NDArray[np.int64]

__all__ = ["News", "WatchedADMatch", "WatchedCMatch"]


class News(NamedTuple):
    """What CMatch has counted, as far as it says whether it pays: see `Counters`."""

    inputs: int = 0
    aside: int = 0
    labels: int = 0
    candidates: int = 0
    pairs: int = 0
    overflow_reads: int = 0
    held: int = 0


class WatchedADMatch(ADMatch):
    """ADMatch whose batches `look` takes, once, after as many inputs as `watch` says."""

    look: Callable[[Inputs], Matches]

    @property
    def watched(self) -> bool:
        """Whether anybody is to look."""
        return 0 <= self._left < FOREVER >> 1

    @property
    def taken(self) -> int:
        """The inputs that it was fed."""
        return self._counters.inputs

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
    """CMatch that hands a batch over when it is time to look, or if labels stay new.

    CClean counts for it. While it rests, ADMatch takes all inputs, and labels are not asked for.

    - `look(inputs)`: takes a batch, once, after as many as `watch` says, or as many with new labels
      as `trust` does.
    - `labelled(inputs)`: the same with the labels that are needed, of a batch that has others.
    """

    look: Callable[[Inputs], Matches]
    labelled: Callable[[Inputs], Inputs]

    @property
    def watched(self) -> bool:
        """Whether anybody is to look."""
        return self._clean.watched

    def watch(self, batches: int, least: int = 0, most: int = FOREVER) -> None:
        """Look once: at the batch after so many, or at the next, if it is of another size."""
        self._clean.watch(batches, least, most)

    def trust(self, batches: int, more: int = 0) -> None:
        """Look once so many batches have brought new labels, and then so many more."""
        self._clean.trust(batches, more)

    @property
    def noted(self) -> News | None:
        """What was counted when the first of these had come."""
        found = self._clean.noted
        return None if found is None else _news(found)

    def rest(self, inputs: int, woken: Callable[[Inputs], Matches]) -> WatchedADMatch:
        """Who is to be fed instead, until so many inputs have come: the next batch is `woken`'s."""
        assert isinstance(self._rival, WatchedADMatch)
        self._rival.look = woken
        self._rival.watch(inputs)
        return self._rival

    def leave(self) -> None:
        """Close, and hold nobody."""
        self.close()
        self._policy = None
        self.look = self.labelled = partial(_gone, repr(self))
        if isinstance(self._rival, WatchedADMatch):
            self._rival.leave()

    def _by_ad(self) -> ADMatch:
        return WatchedADMatch(self.index, self.tag, self.axis)

    def _learn(self, inputs: Inputs, fresh: list[Group]) -> tuple[Matches, Int64s | None]:
        if not fresh:
            return self.look(inputs), None
        return super()._learn(inputs, fresh)

    def _unlabelled(self, inputs: Inputs) -> Matches:
        return self.feed(self.labelled(inputs))

    @property
    def taken(self) -> int:
        """The inputs of which the labels were asked for."""
        return self._clean.tallies()[0]

    @property
    def counters(self) -> Counters:
        """What was done so far; what came while it rested went aside."""
        counters = super().counters
        counters.inputs += counters.ad_probes - counters.aside
        counters.aside = counters.ad_probes
        return counters

    def news(self) -> News:
        """What was counted so far, in a fraction of the time that `counters` takes."""
        found = _news(self._clean.tallies())
        if self._rival is None:
            return found
        by_ad = self._rival.counters
        return found._replace(
            inputs=found.inputs + by_ad.ad_probes - found.aside,
            aside=by_ad.ad_probes,
            pairs=found.pairs + by_ad.pairs,
        )


def _news(found: Tallies) -> News:
    return News(found[0], found[1], found[2], found[3], found[5], found[8], found[9])


def _gone(name: str, inputs: Inputs) -> NoReturn:  # noqa: ARG001
    raise OperatorClosed(name)
