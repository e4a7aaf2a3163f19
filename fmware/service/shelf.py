"""A shelf: rows of a table that are kept up to a number, and up to so many bytes of them.

When it is full, the oldest of whoever has most on it goes: nobody is pushed out by others for more
than the one row that comes. What each owner has is counted by the database, in the transaction
that changes it, so it is right after whatever end, and nothing is walked over to know it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fmware.service.logging import logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fmware.service.database import Database

__all__ = ["BOUND", "Bound", "Change", "Held", "Shape", "Shelf", "weight"]

log = logger("shelf")


@dataclass(frozen=True, slots=True)
class Bound:
    """How much is kept of all owners together."""

    number: int
    size: int

    def share(self, held: Held) -> float:
        """How much of it somebody has: all of it is 1."""
        return max(held.number / self.number, held.size / self.size)


BOUND: Final = Bound(10_000, 256 << 20)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows, and the bytes of them."""

    number: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Which table it is: rows are ordered by `key`, belong to `owner`, and `weighed` is measured.

    `weighed` are columns of bytes and of text; all other ones are small.
    """

    table: str
    key: str
    owner: str
    weighed: tuple[str, ...]

    @property
    def schema(self) -> str:
        """What counts; to be put behind the schema of the table itself."""
        table, owner = self.table, self.owner
        return f"""
CREATE INDEX IF NOT EXISTS {table}_by_{owner} ON {table} ({owner}, {self.key});
CREATE TABLE IF NOT EXISTS {table}_held (
    owner TEXT PRIMARY KEY, number INTEGER NOT NULL, size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS {table}_come AFTER INSERT ON {table} BEGIN
    INSERT INTO {table}_held VALUES (NEW.{owner}, 1, {self._size("NEW.")})
    ON CONFLICT DO UPDATE SET number = number + 1, size = size + excluded.size;
END;
CREATE TRIGGER IF NOT EXISTS {table}_gone AFTER DELETE ON {table} BEGIN
    UPDATE {table}_held SET number = number - 1, size = size - ({self._size("OLD.")})
    WHERE owner = OLD.{owner};
    DELETE FROM {table}_held WHERE owner = OLD.{owner} AND number <= 0;
END;
INSERT INTO {table}_held
SELECT {owner}, count(*), sum({self._size()}) FROM {table}
WHERE NOT EXISTS (SELECT 1 FROM {table}_held) GROUP BY {owner};
"""

    def _size(self, row: str = "") -> str:
        return " + ".join(f"length(CAST({row}{each} AS BLOB))" for each in self.weighed)


@dataclass(slots=True)
class Change:
    """A transaction on a shelf, and whose rows went in it."""

    rows: sqlite3.Connection
    shape: Shape
    bound: Bound
    gone: Counter[str] = field(default_factory=Counter)

    def held(self) -> dict[str, Held]:
        """What each owner has."""
        found = self.rows.execute(f"SELECT owner, number, size FROM {self.shape.table}_held")
        return {owner: Held(number, size) for owner, number, size in found}

    def make_room(self, number: int, size: int) -> None:
        """Let the oldest go until so much fits, or nothing is left."""
        held = self.held()
        while held and not self._fits(held, number, size):
            owner = max(held, key=lambda each: self.bound.share(held[each]))
            self.gone[owner] += 1
            left = self._drop(owner)
            if left is None:
                del held[owner]
            else:
                held[owner] = left

    def _fits(self, held: Mapping[str, Held], number: int, size: int) -> bool:
        number += sum(each.number for each in held.values())
        size += sum(each.size for each in held.values())
        return number <= self.bound.number and size <= self.bound.size

    def _drop(self, owner: str) -> Held | None:
        """Let the oldest of one go; what is left of that one's."""
        table, key, whose = self.shape.table, self.shape.key, self.shape.owner
        oldest = f"SELECT min({key}) FROM {table} WHERE {whose} = ?"
        self.rows.execute(f"DELETE FROM {table} WHERE {key} = ({oldest})", (owner,))
        left = f"SELECT number, size FROM {table}_held WHERE owner = ?"
        found = self.rows.execute(left, (owner,)).fetchone()
        return None if found is None else Held(*found)


class Shelf:
    """The rows of a table, bounded; calls wait for the disk.

    `held` says what each owner has, and `dropped` how many rows of each went since the start
    because there was no room. Rows over a bound that is lower than it was go at once.
    """

    def __init__(self, database: Database, shape: Shape, bound: Bound) -> None:
        self._database = database
        self._shape = shape
        self._lock = threading.Lock()
        self.bound = bound
        self.held: Mapping[str, Held] = {}
        self.dropped: Counter[str] = Counter()
        with self.changing() as change:
            change.make_room(0, 0)
        if self.dropped:
            log.warning("dropped over the bound", kept=shape.table, by=dict(self.dropped))
            self._shrink()

    def _shrink(self) -> None:
        # What was let go is wanted on the disk; on one that is full there is no room to copy.
        try:
            self._database.shrink()
        except sqlite3.OperationalError as error:
            log.warning("the file stays as large as it was", kept=self._shape.table, why=str(error))

    def forget(self, owner: str) -> None:
        """Somebody is gone, with all rows."""
        with self._lock:
            self.held = {each: held for each, held in self.held.items() if each != owner}
            self.dropped = Counter({k: v for k, v in self.dropped.items() if k != owner})

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """A transaction; what went in it is counted once it is on disk."""
        with self._lock:
            with self._database.transaction() as rows:
                change = Change(rows, self._shape, self.bound)
                yield change
                held = change.held()
            self.held = held
            # Another one, since others read it meanwhile.
            self.dropped = self.dropped + change.gone


def weight(*parts: str | bytes) -> int:
    """The bytes of some values as the database counts them."""
    return sum(len(each.encode() if isinstance(each, str) else each) for each in parts)
