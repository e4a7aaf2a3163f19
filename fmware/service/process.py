"""A worker process, seen from the engine: questions go in, answers come out, in order."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fmware
from fmware.service.errors import WorkerFailed
from fmware.service.wire import answered, question

if TYPE_CHECKING:
    from collections.abc import Mapping

    Asked = asyncio.Future[tuple[Any, int]]

__all__ = ["Process", "WorkerGone"]

START: Final = """
import sys
sys.path.append(sys.argv[1])
from fmware.service.worker import main
main()
"""
"""What a worker begins with; it is told where the engine has its package from."""
BUFFER: Final = 1 << 20


class WorkerGone(WorkerFailed):
    """The process ended before it answered."""


class Process:
    """One worker process, from `start` until it is gone.

    Answers come in the order of the questions, but for reports, which take their time. `gone` is
    set when the process has ended, whoever ended it; whatever was not answered raises `WorkerGone`.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.gone = asyncio.Event()
        self.stats: dict[str, Any] = {}
        self.told = True
        """Whether the last question for `stats` was answered."""
        self.blamed = False
        """Whether it is known what it was working on when it ended."""
        self._answered = 0.0
        self._tickets = count()
        self._waited: dict[int, tuple[Asked, float]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def oldest(self) -> float:
        """Seconds that the question which is being answered has been waited for."""
        first = next(iter(self._waited.values()), None)
        return 0.0 if first is None else time.monotonic() - max(first[1], self._answered)

    async def start(self, options: Mapping[str, Any]) -> None:
        """Start the process, and wait until it has opened the index."""
        home = str(Path(fmware.__file__).parents[1])
        self._answered = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", START, home),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=BUFFER,
        )
        self._reading = asyncio.create_task(self._read(), name=f"worker {self.number}")
        refused = await self.tell("open", dict(options))
        if refused is not None:
            await self.close()
            raise WorkerFailed(f"worker {self.number} cannot open the index: {refused}")

    async def tell(self, kind: str, about: object = None) -> Any:
        """Ask, and wait for the answer."""
        return (await self.ask(kind, about))[0]

    def ask(self, kind: str, about: object = None) -> Asked:
        """Put a question behind those before; the future has the answer, and its bytes."""
        future: Asked = asyncio.get_running_loop().create_future()
        if self._process is None or self._process.stdin is None or self.gone.is_set():
            future.set_exception(WorkerGone(f"worker {self.number} is not there"))
            return future
        ticket = next(self._tickets)
        self._waited[ticket] = (future, time.monotonic())
        self._process.stdin.write(question(kind, ticket, about))
        return future

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            while True:
                ticket, said, size = await answered(self._process.stdout)
                self._answered = time.monotonic()
                future, _ = self._waited.pop(ticket)
                if not future.done():
                    future.set_result((said, size))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, KeyError):
            self._process.kill()  # Not an answer: who knows what else it would say.
        finally:
            await self._ended()

    async def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await self._process.wait()
        self.gone.set()
        waited, self._waited = self._waited, {}
        for future, _ in waited.values():
            if not future.done():
                future.set_exception(WorkerGone(f"worker {self.number} ended with {code}"))
                future.exception()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self, patience: float = 10.0) -> None:
        """Let the process finish what it was asked, then end; it is killed if it does not."""
        if self._process is None or self._reading is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self.gone.wait(), patience)
        except TimeoutError:
            self.kill()
        await self._reading
