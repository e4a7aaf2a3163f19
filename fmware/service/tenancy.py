"""The tenants of a worker: their statements, and a budget of its own for each of them.

All tenants share one middleware, because equal beginnings of statements then cost once. A message
that stays within every budget there (work, active states, tuples, pairs, bytes) is answered in
full, for everyone. Otherwise the run in common says nothing of what a tenant's statements would
have cost alone, so each tenant that lacks an answer gets one from a middleware that holds its
statements alone, with the full budget. Another tenant's statements never change an answer.

- **Complete answers are exact, however they were found. An incomplete one is found in one way**:
  by statements that were added in the order of their names, to a filter that has seen no message.
  So a tenant that can afford its statements that way is always answered in full. One that cannot
  is told the same on every worker, or all of it, if what was learnt of messages made it cheaper.
- **Who uses up the budget is set apart**: its statements leave the common middleware, and its
  messages go to its own one alone. The others have paid with one slow message. Suspects are
  tried on that message: first those whose statements changed last, a few for each slow message.
  If none of them is over the budget alone, the one that took longest goes.
- **It comes back** when it has been answered in full `RETURN` times in a row; twice as often each
  time that it is set apart again. So it can slow others down only ever more rarely.
- **Names go with statements.** A vocabulary only grows, so a middleware whose statements were
  replaced is made anew: when it has had as many removals as it has statements, and thousands of
  names since it was made. If a statement finds no room in the common middleware, the tenant that
  has most there is set apart, so that no tenant can take the room of another.
- **Memory is bounded.** Of the tenants that are not set apart, the last few keep a middleware of
  their own. What the filters of others have learnt is dropped. All have the index open in common.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from fmware.cmatch.heap import give_back
from fmware.filtering import StatementRefused
from fmware.service.hits import SEPARATOR
from fmware.service.host import Host, over_budget, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fmware.index import Index
    from fmware.matching.results import Results
    from fmware.middleware import Middleware
    from fmware.service.host import Make
    from fmware.statements import Statement

__all__ = ["Alone", "Tenancy"]

KEPT: Final = 4
"""Middlewares of single tenants that keep what they have learnt."""
PROBES: Final = 3
"""Suspects that are tried on one message: each may take a budget's time."""
RETURN: Final = 64
"""Full answers in a row after which a tenant shares again, the first time."""
CAREFUL: Final = 8
"""Messages that are matched at once when statements have changed: each may use up the budget."""
MOST: Final = 4096
"""The same when all goes well; the engine gives a worker no more than its `batch`."""


class Alone(NamedTuple):
    """What a tenant is told of one message: the results, whether they are `over` its budget, and
    the seconds of processor time that they took."""

    results: Results
    over: bool
    seconds: float


class Exile(NamedTuple):
    """A tenant that is set apart: full answers that it needs to come back, and those it had."""

    needs: int
    had: int = 0


