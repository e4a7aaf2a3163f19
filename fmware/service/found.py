"""What a worker found in a batch of messages, as columns, and how it is written down.

A hit is encoded here, once: as the line of JSON that the log, sinks and HTTP answers hold. For a
message, a statement and a local node, their parts of lines and ids are made once and put together
for each hit. Columns go to the engine in one frame: the lines as bytes, joined by line ends, all
else as JSON (see `wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

from fmware.matching import to_json
from fmware.service.envelope import ALL, DEFAULT, LONGEST, bounded, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fmware.matching.results import LocalNode, Results

__all__ = ["SEPARATOR", "Encoder", "Found", "Told", "Writing"]

SEPARATOR: Final = "\x1f"
"""Between a tenant and the name of a statement."""
HITS: Final = 100_000
"""Matches of one message that are written down."""
ROOM: Final = 8 << 20
"""Bytes of local nodes that are kept as JSON, about."""
EACH: Final = 500
"""Bytes of one of them beside its text."""

Told = tuple[str, str, bytes, str]
"""A message: its tenant, its id, its bytes and its time."""


@dataclass(slots=True)
class Found:
    """What was found in a batch.

    - `said`: of each message the number of its hits, errors, poison, unmatched, and whether it is
      a fault: poison because matching it failed unexpectedly.
    - `ids`, `which`, `lines`: of each hit, in the order of messages, its id, its statement as a
      place in `names`, and its JSON. `names` are pairs of a tenant and a statement.
    """

    said: list[list[Any]] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)
    which: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Iterable[Found]) -> Found:
        """Several batches as one."""
        whole = cls()
        for part in parts:
            first = len(whole.names)
            whole.names += part.names
            whole.which += [first + place for place in part.which]
            whole.said += part.said
            whole.ids += part.ids
            whole.lines += part.lines
        return whole

    def columns(self) -> list[Any]:
        """All but the lines."""
        return [self.said, self.names, self.which, self.ids, self.seconds]

    def text(self) -> bytes:
        """The lines, one below the other."""
        return "\n".join(self.lines).encode(errors="backslashreplace")


class Writing:
    """A statement as it is written into hits: parts of ids and of lines that are always the same.

    `number` is its place in the `names` of the batch with the number `batch`.
    """

    __slots__ = (
        "after",
        "batch",
        "before",
        "head",
        "number",
        "owner",
        "statement",
        "tail",
    )

    def __init__(self, name: str) -> None:
        self.owner, _, self.statement = name.partition(SEPARATOR)
        self.before = "" if self.owner == DEFAULT else f"{escaped(self.owner)}:"
        self.after = f":{escaped(self.statement)}:"
        self.head = f'","tenant":{quoted(self.owner)},"message":'
        self.tail = f',"statement":{quoted(self.statement)}'
        self.batch = -1
        self.number = 0


class Encoder:
    """Writes down the results of batches, one after the other."""

    def __init__(self) -> None:
        self._batch = 0
        # By identity: a node that is kept here cannot give its place to another.
        self._locals: dict[int, tuple[LocalNode, str]] = {}
        self._size = 0

    def begin(self) -> Found:
        """A new batch."""
        self._batch += 1
        return Found()

    def add(
        self,
        found: Found,
        message: Told,
        matches: to_json.Encoder,
        place: int,
        writings: Mapping[str, Writing],
    ) -> str | None:
        """Write down the hits of a message for its tenant; what is wrong if some are left out."""
        tenant, name, _, time = message
        ids, which, lines = found.ids, found.which, found.lines
        called, about = escaped(name), f'{quoted(name)},"time":{quoted(time)}'
        most = len(ids) + HITS
        for plan, rows, local, more in matches.matches(place):
            writing = writings[plan.name]
            if tenant != writing.owner and tenant != ALL:
                continue
            if len(ids) == most:
                return f"more than {HITS:,} matches: the rest is left out"
            if writing.batch != self._batch:
                writing.batch, writing.number = self._batch, len(found.names)
                found.names.append([writing.owner, writing.statement])
            where = ".".join(map(str, rows)) if rows else ""
            if local is not None:
                where = f"{where}@{local.start}"
            hit = f"{writing.before}{called}{writing.after}{where}"
            if len(hit) > LONGEST:
                hit = bounded(hit)
            ids.append(hit)
            which.append(writing.number)
            lines.append(f'{{"id":"{hit}{writing.head}{about}{writing.tail}{more}}}')
        return None

    def matches(self, results: Results) -> to_json.Encoder:
        """The matches of a batch, as JSON; nodes of the corpus are kept from batch to batch."""
        return to_json.Encoder(results, self._local)

    def _local(self, node: LocalNode) -> str:
        return (self._locals.get(id(node)) or self._keep(node))[1]

    def _keep(self, node: LocalNode) -> tuple[LocalNode, str]:
        """A local node as JSON; those of favourites are used again and again."""
        text = to_json.encode(to_json.local_record(node))
        size = EACH + 2 * len(text)
        if self._size + size > ROOM:
            self._locals.clear()
            self._size = 0
        self._size += size
        self._locals[id(node)] = kept = (node, text)
        return kept
