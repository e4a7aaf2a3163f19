"""What goes wrong is told with its type, ends one operator, and leaves nothing behind."""

from __future__ import annotations

import math
import os
import resource
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fmware.cmatch import (
    ADMatch,
    Axis,
    CMatch,
    GenerationGone,
    Inputs,
    MatchError,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    Rent,
    SpillFailed,
)
from fmware.index import CorruptIndex, Index, IndexClosed
from fmware.index import format as form
from tests.cmatch import oracle
from tests.cmatch.conftest import open_files
from tests.cmatch.oracle import TAGS, batches, counted
from tests.index.oracle import build, corpora_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fmware.cmatch import Operator
    from fmware.index import Segment
    from tests.cmatch.oracle import World

pytestmark = pytest.mark.usefixtures("nothing_left")

A = TAGS[0]
THREADS = [0, 1, 3]


def inputs_of(world: World) -> Inputs:
    return world.inputs(A, "path", [*enumerate(world.known[A])])


def run(operator: CMatch, inputs: Inputs) -> None:
    """Feed all of it until it fails."""
    for batch in batches(inputs, 4):
        operator.feed(batch)
    operator.drain()


def stays_dead(operator: CMatch, error: type[MatchError], inputs: Inputs) -> None:
    refuses(operator, error, inputs)
    assert operator.counters.bytes_held == 0
    operator.close()
    operator.close()
    refuses(operator, OperatorClosed, inputs)


def refuses(operator: Operator, error: type[MatchError], inputs: Inputs) -> None:
    with pytest.raises(error):
        operator.feed(inputs)
    with pytest.raises(error):
        operator.poll()
    with pytest.raises(error):
        operator.drain()


