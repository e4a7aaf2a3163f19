"""The engine: what workers say is what the middleware says, whatever happens to workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from fmware.corpus import add
from fmware.errors import FMwareError
from fmware.middleware import Middleware
from fmware.service import process
from fmware.service.engine import Engine
from fmware.service.envelope import ALL, Envelope, Hit, hit_id
from fmware.service.errors import EngineStopped, StatementRefused, WorkerFailed
from fmware.service.worker import SEPARATOR
from fmware.xpath import XPathError
from tests.service.shop import (
    BAD,
    CITY,
    SALE,
    engine,
    envelope,
    expected,
    found,
    message,
    shop,
    stock,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fmware.service.envelope import Outcome


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def at_work(index: Path, runner: asyncio.Runner) -> Iterator[Engine]:
    """One engine for all tests that leave it as it was: each has a tenant of its own."""

    async def make() -> Engine:
        made = Engine(index, workers=2, queue=64, batch=8)
        await made.start()
        return made

    made = runner.run(make())
    yield made
    runner.run(made.stop())


async def ask(at_work: Engine, tenant: str, *statements: dict[str, Any]) -> None:
    assert await at_work.subscribe_all((tenant, each) for each in statements) == []


def hits_of(outcomes: Sequence[Outcome]) -> list[Hit]:
    return [hit for outcome in outcomes for hit in outcome.hits]


# --- what comes out ---------------------------------------------------------------------------


def test_workers_say_what_the_middleware_says(
    index: Path, at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> list[Outcome]:
        await ask(at_work, "same", CITY, SALE)
        return await at_work.match([envelope(i, "same") for i in range(300)])

    outcomes = runner.run(run())
    assert [each.envelope_id for each in outcomes] == [f"m{i}" for i in range(300)]
    with Middleware(index) as middleware:
        for each in (CITY, SALE):
            middleware.subscribe(
                str(each["expression"]), name=str(each["name"]), returns=each["returns"]
            )
        for number, outcome in enumerate(outcomes):
            result = middleware.publish(message(number), name=f"m{number}")
            wanted = Counter(
                (each.statement, None if each.local is None else each.local.value)
                for each in result.matches
            )
            local = [(hit, hit.match.get("local", {}).get("value")) for hit in outcome.hits]
            assert Counter((hit.statement, value) for hit, value in local) == wanted
            assert result.table is not None
            for hit in outcome.hits:
                if hit.statement == "city":
                    rows = next(each.nodes for each in result.matches if each.local)
                    paths = [result.table.path(row) for row in rows]
                    assert [node["path"] for node in hit.match["nodes"]] == paths
    assert found(hit for hit in hits_of(outcomes) if hit.statement == "city") == expected(
        range(300)
    )


def test_ids_of_hits_are_the_same_from_any_worker_and_in_any_batch(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def ids(seed: int, size: int) -> list[str]:
        async def fail(_: object, outcomes: Sequence[Outcome]) -> None:
            given.extend(hit.id for hit in hits_of(outcomes))
            raise OSError("have them again")

        numbers = list(range(100))
        Random(seed).shuffle(numbers)
        given: list[str] = []
        for at in range(0, 100, size):
            with pytest.raises(OSError, match="again"):
                await at_work.match([envelope(i, "ids") for i in numbers[at : at + size]], fail)
        return sorted(given)

    runner.run(ask(at_work, "ids", CITY))
    once = runner.run(ids(1, 64))
    assert len(set(once)) == len(once) == 80
    assert runner.run(ids(2, 3)) == once


def test_ids_differ_if_any_part_does() -> None:
    tenants, names = ("default", "a", "a:b", "b"), ("", "a", "a:b", "b:c", "ü\n", "x" * 300)
    ids = Counter(
        hit_id(tenant, first, second, nodes, start)
        for tenant in tenants
        for first in names
        for second in names
        for nodes in ((), (0,), (0, 1), (1,))
        for start in (None, 0, 1)
    )
    assert max(ids.values()) == 1
    assert all(len(each) <= 200 and each.isascii() and each.isprintable() for each in ids)


def test_a_message_is_for_its_tenant(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> list[Outcome]:
        for tenant in ("a", "b"):
            await ask(at_work, tenant, {**SALE, "name": f"of {tenant}"})
        await ask(at_work, "b", CITY)
        tenants = ("a", "b", "c", ALL)
        return await at_work.match([envelope(1, tenant) for tenant in tenants])

    told = [{(hit.tenant, hit.statement) for hit in each.hits} for each in runner.run(run())]
    one, both = {("a", "of a")}, {("b", "city"), ("b", "of b")}
    assert told[:3] == [one, both, set()]
    assert told[3] >= one | both


def test_a_message_that_cannot_be_read_is_poison_and_hurts_no_other(index: Path) -> None:
    async def run() -> list[Outcome]:
        async with engine(index, options={"limits": {"bytes": 1000, "depth": 8}}) as at_work:
            bodies = [message(1), BAD, b"", b"<a>" * 9, b"<a>" + b" " * 1000 + b"</a>", message(2)]
            return await at_work.match([Envelope(f"m{i}", body) for i, body in enumerate(bodies)])

    outcomes = asyncio.run(run())
    assert [bool(each.poison) for each in outcomes] == [False, True, True, True, True, False]
    assert [len(each.hits) for each in outcomes] == [1, 0, 0, 0, 0, 1]
    assert "Couldn't find end" in str(outcomes[1].poison) or "line 1" in str(outcomes[1].poison)
    assert "1,000" in str(outcomes[4].poison) or "1000" in str(outcomes[4].poison)


def test_a_statement_that_is_cut_short_is_an_error_of_its_message(index: Path) -> None:
    async def run() -> list[Outcome]:
        asks = {"name": "deep", "expression": "//a[.//b[.//c = 1] and not(.//d)]"}
        limits = {"work": 3}
        async with engine(index, asks, options={"limits": limits}) as at_work:
            body = b"<a>" * 40 + b"<b><c>2</c></b>" * 40 + b"</a>" * 40
            return await at_work.match([Envelope("m", body)])

    (outcome,) = asyncio.run(run())
    assert outcome.poison is None
    assert outcome.errors == ["statement deep: not decided within the limit of work"]


# --- once -------------------------------------------------------------------------------------


def test_a_message_is_matched_once_within_the_window(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        before = at_work.snapshot()["counts"]["duplicates"]
        one, two, three, four = (envelope(i, "once") for i in range(4))
        first = await at_work.match([one, two, one])
        assert [each.duplicate for each in first] == [False, False, True]
        again = await at_work.match([two, three, envelope(1, "other")])
        assert [each.duplicate for each in again] == [True, False, False]
        both = await asyncio.gather(*(at_work.match([four]) for _ in range(5)))
        assert sorted(each[0].duplicate for each in both) == [False] + 4 * [True]
        assert at_work.snapshot()["counts"]["duplicates"] - before == 6

    runner.run(run())


def test_long_ids_are_told_apart(at_work: Engine, runner: asyncio.Runner) -> None:
    names = ["x" * 1000, "x" * 1001, "x" * 100, "x" * 1000]

    async def run() -> list[Outcome]:
        return await at_work.match([Envelope(name, message(1), "long") for name in names])

    outcomes = runner.run(run())
    assert [each.duplicate for each in outcomes] == [False, False, False, True]
    assert [each.envelope_id for each in outcomes] == names


def test_what_was_not_handed_over_is_not_a_duplicate(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        given: list[str] = []
        door = asyncio.Event()
        one, two = envelope(1, "failed"), envelope(2, "failed")

        async def fail(*_: object) -> None:
            await door.wait()
            raise OSError("the sink is gone")

        async def give(envelopes: Sequence[Envelope], _: object) -> None:
            given.extend(each.id for each in envelopes)

        first = asyncio.create_task(at_work.match([one, two], fail))
        await asyncio.sleep(0.05)
        # These two come while the first is under way: one of them takes its place.
        later = [asyncio.create_task(at_work.match([one], give)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not given
        door.set()
        with pytest.raises(OSError, match="gone"):
            await first
        outcomes = [(await each)[0] for each in later]
        assert sorted(each.duplicate for each in outcomes) == [False, True]
        assert given == ["m1"]
        (third,) = await at_work.match([two], give)
        assert not third.duplicate
        assert given == ["m1", "m2"]

    runner.run(run())


def test_calls_that_want_each_others_messages_both_end(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> int:
        random = Random(3)
        orders = [random.sample(range(100), 100) for _ in range(6)]
        calls = [at_work.match([envelope(i, "each") for i in order]) for order in orders]
        told = await asyncio.wait_for(asyncio.gather(*calls), 30)
        return sum(not each.duplicate for outcomes in told for each in outcomes)

    assert runner.run(run()) == 100


# --- statements -------------------------------------------------------------------------------


def test_messages_and_statements_keep_their_order(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> list[Any]:
        calls: list[asyncio.Task[Any]] = []
        for step in range(6):
            bodies = [envelope(100 * step + i, "order") for i in range(1, 5)]
            calls.append(asyncio.create_task(at_work.match(bodies)))
            await asyncio.sleep(0)
            change = at_work.subscribe("order", SALE)
            if step % 2:
                change.close()
                change = at_work.unsubscribe("order", "sale")
            calls.append(asyncio.create_task(change))
            await asyncio.sleep(0)
            if step % 2 == 0:
                await calls[-1]
        return await asyncio.gather(*calls)

    told = [[len(one.hits) for one in each] for each in runner.run(run()) if each is not None]
    assert told == [[0] * 4, [1] * 4] * 3


def test_a_statement_is_replaced_and_a_bad_one_is_refused(
    at_work: Engine, runner: asyncio.Runner
) -> None:
    async def run() -> None:
        await ask(at_work, "r", CITY)
        await at_work.subscribe("r", {**SALE, "name": "city"})
        (outcome,) = await at_work.match([envelope(5, "r")])
        assert [hit.match for hit in outcome.hits] == [{}]
        bad = {"name": "city", "expression": "//a["}
        with pytest.raises(XPathError, match="FMX"):
            await at_work.subscribe("r", bad)
        refused = await at_work.subscribe_all([("r", bad), ("r", CITY | {"name": "x"})])
        assert [(tenant, name) for tenant, name, _ in refused] == [("r", "city")]
        (outcome,) = await at_work.match([envelope(6, "r")])
        assert sorted(hit.statement for hit in outcome.hits) == ["city", "x"]
        kept = at_work.statements("r")
        assert {each["name"]: each["expression"] for each in kept} == {
            "city": SALE["expression"],
            "x": CITY["expression"],
        }
        with pytest.raises(StatementRefused, match="has no statement 'gone'"):
            await at_work.unsubscribe("r", "gone")
        with pytest.raises(StatementRefused, match="has no name"):
            await at_work.subscribe_all([("r", {"expression": "//a"})])

    runner.run(run())


def test_thousands_of_statements_are_there_from_the_start_and_later(index: Path) -> None:
    def many(first: int) -> list[tuple[str, dict[str, Any]]]:
        numbers = range(first, first + 5000)
        asks = [{"name": f"s{i}", "expression": f"//sale[@n = {i}]"} for i in numbers]
        return [("default", each) for each in asks]

    async def run() -> list[Outcome]:
        at_work = Engine(index, workers=1)
        await at_work.subscribe_all(many(0))
        async with at_work:
            assert await at_work.subscribe_all(many(5000)) == []
            return await at_work.match([envelope(i) for i in (1, 4999, 5000, 9999, 10000)])

    told = [[hit.statement for hit in each.hits] for each in asyncio.run(run())]
    assert told == [["s1"], ["s4999"], ["s5000"], ["s9999"], []]


# --- workers that die -------------------------------------------------------------------------


def test_a_worker_that_is_killed_loses_nothing(index: Path) -> None:
    async def run() -> None:
        random = Random(1)
        async with engine(index, CITY, workers=2, batch=8, queue=64) as at_work:
            await at_work.subscribe("default", SALE)

            async def lane(first: int) -> list[Outcome]:
                told = []
                for at in range(first, first + 1500, 50):
                    told += await at_work.match([envelope(i) for i in range(at, at + 50)])
                return told

            lanes = [asyncio.create_task(lane(1500 * number)) for number in range(3)]
            for _ in range(3):
                await asyncio.sleep(random.random() / 5)
                pids = at_work.snapshot()["pids"]
                if pids:
                    os.kill(random.choice(pids), signal.SIGKILL)
            outcomes = [each for one in await asyncio.gather(*lanes) for each in one]
            assert not any(each.poison or each.errors for each in outcomes)
            hits = hits_of(outcomes)
            assert found(hit for hit in hits if hit.statement == "city") == expected(range(4500))
            assert sum(hit.statement == "sale" for hit in hits) == 4500
            await until(lambda: at_work.snapshot()["workers"] == 2)
            assert at_work.snapshot()["counts"]["restarts"] >= 1

    asyncio.run(run())


def test_a_worker_that_does_not_take_all_statements_gets_no_messages(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it matched without one of them would be acknowledged, and its matches be missing."""
    trouble = tmp_path / "trouble"
    forgetful = f"""
from pathlib import Path
from fmware.service import worker
subscribe = worker.Worker.subscribe
def forgetful(self, statements):
    if Path({str(trouble)!r}).exists():
        return [[tenant, about["name"], "forgotten"] for tenant, about in statements]
    return subscribe(self, statements)
worker.Worker.subscribe = forgetful
worker.main()
"""
    monkeypatch.setattr(process, "START", forgetful)

    async def run() -> None:
        async with engine(index, CITY) as at_work:
            trouble.touch()
            os.kill(at_work.snapshot()["pids"][0], signal.SIGKILL)
            await until(lambda: not at_work.snapshot()["workers"])
            call = asyncio.create_task(at_work.match([envelope(i) for i in range(1, 5)]))
            await asyncio.sleep(1.0)
            assert not call.done()
            trouble.unlink()
            assert found(hits_of(await asyncio.wait_for(call, 60))) == expected(range(1, 5))
            assert [each["name"] for each in at_work.statements()] == ["city"]

    asyncio.run(run())


