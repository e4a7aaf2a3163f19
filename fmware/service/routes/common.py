"""What routes share: the service, the tenant, answers that were encoded already, problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request, Response

from fmware.service.problems import MEDIA_TYPE, TITLES
from fmware.service.service import Service
from fmware.service.tenants import Account

if TYPE_CHECKING:
    from fastapi.requests import HTTPConnection

__all__ = ["Asked", "Owner", "account_of", "json_answer", "problems", "refusals", "service_of"]


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
