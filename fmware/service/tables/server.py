"""The service itself: its HTTP side, its processes, the bounds of messages, the log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fmware.service.tables.base import Hashes, Positive, Seconds, Table, Variable

__all__ = ["EngineSettings", "LogSettings", "MessageLimits", "Server"]


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
    metrics_token_sha256: Hashes = ()
    """SHA-256 of tokens that read all of `/metrics` and nothing else; two while one is replaced."""
    metrics_token_env: Variable | None = None
    """The environment variable that has such a token itself."""
    body_bytes: Positive = 16 << 20
    """The largest body of a request, as it comes and after it was decompressed."""
    bodies_bytes: Positive = 256 << 20
    """Bytes of the bodies of all requests under way, of which a tenant has half; two bodies fit."""
    batch_messages: Positive = 1000
    """The most messages in one request."""
    request_seconds: Seconds = 30.0
    """How long a request may take: one that is still coming then gets 408, any other 503."""
    connections: Annotated[int, Field(ge=8, le=1_000_000)] = 4096
    """The most connections; for one more, the one goes that had no whole request for longest."""
    header_seconds: Seconds = 10.0
    """How long the headers of a request may take before the connection is closed, with 408."""
    header_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 32 << 10
    """The largest headers of a request, all of them together."""
    body_pause_seconds: Seconds = 10.0
    """How long nothing may come of a body before the request is answered with 408."""
    stall_seconds: Seconds = 20.0
    """How long a reader may take next to nothing of an answer or a stream before it is cut off."""
    keep_alive_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long a connection may be idle between two requests."""
    sink_stuck_seconds: Seconds = 60.0
    """How long a sink may take nothing of what it is given before `/readyz` answers 503."""
    streams: Positive = 1000
    """The most readers that follow matches over SSE or WebSocket at the same time."""
    stop_seconds: Seconds = 30.0
    """How long what is under way may take when the service is told to stop."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """How a line of the log looks: `json`, `text` for people, or `auto`, text on a terminal."""


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
    names: Annotated[int, Field(ge=1, le=1 << 22)] = 100_000
    """How many different names of elements and attributes it may have."""
    name_bytes: Annotated[int, Field(ge=1, le=1 << 30)] = 4 << 20
    """The bytes of those names, and of each namespace once."""
    entities: bool = False
    """Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one."""
    work: Positive = 50_000_000
    """The units of work that a tenant's statements may take for it; a unit is 2 to 20 ns of CPU."""
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
    scrub_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 4 << 20
    """Bytes of the index that are verified a second, in the background; 0 verifies none."""
    worker_bytes: Annotated[int, Field(ge=64 << 20)] = 2 << 30
    """Memory that a worker may take beyond what it begins with: statements, messages, matches."""
    sandbox_bytes: Annotated[int, Field(ge=64 << 20)] = 512 << 20
    """The same of a process that tries statements out, or reads large bodies of requests."""


class LogSettings(Table):
    """The durable log of matches: streams resume from it, webhooks send from it."""

    bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """How much is kept; the oldest goes first."""
    segment_bytes: Annotated[int, Field(ge=1 << 16)] = 16 << 20
    """The size of one of its files."""
    sync: bool = True
    """Have matches on disk, not only with the system, before their message is acknowledged."""
    letters: Positive = 10_000
    """The most dead letters that are kept; the oldest go first, of whoever has most."""
    letter_bytes: Annotated[int, Field(ge=1 << 20)] = 256 << 20
    """The most bytes of them; one that is larger by itself is kept without its bytes."""
