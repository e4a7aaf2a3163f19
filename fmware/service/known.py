"""The ids of the last hits, by message: what the match log tells repeats by.

A message is looked up once for all its hits, and nearly always it is new. Only if it is not are its
ids cut apart. Entries go by slices, because a dict from whose beginning they go one by one grows to
three times what is in it.
"""

from __future__ import annotations

from typing import Final

from fmware.service.hits import END

__all__ = ["Known"]

SLICES: Final = 5
"""Parts in which entries go: so much more than the bound may be known, and no less than it."""


class Known:
    """Ids of at least the last `most` hits with their positions, and of a fifth more than that."""

    def __init__(self, most: int) -> None:
        self._each = max(most // SLICES, 1)
        self._most = most
        self._slices: list[dict[str, list[tuple[int, bytes]]]] = [{}]
        self._sizes = [0]

    def __contains__(self, message: str) -> bool:
        """Whether any hit of a message is known."""
        for each in self._slices:  # noqa: SIM110 - without a generator, for every message
            if message in each:
                return True
        return False

    def positions(self, message: str) -> dict[bytes, int]:
        """The hits of a message that are known, by id."""
        runs = [run for each in self._slices for run in each.get(message, ())]
        return {
            name: position
            for first, ids in runs
            for position, name in enumerate(ids.split(END), first)
        }

    def add(self, message: str, position: int, ids: bytes, count: int) -> None:
        """Know the ids of hits of a message, of which the first has a position."""
        self._slices[-1].setdefault(message, []).append((position, ids))
        self._sizes[-1] += count
        if self._sizes[-1] >= self._each:
            self._slices.append({})
            self._sizes.append(0)
            while sum(self._sizes) - self._sizes[0] >= self._most:
                del self._slices[0], self._sizes[0]
