"""Labels whose candidates are not in memory: threads fetch them, and answers stay the same."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.pages import Pages
from fmware.cmatch import Axis, CMatch, Inputs, ProbeFailed, Rent
from fmware.cmatch.rent import FETCH_ALL
from fmware.index import Index
from tests.cmatch import oracle
from tests.cmatch.oracle import AXES, SCHEMES, TAGS, Pairs, counted
from tests.index.oracle import build, corpora_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.index import Segment
    from fmware.labeling.runs import Tag
    from tests.cmatch.oracle import World
    from tests.index.oracle import Known

pytestmark = pytest.mark.usefixtures("nothing_left")

A, B = TAGS[:2]


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> World:
    """An index whose lists lie in pages of their own, which can be dropped."""
    path = tmp_path_factory.mktemp("cold") / "index"
    randomly = random.Random(5)
    records = [[_record(randomly) for _ in range(15)] for _ in range(2)]
    corpora = corpora_of(records)
    build(path, corpora)
    known: dict[Tag, list[Known]] = {}
    for corpus in corpora:
        for node in corpus.nodes:
            known.setdefault(node.tag, []).append(node)
    world = oracle.World(Index.open(path), known)
    world.index.close()
    pages = Pages(path)
    pages.drop()
    if pages.resident():
        pytest.skip("the system keeps pages of this file system in memory")
    return world


def _record(randomly: random.Random) -> str:
    """A record in which labels of the schemes differ, with many nodes below each."""
    inside = "".join(f"<b>{'<c/>' * randomly.randrange(60)}</b>" for _ in range(12))
    return f"<a>{'<d>' * (depth := randomly.randrange(5))}{inside}{'</d>' * depth}</a>"


@pytest.fixture
def world(cold: World) -> Iterator[oracle.World]:
    """The same, opened anew: nothing of it was touched, and no page is in memory."""
    with Index.open(cold.index.path) as index:
        Pages(index.path).drop()
        yield oracle.World(index, cold.known, cold.cached)


def pairs_of(world: World, tags: Sequence[Tag], axis: Axis, anchors: Any) -> Pairs:
    return sum((world.pairs(tag, axis, anchors) for tag in tags), Pairs())


def labelled(world: World, tag: Tag, scheme: str, anchors: Any) -> Inputs:
    """Inputs, with no page in memory that was read to make them."""
    inputs = world.inputs(tag, scheme, anchors)
    Pages(world.index.path).drop()
    return inputs


# --- the answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_the_same_whatever_is_in_memory(world: World, seed: int) -> None:
    randomly = random.Random(seed)
    axis, scheme = randomly.choice(AXES), randomly.choice(SCHEMES)
    tags = randomly.sample(TAGS, randomly.choice([1, 2, 4]))
    # Not all nodes: looking for their pairs one by one would take longer than all else.
    nodes = [node for tag in world.tags for node in world.known[tag][:40]]
    pages = Pages(world.index.path)
    wanted, found = Pairs(), Pairs()
    with CMatch(
        world.index,
        tags,
        axis,
        scheme,
        threads=randomly.choice([0, 1, 1, 3]),
        budget=randomly.choice([0, 2000, 1 << 20]),
        partition=randomly.choice([2, 64]),
        vector=randomly.choice([3, 1 << 16]),
        rent=randomly.choice([FETCH_ALL, FETCH_ALL, Rent(2, 0.5)]),
    ) as operator:
        for number in range(12):
            some = randomly.sample(nodes, randomly.choice([1, 5, 40]))
            tag = some[0].tag
            anchors = [(100 * number + at, node) for at, node in enumerate(some) if node.tag == tag]
            inputs = world.inputs(tag, scheme, anchors)
            if randomly.random() < 0.6:
                pages.drop()
            wanted += pairs_of(world, tags, axis, anchors)
            found += counted(operator.feed(inputs))
            if randomly.random() < 0.5:
                assert operator.wait(operator.mark, 10)
                found += counted(operator.poll())
                assert found == wanted
        found += counted(operator.drain())
        counters = operator.counters
    assert found == wanted
    assert counters.pairs == wanted.total()


# --- who fetches ----------------------------------------------------------------------------


def test_labels_that_are_not_in_memory_are_left_to_threads(world: World) -> None:
    anchors = [*enumerate(world.known[A])]
    inputs = labelled(world, A, "vist", anchors)
    with CMatch(world.index, B, "descendant", "vist") as operator:
        assert operator.mark == 0
        answers = [operator.feed(inputs)]
        mark = operator.mark
        assert mark > 0
        assert operator.wait(mark, 10)
        assert operator.reached(mark)
        answers.append(operator.poll())
        assert counted(*answers) == world.pairs(B, Axis.DESCENDANT, anchors)
        # They are known now, wherever the index is.
        Pages(world.index.path).drop()
        assert counted(operator.feed(inputs)) == world.pairs(B, Axis.DESCENDANT, anchors)
        assert operator.mark == mark
        counters = operator.counters
        assert counters.index_scans == counters.unique_labels


@pytest.mark.parametrize("threads", [0, 1])
def test_labels_that_are_in_memory_are_fetched_at_once(world: World, threads: int) -> None:
    anchors = [*enumerate(world.known[A])]
    inputs = world.inputs(A, "vist", anchors)
    for _ in range(2):
        with CMatch(world.index, B, "descendant", "vist", threads=0) as operator:
            operator.feed(inputs)
    with CMatch(world.index, B, "descendant", "vist", threads=threads) as operator:
        for at in range(len(inputs)):
            found = operator.feed(inputs.take(slice(at, at + 1)))
            assert counted(found) == world.pairs(B, Axis.DESCENDANT, anchors[at : at + 1])
        assert operator.mark == 0


def test_without_threads_the_caller_fetches_all(world: World) -> None:
    anchors = [*enumerate(world.known[A])]
    inputs = labelled(world, A, "vist", anchors)
    with CMatch(world.index, B, "descendant", "vist", threads=0) as operator:
        assert counted(operator.feed(inputs)) == world.pairs(B, Axis.DESCENDANT, anchors)
        assert operator.mark == 0


def test_a_label_that_is_not_in_memory_is_not_rented(world: World) -> None:
    anchors = [*enumerate(world.known[A])]
    inputs = labelled(world, A, "vist", anchors)
    with CMatch(world.index, B, "descendant", "vist", rent=Rent(1e9, 1e9)) as operator:
        answers = [operator.feed(inputs), operator.drain()]
        assert counted(*answers) == world.pairs(B, Axis.DESCENDANT, anchors)
        assert operator.mark > 0
        assert operator.counters.deferred < operator.counters.inputs


def test_known_labels_do_not_wait_for_those_that_are_fetched(world: World) -> None:
    """Also in one batch: pairs of the known come at once, the others when they can be had."""

    class Held(CMatch):
        gate = threading.Event()

        def _probe(self, segment: Segment, task: Any) -> None:
            self.gate.wait(10)
            super()._probe(segment, task)

    anchors = [*enumerate(world.known[A])]
    inputs = world.inputs(A, "vist", anchors)
    assert inputs.rank is not None
    first = (inputs.rank == inputs.rank[0]) & (inputs.segment == inputs.segment[0])
    mine = [each for each, own in zip(anchors, first, strict=True) if own]
    assert 0 < len(mine) < len(anchors)
    with Held(world.index, B, "descendant", "vist") as operator:
        operator.gate.set()
        operator.feed(inputs.take(np.flatnonzero(first)))
        operator.drain()
        operator.gate.clear()
        Pages(world.index.path).drop()
        known = world.pairs(B, Axis.DESCENDANT, mine)
        assert counted(operator.feed(inputs)) == known
        mark = operator.mark
        assert not operator.reached(mark)
        assert not operator.wait(mark, 0.01)
        assert counted(operator.feed(inputs.take(np.flatnonzero(first)))) == known
        operator.gate.set()
        assert operator.wait(mark, 10)
        rest = counted(operator.poll())
        assert rest + known == world.pairs(B, Axis.DESCENDANT, anchors)


def test_a_fetch_that_fails_is_told_by_the_next_call(world: World) -> None:
    class Failing(CMatch):
        def _probe(self, segment: Segment, task: Any) -> None:
            raise OSError("the disk is gone")

    inputs = labelled(world, A, "vist", [*enumerate(world.known[A])])
    operator = Failing(world.index, B, "descendant", "vist")
    operator.feed(inputs)
    assert operator.wait(operator.mark, 10)
    for call in (operator.poll, operator.drain, lambda: operator.feed(inputs)):
        with pytest.raises(ProbeFailed, match="the disk is gone"):
            call()
    operator.close()


# --- the index ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("axis", ["descendant", "ancestor", "self"])
def test_asking_what_is_in_memory_brings_nothing_in(world: World, scheme: str, axis: Any) -> None:
    inputs = world.inputs(A, scheme, [*enumerate(world.known[A])])
    assert inputs.rank is not None
    assert inputs.last is not None
    pages = Pages(world.index.path)
    for place, segment in enumerate(world.index.segments):
        own = inputs.segment == place
        labels = inputs.rank[own], inputs.last[own]
        for opened in (False, True):
            pages.drop()
            missing = segment.cold(scheme, B, *labels, axis)
            there = pages.resident()
            segment.cold(scheme, B, *labels, axis)
            assert pages.resident() == there, "what leads to the lists is read once"
            counts = segment.counts(scheme, B, *labels, axis)
            if opened:
                assert missing[counts > 0].all()
            segment.scans(scheme, B, *labels, axis)
            segment.prepare(scheme, B, *labels, axis)
            _soon(lambda: not segment.cold(scheme, B, *labels, axis).any())  # noqa: B023


def _soon(holds: Any) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)
