"""What requests and answers hold, for validation and for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "NAME",
    "BulkAnswer",
    "DeadLetters",
    "Health",
    "Matched",
    "MatchedBatch",
    "Matches",
    "Model",
    "ProblemBody",
    "Receipt",
    "Refused",
    "StatementBody",
    "StatementIn",
    "StatementList",
    "StatementOut",
    "StatementRecord",
    "Stats",
    "TryIn",
    "TryOut",
]

NAME = r"^[A-Za-z0-9_]([A-Za-z0-9_.:@ -]{0,126}[A-Za-z0-9_.:@-])?$"
Name = Annotated[
    str,
    Field(
        pattern=NAME,
        max_length=128,
        description="Letters, digits and _ . : @ - and inner blanks.",
    ),
]
Expression = Annotated[str, Field(min_length=1, max_length=8192)]
Prefix = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
Uri = Annotated[str, Field(min_length=1, max_length=1024)]
Axis = Literal["child", "descendant", "self", "parent", "ancestor"]
Wanted = Literal["name", "message", "local", "value", "fragment"]
EXAMPLE = "//order/book[quantity > 5]/local:publisher"


class Model(BaseModel):
    """Nothing that is not known."""

    model_config = ConfigDict(extra="forbid")


class StatementBody(Model):
    """A statement without its name: one expression, or a filter and a match part."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"expression": EXAMPLE, "returns": ["local", "value"]},
                {"filter": "//order/book[quantity > 5]", "match": "publisher", "axis": "child"},
            ]
        },
    )
    expression: Expression | None = None
    filter: Expression | None = None
    match: Expression | None = None
    anchor: Annotated[int, Field(ge=1, le=256)] | Annotated[str, Field(max_length=256)] | None = (
        None
    )
    axis: Axis | None = None
    namespaces: Annotated[dict[Prefix, Uri], Field(max_length=64)] | None = None
    returns: Annotated[list[Wanted], Field(min_length=1, max_length=5)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> StatementBody:
        parts = [key for key in ("filter", "match", "anchor", "axis") if getattr(self, key)]
        if self.expression and parts:
            raise ValueError(f"{parts[0]} beside expression: say it in one of the two ways")
        if not self.expression and not (self.filter and self.match):
            raise ValueError("write an expression, or filter and match")
        return self

    def plain(self, name: str) -> dict[str, Any]:
        """As it is stored."""
        return {"name": name, **self.model_dump(mode="json", exclude_none=True)}


class StatementIn(StatementBody):
    """A statement to register."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "bulk", "expression": EXAMPLE, "returns": ["local", "value"]}]
        },
    )
    name: Name


class StatementOut(BaseModel):
    """A statement that is registered; `fixed` ones are those of the configuration."""

    name: str
    expression: str | None = None
    filter: str | None = None
    match: str | None = None
    anchor: int | str | None = None
    axis: str | None = None
    namespaces: dict[str, str] | None = None
    returns: list[str] | None = None
    created: float | None = None
    updated: float | None = None
    fixed: bool = False


class StatementList(BaseModel):
    """A page of statements; `next` is the name to go on after, if there are more."""

    statements: list[StatementOut]
    count: int
    next: str | None = None


class Redundant(BaseModel):
    """A statement that is not needed: equal, redundant or unsatisfiable, and because of which."""

    name: str
    statement: str
    reason: str
    by: str | None = None
    why: str


class RedundantList(BaseModel):
    """The redundant ones of the statements that were looked at, the first ones by name."""

    looked_at: int
    redundant: list[Redundant]


class Crossing(BaseModel):
    """Where a statement goes from the message into the corpus."""

    anchor: str
    step: int
    axis: str
    match: str
    selects: bool


class StatementRecord(BaseModel):
    """A statement taken apart; warnings are what the index cannot answer."""

    name: str
    statement: str
    filter: str
    crossings: list[Crossing]
    returns: list[str]
    warnings: list[str] = []


class Refused(BaseModel):
    """A statement that was refused, and why."""

    name: str
    problem: dict[str, Any]


class BulkAnswer(BaseModel):
    """How many were registered, and what was refused.

    Where more than a thousand were refused, `refused` has the first and `refused_count` is all.
    """

    registered: int
    refused: list[Refused]
    refused_count: int | None = None


class MatchOut(BaseModel):
    """A match: the nodes of the message, and the local node if the statement selects one.

    `time` is when the message was taken in, or when its broker got it.
    """

    model_config = ConfigDict(extra="allow")
    id: str
    tenant: str
    message: str
    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    statement: str
    nodes: list[dict[str, Any]] | None = None
    local: dict[str, Any] | None = None
    position: int | None = None


class Matched(BaseModel):
    """What was found for one message; `rejected` is why it could not be matched.

    `undecided` are statements of which nothing is known: the tenant's statements used up what they
    may cost on one message. In a batch alone; to one message that is the answer 422.
    """

    message: str
    matches: list[MatchOut]
    errors: list[str]
    unmatched: int
    duplicate: bool
    undecided: list[str] | None = None
    rejected: str | None = None


class MatchedBatch(BaseModel):
    """What was found for messages, in their order; the log was at `position` then."""

    messages: list[Matched]
    position: int


class Receipt(BaseModel):
    """Messages that were taken; `answer` is what was found, once they are `done`."""

    receipt: str
    state: Literal["waiting", "done"]
    messages: int
    taken: float | None = None
    answer: MatchedBatch | None = None


class Matches(BaseModel):
    """Hits of the log behind a position; go on after `position`."""

    matches: list[MatchOut]
    position: int
    first: int
    last: int


class Letter(BaseModel):
    """A message that could not be matched."""

    position: int
    id: str
    reason: str
    source: str
    at: float
    body: str


class DeadLetters(BaseModel):
    """Messages that could not be matched."""

    letters: list[Letter]


class TryIn(Model):
    """A statement and a message to try it on."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "statement": {"expression": "//order/book[quantity > 5]"},
                    "message": "<order><book><quantity>7</quantity></book></order>",
                }
            ]
        },
    )
    statement: StatementBody
    message: Annotated[str, Field(min_length=1, max_length=1 << 20)]


class TryOut(BaseModel):
    """What a statement finds in a message, and why."""

    statement: StatementRecord
    matches: list[dict[str, Any]]
    errors: list[str]
    undecided: bool
    unmatched: int
    seconds: dict[str, float]
    explanation: dict[str, Any]


class StatementStats(BaseModel):
    """What a statement has found since the start."""

    name: str
    matches: int
    costs: dict[str, Any] = {}


class Stats(BaseModel):
    """How the service does: rates and latencies of the last minute, totals since the start."""

    tenant: str
    uptime: float
    rates: dict[str, float]
    latency: dict[str, dict[str, float]]
    totals: dict[str, int]
    statements: list[StatementStats]
    engine: dict[str, Any]
    log: dict[str, int]
    streams: dict[str, int]
    webhooks: dict[str, Any] = {}


class Health(BaseModel):
    """Whether the service lives, or is ready."""

    status: Literal["ok", "starting", "stopping", "degraded", "stuck", "checking", "damaged"]
    workers: int | None = None
    generation: int | None = None
    trouble: list[str] = []
    sinks: dict[str, float] | None = None
    """Those that have taken nothing for too long, with the seconds."""


class ProblemBody(BaseModel):
    """What is wrong: a code for programs, what and where for people."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    code: str
    detail: str
    where: str | None = None
    hint: str | None = None
    request: str | None = None
