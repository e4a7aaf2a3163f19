"""Joins of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

__all__ = ["expand", "first_of_each"]


def expand(keys: Int64s, of: npt.NDArray[np.intp], count: int) -> tuple[Int64s, Int64s]:
    """All pairs of a left place and a right one with the same key, by left place.

    `of` are the keys on the left, `keys` those on the right, sorted; keys are below `count`.
    """
    have = np.bincount(keys, minlength=count)
    begin = np.cumsum(have) - have
    each = have[of]
    left = np.repeat(np.arange(len(of)), each)
    within = np.arange(len(left)) - np.repeat(np.cumsum(each) - each, each)
    return left, np.repeat(begin[of], each) + within


def first_of_each(major: Int64s, minor: Int64s) -> npt.NDArray[np.intp]:
    """The rows in the order of two columns, and of those that are alike, one."""
    order = np.lexsort((minor, major))
    first, second = major[order], minor[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    kept: npt.NDArray[np.intp] = order[new]
    return kept
