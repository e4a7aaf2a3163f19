"""Texts are gathered as pyarrow gathers them, and matches come in the order of messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.matching._columns import Texts, in_order

WORDS = st.lists(st.text(max_size=9), min_size=1, max_size=12)


def numbers(values: list[int]) -> np.typing.NDArray[np.int64]:
    return np.array(values, np.int64)


@settings(deadline=None)
@given(WORDS, st.data())
def test_texts_are_taken_by_number(words: list[str], data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.integers(-1, len(words) - 1), max_size=20))
    texts = Texts(words)
    found = texts.take(numbers(drawn))
    found.validate(full=True)
    wanted = [None if number < 0 else words[number] for number in drawn]
    assert found.equals(pa.array(wanted, pa.utf8()))
    assert texts.sizes(numbers(drawn)).tolist() == [len((each or "").encode()) for each in wanted]


@settings(deadline=None)
@given(st.lists(WORDS, max_size=4), st.data())
def test_texts_are_joined(parts: list[list[str]], data: st.DataObject) -> None:
    texts = Texts.joined([Texts(part) for part in parts])
    every = [word for part in parts for word in part]
    assert len(texts) == len(every)
    assert texts.take(np.arange(len(every))).to_pylist() == every


def test_texts_that_lie_in_arrays() -> None:
    texts = Texts.of(numbers([2, 4, 4, 5]), np.frombuffer(b"..abc.", np.uint8))
    assert texts.take(numbers([2, 0, -1, 1])).to_pylist() == ["c", "ab", None, ""]


def test_a_character_that_utf8_does_not_have_is_its_escape() -> None:
    given = ["fine", "odd \udcff"]
    assert Texts(given).take(numbers([1, 0])).to_pylist() == ["odd \\udcff", "fine"]
    assert given[1] == "odd \udcff"


def test_none_is_empty() -> None:
    assert Texts([None, "a"]).take(numbers([1, 0])).to_pylist() == ["a", ""]


@pytest.mark.parametrize("number", [-2, 2, 1 << 40])
def test_there_is_no_other_text(number: int) -> None:
    with pytest.raises(IndexError, match=f"no text {number} among 2"):
        Texts(["a", "b"]).take(numbers([0, number]))


LINES = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=6)


@settings(deadline=None)
@given(LINES)
def test_matches_come_by_message_and_by_kind(counts: list[tuple[int, int, int]]) -> None:
    ends = np.cumsum(np.array(counts, np.int64).reshape(-1, 3), axis=0)
    named, tuples, local = (ends[-1] if len(counts) else np.zeros(3)).astype(int).tolist()
    told = np.arange(tuples * 3, dtype=np.int64).reshape(-1, 3)
    plan = np.arange(local, dtype=np.int32) % 2
    found = in_order(
        np.pad(ends, ((0, 0), (0, 3)))[:, [0, 1, 3, 4, 5, 2]],
        np.arange(100, 100 + named, dtype=np.int32),
        told,
        np.ascontiguousarray(ends[:, 2]),
        plan,
        np.arange(local, dtype=np.int64) * 10,
        numbers([7, 8]),
        numbers([1, 4]),
    )
    wanted = []
    at = [0, 0, 0]
    for place, (names, lines, hits) in enumerate(counts):
        wanted += [(place, 100 + at[0] + each, 0, 0, -1) for each in range(names)]
        wanted += [(place, *told[at[1] + each].tolist(), -1) for each in range(lines)]
        for each in range(at[2], at[2] + hits):
            wanted.append((place, 7 + each % 2, 10 * each, (1, 4)[each % 2], each))
        at = [at[0] + names, at[1] + lines, at[2] + hits]
    assert [*zip(*(column.tolist() for column in found), strict=True)] == wanted


def test_columns_that_do_not_belong_together_are_refused() -> None:
    one = np.zeros((1, 6), np.int64)
    none, empty = numbers([]), np.empty((0, 3), np.int64)
    with pytest.raises(ValueError, match="do not belong together"):
        in_order(
            one, np.array([1], np.int32), empty, numbers([0]), none.astype(np.int32), *[none] * 3
        )
