"""A worker: a process with a middleware of its own, that answers questions on a pipe.

It begins with what it is asked first, `open`, and ends when its pipe does: signals that a terminal
or a supervisor sends to all processes alike are the engine's to understand. Questions are answered
one after the other in the order they came, so a statement is there for every message behind it.

- `open` {options}: make the middleware; says that it is ready, or why not.
- `match` [tenants, ids, times], and bodies behind it: what was found in all of them, see `found`.
- `subscribe` [(tenant, statement), ...]: those that were refused, with reasons.
- `unsubscribe` [(tenant, name), ...]
- `stats`: counts of the filter and of the operators.
- `report`: what was learnt of their costs. It is made beside the rest, on a thread, and answered
  when it is done: messages do not wait for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from fmware.errors import FMwareError
from fmware.filtering import FilterLimits
from fmware.matching.results import TRUNCATED, UNDECIDED
from fmware.middleware import Middleware, StatementFailed
from fmware.service._columns import Writing
from fmware.service.envelope import ALL
from fmware.service.found import Found, Notes
from fmware.service.hits import SEPARATOR
from fmware.service.memory import bound_memory
from fmware.service.wire import answer, questioned
from fmware.statements import Statement
from index import StoreError
from labeling import CHARACTER_ENTITIES, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fmware.matching.results import Result
    from fmware.service.found import Told

__all__ = ["SEPARATOR", "Worker", "main", "serve", "statement_of"]

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
REPLAY: Final = 0.5
"""Seconds for a report to try what else it could have cost."""


def statement_of(about: Mapping[str, Any], name: str | None = None) -> Statement:
    """A statement from plain values, with the keys of an entry in a file of statements."""
    common: dict[str, Any] = {
        "name": name or about.get("name"),
        "namespaces": about.get("namespaces"),
        "returns": about.get("returns"),
    }
    if expression := about.get("expression"):
        return Statement.parse(expression, **common)
    return Statement.two_part(
        filter=about.get("filter") or "",
        match=about.get("match") or "",
        anchor=about.get("anchor"),
        axis=about.get("axis"),
        **common,
    )


class Worker:
    """A middleware, and what the service asks of it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._middleware = self._opened()
        self._names: dict[str, Statement] = {}
        self._writings: dict[str, Writing] = {}
        self._trouble = ""

    def _opened(self) -> Middleware:
        about = dict(self._options)
        limits = about.pop("limits", {})
        entities = about.pop("entities", False)
        work = {key: limits[key] for key in ("work", "tuples") if key in limits}
        sizes = {key: limits[key] for key in limits if key not in work}
        return Middleware(
            about.pop("index"),
            limits=FilterLimits(**work),
            read_limits=Limits(**sizes),
            entities=CHARACTER_ENTITIES if entities else None,
            **about,
        )

    def close(self) -> None:
        self._middleware.close()

    # --- statements -----------------------------------------------------------------------------

    def subscribe(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
        """Register statements, in the place of those of the same names; those refused, and why."""
        refused = []
        for tenant, about in statements:
            # One string for all that keep it, also when the statement is replaced.
            name = sys.intern(f"{tenant}{SEPARATOR}{about['name']}")
            try:
                self._replace(statement_of(about, name), name)
            except (FMwareError, OverflowError) as error:
                refused.append([tenant, about["name"], str(error)])
        return refused

    def _replace(self, statement: Statement, name: str) -> None:
        """Register a statement; if it is refused, the one before it is there again."""
        before = self._names.get(name)
        if before is not None:
            self._middleware.unsubscribe(name)
        try:
            self._add(statement, name)
        except BaseException:
            if before is not None:
                self._add(before, name)
            raise

    def _add(self, statement: Statement, name: str) -> None:
        self._middleware.subscribe(statement)
        self._names[name] = statement
        self._writings[name] = Writing(name)

    def unsubscribe(self, names: Sequence[tuple[str, str]]) -> None:
        """Take statements out; those that are not there are passed over."""
        for tenant, each in names:
            name = f"{tenant}{SEPARATOR}{each}"
            if name in self._names:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._middleware.unsubscribe(name)
        del self._names[name]
        del self._writings[name]

    # --- messages -------------------------------------------------------------------------------

    def match(self, messages: Sequence[Told]) -> Found:
        """What is to be said of each message."""
        try:
            return self._encoded(messages)
        except Exception as error:  # One message must not take the others with it.
            if len(messages) > 1:
                return Found.joined([self.match([one]) for one in messages])
            return _failed(error)

    def _encoded(self, messages: Sequence[Told]) -> Found:
        """Match a batch, and write down what was found: the one place that reads results."""
        found = Found()
        results = self._middleware.publish_batch(
            [message[3] for message in messages], names=[message[1] for message in messages]
        )
        notes = Notes(results, self._writings)
        incomplete = {each.place: each for each in results.incomplete}
        for place, message in enumerate(messages):
            errors: list[str] = []
            if place in incomplete:
                if not incomplete[place].answered:
                    found.add()
                    found.trouble([], _unreadable(incomplete[place]))
                    continue
                errors = self._failures(message[0], incomplete[place])
            errors += notes.write(place, message, found)
            if errors:
                found.trouble(errors)
        found.text = notes.text()
        found.seconds = results.seconds
        return found

    def _failures(self, tenant: str, result: Result) -> list[str]:
        """The tenant's statements that gave no full answer."""
        said = [(name, UNDECIDED) for name in result.undecided]
        said += [(name, TRUNCATED) for name in result.truncated]
        for error in result.errors:
            if isinstance(error, StatementFailed):
                said.append((error.statement, _reason(error.cause)))
            else:
                self._trouble = _reason(error)
        failures = []
        for name, reason in said:
            owner, _, statement = name.partition(SEPARATOR)
            if tenant in (owner, ALL):
                failures.append(f"statement {statement}: {reason}")
        return failures

    # --- what it can tell -----------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts, by operator and of the filter; idle or not, a newer generation is taken up."""
        middleware = self._middleware
        try:
            middleware.refresh()
            self._trouble = ""
        except (StoreError, OSError) as error:
            self._trouble = _reason(error)
        return {
            "generation": middleware.index.generation,
            "statements": len(self._names),
            "filter": middleware.filter_stats(),
            "operators": {
                name: counters.to_json() for name, counters in middleware.counters().items()
            },
            "memory": _resident(),
            "trouble": self._trouble,
        }

    def report(self) -> dict[str, Any]:
        """What was learnt of the costs of operators, or why that cannot be told.

        It takes processor time from messages, so in short.
        """
        try:
            return self._middleware.report(seconds=REPLAY).to_json()
        except Exception as error:  # The answer says so, and messages are matched.
            return {"error": f"{type(error).__name__}: {_reason(error)}"}


def _unreadable(result: Result) -> str:
    """Why a message could not be read."""
    reasons = [error for error in result.errors if not isinstance(error, StoreError)]
    return "; ".join(map(_reason, reasons)) or "could not be read"


def _failed(error: Exception) -> Found:
    """A message that raised: the index's fault is no reason to call the message bad."""
    found = Found()
    found.add()
    if isinstance(error, StoreError | OSError | MemoryError):
        found.trouble([f"the index could not be asked: {_reason(error)}"])
    else:
        said = f"matching it failed unexpectedly: {type(error).__name__} at {_place(error)}"
        found.trouble([], f"{said}: {_reason(error)}", fault=True)
    return found


def _place(error: Exception) -> str:
    """Where an error was raised: a file and a line of it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _resident() -> int:
    """Bytes of memory that the process has."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - asked every second
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


class Outbox:
    """Answers, each written as a whole, whichever thread has one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def put(self, ticket: int, said: object, text: bytes = b"") -> None:
        data = answer(ticket, said, text)
        with self._lock:
            self._file.write(data)
            self._file.flush()

    def put_later(self, ticket: int, ask: Callable[[], object]) -> None:
        """Answer on a thread, which ends with the process."""

        def run() -> None:
            with suppress(BrokenPipeError, ValueError):  # The engine is gone, and the file closed.
                self.put(ticket, ask())

        threading.Thread(target=run, name="report", daemon=True).start()


def serve(inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Answer questions until there are no more."""
    worker: Worker | None = None
    answers = Outbox(outbox)
    try:
        while (asked := questioned(inbox)) is not None:
            kind, ticket, about, bodies = asked
            said: Any
            if worker is None:
                try:
                    memory = about.pop("memory", 0)
                    worker = Worker(about)
                    bound_memory(memory)
                    said = None
                except (FMwareError, StoreError, OSError, TypeError, ValueError) as error:
                    said = _reason(error)
            elif kind == "report":
                answers.put_later(ticket, worker.report)
                continue
            elif kind == "match":
                found = worker.match(list(zip(*about, bodies, strict=True)))
                answers.put(ticket, found.numbers(), found.text)
                continue
            else:
                ask = getattr(worker, kind)
                said = ask() if about is None else ask(about)
            answers.put(ticket, said)
    except BrokenPipeError:
        pass  # The engine is gone, with all that wait for the answer; the message comes again.
    finally:
        if worker is not None:
            worker.close()


def main() -> None:
    """Answer on what was standard output; whatever prints goes to standard error."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, outbox)
    # Whatever is left to be undone is not worth the wait, nor an error from a half-closed pipe.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