# --- the disk -------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> None:
    """Do it in a process of its own, whose limits are its own, too."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize(("threads", "few"), [(0, None), (0, -1), (1, -1), (3, -1)])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_full_disk_ends_the_operator(
    worlds: list[list[World]], threads: int, few: int | None
) -> None:
    path = worlds[2][2].index.path

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with Index.open(path) as index:
            files = open_files()
            inputs = inputs_of(oracle.World(index, worlds[2][3].known))
            operator = CMatch(index, A, "descendant", "path", budget=0, threads=threads, few=few)
            with pytest.raises(SpillFailed, match=r"could not be spilled.*make room") as caught:
                run(operator, inputs)
            assert caught.value.errno
            assert isinstance(caught.value, OSError)
            stays_dead(operator, SpillFailed, inputs)
            assert open_files() == files
            assert threading.active_count() == 1
            # Another operator is not touched.
            with CMatch(index, A, "descendant", "path", threads=0) as other:
                assert counted(other.feed(inputs)).total() > 0

    in_child(work)


@pytest.mark.parametrize("threads", THREADS)
def test_a_place_that_is_not_there(world: World, tmp_path: Path, threads: int) -> None:
    inputs = inputs_of(world)
    place = tmp_path / "nowhere"
    operator = CMatch(world.index, A, "descendant", "path", budget=0, place=place, threads=threads)
    with pytest.raises(SpillFailed, match="nowhere: candidates could not be spilled: No such file"):
        run(operator, inputs)
    stays_dead(operator, SpillFailed, inputs)


def test_spilled_files_have_no_name(world: World, tmp_path: Path) -> None:
    inputs = inputs_of(world)
    with CMatch(world.index, A, "descendant", "path", budget=0, place=tmp_path) as operator:
        operator.feed(inputs)
        operator.drain()
        assert operator.counters.spills > 0
        assert [*tmp_path.iterdir()] == []


# --- the index ------------------------------------------------------------------------------


class Failing(CMatch):
    """Its probes fail from the second on."""

    error: BaseException = RuntimeError("no such luck")
    probes = 0

    def _limit(self) -> None:
        """All probes are its own: none is done natively before it knows."""
        self._clean.most = -1

    def _probe(self, segment: Segment, task: Any) -> None:
        self._tempt()
        super()._probe(segment, task)

    def _settle(self, segment: Segment, task: Any, rows: Any) -> None:
        self._tempt()
        super()._settle(segment, task, rows)

    def _tempt(self) -> None:
        self.probes += 1
        if self.probes > 1:
            raise self.error


@pytest.mark.parametrize(("threads", "few"), [(0, None), (0, -1), (1, -1), (3, -1)])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_probe_that_fails_ends_the_operator(
    world: World, threads: int, budget: int, few: int | None
) -> None:
    inputs = world.inputs(A, "vist", [*enumerate(world.known[A])])
    operator = Failing(
        world.index, A, "descendant", "vist", threads=threads, budget=budget, few=few
    )
    with pytest.raises(ProbeFailed, match=r"CMatch descendant::a by vist.*no such luck") as caught:
        run(operator, inputs)
    assert isinstance(caught.value.__cause__, RuntimeError)
    stays_dead(operator, ProbeFailed, inputs)


@pytest.mark.parametrize("threads", [0, 1])
def test_an_interrupt_is_not_a_failed_probe(world: World, threads: int) -> None:
    operator = Failing(world.index, A, "descendant", "vist", threads=threads)
    operator.error = KeyboardInterrupt()
    inputs = world.inputs(A, "vist", [*enumerate(world.known[A])])
    with pytest.raises(KeyboardInterrupt):
        run(operator, inputs)
    # Nobody knows what its labels have: it is dead, and does not wait for them.
    stays_dead(operator, ProbeFailed, inputs)


def test_ad_probes_of_what_is_rented_fail_as_others_do(worlds: list[list[World]]) -> None:
    world = worlds[2][3]
    inputs = inputs_of(world)
    with Index.open(world.index.path) as index:
        operator = CMatch(index, A, "descendant", "path", rent=Rent(math.inf, 0))
        assert counted(operator.feed(inputs)).total() > 0
    with pytest.raises(GenerationGone, match="move the operator"):
        operator.feed(inputs)
    stays_dead(operator, GenerationGone, inputs)


@pytest.mark.parametrize("threads", THREADS)
def test_a_corrupt_posting_is_found_not_served(tmp_path: Path, threads: int) -> None:
    # So many that postings lie in pages of their own; others are checked when a file is opened.
    path = tmp_path / "index"
    corpora = corpora_of([[f"<a>{'<b/>' * 700}</a>", "<a><b/></a>"]])
    build(path, corpora)
    with Index.open(path) as index:
        starts = [node.start for node in corpora[0].nodes if node.tag == A]
        inputs = Inputs.of(index, A, "path", starts, starts)
        with CMatch(index, "b", "descendant", "path", threads=threads) as operator:
            wanted = counted(operator.feed(inputs), operator.drain())
    assert wanted.total() == 701
    told = []
    for file in path.glob(f"segments/*/{form.nodes_file(0)}"):
        sound = file.read_bytes()
        for at in range(0, len(sound), max(1, len(sound) // 150)):
            file.write_bytes(sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :])
            try:
                index = Index.open(path)
            except CorruptIndex:
                continue
            with index, CMatch(index, "b", "descendant", "path", threads=threads) as operator:
                try:
                    found = counted(operator.feed(inputs), operator.drain())
                except ProbeFailed as error:
                    told.append(error)
                else:
                    assert found == wanted
        file.write_bytes(sound)
    assert told
    assert all(isinstance(error.__cause__, CorruptIndex) for error in told)
    assert all(str(path) in str(error) for error in told)


@pytest.mark.parametrize("threads", THREADS)
def test_an_index_that_is_closed_under_an_operator(worlds: list[list[World]], threads: int) -> None:
    world = worlds[2][3]
    inputs = inputs_of(world)
    with Index.open(world.index.path) as index:
        operator = CMatch(index, A, "descendant", "path", threads=threads)
    with pytest.raises(GenerationGone, match="move the operator") as caught:
        run(operator, inputs)
    assert isinstance(caught.value.__cause__, IndexClosed)
    stays_dead(operator, GenerationGone, inputs)


def test_an_index_that_is_closed_under_an_operator_that_was_fed(worlds: list[list[World]]) -> None:
    """What is still in memory of it is no reason to go on."""
    world = worlds[2][3]
    starts = [node.start for node in world.known[A]]
    with Index.open(world.index.path) as index:
        operator = CMatch(index, A, "descendant", "vist", threads=0)
        inputs = Inputs.of(index, A, "vist", range(len(starts)), starts)
        operator.feed(inputs.take(slice(0, 1)))
        # A second one has read all blocks, so that none need be fetched.
        with CMatch(index, A, "descendant", "vist", threads=0) as other:
            other.feed(inputs)
    with pytest.raises(GenerationGone):
        operator.feed(inputs)
    stays_dead(operator, GenerationGone, inputs)


def test_a_closed_index_is_noticed_where_it_has_no_node_of_the_tag(
    worlds: list[list[World]],
) -> None:
    world = worlds[2][3]
    starts = [node.start for node in world.known[A]]
    with Index.open(world.index.path) as index:
        operator = CMatch(index, "nosuch", "descendant", "vist", threads=0)
        inputs = Inputs.of(index, A, "vist", range(len(starts)), starts)
        assert not operator.feed(inputs.take(slice(0, 1)))
    with pytest.raises(GenerationGone):
        operator.feed(inputs)
    stays_dead(operator, GenerationGone, inputs)


def test_a_closed_operator_holds_no_files(worlds: list[list[World]]) -> None:
    world = worlds[2][3]
    before = open_files()
    with Index.open(world.index.path) as index:
        operator = CMatch(index, A, "descendant", "path", threads=0)
        starts = [node.start for node in world.known[A]]
        inputs = Inputs.of(index, A, "path", range(len(starts)), starts)
        for at in range(len(inputs)):
            operator.feed(inputs.take(slice(at, at + 1)))
        operator.close()
    assert open_files() == before
    del operator


def test_inputs_that_say_they_have_other_labels_are_refused(world: World) -> None:
    anchors = [*enumerate(world.known[A])]
    with CMatch(world.index, A, "descendant", "path", threads=0) as operator:
        with pytest.raises(MissingLabels):
            operator.feed(world.inputs(A, "vist", anchors))
        found = operator.feed(world.inputs(A, "path", anchors))
        assert counted(found) == world.pairs(A, Axis.DESCENDANT, anchors)


def test_a_batch_that_is_refused_leaves_nothing_behind(world: World) -> None:
    anchors = [*enumerate(world.known[A])]
    inputs = world.inputs(A, "path", anchors)
    assert inputs.last is not None
    with CMatch(world.index, A, "descendant", "path", threads=0) as operator:
        for last in (None, inputs.last[:-1]):
            with pytest.raises((TypeError, ValueError)):
                operator.feed(replace(inputs, last=last))
        assert counted(operator.feed(inputs)) == world.pairs(A, Axis.DESCENDANT, anchors)


# --- the end --------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_closing_while_threads_work(world: World, threads: int, budget: int) -> None:
    class Slow(CMatch):
        def _probe(self, segment: Segment, task: Any) -> None:
            time.sleep(0.002)
            super()._probe(segment, task)
            time.sleep(0.002)

    inputs = world.inputs(A, "vist", [*enumerate(world.known[A])])
    for wait in (0, 0.001, 0.003, 0.006):
        operator = Slow(
            world.index,
            A,
            "descendant",
            "vist",
            threads=threads,
            budget=budget,
            jitter=500,
            few=-1,
        )
        for batch in batches(inputs, 5):
            operator.feed(batch)
        time.sleep(wait)
        operator.close()
        assert operator.counters.bytes_held == 0
        with pytest.raises(OperatorClosed, match="make another one"):
            operator.drain()


def test_threads_end_when_there_is_nothing_to_do(world: World) -> None:
    inputs = inputs_of(world)
    before = threading.active_count()
    operators = [
        CMatch(world.index, A, axis, "path", threads=2, few=-1) for axis in ("child", "descendant")
    ]
    for operator in operators:
        operator.feed(inputs)
        operator.drain()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threading.active_count() == before
    for operator in operators:
        operator.close()


def test_an_operator_that_is_forgotten_leaves_nothing(world: World) -> None:
    operator = CMatch(world.index, A, "descendant", "path", budget=0, threads=0)
    operator.feed(inputs_of(world))
    assert operator.counters.spills > 0
    del operator


def test_ad_only_match_can_be_closed(world: World) -> None:
    rival = ADMatch(world.index, A, "child")
    rival.close()
    rival.close()
    refuses(rival, OperatorClosed, inputs_of(world))


def test_ad_only_match_notices_that_the_index_was_closed(worlds: list[list[World]]) -> None:
    """Whether lists of the tag are open, or there are none; and what it held is let go of."""
    world = worlds[2][3]
    inputs = inputs_of(world)
    for tag in (A, "nosuch"):
        files = open_files()
        with Index.open(world.index.path) as index:
            rival = ADMatch(index, tag, "descendant")
            rival.feed(inputs)
        with pytest.raises(IndexClosed):
            rival.feed(inputs)
        with pytest.raises(IndexClosed):
            rival.feed(inputs)
        assert open_files() == files


def test_closing_an_index_waits_for_native_probes(worlds: list[list[World]]) -> None:
    world = worlds[2][3]
    inputs = Inputs.joined([inputs_of(world)] * 50)
    wanted = world.pairs(A, Axis.DESCENDANT, [*enumerate(world.known[A])]).total() * 50
    for _ in range(30):
        index = Index.open(world.index.path)
        rival = ADMatch(index, [A, TAGS[1]], "descendant")
        rival.feed(inputs)
        stopped = threading.Event()

        def work(rival: ADMatch = rival, stopped: threading.Event = stopped) -> None:
            try:
                while True:
                    assert len(rival.feed(inputs)) >= wanted
            except IndexClosed:
                stopped.set()

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.001)
        index.close()
        thread.join(10)
        assert stopped.is_set()