def test_a_worker_that_is_stuck_is_replaced(index: Path) -> None:
    async def run() -> None:
        async with engine(index, patience=1.0) as at_work:
            (pid,) = at_work.snapshot()["pids"]
            os.kill(pid, signal.SIGSTOP)
            outcomes = await asyncio.wait_for(at_work.match([envelope(1)]), 30)
            assert found(hits_of(outcomes)) == expected([1])
            assert at_work.snapshot()["pids"] != [pid]

    asyncio.run(run())


def test_a_message_that_workers_die_of_is_poison(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragile = """
import os
from fmware.service import worker
match = worker.Worker.match
def fragile(self, messages):
    if any(b"die" in body for *_, body in messages):
        os._exit(7)
    return match(self, messages)
worker.Worker.match = fragile
worker.main()
"""
    monkeypatch.setattr(process, "START", fragile)

    async def run() -> list[Outcome]:
        async with engine(index, batch=16, tries=2) as at_work:
            bodies = [*map(envelope, range(1, 20)), Envelope("deadly", b"<die/>")]
            return await asyncio.wait_for(at_work.match(bodies), 60)

    outcomes = asyncio.run(run())
    assert [each.poison for each in outcomes[:-1]] == [None] * 19
    assert outcomes[-1].poison == "2 workers ended while they matched it"
    assert found(hits_of(outcomes)) == expected(range(1, 20))


# --- bounds, generations, life ----------------------------------------------------------------


def test_no_more_is_under_way_than_the_queue_holds(index: Path) -> None:
    async def run() -> None:
        async with engine(index, queue=10, batch=4) as at_work:
            most = 0

            async def give(*_: object) -> None:
                nonlocal most
                now = at_work.snapshot()
                most = max(most, now["queue"])
                assert now["queue"] <= 10
                await asyncio.sleep(0.001)

            calls = [[envelope(9 * i + k) for k in range(1 + i % 9)] for i in range(40)]
            calls.append([envelope(1000 + k) for k in range(35)])
            told = await asyncio.gather(*(at_work.match(each, give) for each in calls))
            assert [len(each) for each in told] == [len(each) for each in calls]
            assert most > 4
            huge = Envelope("huge", message(1).replace(b">7<", b">" + b" " * 5000 + b"7<"))
            assert len((await at_work.match([huge]))[0].hits) == 1
            assert at_work.snapshot()["queue"] == at_work.snapshot()["queue_bytes"] == 0

    asyncio.run(run())


def test_what_was_found_counts_until_it_is_handed_over(index: Path) -> None:
    async def run() -> None:
        async with engine(index, queue_bytes=20_000) as at_work:
            given, door = 0, asyncio.Semaphore(0)

            async def give(*_: object) -> None:
                nonlocal given
                given += 1
                await door.acquire()

            # Small, and full of items: what is found is many times as large.
            items = "".join(f"<item sku='p{i}'><units>9</units></item>" for i in range(20))
            body = f"<sale>{items}</sale>".encode()
            calls = [
                asyncio.create_task(at_work.match([Envelope(f"m{i}", body)], give))
                for i in range(100)
            ]
            first = 20_000 // len(body)
            await until(lambda: given == first)
            assert at_work.snapshot()["queue_bytes"] > 20_000 + 2 * first * len(body)
            for _ in range(first // 2):
                door.release()
            await until(lambda: at_work.snapshot()["queue"] == first - first // 2)
            assert at_work.snapshot()["waiting"] == 100 - first
            for _ in range(100):
                door.release()
            outcomes = await asyncio.gather(*calls)
            assert sum(len(each.hits) for one in outcomes for each in one) == 2000
            now = at_work.snapshot()
            assert now["queue"] == now["queue_bytes"] == now["waiting"] == 0

    asyncio.run(run())


def test_a_call_that_is_cancelled_leaves_room_and_no_claim(index: Path) -> None:
    async def run() -> None:
        async with engine(index, queue=4) as at_work:
            shut = asyncio.Event()

            async def give(*_: object) -> None:
                await shut.wait()

            calls = [
                asyncio.create_task(at_work.match([envelope(4 * i + k) for k in range(3)], give))
                for i in range(4)
            ]
            await until(lambda: at_work.snapshot()["waiting"] == 9)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert at_work.snapshot()["queue"] == at_work.snapshot()["waiting"] == 0
            outcomes = await at_work.match([envelope(i) for i in range(16)])
            assert not any(each.duplicate for each in outcomes)

    asyncio.run(run())


def test_calls_that_were_given_up_wait_for_no_worker(index: Path) -> None:
    """They have left the gate: what stayed behind would be without bounds."""

    async def run() -> None:
        async with engine(index, queue=64) as at_work:
            (pid,) = at_work.snapshot()["pids"]
            os.kill(pid, signal.SIGSTOP)
            try:
                for call in range(8):
                    batch = [envelope(64 * call + each) for each in range(64)]
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(at_work.match(batch), 0.05)
                assert not at_work._pool.waiting
            finally:
                os.kill(pid, signal.SIGCONT)
            outcomes = await at_work.match([envelope(1)])
            assert found(hits_of(outcomes)) == expected([1])

    asyncio.run(run())


def test_a_new_generation_is_taken_up_without_a_restart(tmp_path: Path) -> None:
    index = shop(tmp_path)
    (tmp_path / "more.xml").write_text(stock(100, 101))
    body = b"<sale><item sku='p100'><units>7</units></item></sale>"

    async def run() -> None:
        async with engine(index, workers=2) as at_work:
            before = at_work.snapshot()
            (outcome,) = await at_work.match([Envelope("a", body)])
            assert (len(outcome.hits), outcome.unmatched) == (0, 1)
            await asyncio.to_thread(add, index, tmp_path / "more.xml")
            (outcome,) = await at_work.match([Envelope("b", body)])
            assert found(outcome.hits) == Counter({("b", "Ulm 100"): 1})
            # Also a worker that has nothing to do goes on with it.
            await until(lambda: at_work.snapshot()["generation"] > before["generation"])
            assert at_work.snapshot()["pids"] == before["pids"]

    asyncio.run(run())


def test_what_it_tells_of_itself(at_work: Engine, runner: asyncio.Runner) -> None:
    async def run() -> None:
        await ask(at_work, "told", CITY)
        await at_work.match([envelope(i, "told") for i in range(1, 100)])
        await until(lambda: at_work.snapshot()["operators"])
        now = at_work.snapshot()
        assert now["workers"] == now["workers_wanted"] == len(now["pids"]) == 2
        assert now["memory"] > 0
        assert sum(each["inputs"] for each in now["operators"].values()) > 0
        assert now["filter"]["documents"] > 0
        assert now["trouble"] == []
        assert {"filter", "identify", "match"} <= now["seconds"].keys()
        report, again = await asyncio.gather(at_work.report(), at_work.report())
        assert report is again
        names = {each["name"] for told in report["workers"] for each in told["statements"]}
        assert f"told{SEPARATOR}city" in names
        (again_told,) = await at_work.match([envelope(100, "told")])
        assert again_told.poison is None

    runner.run(run())


def test_stopping_finishes_what_was_begun(index: Path) -> None:
    async def run() -> None:
        at_work = engine(index, queue=16)
        with pytest.raises(EngineStopped):
            await at_work.match([envelope(1)])
        await at_work.start()
        calls = [asyncio.create_task(at_work.match([envelope(i)])) for i in range(200)]
        await asyncio.sleep(0)
        await at_work.stop()
        assert found(hits_of([(await call)[0] for call in calls])) == expected(range(200))
        with pytest.raises(EngineStopped):
            await at_work.match([envelope(1)])

    asyncio.run(run())


def test_stopping_at_once_fails_what_was_begun(index: Path) -> None:
    async def run() -> None:
        at_work = engine(index, queue=16)
        await at_work.start()
        calls = [asyncio.create_task(at_work.match([envelope(i)])) for i in range(200)]
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await at_work.stop()
        await at_work.stop(drain=False)
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(each, EngineStopped) for each in told)
        assert all(isinstance(each, EngineStopped | list) for each in told)

    asyncio.run(run())


def test_an_index_that_is_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="nowhere") as raised:
        asyncio.run(engine(tmp_path / "nowhere").start())
    assert isinstance(raised.value, FMwareError)
