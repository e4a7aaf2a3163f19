"""An index that is damaged under a running service: no wrong answer, no message lost or blamed."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from fmware.index.repair import repair
from fmware.index.scrub import Scrub
from fmware.service import process, scrubber
from fmware.service.brokers.memory import MemorySink, MemorySource
from fmware.service.envelope import Envelope
from fmware.service.errors import IndexDamaged
from fmware.service.flow import Flow, Outlet
from tests.damage import KINDS, damage, files_of
from tests.service.running import CITY as CITIES
from tests.service.running import Threaded, sale
from tests.service.shop import ITEMS, engine, envelope, expected, found, message, shop, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fmware.service.engine import Engine
    from fmware.service.envelope import Outcome


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return shutil.copytree(built, tmp_path / "index")


def hits_of(outcomes: Iterable[Outcome]) -> Any:
    return found(hit for outcome in outcomes for hit in outcome.hits)


async def ask(at_work: Engine, numbers: range, mark: str = "") -> list[Outcome]:
    """Messages under names that were not used before."""
    envelopes = [Envelope(f"m{i}{mark}", message(i)) for i in numbers]
    return await asyncio.wait_for(at_work.match(envelopes), 60)


def right(outcomes: list[Outcome], numbers: range, mark: str = "") -> bool:
    wanted = {(name + mark, city): n for (name, city), n in expected(numbers).items()}
    good = not any(each.poison or each.errors for each in outcomes)
    return good and hits_of(outcomes) == wanted


# --- any damage, at any time --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_damage_under_load_gives_no_wrong_answer_and_no_dead_letter(index: Path, seed: int) -> None:
    """Files of each kind are written to while messages are matched; then they are put back."""
    randomly = random.Random(seed)
    names = files_of(index)
    good = {name: (index / name).read_bytes() for name in names}
    refused = 0

    async def load(at_work: Engine, over: asyncio.Event, lane: int) -> None:
        nonlocal refused
        turn = 0
        while not over.is_set():
            turn += 1
            numbers = range(10 * turn % ITEMS, 10 * turn % ITEMS + 10)
            mark = f"/{lane}.{turn}"
            try:
                outcomes = await ask(at_work, numbers, mark)
            except IndexDamaged:
                refused += 1
                await asyncio.sleep(0.01)
                continue
            assert right(outcomes, numbers, mark), outcomes

    async def run() -> None:
        async with engine(index, workers=2, tries=2, scrub=1 << 30) as at_work:
            over = asyncio.Event()
            lanes = [asyncio.create_task(load(at_work, over, lane)) for lane in range(2)]
            await asyncio.sleep(0.3)
            for _ in range(3):
                name = randomly.choice(names)
                damage(index / name, randomly.choice(KINDS), randomly)
                await until(lambda: at_work.snapshot()["index"]["state"] == "damaged", 30)
                assert name in at_work.snapshot()["index"]["reason"]
                with pytest.raises(IndexDamaged):
                    await at_work.match([envelope(1)])
                (index / name).write_bytes(good[name])
                await asyncio.wait_for(at_work.whole(), 30)
                await ask(at_work, range(20), f"/{_}")
            over.set()
            await asyncio.gather(*lanes)
            assert at_work.snapshot()["counts"]["poison"] == 0
            assert at_work.snapshot()["index"]["damages"] == 3
            numbers = range(ITEMS)
            assert right(await ask(at_work, numbers, "/last"), numbers, "/last")

    asyncio.run(run())
    assert refused


def test_a_service_without_work_notices_too(index: Path) -> None:
    """Also if the times of a file are put back, which bytes that rot do not change at all."""

    async def run() -> None:
        async with engine(index, scrub=1 << 30) as at_work:
            name = files_of(index)[1]
            at = (index / name).stat()
            damage(index / name, "byte", random.Random(1))
            os.utime(index / name, ns=(at.st_atime_ns, at.st_mtime_ns))
            await until(lambda: at_work.snapshot()["index"]["state"] == "damaged", 30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scrubber, "REST", 0.05)
        asyncio.run(run())


def test_a_file_that_was_only_touched_costs_a_moment(index: Path) -> None:
    async def run() -> None:
        async with engine(index) as at_work:
            assert right(await ask(at_work, range(20)), range(20))
            before = at_work.snapshot()["pids"]
            os.utime(index / files_of(index)[0])
            assert right(await ask(at_work, range(20, 40)), range(20, 40))
            now = at_work.snapshot()
            assert (now["index"]["state"], now["index"]["damages"]) == ("sound", 0)
            assert now["index"]["checks"] == 1
            assert now["pids"] != before

    asyncio.run(run())


def test_a_file_that_is_replaced_by_a_bad_one_is_noticed(index: Path) -> None:
    """Workers still have the old one: nothing is wrong yet, and would be after a restart."""

    async def run() -> None:
        async with engine(index) as at_work:
            file = index / files_of(index)[0]
            good = file.read_bytes()
            other = index / "other"
            other.write_bytes(good)
            damage(other, "page", random.Random(2))
            await asyncio.sleep(1.5)
            other.rename(file)
            await until(lambda: at_work.snapshot()["index"]["state"] == "damaged", 30)
            file.write_bytes(good)
            await asyncio.wait_for(at_work.whole(), 30)
            assert right(await ask(at_work, range(20)), range(20))

    asyncio.run(run())


def test_the_scrubber_keeps_to_its_rate(index: Path) -> None:
    size = sum(each.stat().st_size for each in index.rglob("*.mdb"))

    async def run(rate: int) -> int:
        async with engine(index, scrub=rate) as at_work:
            began = time.monotonic()
            await asyncio.sleep(1.0)
            read: int = at_work.snapshot()["index"]["scrubbed_bytes"]
            # A file of this index is read at once.
            assert read <= rate * (time.monotonic() - began + 1) + size
            return read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scrubber, "REST", 0.0)
        assert asyncio.run(run(0)) == 0
        slow, fast = asyncio.run(run(1 << 16)), asyncio.run(run(1 << 24))
        assert 0 < slow < fast


# --- whose fault it is --------------------------------------------------------------------------

DYING = """
import os
from fmware.service import worker
match = worker.Worker.match
def fragile(self, messages):
    if any(b"die" in body for *_, body in messages) and {when}:
        {how}
    return match(self, messages)
