"""Tenants: who may use the service, and how much of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fmware.service.tables.base import Hashes, Name, Table, Variable

__all__ = ["Quota", "Tenant"]


class Quota(Table):
    """How much of the service one tenant may take."""

    statements: Annotated[int, Field(ge=0)] = 1000
    """The most statements."""
    statement_bytes: Annotated[int, Field(ge=0)] = 0
    """The most bytes that its statements take together, as JSON; 0 is 4,096 for each of them."""
    webhooks: Annotated[int, Field(ge=0)] = 10
    """The most webhooks that are made over HTTP; those of the configuration do not count."""
    rate: Annotated[float, Field(ge=0)] = 0.0
    """Messages a second over HTTP, on average; 0 is without bound."""
    burst: Annotated[int, Field(ge=0)] = 0
    """Messages that may come at once beyond the rate; 0 is one second's worth."""
    byte_rate: Annotated[float, Field(ge=0)] = 0.0
    """Bytes of messages a second over HTTP, unpacked, on average; 0 is without bound."""
    byte_burst: Annotated[int, Field(ge=0)] = 0
    """Bytes that may come at once beyond the rate; 0 is one second's worth."""
    streams: Annotated[int, Field(ge=0)] = 0
    """The most readers that follow matches at the same time; 0 is those of the server."""
    body_bytes: Annotated[int, Field(ge=0)] = 0
    """The largest body of a request; 0 is that of the server."""


class Tenant(Table):
    """Somebody with statements and a token of their own."""

    name: Name
    """The name, which is part of the log and of metrics."""
    token_sha256: Hashes = ()
    """SHA-256 of the tokens that are good, in hex; two of them while a token is replaced."""
    token_env: Variable | None = None
    """The environment variable that has the token itself."""
    limits: Quota = Quota()
    """What the tenant may take."""

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return bool(self.token_sha256 or self.token_env)
