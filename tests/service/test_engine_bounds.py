"""The window of messages that are done, and the gate: against simple models."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.service.dedupe import Window
from fmware.service.gate import Gate

STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "done", "release", "wait"]), st.integers(0, 5)),
    max_size=60,
)


@given(steps=STEPS, seconds=st.integers(0, 6), messages=st.integers(0, 4))
def test_the_window_is_as_its_model(
    steps: list[tuple[str, int]], seconds: int, messages: int
) -> None:
    async def run() -> None:
        now = 0.0
        window: Window[int] = Window(seconds, messages, clock=lambda: now)
        busy: set[int] = set()
        done: list[tuple[int, float]] = []
        for what, key in steps:
            if what == "wait":
                now += key
            elif what == "claim":
                fresh = key not in busy and key not in [each for each, _ in done]
                assert window.claim({key: None}) == ([key] if fresh else [])
                busy |= {key} if fresh else set()
            elif key in busy:
                busy.discard(key)
                if what == "done":
                    window.done([key])
                    done = [each for each in done if each[0] != key] + [(key, now)]
                else:
                    window.release([key])
            done = [each for each in done if each[1] > now - seconds]
            done = done[max(0, len(done) - messages) :]
            assert [key in window for key in range(6)] == [
                key in [each for each, _ in done] for key in range(6)
            ]
            assert len(window) <= messages

    asyncio.run(run())


def test_whoever_waits_for_a_busy_key_is_told_how_it_ended() -> None:
    async def run() -> None:
        window: Window[str] = Window(10, 10)
        assert window.claim({"a": 1, "b": 2}) == ["a", "b"]
        window.release(["b"])
        waiting = [asyncio.create_task(window.settled(["a", "b"])) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting[1:])
        window.release(["a"])
        await asyncio.gather(*waiting[1:])
        assert window.claim({"a": 1}) == ["a"]

    asyncio.run(run())


@settings(deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), max_size=25),
    messages=st.integers(1, 6),
    size=st.integers(1, 30),
    cancelled=st.sets(st.integers(0, 24)),
)
def test_the_gate_lets_in_what_fits_in_order_and_all_in_the_end(
    asked: list[tuple[int, int]], messages: int, size: int, cancelled: set[int]
) -> None:
    async def run() -> None:
        gate = Gate(messages, size)
        entered: list[int] = []

        async def pass_through(number: int, count: int, weight: int) -> None:
            await gate.enter(count, weight)
            entered.append(number)
            alone = gate.inside == count
            assert alone or (gate.inside <= messages and gate.bytes <= size)
            await asyncio.sleep(0)
            gate.leave(count, weight)

        tasks = [
            asyncio.create_task(pass_through(number, *each)) for number, each in enumerate(asked)
        ]
        await asyncio.sleep(0)
        for number in cancelled:
            if number < len(tasks) and number not in entered:
                tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert entered == sorted(entered)
        assert {number for number, task in enumerate(tasks) if not task.cancelled()} == {*entered}
        assert (gate.inside, gate.bytes, gate.waiting) == (0, 0, 0)

    asyncio.run(run())
