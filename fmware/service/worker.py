"""A worker: a process with a middleware of its own, that answers questions on a pipe.

It begins with what it is asked first, `open`, and ends when its pipe does: signals that a terminal
or a supervisor sends to all processes alike are the engine's to understand. Questions are answered
one after the other in the order they came, so a statement is there for every message behind it.

- `open` {options}: make the middleware; says that it is ready, or why not.
- `match` [tenants, ids, times], and bodies behind it: what was found in all of them, see `found`;
  or {"damaged": reason, "blamed": ...}, if the index cannot be trusted, see `Worker.answer`.
- `subscribe` [(tenant, statement), ...]: those that were refused, with reasons, and the seconds of
  processor time that it took.
- `unsubscribe` [(tenant, name), ...]: nothing, and the seconds.
- `stand_back` number: give way to other processes that want a core, by so much.
- `stats`: counts of the filter and of the operators.
- `report`: what was learnt of their costs. It is made beside the rest, on a thread, and answered
  when it is done: messages do not wait for it.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from fmware.errors import FMwareError
from fmware.filtering import FilterLimits
from fmware.index import FileChanged, StoreError
from fmware.labeling import CHARACTER_ENTITIES, Limits
from fmware.matching.limits import MatchLimits
from fmware.middleware import Middleware
from fmware.service._columns import Writing
from fmware.service.answer import Answer, is_ours, reason_of, unanswered
from fmware.service.entries import statement_of
from fmware.service.envelope import ALL
from fmware.service.found import BLAMED, DAMAGED, Found, Notes
from fmware.service.hits import SEPARATOR
from fmware.service.host import over_budget, owner_of
from fmware.service.memory import bound_memory
from fmware.service.pipe import Outbox, run
from fmware.service.separate import Separate
from fmware.service.tenancy import Tenancy
from fmware.service.wire import questioned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fmware.index import Index
    from fmware.matching.results import Results
    from fmware.service.found import Told
    from fmware.service.host import Host
    from fmware.service.tenancy import Alone
    from fmware.statements import Statement

__all__ = ["SEPARATOR", "Worker", "main", "serve"]

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
CHANGES: Final = ("subscribe", "unsubscribe")
REPLAY: Final = 0.5
"""Seconds for a report to try what else it could have cost."""
SHORT: Final = 30.0
"""Seconds for which it is told that there was no memory."""
COMMON: Final = 8
"""Of a tenant's budget of work, the part that the run in common may take: others wait for it."""
QUICK: Final = 32
"""Of a message's budget, the part that a worker which serves all tenants may spend: the most that
others wait, some tens of milliseconds for the costliest kind of work."""
SMALL_CACHE: Final = 16 << 20
"""Bytes of what the filter of a single tenant may have learnt of messages."""
SMALL_BUDGET: Final = 8 << 20
"""Bytes that the operators of a single tenant may hold before they spill to disk."""


