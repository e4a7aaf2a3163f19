"""Messages and hits in memory, for tests and for programs that have the service inside them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from fmware.service.envelope import DEFAULT, Envelope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from fmware.service.envelope import DeadLetter, Hit

__all__ = ["MemoryDelivery", "MemorySink", "MemorySource"]


@dataclass(slots=True)
class MemoryDelivery:
    """A message that goes back into its source if it is not done."""

    envelope: Envelope
    source: MemorySource
    attempts: int = 1

    async def ack(self) -> None:
        self.source.acknowledged.append(self.envelope.id)

    async def nack(self, delay: float) -> None:
        again = MemoryDelivery(self.envelope, self.source, self.attempts + 1)
        self.source.back(again, delay)


class MemorySource:
    """Gives what `send` was given; `send` waits while `size` messages are not taken yet."""

    def __init__(self, name: str, tenant: str = DEFAULT, size: int = 1024) -> None:
        self.name = name
        self.acknowledged: list[str] = []
        self._tenant = tenant
        self._room = asyncio.Semaphore(size)
        self._queue: asyncio.Queue[MemoryDelivery | None] = asyncio.Queue()

    async def send(self, body: bytes, id: str | None = None) -> None:  # noqa: A002
        """Have a message matched; it gets an id if it has none."""
        await self._room.acquire()
        envelope = Envelope(id or uuid4().hex, body, self._tenant, self.name)
        self._queue.put_nowait(MemoryDelivery(envelope, self))

    def end(self) -> None:
        """There are no more."""
        self._queue.put_nowait(None)

    def back(self, delivery: MemoryDelivery, delay: float) -> None:
        """Give a message again, in a while."""
        asyncio.get_running_loop().call_later(delay, self._queue.put_nowait, delivery)

    async def open(self) -> None:
        """Nothing to open."""

    async def deliveries(self) -> AsyncGenerator[MemoryDelivery, None]:
        while (delivery := await self._queue.get()) is not None:
            if delivery.attempts == 1:
                self._room.release()
            yield delivery

    async def close(self) -> None:
        """What is not done is still there."""


class MemorySink:
    """Keeps all it is given."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.hits: list[Hit] = []
        self.letters: list[DeadLetter] = []

    async def open(self) -> None:
        """Nothing to open."""

    async def write(self, hits: Sequence[Hit]) -> None:
        self.hits += hits

    async def dead(self, letter: DeadLetter) -> None:
        self.letters.append(letter)

    async def close(self) -> None:
        """What was kept stays."""
