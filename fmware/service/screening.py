"""Bodies of strangers that are read in a process of their own (see `sandbox`).

Reading JSON and TOML takes up to a hundred times the memory and, byte by byte, a thousand times
the processor time that moving it does; no part of it lets the event loop go on. What leaves here is
small, or in lines that the server reads a few at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from fmware.errors import FMwareError
from fmware.filtering.statements import StatementFileError
from fmware.service.entries import entries_of, statement_of
from fmware.service.models import StatementBody, StatementIn, TryIn
from fmware.service.problems import Problem, invalid, of_refused, shortened
from fmware.service.webhook_models import WebhookBody, WebhookIn, WebhookRotation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

__all__ = ["MODELS", "REFUSED", "refused_line", "screened", "statement_lines", "wrong"]

MODELS: Final[Mapping[str, type[BaseModel]]] = {
    each.__name__: each
    for each in (StatementBody, StatementIn, TryIn, WebhookBody, WebhookIn, WebhookRotation)
}
"""What bodies of routes may be."""
REFUSED: Final = 1000
"""Statements that were refused that an answer lists: a few bytes of each make a few hundred."""
TEXT: Final = ("text/plain", "application/toml")
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Refusal = tuple[str, Problem]


def screened(name: str, data: bytes) -> bytes:
    """The JSON of a body with nothing in it but what a model knows; a `Problem` if it is wrong."""
    try:
        found = MODELS[name].model_validate_json(data)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False, include_input=False)
        raise invalid([(("body", *each["loc"]), each["msg"]) for each in told]) from None
    return found.model_dump_json(exclude_unset=True).encode(errors="backslashreplace")


def statement_lines(kind: str, data: bytes) -> tuple[dict[str, int], bytes]:
    """The statements of a body of some media type: how many are `good` and `refused`, and lines.

    The good ones come first, a line of JSON each, as they are stored; then the first of those that
    were refused, see `refused_line`. A `Problem` if the body as a whole is wrong.
    """
    entries, refused = _entries(kind, data)
    good: list[str] = []
    for each in entries:
        problem = wrong(each)
        if problem is None:
            good.append(_ENCODE(each))
        else:
            refused.append((each["name"], problem))
    lines = "\n".join(good).encode(errors="backslashreplace")
    told = [refused_line(name, why) for name, why in refused[:REFUSED]]
    counts = {"good": len(good), "refused": len(refused)}
    return counts, b"\n".join([*([lines] if good else ()), *told])


def refused_line(name: str, why: Problem) -> bytes:
    """A statement that was refused as JSON: its name and its problem."""
    about = {"name": shortened(name), "problem": why.record()}
    return _ENCODE(about).encode(errors="backslashreplace")


def wrong(about: Mapping[str, Any]) -> Problem | None:
    """What is wrong with a statement."""
    try:
        statement_of(about)
    except (FMwareError, ValueError, TypeError) as error:
        return of_refused(error, f"statement {about['name']}")
    return None


def _entries(kind: str, data: bytes) -> tuple[list[dict[str, Any]], list[Refusal]]:
    """The statements of a body, and those that are not even entries."""
    if kind in TEXT:
        try:
            good, bad = entries_of(data, "body.toml" if kind.endswith("toml") else "body")
        except StatementFileError as error:
            raise Problem(422, "bad-statements", error.reason, where=f"line {error.line}") from None
        checked = [_checked(each) for each in good]
        refused = [(each.name, of_refused(each.error)) for each in bad]
    else:
        checked, refused = [_checked(each) for each in _listed(data)], []
    fine = [each for each in checked if isinstance(each, dict)]
    return fine, [*refused, *(each for each in checked if not isinstance(each, dict))]


def _listed(data: bytes) -> list[Any]:
    try:
        about = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "bad-json", f"not JSON: {error}", where="body") from None
    listed = about.get("statements") if isinstance(about, dict) else None
    if not isinstance(listed, list) or set(about) != {"statements"}:
        hint = 'write {"statements": [{"name": ..., "expression": ...}]}'
        raise Problem(422, "bad-statements", "no list of statements", where="body", hint=hint)
    return listed


def _checked(about: Any) -> dict[str, Any] | Refusal:
    try:
        found = StatementIn.model_validate(about, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = about.get("name") if isinstance(about, dict) else None
        where = ".".join(map(str, first["loc"])) or "statement"
        called = name if isinstance(name, str) else "?"
        return called, Problem(422, "bad-statement", first["msg"], where=where)
    return found.plain(found.name)