class Worker:
    """A middleware for each tenant, or one for all of them, and what the service asks of them.

    Options are those of `Middleware`, and `limits` and `entities` for messages, and:

    - `own`: each tenant has a middleware, and messages that are one tenant's are matched there;
      without it they are matched with those of all (see `separate` and `tenancy`).
    - `common`: messages for all tenants may come.
    - `quick`: a message that costs more than a part of the budget is deferred.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        own, quick = self._options.pop("own", False), self._options.pop("quick", False)
        self._common = self._options.pop("common", True) or not own
        self._tenancy = Tenancy(self._opened, self._options.pop("index"))
        self._writings: dict[str, Writing] = {}
        self._separate: Separate | None = None
        if own:
            make = partial(self._opened, small=True, part=QUICK if quick else 1)
            index = self._tenancy.shared.middleware.index
            self._separate = Separate(make, index, self._writings, self._note, quick=quick)
        self._trouble = ""
        self._short = -SHORT
        """When there was no memory for a message, last."""

    def _opened(self, index: str | Index, small: bool, part: int = 1) -> Middleware:
        """A middleware for all tenants, or a small one: for one of them, beside the others.

        A message may take one of `part` parts of the budget.
        """
        about = dict(self._options)
        limits = about.pop("limits", {})
        entities = about.pop("entities", False)
        work = {key: limits[key] for key in ("work", "tuples", "active") if key in limits}
        sizes = {key: limits[key] for key in limits if key not in work}
        # The run in common need not find all: a tenant that it does not answer is answered alone.
        part = part if small else COMMON
        work["work"] = max(work.get("work", FilterLimits().work) // part, 1)
        if small:
            work["cache"] = SMALL_CACHE
            about |= {"threads": 0, "follow": False, "budget": SMALL_BUDGET}
            pairs = about.get("match_limits") or MatchLimits()
            about["match_limits"] = replace(pairs, pairs=max(pairs.pairs // part, 1))
        return Middleware(
            index,
            limits=FilterLimits(**work),
            read_limits=Limits(**sizes),
            entities=CHARACTER_ENTITIES if entities else None,
            owner=owner_of,
            **about,
        )

    def close(self) -> None:
        if self._separate is not None:
            self._separate.close()
        self._tenancy.close()

    @property
    def _hosts(self) -> list[Host]:
        """All middlewares there are, the common one first."""
        own = [] if self._separate is None else self._separate.hosts
        return [*self._tenancy.hosts, *own]

    # --- statements -----------------------------------------------------------------------------

    def subscribe(self, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> list[list[str]]:
        """Register statements, in the place of those of the same names; those refused, and why."""
        refused = []
        for tenant, about in statements:
            # One string for all that keep it, also when the statement is replaced.
            name = sys.intern(f"{tenant}{SEPARATOR}{about['name']}")
            try:
                self._put(statement_of(about, name))
            except (FMwareError, OverflowError) as error:
                refused.append([tenant, about["name"], str(error)])
            else:
                self._writings[name] = Writing(name)
        return refused

    def _put(self, statement: Statement) -> None:
        """Register a statement wherever it is needed, or nowhere."""
        if self._common:
            self._tenancy.put(statement)
        if self._separate is None:
            return
        try:
            self._separate.put(statement)
        except BaseException:
            # The one before it is still there, and belongs to all again.
            before = self._separate.get(statement.name)
            if self._common and before is not None:
                self._tenancy.put(before)
            elif self._common:
                self._tenancy.drop(statement.name)
            raise

    def unsubscribe(self, names: Sequence[tuple[str, str]]) -> None:
        """Take statements out; those that are not there are passed over."""
        for tenant, each in names:
            name = f"{tenant}{SEPARATOR}{each}"
            if name in self._tenancy:
                self._tenancy.drop(name)
            if self._separate is not None and name in self._separate:
                self._separate.drop(name)
            self._writings.pop(name, None)

    # --- messages -------------------------------------------------------------------------------

    def answer(self, messages: Sequence[Told]) -> tuple[object, bytes]:
        """What is said of a batch, and the bytes behind it; or that the index seems damaged.

        Nothing that was found can then be trusted: it may come from pages that nobody wrote. Unless
        a file was written to, it may also be the messages that an index which is whole cannot be
        asked with; they are to blame then.
        """
        try:
            found = self.match(messages)
            for host in self._tenancy.hosts:
                host.middleware.check()
            if self._separate is not None:
                self._separate.check({message[0] for message in messages})
        except StoreError as error:
            return {DAMAGED: reason_of(error), BLAMED: not isinstance(error, FileChanged)}, b""
        return found.numbers(), found.text

    def match(self, messages: Sequence[Told]) -> Found:
        """What is to be said of each message; those of a tenant should come together."""
        if self._separate is None:
            return self._together(messages)
        self._follow(self._separate)
        parts = []
        for tenant, group in groupby(messages, itemgetter(0)):
            own, began = [*group], time.thread_time()
            if tenant != ALL:
                part = self._matched(own, partial(self._separate.match, tenant))
            elif self._common:
                part = self._together(own)
            else:
                raise ValueError("a message for all tenants, of which the worker was not told")
            part.costs = {tenant: time.thread_time() - began}
            parts.append(part)
        return parts[0] if len(parts) == 1 else Found.joined(parts)

    def _together(self, messages: Sequence[Told]) -> Found:
        """What is to be said of messages by the statements of all."""
        parts = [
            self._matched(messages[places.start : places.stop], self._encoded)
            for places in self._tenancy.chunks(messages)
        ]
        return parts[0] if len(parts) == 1 else Found.joined(parts)

    def _follow(self, separate: Separate) -> None:
        """Take a newer generation; if it cannot be had, go on with the one at hand."""
        shared = self._tenancy.shared.middleware
        try:
            if shared.index.newer():
                shared.refresh()
        except (StoreError, OSError) as error:
            self._note(error)
        separate.follow(shared.index)

    def _matched(
        self, messages: Sequence[Told], encoded: Callable[[Sequence[Told]], Found]
    ) -> Found:
        try:
            return encoded(messages)
        except StoreError:
            raise  # It is the index that cannot be trusted, not one message.
        except Exception as error:  # One message must not take the others with it.
            if len(messages) > 1:
                return Found.joined([self._matched([one], encoded) for one in messages])
            self._note(error)
            return _failed(error)

    def _note(self, error: Exception) -> None:
        """Remember what is wrong here, for `stats`."""
        if isinstance(error, MemoryError):
            self._short = time.monotonic()
        elif is_ours(error):
            self._trouble = reason_of(error)

    def _encoded(self, messages: Sequence[Told]) -> Found:
        """Match a batch, and write down what was found: the one place that reads results."""
        apart = self._tenancy.apart
        common = [message for message in messages if message[0] not in apart]
        results = self._published(common)
        if (
            results is not None
            and not apart
            and not results.incomplete
            and not results.troubles.full
        ):
            self._tenancy.calm(len(messages))
            found = self._written(results, messages)
            if not found.troubles:
                return found
        parts, place = [], 0
        for message in messages:
            if message[0] in apart:
                parts.append(self._answered(message, None, 0, apart))
            else:
                parts.append(self._answered(message, results, place, apart))
                place += 1
        found = Found.joined(parts)
        found.seconds = {} if results is None else results.seconds
        return found

    def _published(self, messages: Sequence[Told]) -> Results | None:
        """What the middleware of all tenants says of messages; None: it has no memory for one."""
        try:
            return self._tenancy.shared.middleware.publish_batch(
                [message[3] for message in messages], names=[message[1] for message in messages]
            )
        except MemoryError:
            if len(messages) > 1:
                raise
            return None

    def _written(self, results: Results, messages: Sequence[Told]) -> Found:
        """The hits of messages that were answered in full, for the tenants they are for."""
        found = Found()
        notes = Notes(results, self._writings)
        for place, message in enumerate(messages):
            if errors := notes.write(place, message, found):
                found.trouble(errors)
        found.text = notes.text()
        found.seconds = results.seconds
        return found

    def _answered(
        self, message: Told, results: Results | None, place: int, apart: frozenset[str]
    ) -> Found:
        """What is to be said of one message, tenant by tenant where that is needed.

        `results` are those of the tenants that share; `apart` are those that do not.
        """
        tenant, name, _, body = message
        tenancy = self._tenancy
        over = None if results is None else over_budget(results[place])
        answer = Answer(message, self._writings, tenancy.names)
        if results is not None and over is not None and not results[place].answered:
            return answer.unreadable(results[place])
        concerned = [each for each in tenancy.tenants if tenant in (each, ALL)]
        alone = [each for each in concerned if each in apart or over is None or each in over]
        rest = [each for each in concerned if each not in alone]
        if results is not None and rest:
            if tenant == ALL and not over and answer.add(results, place, ALL):
                rest = []
            for each in rest:
                self._add(answer, results, place, each)
        tried: dict[str, Alone] = {}
        for each in alone:
            tried[each] = tenancy.alone(each, body, name)
            self._add(answer, tried[each].results, 0, each)
        if over != set() and tenant not in apart and tenancy.apart <= apart:
            tenancy.exhausted(body, name, tried)
        if answer.trouble is not None:
            self._note(answer.trouble)
        return answer.found()

    def _add(self, answer: Answer, results: Results, place: int, tenant: str) -> None:
        """Add what results say for a tenant.

        If that is more than is written down, which of it is must not depend on other tenants.
        """
        if not answer.add(results, place, tenant):
            _, name, _, body = answer.message
            again = self._tenancy.canonical(tenant, body, name)
            answer.add(again, 0, tenant, last=True)

    def stand_back(self, nice: int) -> None:
        """Give way to other processes that want a core."""
        os.nice(nice)

    # --- what it can tell -----------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts, by operator and of the filter; idle or not, a newer generation is taken up."""
        shared, *own = [host.middleware for host in self._hosts]
        try:
            shared.refresh()
            self._trouble = ""
        except (StoreError, OSError) as error:
            self._trouble = reason_of(error)
        filters = Counter(shared.filter_stats())
        counters = shared.counters()
        for each in own:
            filters.update(each.filter_stats())
            for name, more in each.counters().items():
                counters[name] = counters[name] + more if name in counters else more
        return {
            "generation": shared.index.generation,
            "statements": len(self._writings),
            "apart": len(self._tenancy.apart),
            "filter": dict(filters),
            "operators": {name: each.to_json() for name, each in counters.items()},
            "memory": _resident(),
            "trouble": self._trouble or self._shortage(),
        }

    def _shortage(self) -> str:
        recent = time.monotonic() - self._short < SHORT
        return "there was no memory to match messages" if recent else ""

    def report(self) -> list[dict[str, Any]]:
        """What was learnt of the costs of operators, by each middleware, or why it cannot be told.

        It takes processor time from messages, so in short.
        """
        all_share = self._separate is None
        made = [host.middleware for host in self._hosts if host.statements or all_share]
        return [_report(each, REPLAY / len(made)) for each in made]


