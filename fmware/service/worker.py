"""A worker: a process with a middleware of its own, that answers questions on a pipe.

It begins with what it is asked first, `open`, and ends when its pipe does: signals that a terminal
or a supervisor sends to all processes alike are the engine's to understand. Questions are answered
one after the other in the order they came, so a statement is there for every message behind it.

- `open` {options}: make the middleware; says that it is ready, or why not.
- `match` [(tenant, id, body), ...]: [hits, errors, poison, unmatched, fault] each, and the seconds.
  A hit is [id, tenant, statement, line]: the line is what sinks get, and nobody reads it on the
  way. A `fault` is poison because matching it failed in a way that nobody expected.
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
from fmware.matching.plain import plain_match
from fmware.middleware import Middleware, StatementFailed
from fmware.service.envelope import ALL, hit_id, hit_line
from fmware.service.wire import answer, questioned
from fmware.statements import Returns, Statement
from index import StoreError
from labeling import CHARACTER_ENTITIES, LimitExceeded, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fmware.matching.results import Match, Result

__all__ = ["SEPARATOR", "Worker", "main", "serve", "statement_of"]

SEPARATOR: Final = "\x1f"
"""Between a tenant and the name of a statement."""
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
HITS: Final = 100_000
"""Matches of one message that are told."""
REPLAY: Final = 0.5
"""Seconds for a report to try what else it could have cost."""

Told = tuple[str, str, bytes]
"""A message: its tenant, its id and its bytes."""


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
        self._known = len(self._middleware.reader.vocabulary)
        """Names that are not those of messages."""
        self._values: set[str] = set()
        self._names: dict[str, Statement] = {}
        self._renewals = 0
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

    def _renew(self) -> bool:
        """Begin anew, with the same statements and without the names of past messages.

        A vocabulary only grows, and it is bounded. Whoever sends ever new names must not be able to
        fill it, so that nobody else's new name is read any more. If there cannot be another
        middleware now, the one at hand serves on.
        """
        try:
            made = self._anew()
        except (FMwareError, StoreError, OSError) as error:
            self._trouble = _reason(error)
            return False
        old, self._middleware = self._middleware, made
        old.close()
        self._known = len(made.reader.vocabulary)
        self._renewals += 1
        return True

    def _anew(self) -> Middleware:
        """Another middleware, with the statements of the one at hand."""
        made = self._opened()
        try:
            for statement in self._middleware.statements:
                made.subscribe(statement)
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        self._middleware.close()

    # --- statements -----------------------------------------------------------------------------

    def subscribe(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
        """Register statements, in the place of those of the same names; those refused, and why."""
        refused = []
        before = len(self._middleware.reader.vocabulary)
        for tenant, about in statements:
            # One string for all who keep it, also when the statement is replaced.
            name = sys.intern(f"{tenant}{SEPARATOR}{about['name']}")
            try:
                self._replace(statement_of(about, name), name)
            except (FMwareError, OverflowError) as error:
                refused.append([tenant, about["name"], str(error)])
        self._known += len(self._middleware.reader.vocabulary) - before
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
        (self._values.add if Returns.VALUE in statement.returns else self._values.discard)(name)

    def unsubscribe(self, names: Sequence[tuple[str, str]]) -> None:
        """Take statements out; those that are not there are passed over."""
        for tenant, each in names:
            name = f"{tenant}{SEPARATOR}{each}"
            if name in self._names:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._middleware.unsubscribe(name)
        del self._names[name]
        self._values.discard(name)

    # --- messages -------------------------------------------------------------------------------

    def match(self, messages: Sequence[Told]) -> list[Any]:
        """What is to be said of each message, and the seconds of all of them, by stage."""
        try:
            results = self._published(messages)
            seconds = results[0].seconds if results else {}
            pairs = zip(messages, results, strict=True)
            return [[self._outcome(message, result) for message, result in pairs], seconds]
        except Exception as error:  # One message must not take the others with it.
            if len(messages) > 1:
                return [[each for one in messages for each in self.match([one])[0]], {}]
            return [[_failed(error)], {}]

    def _published(self, messages: Sequence[Told]) -> list[Result]:
        results = self._middleware.publish_batch(
            [body for _, _, body in messages], names=[name for _, name, _ in messages]
        )
        crowded = [place for place, result in enumerate(results) if _crowded(result)]
        renewed = (crowded or self._is_half_full()) and self._renew()
        for place in crowded if renewed and len(messages) > 1 else ():
            # Others may have used up the room; by itself it has all of it.
            (results[place],) = self._published([messages[place]])
        return results

    def _is_half_full(self) -> bool:
        """Whether messages have taken half the room that statements leave for names."""
        vocabulary = self._middleware.reader.vocabulary
        return 2 * (len(vocabulary) - self._known) > vocabulary.limit - self._known

    def _outcome(self, message: Told, result: Result) -> list[Any]:
        tenant, name, _ = message
        if result.table is None:
            reasons = [error for error in result.errors if not isinstance(error, StoreError)]
            return [[], [], "; ".join(map(_reason, reasons)) or "could not be read", 0, False]
        hits: list[Any] = []
        errors = self._failures(tenant, result)
        for found in result.matches:
            owner, _, statement = found.statement.partition(SEPARATOR)
            if tenant not in (owner, ALL):
                continue
            if len(hits) == HITS:
                errors.append(f"more than {HITS:,} matches: the rest is left out")
                break
            hits.append(self._hit(owner, name, statement, found, result))
        return [hits, errors, None, result.unmatched, False]

    def _hit(
        self, tenant: str, message: str, statement: str, found: Match, result: Result
    ) -> list[Any]:
        start = None if found.local is None else found.local.start
        match = plain_match(found, result.table, values=found.statement in self._values)
        name = hit_id(tenant, message, statement, found.nodes, start)
        return [name, tenant, statement, hit_line(name, tenant, message, statement, match)]

    def _failures(self, tenant: str, result: Result) -> list[str]:
        """The tenant's statements that gave no full answer."""
        said = [(name, "not decided within the limit of work") for name in result.undecided]
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
            "renewals": self._renewals,
            "trouble": self._trouble,
        }

    def report(self) -> dict[str, Any]:
        """What was learnt of the costs of operators, or why that cannot be told.

        It takes processor time from messages, so in short.
        """
        try:
            return self._middleware.report(seconds=REPLAY).to_json()
        except Exception as error:  # Whoever asks gets an answer, and messages are matched.
            return {"error": f"{type(error).__name__}: {_reason(error)}"}


