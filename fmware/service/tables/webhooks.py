"""Webhooks: other people's servers, and what may be called."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from fmware.service.envelope import DEFAULT
from fmware.service.tables.base import Name, Positive, Seconds, Table, Variable

__all__ = ["Target", "WebhookSettings"]


class Target(Table):
    """A server that is told of matches."""

    name: Name
    """A name for logs and metrics, and for what is kept of it over a restart."""
    url: str
    """Where matches are posted."""
    tenant: Name = DEFAULT
    """Whose matches."""
    statements: tuple[str, ...] = ()
    """Only those of these statements; all of the tenant's if none is named."""
    secret_env: Variable
    """The environment variable with the secret that requests are signed with."""
    old_secret_env: Variable | None = None
    """The variable with the secret before, until receivers know the new one: both sign."""


class WebhookSettings(Table):
    """Matches posted to other people's servers."""

    https_only: bool = True
    """Refuse `http://`: a signature shows who sent a match, but hides nothing."""
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (80, 443, 8080, 8443)
    """The ports that may be called."""
    allow: tuple[str, ...] = ()
    """Private networks that targets of this file may be in all the same, as `10.1.0.0/16`."""
    allow_tenants: tuple[str, ...] = ()
    """The same for webhooks that tenants make over HTTP: they may call whatever is in them."""
    overlap_seconds: Annotated[float, Field(ge=0, le=30 * 86_400)] = 86_400.0
    """How long the old secret of a webhook signs, too, after it was replaced over HTTP."""
    timeout_seconds: Seconds = 10.0
    """How long a receiver may take to answer."""
    tries: Positive = 12
    """After so many failures a delivery is given up, recorded, and the next one sent."""
    first_seconds: Seconds = 1.0
    """The pause after the first failure; it doubles, and half of it is left to chance."""
    longest_seconds: Seconds = 600.0
    """The longest pause."""
    batch: Annotated[int, Field(ge=1, le=1000)] = 50
    """The most matches in one request; those that wait do so in the log, not in memory."""
    dead: Positive = 10_000
    """The most deliveries that were given up and are kept; the oldest of whoever has most go."""
    dead_bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """The most bytes of them; one that is larger by itself is kept without its matches."""
    targets: tuple[Target, ...] = ()
    """The servers that are told."""

    @field_validator("allow", "allow_tenants")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from ipaddress import ip_network

        for each in value:
            ip_network(each)
        return value
