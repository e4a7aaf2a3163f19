"""Changes that are seen through, also if whoever asked for them has gone or waited too long.

What is in memory must be on disk, and the other way round: half a change would be neither.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Changes"]

Answer = TypeVar("Answer")


class Changes:
    """Those that are under way."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Future[Any]] = set()

    async def whole(self, change: Coroutine[Any, Any, Answer]) -> Answer:
        """Make a change; it goes on if the caller does not."""
        task = asyncio.ensure_future(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def end(self, seconds: float) -> None:
        """Wait until all are made; those that take longer are as if the service had been killed."""
        if not self._under_way:
            return
        _, late = await asyncio.wait(self._under_way, timeout=seconds)
        for each in late:
            each.cancel()
        await asyncio.gather(*late, return_exceptions=True)
