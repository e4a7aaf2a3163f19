"""Answers that say no: problem+json with a code, what is wrong, where, and what to do.

::

    FMwareError
    └── ServiceError
        └── Problem        an answer that is not what was asked for; routes raise it
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fmware.service.errors import ServiceError
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MEDIA_TYPE", "TITLES", "Problem", "invalid", "of_refused", "shortened"]

MEDIA_TYPE: Final = "application/problem+json"
TITLES: Final = {
    400: "Bad request",
    401: "No valid token",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Too slow",
    409: "Conflict",
    411: "Length needed",
    413: "Too large",
    415: "Unsupported media type",
    421: "Wrong host",
    422: "Refused",
    429: "Over the limit",
    431: "Headers too large",
    500: "Internal error",
    503: "Not available",
}
ERRORS: Final = 20
"""Wrong fields that an answer lists."""
ECHOED: Final = 200
"""Characters of what was sent that an answer repeats."""
BEFORE: Final = 80
"""Characters before the place of an error that are repeated with it."""


class Problem(ServiceError):
    """An answer other than the one asked for.

    `where` is the place it is about: a field, a header, a character of an expression.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.where = where
        self.hint = hint or None
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def told(self) -> dict[str, Any]:
        """All of it as plain values, for another process to raise: `Problem(**told)`."""
        keys = ("status", "code", "detail", "where", "hint", "headers", "more")
        return {key: getattr(self, key) for key in keys}

    def record(self) -> dict[str, Any]:
        """What the answer's body says."""
        about: dict[str, Any] = {
            "type": "about:blank",
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        about |= {"where": self.where} if self.where else {}
        about |= {"hint": self.hint} if self.hint else {}
        return about | self.more

    def body(self, request: str | None = None) -> bytes:
        """The same as JSON; `request` is the id under which the log tells of it."""
        about = self.record() | ({"request": request} if request else {})
        return json.dumps(about, ensure_ascii=False).encode(errors="backslashreplace")


def invalid(found: Sequence[tuple[Sequence[int | str], str]]) -> Problem:
    """The problem of a body or a query with wrong fields: their places, and what is wrong."""
    errors = [
        {"where": shortened(".".join(map(str, place))), "what": shortened(what)}
        for place, what in found[:ERRORS]
    ]
    first = errors[0]
    return Problem(422, "invalid", first["what"], where=first["where"], more={"errors": errors})


def of_refused(error: Exception, where: str | None = None) -> Problem:
    """The problem of a statement that was refused.

    Of its expression it repeats the part around the error, in which `at` is the place of it.
    """
    if not isinstance(error, XPathError):
        return Problem(422, "statement-refused", shortened(str(error)), where=where)
    begin = max(0, error.at - BEFORE) if len(error.expression) > ECHOED else 0
    more = {"expression": error.expression[begin : begin + ECHOED], "at": error.at - begin}
    place = f"{where or 'statement'}, character {error.at + 1}"
    what, hint = shortened(error.summary), shortened(error.hint)
    return Problem(422, error.code, what, where=place, hint=hint, more=more)


def shortened(text: str) -> str:
    """Text without its middle, if it is long."""
    if len(text) <= ECHOED:
        return text
    half = ECHOED // 2
    return f"{text[:half]} ... {text[-half:]}"
