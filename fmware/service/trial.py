"""Statements tried out: validated, explained, run on one message; nothing is kept.

The index stays open, and each call has a middleware of its own, made in a moment: names in
the statements and messages of strangers are gone with it. One call at a time: a call that comes
when many wait is turned away, so that trying things out never takes the place of matching.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from fmware.filtering import FilterLimits
from fmware.filtering.explain import explain
from fmware.matching import Resolver, advice
from fmware.matching.to_json import matches_of
from fmware.middleware import Middleware
from fmware.service.problems import Problem
from fmware.service.worker import statement_of
from fmware.statements import anchor_text, match_text
from fmware.xpath import to_text
from index import Index, StoreError
from labeling import CHARACTER_ENTITIES, Limits, ReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fmware.matching.results import Result
    from fmware.service.settings import Settings
    from fmware.statements import Statement
    from labeling import NodeTable

__all__ = ["Trial", "record"]

WAITING: Final = 16
WORK: Final = 5_000_000
"""Units of work that one statement may take on one message here."""
MATCHES: Final = 1000

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Trial:
    """An index to try statements on."""

    def __init__(self, settings: Settings) -> None:
        self._index = Index.open(settings.index)
        self._limits = settings.limits
        self._thread = ThreadPoolExecutor(1, "trial")
        self._waiting = 0

    async def validate(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """How a statement is understood, and what of it the index cannot answer."""
        return await self._run(self._validate, about)

    def _validate(self, about: Mapping[str, Any]) -> dict[str, Any]:
        statement = statement_of(about)
        self._refresh()
        return record(statement) | {"warnings": advice(statement, Resolver(self._index))}

    def _refresh(self) -> None:
        """Go on with the newest generation; if it cannot be had, with the one at hand.

        Workers meet the same trouble, and report it.
        """
        with suppress(StoreError, OSError):
            if self._index.newer():
                old, self._index = self._index, self._index.refresh()
                old.close()

    def _middleware(self) -> Middleware:
        """One for a single call."""
        self._refresh()
        limits = self._limits
        return Middleware(
            self._index,
            limits=FilterLimits(work=min(limits.work, WORK), tuples=min(limits.tuples, MATCHES)),
            read_limits=Limits(
                bytes=limits.bytes,
                depth=limits.depth,
                nodes=limits.nodes,
                attribute=limits.attribute,
                text=limits.text,
                names=limits.names,
                name_bytes=limits.name_bytes,
            ),
            entities=CHARACTER_ENTITIES if limits.entities else None,
            follow=False,
        )

    async def explain(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        """Why a message passes a statement's filter part, or where it stopped."""
        return await self._run(self._explain, about, message)

    def _explain(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        statement = statement_of(about)
        with self._middleware() as middleware:
            table = _read(middleware, message)
            return explain(table, statement.filter, namespaces=statement.namespaces).to_dict()

    async def run(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        """The matches of one statement on one message, and the explanation."""
        return await self._run(self._try, about, message)

    def _try(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        statement = statement_of(about)
        with self._middleware() as middleware:
            table = _read(middleware, message)
            middleware.subscribe(statement)
            result = middleware.publish(table)
            return self._told(statement, table, result)

    def _told(self, statement: Statement, table: NodeTable, result: Result) -> dict[str, Any]:
        found = [*islice(matches_of(result), MATCHES)]
        return {
            "statement": record(statement),
            "matches": found,
            "errors": result.problems,
            "undecided": bool(result.undecided),
            "unmatched": result.unmatched,
            "seconds": result.seconds,
            "explanation": explain(
                table, statement.filter, namespaces=statement.namespaces
            ).to_dict(),
        }

    async def close(self) -> None:
        """Wait for what is under way, then let go of the index."""
        await asyncio.to_thread(self._thread.shutdown)
        self._index.close()

    async def _run(
        self, call: Callable[Given, Answer], *values: Given.args, **named: Given.kwargs
    ) -> Answer:
        if self._waiting >= WAITING:
            raise Problem(
                503, "busy", "many others try statements out", headers={"Retry-After": "1"}
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, lambda: call(*values, **named))
        finally:
            self._waiting -= 1


def _read(middleware: Middleware, message: bytes) -> Any:
    try:
        return middleware.reader.read(message)
    except ReadError as error:
        where = f"message, line {error.line}, column {error.column}"
        raise Problem(422, "unreadable-message", error.reason, where=where) from None


def record(statement: Statement) -> dict[str, Any]:
    """A statement taken apart."""
    return {
        "name": statement.name,
        "statement": statement.text,
        "filter": to_text(statement.filter),
        "crossings": [
            {
                "anchor": anchor_text(crossing.anchor, statement.filter),
                "step": crossing.anchor.step + 1,
                "axis": crossing.axis.name.lower(),
                "match": match_text(crossing.match),
                "selects": crossing.selects,
            }
            for crossing in statement.crossings
        ],
        "returns": sorted(each.value for each in statement.returns),
    }
