"""Messages of slow tenants stand aside, and others do not wait behind them."""

from __future__ import annotations

from fmware.service.paces import SLOW, SURE, Paces


def test_a_tenant_that_is_slow_by_itself_must_go_well_several_times() -> None:
    paces = Paces()
    paces.took({"a"}, 1, 2 * SLOW)
    assert "a" in paces
    for _ in range(SURE - 1):
        paces.took({"a"}, 1, SLOW / 2)
        assert "a" in paces
    paces.took({"a"}, 1, SLOW / 2)
    assert "a" not in paces


def test_all_tenants_of_a_slow_batch_are_suspects_until_they_went_well_once() -> None:
    paces = Paces()
    paces.took({"a", "b"}, 2, 3 * SLOW)
    assert "a" in paces
    assert "b" in paces
    paces.took({"b"}, 1, 0.0)
    assert "b" not in paces
    paces.took({"a"}, 1, 2 * SLOW)
    paces.took({"a"}, 1, 0.0)
    assert "a" in paces


def test_a_large_batch_may_take_longer() -> None:
    paces = Paces()
    paces.took({"a"}, 100, 50 * SLOW)
    assert "a" not in paces
