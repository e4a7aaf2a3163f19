"""What goes through the service: messages in, hits and dead letters out.

A hit's id says which match it is, not when it was found: the message, the statement, the rows of
the message's nodes and the AD start of the local node, which never changes. The same message gives
the same ids on every delivery, from every worker, before and after a crash, and whatever generation
of the index is at work; so whoever takes hits can drop what was there before by id alone.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALL", "DEFAULT", "DeadLetter", "Envelope", "Hit", "Outcome", "hit_id"]

DEFAULT: Final = "default"
"""The tenant of whoever names none."""
ALL: Final = "*"
"""As the tenant of a message: for the statements of every tenant."""
LONGEST: Final = 200
"""Characters of a hit's id; brokers have no room for more than 255 bytes."""

_SAFE: Final = "/@[]()<>='*,|$"
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way.

    `id` is given by the sender (a header, the broker's id) or made; together with the tenant it is
    what repeats are known by. A message is shown to the statements of its tenant; with `ALL` as
    its tenant, to all.
    """

    id: str
    body: bytes
    tenant: str = DEFAULT
    source: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """One match, as it goes out; `match` is as `fmware match` writes it: nodes, local."""

    id: str
    message: str
    tenant: str
    statement: str
    match: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The hit as one flat object: id, tenant, message, statement, and what the match has."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "message": self.message,
            "statement": self.statement,
            **self.match,
        }

    def line(self) -> bytes:
        """The same as JSON, on one line, without its end."""
        return _ENCODE(self.to_json()).encode(errors="backslashreplace")

    @classmethod
    def of_json(cls, about: dict[str, Any]) -> Hit:
        """The hit that `to_json` told of."""
        known = {key: about[key] for key in ("id", "message", "tenant", "statement")}
        return cls(**known, match={key: about[key] for key in about if key not in known})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker says of one envelope.

    - `errors`: statements that failed; the message itself was fine.
    - `poison`: why the message cannot be matched, ever; it belongs to the dead letters.
    - `unmatched`: anchors without a local node; `seconds`: those of its batch, by stage.
    - `duplicate`: its id was seen before, within the window, and its hits were handed over then.
    """

    envelope_id: str
    hits: list[Hit] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    poison: str | None = None
    unmatched: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be matched: its bytes as they came, and why."""

    id: str
    body: bytes
    reason: str
    tenant: str = DEFAULT
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """The letter as plain values; bytes that are not UTF-8 are in `base64`, not in `body`."""
        about = asdict(self)
        try:
            about["body"] = self.body.decode()
        except UnicodeDecodeError:
            del about["body"]
            about["base64"] = b64encode(self.body).decode()
        return about

    def line(self) -> bytes:
        """The same as JSON, on one line, without its end."""
        return _ENCODE(self.to_json()).encode(errors="backslashreplace")


def hit_id(
    tenant: str, message: str, statement: str, nodes: Sequence[int] = (), start: int | None = None
) -> str:
    """The id of a match: `message:statement:nodes@start`, with another tenant than the default in
    front. Colons within a part are escaped, so that ids are equal only if all parts are.
    """
    where = ".".join(map(str, nodes)) + ("" if start is None else f"@{start}")
    parts = (
        [message, statement, where] if tenant == DEFAULT else [tenant, message, statement, where]
    )
    name = ":".join(quote(part, safe=_SAFE) for part in parts)
    return name if len(name) <= LONGEST else blake2b(name.encode(), digest_size=24).hexdigest()