worker.Worker.match = fragile
worker.main()
"""


@pytest.mark.parametrize("how", ["os._exit(7)", "raise RuntimeError('what?')"])
def test_a_message_is_not_blamed_for_a_damaged_index(
    index: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Workers die, or err, as they may on a damaged page of which the file system knows nothing."""
    file = index / files_of(index)[0]
    good = file.read_bytes()
    flag = index.parent / "flag"
    text = DYING.format(when=f"os.path.exists({str(flag)!r})", how=how)
    monkeypatch.setattr(process, "START", text)
    monkeypatch.setattr(scrubber.Scrubber, "_look", lambda self: "")

    async def run() -> None:
        async with engine(index, tries=2, scrub=0) as at_work:
            flag.touch()
            poison = Envelope("truly", b"<die/>")
            (outcome,) = await asyncio.wait_for(at_work.match([poison]), 60)
            assert outcome.fault
            at = file.stat()
            damage(file, "page", random.Random(3))
            os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
            with pytest.raises(IndexDamaged):
                await asyncio.wait_for(at_work.match([Envelope("m1", b"<die/>")]), 60)
            file.write_bytes(good)
            flag.unlink()
            await asyncio.wait_for(at_work.whole(), 30)
            (outcome,) = await asyncio.wait_for(at_work.match([Envelope("m1", b"<die/>")]), 60)
            assert (outcome.poison, outcome.duplicate) == (None, False)

    asyncio.run(run())


