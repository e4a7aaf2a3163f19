"""Try-outs run where their failure hurts nobody: in a process with a bound in bytes and seconds."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fmware.service.problems import Problem
from fmware.service.sandbox import WAITING, Sandbox
from fmware.service.settings import Settings
from tests.service.running import CITY, ROOT, Threaded, make_index, sale
from tests.service.shop import until

if TYPE_CHECKING:
    import httpx

MANY = "".join(f"<a{number}/>" for number in range(60_000))
LARGE = f"<r xmlns='urn:{'x' * 100_000}'>{MANY}</r>"
"""A message whose names, each with its namespace, take thousands of times its bytes."""
GOOD: dict[str, object] = {"statement": CITY, "message": sale().decode()}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_try_out_without_memory_is_ended_and_the_next_one_is_answered(
    index: Path, tmp_path: Path
) -> None:
    said = (f"index={index}", f"state={tmp_path}", "engine.sandbox_bytes=67108864")
    with Threaded(*said) as served, served.client() as client:
        assert client.post("/v1/try", json=GOOD).status_code == 200
        first = served.service.trial.pid
        before = resident(os.getpid())
        for _ in range(3):
            asked = {"statement": {"expression": "//*", "returns": ["message"]}, "message": LARGE}
            answer = client.post("/v1/try", json=asked)
            assert answer.status_code == 503
            assert answer.json()["code"] == "too-much"
            assert "memory" in answer.json()["detail"] or "brought" in answer.json()["detail"]
        assert resident(os.getpid()) - before < 50 * len(LARGE)
        assert client.post("/v1/try", json=GOOD).json()["matches"]
        assert served.service.trial.pid not in (0, first)
        answer = client.post("/v1/messages", content=sale(), headers={"content-type": "text/xml"})
        assert answer.status_code == 200
        assert 'fmware_sandbox_ended_total{sandbox="trial"} 3.0' in client.get("/metrics").text


def test_a_sandbox_that_dies_says_so_to_the_one_that_asked(index: Path, tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        assert client.post("/v1/try", json=GOOD).status_code == 200
        pid = served.service.trial.pid
        os.kill(pid, signal.SIGSTOP)
        asking = threading.Thread(target=lambda: answers.append(client.post("/v1/try", json=GOOD)))
        asking.start()
        with served.client() as other:
            while not served.service.trial._busy:
                time.sleep(0.01)
            os.kill(pid, signal.SIGKILL)
            asking.join(60)
            assert other.post("/v1/try", json=GOOD).json()["matches"]
    assert (answers[0].status_code, answers[0].json()["code"]) == (503, "too-much")


def test_what_takes_too_long_is_ended(index: Path) -> None:
    async def run() -> None:
        sandbox = Sandbox(Settings.model_validate({"index": index}), what="it", seconds=1.0)
        await sandbox.ask("a", "validate", {"name": "x", **CITY})
        os.kill(sandbox.pid, signal.SIGSTOP)
        with pytest.raises(Problem, match="took more than 1 seconds") as raised:
            await sandbox.ask("a", "validate", {"name": "x", **CITY})
        assert raised.value.status == 503
        await sandbox.close()

    asyncio.run(run())


def test_tenants_have_turns_and_none_has_all_places(index: Path) -> None:
    async def run() -> list[str]:
        sandbox = Sandbox(Settings.model_validate({"index": index}), what="it", seconds=60.0)
        order: list[str] = []

        async def ask(tenant: str) -> None:
            await sandbox.ask(tenant, "validate", {"name": "x", **CITY})
            order.append(tenant)

        await ask("a")
        os.kill(sandbox.pid, signal.SIGSTOP)
        asked = [asyncio.create_task(ask("a")) for _ in range(1 + WAITING // 2)]
        await until(lambda: sum(map(len, sandbox._waiting.values())) == WAITING // 2)
        with pytest.raises(Problem, match="many others") as raised:
            await ask("a")
        assert (raised.value.status, raised.value.code) == (503, "busy")
        asked.append(asyncio.create_task(ask("b")))
        await asyncio.sleep(0)
        os.kill(sandbox.pid, signal.SIGCONT)
        await asyncio.gather(*asked)
        await sandbox.close()
        return order

    order = asyncio.run(run())
    assert order.index("b") <= 3


def test_one_who_leaves_does_not_hold_up_the_others(index: Path) -> None:
    async def run() -> None:
        sandbox = Sandbox(Settings.model_validate({"index": index}), what="it", seconds=60.0)
        about = {"name": "x", **CITY}
        await sandbox.ask("a", "validate", about)
        os.kill(sandbox.pid, signal.SIGSTOP)
        first, second, third = (
            asyncio.create_task(sandbox.ask("a", "validate", about)) for _ in range(3)
        )
        await until(lambda: sum(map(len, sandbox._waiting.values())) == 2)
        second.cancel()
        first.cancel()
        assert (await third)[1]
        await sandbox.close()

    asyncio.run(run())


def test_a_worker_has_a_bound_in_bytes(index: Path) -> None:
    code = """
import sys
from fmware.service.memory import bound_memory
bound_memory(100 << 20)
held = bytearray(50 << 20)
try:
    more = bytearray(200 << 20)
except MemoryError:
    print("bounded")
"""
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout == "bounded\n"


def test_every_process_that_reads_messages_is_bounded(index: Path, tmp_path: Path) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}") as served, served.client() as client:
        assert client.post("/v1/try", json=GOOD).status_code == 200
        pids = [*served.service.engine.snapshot()["pids"], served.service.trial.pid]
        for pid in pids:
            soft, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
            assert 0 < soft < 4 << 30
