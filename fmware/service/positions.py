"""Positions of webhooks on disk: how far each target has come, and what nobody took.

What nobody took is bounded by number and by bytes (see `shelf`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fmware.service.answers import decoded, one_page
from fmware.service.shelf import BOUND, Shape, Shelf, weight

if TYPE_CHECKING:
    from collections import Counter

    from fmware.service.database import Database
    from fmware.service.shelf import Bound

__all__ = ["MOVE", "SCHEMA", "Positions"]

SHAPE: Final = Shape("dead", "number", "target", ("delivery", "reason", "body"))
SCHEMA: Final = f"""
CREATE TABLE IF NOT EXISTS positions (target TEXT PRIMARY KEY, position INTEGER NOT NULL)
WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    target TEXT NOT NULL,
    delivery TEXT NOT NULL,
    at REAL NOT NULL,
    tries INTEGER NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL
);
{SHAPE.schema}
"""
MOVE: Final = """
INSERT INTO positions VALUES (?1, ?2) ON CONFLICT DO UPDATE SET position = ?2
"""
KEYS: Final = ("number", "target", "delivery", "at", "tries", "reason", "body")


class Positions:
    """How far each target has come, and what was given up. Calls wait for the disk."""

    def __init__(self, database: Database, bound: Bound = BOUND) -> None:
        self._database = database
        self.shelf = Shelf(database, SHAPE, bound)

    def get(self, target: str) -> int | None:
        """The position behind which a target goes on; None if it is new."""
        with self._database.reading() as rows:
            found = rows.execute("SELECT position FROM positions WHERE target = ?", (target,))
            row = found.fetchone()
        return None if row is None else int(row[0])

    def move(self, target: str, position: int) -> None:
        """What lies up to a position is done."""
        with self._database.transaction() as rows:
            rows.execute(MOVE, (target, position))

    def give_up(
        self,
        target: str,
        position: int,
        delivery: str,
        tries: int,
        reason: str,
        body: bytes,
        short: bytes = b"",
    ) -> Counter[str]:
        """Record a delivery that nobody takes, and go on behind it: both or neither.

        `short` is kept in the place of a body for which there is no room. How many deliveries of
        which targets had to go for it is told.
        """
        if weight(delivery, reason, body) > self.shelf.bound.size:
            reason, body = f"{reason} (its {len(body):,} bytes are more than is kept)", short
        about = (target, delivery, time.time(), tries, reason, body)
        with self.shelf.changing() as change:
            change.make_room(1, weight(delivery, reason, body))
            said = "INSERT INTO dead (target, delivery, at, tries, reason, body) "
            change.rows.execute(said + "VALUES (?, ?, ?, ?, ?, ?)", about)
            change.rows.execute(MOVE, (target, position))
        return change.gone

    def forget(self, target: str) -> None:
        """Nothing is kept of a target any more: it was taken away."""
        self.shelf.forget(target)

    def dead(
        self, target: str | None = None, after: int = 0, limit: int = 100, head: bytes = b""
    ) -> list[dict[str, Any]]:
        """What was given up, the oldest first, a page of it; only bodies that begin so."""
        with self._database.reading() as rows:
            found = rows.execute(
                f"SELECT {', '.join(KEYS)} FROM dead WHERE number > ?1 "
                "AND (?2 IS NULL OR target = ?2) AND substr(body, 1, ?4) = ?5 "
                "ORDER BY number LIMIT ?3",
                (after, target, limit, len(head), head),
            )
            page = list(one_page(found))
        return [dict(zip(KEYS, (*row[:-1], decoded(row[-1])), strict=True)) for row in page]
