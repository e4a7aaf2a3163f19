"""A dry run of a configuration: all that `fmware serve` would need, looked at and not started.

No broker is connected to, no port is opened, nothing is written. Sources and sinks are made, so
that classes and options are known to fit; what only a broker can say is not known.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fmware.errors import FMwareError
from fmware.index import Index, StoreError
from fmware.matching import Resolver, advice
from fmware.service.brokers import sink_of, source_of
from fmware.service.checks import statements_of
from fmware.service.errors import ServiceError, StatementRefused
from fmware.service.hooks import fixed_hook
from fmware.service.store import Store
from fmware.service.tenants import Tenants
from fmware.statements import lint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from fmware.service.settings import Settings, Target
    from fmware.statements import Statement

__all__ = ["Finding", "dry_run", "no_index"]

Verdict = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what there is to say of it."""

    verdict: Verdict
    subject: str
    text: str


def dry_run(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything that a service with these settings needs, one thing after the other."""
    index, found = _index(settings.index)
    yield found
    try:
        yield from _statements(settings, index)
        yield from _brokers("source", settings.sources, _source(settings))
        yield from _brokers("sink", settings.sinks, sink_of)
        yield from _tried("tenants", lambda: _tenants(settings, environ))
        yield from _webhooks(settings, environ)
        yield _state(settings.state)
        server = settings.server
        yield Finding("ok", "server", f"would listen on http://{server.host}:{server.port}")
        if settings.tests:
            yield Finding("ok", "tests", f"{len(settings.tests)}: `fmware test` runs them")
    finally:
        if index is not None:
            index.close()


def no_index(path: Path) -> str:
    """What is said where an index is not there, with the command that makes one."""
    return f"{path}: no index here; make one with: fmware index build CORPUS --out {path.name}"


def _index(path: Path) -> tuple[Index | None, Finding]:
    try:
        index = Index.open(path)
    except (StoreError, OSError) as error:
        missing = not (path / "manifest.json").exists()
        return None, Finding("wrong", "index", no_index(path) if missing else str(error))
    entries = index.manifest.segments
    gone = sum(entry.tombstones.removed for entry in entries if entry.tombstones)
    records = sum(entry.records for entry in entries) - gone
    said = f"{path}: generation {index.generation}, {records:,} records"
    return index, Finding("ok", "index", said)


def _statements(settings: Settings, index: Index | None) -> Iterator[Finding]:
    resolver = None if index is None else Resolver(index)
    for tenant in settings.everyone():
        number = 0
        try:
            for statement in statements_of(settings, tenant.name):
                number += 1
                for warning in _warnings(statement, resolver):
                    yield Finding("warning", f"statement {statement.name}", warning)
        except (StatementRefused, OSError) as error:
            yield Finding("wrong", "statements", str(error))
            continue
        yield Finding("ok", "statements", f"{number:,} of tenant {tenant.name}")


def _warnings(statement: Statement, resolver: Resolver | None) -> list[str]:
    return lint(statement) if resolver is None else advice(statement, resolver)


def _source(settings: Settings) -> Callable[[Mapping[str, Any]], object]:
    return lambda about: source_of(about, largest=settings.limits.bytes)


def _brokers(
    role: str, entries: Any, make: Callable[[Mapping[str, Any]], object]
) -> Iterator[Finding]:
    for each in entries:
        yield from _tried(f"{role} {each.name}", partial(_made, make, each.model_dump()))


def _made(make: Callable[[Mapping[str, Any]], object], about: Mapping[str, Any]) -> str:
    make(about)
    return f"{about['kind']}; not connected to"


def _tenants(settings: Settings, environ: Mapping[str, str]) -> str:
    Tenants(settings, environ)
    return ", ".join(each.name for each in settings.everyone())


def _webhooks(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    known: dict[str, set[str]] = {}
    for each in settings.webhooks.targets:
        if each.tenant not in known:
            known[each.tenant] = _names(settings, each.tenant)
        unknown = [name for name in each.statements if name not in known[each.tenant]]
        if unknown:
            said = f"tenant {each.tenant} has no statement {unknown[0]!r}"
            yield Finding("wrong", f"webhook {each.name}", said)
        else:
            yield from _tried(f"webhook {each.name}", partial(_address, each, environ))


def _address(target: Target, environ: Mapping[str, str]) -> str:
    return fixed_hook(target, environ).url


def _names(settings: Settings, tenant: str) -> set[str]:
    """The statements of a tenant: those of the configuration, and those that were registered."""
    try:
        found = {each.name for each in statements_of(settings, tenant)}
    except (StatementRefused, OSError):
        return set()  # Reported before.
    kept = settings.state / "statements.db"
    if kept.exists():
        store = Store(kept)
        found |= {each["name"] for each in store.all(tenant)}
        store.close()
    return found


def _state(place: Path) -> Finding:
    """Whether the state can be written where it is to be."""
    there = next(each for each in (place, *place.absolute().parents) if each.exists())
    if os.access(there, os.W_OK | os.X_OK):
        return Finding("ok", "state", str(place))
    return Finding("wrong", "state", f"{place}: cannot be written; set state to another directory")


def _tried(subject: str, look: Callable[[], str]) -> Iterator[Finding]:
    try:
        yield Finding("ok", subject, look())
    except ModuleNotFoundError as error:
        hint = f"{error.name} is not installed: pip install 'fmware[service]'"
        yield Finding("wrong", subject, hint)
    except (ServiceError, FMwareError, ValueError, OSError) as error:
        yield Finding("wrong", subject, str(error))
