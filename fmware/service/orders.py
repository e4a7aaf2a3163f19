"""Changes of statements, given to all workers: a slice at a time, so that messages go in between.

To register a statement takes a worker up to some milliseconds, and there may be thousands. One
slice is under way at a time, of one tenant; how many statements it has follows from the processor
time that the last ones took, and from whether other tenants have had messages lately. Those of a
tenant's messages that wait behind a change go out when all slices of it have.

A change is done when the workers that serve all tenants have answered. The others learn it, too, in
its place before what they are asked later. If they do not say the same, they are replaced. A
tenant whose changes they have not caught up with waits for them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from fmware.service.jobs import Order, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fmware.service.jobs import Key
    from fmware.service.lines import Lines
    from fmware.service.process import Process

__all__ = ["Orders"]

SLICE: Final = 0.004
"""Seconds of processor time that a slice should take a worker, if others have messages."""
LONG: Final = 0.04
"""The same if no other tenant has had any in the last `LATELY` seconds: fewer slices are faster."""
LATELY: Final = 1.0
FIRST, MOST = 4, 200
"""Statements in the first slice of a tenant, and in the largest."""
BEHIND: Final = 32
"""Slices of one tenant that workers may be behind with."""


class Orders:
    """Gives changes of statements from `lines` to workers, and keeps `statements` as they are."""

    def __init__(self, lines: Lines, stir: Callable[[], None]) -> None:
        self.statements: dict[Key, dict[str, Any]] = {}
        self._lines = lines
        self._stir = stir
        self._busy = False
        self._sizes: dict[str, int] = {}
        self._behind: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def hand_out(self, awaited: Sequence[Process], others: Sequence[Process]) -> None:
        """Give the next slice to workers, unless one is under way: it is done when the first of
        them have answered."""
        if self._busy:
            return
        for tenant in self._lines.tenants():
            head = self._lines.head(tenant)
            if isinstance(head, Order) and self._behind[head.tenant] < BEHIND:
                self._spread(head, awaited, others)
                return

    async def settle(self) -> None:
        """Wait until all that was given out is answered."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _await(self, answer: Any) -> None:
        task = asyncio.ensure_future(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _spread(self, order: Order, awaited: Sequence[Process], others: Sequence[Process]) -> None:
        """Give workers the next slice of a change; REQUIRES: it is the first in its line."""
        self._busy = True
        some = order.about[order.at : order.at + self._sizes.setdefault(order.tenant, FIRST)]
        before = self._note(order, some)
        asked = [process.ask(order.kind, some) for process in awaited]
        later = [process.ask(order.kind, some) for process in others]
        order.at += len(some)
        if order.at >= len(order.about):
            # What is behind it may go out: it comes after this in every pipe.
            self._lines.take(self._lines.key(order.tenant))
            self._stir()

        async def wait() -> None:
            said = await asyncio.gather(*asked, return_exceptions=True)
            # A worker that is gone is replaced by one that begins with all statements.
            told = [each[0] for each in said if isinstance(each, tuple)]
            refused = {one for each in told for one in _refused(each)}
            for tenant, name, _ in refused:
                self._refuse((tenant, name), before)
            self._done(order, refused, max((float(each[1]) for each in told), default=0.0))
            await self._follow(order.tenant, refused, others, later)

        self._await(wait())

    def _done(self, order: Order, refused: set[Refused], took: float) -> None:
        """A slice is known to workers."""
        self._busy = False
        order.refused |= refused
        self._lines.charge(order.tenant, took)
        size = self._sizes[order.tenant]
        most = SLICE if self._lines.others(order.tenant, LATELY) else LONG
        # In one step if it is far too long: who waits must not wait for several such.
        size = max(int(size * most / took), 1) if took > most else size
        self._sizes[order.tenant] = min(2 * size, MOST) if took < most / 2 else size
        if order.at >= len(order.about) and not order.future.done():
            order.future.set_result(sorted(order.refused))
        self._stir()

    async def _follow(
        self,
        tenant: str,
        refused: set[Refused],
        others: Sequence[Process],
        asked: Sequence[asyncio.Future[Any]],
    ) -> None:
        """Wait for the workers that are not waited for; end one that says something else."""
        if not asked:
            return
        self._behind[tenant] += 1
        said = await asyncio.gather(*asked, return_exceptions=True)
        self._behind[tenant] -= 1
        wrong = {one[:2] for one in refused}
        for process, each in zip(others, said, strict=True):
            if isinstance(each, tuple) and {one[:2] for one in _refused(each[0])} != wrong:
                process.blamed = True
                process.kill()
        self._stir()

    def _note(self, order: Order, some: Sequence[Any]) -> dict[Key, dict[str, Any]]:
        """Have statements changed from now on; those that are replaced."""
        kept = self.statements
        if order.kind != "subscribe":
            for key in some:
                kept.pop(key, None)
            return {}
        told = {(tenant, each["name"]): each for tenant, each in some}
        before = {key: kept[key] for key in told if key in kept}
        kept.update(told)
        return before

    def _refuse(self, key: Key, before: dict[Key, dict[str, Any]]) -> None:
        """What is refused is not there, and what it was to replace still is."""
        if key in before:
            self.statements[key] = before[key]
        else:
            self.statements.pop(key, None)


def _refused(told: Any) -> set[Refused]:
    return {(one[0], one[1], one[2]) for one in told[0] or ()}
