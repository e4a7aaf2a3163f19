"""A middleware for one tenant, or for all of them, with the statements that it holds.

- **Complete answers are exact, however they were found. An incomplete one is found in one way**:
  by statements that were added in the order of their names, to a filter that has seen no message.
- **Names go with statements.** A vocabulary only grows, so a middleware whose statements were
  replaced is made anew: when it has had as many removals as it has statements, and thousands of
  names since it was made. That takes milliseconds for each statement, and messages of others wait
  for it. So the new one is filled a few statements at a time, with each change, beside the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fmware.filtering import DocumentTooActive, StatementRefused
from fmware.service.hits import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fmware.index import Index
    from fmware.matching.results import Result, Results
    from fmware.middleware import Middleware
    from fmware.statements import Statement

    Make = Callable[[str | Index], Middleware]

__all__ = ["NAMES", "Host", "over_budget", "owner_of"]

NAMES: Final = 16_384
"""Names that must have come before a middleware is made anew: fewer are not worth it."""
NAME_BYTES: Final = 16 << 20
"""The same in bytes of names."""
STEP: Final = 4
"""Statements that go to the new middleware with each that is added: it is done when a quarter as
many were added as there are, so the old one holds little more than twice what is needed."""


def owner_of(name: str) -> str:
    """The tenant of a statement, by the name that it has in a middleware."""
    return name.partition(SEPARATOR)[0]


def over_budget(result: Result) -> set[str] | None:
    """The tenants whose statements were not answered in full; None if that is all of them.

    Only what budgets cut short counts: a message that cannot be read is no better alone.
    """
    if any(isinstance(error, DocumentTooActive | MemoryError) for error in result.errors):
        return None
    if result.place in result.results.troubles.full:
        return None  # What comes first has got its pairs, and that may be another's.
    return {*map(owner_of, result.undecided), *map(owner_of, result.truncated)}


class Host:
    """A middleware, and the statements that it holds; `index` is an open one, or where it lies."""

    def __init__(
        self, make: Make, index: str | Index, statements: Iterable[Statement] = ()
    ) -> None:
        self._make = make
        self.statements = {each.name: each for each in statements}
        self._over = False
        """Whether the last answer was over the budget."""
        self._begin(index)

    def _begin(self, index: str | Index) -> None:
        made = self._make(index)
        try:
            for _, each in sorted(self.statements.items()):
                made.subscribe(each)
        except BaseException:
            made.close()
            raise
        self._take(made)
        self.in_order = True
        """Whether statements came in the order of their names."""
        self.fresh = True
        """Whether they did, and no message has come since."""

    def _take(self, made: Middleware) -> None:
        """Use this middleware from now on."""
        self.middleware = made
        self._next: Middleware | None = None
        """What takes its place when the statements of `_left` are there, too."""
        self._left: dict[str, None] = {}
        self._removed = 0
        self._names, self._bytes = self._held()

    def _held(self) -> tuple[int, int]:
        vocabulary = self.middleware.reader.vocabulary
        return len(vocabulary), vocabulary.used

    def add(self, statement: Statement) -> None:
        """Register a statement; one that is refused because there is no room, after a clearing."""
        if self._next is None and self._mostly_dead():
            self._next = self._make(self.middleware.index.lease())
            self._left = dict.fromkeys(self.statements)
        try:
            self.middleware.subscribe(statement)
        except (StatementRefused, OverflowError):
            if not self._removed:
                raise
            self.renew()
            self.middleware.subscribe(statement)
        self.statements[statement.name] = statement
        self.fresh = self.in_order = False
        if self._next is not None:
            self._left[statement.name] = None
            self._go_on(self._next)

    def _go_on(self, made: Middleware) -> None:
        """Fill the middleware that is made anew a little, and use it when it has everything."""
        old = self.middleware
        try:
            for _ in range(min(STEP, len(self._left))):
                made.subscribe(self.statements[self._left.popitem()[0]])
        except (StatementRefused, OverflowError):
            # It has fewer names than the old one, so this is a matter of the moment: begin again.
            made.close()
            self._take(old)
            return
        if not self._left:
            self._take(made)
            old.close()

    def remove(self, name: str) -> None:
        """Take a statement out."""
        self.middleware.unsubscribe(name)
        if self._next is not None:
            if name in self._left:
                del self._left[name]
            else:
                self._next.unsubscribe(name)
        del self.statements[name]
        self._removed += 1
        self.fresh = self.in_order = False

    def _mostly_dead(self) -> bool:
        """Whether making it anew is paid for by the removals since, and worth it."""
        if self._removed <= len(self.statements):
            return False
        names, size = self._held()
        return names - self._names > NAMES or size - self._bytes > NAME_BYTES

    def renew(self, index: str | Index | None = None) -> None:
        """Make the middleware anew, with the same statements and none of the names of others."""
        old, half = self.middleware, self._next
        self._begin(old.index.lease() if index is None else index)
        old.close()
        if half is not None:
            half.close()

    def move(self, index: Index) -> None:
        """Go on with another generation of the index."""
        self.middleware.move(index)
        if self._next is not None:
            self._next.move(index)

    def forget(self) -> None:
        """Drop what was learnt of messages."""
        self.middleware.forget()
        self.fresh = self.in_order

    def publish(self, body: bytes, name: str) -> Results:
        """Match one message."""
        return self.publish_all([body], [name])

    def publish_all(self, bodies: Sequence[bytes], names: Sequence[str]) -> Results:
        """Match messages."""
        self.fresh = False
        return self.middleware.publish_batch(bodies, names=names)

    def answer(self, body: bytes, name: str) -> Results:
        """Match one message for the only tenant; what is incomplete does not depend on others."""
        fresh = self.fresh
        if self._over:
            # Most likely it is again: this way it is so at the price of one run.
            found = self.canonical(body, name)
        else:
            found = self.publish(body, name)
            if over_budget(found[0]) != set() and fresh:
                # It is warm now, and may be within the budget.
                again = self.publish(body, name)
                found = again if over_budget(again[0]) == set() else found
            elif over_budget(found[0]) != set():
                found = self.canonical(body, name)
        self._over = over_budget(found[0]) != set()
        return found

    def canonical(self, body: bytes, name: str) -> Results:
        """Match one message as if it were the first, by statements in the order of their names."""
        if not self.in_order:
            self.renew()
        elif not self.fresh:
            self.forget()
        return self.publish(body, name)

    def close(self) -> None:
        self.middleware.close()
        if self._next is not None:
            self._next.close()
