"""Draws with a skew, cheap enough for inner loops.

Zipf's law by the inverse of its continuous distribution: rank k of n with weight near 1/(k+1)^s.
It needs no table, so that ten million records cost no more than ten; skew 0 is uniform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from fmware.datasets.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

T = TypeVar("T")


def ranks(rng: Random, count: int, skew: float) -> Callable[[], int]:
    """A function that draws a rank in 0..count-1, low ranks more often as skew grows."""
    random = rng.random
    last, far = count - 1, float(count + 1)
    if skew == 0:
        return lambda: int(random() * count)
    if skew == 1:
        return lambda: min(int(far ** random()) - 1, last)
    power = 1 - skew
    width, root = far**power - 1, 1 / power
    return lambda: min(int((width * random() + 1) ** root) - 1, last)


def slots(items: Sequence[T], skew: float) -> tuple[T, ...]:
    """The items repeated by Zipf weights, so that a uniform draw is a skewed one."""
    if skew == 0:
        return tuple(items)
    return weighted(items, [1 / (rank + 1) ** skew for rank in range(len(items))])


def weighted(items: Sequence[T], weights: Sequence[float], size: int = 256) -> tuple[T, ...]:
    """The items repeated in proportion to their weights: a table for uniform draws.

    For few items only. Each has a slot at least, so none becomes impossible.
    """
    total = sum(weights)
    return tuple(
        item
        for item, weight in zip(items, weights, strict=True)
        for _ in range(max(1, round(size * weight / total)))
    )


def check(name: str, value: float, low: float, high: float) -> None:
    """Refuse a parameter outside low..high, saying what it may be."""
    if not low <= value <= high:
        top = "" if high == float("inf") else f" and at most {high:g}"
        raise ParameterError(f"{name} is {value:g}; it must be at least {low:g}{top}")
