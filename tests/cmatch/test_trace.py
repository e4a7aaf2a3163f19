"""The trace tells a join in the words of the paper."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from fmware.cmatch import CMatch, Rent
from fmware.cmatch.trace import Kind, Step, tell
from tests.cmatch.oracle import TAGS, batches, counted

if TYPE_CHECKING:
    from tests.cmatch.oracle import World


def traced(world: World, budget: int, partition: int, vector: int) -> tuple[list[Step], int]:
    steps: list[Step] = []
    inputs = world.inputs(TAGS[0], "path", [*enumerate(world.known[TAGS[0]])])
    with CMatch(
        world.index,
        TAGS[0],
        "descendant",
        "path",
        budget=budget,
        partition=partition,
        vector=vector,
        few=-1,
        trace=steps,
    ) as operator:
        answers = [operator.feed(batch) for batch in batches(inputs, 5)]
        answers += [operator.drain(), operator.feed(inputs)]
        return steps, counted(*answers).total()


def test_every_step_is_told(world: World) -> None:
    seen = set()
    for budget, partition in ((0, 2), (250, 2), (700, 3), (2000, 2), (1 << 20, 64)):
        for vector in (1, 3, 1000):
            steps, pairs = traced(world, budget, partition, vector)
            kinds = [step.kind for step in steps]
            assert kinds.count(Kind.PAIR) == pairs
            assert kinds.count(Kind.LAST) == kinds.count(Kind.LEFT_DROPPED)
            assert kinds.count(Kind.LAST) == kinds.count(Kind.NEW_LABEL)
            told = [*tell(steps)]
            assert len(told) == len(steps)
            assert all(told)
            seen |= set(kinds)
    assert seen == set(Kind) - {Kind.DEFERRED}


def test_labels_are_asked_for_first_unless_they_have_many_candidates(world: World) -> None:
    steps: list[Step] = []
    inputs = world.inputs(TAGS[0], "path", [*enumerate(world.known[TAGS[0]])])
    with CMatch(world.index, TAGS[0], "descendant", "path", trace=steps) as operator:
        pairs = len(operator.feed(inputs))
    kinds = [step.kind for step in steps]
    assert kinds.count(Kind.PAIR) == pairs > 0
    assert kinds.count(Kind.LAST) == kinds.count(Kind.ORDERED) > 0
    assert Kind.LEFT_DROPPED not in kinds
    assert all(step.side for step in steps if step.kind is Kind.INSERTED)
    asked = max(at for at, kind in enumerate(kinds) if kind is Kind.NEW_LABEL)
    assert asked < kinds.index(Kind.INSERTED) < kinds.index(Kind.QUERY_MEMORY)


def test_what_is_rented_is_told(world: World) -> None:
    steps: list[Step] = []
    inputs = world.inputs(TAGS[0], "path", [*enumerate(world.known[TAGS[0]])])
    rent = Rent(10_000, 0)
    with CMatch(world.index, TAGS[0], "descendant", "path", trace=steps, rent=rent) as operator:
        operator.feed(inputs)
    assert "rented: ADMatch takes the first 10000 inputs of it" in "".join(tell(steps))


def test_it_reads_like_the_paper(world: World) -> None:
    steps, _ = traced(world, 700, 2, 1)
    told = "\n".join(tell(steps))
    for words in (
        "a label that was not seen before; the index is asked for it",
        "Case 1: the partition is full; it is pushed to disk along with",
        "Case 2:",
        "the fullest of the least recently used is the victim",
        "the bitmap says so:",
        "queries the candidates in memory",
        "complete: the left side is dropped",
        "put into AD order",
    ):
        assert words in told


def test_an_example_is_shown() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fmware.cmatch"], capture_output=True, text=True, check=True
    )
    assert not ran.stderr
    pairs = [line.split(": ")[1] for line in ran.stdout.splitlines() if "pair " in line]
    assert pairs == 2 * ["(7, 1)", "(7, 3)", "(8, 34)"]
    assert "Case 1" in ran.stdout
    assert "Case 2" in ran.stdout


def test_time_stamps_grow(world: World) -> None:
    steps, _ = traced(world, 0, 2, 2)
    stamps = [step.stamp for step in steps if step.kind is Kind.INSERTED]
    assert stamps == sorted(stamps)