def _failed(error: Exception) -> list[Any]:
    """A message that raised: the index's fault is no reason to call the message bad."""
    if isinstance(error, StoreError | OSError | MemoryError):
        return [[], [f"the index could not be asked: {_reason(error)}"], None, 0, False]
    said = f"matching it failed unexpectedly: {type(error).__name__} at {_place(error)}"
    return [[], [], f"{said}: {_reason(error)}", 0, True]


def _place(error: Exception) -> str:
    """Where an error was raised: a file and a line of it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"


def _crowded(result: Result) -> bool:
    """Whether there was no room for the names of a message."""
    full = (isinstance(error, LimitExceeded) and error.limit == "names" for error in result.errors)
    return result.table is None and any(full)


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

    def put(self, ticket: int, said: object) -> None:
        data = answer(ticket, said)
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
            kind, ticket, about = asked
            said: Any
            if worker is None:
                try:
                    worker = Worker(about)
                    said = None
                except (FMwareError, StoreError, OSError, TypeError, ValueError) as error:
                    said = _reason(error)
            elif kind == "report":
                answers.put_later(ticket, worker.report)
                continue
            else:
                ask = getattr(worker, kind)
                said = ask() if about is None else ask(about)
            answers.put(ticket, said)
    except BrokenPipeError:
        pass  # The engine is gone: nobody waits for the answer, and the message comes again.
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
