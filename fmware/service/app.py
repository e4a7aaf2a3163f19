"""The application: routes behind the door, and errors that say what and where.

`make_app(service)` is all there is to it; `server` puts the service together and runs it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fmware import __version__
from fmware.service.door import Door
from fmware.service.errors import BrokerError, EngineStopped
from fmware.service.models import ProblemBody
from fmware.service.problems import MEDIA_TYPE, Problem, invalid
from fmware.service.routes import matches, messages, operations, statements, webhooks
from fmware.service.routes.common import refusals
from fmware.service.routes.page import FOLDER, Page

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from fmware.service.service import Service

__all__ = ["make_app"]

ABOUT: Final = """\
XML messages in, matches out. Register statements, post messages, follow matches.

A tenant is known by its token (`Authorization: Bearer TOKEN`). What is refused is answered as
`application/problem+json` with a `code`, and where it is about: `where`, and what to do: `hint`.
"""
CODES: Final = {404: "not-found", 405: "method-not-allowed"}


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service."""
    app = FastAPI(
        title="FMware",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        openapi_tags=[
            {"name": "statements", "description": "What is asked of messages and the corpus."},
            {"name": "messages", "description": "What comes in."},
            {"name": "matches", "description": "What was found."},
            {"name": "webhooks", "description": "Who is told of it."},
            {"name": "operations", "description": "How the service does."},
        ],
    )
    app.state.service = service
    for module in (messages, matches, statements, webhooks, operations):
        app.include_router(module.router)
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(EngineStopped, _stopping)
    # A sink that fails is tried again until the service stops.
    app.add_exception_handler(BrokerError, _stopping)
    app.add_exception_handler(sqlite3.Error, _unkept)
    app.add_exception_handler(Exception, _internal)
    if service.settings.server.page and FOLDER.is_dir():
        app.mount("/", Page())
    _describe(app, guarded=service.tenants.guarded)
    direct = {("POST", messages.Messages.path): messages.Messages(service)}
    return Door(app, service, direct)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    account = request.scope.get("account")
    request.app.state.service.metrics.rejected(error.code, account.name if account else None)
    body = error.body(request.scope.get("request_id"))
    return Response(body, error.status, error.headers, MEDIA_TYPE)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, Problem):
        return await _problem(request, error.__cause__)
    code = CODES.get(error.status_code, "refused")
    what = f"{error.detail}: {request.method} {request.url.path}"
    hint = "/openapi.json describes all that there is" if error.status_code in CODES else None
    problem = Problem(error.status_code, code, what, hint=hint, headers=error.headers)
    return await _problem(request, problem)


async def _stopping(request: Request, _: Exception) -> Response:
    return await _problem(request, Problem(503, "stopping", "the service stops"))


async def _unkept(request: Request, error: Exception) -> Response:
    assert isinstance(error, sqlite3.Error)
    return await _problem(request, request.app.state.service.unkept(error))


async def _internal(request: Request, _: Exception) -> Response:
    """What nobody expected; the door logs it."""
    what = "something went wrong here; the log has more under the request's id"
    return await _problem(request, Problem(500, "internal", what))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _problem(request, invalid([(each["loc"], each["msg"]) for each in error.errors()]))


def _describe(app: FastAPI, *, guarded: bool) -> None:
    """The description, with tokens in it if they are needed."""
    make = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = make()
            schemes = made.setdefault("components", {}).setdefault("securitySchemes", {})
            schemes["token"] = {"type": "http", "scheme": "bearer"}
            if guarded:
                made["security"] = [{"token": []}]
            schemas = made["components"]["schemas"]
            schemas["Problem"] = ProblemBody.model_json_schema()
            _bound_bodies(made)
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _bound_bodies(made: dict[str, Any]) -> None:
    """Whatever has a body may be refused by the door: it is too large, or comes too slowly."""
    for methods in made["paths"].values():
        for about in methods.values():
            if "requestBody" in about:
                for code, told in refusals(408, 413).items():
                    about["responses"].setdefault(str(code), told)
