"""The tables of `fmware.toml`, a model each.

Every field has a sentence, which the commented file of `fmware init`, the JSON schema and the
operators' guide show as it stands here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fmware.service.envelope import DEFAULT

if TYPE_CHECKING:
    from fmware.statements import Statement

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

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""A name that can stand in a path, a header and a metric."""
Whose = Name | Literal["*"]
"""A tenant, or all of them."""
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
OBJECT = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable, which holds a secret that the file must not."""


class Table(BaseModel):
    """A table of the file: keys that nobody knows are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _several(value: Any) -> Any:
    """One text may stand for a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


# --- the server and the engine ------------------------------------------------------------------


class Server(Table):
    """The HTTP side."""

    host: str = "127.0.0.1"
    """The address to listen on; beyond this machine only with tokens, see `open`."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8400
    """The port to listen on; 0 takes a free one."""
    open: bool = False
    """Serve an address beyond this machine although no tenant has a token: a private network."""
    hosts: tuple[str, ...] = ()
    """Where no token is needed: names that clients call the service by; `*` is any."""
    page: bool = True
    """Show the page at `/`."""
    body_bytes: Positive = 16 << 20
    """The largest body of a request, as it comes and after it was decompressed."""
    batch_messages: Positive = 1000
    """The most messages in one request."""
    request_seconds: Seconds = 30.0
    """How long a request may take before it is answered with 503."""
    streams: Positive = 1000
    """The most readers that follow matches over SSE or WebSocket at the same time."""
    stop_seconds: Seconds = 30.0
    """How long what is under way may take when the service is told to stop."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged."""
    log_format: Literal["json", "text"] = "json"
    """How a line of the log looks: JSON for machines, text for people."""


class MessageLimits(Table):
    """What one message may ask for; one that asks for more is a dead letter."""

    bytes: Positive = 16 << 20
    """The largest message."""
    depth: Annotated[int, Field(ge=1, le=2048)] = 256
    """How deep its elements may lie."""
    nodes: Positive = 1_000_000
    """How many elements, attributes and texts it may have."""
    attribute: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """The longest attribute, in bytes of UTF-8."""
    text: Annotated[int, Field(ge=1, le=1 << 30)] = 10_000_000
    """The longest text, in bytes of UTF-8."""
    entities: bool = False
    """Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one."""
    work: Positive = 50_000_000
    """The node visits that the predicates of all statements may make."""
    tuples: Positive = 100_000
    """The path tuples that one statement may have."""


class EngineSettings(Table):
    """The processes that match."""

    workers: Annotated[int, Field(ge=0, le=256)] = 0
    """Worker processes; 0 is one for each core."""
    queue: Positive = 1024
    """Messages that may wait for a worker; when it is full, sources and senders wait."""
    batch: Annotated[int, Field(ge=1, le=10_000)] = 64
    """The most messages that a worker gets at once."""
    budget: Annotated[int, Field(ge=1 << 20)] = 64 << 20
    """Bytes that the operators of one worker may hold before they spill to disk."""
    operator: Literal["auto", "cmatch", "admatch"] = "auto"
    """How anchors are joined with the corpus; `auto` goes by cost."""
    scheme: str | None = None
    """The SES scheme of CMatch; the first of the index unless said."""
    threads: Annotated[int, Field(ge=0, le=256)] = 0
    """Threads of each operator that probe the index; 0 probes without any."""
    dedupe_seconds: Annotated[float, Field(ge=0)] = 120.0
    """How long the id of a message is known, so that a repeated one is not matched again."""
    dedupe_messages: Annotated[int, Field(ge=0)] = 100_000
    """The most ids that are known; 0 lets repeated messages through."""
    message_seconds: Seconds = 30.0
    """How long a batch may take before its worker is held to be stuck and is replaced."""
    tries: Positive = 3
    """How many workers a message may bring down before it is a dead letter."""


class Quota(Table):
    """How much of the service one tenant may take."""

    statements: Annotated[int, Field(ge=0)] = 1000
    """The most statements."""
    rate: Annotated[float, Field(ge=0)] = 0.0
    """Messages a second over HTTP, on average; 0 is without bound."""
    burst: Annotated[int, Field(ge=0)] = 0
    """Messages that may come at once beyond the rate; 0 is one second's worth."""
    body_bytes: Annotated[int, Field(ge=0)] = 0
    """The largest body of a request; 0 is that of the server."""


