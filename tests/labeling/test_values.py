"""Columns sorted natively, and values of several parts: as numpy sorts and fetches them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from fmware.labeling._values import Sorter, taken
from fmware.labeling.values import Values

ROWS = 500


def _made(rng: Random, rows: int) -> Values:
    texts = [bytes(rng.choices(b"abc", k=rng.choice((0, 0, 1, 7, 40)))) for _ in range(rows)]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    mark = np.array([rng.randrange(4) for _ in range(rows)], np.uint8)
    return Values(mark, offsets, np.frombuffer(b"".join(texts), np.uint8))


def _listed(values: Values) -> list[tuple[int, bytes]]:
    texts = [values.data[a:b].tobytes() for a, b in pairwise(values.offsets.tolist())]
    return list(zip(values.mark.tolist(), texts, strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_sorted_by_their_number_and_stay_in_order(seed: int) -> None:
    rng = Random(seed)
    number = np.array([rng.randrange(7) for _ in range(ROWS)], np.int32)
    by, order = Sorter(number, 9), np.argsort(number, kind="stable")
    cuts = [0, *sorted(rng.randrange(ROWS) for _ in range(3)), ROWS]
    assert by.bounds.tolist() == np.searchsorted(number[order], np.arange(10)).tolist()
    for dtype in (np.int16, np.uint32, np.int64):
        column = np.array([rng.randrange(9999) for _ in range(ROWS)], dtype)
        parts = [column[a:b] for a, b in pairwise(cuts)]
        assert by.column(parts, dtype).tolist() == column[order].tolist()
    values = _made(rng, ROWS)
    slices = [values.slice(a, b) for a, b in pairwise(cuts)]
    wanted = [_listed(values)[row] for row in order.tolist()]
    assert _listed(Values.sorted(slices, by)) == wanted
    assert _listed(Values.taken(slices, order)) == wanted


def test_what_does_not_fit_is_refused() -> None:
    mark, data = np.zeros(2, np.uint8), np.zeros(5, np.uint8)
    order, by = np.array([0, 1]), Sorter(np.zeros(2, np.int32), 1)
    for offsets in ([0, 9, 5], [0, 3, 1], [-1, 3, 5], [0, 3, 6]):
        part = (mark, np.array(offsets, np.int64), data)
        with pytest.raises(IndexError):
            taken([part], order)
        with pytest.raises(ValueError, match="lie in their data"):
            by.values([part])
    with pytest.raises(IndexError):
        taken([(mark, np.array([0, 1, 5], np.int64), data)], np.array([2]))
    with pytest.raises(ValueError, match="number"):
        Sorter(np.array([0, 3], np.int32), 3)
    with pytest.raises(ValueError, match="rows"):
        by.column([np.zeros(3, np.int64)], np.int64)
