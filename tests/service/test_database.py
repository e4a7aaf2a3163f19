"""Transactions: all or nothing, and the error that was is the one that is told."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from fmware.service.database import Database

if TYPE_CHECKING:
    from pathlib import Path


def twice(database: Database, what: str) -> None:
    with database.transaction() as held:
        held.execute(what)
        held.execute(what)


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.db", "CREATE TABLE IF NOT EXISTS t (a INTEGER UNIQUE)")
    with pytest.raises(sqlite3.IntegrityError):
        twice(database, "INSERT INTO t VALUES (1)")
    with database.reading() as held:
        assert held.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()


def test_where_sqlite_has_rolled_back_itself_its_own_error_is_told(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.db", "CREATE TABLE IF NOT EXISTS t (a INTEGER UNIQUE)")
    # As with a full disk: the transaction is over when the error comes.
    with pytest.raises(sqlite3.IntegrityError):
        twice(database, "INSERT OR ROLLBACK INTO t VALUES (1)")
    with database.transaction() as held:
        held.execute("INSERT INTO t VALUES (2)")
    database.close()
