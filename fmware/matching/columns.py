"""Columns: how they are joined, and texts as Arrow has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

__all__ = ["expand", "first_of_each", "texts"]


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


def texts(values: Sequence[str | None]) -> pa.StringArray:
    """Texts of any kind, such as names of files, which need not be UTF-8.

    A character that UTF-8 does not have is written as its escape, as in JSON.
    """
    try:
        return pa.array(values, pa.utf8())
    except UnicodeEncodeError:
        return pa.array([each and _escaped(each) for each in values], pa.utf8())


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
