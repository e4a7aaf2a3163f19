"""Our fault is never success: over HTTP 5xx, from a broker not acknowledged; `/readyz` says so."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from fmware.service import process
from fmware.service.brokers.memory import MemorySink, MemorySource
from fmware.service.flow import Flow, Outlet
from tests.service.running import CITY, WAIT, Threaded, make_index, sale
from tests.service.shop import CITY as SHOP_CITY
from tests.service.shop import engine, expected, found, message, shop, until

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

XML = {"content-type": "application/xml"}
SHORT = """
import os
from fmware.filtering import FilterEngine
from fmware.service import worker
filter_many = FilterEngine.filter_many
def short(self, messages):
    messages = list(messages)
    if os.path.exists({flag!r}) and any(b"short" in each for each in messages):
        raise MemoryError("no memory was left to filter a document")
    return filter_many(self, messages)
FilterEngine.filter_many = short
worker.main()
"""
"""How a worker begins that has no memory for some messages, as long as a file is there."""
DYING = """
import os
from fmware.service import worker
match = worker.Worker.match
def dying(self, messages):
    if any(b"die" in body for *_, body in messages):
        os._exit(3)
    return match(self, messages)
worker.Worker.match = dying
worker.main()
"""
"""How a worker begins that dies of some messages."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workers have no memory for messages with `short` in them while this file is there."""
    path = tmp_path / "short"
    monkeypatch.setattr(process, "START", SHORT.format(flag=str(path)))
    path.touch()
    return path


def wait_for(client: httpx.Client, **wanted: Any) -> dict[str, Any]:
    """What `/readyz` says, once it says that."""
    deadline = time.monotonic() + WAIT
    while True:
        told: dict[str, Any] = client.get("/readyz").json()
        if all(told[key] == wanted[key] for key in wanted):
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.05)


def short(number: int = 7) -> bytes:
    return sale(number).replace(b"</sale>", b"<short/></sale>")


def test_without_memory_a_message_is_not_answered_and_may_come_again(
    index: Path, tmp_path: Path, flag: Path
) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        named = {"message-id": "one", **XML}
        refused = client.post("/v1/messages", content=short(), headers=named)
        assert refused.status_code == 503
        assert refused.json()["code"] == "not-matched"
        assert refused.json()["messages"] == ["one"]
        assert refused.headers["retry-after"] == "1"
        assert "no memory" in wait_for(client, status="degraded")["trouble"][0]
        assert client.get("/v1/dead-letters").json()["letters"] == []
        flag.unlink()
        again = client.post("/v1/messages", content=short(), headers=named)
        assert again.status_code == 200
        assert not again.json()["duplicate"]
        assert len(again.json()["matches"]) == 1


def test_others_in_a_batch_are_done_and_those_that_are_not_are_named(
    index: Path, tmp_path: Path, flag: Path
) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        batch = {"messages": [{"id": "good", "xml": sale().decode()}]}
        batch["messages"].append({"id": "short", "xml": short().decode()})
        refused = client.post("/v1/messages", json=batch)
        assert (refused.status_code, refused.json()["messages"]) == (503, ["short"])
        flag.unlink()
        done, late = client.post("/v1/messages", json=batch).json()["messages"]
        assert (done["duplicate"], late["duplicate"]) == (True, False)
        assert len(late["matches"]) == 1
        log = client.get("/v1/matches").json()["matches"]
        assert sorted(each["message"] for each in log) == ["good", "short"]


def test_a_receipt_waits_for_what_has_no_answer_and_has_all_of_it(
    index: Path, tmp_path: Path, flag: Path
) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        body = sale() + short(8)
        taken = client.post("/v1/messages?wait=false", content=body, headers=XML).json()
        deadline = time.monotonic() + WAIT
        while not client.get("/v1/matches").json()["matches"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        where = f"/v1/receipts/{taken['receipt']}"
        assert client.get(where).json()["state"] == "waiting"
        flag.unlink()
        while (told := client.get(where).json())["state"] == "waiting":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [len(each["matches"]) for each in told["answer"]["messages"]] == [1, 1]


def test_from_a_broker_it_is_given_back_and_others_are_acknowledged(
    tmp_path: Path, flag: Path
) -> None:
    async def run() -> None:
        async with engine(shop(tmp_path), SHOP_CITY) as made:
            source, sink = MemorySource("in"), MemorySink()
            flow = Flow(source, made, Outlet([sink]))
            await flow.start()
            for number in range(1, 5):
                body = message(number)
                if number == 2:
                    body = body.replace(b"</sale>", b"<short/></sale>")
                await source.send(body, f"m{number}")
            await until(lambda: flow.snapshot()["returned"] > 0)
            assert "m2" not in source.acknowledged
            assert sink.letters == []
            flag.unlink()
            await until(lambda: len(source.acknowledged) == 4)
            assert found([hit.to_json() for hit in sink.hits]) == expected(range(1, 5))
            assert sink.letters == []
            await flow.stop()

    asyncio.run(run())


def test_a_message_that_workers_die_of_is_our_fault(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START", DYING)
    said = (f"index={index}", f"state={tmp_path}", "engine.tries=2")
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        named = {"message-id": "bad", **XML}
        for _ in range(2):  # Nor is it a duplicate, and well, the second time.
            answer = client.post("/v1/messages", content=b"<die/>", headers=named)
            assert (answer.status_code, answer.json()["code"]) == (500, "matching-failed")
        (letter,) = client.get("/v1/dead-letters").json()["letters"]
        assert "workers ended while they matched it" in letter["reason"]


def test_what_own_statements_leave_undecided_is_no_success(index: Path, tmp_path: Path) -> None:
    said = (f"index={index}", f"state={tmp_path}", "limits.work=2000")
    dear = {"expression": "//sale[not(.//a[.//*[contains(., '8')]])]"}
    body = b"<sale>" + b"<a><units>7</units></a>" * 5000 + b"</sale>"
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/dear", json=dear).raise_for_status()
        client.put("/v1/statements/plain", json={"expression": "//sale"}).raise_for_status()
        alone = client.post("/v1/messages", content=body, headers=XML)
        assert (alone.status_code, alone.json()["code"]) == (422, "undecided")
        assert alone.json()["undecided"] == ["dear"]
        assert alone.json()["matched"] == 1
        batch = client.post("/v1/messages?batch=true", content=body, headers=XML)
        assert batch.json()["messages"][0]["undecided"] == ["dear"]
        (letter, _) = client.get("/v1/dead-letters").json()["letters"]
        assert letter["reason"] == "statement dear: not decided within the limit of work"
        assert wait_for(client, status="ok")


def test_a_statement_that_cannot_be_kept_is_not_registered(index: Path, tmp_path: Path) -> None:
    """The disk is full: 503, and neither the workers nor the disk have it; the old one is there."""
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        connection = served.service.store._database._connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        long = f"units = '{'7' * 5000}'"
        for name in ("city", "new"):
            refused = client.put(
                f"/v1/statements/{name}", json={"expression": f"//sale/item[{long}]"}
            )
            assert (refused.status_code, refused.json()["code"]) == (503, "not-kept")
        assert "disk is full" in wait_for(client, status="degraded")["trouble"][0]
        answer = client.post("/v1/messages", content=sale(), headers=XML).json()
        assert [each["statement"] for each in answer["matches"]] == ["city"]
        assert answer["matches"][0]["local"]["value"] == "C0"
        assert client.get("/v1/statements").json()["count"] == 1