class Tenancy:
    """The statements of all tenants in one worker; see above.

    `make` makes a middleware on an index, and says with its second argument whether it is to be a
    small one, for a single tenant.
    """

    def __init__(self, make: Callable[[str | Index, bool], Middleware], index: str) -> None:
        self._make_own: Make = lambda index: make(index, True)  # noqa: FBT003
        self.shared = Host(lambda index: make(index, False), index)  # noqa: FBT003
        self._names: dict[str, dict[str, Statement]] = {}
        self._apart: dict[str, Exile] = {}
        self._times: Counter[str] = Counter()
        """How often each tenant was set apart."""
        self._own: OrderedDict[str, Host] = OrderedDict()
        self._suspects: OrderedDict[str, None] = OrderedDict()
        """Tenants in the order in which they are to be tried."""
        self._round: dict[str, float] = {}
        """Seconds of those that were tried, and found to be within the budget."""
        self._stride = CAREFUL

    def __len__(self) -> int:
        return sum(map(len, self._names.values()))

    @property
    def tenants(self) -> list[str]:
        """Those that have statements."""
        return [*self._names]

    def names(self, tenant: str) -> list[str]:
        """The names that a tenant gave its statements."""
        return [name.partition(SEPARATOR)[2] for name in self._names.get(tenant, ())]

    @property
    def apart(self) -> frozenset[str]:
        """Those that are set apart."""
        return frozenset(self._apart)

    @property
    def hosts(self) -> list[Host]:
        """All middlewares there are, the common one first."""
        return [self.shared, *self._own.values()]

    # --- statements -----------------------------------------------------------------------------

    def put(self, statement: Statement) -> None:
        """Register a statement, in the place of one of the same name.

        If it is refused, the one before is there again.
        """
        tenant = owner_of(statement.name)
        before = self._names.get(tenant, {}).get(statement.name)
        if before is not None:
            self.drop(before.name)
        try:
            self._add(tenant, statement)
        except BaseException:
            if before is not None:
                self._add(tenant, before)
            raise

    def _add(self, tenant: str, statement: Statement) -> None:
        if tenant not in self._apart:
            try:
                self.shared.add(statement)
            except (StatementRefused, OverflowError):
                self._make_room(tenant, statement)
        if tenant in self._apart:
            self._host(tenant).add(statement)
        else:
            self._changed(tenant)
        self._names.setdefault(tenant, {})[statement.name] = statement

    def _make_room(self, tenant: str, statement: Statement) -> None:
        """The common middleware is full: the tenant that takes most of it goes, or this one."""
        largest = max(self._suspects, key=self._weight, default=tenant)
        if largest != tenant:
            self._set_apart(largest)
            try:
                self.shared.add(statement)
            except (StatementRefused, OverflowError):
                pass
            else:
                return
        self._set_apart(tenant)

    def _weight(self, tenant: str) -> int:
        return sum(len(each.text) for each in self._names[tenant].values())

    def drop(self, name: str) -> None:
        """Take a statement out; REQUIRES: it is there."""
        tenant = owner_of(name)
        if tenant in self._apart:
            self._host(tenant).remove(name)
        else:
            self.shared.remove(name)
            self._changed(tenant)
        names = self._names[tenant]
        del names[name]
        if not names:
            # Set apart it stays: a tenant that has no statements for a moment is the same tenant.
            del self._names[tenant]
            self._suspects.pop(tenant, None)
            self._let_go(tenant)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names.get(owner_of(name), ())

    def _changed(self, tenant: str) -> None:
        """A tenant that shares has other statements than before."""
        self._let_go(tenant)
        self._stride = min(self._stride, CAREFUL)
        self._suspects[tenant] = None
        self._suspects.move_to_end(tenant, last=False)

    def _let_go(self, tenant: str) -> None:
        host = self._own.pop(tenant, None)
        if host is not None:
            host.close()

    # --- messages -------------------------------------------------------------------------------

    def chunks(self, messages: Sequence[tuple[str, str, str, bytes]]) -> Iterator[range]:
        """Places of messages that are matched together: few, while it is not known what they cost.

        What became of those before decides how many come next.
        """
        at = 0
        while at < len(messages):
            end = min(at + self._stride, len(messages))
            yield range(at, end)
            at = end

    def calm(self, count: int) -> None:
        """So many messages were matched together, within all budgets."""
        if count >= self._stride:
            self._stride = min(2 * self._stride, MOST)

    def alone(self, tenant: str, body: bytes, name: str) -> Alone:
        """The answer to one message for one tenant, within a budget of its own."""
        began = time.thread_time()
        results = self._host(tenant).answer(body, name)
        found = Alone(results, over_budget(results[0]) != set(), time.thread_time() - began)
        exile = self._apart.get(tenant)
        if exile is not None:
            had = 0 if found.over else exile.had + 1
            self._apart[tenant] = exile._replace(had=had)
            if had >= exile.needs:
                self._take_back(tenant)
        return found

    def _probed(self, tenant: str, body: bytes, name: str) -> Alone:
        """What a message costs one tenant: one run, of which nobody is told."""
        began = time.thread_time()
        results = self._host(tenant).publish(body, name)
        return Alone(results, over_budget(results[0]) != set(), time.thread_time() - began)

    def canonical(self, tenant: str, body: bytes, name: str) -> Results:
        """The same as a filter finds it that has seen no message: also in the order of hits."""
        return self._host(tenant).canonical(body, name)

    def _host(self, tenant: str) -> Host:
        """The middleware with the statements of one tenant, on the generation that all have."""
        index = self.shared.middleware.index
        host = self._own.get(tenant)
        if host is None:
            kept = self._names.get(tenant, {}).values()
            host = self._own[tenant] = Host(self._make_own, index.lease(), kept)
        elif host.middleware.index.generation != index.generation:
            host.renew(index.lease())
        self._own.move_to_end(tenant)
        for each in [*self._own][:-KEPT]:
            if each in self._apart:
                self._own[each].forget()
            else:
                self._let_go(each)
        return host

    # --- who uses up the budget -----------------------------------------------------------------

    def exhausted(self, body: bytes, name: str, tried: dict[str, Alone]) -> None:
        """A message used up the common budget: find out who did, and set that tenant apart.

        `tried`: what tenants of the common middleware that were asked already were told.
        """
        self._stride = 1
        tried = {tenant: tried[tenant] for tenant in tried if tenant in self._suspects}
        for tenant in [each for each in self._suspects if each not in tried][:PROBES]:
            try:
                tried[tenant] = self._probed(tenant, body, name)
            except MemoryError:
                self._set_apart(tenant)
        for tenant, found in tried.items():
            self._suspects.move_to_end(tenant)
            self._round[tenant] = found.seconds
            if found.over:
                self._set_apart(tenant)
        if any(found.over for found in tried.values()):
            self._round.clear()
        elif self._suspects and self._round.keys() >= self._suspects.keys():
            # Each of them could afford it alone: it is too much together.
            self._set_apart(max(self._suspects, key=self._round.__getitem__))
            self._round.clear()

    def _set_apart(self, tenant: str) -> None:
        """Have a tenant share no more."""
        if tenant in self._apart:
            return
        self._host(tenant)
        self._apart[tenant] = Exile(RETURN << min(self._times[tenant], 20))
        self._times[tenant] += 1
        self._suspects.pop(tenant, None)
        for name in self._names.get(tenant, ()):
            self.shared.remove(name)
        # What the filter has learnt of messages is mostly of statements that are not there now.
        self.shared.forget()
        give_back()

    def _take_back(self, tenant: str) -> None:
        """Have a tenant share again, unless there is no room."""
        done: list[str] = []
        try:
            for each in self._names[tenant].values():
                self.shared.add(each)
                done.append(each.name)
        except (StatementRefused, OverflowError):
            for name in done:
                self.shared.remove(name)
            self._apart[tenant] = self._apart[tenant]._replace(had=0)
            return
        del self._apart[tenant]
        self._changed(tenant)

    def close(self) -> None:
        for host in self.hosts:
            host.close()
