"""Dead letters on disk: messages that could not be matched, with the reason.

They are bounded by number and by bytes (see `shelf`). One that is larger than all of the bound is
kept without its bytes, and says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from fmware.service.answers import decoded, one_page
from fmware.service.database import Database
from fmware.service.shelf import Shape, Shelf, weight

if TYPE_CHECKING:
    from pathlib import Path

    from fmware.service.envelope import DeadLetter
    from fmware.service.shelf import Bound

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
INSERT INTO letters (tenant, id, reason, source, at, body) VALUES (?, ?, ?, ?, ?, ?)
"""
SHAPE: Final = Shape("letters", "position", "tenant", ("id", "reason", "source", "body"))
KEYS: Final = ("position", "id", "reason", "source", "at", "body")
SHORT: Final = 1000
"""Characters of the reason that are kept where there is no room for all of a letter."""


class Letters:
    """The dead letters of all tenants. Its calls wait for the disk: make them on a thread."""

    def __init__(self, path: Path, bound: Bound) -> None:
        self._database = Database(path, SCHEMA + SHAPE.schema)
        self.shelf = Shelf(self._database, SHAPE, bound)

    def add(self, letter: DeadLetter) -> None:
        """Keep one; the one before with the same id goes, and others if there is no room."""
        reason, body = letter.reason, letter.body
        size = weight(letter.id, reason, letter.source, body)
        if size > self.shelf.bound.size:
            reason = f"{reason[:SHORT]} (its {len(body):,} bytes are more than is kept)"
            body = b""
            size = weight(letter.id, reason, letter.source, body)
        with self.shelf.changing() as change:
            change.rows.execute(
                "DELETE FROM letters WHERE tenant = ? AND id = ?", (letter.tenant, letter.id)
            )
            change.make_room(1, size)
            about = (letter.tenant, letter.id, reason, letter.source, time.time(), body)
            change.rows.execute(ADD, about)

    def after(self, tenant: str, position: int, limit: int) -> list[dict[str, Any]]:
        """Those of a tenant behind a position, up to a limit and to the bytes of a page."""
        with self._database.reading() as rows:
            found = rows.execute(
                f"SELECT {', '.join(KEYS)} FROM letters "
                "WHERE tenant = ? AND position > ? ORDER BY position LIMIT ?",
                (tenant, position, limit),
            )
            page = list(one_page(found))
        return [dict(zip(KEYS, (*row[:5], decoded(row[5])), strict=True)) for row in page]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
