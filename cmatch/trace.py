"""What CClean does, step by step, for those who want to follow a small join.

An operator that is made with `trace=[]` appends a `Step` to that list for everything it does.
`tell` makes sentences of them, in the words of the paper:

    steps: list[Step] = []
    with CMatch(index, "b", "child", "path", budget=250, partition=2, trace=steps) as operator:
        operator.feed(inputs)
        operator.drain()
    print(*tell(steps), sep="\\n")

            left   L0.0: a label that was not seen before; the index is asked for it
    ts 1    left   L0.0: input 7 at 0 is inserted
            left   L0.0: input 7 queries the candidates in memory
    ts 2    right  L0.0: candidate at 1 is inserted
            right  L0.0: Case 2: the candidate at 1 needs a partition, and none is free
            left   L0.0: the fullest of the least recently used is the victim: a partition of 1 row
            left   L0.0: 1 row pushed to disk, in AD order
            right  L0.0: what came at ts 2 queries the inputs in memory
            right  L0.0: the bitmap says so: what came at ts 2 queries the inputs on disk
            pair   L0.0: (7, 1)

`python -m fmware.cmatch` shows a whole one.

A label is written L<segment>.<rank>. Tracing costs time and memory with every step: it is for
debugging.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fmware.cmatch._kernel import Event

__all__ = ["Kind", "Step", "steps_of", "tell"]


class Kind(enum.IntEnum):
    """What a step was; the numbers are the kernel's."""

    NEW_LABEL = 0
    INSERTED = 1
    CASE_1 = 2
    CASE_2 = 3
    VICTIM = 4
    SPILLED = 5
    QUERY_MEMORY = 6
    QUERY_DISK = 7
    PAIR = 8
    LAST = 9
    LEFT_DROPPED = 10
    ORDERED = 11
    RELOADED = 12
    DEFERRED = 13


LEFT, RIGHT, LIST = range(3)


class Step(NamedTuple):
    """One step; -1 where something does not apply.

    `side` is 0 for inputs, 1 for candidates, 2 for the ordered candidates of a complete label.
    """

    kind: Kind
    side: int
    segment: int
    rank: int
    id: int
    start: int
    stamp: int
    rows: int


def steps_of(events: Iterable[Event]) -> Iterator[Step]:
    """The steps the kernel has recorded."""
    for kind, *rest in events:
        yield Step(Kind(kind), *rest)


def tell(steps: Iterable[Step]) -> Iterator[str]:
    """A sentence for each step."""
    for step in steps:
        stamp = f"ts {step.stamp:<4}" if step.kind is Kind.INSERTED else " " * 7
        side = "pair" if step.kind is Kind.PAIR else "right" if step.side else "left"
        yield f"{stamp} {side:<6} L{step.segment}.{step.rank}: {_words(step)}"


def _words(step: Step) -> str:
    who = f"input {step.id}" if step.side == LEFT else "candidate"
    match step.kind:
        case Kind.NEW_LABEL:
            return "a label that was not seen before; the index is asked for it"
        case Kind.INSERTED if step.start < 0:
            return f"a vector of {_many(step.rows, 'candidate')} is inserted"
        case Kind.INSERTED:
            return f"{who} at {step.start} is inserted"
        case Kind.CASE_1:
            return f"Case 1: the partition is full; it is pushed to disk along with {_new(step)}"
        case Kind.CASE_2:
            return f"Case 2: {_new(step)} needs a partition, and none is free"
        case Kind.VICTIM:
            return f"the fullest of the least recently used is the victim: {_what(step)}"
        case Kind.SPILLED:
            return f"{_many(step.rows, 'row')} pushed to disk, in AD order"
        case Kind.QUERY_MEMORY:
            return f"{_asker(step)} queries {_other(step)} in memory"
        case Kind.QUERY_DISK:
            return f"the bitmap says so: {_asker(step)} queries {_other(step)} on disk"
        case Kind.PAIR:
            return f"({step.id}, {step.start})"
        case Kind.LAST:
            return f"the last of {_many(step.rows, 'candidate')} has come"
        case Kind.LEFT_DROPPED:
            return "complete: the left side is dropped"
        case Kind.ORDERED:
            where = "in memory" if step.side == LIST else "on disk"
            return f"{_many(step.rows, 'candidate')} put into AD order, {where}"
        case Kind.RELOADED:
            return f"{_many(step.rows, 'candidate')} brought back into memory"
        case Kind.DEFERRED:
            return f"rented: ADMatch takes the first {_many(step.rows, 'input')} of it"


def _new(step: Step) -> str:
    return f"input {step.id}" if step.side == LEFT else f"the candidate at {step.start}"


def _asker(step: Step) -> str:
    return f"input {step.id}" if step.side == LEFT else f"what came at ts {step.stamp}"


def _other(step: Step) -> str:
    return "the candidates" if step.side == LEFT else "the inputs"


def _what(step: Step) -> str:
    kind = "a list" if step.side == LIST else "a partition"
    return f"{kind} of {_many(step.rows, 'row')}"


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
