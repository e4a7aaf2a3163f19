"""The statements of an engine that no other one covers: all that decides whether any matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.routing import Pattern, SubscriptionTree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fmware.routing import Change
    from fmware.xpath import Path

__all__ = ["MaximalSet"]


class MaximalSet:
    """Places in the automaton, by `place` and `remove`, what is maximal, under a statement's id.

    REQUIRES: the engine's lock is held.
    """

    def __init__(
        self,
        place: Callable[[int, Path, Mapping[str, str]], None],
        remove: Callable[[int], None],
    ) -> None:
        self._place = place
        self._take = remove
        self._tree = SubscriptionTree()
        self._patterns: dict[int, Pattern] = {}
        self._equal: dict[str, dict[int, None]] = {}
        self._placed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._placed)

    def add(self, number: int, path: Path, namespaces: Mapping[str, str] | None) -> None:
        """Add a statement under its id."""
        pattern = self._patterns[number] = Pattern(path, namespaces)
        self._equal.setdefault(pattern.key, {})[number] = None
        self._apply(self._tree.insert(pattern))

    def remove(self, number: int) -> None:
        """Take a statement away; one that was equal, or that it covered, may take its place."""
        pattern = self._patterns.pop(number)
        equal = self._equal[pattern.key]
        del equal[number]
        change = self._tree.remove(pattern)
        if equal and self._placed.get(pattern.key) == number:
            other = self._placed[pattern.key] = next(iter(equal))
            self._place(other, pattern.path, pattern.namespaces)
            self._take(number)
        self._apply(change)
        if not equal:
            del self._equal[pattern.key]

    def _apply(self, change: Change) -> None:
        # New ones first: a document sees what covers a statement, or the statement, or both.
        for pattern in change.added:
            number = self._placed[pattern.key] = next(iter(self._equal[pattern.key]))
            self._place(number, pattern.path, pattern.namespaces)
        for pattern in change.removed:
            self._take(self._placed.pop(pattern.key))
