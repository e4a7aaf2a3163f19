"""A bound on what is under way: messages, and bytes of them, for all tenants and for each.

A tenant that has something inside gets in only as long as it then has no more than is left for
others. So one tenant alone has half of the gate at most, two have a third each, and there is always
room for the first message of another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

__all__ = ["Gate"]


class Gate:
    """Lets in what fits; those of a tenant in the order of asking, and tenants in turn.

    What is larger than the gate goes through alone. Without `fair`, all are one tenant.
    """

    def __init__(self, messages: int, size: int, *, fair: bool = False) -> None:
        self.messages = messages
        self.size = size
        self.inside = 0
        self.bytes = 0
        self._fair = fair
        self._mine: Counter[str] = Counter()
        self._own_bytes: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, int, asyncio.Future[None]]]] = {}

    @property
    def waiting(self) -> int:
        """Messages that are not in yet."""
        return sum(count for line in self._waiting.values() for count, _, _ in line)

    @property
    def share(self) -> tuple[int, int]:
        """Messages, and bytes, that should come in together at most."""
        part = 4 if self._fair else 1
        return max(self.messages // part, 1), max(self.size // part, 1)

    async def enter(self, count: int, size: int, tenant: str = "") -> None:
        """Wait until there is room."""
        tenant = tenant if self._fair else ""
        if tenant not in self._waiting and self._fits(count, size, tenant):
            self._take(count, size, tenant)
            return
        future = asyncio.get_running_loop().create_future()
        place = (count, size, future)
        self._waiting.setdefault(tenant, deque()).append(place)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                if place in self._waiting.get(tenant, ()):
                    self._waiting[tenant].remove(place)
                self._admit()
            else:
                self.leave(count, size, tenant)
            raise

    def grow(self, size: int, tenant: str = "") -> None:
        """What is inside takes more room; nothing is sent away for it, but others wait."""
        self.bytes += size
        self._own_bytes[tenant if self._fair else ""] += size

    def leave(self, count: int, size: int, tenant: str = "") -> None:
        """Make room."""
        self._take(-count, -size, tenant if self._fair else "")
        self._admit()

    def _admit(self) -> None:
        """Let in the first of each tenant, in turn, as long as one of them fits."""
        went = True
        while went:
            went = False
            for tenant in [*self._waiting]:
                went |= self._admit_one(tenant)

    def _admit_one(self, tenant: str) -> bool:
        line = self._waiting[tenant]
        while line and line[0][2].done():
            line.popleft()
        if not line:
            del self._waiting[tenant]
            return False
        count, size, future = line[0]
        if not self._fits(count, size, tenant):
            return False
        line.popleft()
        # The next one of this tenant comes after those of the others.
        del self._waiting[tenant]
        if line:
            self._waiting[tenant] = line
        self._take(count, size, tenant)
        future.set_result(None)
        return True

    def _fits(self, count: int, size: int, tenant: str) -> bool:
        if not self.inside:
            return True
        left, room = self.messages - self.inside, self.size - self.bytes
        if count > left or size > room:
            return False
        mine = self._mine[tenant]
        if not self._fair or not mine:
            return True
        return mine + count <= left and self._own_bytes[tenant] + size <= room

    def _take(self, count: int, size: int, tenant: str) -> None:
        self.inside += count
        self.bytes += size
        for kept, more in ((self._mine, count), (self._own_bytes, size)):
            kept[tenant] += more
            if not kept[tenant]:
                del kept[tenant]
