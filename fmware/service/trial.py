"""Statements tried out and bodies read, in a process that no other request depends on.

`sandbox` starts it and talks to it. It ends when its pipe does, or when it has no memory left: then
the one that asked is told so, and another process takes its place. It answers one question after
the other; what is wrong with one is a problem, in its answer.

- `open` {options}: with what it works. It says that it is ready.
- `validate`, `explain`, `try`: a statement, and a message behind it. Nothing is kept: the index
  stays open, and each question has a middleware of its own, made in a moment, so names in the
  statements and messages of strangers are gone with it.
- `redundant` [statements]: which of them are not needed.
- `screen` MODEL, `statements` MEDIA TYPE, and a body behind it: see `screening`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final

from fmware.cmatch.heap import give_back
from fmware.errors import FMwareError
from fmware.filtering import FilterLimits
from fmware.filtering.explain import explain
from fmware.index import CorruptIndex, Index, StoreError
from fmware.labeling import CHARACTER_ENTITIES, Limits, ReadError
from fmware.matching import Resolver, advice
from fmware.matching.to_json import matches_of
from fmware.middleware import Middleware
from fmware.routing import Pattern, reduce
from fmware.service.entries import statement_of
from fmware.service.memory import bound_memory, private_bytes
from fmware.service.models import RedundantList, StatementRecord, TryOut
from fmware.service.pipe import run
from fmware.service.problems import Problem, of_refused
from fmware.service.screening import screened, statement_lines
from fmware.service.wire import answer, questioned
from fmware.statements import anchor_text, match_text
from fmware.xpath import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.labeling import NodeTable
    from fmware.matching.results import Result
    from fmware.statements import Statement

__all__ = ["Trial", "main", "record", "serve"]

WORK: Final = 5_000_000
"""Units of work that one statement may take on one message here."""
MATCHES: Final = 1000
KEPT: Final = 64 << 20
"""Bytes that the process may have taken for questions that it has answered."""


class Trial:
    """An index to try statements on, and limits of messages; it is opened when it is needed."""

    def __init__(self, index: str, limits: Mapping[str, Any]) -> None:
        self._path = index
        self._limits = dict(limits)
        self._opened: Index | None = None

    @property
    def _index(self) -> Index:
        if self._opened is None:
            self._opened = Index.open(self._path)
        return self._opened

    def validate(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """How a statement is understood, and what of it the index cannot answer."""
        statement = statement_of(about)
        self._refresh()
        return record(statement) | {"warnings": advice(statement, Resolver(self._index))}

    def redundant(self, abouts: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Which of some statements others make redundant; those with local parts are needed."""
        statements = [statement_of(about) for about in abouts]
        plain = [(s.name, Pattern(s.filter, s.namespaces)) for s in statements if s.plain]
        found = [
            {
                "name": each.name,
                "statement": each.text,
                "reason": each.reason,
                "by": each.by,
                "why": each.why,
            }
            for each in reduce(plain).findings
        ]
        return {"looked_at": len(statements), "redundant": found}

    def _refresh(self) -> None:
        """Go on with the newest generation; if it cannot be had, with the one at hand.

        Workers meet the same trouble, and report it. An index whose files were written to is opened
        anew: that checks it, and what was put back is good again.
        """
        try:
            self._index.check()
        except CorruptIndex:
            self._reopen()
            return
        with suppress(StoreError, OSError):
            if self._index.newer():
                old, self._opened = self._index, self._index.refresh()
                old.close()

    def _reopen(self) -> None:
        try:
            old, self._opened = self._index, Index.open(self._path)
        except (StoreError, OSError):
            what = "the index is damaged: nothing can be tried out until it is repaired"
            raise Problem(503, "index-damaged", what, headers={"Retry-After": "10"}) from None
        old.close()

    def _middleware(self) -> Middleware:
        """One for a single call."""
        self._refresh()
        limits = dict(self._limits)
        entities = limits.pop("entities", False)
        work, tuples = limits.pop("work", WORK), limits.pop("tuples", MATCHES)
        return Middleware(
            self._index,
            limits=FilterLimits(work=min(work, WORK), tuples=min(tuples, MATCHES)),
            read_limits=Limits(**limits),
            entities=CHARACTER_ENTITIES if entities else None,
            follow=False,
        )

    def explain(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        """Why a message passes a statement's filter part, or where it stopped."""
        statement = statement_of(about)
        with self._middleware() as middleware:
            table = _read(middleware, message)
            return explain(table, statement.filter, namespaces=statement.namespaces).to_dict()

    def run(self, about: Mapping[str, Any], message: bytes) -> dict[str, Any]:
        """The matches of one statement on one message, and the explanation."""
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

    def close(self) -> None:
        """Let go of the index."""
        if self._opened is not None:
            self._opened.close()


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


def _answer(trial: Trial, kind: str, about: Any, body: bytes) -> tuple[dict[str, Any], bytes]:
    """What is said to a question, and the bytes behind it."""
    if kind == "screen":
        return {}, screened(about, body)
    if kind == "statements":
        return statement_lines(about, body)
    if kind == "validate":
        found = StatementRecord(**trial.validate(about)).model_dump(exclude_none=True)
    elif kind == "redundant":
        found = RedundantList(**trial.redundant(about)).model_dump(exclude_none=True)
    elif kind == "try":
        found = TryOut(**trial.run(about, body)).model_dump()
    else:
        found = trial.explain(about, body)
    return {}, json.dumps(found, ensure_ascii=False).encode(errors="backslashreplace")


def _said(trial: Trial, kind: str, about: Any, body: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        return _answer(trial, kind, about, body)
    except Problem as problem:
        return {"problem": problem.told()}, b""
    except FMwareError as error:
        return {"problem": of_refused(error).told()}, b""
    except (StoreError, OSError) as error:
        what = f"the index could not be asked: {error}"
        return {"problem": Problem(503, "index-trouble", what).told()}, b""
    except MemoryError:
        return {"memory": True}, b""


def serve(inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Answer questions until there are no more, or one took so much memory that it is the last."""
    trial: Trial | None = None
    begun = 0
    try:
        while (asked := questioned(inbox)) is not None:
            kind, ticket, about, bodies = asked
            said: dict[str, Any] | None
            if trial is None:
                trial = Trial(about["index"], about["limits"])
                bound_memory(about["memory"])
                os.nice(about["nice"])
                begun = private_bytes()
                said, text = None, b""
            else:
                said, text = _said(trial, kind, about, b"".join(bodies))
                give_back()
                # What is left is in pieces, and would stay: another process begins anew.
                said["last"] = "memory" in said or private_bytes() - begun > KEPT
            outbox.write(answer(ticket, said, text))
            outbox.flush()
            if said is not None and said["last"]:
                break
    except BrokenPipeError:
        pass  # The server is gone.
    finally:
        if trial is not None:
            trial.close()


def main() -> None:
    """Be a process for try-outs: answer on what was standard output."""
    run(serve)


if __name__ == "__main__":
    main()
