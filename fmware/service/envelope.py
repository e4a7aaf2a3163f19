"""What goes through the service: messages in, hits and dead letters out.

A hit's id says which match it is, not when it was found: the message, the statement, the rows of
the message's nodes and the AD start of the local node, which never changes. The same message gives
the same ids on every delivery, from every worker, before and after a crash, and with any generation
of the index; so a reader of hits can drop repeats by id alone. The time of a hit is that of its
message, and no part of its id.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmware.service.hits import Hits

__all__ = [
    "ALL",
    "DEFAULT",
    "UNSAFE",
    "DeadLetter",
    "Envelope",
    "Hit",
    "Outcome",
    "bounded",
    "escaped",
    "hit_id",
    "now",
    "rfc3339",
]

DEFAULT: Final = "default"
"""The tenant of whoever names none."""
ALL: Final = "*"
"""As the tenant of a message: for the statements of every tenant."""
LONGEST: Final = 200
"""Characters of a hit's id; brokers have no room for more than 255 bytes."""

_KNOWN: Final = frozenset({"id", "tenant", "message", "time", "statement"})
_SAFE: Final = "/@[]()<>='*,|$"
UNSAFE: Final = re.compile((r"[^A-Za-z0-9_.\-~" + re.escape(_SAFE) + "]").encode())
"""Bytes that are escaped, as in the path of a URL."""
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def rfc3339(moment: datetime) -> str:
    """A moment in UTC, with milliseconds, as `2026-11-17T16:08:13.250Z`."""
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"


def now() -> str:
    """The time, as messages and hits have it."""
    return rfc3339(datetime.now(UTC))


@dataclass(slots=True)
class Envelope:
    """A message on its way.

    `id` is given by the sender (a header, the broker's id) or made; together with the tenant it is
    what repeats are known by. A message is shown to the statements of its tenant; with `ALL` as
    its tenant, to all. `time` is when the service took it in, or when its broker did, or when its
    file was written.
    """

    id: str
    body: bytes
    tenant: str = DEFAULT
    source: str = ""
    time: str = field(default_factory=now)


class Hit:
    """One match, as it goes out; `match` is as `fmware match` writes it: nodes, local.

    Workers write it down once, as a line, and that goes to all sinks as it is: `match` is read from
    it only on demand.
    """

    __slots__ = ("_line", "_match", "id", "message", "statement", "tenant", "time")

    def __init__(
        self,
        id: str,  # noqa: A002
        message: str,
        tenant: str,
        statement: str,
        match: dict[str, Any] | None = None,
        time: str = "",
        line: bytes | None = None,
    ) -> None:
        self.id = id
        self.message = message
        self.tenant = tenant
        self.statement = statement
        self.time = time
        self._match = match
        self._line = line

    @property
    def match(self) -> dict[str, Any]:
        """The nodes of the message and the local node, where there."""
        if self._match is None:
            about = {} if self._line is None else json.loads(self._line)
            self._match = {key: about[key] for key in about if key not in _KNOWN}
        return self._match

    def to_json(self) -> dict[str, Any]:
        """The hit as one flat object: id, tenant, message, time, statement, and the match."""
        about = {"id": self.id, "tenant": self.tenant, "message": self.message}
        if self.time:
            about["time"] = self.time
        return about | {"statement": self.statement} | self.match

    def line(self) -> bytes:
        """The same as JSON, on one line, without its end."""
        if self._line is None:
            self._line = _ENCODE(self.to_json()).encode(errors="backslashreplace")
        return self._line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hit) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Hit({self.to_json()})"


@dataclass(slots=True)
class Outcome:
    """What a worker says of one envelope.

    - `hits`: what was found; none, or the columns of a worker.
    - `errors`: statements that failed; the message itself was fine. `undecided`: those of them of
      which nothing is known, because the tenant's statements used up its budget for the message.
    - `poison`: why the message cannot be matched, ever; it belongs to the dead letters. With
      `fault` that is not because of what it says: matching it failed unexpectedly.
    - `failed`: it has no answer, `errors` say why, and that is not because of what it says: it is
      to come again.
    - `unmatched`: anchors without a local node.
    - `duplicate`: its id was seen before, within the window, and its hits were handed over then.
    """

    envelope_id: str
    hits: Hits | tuple[()] = ()
    errors: Sequence[str] = ()
    poison: str | None = None
    unmatched: int = 0
    duplicate: bool = False
    fault: bool = False
    undecided: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        return self.fault and self.poison is None


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
    parts = [escaped(message), escaped(statement), where]
    return bounded(":".join(parts if tenant == DEFAULT else [escaped(tenant), *parts]))


def escaped(part: str) -> str:
    """A part of an id, without colons, quotes, or anything that JSON would escape."""
    return UNSAFE.sub(_percent, part.encode()).decode()


def _percent(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(found[0])


def bounded(name: str) -> str:
    """An id that brokers have room for."""
    return name if len(name) <= LONGEST else blake2b(name.encode(), digest_size=24).hexdigest()
