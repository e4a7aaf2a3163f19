"""Standard input and output: documents one after the other in, JSON lines out.

A pipe cannot give a message again: what is read and not handed over when the service dies is lost,
unless whoever writes into the pipe writes it again. Everything else is as with other sources: a
sink that fails holds up the reading, and what was read is finished before the end. A reader of the
output that is slow, or stopped, does the same.

A dead letter is a line `{"dead": {...}}` among the hits.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from fmware.service.brokers.cut import Cutter
from fmware.service.envelope import DEFAULT, Envelope
from fmware.service.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from fmware.service.envelope import DeadLetter, Hit

__all__ = ["StdioDelivery", "StdioSink", "StdioSource"]

CHUNK: Final = 1 << 16


@dataclass(slots=True)
class StdioDelivery:
    """A document of the input."""

    envelope: Envelope
    source: StdioSource
    attempts: int = 1

    async def ack(self) -> None:
        self.source.left -= 1

    async def nack(self, delay: float) -> None:
        self.source.back(StdioDelivery(self.envelope, self.source, self.attempts + 1), delay)


class StdioSource:
    """The documents of a pipe or a file; it ends with it, when all are done."""

    def __init__(
        self, name: str, *, tenant: str = DEFAULT, largest: int = 64 << 20, file: int | None = None
    ) -> None:
        self.name = name
        self.left = 0
        self._tenant = tenant
        self._cutter = Cutter(largest)
        self._file = file
        self._run = uuid4().hex[:12]
        self._back: asyncio.Queue[StdioDelivery] = asyncio.Queue()
        self._reader: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None

    async def open(self) -> None:
        if self._reader is not None or self._is_file():
            return
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(CHUNK)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        pipe = os.fdopen(os.dup(self._descriptor()), "rb", 0)
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)

    def _descriptor(self) -> int:
        return sys.stdin.fileno() if self._file is None else self._file

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self._descriptor()).st_mode)

    async def deliveries(self) -> AsyncGenerator[StdioDelivery, None]:
        chunk = b" "
        while chunk:
            chunk = await self._read()
            for offset, body in self._cutter.feed(chunk):
                envelope = Envelope(f"{self._run}:{offset}", body, self._tenant, self.name)
                self.left += 1
                yield StdioDelivery(envelope, self)
            while not self._back.empty():
                yield self._back.get_nowait()
        while self.left:
            try:
                yield await asyncio.wait_for(self._back.get(), 0.05)
            except TimeoutError:
                continue

    async def _read(self) -> bytes:
        if self._reader is not None:
            return await self._reader.read(CHUNK)
        return await asyncio.to_thread(os.read, self._descriptor(), CHUNK)

    def back(self, delivery: StdioDelivery, delay: float) -> None:
        """Give a document again, in a while."""
        asyncio.get_running_loop().call_later(delay, self._back.put_nowait, delivery)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = self._reader = None


class StdioSink:
    """JSON lines; what is written is with the system when a message is acknowledged."""

    def __init__(self, name: str, *, file: int | None = None) -> None:
        self.name = name
        self._file = file
        self._lock = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        descriptor = self._descriptor()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(os.dup(descriptor), "wb", 0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
        transport.set_write_buffer_limits(high=0)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)

    def _descriptor(self) -> int:
        return sys.stdout.fileno() if self._file is None else self._file

    async def write(self, hits: Sequence[Hit]) -> None:
        await self._write(b"".join(hit.line() + b"\n" for hit in hits))

    async def dead(self, letter: DeadLetter) -> None:
        await self._write(b'{"dead":' + letter.line() + b"}\n")

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            try:
                if self._writer is None:
                    await asyncio.to_thread(_write_all, self._descriptor(), data)
                else:
                    self._writer.write(data)
                    await self._writer.drain()
            except OSError as error:
                said = error.strerror or type(error).__name__
                raise BrokerError(f"{self.name}: standard output: {said}") from error

    async def close(self) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.transport.abort()
        self._writer = None


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
