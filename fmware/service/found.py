"""What a worker found in a batch of messages, and how it is written down.

A hit is encoded once, natively (see `_columns`): as the line of JSON that the log, sinks and HTTP
answers hold. The hits of a message become three columns of bytes: ids, names and lines, see `hits`.
They go to the engine in one frame, behind numbers that say how long each of them is (see `wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fmware.matching.results import TRUNCATED
from fmware.matching.to_json import Encoder
from fmware.service._columns import HitWriter
from fmware.service.envelope import ALL, Outcome
from fmware.service.hits import END, SEPARATOR, Hits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fmware.matching.results import Results
    from fmware.service._columns import Writing
    from fmware.service.envelope import Envelope

__all__ = ["BLAMED", "DAMAGED", "Found", "Notes", "Told", "Trouble", "deferred_of", "outcomes_of"]

HITS: Final = 100_000
"""Matches of one message that are written down."""
DAMAGED: Final = "damaged"
"""The key of an answer that says why there is none: the index is damaged."""
BLAMED: Final = "blamed"
"""Beside it: whether its messages may be the reason after all."""
NUMBERS: Final = 4
"""That are said of each message."""


class Trouble(NamedTuple):
    """What is wrong with a message, as `Outcome` has it, and its place."""

    place: int
    errors: list[str]
    poison: str | None
    fault: bool
    undecided: list[str]


Told = tuple[str, str, str, bytes]
"""A message: its tenant, its id, its time and its bytes."""


@dataclass(slots=True)
class Found:
    """What was found in a batch.

    - `sizes`: of each message four numbers: the bytes of its ids, of the names of statements and of
      its lines, and its anchors without a local node.
    - `text`: of each message these three columns.
    - `troubles`: of messages that have some, see `Trouble`.
    - `seconds`: those of the batch, by stage.
    - `deferred`: places of messages that have no answer yet, because they cost too much for the
      worker that was asked.
    - `costs`: seconds of processor time, by tenant.
    """

    sizes: list[int] = field(default_factory=list)
    text: bytes = b""
    troubles: list[Trouble] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    deferred: list[int] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Iterable[Found]) -> Found:
        """Several batches as one."""
        whole = cls()
        for part in parts:
            first = len(whole)
            whole.sizes += part.sizes
            whole.text += part.text
            whole.troubles += [each._replace(place=first + each.place) for each in part.troubles]
            whole.deferred += [first + place for place in part.deferred]
            for sums, more in ((whole.seconds, part.seconds), (whole.costs, part.costs)):
                for key, seconds in more.items():
                    sums[key] = sums.get(key, 0.0) + seconds
        return whole

    def __len__(self) -> int:
        return len(self.sizes) // NUMBERS

    def add(self, ids: int = 0, names: int = 0, lines: int = 0, unmatched: int = 0) -> None:
        """The next message: the bytes of its columns."""
        self.sizes += (ids, names, lines, unmatched)

    def trouble(
        self,
        errors: list[str],
        poison: str | None = None,
        *,
        fault: bool = False,
        undecided: Sequence[str] = (),
    ) -> None:
        """What is wrong with the message that was added last."""
        self.troubles.append(Trouble(len(self) - 1, errors, poison, fault, [*undecided]))

    def put(self, parts: Sequence[Found], unmatched: int) -> None:
        """The next message: its hits are those of several, each of one message."""
        columns: list[list[bytes]] = [[], [], []]
        for part in parts:
            at = 0
            for column, size in zip(columns, part.sizes[:3], strict=True):
                if size:
                    column.append(part.text[at : at + size])
                at += size
        ids, names, lines = map(END.join, columns)
        self.add(len(ids), len(names), len(lines), unmatched)
        self.text += ids + names + lines

    def numbers(self) -> list[Any]:
        """All but the columns."""
        return [self.sizes, self.troubles, self.seconds, self.deferred, self.costs]


def outcomes_of(
    envelopes: Sequence[Envelope], numbers: list[Any], text: bytes | memoryview
) -> tuple[list[Outcome], dict[str, float]]:
    """What a worker says of some envelopes, from the two parts of a `Found`, and the seconds by
    stage; a `ValueError` or `TypeError` if it is nonsense.

    What it says of messages that are deferred is nothing (see `deferred_of`).
    """
    sizes, troubles, seconds, *_ = numbers
    if len(sizes) != NUMBERS * len(envelopes) or min(sizes, default=0) < 0:
        raise ValueError("not four numbers for each message")
    found: list[Outcome] = []
    at = 0
    each = iter(sizes)
    for envelope, ids, names, lines, unmatched in zip(
        envelopes, each, each, each, each, strict=True
    ):
        outcome = Outcome(envelope.id)
        outcome.unmatched = unmatched
        if ids:
            begin, end = at + ids, at + ids + names + lines
            columns = bytes(text[at:begin]), bytes(text[begin:end])
            hits = Hits(envelope.id, envelope.time, *columns, names)
            hits.check()
            outcome.hits = hits
            at = end
        found.append(outcome)
    if at != len(text):
        raise ValueError("more or less text than was said")
    for place, errors, poison, fault, undecided in troubles:
        outcome = found[place]
        outcome.errors, outcome.poison, outcome.fault = errors, poison, bool(fault)
        outcome.undecided = undecided
    return found, seconds


def deferred_of(numbers: list[Any], count: int) -> frozenset[int]:
    """The places, of `count` messages, of those that are deferred; a `ValueError` if there are
    none such."""
    places = frozenset(numbers[3])
    if not places <= {*range(count)}:
        raise ValueError("no such message was asked for")
    return places


class Notes:
    """Writes down what was found in a batch, message by message."""

    def __init__(self, results: Results, writings: dict[str, Writing]) -> None:
        self._results = results
        self._writer = HitWriter(Encoder(results), writings, HITS)

    def write(self, place: int, message: Told, found: Found) -> list[str]:
        """Add the hits of a message for its tenant; what is wrong if some are left out."""
        tenant, name, time, _ = message
        results, writer = self._results, self._writer
        batch, local = results.found, results.local
        writer.begin(place, tenant, name, time, results.limits.bytes)
        begin, end = batch.span(place, 0)
        if begin < end:
            plans = results.registry.plans(batch.ids[begin:end].tolist())
            writer.add(plans, [()] * len(plans))
        begin, end = batch.span(place, 1)
        if begin < end:
            told = batch.told[begin:end].tolist()
            rows = [tuple(batch.rows[at : at + width].tolist()) for _, at, width in told]
            writer.add(results.registry.plans([number for number, _, _ in told]), rows)
        span = local.span(place)
        if span:
            local_plans = [local.plan_of(at) for at in span]
            tuples = [local.rows_of(at, batch.rows) for at in span]
            writer.add(local_plans, tuples, local, span.start)
        found.add(*writer.end(), self._unmatched(place, tenant))
        return self._left_out()

    def _unmatched(self, place: int, tenant: str) -> int:
        """Anchors of a tenant without a local node; of all tenants, those of each together."""
        troubles = self._results.troubles
        if place not in troubles.unmatched:
            return 0
        if tenant != ALL:
            return troubles.unmatched_by.get((place, tenant), 0)
        return sum(count for (at, _), count in troubles.unmatched_by.items() if at == place)

    def _left_out(self) -> list[str]:
        writer = self._writer
        wrong = [f"statement {each.partition(SEPARATOR)[2]}: {TRUNCATED}" for each in writer.cut]
        if writer.full:
            wrong.append(f"more than {HITS:,} matches: the rest is left out")
        return wrong

    def text(self) -> bytes:
        """The columns of all messages."""
        return self._writer.text()
