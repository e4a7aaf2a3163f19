"""A filter engine as a broker's matcher of publications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.filtering.engine import FilterEngine

if TYPE_CHECKING:
    from fmware.routing import Pattern

__all__ = ["EngineMatcher"]


class EngineMatcher:
    """Matches the statements of a broker's table with whole documents."""

    def __init__(self) -> None:
        self._engine = FilterEngine()
        self._numbers: dict[str, int] = {}
        self._keys: dict[int, str] = {}

    def add(self, pattern: Pattern) -> None:
        """Take a statement that is not there yet."""
        number = self._engine.subscribe(pattern.path, namespaces=pattern.namespaces)
        self._numbers[pattern.key] = number
        self._keys[number] = pattern.key

    def remove(self, pattern: Pattern) -> None:
        """Take a statement away."""
        number = self._numbers.pop(pattern.key)
        del self._keys[number]
        self._engine.unsubscribe(number)

    def match(self, document: bytes) -> list[str]:
        """The keys of the statements that a document matches; raises `ReadError`."""
        return [self._keys[number] for number in self._engine.filter(document).ids]
