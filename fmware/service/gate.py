"""A bound on what is under way: so many messages, and so many bytes of them."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Gate"]


class Gate:
    """Lets in who fits, in the order of asking; what is larger than the gate goes through alone."""

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size
        self.inside = 0
        self.bytes = 0
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Messages that are not in yet."""
        return sum(count for count, _, _ in self._waiting)

    async def enter(self, count: int, size: int) -> None:
        """Wait until there is room."""
        if not self._waiting and self._fits(count, size):
            self._take(count, size)
            return
        future = asyncio.get_running_loop().create_future()
        place = (count, size, future)
        self._waiting.append(place)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                if place in self._waiting:
                    self._waiting.remove(place)
                self._admit()
            else:
                self.leave(count, size)
            raise

    def grow(self, size: int) -> None:
        """What is inside takes more room; nobody is sent away for it, but others wait."""
        self.bytes += size

    def leave(self, count: int, size: int) -> None:
        """Make room."""
        self.inside -= count
        self.bytes -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            count, size, future = self._waiting[0]
            if not self._fits(count, size):
                return
            self._waiting.popleft()
            if not future.done():
                self._take(count, size)
                future.set_result(None)

    def _fits(self, count: int, size: int) -> bool:
        if not self.inside:
            return True
        return self.inside + count <= self.messages and self.bytes + size <= self.size

    def _take(self, count: int, size: int) -> None:
        self.inside += count
        self.bytes += size
