"""What routes share: the service, the tenant, large bodies and answers, problems."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from fmware.service.bodies import too_large
from fmware.service.problems import MEDIA_TYPE, TITLES
from fmware.service.service import Service
from fmware.service.tenants import Account

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from fastapi.requests import HTTPConnection
    from starlette.types import Message

__all__ = [
    "Asked",
    "Owner",
    "ScreenedRoute",
    "account_of",
    "json_answer",
    "pieces",
    "problems",
    "refusals",
    "service_of",
]

SMALL: Final = 16 << 10
"""Bytes of a body that are read where they come: the worst of them take a few milliseconds."""
MOST: Final = 1 << 20
"""Bytes of a body that describes one statement or webhook: more than the longest of all needs."""
PIECE: Final = 64 << 10
"""Bytes that are worked on before others have their turn."""
Line = TypeVar("Line", bytes, str)


def service_of(request: HTTPConnection) -> Service:
    """The service that the application was made for."""
    found: Service = request.app.state.service
    return found


def account_of(request: HTTPConnection) -> Account:
    """The tenant whose token came with the request."""
    found: Account = request.scope["account"]
    return found


async def _service(request: Request) -> Service:
    return service_of(request)


async def _account(request: Request) -> Account:
    return account_of(request)


Asked = Annotated[Service, Depends(_service)]
Owner = Annotated[Account, Depends(_account)]


def json_answer(body: bytes, status: int = 200, **headers: str) -> Response:
    """An answer whose JSON is there already."""
    return Response(body, status, headers, "application/json")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its description, with those that any may have."""
    return refusals(400, 401, 403, 421, 422, 503, *codes)


def refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Refusals with these codes, for a description."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        code: {"content": {MEDIA_TYPE: {"schema": schema}}, "description": TITLES[code]}
        for code in codes
    }


class ScreenedRoute(APIRoute):
    """A route whose body, if it is large, is read by a process that nothing else depends on.

    That gives back what the model of the body knows, which is bounded, or says what is wrong.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, behind a look at the body."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model = self.body_field.field_info.annotation.__name__  # type: ignore[union-attr]

        async def handle_screened(request: Request) -> Response:
            data = await request.body()
            if len(data) > MOST and model != "TryIn":
                raise too_large(MOST)
            if len(data) > SMALL:
                reading, owner = service_of(request).reading, account_of(request)
                _, data = await reading.ask(owner.name, "screen", model, data)
                request = Request(request.scope, _received(data))
            return await handle(request)

        return handle_screened


def _received(data: bytes) -> Callable[[], Coroutine[Any, Any, Message]]:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    return receive


async def pieces(lines: Sequence[Line]) -> AsyncIterator[Sequence[Line]]:
    """Some lines at a time, no more than `PIECE` bytes of them unless one is longer.

    Between two pieces everything else has its turn.
    """
    begin = size = 0
    for place, line in enumerate(lines):
        size += len(line)
        if size > PIECE and place > begin:
            yield lines[begin:place]
            await asyncio.sleep(0)
            begin, size = place, len(line)
    if lines:
        yield lines[begin:]
