"""A gate: many inside at once, or one alone, who goes before those that come later."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from fmware.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable


def begun(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def until(holds: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if holds():
            return
        time.sleep(0.005)
    pytest.fail("it never came true")


class Visit:
    """A thread that enters, says so, and leaves when it is let."""

    def __init__(self, gate: Gate, *, alone: bool = False) -> None:
        self._gate, self._alone = gate, alone
        self.entered, self._leave = threading.Event(), threading.Event()
        self._thread = begun(self._visit)

    def _visit(self) -> None:
        with self._gate.alone() if self._alone else self._gate:
            self.entered.set()
            assert self._leave.wait(30)

    @property
    def waits(self) -> bool:
        return not self.entered.wait(0.05)

    def let(self) -> None:
        """Let it leave as soon as it has been inside."""
        self._leave.set()

    def leave(self) -> None:
        self.let()
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_many_are_inside_at_once() -> None:
    gate = Gate()
    visits = [Visit(gate) for _ in range(3)]
    assert all(visit.entered.wait(30) for visit in visits)
    for visit in visits:
        visit.leave()


def test_one_is_alone() -> None:
    gate = Gate()
    first = Visit(gate, alone=True)
    assert first.entered.wait(30)
    others = [Visit(gate), Visit(gate, alone=True)]
    assert all(visit.waits for visit in others)
    # Which of the two goes first is left open.
    for visit in others:
        visit.let()
    first.leave()
    for visit in others:
        visit.leave()
        assert visit.entered.is_set()


def test_one_that_waits_to_be_alone_goes_before_those_that_come_later() -> None:
    gate = Gate()
    inside = Visit(gate)
    assert inside.entered.wait(30)
    alone = Visit(gate, alone=True)
    until(lambda: gate._alone is not None)
    later = Visit(gate)
    assert alone.waits
    assert later.waits
    inside.leave()
    assert alone.entered.wait(30)
    assert later.waits
    alone.leave()
    assert later.entered.wait(30)
    later.leave()


def test_to_be_alone_may_be_nested() -> None:
    gate = Gate()
    with gate.alone(), gate.alone():
        other = Visit(gate)
        assert other.waits
    assert other.entered.wait(30)
    other.leave()


def test_a_thread_inside_steps_outside_to_be_alone() -> None:
    gate = Gate()
    with gate:
        with gate.outside(), gate.alone():
            assert gate._inside == 0
        assert gate._inside == 1
        with pytest.raises(KeyError), gate.outside():
            raise KeyError
        assert gate._inside == 1
    with gate.alone():
        pass


def test_what_fails_while_alone_lets_others_in() -> None:
    gate = Gate()
    with pytest.raises(KeyError), gate.alone():
        raise KeyError
    visit = Visit(gate)
    assert visit.entered.wait(30)
    visit.leave()


def test_a_wait_to_be_alone_that_is_interrupted_lets_others_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    inside = Visit(gate)
    assert inside.entered.wait(30)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gate._changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), gate.alone():
            pass
    other = Visit(gate)
    assert other.entered.wait(30)
    for visit in (inside, other):
        visit.leave()


def test_no_thread_is_inside_while_one_is_alone() -> None:
    gate = Gate()
    inside = together = alone = 0
    lock, stop = threading.Lock(), threading.Event()

    def enter() -> None:
        nonlocal inside, together
        while not stop.is_set():
            with gate:
                with lock:
                    inside += 1
                    together = max(together, inside)
                time.sleep(0)
                with lock:
                    inside -= 1

    def be_alone() -> None:
        nonlocal alone
        while not stop.is_set():
            with gate.alone():
                before = inside
                time.sleep(0)
                failures.extend([inside] if before or inside else [])
                alone += 1
            time.sleep(0.0005)

    failures: list[int] = []
    threads = [begun(act) for act in (enter, enter, enter, be_alone, be_alone)]
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert failures == []
    assert together > 1
    assert alone > 10
