"""What came last, by key: a queue that can be asked.

A dict from whose beginning entries go while others come at its end grows to three times what is in
it, and moves to another place in memory again and again, as a whole: megabytes at a time. So
entries are in slices: dicts that only fill, and then only empty.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

__all__ = ["Recent"]

SLICE: Final = 20_000
"""Entries of a slice: just less than what makes a dict grow once more."""

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, in the order in which they came.

    One thread changes it; others may ask it meanwhile.
    """

    def __init__(self) -> None:
        self._order: deque[K] = deque()
        # Never changed, but replaced: whoever looks through it need not lock.
        self._slices: list[dict[K, V]] = [{}]

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: K) -> bool:
        for each in self._slices:  # noqa: SIM110 - without a generator, for every message
            if key in each:
                return True
        return False

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Add some of which none is there, at the end, in their order."""
        left = iter(entries.items())
        while lot := dict(islice(left, max(SLICE - len(self._slices[-1]), 0))):
            self._slices[-1].update(lot)
            if len(self._slices[-1]) >= SLICE:
                self._slices = [*self._slices, {}]
        self._order.extend(entries)

    def among(self, keys: Mapping[K, object]) -> set[K]:
        """Those of some keys that are there."""
        found: set[K] = set()
        for each in self._slices:
            if not each.keys().isdisjoint(keys):
                found |= keys.keys() & each.keys()
        return found

    def first(self) -> V:
        """The value of the oldest."""
        return self._slices[0][self._order[0]]

    def drop(self, count: int = 1) -> None:
        """Let go of the oldest."""
        for _ in range(count):
            del self._slices[0][self._order.popleft()]
            if not self._slices[0]:
                self._slices = self._slices[1:] or [{}]
