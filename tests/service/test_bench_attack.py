"""`python -m bench attack` on next to nothing: every figure is there, and a dead service is one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from bench import attack, hostile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TINY = ["--seconds", "1", "--scale", "0.01", "--workers", "1"]


@pytest.mark.slow
def test_figures_of_classes_and_the_worst_of_them() -> None:
    found: dict[str, Any] = attack.run([*TINY, "--classes", "sockets,damage"])
    for figure in attack.WORST:
        assert found[figure] == max(found[name][figure] for name in ("sockets", "damage"))
    for name in ("sockets", "damage"):
        assert found[name]["b_messages"] > 0
        assert found[name]["b_wrong_alone"] == 0
        assert found[name]["a_bytes"] > 0
        assert found[name]["stop_seconds"] > 0
    # B's ordinary messages are answered rightly while A does next to nothing.
    assert found["sockets"]["silent_wrong"] == 0


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attack._build(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def watched(index: Path, tmp_path: Path) -> Iterator[attack.Service]:
    service = attack.Service(index, tmp_path / "state", attack._options(TINY))
    yield service
    service.close()


async def _tallied(service: attack.Service, seconds: float, *, register: bool) -> attack.Tally:
    random = Random(1)
    messages = [attack._message(number, random) for number in range(10)]
    victim = attack.Victim(service, messages, patient=True)
    if register:
        await victim.register()
    tally = attack.Tally()
    await victim.load(seconds, tally)
    return tally


def test_a_worker_and_a_server_that_are_killed_are_counted(watched: attack.Service) -> None:
    began = time.monotonic()
    right = asyncio.run(_tallied(watched, 0.5, register=True))
    assert right.messages
    assert (right.lost, right.wrong) == (0, 0)
    os.kill(watched.pids()[1], signal.SIGSEGV)
    while not watched.signals and time.monotonic() - began < 30:
        time.sleep(0.05)
    assert [number for _, number in watched.signals] == [signal.SIGSEGV]
    assert watched.own_bytes() > 10 << 20
    watched.kill()
    lost = asyncio.run(_tallied(watched, 0.5, register=False))
    assert lost.lost > 0
    assert set(lost.refused) == {"0"}


def test_a_loop_that_stands_still_is_measured_while_it_does(watched: attack.Service) -> None:
    server, began = watched.pids()[0], time.monotonic()
    time.sleep(0.5)
    os.kill(server, signal.SIGSTOP)
    time.sleep(2.5)
    silent = watched.stall(began, time.monotonic())
    os.kill(server, signal.SIGCONT)
    time.sleep(0.5)
    assert silent > 1000
    assert watched.stall(began, time.monotonic()) > 2000


def test_a_wrong_answer_is_told_from_a_right_one() -> None:
    message = attack._message(0, Random(3))
    assert message.right.total() > 20
    hits = [{"statement": name, "local": {"value": value}} for name, value in message.right]
    assert attack._found({"matches": hits}) == message.right
    assert attack._found({"matches": hits[1:]}) != message.right


@pytest.mark.parametrize("name", hostile.PLANS)
def test_a_seed_draws_the_same_attack_again(name: str) -> None:
    plans = [hostile.PLANS[name](Random(seed), 0.01) for seed in (5, 5)]
    shots = [
        [*plan.first, *(shot for _, shot in zip(range(5), plan.shots, strict=False))]
        for plan in plans
    ]
    assert [(shot.path, shot.size, shot.body[10:]) for shot in shots[0]] == [
        (shot.path, shot.size, shot.body[10:]) for shot in shots[1]
    ]
    assert plans[0].first or shots[0] or plans[0].pings
