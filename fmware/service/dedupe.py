"""Which messages were handed over lately, so that a repeated one is not matched again.

A message is *busy* from when a caller claims it until that caller says how it ended. `done`: its
hits are where they should be, and a repeat within the window is a duplicate. `release`: they are
not, and the next caller claims it anew. So a message that failed is never held to be done, and of
two at the same time only one runs.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from fmware.service.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

__all__ = ["Window"]

K = TypeVar("K", bound="Hashable")


class Window(Generic[K]):
    """Keys that are done, for so many seconds and so many of them; and those that are busy.

    Memory is bounded by `messages` beside what is busy. With 0 of either nothing is remembered,
    but two of the same at once still wait for each other.
    """

    def __init__(
        self, seconds: float, messages: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._messages = messages
        self._clock = clock
        self._done: Recent[K, float] = Recent()
        self._busy: dict[K, asyncio.Future[None] | None] = {}
        """With a future from when the first caller waits for it."""

    def __len__(self) -> int:
        return len(self._done)

    def __contains__(self, key: K) -> bool:
        """Whether the key was done within the window."""
        self._forget()
        return key in self._done

    def claim(self, keys: Mapping[K, object]) -> list[K]:
        """Those of some keys that are the caller's now; the others are done or busy."""
        self._forget()
        done = self._done.among(keys)
        mine = [key for key in keys if key not in done and key not in self._busy]
        self._busy.update(dict.fromkeys(mine))
        return mine

    async def settled(self, keys: Iterable[K]) -> None:
        """Wait until none of these keys is busy with whom it is busy now."""
        for future in [self._ending(key) for key in keys if key in self._busy]:
            await asyncio.shield(future)

    def _ending(self, key: K) -> asyncio.Future[None]:
        future = self._busy[key]
        if future is None:
            future = self._busy[key] = asyncio.get_running_loop().create_future()
        return future

    def done(self, keys: Collection[K]) -> None:
        """What was claimed has been handed over."""
        self._done.put_all(dict.fromkeys(keys, self._clock()))
        self.release(keys)
        self._forget()

    def release(self, keys: Iterable[K]) -> None:
        """What was claimed has not been handed over: it may be claimed again."""
        for key in keys:
            self._free(key)

    def _free(self, key: K) -> None:
        future = self._busy.pop(key, None)
        if future is not None and not future.done():
            future.set_result(None)

    def _forget(self) -> None:
        oldest = self._clock() - self._seconds
        while self._done:
            if len(self._done) <= self._messages and self._done.first() > oldest:
                return
            self._done.drop()
