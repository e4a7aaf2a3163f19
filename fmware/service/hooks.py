"""Webhooks as values, and on disk: who is told of matches, of which ones, and what signs.

Those of the configuration are `fixed`. The others were made over HTTP: a row each, with its
secrets, which must be there in full since they sign. A change is on disk before it is answered;
where one begins is written together with it, so that no match after it is missed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from fmware.service.layers import Problem
from fmware.service.positions import MOVE
from fmware.service.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.service.database import Database
    from fmware.service.segments import Entry
    from fmware.service.settings import Target

__all__ = ["SCHEMA", "Hook", "Hooks", "Secret", "fixed_hook"]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS hooks (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Secret:
    """What signs, and until when; for ever unless said."""

    value: str
    until: float | None = None

    def good(self, now: float) -> bool:
        """Whether it signs."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Hook:
    """A server that is told of matches; its newest secret is the first."""

    tenant: str
    name: str
    url: str
    secrets: tuple[Secret, ...]
    statements: tuple[str, ...] = ()
    paused: bool = False
    fixed: bool = False
    created: float = 0.0
    updated: float = 0.0

    @property
    def key(self) -> str:
        """What its position is kept under: names of the configuration are there once."""
        return self.name if self.fixed else f"{self.tenant}/{self.name}"

    @property
    def head(self) -> bytes:
        """How the bodies of its requests begin: each says whose it is."""
        return json.dumps({"target": self.name, "tenant": self.tenant}).encode()[:-1]

    def signing(self, now: float) -> list[bytes]:
        """The secrets that sign now."""
        return [each.value.encode() for each in self.secrets if each.good(now)]

    def wants(self, entry: Entry) -> bool:
        """Whether it is told of a match of its tenant."""
        return not self.statements or entry.statement in self.statements

    def rotated(self, secret: str, now: float, overlap: float) -> Hook:
        """With a new secret; the one before signs, too, for so many seconds."""
        before = replace(self.secrets[0], until=now + overlap)
        kept = (before,) if before.good(now) else ()
        return replace(self, secrets=(Secret(secret), *kept), updated=now)


def fixed_hook(target: Target, environ: Mapping[str, str]) -> Hook:
    """A target of the configuration; its secrets are in the environment."""
    found = []
    for key in ("secret_env", "old_secret_env"):
        variable = getattr(target, key)
        if variable is None:
            continue
        if not (value := environ.get(variable)):
            where = f"webhooks.targets.{target.name}.{key}"
            what = f"{variable} has no value: set it to a long random secret"
            raise SettingsError([Problem("", where, what)])
        found.append(Secret(value))
    return Hook(target.tenant, target.name, target.url, tuple(found), target.statements, fixed=True)


class Hooks:
    """Webhooks that were made over HTTP. Calls wait for the disk."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Hook]:
        """Those of all tenants, by name."""
        with self._database.reading() as rows:
            found = rows.execute("SELECT body FROM hooks ORDER BY tenant, name").fetchall()
        return [_hook(json.loads(body)) for (body,) in found]

    def put(self, hook: Hook, position: int | None = None) -> None:
        """Keep one, in the place of another of its name; a new one begins behind a position."""
        about = json.dumps(asdict(hook))
        with self._database.transaction() as rows:
            rows.execute(
                "INSERT INTO hooks VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET body = ?3",
                (hook.tenant, hook.name, about),
            )
            if position is not None:
                rows.execute(MOVE, (hook.key, position))

    def delete(self, hook: Hook) -> None:
        """Forget one, with its position and what it did not take."""
        with self._database.transaction() as rows:
            rows.execute(
                "DELETE FROM hooks WHERE tenant = ? AND name = ?", (hook.tenant, hook.name)
            )
            rows.execute("DELETE FROM positions WHERE target = ?", (hook.key,))
            rows.execute("DELETE FROM dead WHERE target = ?", (hook.key,))


def _hook(about: dict[str, Any]) -> Hook:
    secrets = tuple(Secret(**each) for each in about.pop("secrets"))
    return Hook(**about | {"secrets": secrets, "statements": tuple(about["statements"])})
