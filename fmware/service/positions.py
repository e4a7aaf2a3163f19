"""Positions of webhooks on disk: how far each target has come, and what nobody took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fmware.service.database import Database

__all__ = ["MOVE", "SCHEMA", "Positions"]

SCHEMA: Final = """
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
CREATE INDEX IF NOT EXISTS dead_by_target ON dead (target, number);
"""
MOVE: Final = """
INSERT INTO positions VALUES (?1, ?2) ON CONFLICT DO UPDATE SET position = ?2
"""
CROWD: Final = """
DELETE FROM dead WHERE number = (
    SELECT min(number) FROM dead GROUP BY target ORDER BY count(*) DESC, min(number) LIMIT 1
)
"""
"""The oldest of whoever has the most goes: nobody is pushed out by others."""
KEYS: Final = ("number", "target", "delivery", "at", "tries", "reason", "body")


class Positions:
    """How far each target has come, and what was given up. Calls wait for the disk."""

    def __init__(self, database: Database, most: int = 10_000) -> None:
        self._database = database
        self._most = most

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
        self, target: str, position: int, delivery: str, tries: int, reason: str, body: bytes
    ) -> None:
        """Record a delivery that nobody takes, and go on behind it: both or neither."""
        about = (target, delivery, time.time(), tries, reason, body)
        with self._database.transaction() as rows:
            said = "INSERT INTO dead (target, delivery, at, tries, reason, body) "
            rows.execute(said + "VALUES (?, ?, ?, ?, ?, ?)", about)
            count = rows.execute("SELECT count(*) FROM dead").fetchone()[0]
            for _ in range(count - self._most):
                rows.execute(CROWD)
            rows.execute(MOVE, (target, position))

    def dead(
        self, target: str | None = None, after: int = 0, limit: int = 100, head: bytes = b""
    ) -> list[dict[str, Any]]:
        """What was given up, the oldest first; only bodies that begin so."""
        with self._database.reading() as rows:
            found = rows.execute(
                f"SELECT {', '.join(KEYS)} FROM dead WHERE number > ?1 "
                "AND (?2 IS NULL OR target = ?2) AND substr(body, 1, ?4) = ?5 "
                "ORDER BY number LIMIT ?3",
                (after, target, limit, len(head), head),
            ).fetchall()
        return [
            dict(zip(KEYS, (*row[:-1], row[-1].decode(errors="replace")), strict=True))
            for row in found
        ]
