"""Tenants: who may use the service, and how much of it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from fmware.service.tables.base import Name, Table, Variable, several

__all__ = ["Quota", "Tenant"]


class Quota(Table):
    """How much of the service one tenant may take."""

    statements: Annotated[int, Field(ge=0)] = 1000
    """The most statements."""
    rate: Annotated[float, Field(ge=0)] = 0.0
    """Messages a second over HTTP, on average; 0 is without bound."""
    burst: Annotated[int, Field(ge=0)] = 0
    """Messages that may come at once beyond the rate; 0 is one second's worth."""
    body_bytes: Annotated[int, Field(ge=0)] = 0
    """The largest body of a request; 0 is that of the server."""


class Tenant(Table):
    """Somebody with statements and a token of their own."""

    name: Name
    """The name, which is part of the log and of metrics."""
    token_sha256: tuple[str, ...] = ()
    """SHA-256 of the tokens that are good, in hex; two of them while a token is replaced."""
    token_env: Variable | None = None
    """The environment variable that has the token itself."""
    limits: Quota = Quota()
    """What the tenant may take."""

    @field_validator("token_sha256", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return several(value)

    @field_validator("token_sha256")
    @classmethod
    def _hex(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not re.fullmatch(r"[0-9a-fA-F]{64}", each):
                raise ValueError("not 64 hex digits: printf %s TOKEN | sha256sum")
        return tuple(each.lower() for each in value)

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return bool(self.token_sha256 or self.token_env)