class Tenant(Table):
    """Somebody with statements and a token of their own."""

    name: Name
    """The name, which is part of the log and of metrics."""
    token_sha256: tuple[str, ...] = ()
    """SHA-256 of the tokens that are good, in hex; two of them while a token is replaced."""
    token_env: Variable | None = None
    """The environment variable that has the token itself."""
    limits: Quota = Quota()
    """What the tenant may take."""

    @field_validator("token_sha256", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return _several(value)

    @field_validator("token_sha256")
    @classmethod
    def _hex(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not re.fullmatch(r"[0-9a-fA-F]{64}", each):
                raise ValueError("not 64 hex digits: printf %s TOKEN | sha256sum")
        return tuple(each.lower() for each in value)

    @property
    def guarded(self) -> bool:
        """Whether a token is needed."""
        return bool(self.token_sha256 or self.token_env)


# --- statements and tests -----------------------------------------------------------------------


class StatementSettings(Table):
    """A statement, in one expression or in two parts, as in a file of statements."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    """The name, by which matches tell where they come from."""
    tenant: Name = DEFAULT
    """Whose statement it is."""
    expression: str | None = None
    """An XPath; its steps in `local:` cross into the corpus."""
    filter: str | None = None
    """In two parts: the XPath on messages."""
    match: str | None = None
    """In two parts: the path in the corpus, from the anchor's local node."""
    anchor: int | str | None = None
    """In two parts: the step that is the anchor, by name or number; the last one unless said."""
    axis: Literal["child", "descendant", "self", "parent", "ancestor"] | None = None
    """In two parts: how `match` begins, if it does not say that itself."""
    returns: tuple[Literal["name", "message", "local", "value", "fragment"], ...] | None = None
    """What a match holds; the message's nodes and the local node unless said."""
    namespaces: dict[str, str] = {}
    """Prefixes of the expression."""

    @field_validator("returns", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return _several(value)

    @model_validator(mode="after")
    def _one_way(self) -> StatementSettings:
        parts = [key for key in ("filter", "match", "anchor", "axis") if getattr(self, key)]
        if self.expression and parts:
            raise ValueError(f"{parts[0]} beside expression: say it in one of the two ways")
        if not self.expression and not (self.filter and self.match):
            raise ValueError("write an expression, or filter and match")
        return self

    def statement(self, *, name: str | None = None) -> Statement:
        """The statement; raises an `XPathError` that points at what is wrong."""
        from fmware.statements import Statement

        called = name or self.name
        spaces, returns = self.namespaces, self.returns
        if self.expression:
            return Statement.parse(self.expression, name=called, namespaces=spaces, returns=returns)
        return Statement.two_part(
            filter=self.filter or "",
            match=self.match or "",
            anchor=self.anchor,
            axis=self.axis,
            name=called,
            namespaces=spaces,
            returns=returns,
        )


class Expected(Table):
    """A match that a test expects; what is not said may be anything."""

    statement: str
    """The statement that matches."""
    value: str | None = None
    """The string-value of the local node."""
    tag: str | None = None
    """The tag of the local node."""
    path: str | None = None
    """The path of the local node, from its record."""
    fragment: str | None = None
    """The XML of the local node."""
    nodes: tuple[str, ...] | None = None
    """The paths of the message's nodes, one a step."""


class Test(Table):
    """A message, and the matches that it must have: no fewer and no more."""

    __test__ = False

    name: str
    """What the test shows."""
    tenant: Name = DEFAULT
    """Whose statements are asked."""
    message: str | None = None
    """The message, as text."""
    file: Path | None = None
    """The message, as a file."""
    matches: tuple[Expected, ...] = ()
    """All matches, in any order; none by default."""
    error: str | None = None
    """The message must be refused, and these words be in the reason."""

    @model_validator(mode="after")
    def _one_message(self) -> Test:
        if (self.message is None) == (self.file is None):
            raise ValueError("write either message or file")
        if self.error is not None and self.matches:
            raise ValueError("a message that is refused has no matches: drop error or matches")
        return self


# --- where messages come from, where matches go -------------------------------------------------


class Named(Table):
    """A source or a sink: its name is in the log and in metrics."""

    name: Name
    """A name for logs and metrics, used once."""


class FilesSource(Named):
    """A directory that files are moved into."""

    kind: Literal["files"]
    """A directory whose files are messages."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody\'s."""
    path: Path
    """The directory; write elsewhere and move files in, so that none is seen half written."""
    pattern: str = "*.xml"
    """Which files are messages."""
    done: Path | None = None
    """The directory that files go to when they are done; without one they are removed."""
    poll_seconds: Seconds = 1.0
    """How often to look for files."""


class StdioSource(Named):
    """Standard input."""

    kind: Literal["stdio"]
    """Documents on standard input, one after the other."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody\'s."""


class NatsSource(Named):
    """A JetStream stream."""

    kind: Literal["nats"]
    """A JetStream stream of NATS, read by a durable pull consumer."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody\'s."""
    url: str = "nats://127.0.0.1:4222"
    """Where NATS is; several with commas between them."""
    stream: str
    """The stream."""
    subject: str
    """The subject, wildcards allowed."""
    durable: str = "fmware"
    """The durable consumer, which keeps how far the service has come."""
    batch: Annotated[int, Field(ge=1, le=10_000)] = 256
    """The most messages that are asked for at once, and that are under way."""
    ack_seconds: Seconds = 60.0
    """When the broker gives a message again that was not acknowledged."""
    deliveries: Annotated[int, Field(ge=1)] = 10
    """How often a message is tried before it is a dead letter."""
    create: bool = False
    """Make the stream if there is none."""


class AmqpSource(Named):
    """A queue of RabbitMQ."""

    kind: Literal["amqp"]
    """A queue of RabbitMQ, with manual acknowledgement."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody\'s."""
    url: str = "amqp://guest:guest@127.0.0.1:5672/"
    """Where RabbitMQ is."""
    queue: str
    """The queue."""
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = 256
    """The most messages that are under way."""
    deliveries: Annotated[int, Field(ge=1)] = 10
    """How often a message is tried before it is a dead letter."""
    create: bool = False
    """Declare the queue, durable, if there is none."""


class PythonSource(Named):
    """A source of one's own."""

    kind: Literal["python"]
    """A class of your own; the guide says what it must have."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody's."""
    use: Annotated[str, Field(pattern=OBJECT)]
    """Where the class is, as `module:Class`; whoever writes this file may run any code."""
    options: dict[str, Any] = {}
    """What it is made with, beside its name."""


class FilesSink(Named):
    """A file of JSON lines."""

    kind: Literal["files"]
    """A directory of JSON lines: matches, and dead letters beside them."""
    path: Path
    """The directory."""
    rotate_bytes: Positive = 64 << 20
    """When a new file is begun."""


class StdioSink(Named):
    """Standard output."""

    kind: Literal["stdio"]
    """JSON lines on standard output."""


class NatsSink(Named):
    """Subjects of a JetStream stream."""

    kind: Literal["nats"]
    """A JetStream stream of NATS; the id of a match is its `Nats-Msg-Id`."""
    url: str = "nats://127.0.0.1:4222"
    """Where NATS is; several with commas between them."""
    stream: str
    """The stream."""
    subject: str = "fmware.matches"
    """Where matches are published."""
    dead_subject: str = "fmware.dead"
    """Where dead letters are published."""
    duplicate_seconds: Seconds = 600.0
    """How long the stream drops matches that it has already, if it is made here."""
    create: bool = False
    """Make the stream if there is none."""


class AmqpSink(Named):
    """An exchange of RabbitMQ."""

    kind: Literal["amqp"]
    """An exchange of RabbitMQ, with publisher confirms; the id of a match is its message id."""
    url: str = "amqp://guest:guest@127.0.0.1:5672/"
    """Where RabbitMQ is."""
    exchange: str = ""
    """The exchange; empty is the default one, where the routing key is a queue."""
    routing_key: str = "fmware.matches"
    """Where matches go."""
    dead_routing_key: str = "fmware.dead"
    """Where dead letters go."""
    create: bool = False
    """Declare the exchange, or the two queues of the default one, durable, if there are none."""


class PythonSink(Named):
    """A sink of one's own."""

    kind: Literal["python"]
    """A class of your own; the guide says what it must have."""
    use: Annotated[str, Field(pattern=OBJECT)]
    """Where the class is, as `module:Class`; whoever writes this file may run any code."""
    options: dict[str, Any] = {}
    """What it is made with, beside its name."""


SourceSettings = Annotated[
    FilesSource | StdioSource | NatsSource | AmqpSource | PythonSource,
    Field(discriminator="kind"),
]
SinkSettings = Annotated[
    FilesSink | StdioSink | NatsSink | AmqpSink | PythonSink, Field(discriminator="kind")
]


class LogSettings(Table):
    """The durable log of matches: streams resume from it, webhooks send from it."""

    bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """How much is kept; the oldest goes first."""
    segment_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 20
    """The size of one of its files."""
    sync: bool = True
    """Have matches on disk, not only with the system, before their message is acknowledged."""


class Target(Table):
    """A server that is told of matches."""

    name: Name
    """A name for logs and metrics, and for what is kept of it over a restart."""
    url: str
    """Where matches are posted."""
    tenant: Name = DEFAULT
    """Whose matches."""
    statements: tuple[str, ...] = ()
    """Only those of these statements; all of the tenant's if none is named."""
    secret_env: Variable
    """The environment variable with the secret that requests are signed with."""
    old_secret_env: Variable | None = None
    """The variable with the secret before, until receivers know the new one: both sign."""


class WebhookSettings(Table):
    """Matches posted to other people's servers."""

    https_only: bool = True
    """Refuse `http://`: a signature shows who sent a match, but hides nothing."""
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (80, 443, 8080, 8443)
    """The ports that may be called."""
    allow: tuple[str, ...] = ()
    """Networks that may be called although they are private, as `10.1.0.0/16`."""
    timeout_seconds: Seconds = 10.0
    """How long a receiver may take to answer."""
    tries: Positive = 12
    """After so many failures a delivery is given up, recorded, and the next one sent."""
    first_seconds: Seconds = 1.0
    """The pause after the first failure; it doubles, and half of it is left to chance."""
    longest_seconds: Seconds = 600.0
    """The longest pause."""
    batch: Annotated[int, Field(ge=1, le=1000)] = 50
    """The most matches in one request; those that wait do so in the log, not in memory."""
    dead: Positive = 10_000
    """The most deliveries that were given up and are kept; the oldest go first."""
    targets: tuple[Target, ...] = ()
    """The servers that are told."""

    @field_validator("allow")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from ipaddress import ip_network

        for each in value:
            ip_network(each)
        return value


class Settings(Table):
    """All that `fmware.toml` can say."""

    index: Path = Path("corpus.fm")
    """The index of the corpus, as `fmware index` made it."""
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
