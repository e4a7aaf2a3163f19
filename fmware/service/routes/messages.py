"""Messages: one or a batch, answered with what was found, or with a receipt.

All traffic comes this way, and layers of a framework cost as much as matching a message does. So
`Messages` answers as plain ASGI; the route is there for the description.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from fmware.service.bodies import Incoming, messages_of
from fmware.service.errors import BrokerError, EngineStopped, IndexDamaged
from fmware.service.models import Matched, MatchedBatch, Receipt
from fmware.service.problems import Problem
from fmware.service.routes.common import Asked, Owner, account_of, json_answer, problems, service_of
from fmware.service.service import PART

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.types import Message, Receive, Scope, Send

    from fmware.service.envelope import Outcome
    from fmware.service.service import Service
    from fmware.service.tenants import Account

    Body = bytes | AsyncIterator[bytes]

__all__ = ["Messages", "router"]

MESSAGE: Final = '<order><book isbn="3"><quantity>7</quantity></book></order>'
DESCRIBED: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "wait",
            "in": "query",
            "schema": {"type": "boolean", "default": True},
            "description": "Without it, a receipt is given at once.",
        },
        {
            "name": "batch",
            "in": "query",
            "schema": {"type": "boolean", "default": False},
            "description": "Answer as to a batch, also if there is one message.",
        },
        {
            "name": "Message-Id",
            "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
            "description": "What the message is called.",
        },
    ],
    "requestBody": {
        "required": True,
        "description": "One XML document, or several one after the other; gzip too.",
        "content": {
            "application/xml": {
                "schema": {"type": "string"},
                "examples": {
                    "one": {"value": MESSAGE},
                    "several": {"value": MESSAGE + "\n" + MESSAGE},
                },
            },
            "application/gzip": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["messages"],
                    "properties": {
                        "messages": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["xml"],
                                "additionalProperties": False,
                                "properties": {
                                    "id": {"type": "string", "minLength": 1, "maxLength": 200},
                                    "xml": {"type": "string"},
                                },
                            },
                        }
                    },
                },
                "example": {"messages": [{"id": "order-17", "xml": MESSAGE}]},
            },
        },
    },
}
NAMED: Final = 100
"""Statements that a problem names."""
YES: Final = frozenset({"true", "1", "yes", "on"})
NO: Final = frozenset({"false", "0", "no", "off"})

router = APIRouter(prefix="/v1", tags=["messages"])


@router.post(
    "/messages",
    response_model=MatchedBatch | Matched,
    responses=problems(413, 415, 429, 500, 503)
    | {202: {"model": Receipt, "description": "Taken."}},
    openapi_extra=DESCRIBED,
)
async def post_messages(request: Request) -> Response:
    """Match messages: one XML document or several, answered in their order.

    A message has the id of the header `Message-Id`, in a batch with its number, as `name#2`. One
    that was matched within the last minutes under the same id is a duplicate: not matched again.

    422 `undecided`: the tenant's own statements used up what a message may cost. 503 and 500: some
    messages have no answer, by our fault; they are named, and all others are done.
    """
    service, query = service_of(request), request.scope["query_string"]
    status, headers, body = await _answer(service, account_of(request), query, Incoming.of(request))
    if isinstance(body, bytes):
        return json_answer(body, status, **headers)
    return StreamingResponse(body, status, headers, "application/json")


class Messages:
    """`POST /v1/messages` as an ASGI application; what is refused is raised as a `Problem`."""

    path = "/v1/messages"

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        incoming = Incoming(dict(scope["headers"]), receive, scope.get("held"))
        try:
            status, more, body = await _answer(
                self._service, scope["account"], scope["query_string"], incoming
            )
        except IndexDamaged:
            what = "the index is damaged: nothing can be matched until it is repaired"
            raise Problem(503, "index-damaged", what, headers={"Retry-After": "10"}) from None
        except (EngineStopped, BrokerError):
            # A sink that fails is tried again until the service stops.
            raise Problem(503, "stopping", "the service stops") from None
        except sqlite3.Error as error:
            raise self._service.unkept(error) from None
        except HTTPException as error:
            if isinstance(error.__cause__, Problem):
                raise error.__cause__ from None
            raise
        headers = [
            (b"content-type", b"application/json"),
            *((key.encode(), value.encode()) for key, value in more.items()),
        ]
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
        start: Message = {"type": "http.response.start", "status": status, "headers": headers}
        await send(start)
        if isinstance(body, bytes) and len(body) <= PART:
            await send({"type": "http.response.body", "body": body})
        else:
            await _send_parts(send, body)


async def _send_parts(send: Send, body: Body) -> None:
    """Send a large body, a part at a time, as the client takes it."""
    async for each in _one(body) if isinstance(body, bytes) else body:
        for at in range(0, len(each), PART):
            part = each[at : at + PART]
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})


async def _one(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _answer(
    service: Service, owner: Account, query: bytes, incoming: Incoming
) -> tuple[int, dict[str, str], Body]:
    """The status, headers and body of the answer to messages."""
    wait, batch = _flag(query, "wait", True), _flag(query, "batch", False)  # noqa: FBT003
    owner.admit()
    began = time.perf_counter()
    try:
        messages, several = await messages_of(
            incoming,
            most_bytes=owner.body_bytes,
            most_messages=service.settings.server.batch_messages,
        )
    finally:
        service.metrics.took("read", time.perf_counter() - began)
    owner.spend(len(messages), sum([len(body) for _, body in messages]))
    if not wait:
        name = await service.take(owner.name, messages)
        about = {"receipt": name, "state": "waiting", "messages": len(messages)}
        return 202, {"location": f"/v1/receipts/{name}"}, json.dumps(about).encode()
    outcomes = await service.publish(owner.name, messages)
    _check(outcomes)
    if several or batch:
        return 200, {}, await _whole(service.told(outcomes))
    outcome = outcomes[0]
    more: dict[str, Any] = {"message": outcome.envelope_id}
    if outcome.poison is not None:
        raise Problem(422, "unreadable-message", outcome.poison, where="body", more=more)
    if outcome.undecided:
        more |= {"undecided": [*outcome.undecided[:NAMED]], "matched": len(outcome.hits)}
        what = f"{len(outcome.undecided):,} statements were not decided within the limit of work"
        hint = "make them cheaper, or the message smaller; the matches of others are in the log"
        raise Problem(422, "undecided", what, hint=hint, more=more)
    return 200, {}, service.told_one(outcome)


def _check(outcomes: Sequence[Outcome]) -> None:
    """A `Problem` if a message has no answer by our fault; those that it does not name are done."""
    faults = [outcome for outcome in outcomes if outcome.fault]
    if not faults:
        return
    failed = [outcome for outcome in faults if outcome.failed]
    more = {"messages": [outcome.envelope_id for outcome in (failed or faults)]}
    if failed:
        hint = "send those messages again"
        what = failed[0].errors[0]
        wait = {"Retry-After": "1"}
        raise Problem(503, "not-matched", what, hint=hint, headers=wait, more=more)
    raise Problem(500, "matching-failed", faults[0].poison or "", more=more)


async def _whole(parts: AsyncIterator[bytes]) -> Body:
    """A body that has one part as such; one that has more as it comes."""
    first = await anext(parts)
    second = await anext(parts, None)
    return first if second is None else _joined((first, second), parts)


async def _joined(first: tuple[bytes, bytes], parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for each in first:
        yield each
    async for each in parts:
        yield each


def _flag(query: bytes, name: str, usual: bool) -> bool:
    if not query:
        return usual
    said = QueryParams(query).get(name)
    if said is None:
        return usual
    if said.lower() not in YES | NO:
        what = f"{name} is true or false, not {said!r}"
        raise Problem(422, "invalid", what, where=f"query.{name}")
    return said.lower() in YES


@router.get(
    "/receipts/{receipt}",
    response_model=Receipt,
    response_model_exclude_none=True,
    responses=problems(404),
)
async def get_receipt(
    receipt: Annotated[str, InPath(max_length=64)], service: Asked, owner: Owner
) -> Response:
    """What became of messages that were taken."""
    found = await service.receipt(owner.name, receipt)
    if found is None:
        raise Problem(404, "no-receipt", f"there is no receipt {receipt!r}")
    taken, count, answer = found
    about = {
        "receipt": receipt,
        "state": "waiting" if answer is None else "done",
        "messages": count,
        "taken": taken,
    }
    head = json.dumps(about)[:-1].encode()
    return json_answer(head + (b"}" if answer is None else b', "answer": ' + answer + b"}"))
