"""What a join got is kept as it came, in little room."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fmware.cmatch import Inputs
from fmware.matching.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGE = 1 << 12


def inputs_of(ids: Sequence[int], scheme: str | None) -> Inputs:
    numbers = np.array(ids, np.int64)
    label = None if scheme is None else numbers + 7
    return Inputs(
        numbers,
        np.zeros(len(ids), np.int32),
        numbers * 2,
        numbers * 2 + 1,
        np.ones(len(ids), np.int16),
        label,
        label,
        scheme,
    )


def as_told(batch: Inputs) -> tuple[object, ...]:
    columns = (batch.id, batch.segment, batch.start, batch.end, batch.level, batch.rank, batch.last)
    return (
        *(None if column is None else column.tolist() for column in columns),
        batch.scheme,
    )


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1000), max_size=4), st.sampled_from([None, "path", "vist"])
        ),
        max_size=300,
    )
)
def test_batches_come_back_as_they_were(batches: list[tuple[list[int], str | None]]) -> None:
    given_ = [inputs_of(ids, scheme) for ids, scheme in batches]
    recording = Recording()
    for batch in given_:
        recording.add(batch)
    assert [*map(as_told, recording)] == [*map(as_told, given_)]


def test_small_pieces_of_large_columns_take_little_room() -> None:
    recording = Recording()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(640):
            recording.add(inputs_of(range(LARGE), "path").take(slice(5, 7)))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 640 * 200
