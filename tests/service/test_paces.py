"""Tenants do not wait for each other: lines, paces, the gate, slices of statements."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from fmware.service.engine import Engine
from fmware.service.envelope import ALL, Envelope, now
from fmware.service.gate import Gate
from fmware.service.jobs import Call, Job, Order
from fmware.service.lines import Lines
from fmware.service.orders import MOST as LARGEST
from fmware.service.paces import BYTE, MOST, SLOW, STRIKE, Paces
from tests.service.shop import SALE, envelope, shop

if TYPE_CHECKING:
    from pathlib import Path


# --- what tenants cost ------------------------------------------------------------------------


def test_one_slow_message_now_and_then_makes_no_tenant_slow() -> None:
    paces = Paces()
    for _ in range(10):
        paces.took("a", 1, 2 * SLOW)
        assert "a" not in paces
        paces.took("a", STRIKE, SLOW / 2)
        assert "a" not in paces


def test_a_tenant_that_is_slow_again_must_make_up_for_it() -> None:
    paces = Paces()
    for _ in range(100):
        paces.took("a", 1, 2 * SLOW)
    assert "a" in paces
    assert "b" not in paces
    for _ in range(MOST - STRIKE):
        assert "a" in paces
        paces.took("a", 1, 0.0)
    assert "a" not in paces


def test_a_message_that_is_deferred_was_slow() -> None:
    paces = Paces()
    paces.took("a", 8, 0.0, deferred=3)
    assert "a" in paces
    paces.took("b", 8, 0.0)
    assert "b" not in paces


def test_what_is_expected_fades_and_large_messages_are_never_quick() -> None:
    paces = Paces()
    paces.took("a", 2, 0.2)
    assert paces.expected("a", 100) == 0.1
    for _ in range(50):
        paces.took("a", 10, 0.001)
    assert paces.expected("a", 100) < 0.001
    assert paces.expected("a", 10 << 20) == (10 << 20) * BYTE > SLOW


# --- lines ------------------------------------------------------------------------------------


def job(tenant: str) -> Job:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    return Job(Call([Envelope("m", b"", tenant)], [None], 1, future), 0)


def order(tenant: str) -> Order:
    return Order("subscribe", tenant, [], asyncio.get_running_loop().create_future())


def test_lines_serve_the_tenant_that_has_had_least() -> None:
    async def run() -> None:
        lines, had = Lines(fair=True), dict.fromkeys("abc", 0.0)
        draw = random.Random(3)
        for tenant in "a" * 400 + "b" * 400:
            lines.put(job(tenant))
        for turn in range(300):
            if turn == 100:
                for _ in range(200):
                    lines.put(job("c"))
            tenant = lines.tenants()[0]
            lines.take(tenant)
            seconds = draw.random() * {"a": 10, "b": 1, "c": 1}[tenant]
            had[tenant] += seconds
            lines.charge(tenant, seconds)
            if turn == 99:
                assert abs(had["a"] - had["b"]) <= 10
                middle = dict(had)
        late = {tenant: had[tenant] - middle[tenant] for tenant in had}
        # The one that came later has as much from then on, and nothing for the time before.
        assert abs(late["a"] - late["c"]) <= 20
        assert abs(late["b"] - late["c"]) <= 20

    asyncio.run(run())


def test_messages_for_all_wait_for_changes_that_came_before() -> None:
    async def run() -> None:
        lines = Lines(fair=True)
        first, everyone, second = order("a"), job(ALL), order("b")
        for each in (first, everyone, second, own := job("c")):
            lines.put(each)
        assert lines.head(ALL) is None
        assert lines.head("c") is own
        assert lines.take("a") is first
        assert lines.head(ALL) is everyone
        assert lines.head("b") is second
        assert lines.jobs == 2
        assert lines.remove(lambda each: each is everyone)
        assert lines.jobs == 1
        assert [*lines.clear()] == [second, own]
        assert not lines

    asyncio.run(run())


# --- the gate ---------------------------------------------------------------------------------


def test_a_tenant_cannot_fill_the_gate() -> None:
    async def run() -> None:
        gate = Gate(100, 10_000, fair=True)
        many = [asyncio.ensure_future(gate.enter(1, 10, "ab"[n % 2])) for n in range(800)]
        await asyncio.sleep(0)
        assert gate.inside < 100
        large = asyncio.ensure_future(gate.enter(1, 9000 - gate.bytes, "d"))
        await asyncio.wait_for(gate.enter(1, 10, "c"), 1.0)
        await asyncio.wait_for(large, 1.0)
        for each in many:
            each.cancel()

    asyncio.run(run())


# --- all of it --------------------------------------------------------------------------------


def test_others_do_not_wait_behind_a_slow_tenant(tmp_path: Path) -> None:
    expression = "//m[not(.//a[.//*[contains(., 'never {}')]])]"
    slow = [{"name": f"s{n}", "expression": expression.format(n)} for n in range(200)]
    body = b"<m>" + b"<a><b>text</b></a>" * 4000 + b"</m>"

    async def run() -> tuple[int, int, int]:
        engine = Engine(shop(tmp_path), workers=1, queue=64, batch=8, own=True, common=False)
        await engine.start()
        try:
            await engine.subscribe_all(("slow", each) for each in slow)
            await engine.subscribe("quick", SALE)
            waiting = [
                asyncio.ensure_future(
                    engine.match([Envelope(f"m{place}", body, "slow", "test", now())])
                )
                for place in range(6)
            ]
            await asyncio.sleep(0)
            (outcome,) = await engine.match([envelope(1, "quick")])
            done = sum(each.done() for each in waiting)
            late = await asyncio.gather(*waiting)
            return len(outcome.hits), done, sum(len(each[0].hits) for each in late)
        finally:
            await engine.stop()

    hits, done, late = asyncio.run(run())
    assert hits == 1
    # Of a single worker; without the rule, all come first.
    assert done < 2
    assert late == 6 * len(slow)


def test_messages_of_others_go_between_slices_of_statements(tmp_path: Path) -> None:
    """A tenant registers many statements; another's messages do not wait for all of them."""
    path = "/".join(f"step{n}" for n in range(80))
    many = [{"name": f"s{n}", "expression": f"//{path}/n{n}"} for n in range(5 * LARGEST)]

    async def run() -> tuple[bool, list[Any]]:
        engine = Engine(shop(tmp_path), workers=1, own=True, common=False)
        await engine.start()
        try:
            await engine.subscribe("quick", SALE)
            adding = asyncio.ensure_future(engine.subscribe_all(("many", each) for each in many))
            await asyncio.sleep(0.01)
            await engine.match([envelope(1, "quick")])
            before = not adding.done()
            assert await adding == []
            body = f"<{path.replace('/', '><')}><n7/>" + "".join(
                f"</{name}>" for name in reversed(path.split("/"))
            )
            (own,) = await engine.match([Envelope("x", body.encode(), "many", "test", now())])
            return before, [hit.statement for hit in own.hits]
        finally:
            await engine.stop()

    before, hits = asyncio.run(run())
    assert before
    assert hits == ["s7"]
