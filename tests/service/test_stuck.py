"""`engine.message_seconds`: a worker that takes longer for a batch is replaced."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from fmware.service import process
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from pathlib import Path

XML = {"content-type": "application/xml"}
HANGING = """
import time
from fmware.service import worker
match = worker.Worker.match
def hanging(self, messages):
    while any(b"hang" in body for *_, body in messages):
        time.sleep(1)
    return match(self, messages)
worker.Worker.match = hanging
worker.main()
"""
"""How a worker begins that never comes to an end with some messages."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


def test_what_a_stuck_worker_had_is_matched_by_another(index: Path, tmp_path: Path) -> None:
    said = (f"index={index}", f"state={tmp_path}", "engine.message_seconds=2")
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        (pid,) = served.service.engine.snapshot()["pids"]
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        answer = client.post("/v1/messages", content=sale(), headers=XML).json()
        assert time.monotonic() - began > 2, "it had its time"
        assert [each["local"]["value"] for each in answer["matches"]] == ["C0"]
        assert "fmware_engine_restarts_total 1.0" in client.get("/metrics").text
        assert served.service.engine.snapshot()["pids"] != [pid]


def test_a_worker_that_is_slow_but_within_its_time_goes_on(index: Path, tmp_path: Path) -> None:
    said = (f"index={index}", f"state={tmp_path}", "engine.message_seconds=60")
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        (pid,) = served.service.engine.snapshot()["pids"]
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(3.0, os.kill, (pid, signal.SIGCONT)).start()
        answer = client.post("/v1/messages", content=sale(), headers=XML).json()
        assert len(answer["matches"]) == 1
        assert served.service.engine.snapshot()["pids"] == [pid]
        assert "fmware_engine_restarts_total 0.0" in client.get("/metrics").text


def test_a_message_that_no_worker_ends_with_is_a_dead_letter(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START", HANGING)
    said = (f"index={index}", f"state={tmp_path}", "engine.message_seconds=1", "engine.tries=2")
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        named = {"message-id": "bad", **XML}
        client.post("/v1/messages", content=b"<hang/>", headers=named)
        (letter,) = client.get("/v1/dead-letters").json()["letters"]
        assert (letter["id"], letter["body"]) == ("bad", "<hang/>")
        assert letter["reason"] == "2 workers ended while they matched it"
        assert "fmware_engine_faults_total 1.0" in client.get("/metrics").text
        answer = client.post("/v1/messages", content=sale(), headers=XML).json()
        assert len(answer["matches"]) == 1
