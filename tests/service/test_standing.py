"""Sinks that take nothing: when they are held to be stuck, and that it passes by itself."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from fmware.service.standing import QUIET, Standing
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fmware.service.envelope import DeadLetter, Hit

XML = {"content-type": "application/xml"}


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def standing(clock: Clock) -> Standing:
    return Standing(clock)


def test_a_sink_is_stuck_while_it_hangs_or_fails(clock: Clock, standing: Standing) -> None:
    assert standing.stuck() == 0
    standing.begin()
    clock.now += 5
    standing.failed()
    clock.now += 5
    assert (standing.stuck(), standing.failing, standing.failures) == (10, True, 1)
    standing.took()
    assert (standing.stuck(), standing.failing, standing.failures) == (0, False, 1)


def test_a_sink_that_takes_what_others_give_is_not_stuck(clock: Clock, standing: Standing) -> None:
    standing.begin()
    for _ in range(10):
        clock.now += 10
        standing.begin()
        standing.took()
        assert standing.stuck() == 0
    clock.now += 3
    assert standing.stuck() == 3


def test_those_who_gave_up_have_found_out_something(clock: Clock, standing: Standing) -> None:
    for _ in range(3):
        standing.begin()
        clock.now += 10
        standing.left()
        clock.now += QUIET - 1
    assert standing.stuck() == 3 * 10 + 3 * (QUIET - 1)


def test_a_sink_that_nobody_tries_is_not_stuck_until_it_fails_again(
    clock: Clock, standing: Standing
) -> None:
    standing.begin()
    standing.failed()
    standing.left()
    clock.now += QUIET + 1
    assert standing.stuck() == 0
    # It is known to fail: whoever tries next does not begin to wait anew.
    standing.begin()
    assert standing.stuck() == QUIET + 1
    standing.took()
    assert standing.stuck() == 0


def test_one_that_was_given_up_long_ago_says_nothing_of_now(
    clock: Clock, standing: Standing
) -> None:
    standing.begin()
    standing.left()
    clock.now += 3600
    standing.begin()
    assert standing.stuck() == 0


class Valve:
    """A sink that fails, or hangs, until it is opened."""

    hangs = False
    opened = threading.Event()

    def __init__(self, name: str) -> None:
        self.name = name

    async def open(self) -> None: ...

    async def write(self, hits: Sequence[Hit]) -> None:
        while not self.opened.is_set():
            if not self.hangs:
                raise OSError(f"no room for {len(hits)}")
            await asyncio.sleep(0.01)

    async def dead(self, letter: DeadLetter) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.parametrize("hangs", [False, True])
def test_the_service_is_not_ready_while_a_sink_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    monkeypatch.setattr(Valve, "hangs", hangs)
    monkeypatch.setattr(Valve, "opened", threading.Event())
    sink = 'sinks=[{name="valve", kind="python", use="tests.service.test_standing:Valve"}]'
    bounds = "server.sink_stuck_seconds=0.5", "server.request_seconds=1"
    index = make_index(tmp_path)
    with (
        Threaded(f"index={index}", f"state={tmp_path / 'state'}", sink, *bounds) as served,
        served.client() as client,
    ):
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        assert client.get("/readyz").json()["status"] == "ok"
        assert client.post("/v1/messages", content=sale(1), headers=XML).status_code == 503
        told = client.get("/readyz")
        assert told.status_code == 503
        assert told.json()["status"] == "stuck"
        assert set(told.json()["sinks"]) == {"valve"}
        assert told.json()["sinks"]["valve"] > 0.5
        assert "sink valve has taken nothing for" in told.json()["trouble"][0]
        assert 'fmware_sink_stuck_seconds{sink="log"} 0.0' in client.get("/metrics").text
        # It lives, and it works again as soon as the sink does.
        assert client.get("/healthz").status_code == 200
        Valve.opened.set()
        client.post("/v1/messages", content=sale(2), headers=XML).raise_for_status()
        told = client.get("/readyz")
        assert (told.status_code, told.json()["status"]) == (200, "ok")
        assert "sinks" not in told.json()
