"""Columns of local nodes, against the same done one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fmware.matching._local import compared, containing, distinct, expand, first_of_each
from fmware.matching.evaluate import compares
from fmware.xpath import Op

NUMBERS = st.from_regex(r"[ \t\r\n]{0,2}-?[0-9]{0,20}\.?[0-9]{0,20}[ \t\r\n]{0,2}", fullmatch=True)
ODD = st.sampled_from(
    ["", ".", "-", "-.", "1e3", "+1", "0x1", "\xa01", "٣", "9" * 400, "inf", "nan"]
)
TEXTS = NUMBERS | ODD | st.text("ab1ä", max_size=4)
LISTS = st.lists(TEXTS, max_size=6)


def columns(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    data = [text.encode() for text in texts]
    return np.cumsum([0, *map(len, data)]), np.frombuffer(b"".join(data), np.uint8)


@given(LISTS, st.sampled_from([*Op]), TEXTS | st.floats(0, 1e20))
@example(["9007199254740993", "9007199254740993.0"], Op.EQ, "9007199254740993")
def test_values_compare_as_one_by_one(texts: list[str], op: Op, wanted: str | float) -> None:
    literal = wanted.encode() if isinstance(wanted, str) else wanted
    assert compared(*columns(texts), op, literal).tolist() == [
        compares(text, op, wanted) for text in texts
    ]


@given(LISTS, st.text("ab1ä", max_size=2))
def test_values_contain_as_one_by_one(texts: list[str], wanted: str) -> None:
    for begin in (False, True):
        holds = [text.startswith(wanted) if begin else wanted in text for text in texts]
        assert containing(*columns(texts), wanted.encode(), begin).tolist() == holds


KEYS = st.lists(st.integers(0, 5), max_size=30)


@given(KEYS)
def test_distinct_keys_are_numbered_in_their_order(keys: list[int]) -> None:
    first, of = distinct(np.array(keys, np.int64))
    assert [keys[at] for at in first] == sorted({*keys})
    assert first.tolist() == [keys.index(key) for key in sorted({*keys})]
    assert [keys[first[at]] for at in of] == keys


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_pairs_are_put_into_order_each_once(pairs: list[tuple[int, int]]) -> None:
    major, minor = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    rows = first_of_each(major, minor)
    if rows is None:
        assert pairs == sorted({*pairs})
    else:
        assert rows.tolist() == [pairs.index(pair) for pair in sorted({*pairs})]
    with pytest.raises(ValueError, match="different lengths"):
        first_of_each(major, np.zeros(len(pairs) + 1, np.int64))


@given(KEYS, KEYS)
def test_equal_keys_are_paired(left: list[int], right: list[int]) -> None:
    right = sorted(right)
    found = expand(np.array(right, np.int64), np.array(left, np.int64), 6)
    assert [*zip(*(column.tolist() for column in found), strict=True)] == [
        (at, place) for at, key in enumerate(left) for place, own in enumerate(right) if own == key
    ]


@pytest.mark.parametrize(("keys", "of"), [([1, 0], [0]), ([6], [0]), ([-1], [0]), ([0], [6])])
def test_keys_that_cannot_be_are_refused(keys: list[int], of: list[int]) -> None:
    with pytest.raises(ValueError, match="too large"):
        expand(np.array(keys, np.int64), np.array(of, np.int64), 6)
