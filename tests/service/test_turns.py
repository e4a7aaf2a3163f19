"""Turns: what never ends leaves room for the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fmware.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine

MOST = 100


class Ticks:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self._tick()

    def _tick(self) -> None:
        self.now += 1
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def stop(self) -> None:
        self._handle.cancel()


def run(asked: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(asked, 30))


@given(st.lists(st.integers(0, 150), min_size=1, max_size=60))
def test_so_much_is_done_in_a_turn_and_in_the_order_of_asking(sizes: list[int]) -> None:
    async def go() -> None:
        turns, ticks = Turns(MOST), Ticks()
        order: list[int] = []
        done: Counter[int] = Counter()
        alone: Counter[int] = Counter()

        async def one(number: int, size: int) -> None:
            await turns.take(size)
            order.append(number)
            done[ticks.now] += size
            alone[ticks.now] += size > 0

        await asyncio.gather(*(one(*each) for each in enumerate(sizes)))
        ticks.stop()
        assert order == list(range(len(sizes)))
        for tick, size in done.items():
            assert size <= MOST or alone[tick] == 1

    run(go())


def test_a_request_waits_for_turns_not_for_all_that_is_left_to_do() -> None:
    async def go() -> None:
        turns = Turns(MOST)
        taken = 0

        async def reader() -> None:
            nonlocal taken
            while True:
                await turns.take(MOST)
                taken += 1

        readers = [asyncio.create_task(reader()) for _ in range(50)]
        await asyncio.sleep(0)
        before = taken
        for _ in range(20):
            await asyncio.sleep(0)
        # One reader in a turn, not fifty.
        assert 5 <= taken - before <= 25
        for each in readers:
            each.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    run(go())


def test_those_who_leave_hold_up_nobody() -> None:
    async def go() -> None:
        turns = Turns(MOST)
        await turns.take(MOST)
        gone = [asyncio.create_task(turns.take(MOST)) for _ in range(10)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await turns.take(MOST)
        # And when all is done, what comes next need not wait.
        for _ in range(3):
            await asyncio.sleep(0)
        task = asyncio.create_task(turns.take(MOST))
        await asyncio.sleep(0)
        assert task.done()
        await asyncio.gather(*gone, task, return_exceptions=True)

    run(go())
