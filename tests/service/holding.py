"""Sinks that hold up whoever writes to them; configurations of tests name them.

A service loads them, so they must not load what tests do to logs.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmware.service.envelope import DeadLetter, Hit


class Holding:
    """Takes hits only while a file is there, and keeps them beside it."""

    def __init__(self, name: str, door: str) -> None:
        self.name, self._door = name, door

    async def open(self) -> None:
        self._taken = Path(f"{self._door}.taken")
        self._taken.touch()

    async def write(self, hits: Sequence[Hit]) -> None:
        while not Path(self._door).exists():
            await asyncio.sleep(0.02)
        with self._taken.open("ab") as file:
            file.writelines(hit.line() + b"\n" for hit in hits)

    async def dead(self, letter: DeadLetter) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Endless(Holding):
    """Never ends by itself: its end is one native call that keeps the interpreter."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "never")

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        # A pattern that takes longer than any test, in one call that never lets go.
        re.match(r"(a|aa)+$", "a" * 200 + "b")
