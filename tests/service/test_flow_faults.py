"""The service as a process: killed, told to stop, held up. `bench faults` does it in the large."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from bench import faults
from tests.service.shop import BAD, CITY, expected, found, message, need_nats, shop, until

ROOT = Path(__file__).parents[2]
EXACT = {"missing": 0, "repeated": 0, "dead_missing": 0, "dead_repeated": 0}


@pytest.mark.nats
def test_every_match_is_there_once_whatever_is_killed() -> None:
    need_nats()
    small = "--messages 3000 --kills 3 --terms 1 --pause 1.5 --workers 1 --most 100"
    rounds = cast("dict[str, dict[str, Any]]", faults.run(small.split()))
    kills, terms, pause = rounds["kills"], rounds["terms"], rounds["pause"]
    for each in (kills, terms, pause):
        assert {key: each[key] for key in EXACT} == EXACT
    assert (kills["matches"], kills["dead"], kills["reasons"]) == (2970, 30, 30)
    assert kills["redelivered"] > 0
    assert kills["orphans"] == kills["exit"] == pause["exit"] == 0
    assert terms["exits"] == {0: 2}
    # Held up: nothing is done, and nothing is piled up.
    assert pause["left"] > 1000
    assert pause["moved"] == 0
    assert pause["rss_growth_mb"] < 10


class Service:
    """`python -m fmware.service.run` on a directory of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "fmware.toml"
        (folder / "in").mkdir()
        returns = json.dumps(CITY["returns"])
        self.config.write_text(
            f"""
index = "index"
engine.workers = 1
statements = [{{ name = "city", expression = "{CITY["expression"]}", returns = {returns} }}]
sources = [{{ kind = "files", name = "in", path = "in", poll_seconds = 0.01 }}]
sinks = [{{ kind = "files", name = "out", path = "out" }}]
"""
        )

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "fmware.service.run", str(self.config)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )

    def lines(self, stem: str) -> list[Any]:
        paths = (self.folder / "out").glob(f"{stem}-*.jsonl")
        whole = b"".join(path.read_bytes() for path in paths).rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def left(self) -> int:
        return sum(1 for _ in (self.folder / "in").iterdir())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    shop(tmp_path)
    return Service(tmp_path)


def test_files_are_all_done_once_over_a_kill(service: Service) -> None:
    for number in range(1000):
        (service.folder / "in" / f"m{number}.xml").write_bytes(message(number))
    for number in range(3):
        (service.folder / "in" / f"bad{number}.xml").write_bytes(BAD)
    process = service.start()
    asyncio.run(until(lambda: len(service.lines("matches")) > 100))
    process.kill()
    process.communicate()
    assert service.left() > 0
    process = service.start()
    asyncio.run(until(lambda: not service.left()))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()
    hits = service.lines("matches")
    for hit in hits:
        hit["message"] = hit["message"].partition(".")[0]
    assert found(hits) == expected(range(1000))
    dead = service.lines("dead")
    assert sorted(letter["id"].partition(".")[0] for letter in dead) == ["bad0", "bad1", "bad2"]
    assert {letter["body"].encode() for letter in dead} == {BAD}


def test_what_keeps_it_from_starting_is_said(service: Service) -> None:
    (service.folder / "in").rmdir()
    process = service.start()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"is not a directory" in said
    assert b"Traceback" not in said
