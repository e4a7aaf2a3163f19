"""Flows: acknowledged when handed over and not before, bounded, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fmware.service import flow as flows
from fmware.service.brokers.memory import MemorySink, MemorySource
from fmware.service.flow import Flow, Outlet, Sink, Source
from fmware.service.run import stop_flows
from tests.service.shop import BAD, CITY, Stubborn, engine, expected, found, message, shop, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.service.engine import Engine


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def at_work(tmp_path_factory: pytest.TempPathFactory, runner: asyncio.Runner) -> Iterator[Engine]:
    """One engine for all; tests that would meet each other's messages have tenants of their own."""

    async def make() -> Engine:
        made = engine(shop(tmp_path_factory.mktemp("shop")), CITY, dedupe_messages=0)
        await made.start()
        return made

    made = runner.run(make())
    yield made
    runner.run(made.stop())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(flows, "LONGEST_PAUSE", 0.01)


async def sent(source: MemorySource, numbers: range) -> None:
    for number in numbers:
        await source.send(message(number), f"m{number}")


def test_the_parts_are_what_the_protocols_ask_for() -> None:
    async def run() -> None:
        assert isinstance(MemorySource("in"), Source)
        assert isinstance(MemorySink("out"), Sink)

    asyncio.run(run())


def test_a_source_that_ends_is_done_to_the_end(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> None:
        source, sinks = MemorySource("in"), [MemorySink("one"), MemorySink("two")]
        seen: list[int] = []
        made = Flow(
            source, at_work, Outlet(sinks), told=lambda some, _: seen.append(len(some)), batch=16
        )
        await made.start()
        await sent(source, range(500))
        await source.send(BAD, "bad")
        source.end()
        await made.wait()
        await made.stop()
        assert sum(seen) == 501
        assert max(seen) <= 16
        assert Counter(source.acknowledged) == Counter(["bad", *(f"m{i}" for i in range(500))])
        for sink in sinks:
            assert found(sink.hits) == expected(range(500))
            (letter,) = sink.letters
            assert (letter.id, letter.body, letter.source) == ("bad", BAD, "in")
            assert "line 1" in letter.reason
        now = made.snapshot()
        assert (now["received"], now["acknowledged"], now["letters"]) == (501, 501, 1)
        assert now["under_way"] == 0

    runner.run(run())


def test_nothing_is_acknowledged_before_every_sink_has_it(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        source, quick, slow = MemorySource("in"), MemorySink("quick"), Stubborn("slow")
        slow.open_door.clear()
        made = Flow(source, at_work, Outlet([quick, slow]))
        await made.start()
        await sent(source, range(1, 4))
        await until(lambda: len(quick.hits) == 3 and slow.calls)
        await asyncio.sleep(0.05)
        assert source.acknowledged == []
        slow.open_door.set()
        await until(lambda: len(source.acknowledged) == 3)
        await made.stop()
        assert found(slow.hits) == found(quick.hits) == expected(range(1, 4))

    runner.run(run())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    fails=st.lists(st.sampled_from(["", "before", "after"]), max_size=8),
    order=st.lists(st.integers(0, 60), max_size=80),
    batch=st.integers(1, 9),
    lanes=st.integers(1, 4),
)
def test_whatever_a_sink_does_nothing_is_lost_and_others_are_not_told_twice(
    at_work: Engine,
    runner: asyncio.Runner,
    fails: list[str],
    order: list[int],
    batch: int,
    lanes: int,
) -> None:
    async def run() -> None:
        source, good, bad = MemorySource("in"), MemorySink("good"), Stubborn("bad", fails)
        made = Flow(source, at_work, Outlet([good, bad]), batch=batch, lanes=lanes)
        await made.start()
        for number in order:
            await source.send(message(number), f"m{number}")
        source.end()
        await asyncio.wait_for(made.wait(), 30)
        await made.stop()
        wanted = expected(set(order))
        assert set(found(good.hits)) == set(found(bad.hits)) == set(wanted)
        # There is no window here; but of messages that are under way at once one waits.
        assert found(good.hits) <= expected(order)
        assert {hit.id for hit in bad.hits} == {hit.id for hit in good.hits}
        if "after" not in fails:
            assert found(bad.hits) == found(good.hits)
        assert Counter(source.acknowledged) == Counter(f"m{number}" for number in order)

    runner.run(run())


def test_a_sink_that_is_shut_holds_up_the_source(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> None:
        source, sink = MemorySource("in", size=10), Stubborn()
        sink.open_door.clear()
        made = Flow(source, at_work, Outlet([sink]), batch=8, lanes=2)
        await made.start()
        sending = asyncio.create_task(sent(source, range(500)))
        await until(lambda: sink.calls == 2)
        await asyncio.sleep(0.1)
        # Two lanes with a batch each, a batch that waits, and one delivery at the door.
        taken = made.snapshot()["received"]
        assert taken <= 3 * 8 + 1
        await asyncio.sleep(0.1)
        assert made.snapshot()["received"] == taken
        assert not sending.done()
        assert at_work.snapshot()["queue"] <= 16
        sink.open_door.set()
        await sending
        await until(lambda: len(source.acknowledged) == 500)
        await made.stop()
        assert found(sink.hits) == expected(range(500))

    runner.run(run())


def test_stopping_finishes_what_was_taken_and_leaves_the_rest(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        source, sink = MemorySource("in"), Stubborn()
        made = Flow(source, at_work, Outlet([sink]), batch=8)
        await made.start()
        await sent(source, range(400))
        await until(lambda: sink.hits)
        await made.stop()
        now = made.snapshot()
        assert now["under_way"] == 0
        assert now["acknowledged"] == len(source.acknowledged) >= 8
        done = {int(each[1:]) for each in source.acknowledged}
        assert found(sink.hits) == expected(done)
        # Whoever comes next gets what is left, and only that.
        again = Flow(source, at_work, Outlet([sink]), batch=8)
        await again.start()
        source.end()
        await until(lambda: len(source.acknowledged) == 400)
        await again.stop()
        assert found(sink.hits) == expected(range(400))

    runner.run(run())


def test_to_stop_waiting_stops_nothing(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> None:
        source, sink = MemorySource("in"), Stubborn()
        sink.open_door.clear()
        made = Flow(source, at_work, Outlet([sink]))
        await made.start()
        await sent(source, range(1, 4))
        await until(lambda: sink.calls)
        waiting = asyncio.create_task(made.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        stopping = asyncio.create_task(made.stop())
        await asyncio.sleep(0.02)
        sink.open_door.set()
        await stopping
        assert sorted(source.acknowledged) == ["m1", "m2", "m3"]
        assert made.snapshot()["returned"] == 0

    runner.run(run())


def test_what_cannot_be_finished_in_time_is_given_back(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        source, shut = MemorySource("in"), Stubborn()
        shut.open_door.clear()
        made = Flow(source, at_work, Outlet([shut]), batch=4, lanes=2)
        await made.start()
        await sent(source, range(1, 4))
        await until(lambda: shut.calls)
        await made.stop(patience=0.05)
        assert source.acknowledged == []
        assert made.snapshot()["returned"] == 3
        sink = MemorySink()
        again = Flow(source, at_work, Outlet([sink]))
        await again.start()
        await until(lambda: len(source.acknowledged) == 3)
        await again.stop()
        assert found(sink.hits) == expected(range(1, 4))

    runner.run(run())


def test_a_sink_that_is_given_up_gives_messages_back(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        source, sink = MemorySource("in"), Stubborn(fails=["before"] * 10**6)
        outlet = Outlet([sink])
        made = Flow(source, at_work, outlet)
        await made.start()
        await sent(source, range(1, 4))
        await until(lambda: outlet.snapshot()["failures"]["stubborn"] > 3)
        assert outlet.snapshot()["stuck"] == ["stubborn"]
        outlet.give_up()
        await until(lambda: made.snapshot()["returned"] >= 3)
        await made.stop()
        assert source.acknowledged == []

    runner.run(run())


def test_flows_are_stopped_in_time_also_with_a_sink_that_never_comes_back(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        for sink, whole in ((MemorySink(), True), (Stubborn(fails=["before"] * 10**6), False)):
            source, outlet = MemorySource("in"), Outlet([sink])
            made = Flow(source, at_work, outlet)
            await made.start()
            await sent(source, range(1, 4))
            await until(partial(lambda made: made.snapshot()["received"] == 3, made))
            assert await stop_flows([made], outlet, 0.2) == whole
            now = made.snapshot()
            assert (now["acknowledged"], now["returned"]) == ((3, 0) if whole else (0, 3))

    runner.run(run())


def test_a_message_that_comes_too_often_is_a_dead_letter(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        source, sink = MemorySource("in"), MemorySink()
        made = Flow(source, at_work, Outlet([sink]), attempts=2)
        await made.start()
        for attempts in (1, 2, 3):
            delivery = next(iter([await _delivery(source, attempts)]))
            source.back(delivery, 0)
        await until(lambda: len(source.acknowledged) == 3)
        await made.stop()
        assert [(each.id, each.reason) for each in sink.letters] == [
            ("a3", "given 3 times, and never done")
        ]
        assert sorted(hit.message for hit in sink.hits) == ["a1", "a2"]

    runner.run(run())


async def _delivery(source: MemorySource, attempts: int) -> Any:
    await source.send(message(1), f"a{attempts}")
    made = source._queue.get_nowait()
    assert made is not None
    made.attempts = attempts
    return made


def test_a_source_that_breaks_is_opened_again(at_work: Engine, runner: asyncio.Runner) -> None:
    class Broken(MemorySource):
        opened = closed = 0

        async def open(self) -> None:
            self.opened += 1
            if self.opened == 3:
                raise ConnectionError("not yet")

        async def deliveries(self) -> Any:
            async for delivery in super().deliveries():
                yield delivery
                if delivery.envelope.id in ("m10", "m20"):
                    raise ConnectionError("gone")

        async def close(self) -> None:
            self.closed += 1

    async def run() -> None:
        source, sink = Broken("in"), MemorySink()
        made = Flow(source, at_work, Outlet([sink]))
        await made.start()
        await sent(source, range(30))
        source.end()
        await asyncio.wait_for(made.wait(), 30)
        await made.stop()
        assert found(sink.hits) == expected(range(30))
        assert (source.opened, source.closed) == (4, 4)
        assert made.snapshot()["failures"] == 3

    runner.run(run())
