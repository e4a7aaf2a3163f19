"""Costs: a small value with parts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmatch import Choice, Cost

PARTS = st.floats(0, 1e6)
COSTS = st.builds(Cost, PARTS, PARTS, PARTS, PARTS)


@given(COSTS, COSTS)
def test_costs_add_up_and_compare_by_their_total(one: Cost, other: Cost) -> None:
    both = one + other
    assert both.total == pytest.approx(one.total + other.total)
    assert (one < other) == (one.total < other.total)
    assert (one <= other) == (one.total <= other.total)
    assert (one > other) == (one.total > other.total)
    assert (one >= other) == (one.total >= other.total)
    assert one <= both
    assert (2 * one).total == (one * 2).total == pytest.approx(2 * one.total)


def test_a_cost_tells_its_parts() -> None:
    told = json.loads(json.dumps(Cost(1, 2, 3, 4).to_json()))
    assert told == {
        "index_access": 1,
        "cleaning": 2,
        "spills": 3,
        "cold_pages": 4,
        "total": 10,
    }
    assert hash(Cost(1)) == hash(Cost(1))
    assert sum([Cost(1), Cost(2)], Cost()) == Cost(3)


@pytest.mark.parametrize("text", ["admatch", "cmatch/path", "cmatch/vist+admatch"])
def test_choices_have_names(text: str) -> None:
    choice = Choice.parse(text)
    assert str(choice) == text
    assert choice.split == ("+" in text)


@pytest.mark.parametrize("text", ["", "cmatch", "cmatch/", "match", "admatch/path"])
def test_other_names_are_no_choices(text: str) -> None:
    with pytest.raises(ValueError, match="no way to match"):
        Choice.parse(text)