def test_a_message_that_a_sound_index_cannot_be_asked_with_ends(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not have the index verified for ever, and others are matched."""
    how = "from fmware.index import CorruptIndex; raise CorruptIndex('a', 'does not add up')"
    monkeypatch.setattr(process, "START", DYING.format(when="True", how=how))

    async def run() -> None:
        async with engine(index, tries=2, batch=8) as at_work:
            envelopes = [*map(envelope, range(1, 8)), Envelope("odd", b"<die/>")]
            outcomes = await asyncio.wait_for(at_work.match(envelopes), 60)
            assert [each.poison for each in outcomes[:-1]] == [None] * 7
            assert outcomes[-1].fault
            assert "does not add up" in str(outcomes[-1].poison)
            assert hits_of(outcomes) == expected(range(1, 8))
            assert at_work.snapshot()["index"]["damages"] == 0

    asyncio.run(run())


def test_messages_of_a_source_wait_and_no_attempt_counts(index: Path) -> None:
    async def run() -> None:
        async with engine(index, workers=1) as at_work:
            source, sink = MemorySource("in"), MemorySink()
            flow = Flow(source, at_work, Outlet([sink]), attempts=1)
            await flow.start()
            await source.send(message(1), "m1")
            await until(lambda: source.acknowledged == ["m1"])
            file = index / files_of(index)[0]
            good = file.read_bytes()
            damage(file, "page", random.Random(4))
            for number in range(2, 30):
                await source.send(message(number), f"m{number}")
            await until(lambda: at_work.snapshot()["index"]["state"] == "damaged", 30)
            await asyncio.sleep(0.5)
            assert source.acknowledged == ["m1"]
            assert flow.snapshot()["returned"] == 0
            file.write_bytes(good)
            await until(lambda: len(source.acknowledged) == 29)
            await flow.stop(10)
            assert found(sink.hits) == expected(range(1, 30))
            assert sink.letters == []

    asyncio.run(run())


def test_a_flow_that_waits_for_the_index_can_be_stopped(index: Path) -> None:
    async def run() -> None:
        async with engine(index, workers=1) as at_work:
            source, sink = MemorySource("in"), MemorySink()
            flow = Flow(source, at_work, Outlet([sink]))
            await flow.start()
            damage(index / files_of(index)[0], "page", random.Random(4))
            await source.send(message(1), "m1")
            await until(lambda: at_work.snapshot()["index"]["state"] == "damaged", 30)
            await asyncio.wait_for(flow.stop(0.2), 10)
            assert flow.snapshot()["returned"] == 1
            assert (source.acknowledged, sink.letters) == ([], [])

    asyncio.run(run())


# --- over HTTP ----------------------------------------------------------------------------------


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_it_is_said_over_http_and_over_when_it_is_repaired(tmp_path: Path) -> None:
    from tests.service.running import make_index

    index = make_index(tmp_path)
    with (
        Threaded(f"index={index}", f"state={tmp_path}/state") as service,
        service.client() as client,
    ):
        client.put("/v1/statements/city", json=CITIES).raise_for_status()
        wanted = client.post("/v1/messages", content=sale(8)).json()["matches"]
        assert wanted
        damage(index / files_of(index)[0], "page", random.Random(5), pages=3)
        refused = client.post("/v1/messages", content=sale(8))
        assert (refused.status_code, refused.json()["code"]) == (503, "index-damaged")
        assert refused.headers["Retry-After"]
        told = client.get("/readyz")
        assert (told.status_code, told.json()["status"]) == (503, "damaged")
        assert files_of(index)[0] in told.json()["trouble"][0]
        assert client.get("/healthz").status_code == 200
        assert "fmware_index_damaged 1.0" in client.get("/metrics").text
        taken = client.post("/v1/messages?wait=false", content=sale(9))
        assert taken.status_code == 202
        assert client.get("/v1/dead-letters").json()["letters"] == []
        assert repair(index).whole
        eventually(lambda: client.get("/readyz").json()["status"] == "ok")
        assert "fmware_index_damaged 0.0" in client.get("/metrics").text
        again = client.post("/v1/messages", content=sale(8)).json()["matches"]
        assert [each["local"] for each in again] == [each["local"] for each in wanted]
        receipt = f"/v1/receipts/{taken.json()['receipt']}"
        eventually(lambda: client.get(receipt).json()["state"] == "done")
        assert client.get(receipt).json()["answer"]["messages"][0]["matches"]
        assert client.get("/v1/dead-letters").json()["letters"] == []


def test_an_engine_stops_while_its_index_is_verified(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: a large index is read for minutes."""

    def endless(self: Scrub) -> bool:
        time.sleep(0.01)
        return self.passes > 0

    monkeypatch.setattr(Scrub, "step", endless)

    async def run() -> None:
        at_work = engine(index, scrub=0)
        await at_work.start()
        os.utime(index / files_of(index)[0])
        waiting = asyncio.create_task(at_work.match([envelope(1)]))
        await until(lambda: at_work.snapshot()["index"]["state"] == "checking")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await at_work.stop()
        await asyncio.wait_for(at_work.stop(drain=False), 10)
        with pytest.raises(Exception, match="stopped"):
            await waiting

    asyncio.run(run())
