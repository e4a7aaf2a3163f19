"""Turns: work that never ends shares the loop with requests, a little of it at a time.

Readers that catch up always have something to send, and fifty of them would each send a chunk in
every turn of the loop, a request that needs ten turns waiting for five hundred chunks. So all of
them together do so much in a turn, in the order of asking, and no more.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Turns"]


class Turns:
    """`most` is what may be done in one turn of the loop, by all; more than that is done alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._turning = False

    async def take(self, size: int) -> None:
        """Wait until so much may be done."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            loop.call_soon(self._turn, loop)
        if not self._waiting and self._fits(size):
            self._done += size
            return
        future = loop.create_future()
        self._waiting.append((size, future))
        await future

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._done = 0
        while self._waiting and self._fits(self._waiting[0][0]):
            size, future = self._waiting.popleft()
            if not future.done():
                self._done += size
                future.set_result(None)
        # Those who were let in have their turn before this is called again.
        self._turning = bool(self._done)
        if self._turning:
            loop.call_soon(self._turn, loop)

    def _fits(self, size: int) -> bool:
        return not self._done or self._done + size <= self._most
