"""What the messages of tenants cost, and which tenants are slow.

A tenant within its budget may still use up a second of a worker for each message. So that others do
not wait behind it, the messages of a tenant that was slow more than once lately go to workers that
have time; and those of others go to a worker a few milliseconds at a time.

Seconds are those of processor time which a worker has told, tenant by tenant: they do not depend on
what else the machine does.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Paces"]

SLOW: Final = 0.02
"""Seconds for a message: several times what one takes that is not made to be slow."""
STRIKE: Final = 4
"""Messages that must be quick to make up for a slow one. A tenant is slow with two to make up for:
one slow message now and then costs others little, and must not make a tenant wait."""
MOST: Final = 16
"""Messages that a tenant has to make up for at most."""
BYTE: Final = 2e-8
"""Seconds for a byte of a message, before anything is known: what the slowest way to read it takes,
several times over. So a message of a megabyte is slow, whoever sends it."""
FADES: Final = 0.8
"""What is left of an expectation after a batch that was quicker."""


class Paces:
    """What is expected of tenants, by what they have taken."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}
        self._each: dict[str, float] = {}

    def __contains__(self, tenant: str) -> bool:
        """Whether a tenant is slow."""
        return self._strikes.get(tenant, 0) > STRIKE

    def expected(self, tenant: str, size: int) -> float:
        """Seconds that a message of this many bytes will take, most likely, or more."""
        return max(self._each.get(tenant, 0.0), self.at_least(size))

    def at_least(self, size: int) -> float:
        """Seconds that reading so many bytes may take."""
        return size * BYTE

    def took(self, tenant: str, messages: int, seconds: float, *, deferred: int = 0) -> None:
        """Note what a worker took for messages of a tenant, of which some were deferred."""
        each = seconds / messages
        self._each[tenant] = max(each, self._each.get(tenant, 0.0) * FADES)
        slow = messages if each > SLOW else deferred
        strikes = self._strikes.get(tenant, 0) + STRIKE * slow - (messages - slow)
        self._strikes[tenant] = max(0, min(strikes, MOST))
