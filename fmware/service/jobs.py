"""What is under way in the engine: messages that are to be matched, and orders in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fmware.service.envelope import Envelope, Hit, Outcome

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

__all__ = ["Call", "Job", "Key", "Order", "Refused", "outcomes_of"]

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
    """A change of statements, in its place among the messages."""

    kind: str
    about: list[Any]
    future: asyncio.Future[list[Refused]]
    before: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def outcomes_of(
    envelopes: Sequence[Envelope], columns: list[Any], text: bytes
) -> tuple[list[Outcome], dict[str, float]]:
    """What a worker says of some envelopes, from the columns and the lines of `found`, and the
    seconds by stage; a `ValueError` or `TypeError` if it is nonsense.
    """
    said, names, which, ids, seconds = columns
    lines = text.split(b"\n") if ids else []
    if not len(ids) == len(which) == len(lines) or sum(one[0] for one in said) != len(ids):
        raise ValueError("not as many lines as hits")
    "".join(ids)  # A `TypeError` if one is no string.
    if which and not 0 <= min(which) <= max(which) < len(names):
        raise ValueError("no such statement")
    pairs = [(str(tenant), str(statement)) for tenant, statement in names]
    found: list[Outcome] = []
    first = 0
    for envelope, (count, errors, poison, unmatched, fault) in zip(envelopes, said, strict=True):
        message, time, end = envelope.id, envelope.time, first + count
        if count < 0:
            raise ValueError("less than no hits")
        hits = [
            Hit(name, message, pairs[place][0], pairs[place][1], None, time, line)
            for name, place, line in zip(
                ids[first:end], which[first:end], lines[first:end], strict=True
            )
        ]
        told = Outcome(message, hits, errors, poison, unmatched, seconds, fault=bool(fault))
        found.append(told)
        first = end
    return found, seconds
