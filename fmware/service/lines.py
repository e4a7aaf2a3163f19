"""What waits for workers: a line for each tenant, and the one that has had least is next.

Tenants are served in the order of the processor time that their messages and changes of statements
have taken (start-time fair queueing). One that had nothing to do begins where the one that is now
next has come to: time that it did not use is not saved up, and it need not wait for what others had
before it came.

Within a line, messages and changes of statements keep their order. Messages for all tenants wait
until no change of any tenant is there that came before them.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from itertools import count, islice
from typing import TYPE_CHECKING

from fmware.service.envelope import ALL
from fmware.service.jobs import Job, Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Lines"]


class Lines:
    """Messages and changes of statements that wait; without `fair`, all are in one line."""

    def __init__(self, *, fair: bool) -> None:
        self._fair = fair
        self._lines: dict[str, deque[Job | Order]] = {}
        self._served: dict[str, float] = {}
        self._came = count()
        self._orders: dict[Order, int] = {}
        """When each change came that is still here."""
        self._all: dict[Job, int] = {}
        """When each message for all tenants came."""
        self.jobs = 0
        """Messages that wait."""
        self._last: OrderedDict[str, float] = OrderedDict()
        """When each tenant's last message came, the latest last."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def key(self, tenant: str) -> str:
        """The line that a tenant is in."""
        return tenant if self._fair else ""

    def put(self, item: Job | Order, *, first: bool = False) -> None:
        """Have something wait, behind what its tenant has; or before it."""
        tenant = self.key(item.tenant)
        line = self._lines.get(tenant)
        if line is None:
            now = min((self._served[each] for each in self._lines), default=0.0)
            self._served[tenant] = max(self._served.get(tenant, 0.0), now)
            line = self._lines[tenant] = deque()
        if first:
            line.appendleft(item)
        else:
            line.append(item)
        if isinstance(item, Order):
            self._orders[item] = next(self._came)
        else:
            self.jobs += 1
            self._last[tenant] = time.monotonic()
            self._last.move_to_end(tenant)
            if item.tenant == ALL:
                self._all.setdefault(item, next(self._came))

    def tenants(self) -> list[str]:
        """The lines there are, the one that is next first."""
        return sorted(self._lines, key=self._served.__getitem__)

    def head(self, tenant: str) -> Job | Order | None:
        """What is first in a line; None if there is nothing, or it has to wait for others."""
        line = self._lines.get(tenant)
        if not line:
            return None
        first = line[0]
        if isinstance(first, Job) and first.tenant == ALL and self._fair:
            oldest = next(iter(self._orders.values()), None)
            if oldest is not None and oldest < self._all[first]:
                return None
        return first

    def take(self, tenant: str) -> Job | Order:
        """Take out what is first in a line; REQUIRES: there is something."""
        line = self._lines[tenant]
        item = line.popleft()
        if not line:
            del self._lines[tenant]
        self._gone(item)
        return item

    def others(self, tenant: str, seconds: float) -> bool:
        """Whether another line than a tenant's has had messages in so many seconds."""
        since = time.monotonic() - seconds
        latest = (key for key, at in reversed(self._last.items()) if at >= since)
        return any(key != self.key(tenant) for key in islice(latest, 2))

    def charge(self, tenant: str, seconds: float) -> None:
        """Note what a tenant has had."""
        tenant = self.key(tenant)
        self._served[tenant] = self._served.get(tenant, 0.0) + seconds
        if not self._lines:
            self._served.clear()

    def remove(self, unwanted: Callable[[Job], bool]) -> bool:
        """Drop messages; whether there were any."""
        before = self.jobs
        for tenant, line in [*self._lines.items()]:
            left = deque(each for each in line if isinstance(each, Order) or not unwanted(each))
            for each in line:
                if isinstance(each, Job) and unwanted(each):
                    self._gone(each)
            if left:
                self._lines[tenant] = left
            else:
                del self._lines[tenant]
        return self.jobs < before

    def _gone(self, item: Job | Order) -> None:
        if isinstance(item, Order):
            self._orders.pop(item, None)
        else:
            self.jobs -= 1
            self._all.pop(item, None)

    def clear(self) -> Iterable[Job | Order]:
        """Take out everything."""
        return [*self._drained()]

    def _drained(self) -> Iterator[Job | Order]:
        while self._lines:
            yield self.take(next(iter(self._lines)))
