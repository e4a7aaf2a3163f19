"""What is under way in the engine: messages that are to be matched, and orders in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from fmware.service.envelope import Envelope, Outcome

__all__ = ["Call", "Job", "Key", "Order", "Refused"]

Key = tuple[str, str]
"""A tenant, and a name of its own: of a statement, or of a message."""
Refused = tuple[str, str, str]
"""A statement that was refused: its tenant, its name and why."""


@dataclass(slots=True, eq=False)
class Call:
    """Envelopes of one `match` that are under way."""

    envelopes: list[Envelope]
    outcomes: list[Outcome | None]
    left: int
    future: asyncio.Future[None]
    size: int = 0
    """Bytes of what was found."""


@dataclass(slots=True, eq=False)
class Job:
    """One envelope of a call; `deaths`: workers that ended while they had it."""

    call: Call
    place: int
    deaths: int = 0
    alone: bool = False
    late: bool = False
    """Whether it is one for the workers that have time."""

    @property
    def tenant(self) -> str:
        return self.envelope.tenant

    @property
    def envelope(self) -> Envelope:
        return self.call.envelopes[self.place]

    def finish(self, outcome: Outcome) -> None:
        self.call.outcomes[self.place] = outcome
        self.call.left -= 1
        if not self.call.left and not self.call.future.done():
            self.call.future.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.call.future.done():
            self.call.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Order:
    """A change of a tenant's statements, in its place among its messages.

    Of `about`, workers know those before `at`; `refused` are those that they do not take.
    """

    kind: str
    tenant: str
    about: list[Any]
    future: asyncio.Future[list[Refused]]
    at: int = 0
    refused: set[Refused] = field(default_factory=set)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
