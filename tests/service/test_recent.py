"""What came last: as an ordered dict has it, in memory that does not move."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service import recent
from fmware.service.recent import Recent

STEPS = st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=200)


@given(STEPS, st.integers(1, 7))
def test_it_is_an_ordered_dict(steps: list[int | None], size: int) -> None:
    """A number is put, nothing drops the oldest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "SLICE", size)
        kept: Recent[int, int] = Recent()
        model: OrderedDict[int, int] = OrderedDict()
        for turn, key in enumerate(steps):
            if key is not None and key not in model:
                kept.put_all({key: turn})
                model[key] = turn
            elif key is None and model:
                assert kept.first() == next(iter(model.values()))
                kept.drop()
                model.popitem(last=False)
            assert len(kept) == len(model)
            assert {each for each in range(31) if each in kept} == model.keys()


def test_slices_only_fill_and_then_only_empty() -> None:
    kept: Recent[int, int] = Recent()
    for number in range(300_000):
        kept.put_all({number: number})
        if len(kept) > 50_000:
            kept.drop()
    assert (len(kept), kept.first()) == (50_000, 250_000)
    assert len(kept._slices) <= 50_000 // recent.SLICE + 2


@given(st.lists(st.sets(st.integers(0, 60)), max_size=20), st.integers(1, 7))
def test_many_at_once_are_as_one_by_one(lots: list[set[int]], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "SLICE", size)
        kept: Recent[int, int] = Recent()
        model: dict[int, int] = {}
        for turn, lot in enumerate(lots):
            asked = dict.fromkeys(lot, turn)
            there = kept.among(asked)
            assert there == model.keys() & lot
            new = {key: turn for key in asked if key not in there}
            kept.put_all(new)
            model |= new
            over = max(len(model) - 20, 0)
            kept.drop(over)
            for key in list(model)[:over]:
                del model[key]
            assert {each for each in range(61) if each in kept} == model.keys()
            assert len(kept) == len(model)
            assert not model or kept.first() == next(iter(model.values()))
