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

__all__ = ["Store"]

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


class Store:
    """The statements of all tenants. Its calls wait for the disk: make them on a thread."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, SCHEMA)
        with self._database.reading() as rows:
            found = rows.execute("SELECT tenant, count(*) FROM statements GROUP BY tenant")
            self._counts: dict[str, int] = dict(found.fetchall())

    def count(self, tenant: str) -> int:
        """How many statements a tenant has."""
        return self._counts.get(tenant, 0)

    def put(self, tenant: str, statements: Sequence[dict[str, Any]]) -> None:
        """Keep statements, all of them or none; one of the same name is replaced."""
        now = time.time()
        lines = [(tenant, each["name"], json.dumps(each), now) for each in statements]
        with self._database.transaction() as rows:
            rows.executemany(PUT, lines)
            self._counted(rows, tenant)

    def delete(self, tenant: str, names: Sequence[str]) -> None:
        """Forget statements; those that are not there are passed over."""
        with self._database.transaction() as rows:
            rows.executemany(
                "DELETE FROM statements WHERE tenant = ? AND name = ?",
                [(tenant, name) for name in names],
            )
            self._counted(rows, tenant)

    def _counted(self, rows: Any, tenant: str) -> None:
        found = rows.execute("SELECT count(*) FROM statements WHERE tenant = ?", (tenant,))
        self._counts[tenant] = found.fetchone()[0]

    def get(self, tenant: str, name: str) -> dict[str, Any] | None:
        """One statement."""
        with self._database.reading() as rows:
            found = rows.execute(
                "SELECT body, created, updated FROM statements WHERE tenant = ? AND name = ?",
                (tenant, name),
            ).fetchone()
        return None if found is None else _record(*found)

    def known(self, tenant: str, names: Sequence[str]) -> set[str]:
        """Those of some names that a tenant has; no more than a thousand at once."""
        marks = ", ".join("?" * len(names))
        asked = f"SELECT name FROM statements WHERE tenant = ? AND name IN ({marks})"
        with self._database.reading() as rows:
            return {row[0] for row in rows.execute(asked, (tenant, *names))}

    def some(self, tenant: str, names: Sequence[str]) -> list[dict[str, Any]]:
        """The same, as they were registered."""
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
