"""What requests and answers about webhooks hold, for validation and for the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fmware.service.models import Model

__all__ = [
    "HOOK",
    "Delivery",
    "WebhookBody",
    "WebhookDead",
    "WebhookIn",
    "WebhookList",
    "WebhookMade",
    "WebhookOut",
    "WebhookRotation",
    "WebhookState",
    "WebhookTested",
]

HOOK = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
SecretText = Annotated[
    str,
    Field(
        pattern=r"^[!-~]{16,256}$",
        description="16 to 256 printable ASCII characters without blanks.",
        examples=["a-long-random-secret-of-your-own"],
    ),
]
Statement = Annotated[str, Field(min_length=1, max_length=200)]
HOOK_URL = "https://crm.example.com/fmware"


class WebhookBody(Model):
    """A webhook without its name; of all the tenant's statements unless some are named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"url": HOOK_URL, "statements": ["bulk"]}]},
    )
    url: Annotated[str, Field(min_length=1, max_length=2000)]
    statements: Annotated[tuple[Statement, ...], Field(max_length=100)] = ()
    secret: SecretText | None = None
    paused: bool = False


class WebhookIn(WebhookBody):
    """A webhook to make; a secret is made up unless one is given."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "crm", "url": HOOK_URL, "statements": ["bulk"]}]},
    )
    name: Annotated[str, Field(pattern=HOOK, max_length=64)]


class WebhookState(BaseModel):
    """How a webhook does: `behind` are positions of the log, `trouble` is why it fails now.

    `dead` are matches that were given up, `dropped` deliveries of such that are kept no more.
    """

    status: Literal["ok", "failing", "paused"]
    position: int
    behind: int
    delivered: int
    requests: int
    failures: int
    tries: int
    dead: int
    dropped: int
    lost: int
    trouble: str
    retry_at: float | None = None


class WebhookOut(BaseModel):
    """A webhook; `fixed` ones are those of the configuration, whose URL is the operator's.

    `old_secret_until` is when the secret before the last one stops signing.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "crm",
                    "url": HOOK_URL,
                    "statements": ["bulk"],
                    "paused": False,
                    "fixed": False,
                    "created": 1794830400.0,
                    "updated": 1794830400.0,
                    "state": {
                        "status": "failing",
                        "position": 4710,
                        "behind": 12,
                        "delivered": 310,
                        "requests": 33,
                        "failures": 2,
                        "tries": 2,
                        "dead": 0,
                        "dropped": 0,
                        "lost": 0,
                        "trouble": "answered 503",
                        "retry_at": 1794830417.4,
                    },
                }
            ]
        }
    )
    name: str
    url: str | None = None
    statements: list[str]
    paused: bool
    fixed: bool
    created: float | None = None
    updated: float | None = None
    old_secret_until: float | None = None
    state: WebhookState


class WebhookMade(WebhookOut):
    """The same with the secret that was made up for it: it is not shown again."""

    secret: str | None = None


class WebhookList(BaseModel):
    """The tenant's webhooks, by name, and how many it may make."""

    webhooks: list[WebhookOut]
    limit: int


class WebhookRotation(Model):
    """A new secret, made up unless given; the old one signs, too, for `overlap_seconds`."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"overlap_seconds": 3600}]}
    )
    secret: SecretText | None = None
    overlap_seconds: Annotated[float, Field(ge=0, le=30 * 86_400)] | None = None


class Delivery(BaseModel):
    """A request that was given up, with the body that nobody took."""

    number: int
    delivery: str
    at: float
    tries: int
    reason: str
    body: str


class WebhookDead(BaseModel):
    """Requests that were given up, the oldest first; go on after the last `number`."""

    deliveries: list[Delivery]


class WebhookTested(BaseModel):
    """What came of a signed request without matches: the status, if there was an answer."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"taken": True, "status": 204},
                {"taken": False, "status": 401, "reason": "answered 401"},
                {"taken": False, "reason": "cannot connect"},
            ]
        }
    )
    taken: bool
    status: int | None = None
    reason: str | None = None
