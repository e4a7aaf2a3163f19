"""Which tenants are slow: those whose messages take workers long.

A tenant within its budget may still use up a second of a worker for each message. So that others do
not wait behind it, its messages are handed out by themselves, and never to all workers at once.

A batch of several tenants does not tell which of them it was. Then all of them are suspects, and
are handed out by themselves until that has gone well once. A tenant that was slow by itself must
have gone well `SURE` times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Paces"]

SLOW: Final = 0.05
"""Seconds for a message: ten times what one takes that is not made to be slow."""
SURE: Final = 16
"""Messages in a row that must not be slow before a tenant is not."""


class Paces:
    """The tenants that are slow, and how many messages must go well before they are not."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._left

    def took(self, tenants: Collection[str], messages: int, seconds: float) -> None:
        """Note that a worker took `seconds` for `messages` messages of these tenants."""
        if seconds > SLOW * messages:
            only = len(tenants) == 1
            for tenant in tenants:
                self._left[tenant] = SURE if only else max(self._left.get(tenant, 0), 1)
            return
        for tenant in tenants:
            if tenant in self._left:
                self._left[tenant] -= messages
                if self._left[tenant] <= 0:
                    del self._left[tenant]
