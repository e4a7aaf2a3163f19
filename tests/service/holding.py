"""A sink that holds up whoever writes to it; configurations of tests name it.

A service loads it, so it must not load what tests do to logs.
"""

from __future__ import annotations

import asyncio
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
