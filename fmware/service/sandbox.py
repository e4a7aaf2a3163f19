"""Where requests are worked on that may take much memory or time: in a process of its own.

The process has a bound in bytes and a question has its seconds. One that takes more is ended with
the process, whose place another takes; the one that asked is answered 503, the others notice
nothing. There is one question at a time, and tenants have turns, whoever asks most. A question that
comes when many wait is turned away, so that trying things out never takes the place of matching.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fmware.service.errors import WorkerFailed
from fmware.service.problems import Problem
from fmware.service.process import Process

if TYPE_CHECKING:
    from fmware.service.settings import Settings

__all__ = ["Sandbox"]

WAITING: Final = 16
"""Questions that wait; half of them may be one tenant's."""
TRIAL: Final = "fmware.service.trial"
NICE: Final = 5
"""By this it gives way: it gets a quarter of a core that matching wants as well."""


class Sandbox:
    """A process for questions of tenants, started with the first one.

    `seconds` is how long a question may take, and `what` is what is told to the one whose question
    takes more.
    """

    def __init__(self, settings: Settings, *, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._options = {
            "index": str(settings.index),
            "limits": settings.limits.model_dump(),
            "memory": settings.engine.sandbox_bytes,
            "nice": NICE,
        }
        self._process: Process | None = None
        self._left: list[Process] = []
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False
        self._closed = False
        self.ended = 0
        """Processes that ended before they had answered."""

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    async def ask(
        self, tenant: str, kind: str, about: object = None, body: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Have a question of a tenant answered when it is its turn (see `trial`).

        Raises the `Problem` that the answer is, or one that says why there is none.
        """
        await self._turn(tenant)
        try:
            said, text = await self._answer(kind, about, body)
        finally:
            self._next()
        if (problem := said.get("problem")) is not None:
            raise Problem(**problem)
        return said, text

    async def close(self) -> None:
        """End the process at once, with what it was asked."""
        self._closed = True
        self._kill()
        for each in self._left:
            await each.close()

    # --- turns ------------------------------------------------------------------------------

    async def _turn(self, tenant: str) -> None:
        if not self._busy:
            self._busy = True
            return
        mine = self._waiting.get(tenant, ())
        if len(mine) >= WAITING // 2 or sum(map(len, self._waiting.values())) >= WAITING:
            what = f"many others wait for {self._what}"
            raise Problem(503, "busy", what, headers={"Retry-After": "1"})
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(tenant, turn)
            else:
                self._next()
            raise

    def _forget(self, tenant: str, turn: asyncio.Future[None]) -> None:
        with suppress(KeyError, ValueError):
            self._waiting[tenant].remove(turn)
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    def _next(self) -> None:
        """Let the next tenant have its turn, and be the last one after it."""
        self._busy = bool(self._waiting)
        if self._busy:
            tenant = next(iter(self._waiting))
            line = self._waiting.pop(tenant)
            turn = line.popleft()
            if line:
                self._waiting[tenant] = line
            turn.set_result(None)

    # --- the process ------------------------------------------------------------------------

    async def _answer(self, kind: str, about: object, body: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            process = await self._started()
            async with asyncio.timeout(self._seconds):
                said, text, _ = await process.ask(kind, about, [body])
        except TimeoutError:
            raise self._over(f"took more than {self._seconds:g} seconds") from None
        except WorkerFailed:
            raise self._over("brought its process down") from None
        except asyncio.CancelledError:
            self._over("was not waited for")
            raise
        if said.pop("last"):
            self._retire()
        if "memory" in said:
            self.ended += 1
            raise self._too_much("needed more memory than it may have")
        return said, bytes(text)

    async def _started(self) -> Process:
        """The process; another one if it is gone."""
        if self._closed:
            raise Problem(503, "stopping", "the service stops")
        if self._process is None or self._process.gone.is_set():
            self._process = Process(0, TRIAL)
            await self._process.start(self._options)
        return self._process

    def _over(self, why: str) -> Problem:
        """End the process, which has a question still; what the one that asked is told."""
        self.ended += 1
        self._kill()
        return self._too_much(why)

    def _too_much(self, why: str) -> Problem:
        return Problem(503, "too-much", f"{self._what} {why}; it was ended, and nothing else was")

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._retire()

    def _retire(self) -> None:
        """Ask this process no more: it ends, or has been ended."""
        self._left = [each for each in self._left if not each.gone.is_set()]
        if self._process is not None:
            self._left.append(self._process)
            self._process = None
