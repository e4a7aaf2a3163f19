"""Matches: the log by page, as server-sent events, and over a WebSocket."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response, WebSocket

from fmware.service.answers import listed
from fmware.service.events import EventStream, follow
from fmware.service.models import DeadLetters, Matches
from fmware.service.routes.common import Asked, Owner, account_of, json_answer, problems, service_of

__all__ = ["router"]

DIGITS: Final = 19
"""Of the largest position; what is longer is none, and may be too long to be read as a number."""
Statement = Annotated[
    str | None, Query(max_length=200, description="Only those of this statement.")
]
After = Annotated[
    int | None, Query(ge=0, le=2**62, description="Behind this position; 0 is the oldest.")
]

router = APIRouter(prefix="/v1", tags=["matches"])


@router.get("/matches", response_model=Matches, responses=problems())
async def get_matches(
    service: Asked,
    owner: Owner,
    after: Annotated[int, Query(ge=0, le=2**62, description="Behind this position.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    statement: Statement = None,
) -> Response:
    """Hits that are in the log, behind a position."""
    page = await service.log.read(owner.name, after, limit, statement)
    while not page.entries and page.position < service.log.last:
        page = await service.log.read(owner.name, page.position, limit, statement)
    lines = b",".join(entry.line for entry in page.entries)
    about = page.position, service.log.first, service.log.last
    return json_answer(b'{"matches":[%b],"position":%d,"first":%d,"last":%d}' % (lines, *about))


@router.get(
    "/matches/stream",
    response_class=Response,
    responses=problems(429)
    | {200: {"content": {"text/event-stream": {}}, "description": "Events."}},
)
async def stream_matches(
    request: Request,
    statement: Statement = None,
    after: After = None,
    last_event_id: Annotated[str | None, Header(description="Of the last event read.")] = None,
) -> Response:
    """Matches as they are found: server-sent events, whose ids are positions.

    From `after` or `Last-Event-ID` on, else from now. An event is `match` or, at the end, `end`
    with the position to resume from.
    """
    service, owner = service_of(request), account_of(request)
    if last_event_id is not None and last_event_id.isdecimal() and len(last_event_id) <= DIGITS:
        after = int(last_event_id)
    reader = service.readers.enter(owner.name, statement, after, owner.streams)
    return EventStream(reader, service.readers)


@router.websocket("/matches/ws")
async def socket_matches(
    socket: WebSocket, statement: Statement = None, after: After = None
) -> None:
    """Matches as they are found, one JSON object a message, each with its position."""
    service, owner = service_of(socket), account_of(socket)
    reader = service.readers.enter(owner.name, statement, after, owner.streams)
    try:
        offered = socket.scope.get("subprotocols", [])
        await socket.accept("fmware" if "fmware" in offered else None)
    except BaseException:
        service.readers.leave(reader)
        raise
    await follow(socket, reader, service.readers)


@router.get("/dead-letters", response_model=DeadLetters, responses=problems())
async def get_letters(
    service: Asked,
    owner: Owner,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Messages that could not be matched, with the reason.

    There are fewer than `limit` where they are large: go on after the last `position`.
    """

    def page() -> bytes:
        return listed({}, "letters", service.log.letters.after(owner.name, after, limit))

    return json_answer(await asyncio.to_thread(page))
