"""Statements: create, replace, delete, list, bulk, validate, explain, and try one out."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from pydantic import ValidationError

from fmware.errors import FMwareError
from fmware.filtering.statements import StatementFileError
from fmware.service.bodies import Incoming
from fmware.service.entries import entries_of
from fmware.service.models import (
    NAME,
    BulkAnswer,
    Refused,
    StatementBody,
    StatementIn,
    StatementList,
    StatementOut,
    StatementRecord,
    TryIn,
    TryOut,
)
from fmware.service.problems import Problem, of_refused
from fmware.service.routes.common import Asked, Owner, problems

__all__ = ["router"]

TRIED: Final = 1 << 20
"""Bytes of a message that is explained."""
TEXT: Final = ("text/plain", "application/toml")
BULK: Final = {
    "type": "object",
    "required": ["statements"],
    "additionalProperties": False,
    "properties": {
        "statements": {"type": "array", "items": {"$ref": "#/components/schemas/StatementIn"}}
    },
}
New = Annotated[str, InPath(pattern=NAME, max_length=128, description="A statement's name.")]
Named = Annotated[str, InPath(min_length=1, max_length=200, description="A statement's name.")]

router = APIRouter(prefix="/v1", tags=["statements"])


@router.get("/statements", response_model_exclude_none=True, responses=problems())
async def list_statements(
    service: Asked,
    owner: Owner,
    after: Annotated[str, Query(max_length=200, description="Go on behind this name.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> StatementList:
    """The tenant's statements, by name, a page at a time."""
    found = await service.statements(owner.name, after, limit + 1)
    page = [StatementOut(**each) for each in found[:limit]]
    more = page[-1].name if len(found) > limit else None
    return StatementList(statements=page, count=service.count(owner.name), next=more)


@router.post(
    "/statements", status_code=201, response_model_exclude_none=True, responses=problems(409, 429)
)
async def create_statement(
    statement: StatementIn, service: Asked, owner: Owner, response: Response
) -> StatementOut:
    """Register a statement; one of the same name must not be there."""
    about = statement.plain(statement.name)
    _, refused = await service.register(owner, [about], replace=False)
    if refused:
        raise refused[0][1]
    response.headers["location"] = f"/v1/statements/{statement.name}"
    return StatementOut(**await service.statement(owner.name, statement.name))


@router.post(
    "/statements/bulk",
    responses=problems(413, 415),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": BULK},
                "text/plain": {
                    "schema": {"type": "string"},
                    "example": "//order/book[quantity > 5]/local:publisher\n//order//isbn",
                },
                "application/toml": {
                    "schema": {"type": "string"},
                    "example": '[[statement]]\nname = "bulk"\nexpression = "//order/book"\n',
                },
            },
        }
    },
)
async def create_many(
    request: Request,
    service: Asked,
    owner: Owner,
    replace: Annotated[bool, Query(description="Replace those of the same name.")] = True,
) -> BulkAnswer:
    """Register many statements: JSON, one a line, or TOML. What is refused keeps no other."""
    good, refused = _entries(await Incoming.of(request).body(owner.body_bytes), _kind(request))
    names, more = await service.register(owner, good, replace=replace)
    return BulkAnswer(
        registered=len(names),
        refused=[Refused(name=name, problem=why.record()) for name, why in (*refused, *more)],
    )


@router.post("/statements/validate", response_model_exclude_none=True, responses=problems())
async def validate_statement(statement: StatementBody, service: Asked) -> StatementRecord:
    """How a statement is understood, and what of it the index cannot answer; nothing is kept."""
    try:
        return StatementRecord(**await service.trial.validate(statement.plain("")))
    except FMwareError as error:
        raise _refused(error) from None


@router.get("/statements/{name}", response_model_exclude_none=True, responses=problems(404))
async def get_statement(name: Named, service: Asked, owner: Owner) -> StatementOut:
    """One statement."""
    return StatementOut(**await service.statement(owner.name, name))


@router.put("/statements/{name}", response_model_exclude_none=True, responses=problems(409, 429))
async def put_statement(
    name: New, statement: StatementBody, service: Asked, owner: Owner
) -> StatementOut:
    """Register a statement, in the place of one of the same name if there is one."""
    _, refused = await service.register(owner, [statement.plain(name)], replace=True)
    if refused:
        raise refused[0][1]
    return StatementOut(**await service.statement(owner.name, name))


@router.delete("/statements/{name}", status_code=204, responses=problems(404, 409))
async def delete_statement(name: Named, service: Asked, owner: Owner) -> None:
    """Take a statement out."""
    await service.withdraw(owner, name)


@router.post(
    "/statements/{name}/explain",
    responses=problems(404, 413, 415),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/xml": {
                    "schema": {"type": "string"},
                    "example": "<order><book><quantity>2</quantity></book></order>",
                }
            },
        }
    },
)
async def explain_statement(
    name: Named, request: Request, service: Asked, owner: Owner
) -> dict[str, Any]:
    """Why a message passes the filter part of a statement, or where it stopped."""
    about = await service.statement(owner.name, name)
    return await service.trial.explain(about, await Incoming.of(request).body(TRIED))


@router.post("/try", responses=problems(413), tags=["try"])
async def try_statement(asked: TryIn, service: Asked) -> TryOut:
    """What a statement finds in a message, and why; nothing is kept."""
    try:
        found = await service.trial.run(asked.statement.plain("try"), _bytes(asked.message))
    except FMwareError as error:
        raise _refused(error) from None
    return TryOut(**found)


def _bytes(message: str) -> bytes:
    try:
        return message.encode()
    except UnicodeEncodeError:
        raise Problem(422, "unreadable-message", "half a character", where="message") from None


def _refused(error: FMwareError) -> Problem:
    return error if isinstance(error, Problem) else of_refused(error)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _entries(data: bytes, kind: str) -> tuple[list[dict[str, Any]], list[tuple[str, Problem]]]:
    """The statements of a body, and those that are not even entries."""
    if kind in TEXT:
        try:
            good, bad = entries_of(data, "body.toml" if kind.endswith("toml") else "body")
        except StatementFileError as error:
            raise Problem(422, "bad-statements", error.reason, where=f"line {error.line}") from None
        checked = [_checked(each) for each in good]
        wrong = [(name, of_refused(error)) for name, error in bad]
    elif kind == "application/json":
        checked, wrong = [_checked(each) for each in _listed(data)], []
    else:
        hint = "say Content-Type: application/json; or text/plain, application/toml"
        raise Problem(415, "unknown-media-type", f"statements cannot come as {kind!r}", hint=hint)
    fine = [each for each in checked if isinstance(each, dict)]
    return fine, [*wrong, *(each for each in checked if not isinstance(each, dict))]


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


def _checked(about: Any) -> dict[str, Any] | tuple[str, Problem]:
    try:
        found = StatementIn.model_validate(about, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        name = about.get("name") if isinstance(about, dict) else None
        where = ".".join(map(str, first["loc"])) or "statement"
        called = name if isinstance(name, str) else "?"
        return called, Problem(422, "bad-statement", first["msg"], where=where)
    return found.plain(found.name)
