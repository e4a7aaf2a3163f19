"""Dead letters on disk: messages that could not be matched, with the reason; the last so many."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fmware.service.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.service.envelope import DeadLetter

__all__ = ["Letters"]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS letters (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (tenant, id)
);
"""
ADD: Final = """
INSERT OR REPLACE INTO letters (tenant, id, reason, source, at, body) VALUES (?, ?, ?, ?, ?, ?)
"""
KEYS: Final = ("position", "id", "reason", "source", "at", "body")


class Letters:
    """The dead letters of all tenants. Its calls wait for the disk: make them on a thread."""

    def __init__(self, path: Path, most: int) -> None:
        self._database = Database(path, SCHEMA)
        self._most = most

    def add(self, letter: DeadLetter) -> None:
        """Keep one; the one before with the same id goes, and the oldest over the bound."""
        about = (letter.tenant, letter.id, letter.reason, letter.source, time.time(), letter.body)
        with self._database.transaction() as rows:
            last = rows.execute(ADD, about).lastrowid or 0
            rows.execute("DELETE FROM letters WHERE position <= ?", (last - self._most,))

    def after(self, tenant: str, position: int, limit: int) -> list[dict[str, Any]]:
        """Those of a tenant behind a position."""
        with self._database.reading() as rows:
            found = rows.execute(
                f"SELECT {', '.join(KEYS)} FROM letters "
                "WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?",
                (tenant, position, limit),
            ).fetchall()
        return [
            dict(zip(KEYS, (*row[:5], row[5].decode(errors="replace")), strict=True))
            for row in found
        ]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
