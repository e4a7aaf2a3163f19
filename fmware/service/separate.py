"""Tenants of a worker, each with a middleware of its own, for messages that are one tenant's.

A message of a tenant meets the statements of that tenant and no others: what these cost changes
nothing for other tenants, in answers or in time.

A worker that is `quick` serves all tenants, so that a message may take little of it: a part of the
budget. One that needs more is *deferred*: the answer says so, and the engine gives it to a worker
that has time (see `pool`), which answers it within the whole budget. Whatever is told is told by
a complete answer, or by the one way in which incomplete ones are found (see `host`), so it does
not depend on where a message was matched.

What the filters have learnt of messages is kept for the last few tenants.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from fmware.service.answer import Answer
from fmware.service.found import Found, Notes
from fmware.service.hits import SEPARATOR
from fmware.service.host import Host, over_budget, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fmware.index import Index
    from fmware.matching.results import Results
    from fmware.service._columns import Writing
    from fmware.service.found import Told
    from fmware.service.host import Make
    from fmware.statements import Statement

__all__ = ["Separate"]

KEPT: Final = 16
"""Tenants whose filters keep what they have learnt."""


class Separate:
    """The tenants of a worker; `make` makes a middleware for one of them, on an index.

    `writings` are those of all statements, by name; `note` hears what is wrong here. With `quick`,
    what is not answered in full is deferred.
    """

    def __init__(
        self,
        make: Make,
        index: Index,
        writings: dict[str, Writing],
        note: Callable[[Exception], None],
        *,
        quick: bool,
    ) -> None:
        self._note = note
        self._make = make
        self._index = index
        self._writings = writings
        self._quick = quick
        self._hosts: OrderedDict[str, Host] = OrderedDict()

    @property
    def hosts(self) -> list[Host]:
        """The middlewares of all tenants."""
        return [*self._hosts.values()]

    def names(self, tenant: str) -> list[str]:
        """The names that a tenant gave its statements."""
        host = self._hosts.get(tenant)
        return [] if host is None else [name.partition(SEPARATOR)[2] for name in host.statements]

    def get(self, name: str) -> Statement | None:
        """A statement by its name."""
        host = self._hosts.get(owner_of(name))
        return None if host is None else host.statements.get(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    # --- statements -----------------------------------------------------------------------------

    def put(self, statement: Statement) -> None:
        """Register a statement, in the place of one of the same name, which stays if it is refused.

        Raises what `Middleware.subscribe` does.
        """
        host = self._host(owner_of(statement.name))
        before = host.statements.get(statement.name)
        if before is not None:
            host.remove(before.name)
        try:
            host.add(statement)
        except BaseException:
            if before is not None:
                host.add(before)
            raise

    def drop(self, name: str) -> None:
        """Take a statement out; REQUIRES: it is there."""
        tenant = owner_of(name)
        self._hosts[tenant].remove(name)
        if not self._hosts[tenant].statements:
            self._hosts.pop(tenant).close()

    def _host(self, tenant: str) -> Host:
        host = self._hosts.get(tenant)
        if host is None:
            host = self._hosts[tenant] = Host(self._make, self._index.lease())
        return host

    def follow(self, index: Index) -> None:
        """Take a newer generation of the index; messages find it as soon as this has returned."""
        if index.generation != self._index.generation:
            self._index = index
            for host in self._hosts.values():
                host.move(index.lease())

    # --- messages -------------------------------------------------------------------------------

    def match(self, tenant: str, messages: Sequence[Told]) -> Found:
        """What is to be said of messages of one tenant."""
        host = self._used(tenant)
        if not self._quick:
            return Found.joined(self._slowly(host, messages))
        results = host.publish_all([each[3] for each in messages], [each[1] for each in messages])
        if not results.incomplete and not results.troubles.full:
            found = self._written(results, messages)
            if not found.deferred:
                return found
        found = Found.joined(
            self._answered(results, place, message) for place, message in enumerate(messages)
        )
        found.seconds = results.seconds
        return found

    def _used(self, tenant: str) -> Host:
        """The middleware of a tenant; the one that was not used for longest forgets."""
        host = self._host(tenant)
        self._hosts.move_to_end(tenant)
        if len(self._hosts) > KEPT:
            [*self._hosts.values()][-KEPT - 1].forget()
        return host

    def _written(self, results: Results, messages: Sequence[Told]) -> Found:
        """The hits of messages that were answered in full."""
        found, notes = Found(), Notes(results, self._writings)
        for place, message in enumerate(messages):
            if notes.write(place, message, found):
                found.deferred.append(place)
        found.text = notes.text()
        found.seconds = results.seconds
        return found

    def _answered(self, results: Results, place: int, message: Told) -> Found:
        """What is said of one message: an answer that is complete, or that it is deferred."""
        over = over_budget(results[place])
        answer = self._answer(message)
        if over is not None and not results[place].answered:
            return answer.unreadable(results[place])
        if over != set() or not answer.add(results, place, message[0]):
            return _deferred()
        return self._found(answer)

    def _found(self, answer: Answer) -> Found:
        if answer.trouble is not None:
            self._note(answer.trouble)
        return answer.found()

    def _answer(self, message: Told) -> Answer:
        return Answer(message, self._writings, self.names)

    def _slowly(self, host: Host, messages: Sequence[Told]) -> Iterator[Found]:
        """What is said of messages with the whole budget for each."""
        for message in messages:
            tenant, name, _, body = message
            answer = self._answer(message)
            results = host.answer(body, name)
            if not answer.add(results, 0, tenant):
                answer.add(host.canonical(body, name), 0, tenant, last=True)
            found = self._found(answer)
            found.seconds = results.seconds
            yield found

    def check(self, tenants: Iterable[str]) -> None:
        """See that what was answered for these tenants can be trusted (see `Middleware.check`)."""
        for tenant in tenants:
            if tenant in self._hosts:
                self._hosts[tenant].middleware.check()

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()


def _deferred() -> Found:
    found = Found()
    found.add()
    found.deferred.append(0)
    return found
