"""A SQLite file that several threads share: one connection, one lock, whole transactions."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Database"]


class Database:
    """One connection to a file, made if it is not there.

    A transaction is on disk when it returns if `durable`; else it outlives the process, but not
    the machine. Never half of it is there.
    """

    def __init__(self, path: Path, schema: str, *, durable: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Also where the directory was made by others: secrets of webhooks are in one of them.
        path.touch(mode=0o600)
        path.chmod(0o600)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._connection.executescript(schema)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of what is written inside, or nothing."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # After some errors, a full disk for one, SQLite has done so itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For what only reads."""
        with self._lock:
            yield self._connection

    def shrink(self) -> None:
        """Give the disk back what was deleted; it needs room for what is left meanwhile."""
        with self._lock:
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Fold the journal into the file and let go of it; the second time nothing is done."""
        with self._lock:
            self._connection.close()