def _report(middleware: Middleware, seconds: float) -> dict[str, Any]:
    try:
        return middleware.report(seconds=seconds).to_json()
    except Exception as error:  # The answer says so, and messages are matched.
        return {"error": f"{type(error).__name__}: {reason_of(error)}"}


def _failed(error: Exception) -> Found:
    """A message that raised: what is ours is no reason to call the message bad."""
    found = Found()
    found.add()
    if is_ours(error):
        found.trouble([unanswered(error)], fault=True)
    else:
        said = f"matching it failed unexpectedly: {type(error).__name__} at {_place(error)}"
        found.trouble([], f"{said}: {reason_of(error)}", fault=True)
    return found


def _place(error: Exception) -> str:
    """Where an error was raised: a file and a line of it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"


def _resident() -> int:
    """Bytes of memory that the process has."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - asked every second
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


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
                    said = reason_of(error)
            elif kind == "report":
                answers.put_later(ticket, worker.report)
                continue
            elif kind == "match":
                answers.put(ticket, *worker.answer(list(zip(*about, bodies, strict=True))))
                continue
            else:
                ask = getattr(worker, kind)
                began = time.thread_time()
                said = ask() if about is None else ask(about)
                if kind in CHANGES:
                    said = [said, time.thread_time() - began]
            answers.put(ticket, said)
    except BrokenPipeError:
        pass  # The engine is gone, with all that wait for the answer; the message comes again.
    finally:
        if worker is not None:
            worker.close()


def main() -> None:
    """Be a worker: answer on what was standard output."""
    run(serve)


if __name__ == "__main__":
    main()
