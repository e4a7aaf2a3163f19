"""Messages of slow tenants stand aside, and others do not wait behind them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fmware.service.engine import Engine
from fmware.service.envelope import Envelope, now
from fmware.service.paces import SLOW, SURE, Paces
from tests.service.shop import SALE, envelope, shop

if TYPE_CHECKING:
    from pathlib import Path


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


def test_others_do_not_wait_behind_a_slow_tenant(tmp_path: Path) -> None:
    expression = "//m[not(.//a[.//*[contains(., 'never {}')]])]"
    slow = [{"name": f"s{n}", "expression": expression.format(n)} for n in range(200)]
    body = b"<m>" + b"<a><b>text</b></a>" * 4000 + b"</m>"

    async def run() -> tuple[int, int]:
        engine = Engine(shop(tmp_path), workers=2, queue=64, batch=8)
        await engine.start()
        try:
            await engine.subscribe_all(("slow", each) for each in slow)
            await engine.subscribe("quick", SALE)
            for place in range(2):
                await engine.match([Envelope(f"first{place}", body, "slow", "test", now())])
            waiting = [
                asyncio.ensure_future(
                    engine.match([Envelope(f"m{place}", body, "slow", "test", now())])
                )
                for place in range(6)
            ]
            await asyncio.sleep(0)
            (outcome,) = await engine.match([envelope(1, "quick")])
            done = sum(each.done() for each in waiting)
            await asyncio.gather(*waiting)
            return len(outcome.hits), done
        finally:
            await engine.stop()

    hits, done = asyncio.run(run())
    assert hits == 1
    # One worker may have done one or two of them; without the rule, all come first.
    assert done < 4
