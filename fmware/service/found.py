"""What a worker found in a batch of messages, and how it is written down.

A hit is encoded here, once: as the line of JSON that the log, sinks and HTTP answers hold. For a
message, a statement and a local node, their parts of lines and ids are made once and put together
for each hit. The hits of a message become three columns of bytes: ids, names and lines, see `hits`.
They go to the engine in one frame, behind numbers that say how long each of them is (see `wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

from fmware.service.envelope import ALL, DEFAULT, LONGEST, Outcome, bounded, escaped
from fmware.service.hits import Hits, label_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fmware.matching.plan import Plan
    from fmware.matching.results import LocalNode
    from fmware.service.envelope import Envelope

    Matches = Iterable[tuple[Plan, tuple[int, ...], LocalNode | None, str]]

__all__ = ["SEPARATOR", "Found", "Told", "Writing", "outcomes_of", "write_hits"]

SEPARATOR: Final = "\x1f"
"""Between a tenant and the name of a statement."""
HITS: Final = 100_000
"""Matches of one message that are written down."""
NUMBERS: Final = 4
"""That are said of each message."""

Told = tuple[str, str, str, bytes]
"""A message: its tenant, its id, its time and its bytes."""


@dataclass(slots=True)
class Found:
    """What was found in a batch.

    - `sizes`: of each message four numbers: the bytes of its ids, of the names of statements and of
      its lines, and its anchors without a local node.
    - `pieces`: of each message that has hits these three columns.
    - `troubles`: of messages that have some, their place, errors, poison, and whether that is a
      fault: poison because matching it failed unexpectedly.
    - `seconds`: those of the batch, by stage.
    """

    sizes: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    troubles: list[tuple[int, list[str], str | None, bool]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Iterable[Found]) -> Found:
        """Several batches as one."""
        whole = cls()
        for part in parts:
            first = len(whole)
            whole.sizes += part.sizes
            whole.pieces += part.pieces
            for place, errors, poison, fault in part.troubles:
                whole.troubles.append((first + place, errors, poison, fault))
        return whole

    def __len__(self) -> int:
        return len(self.sizes) // NUMBERS

    def add(self, ids: list[str], names: list[str], lines: list[str], unmatched: int) -> None:
        """The next message, with the columns of its hits."""
        if not ids:
            self.sizes += (0, 0, 0, unmatched)
            return
        each = [_column(ids), _column(names), _column(lines)]
        self.sizes += (*map(len, each), unmatched)
        self.pieces += each

    def trouble(self, errors: list[str], poison: str | None = None, *, fault: bool = False) -> None:
        """What is wrong with the message that was added last."""
        self.troubles.append((len(self) - 1, errors, poison, fault))

    def numbers(self) -> list[Any]:
        """All but the columns."""
        return [self.sizes, self.troubles, self.seconds]

    def text(self) -> bytes:
        """The columns, one behind the other."""
        return b"".join(self.pieces)


def _column(texts: list[str]) -> bytes:
    return "\n".join(texts).encode(errors="backslashreplace")


def outcomes_of(
    envelopes: Sequence[Envelope], numbers: list[Any], text: bytes
) -> tuple[list[Outcome], dict[str, float]]:
    """What a worker says of some envelopes, from the two parts of a `Found`, and the seconds by
    stage; a `ValueError` or `TypeError` if it is nonsense.
    """
    sizes, troubles, seconds = numbers
    if len(sizes) != NUMBERS * len(envelopes) or min(sizes, default=0) < 0:
        raise ValueError("not four numbers for each message")
    found: list[Outcome] = []
    at = 0
    each = iter(sizes)
    for envelope, ids, names, lines, unmatched in zip(
        envelopes, each, each, each, each, strict=True
    ):
        outcome = Outcome(envelope.id, unmatched=unmatched)
        if ids:
            begin, end = at + ids, at + ids + names + lines
            hits = Hits(envelope.id, envelope.time, text[at:begin], text[begin:end], names)
            hits.check()
            outcome.hits = hits
            at = end
        found.append(outcome)
    if at != len(text):
        raise ValueError("more or less text than was said")
    for place, errors, poison, fault in troubles:
        outcome = found[place]
        outcome.errors, outcome.poison, outcome.fault = errors, poison, bool(fault)
    return found, seconds


class Writing:
    """A statement as it is written into hits: the parts of ids and lines that stay the same."""

    __slots__ = ("after", "before", "head", "label", "owner", "tail")

    def __init__(self, name: str) -> None:
        self.owner, _, statement = name.partition(SEPARATOR)
        self.label = label_of(self.owner, statement)
        self.before = "" if self.owner == DEFAULT else f"{escaped(self.owner)}:"
        self.after = f":{escaped(statement)}:"
        self.head = f'","tenant":{quoted(self.owner)},"message":'
        self.tail = f',"statement":{quoted(statement)}'


def write_hits(
    found: Found,
    message: Told,
    matches: Matches,
    writings: Mapping[str, Writing],
    unmatched: int = 0,
) -> str | None:
    """Write down the hits of a message for its tenant; what is wrong if some are left out."""
    tenant, name, time, _ = message
    ids: list[str] = []
    names: list[str] = []
    lines: list[str] = []
    wrong = None
    called, about = escaped(name), f'{quoted(name)},"time":{quoted(time)}'
    for plan, rows, local, more in matches:
        writing = writings[plan.name]
        if tenant != writing.owner and tenant != ALL:
            continue
        if len(ids) == HITS:
            wrong = f"more than {HITS:,} matches: the rest is left out"
            break
        hit = f"{writing.before}{called}{writing.after}"
        if rows:
            hit += ".".join(map(str, rows))
        if local is not None:
            hit = f"{hit}@{local.start}"
        if len(hit) > LONGEST:
            hit = bounded(hit)
        ids.append(hit)
        names.append(writing.label)
        lines.append(f'{{"id":"{hit}{writing.head}{about}{writing.tail}{more}}}')
    found.add(ids, names, lines, unmatched)
    return wrong
