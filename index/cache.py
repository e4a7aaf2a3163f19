"""A cache of what was used last, bounded by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Cache"]

T = TypeVar("T")


class Cache:
    """Values of any kind by key; beyond `room`, those that were not used for longest are let go.

    One value is always kept, whatever its size. Safe to share between threads: two that miss the
    same key both make its value, and one of the two is kept.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self._used = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    @property
    def used(self) -> int:
        """The bytes of all values that are held."""
        return self._used

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The value of a key; `make` gives it, and its size, if it is not here.

        A key must say what kind of value it is for.
        """
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                kept: T = found[0]
                return kept
        value, size = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = value, size
                self._used += size
            while self._used > self.room and len(self._values) > 1:
                _, (_, gone) = self._values.popitem(last=False)
                self._used -= gone
        return value
