"""Messages: one or a batch, answered with what was found, or with a receipt."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath

from fmware.service.bodies import messages_of
from fmware.service.models import Matched, MatchedBatch, Receipt
from fmware.service.problems import Problem
from fmware.service.routes.common import Asked, Owner, account_of, json_answer, problems, service_of

__all__ = ["router"]

MESSAGE: Final = '<order><book isbn="3"><quantity>7</quantity></book></order>'
# Said here and read below: to have them solved as dependencies costs an eighth of a request.
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
YES: Final = frozenset({"true", "1", "yes", "on"})
NO: Final = frozenset({"false", "0", "no", "off"})

router = APIRouter(prefix="/v1", tags=["messages"])


@router.post(
    "/messages",
    response_model=MatchedBatch | Matched,
    responses=problems(413, 415, 429) | {202: {"model": Receipt, "description": "Taken."}},
    openapi_extra=DESCRIBED,
)
async def post_messages(request: Request) -> Response:
    """Match messages: one XML document or several, answered in their order.

    A message has the id of the header `Message-Id`, in a batch with its number, as `name#2`. One
    that was matched within the last minutes under the same id is a duplicate: not matched again.
    """
    service, owner = service_of(request), account_of(request)
    wait, batch = _flag(request, "wait", True), _flag(request, "batch", False)  # noqa: FBT003
    owner.admit()
    with service.metrics.timed("read"):
        messages, several = await messages_of(
            request,
            most_bytes=owner.body_bytes,
            most_messages=service.settings.server.batch_messages,
            name=request.headers.get("message-id"),
        )
    owner.spend(len(messages), sum(len(body) for _, body in messages))
    if not wait:
        name = await service.take(owner.name, messages)
        about = {"receipt": name, "state": "waiting", "messages": len(messages)}
        return json_answer(json.dumps(about).encode(), 202, location=f"/v1/receipts/{name}")
    outcomes = await service.publish(owner.name, messages)
    if several or batch:
        return json_answer(service.told(outcomes))
    if outcomes[0].poison is not None:
        more = {"message": outcomes[0].envelope_id}
        raise Problem(422, "unreadable-message", outcomes[0].poison, where="body", more=more)
    return json_answer(service.told_one(outcomes[0]))


def _flag(request: Request, name: str, usual: bool) -> bool:
    if not request.scope["query_string"]:
        return usual
    said = request.query_params.get(name)
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
