"""Sources and sinks: where messages come from, where matches go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fmware.service.envelope import DEFAULT
from fmware.service.tables.base import OBJECT, Name, Positive, Seconds, Table, Whose

__all__ = [
    "AmqpSink",
    "AmqpSource",
    "FilesSink",
    "FilesSource",
    "Named",
    "NatsSink",
    "NatsSource",
    "PythonSink",
    "PythonSource",
    "SinkSettings",
    "SourceSettings",
    "StdioSink",
    "StdioSource",
]


NatsName = Annotated[str, Field(pattern=r"^[^\s.*>/\\]{1,255}$")]
"""What NATS takes for the name of a stream or a consumer."""


class Named(Table):
    """A source or a sink: its name is in the log and in metrics."""

    name: Name
    """A name for logs and metrics, used once."""


class FilesSource(Named):
    """A directory that files are moved into."""

    kind: Literal["files"]
    """A directory whose files are messages."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody's."""
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
    """Whose statements see the messages; `*` is everybody's."""


class NatsSource(Named):
    """A JetStream stream."""

    kind: Literal["nats"]
    """A JetStream stream of NATS, read by a durable pull consumer."""
    tenant: Whose = DEFAULT
    """Whose statements see the messages; `*` is everybody's."""
    url: str = "nats://127.0.0.1:4222"
    """Where NATS is; several with commas between them."""
    stream: NatsName
    """The stream."""
    subject: str
    """The subject, wildcards allowed."""
    durable: NatsName = "fmware"
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
    """Whose statements see the messages; `*` is everybody's."""
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
    """`module:Class`; the module is installed, or in a folder of PYTHONPATH; it runs as fmware."""
    options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
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
    stream: NatsName
    """The stream."""
    subject: str = "fmware.matches"
    """Where matches are published."""
    dead_subject: str = "fmware.dead"
    """Where dead letters are published."""
    duplicate_seconds: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
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
    """`module:Class`; the module is installed, or in a folder of PYTHONPATH; it runs as fmware."""
    options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """What it is made with, beside its name."""


SourceSettings = Annotated[
    FilesSource | StdioSource | NatsSource | AmqpSource | PythonSource,
    Field(discriminator="kind"),
]


SinkSettings = Annotated[
    FilesSink | StdioSink | NatsSink | AmqpSink | PythonSink, Field(discriminator="kind")
]
