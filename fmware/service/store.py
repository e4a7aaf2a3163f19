"""Statements on disk: registered once, there after a restart.

A row a statement, with its tenant, as the JSON it was registered with. A change is on disk before
it is answered, and a crash leaves the old or the new.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from fmware.service.database import Database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Store", "size_of"]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS statements (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
"""
PUT: Final = """
INSERT INTO statements VALUES (?1, ?2, ?3, ?4, ?4)
ON CONFLICT DO UPDATE SET body = ?3, updated = ?4
"""
PAGE: Final = 1000
AT_ONCE: Final = 1000
"""Names in one question: SQLite takes no more than some thousands."""


def size_of(statement: dict[str, Any]) -> int:
    """The bytes that a statement takes, as JSON."""
    return len(json.dumps(statement))


class Store:
    """The statements of all tenants. Its calls wait for the disk: make them on a thread."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, SCHEMA)
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT tenant, count(*), sum(length(body)) FROM statements GROUP BY tenant"
            ).fetchall()
        self._counts: dict[str, int] = {tenant: count for tenant, count, _ in found}
        self._sizes: dict[str, int] = {tenant: size for tenant, _, size in found}

    def count(self, tenant: str) -> int:
        """How many statements a tenant has."""
        return self._counts.get(tenant, 0)

    def size(self, tenant: str) -> int:
        """The bytes of a tenant's statements, see `size_of`."""
        return self._sizes.get(tenant, 0)

    def put(self, tenant: str, statements: Sequence[dict[str, Any]]) -> None:
        """Keep statements, all of them or none; one of the same name is replaced.

        REQUIRES: no two have the same name.
        """
        now = time.time()
        lines = [(tenant, each["name"], json.dumps(each), now) for each in statements]
        with self._database.transaction() as rows:
            there = self._sizes_in(rows, tenant, [name for _, name, _, _ in lines])
            rows.executemany(PUT, lines)
        self._count(tenant, len(lines) - len(there), sum(len(body) for _, _, body, _ in lines))
        self._count(tenant, 0, -sum(there.values()))

    def delete(self, tenant: str, names: Sequence[str]) -> None:
        """Forget statements; those that are not there are passed over."""
        with self._database.transaction() as rows:
            there = self._sizes_in(rows, tenant, names)
            rows.executemany(
                "DELETE FROM statements WHERE tenant = ? AND name = ?",
                [(tenant, name) for name in there],
            )
        self._count(tenant, -len(there), -sum(there.values()))

    def _count(self, tenant: str, number: int, size: int) -> None:
        self._counts[tenant] = self.count(tenant) + number
        self._sizes[tenant] = self.size(tenant) + size

    def _sizes_in(self, rows: Any, tenant: str, names: Sequence[str]) -> dict[str, int]:
        """The bytes of those of some names that a tenant has."""
        found: dict[str, int] = {}
        for begin in range(0, len(names), AT_ONCE):
            lot = names[begin : begin + AT_ONCE]
            marks = ", ".join("?" * len(lot))
            asked = "SELECT name, length(body) FROM statements WHERE tenant = ? AND name IN"
            found |= dict(rows.execute(f"{asked} ({marks})", (tenant, *lot)))
        return found

    def get(self, tenant: str, name: str) -> dict[str, Any] | None:
        """One statement."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT body, created, updated FROM statements WHERE tenant = ? AND name = ?",
                (tenant, name),
            ).fetchone()
        return None if found is None else _record(*found)

    def known(self, tenant: str, names: Sequence[str]) -> dict[str, int]:
        """Those of some names that a tenant has, and the bytes of each."""
        with self._database.reading() as rows:
            return self._sizes_in(rows, tenant, names)

    def some(self, tenant: str, names: Sequence[str]) -> list[dict[str, Any]]:
        """Those of some names that a tenant has, as they were registered; at most a thousand."""
        marks = ", ".join("?" * len(names))
        asked = f"SELECT body FROM statements WHERE tenant = ? AND name IN ({marks})"
        with self._database.reading() as rows:
            return [json.loads(body) for (body,) in rows.execute(asked, (tenant, *names))]

    def page(self, tenant: str, after: str = "", limit: int = PAGE) -> list[dict[str, Any]]:
        """Statements by name, those behind `after`."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT body, created, updated FROM statements "
                "WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
                (tenant, after, limit),
            ).fetchall()
        return [_record(*row) for row in found]

    def tenants(self) -> list[str]:
        """Those that have statements."""
        return sorted(tenant for tenant, count in self._counts.items() if count)

    def all(self, tenant: str) -> list[dict[str, Any]]:
        """All statements of a tenant, as they were registered."""
        with self._database.reading() as rows:
            found = rows.execute("SELECT body FROM statements WHERE tenant = ?", (tenant,))
            return [json.loads(body) for (body,) in found]

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def _record(body: str, created: float, updated: float) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(body)
    return about | {"created": created, "updated": updated}
