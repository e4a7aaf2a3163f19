"""What a worker says of one message, put together from what several middlewares say of it.

Nothing that is our fault looks like an answer. If the index cannot be read or there is no memory,
the message has failed: it has no hits, and is to come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.filtering import DocumentTooActive
from fmware.index import StoreError
from fmware.matching.results import TRUNCATED, UNDECIDED
from fmware.middleware import StatementFailed
from fmware.service.envelope import ALL
from fmware.service.found import Found, Notes
from fmware.service.hits import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from fmware.matching.results import Result, Results
    from fmware.service._columns import Writing
    from fmware.service.found import Told

__all__ = ["Answer", "is_ours", "reason_of", "unanswered"]


def is_ours(error: BaseException) -> bool:
    """Whether an error says nothing of the message or the statements: it may be gone next time."""
    return isinstance(error, StoreError | OSError | MemoryError)


def reason_of(error: Exception) -> str:
    """An error in words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def unanswered(error: Exception) -> str:
    """Why a message has no answer, where that is our fault."""
    if isinstance(error, MemoryError):
        return f"there was no memory to match it: {reason_of(error)}"
    return f"the index could not be asked: {reason_of(error)}"


class Answer:
    """What is said of one message; `trouble` is what is wrong here, if anything is.

    `names` gives the names of a tenant's statements.
    """

    def __init__(
        self, message: Told, writings: dict[str, Writing], names: Callable[[str], list[str]]
    ) -> None:
        self.message = message
        self._writings = writings
        self._names = names
        self._parts: list[Found] = []
        self._errors: list[str] = []
        self._undecided: list[str] = []
        self._poison: str | None = None
        self._failed: str | None = None
        self.trouble: Exception | None = None

    def unreadable(self, result: Result) -> Found:
        """What is said of a message that cannot be read, by whichever tenant."""
        self._not_read(result)
        return self.found()

    def add(self, results: Results, place: int, tenant: str, *, last: bool = False) -> bool:
        """Add what results say for a tenant, or for all that they are of.

        False, and nothing is added, if its hits are more than is written down of a message: then
        which of them are left out must not depend on others. With `last`, the rest is left out.
        """
        result = results[place]
        if not result.answered:
            self._not_answered(result, tenant)
            return True
        found, notes = Found(), Notes(results, self._writings)
        _, name, time, body = self.message
        cut = notes.write(place, (tenant, name, time, body), found)
        if cut and not last:
            return False
        found.text = notes.text()
        self._parts.append(found)
        self._errors += cut
        self._note(result, tenant)
        return True

    def _note(self, result: Result, tenant: str) -> None:
        """The tenant's statements that gave no full answer."""
        said = [(name, UNDECIDED) for name in result.undecided]
        said += [(name, TRUNCATED) for name in result.truncated]
        for error in result.errors:
            cause = error.cause if isinstance(error, StatementFailed) else error
            if is_ours(cause):
                self.trouble = cause
            if isinstance(error, StatementFailed):
                if is_ours(cause) and _is_of(error.statement, tenant):
                    self._failed = unanswered(cause)
                said.append((error.statement, reason_of(cause)))
        for name, reason in said:
            if _is_of(name, tenant):
                statement = name.partition(SEPARATOR)[2]
                self._errors.append(f"statement {statement}: {reason}")
                if reason is UNDECIDED:
                    self._undecided.append(statement)

    def _not_answered(self, result: Result, tenant: str) -> None:
        """Nothing is known for a tenant."""
        for error in result.errors:
            if isinstance(error, DocumentTooActive):
                self._errors.append(f"all statements: {reason_of(error)}")
                self._undecided += self._names(tenant)
                return
        self._not_read(result)

    def _not_read(self, result: Result) -> None:
        for error in result.errors:
            if isinstance(error, MemoryError):
                self._failed, self.trouble = unanswered(error), error
                return
        reasons = [error for error in result.errors if not isinstance(error, StoreError)]
        self._poison = "; ".join(map(reason_of, reasons)) or "could not be read"

    def found(self) -> Found:
        """All of it."""
        found = Found()
        if self._failed is not None or self._poison is not None:
            found.add()
            if self._failed is not None:
                found.trouble([self._failed], fault=True)
            else:
                found.trouble([], self._poison)
            return found
        found.put(self._parts, sum(part.sizes[-1] for part in self._parts))
        if self._errors:
            found.trouble(self._errors, undecided=self._undecided)
        return found


def _is_of(statement: str, tenant: str) -> bool:
    return tenant in (ALL, statement.partition(SEPARATOR)[0])
