"""The tables of `fmware.toml`, a model each.

Every field has a sentence, which the commented file of `fmware init`, the JSON schema and the
operators' guide show as it stands here.
"""

from __future__ import annotations

from pathlib import Path

from fmware.service.envelope import DEFAULT
from fmware.service.tables.base import Table
from fmware.service.tables.brokers import (
    AmqpSink,
    AmqpSource,
    FilesSink,
    FilesSource,
    NatsSink,
    NatsSource,
    PythonSink,
    PythonSource,
    SinkSettings,
    SourceSettings,
    StdioSink,
    StdioSource,
)
from fmware.service.tables.server import EngineSettings, LogSettings, MessageLimits, Server
from fmware.service.tables.statements import Expected, StatementSettings, Test
from fmware.service.tables.tenants import Quota, Tenant
from fmware.service.tables.webhooks import Target, WebhookSettings

__all__ = [
    "AmqpSink",
    "AmqpSource",
    "EngineSettings",
    "Expected",
    "FilesSink",
    "FilesSource",
    "LogSettings",
    "MessageLimits",
    "NatsSink",
    "NatsSource",
    "PythonSink",
    "PythonSource",
    "Quota",
    "Server",
    "Settings",
    "SinkSettings",
    "SourceSettings",
    "StatementSettings",
    "StdioSink",
    "StdioSource",
    "Table",
    "Target",
    "Tenant",
    "Test",
    "WebhookSettings",
]


class Settings(Table):
    """All that `fmware.toml` can say."""

    index: Path = Path("corpus.fm")
    """The index of the corpus, as `fmware index build` made it."""
    state: Path = Path("fmware-state")
    """The directory of what must outlive the service: statements, the match log, positions."""
    statements_files: tuple[Path, ...] = ()
    """Files of statements of the tenant `default`, one a line or TOML."""
    server: Server = Server()
    """The HTTP side."""
    engine: EngineSettings = EngineSettings()
    """The processes that match."""
    limits: MessageLimits = MessageLimits()
    """What one message may ask for."""
    log: LogSettings = LogSettings()
    """The durable log of matches."""
    webhooks: WebhookSettings = WebhookSettings()
    """Matches posted to other people's servers."""
    tenants: tuple[Tenant, ...] = ()
    """Who may use the service; with none, one called `default` without a token."""
    statements: tuple[StatementSettings, ...] = ()
    """Statements that are always there; others come over HTTP."""
    sources: tuple[SourceSettings, ...] = ()
    """Where messages come from, beside HTTP."""
    sinks: tuple[SinkSettings, ...] = ()
    """Where matches go, beside the log."""
    tests: tuple[Test, ...] = ()
    """Messages and the matches they must have, for `fmware test`."""

    def everyone(self) -> tuple[Tenant, ...]:
        """The tenants; the one who is there where nobody is named."""
        return self.tenants or (Tenant(name=DEFAULT),)
