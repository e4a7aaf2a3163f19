"""A bound on the bytes of bodies that requests hold, of all connections together.

A body is held from its first byte until its request is answered, as it came and unpacked. Each has
a bound of its own, and there are thousands of connections: together they would be more than a
machine has. A tenant that holds something is given more only as long as it then holds no more than
is left for others, so that one tenant has half of the room at most.
"""

from __future__ import annotations

from collections import Counter

from fmware.service.problems import Problem

__all__ = ["Held", "Room"]


class Room:
    """`most` is what bodies may take together, in bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mine: Counter[str] = Counter()
        self.bytes = 0
        """Bytes that are held now."""

    def fits(self, tenant: str, size: int, held: int) -> bool:
        """Whether a request of a tenant, which holds some bytes, may hold so many more.

        That it is alone must be enough for it to be finished.
        """
        left = self._most - self.bytes
        mine = self._mine[tenant]
        return size <= left and (mine == held or mine + size <= left)

    def add(self, tenant: str, size: int) -> None:
        """Note that a tenant holds so many bytes more, or less."""
        self.bytes += size
        self._mine[tenant] += size
        if not self._mine[tenant]:
            del self._mine[tenant]


class Held:
    """What one request of a tenant holds, until it is let go."""

    __slots__ = ("_room", "_size", "_tenant")

    def __init__(self, room: Room, tenant: str) -> None:
        self._room = room
        self._tenant = tenant
        self._size = 0

    def more(self, size: int) -> None:
        """Hold so many bytes more; a `Problem` if there is no room for them."""
        if not size:
            return
        if not self._room.fits(self._tenant, size, self._size):
            what = "the bodies of many requests are still worked on, and there is no room for more"
            wait = {"Retry-After": "1"}
            raise Problem(503, "busy", what, hint="send it again a little later", headers=wait)
        self._room.add(self._tenant, size)
        self._size += size

    def let_go(self) -> None:
        """Hold nothing any more."""
        self._room.add(self._tenant, -self._size)
        self._size = 0
