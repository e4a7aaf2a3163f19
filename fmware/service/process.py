"""A process of the service, seen from the server: questions go in, answers come out, in order."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fmware
from fmware.service.errors import WorkerFailed
from fmware.service.wire import Answers, question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Asked = asyncio.Future[tuple[Any, memoryview, int]]

__all__ = ["Process", "WorkerGone"]

START: Final = """
import importlib, sys
sys.path.append(sys.argv[1])
importlib.import_module(sys.argv[2]).main()
"""
"""What a process begins with: the place that the server has its package from, and its module."""
WORKER: Final = "fmware.service.worker"
PIPE: Final = 1 << 20
"""Bytes that a pipe holds: a batch goes through in one piece, and wakes the worker once."""


class WorkerGone(WorkerFailed):
    """The process ended before it answered."""


class Process:
    """One process, a worker unless another module is named, from `start` until it is gone.

    Answers come in the order of the questions, but for reports, which take their time. `gone` is
    set when the process has ended, for any reason; what was not answered raises `WorkerGone`.
    """

    def __init__(self, number: int, module: str = WORKER) -> None:
        self.number = number
        self._module = module
        self.gone = asyncio.Event()
        self.stats: dict[str, Any] = {}
        self.told = True
        """Whether the last question for `stats` was answered."""
        self.blamed = False
        """Whether it is known what it was working on when it ended."""
        self._answered = 0.0
        self._tickets = count()
        self._waited: dict[int, tuple[Asked, float]] = {}
        self._transport: asyncio.SubprocessTransport | None = None
        self._pipes: _Pipes | None = None

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none."""
        return 0 if self._transport is None else self._transport.get_pid() or 0

    @property
    def oldest(self) -> float:
        """Seconds that the question which is being answered has been waited for."""
        first = next(iter(self._waited.values()), None)
        return 0.0 if first is None else time.monotonic() - max(first[1], self._answered)

    async def start(self, options: Mapping[str, Any]) -> None:
        """Start the process, and wait until it has opened the index."""
        home = str(Path(fmware.__file__).parents[1])
        self._answered = time.monotonic()
        self._transport, self._pipes = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Pipes(self._said, self._ended),
            *(sys.executable, "-P", "-c", START, home, self._module),
            stderr=None,
        )
        for each in (0, 1):
            _widen(self._transport.get_pipe_transport(each))
        refused = await self.tell("open", dict(options))
        if refused is not None:
            await self.close()
            raise WorkerFailed(f"worker {self.number} cannot open the index: {refused}")

    async def tell(self, kind: str, about: object = None) -> Any:
        """Ask, and wait for the answer."""
        return (await self.ask(kind, about))[0]

    def ask(self, kind: str, about: object = None, bodies: Sequence[bytes] = ()) -> Asked:
        """Put a question, with the bodies of messages, behind those before.

        The future has the answer, the bytes behind it, and how many there are of both.
        """
        future: Asked = asyncio.get_running_loop().create_future()
        if self._transport is None or self.gone.is_set():
            future.set_exception(WorkerGone(f"worker {self.number} is not there"))
            return future
        ticket = next(self._tickets)
        self._waited[ticket] = (future, time.monotonic())
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(question(kind, ticket, about, bodies))
        return future

    def _said(self, ticket: int, said: Any, text: memoryview, size: int) -> None:
        self._answered = time.monotonic()
        future, _ = self._waited.pop(ticket)
        if not future.done():
            future.set_result((said, text, size))

    def _ended(self) -> None:
        assert self._transport is not None
        code = self._transport.get_returncode()
        self._transport.close()
        self.gone.set()
        waited, self._waited = self._waited, {}
        for future, _ in waited.values():
            if not future.done():
                future.set_exception(WorkerGone(f"worker {self.number} ended with {code}"))
                future.exception()

    def kill(self) -> None:
        """End the process at once."""
        if self._transport is not None and self._transport.get_returncode() is None:
            with suppress(ProcessLookupError):
                self._transport.kill()

    async def close(self, patience: float = 10.0) -> None:
        """Let the process finish what it was asked, then end; it is killed if it does not."""
        if self._transport is None:
            return
        if (pipe := self._transport.get_pipe_transport(0)) is not None:
            pipe.close()
        try:
            await asyncio.wait_for(self.gone.wait(), patience)
        except TimeoutError:
            self.kill()
            await self.gone.wait()


class _Pipes(asyncio.SubprocessProtocol):
    """The pipes of a worker: hands on whole answers; one that is none ends the worker."""

    def __init__(
        self, said: Callable[[int, Any, memoryview, int], None], ended: Callable[[], None]
    ) -> None:
        self._said = said
        self._ended = ended
        self._answers = Answers()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        assert self._transport is not None
        try:
            for each in self._answers.take(data):
                self._said(*each)
        except (ValueError, KeyError, TypeError):
            # Not an answer, so nothing that follows can be trusted either.
            with suppress(ProcessLookupError):
                self._transport.kill()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The process has ended, and its pipes are read to their ends."""
        self._ended()


def _widen(pipe: asyncio.BaseTransport | None) -> None:
    """Have a pipe hold more, where the system allows it."""
    if pipe is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe.get_extra_info("pipe").fileno(), fcntl.F_SETPIPE_SZ, PIPE)
