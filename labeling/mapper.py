"""How independent pieces of work are spread: in this process, or by whatever a caller has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["Mapper", "local"]


class Mapper(Protocol):
    """Calls a function with each item, in any order and place; the answers are in item order.

    Functions and items must be picklable, and calls may be repeated: they leave the same behind.
    """

    def __call__(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]: ...


def local(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """One after the other, here."""
    return [function(item) for item in items]
