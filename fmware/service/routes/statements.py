"""Statements: create, replace, delete, list, bulk, validate, explain, and try one out."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath

from fmware.service.answers import listed
from fmware.service.bodies import Incoming
from fmware.service.models import (
    NAME,
    BulkAnswer,
    RedundantList,
    StatementBody,
    StatementIn,
    StatementList,
    StatementOut,
    StatementRecord,
    TryIn,
    TryOut,
)
from fmware.service.problems import Problem
from fmware.service.routes.common import (
    Asked,
    Owner,
    ScreenedRoute,
    json_answer,
    pieces,
    problems,
)
from fmware.service.screening import REFUSED, refused_line

__all__ = ["router"]

TRIED: Final = 1 << 20
"""Bytes of a message that is explained."""
KINDS: Final = ("application/json", "text/plain", "application/toml")
"""Media types of many statements."""
BULK: Final = {
    "type": "object",
    "required": ["statements"],
    "additionalProperties": False,
    "properties": {
        "statements": {"type": "array", "items": {"$ref": "#/components/schemas/StatementIn"}}
    },
}
LOOKED_AT: Final = 1000
"""Statements that are looked at for redundant ones: some tenths of a second in the sandbox."""
New = Annotated[str, InPath(pattern=NAME, max_length=128, description="A statement's name.")]
Named = Annotated[str, InPath(min_length=1, max_length=200, description="A statement's name.")]

router = APIRouter(prefix="/v1", tags=["statements"], route_class=ScreenedRoute)


@router.get(
    "/statements",
    response_model=StatementList,
    response_model_exclude_none=True,
    responses=problems(),
)
async def list_statements(
    service: Asked,
    owner: Owner,
    after: Annotated[str, Query(max_length=200, description="Go on behind this name.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The tenant's statements, by name, a page at a time."""
    found = await service.statements(owner.name, after, limit + 1)
    head: dict[str, Any] = {"count": service.count(owner.name)}
    if len(found) > limit:
        head["next"] = found[limit - 1]["name"]
    return json_answer(await asyncio.to_thread(listed, head, "statements", found[:limit]))


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
    response_model=BulkAnswer,
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
) -> Response:
    """Register many statements: JSON, one a line, or TOML. What is refused keeps no other."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        hint = "say Content-Type: application/json; or text/plain, application/toml"
        raise Problem(415, "unknown-media-type", f"statements cannot come as {kind!r}", hint=hint)
    data = await Incoming.of(request).body(owner.body_bytes)
    said, text = await service.reading.ask(owner.name, "statements", kind, data)
    lines = text.split(b"\n") if text else []
    good: list[dict[str, Any]] = []
    async for some in pieces(lines[: said["good"]]):
        good += json.loads(b"[%b]" % b",".join(some))
    names, more = await service.register(owner, good, replace=replace, read=True)
    told = lines[said["good"] :]
    told += [refused_line(name, why) for name, why in more[: REFUSED - len(told)]]
    count = said["refused"] + len(more)
    cut = b',"refused_count":%d' % count if count > len(told) else b""
    return json_answer(b'{"registered":%d,"refused":[%b]%b}' % (len(names), b",".join(told), cut))


@router.get(
    "/redundant",
    response_model=RedundantList,
    response_model_exclude_none=True,
    responses=problems(),
)
async def list_redundant(service: Asked, owner: Owner) -> Response:
    """Which of the tenant's first thousand statements are not needed, because of which others."""
    found = await service.statements(owner.name, "", LOOKED_AT)
    return json_answer((await service.trial.ask(owner.name, "redundant", found))[1])


@router.post(
    "/statements/validate",
    response_model=StatementRecord,
    response_model_exclude_none=True,
    responses=problems(),
)
async def validate_statement(statement: StatementBody, service: Asked, owner: Owner) -> Response:
    """How a statement is understood, and what of it the index cannot answer; nothing is kept."""
    _, text = await service.trial.ask(owner.name, "validate", statement.plain(""))
    return json_answer(text)


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
    response_model=dict[str, Any],
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
) -> Response:
    """Why a message passes the filter part of a statement, or where it stopped."""
    about = await service.statement(owner.name, name)
    body = await Incoming.of(request).body(TRIED)
    return json_answer((await service.trial.ask(owner.name, "explain", about, body))[1])


@router.post("/try", response_model=TryOut, responses=problems(413), tags=["try"])
async def try_statement(asked: TryIn, service: Asked, owner: Owner) -> Response:
    """What a statement finds in a message, and why; nothing is kept."""
    about, body = asked.statement.plain("try"), _bytes(asked.message)
    return json_answer((await service.trial.ask(owner.name, "try", about, body))[1])


def _bytes(message: str) -> bytes:
    try:
        return message.encode()
    except UnicodeEncodeError:
        raise Problem(422, "unreadable-message", "half a character", where="message") from None
