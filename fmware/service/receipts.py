"""Messages that were taken now and are matched later, on disk until they are.

Whoever does not want to wait gets a receipt, and asks with it later. What was taken is on disk
before it is answered: after a crash it is matched, or matched again, which gives the same hits.
Answers are kept up to a number and to so many bytes; the oldest go first, with their receipts.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from fmware.service.database import Database
from fmware.service.problems import Problem

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Receipts"]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS receipts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    taken REAL NOT NULL,
    messages INTEGER NOT NULL,
    answer BLOB
);
CREATE TABLE IF NOT EXISTS parcels (
    receipt TEXT NOT NULL,
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (receipt, number)
);
"""
OLDEST: Final = """
SELECT number, length(answer) FROM receipts
WHERE answer IS NOT NULL AND id <> ? ORDER BY number LIMIT 1
"""
KEPT: Final = 10_000
"""Receipts that can be asked for."""

Messages = list[tuple[str, bytes]]


class Receipts:
    """Receipts of all tenants. Its calls wait for the disk: make them on a thread.

    `waiting` bounds the messages that wait, of all tenants together, and `size` their bytes;
    `answers` bounds the bytes of answers, though the newest one is kept whatever its size.
    """

    def __init__(
        self,
        path: Path,
        *,
        waiting: int = 100_000,
        size: int = 256 << 20,
        answers: int = 256 << 20,
    ) -> None:
        self._database = Database(path, SCHEMA)
        self._most = waiting
        self._size = size
        self._answers = answers
        # What is counted is changed by several threads.
        self._lock = threading.Lock()
        with self._database.reading() as rows:
            found = rows.execute("SELECT count(*), sum(length(body)) FROM parcels").fetchone()
            held = rows.execute("SELECT sum(length(answer)) FROM receipts").fetchone()
        self.waiting: int = found[0]
        self.bytes: int = found[1] or 0
        self.answered: int = held[0] or 0

    def take(self, tenant: str, messages: Sequence[tuple[str, bytes]]) -> str:
        """Keep messages for later; the receipt's id."""
        with self._lock:
            return self._take(tenant, messages)

    def _take(self, tenant: str, messages: Sequence[tuple[str, bytes]]) -> str:
        size = sum(len(body) for _, body in messages)
        if self.waiting + len(messages) > self._most or self.bytes + size > self._size:
            raise Problem(
                503,
                "too-much-waits",
                f"{self.waiting:,} messages wait to be matched already",
                hint="try again later, or wait for the answer",
                headers={"Retry-After": "5"},
            )
        name = uuid4().hex
        parcels = [(name, at, called, body) for at, (called, body) in enumerate(messages)]
        with self._database.transaction() as rows:
            rows.execute(
                "INSERT INTO receipts (id, tenant, taken, messages) VALUES (?, ?, ?, ?)",
                (name, tenant, time.time(), len(messages)),
            )
            rows.executemany("INSERT INTO parcels VALUES (?, ?, ?, ?)", parcels)
        self.waiting += len(messages)
        self.bytes += size
        return name

    def open(self) -> list[tuple[str, str]]:
        """Receipts that are not answered yet, with their tenants, the oldest first."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT id, tenant FROM receipts WHERE answer IS NULL ORDER BY number"
            )
            return found.fetchall()

    def messages(self, name: str) -> Messages:
        """What came with a receipt."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT id, body FROM parcels WHERE receipt = ? ORDER BY number", (name,)
            )
            return found.fetchall()

    def answer(self, name: str, answer: bytes) -> None:
        """Keep the answer; the messages go, and the oldest receipts over the bounds."""
        with self._lock:
            with self._database.transaction() as rows:
                rows.execute("UPDATE receipts SET answer = ? WHERE id = ?", (answer, name))
                gone = rows.execute(
                    "SELECT count(*), sum(length(body)) FROM parcels WHERE receipt = ?", (name,)
                ).fetchone()
                rows.execute("DELETE FROM parcels WHERE receipt = ?", (name,))
                held = self._trim(rows, name, self.answered + len(answer))
            self.waiting -= gone[0]
            self.bytes -= gone[1] or 0
            self.answered = held

    def _trim(self, rows: sqlite3.Connection, name: str, held: int) -> int:
        """Let the oldest answers go but one; the bytes of those that are left."""
        last = rows.execute("SELECT max(number) FROM receipts").fetchone()[0]
        while (oldest := rows.execute(OLDEST, (name,)).fetchone()) is not None:
            number, size = oldest
            if number > last - KEPT and held <= self._answers:
                break
            rows.execute("DELETE FROM receipts WHERE number = ?", (number,))
            held -= size
        return held

    def find(self, tenant: str, name: str) -> tuple[float, int, bytes | None] | None:
        """When messages were taken, how many, and the answer if there is one."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT taken, messages, answer FROM receipts WHERE tenant = ? AND id = ?",
                (tenant, name),
            ).fetchone()
        return None if found is None else (found[0], found[1], found[2])

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
