"""CClean by itself: both sides in any order, from any thread, with any memory."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

from fmware.cmatch import Axis, CClean, Inputs, MissingLabels, OperatorClosed
from fmware.cmatch._kernel import look_directly
from tests.cmatch.oracle import AXES, Pairs, counted

pytestmark = pytest.mark.usefixtures("nothing_left")


class Node(NamedTuple):
    start: int
    end: int
    level: int


def tree(randomly: random.Random, size: int) -> list[Node]:
    """The nodes of a random tree of about so many, by start."""
    found: list[Node] = []
    tick = 0

    def grow(level: int) -> None:
        nonlocal tick
        start, place = tick, len(found)
        found.append(Node(0, 0, 0))
        tick += 1
        while len(found) < size and randomly.random() < (0.75 if level < 12 else 0.2):
            grow(level + 1)
        found[place] = Node(start, tick, level)
        tick += 1

    while len(found) < size:
        grow(randomly.randrange(3))
    return found


class Row(NamedTuple):
    id: int
    key: int
    node: Node


def inputs_of(rows: list[Row]) -> Inputs:
    return Inputs(
        np.array([row.id for row in rows], np.int64),
        np.array([row.key >> 8 for row in rows], np.int32),
        np.array([row.node.start for row in rows], np.int64),
        np.array([row.node.end for row in rows], np.int64),
        np.array([row.node.level for row in rows], np.int16),
        np.array([row.key & 255 for row in rows], np.int64),
        np.array([row.key & 255 for row in rows], np.int64),
    )


def deliver(clean: CClean, key: int, nodes: list[Node], *, last: bool) -> None:
    columns = np.array(nodes, np.int64).reshape(-1, 3)
    clean.right(
        key >> 8, key & 255, columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int16), last
    )


def brute(axis: Axis, rows: list[Row], candidates: dict[int, list[Node]]) -> Pairs:
    columns = {key: np.array(each, np.int64).reshape(-1, 3).T for key, each in candidates.items()}
    found: Pairs = Counter()
    for id_, key, (start, end, level) in rows:
        starts, ends, levels = columns[key]
        below, above = (starts > start) & (ends < end), (starts < start) & (ends > end)
        match axis:
            case Axis.SELF:
                held = starts == start
            case Axis.DESCENDANT:
                held = below
            case Axis.CHILD:
                held = below & (levels == level + 1)
            case Axis.ANCESTOR:
                held = above
            case Axis.PARENT:
                held = above & (levels == level - 1)
        found.update((id_, at) for at in starts[held].tolist())
    return found


class Scene:
    """Inputs and candidates of a few labels, and in which order they come."""

    def __init__(self, seed: int, *, ordered: bool) -> None:
        randomly = self.randomly = random.Random(seed)
        self.axis = randomly.choice(AXES)
        nodes = tree(randomly, randomly.choice([5, 30, 200]))
        keys = [randomly.randrange(3) << 8 | randomly.randrange(4) for _ in range(4)]
        self.rows = [
            Row(id_, randomly.choice(keys), randomly.choice(nodes))
            for id_ in range(randomly.choice([1, 10, 80]))
        ]
        self.candidates = {
            key: randomly.sample(nodes, randomly.randrange(len(nodes) + 1)) for key in keys
        }
        if ordered:
            for each in self.candidates.values():
                each.sort()

    def vectors(self, key: int) -> list[tuple[list[Node], bool]]:
        """The candidates of a label in vectors; the last one may be empty."""
        nodes, size = self.candidates[key], self.randomly.choice([1, 2, 7, 1000])
        cuts = [nodes[low : low + size] for low in range(0, len(nodes), size)]
        if not cuts or self.randomly.random() < 0.2:
            cuts.append([])
        return [(cut, at == len(cuts) - 1) for at, cut in enumerate(cuts)]

    def options(self) -> dict[str, Any]:
        return {
            "budget": self.randomly.choice([0, 150, 500, 2000, 10_000, 1 << 20]),
            "partition": self.randomly.choice([1, 2, 4, 64]),
        }

    @property
    def wanted(self) -> Pairs:
        return brute(self.axis, self.rows, self.candidates)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("portion", range(4))
def test_any_interleaving_gives_every_pair_once(portion: int, ordered: bool) -> None:
    for seed in range(portion, 1600, 4):
        scene = Scene(seed, ordered=ordered)
        events: list[tuple[int, Any]] = []
        size = scene.randomly.choice([1, 3, 20])
        rows = [scene.rows[low : low + size] for low in range(0, len(scene.rows), size)]
        queues: list[list[tuple[int, Any]]] = [[(-1, part) for part in rows]]
        queues += [[(key, vector) for vector in scene.vectors(key)] for key in scene.candidates]
        while queues := [queue for queue in queues if queue]:
            events.append(scene.randomly.choice(queues).pop(0))
        options = scene.options()
        with CClean(scene.axis, **options) as clean:
            answers = []
            for key, event in events:
                if key < 0:
                    answers.append(clean.left(inputs_of(event))[0])
                else:
                    deliver(clean, key, event[0], last=event[1])
                assert clean.counters.bytes_held <= options["budget"]
            answers.append(clean.take())
            counters = clean.counters
        wanted = scene.wanted
        assert counted(*answers) == wanted, f"seed {seed}"
        assert counters.peak_bytes <= options["budget"]
        assert counters.pairs == wanted.total()
        assert counters.candidates == sum(map(len, scene.candidates.values()))


@pytest.mark.parametrize("portion", range(2))
def test_time_stamps_decide_between_threads(portion: int) -> None:
    """Insertion and query lie apart here, so that both sides see each other's rows."""
    for seed in range(portion, 60, 2):
        scene = Scene(seed, ordered=seed % 3 > 0)
        vectors = {key: scene.vectors(key) for key in scene.candidates}
        with CClean(scene.axis, jitter=200, **scene.options()) as clean:

            def candidates(
                key: int, clean: CClean = clean, vectors: dict[int, Any] = vectors
            ) -> None:
                for vector, last in vectors[key]:
                    deliver(clean, key, vector, last=last)

            threads = [threading.Thread(target=candidates, args=(key,)) for key in vectors]
            for thread in threads:
                thread.start()
            answers = [
                clean.left(inputs_of(scene.rows[low : low + 7]))[0]
                for low in range(0, len(scene.rows), 7)
            ]
            for thread in threads:
                thread.join()
            answers.append(clean.take())
        assert counted(*answers) == scene.wanted, f"seed {seed}"


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("size", [9, 100, 6000])
def test_inputs_of_many_labels_search_their_lists_in_turns(axis: Axis, size: int) -> None:
    """Lists with a sample and without, of which each input of a batch has another."""
    randomly = random.Random(size)
    nodes = tree(randomly, size)
    keys = range(7)
    candidates = {key: randomly.sample(nodes, size - key) for key in keys}
    rows = [Row(id_, id_ % len(keys), randomly.choice(nodes)) for id_ in range(200)]
    with CClean(axis, budget=1 << 24) as clean:
        for key in keys:
            deliver(clean, key, candidates[key], last=True)
        answers = [clean.left(inputs_of(rows[low : low + 50]))[0] for low in range(0, 200, 50)]
    assert counted(*answers) == brute(axis, rows, candidates)


@pytest.mark.parametrize("bits", [20, 40, 55, 60])
def test_candidates_are_put_into_order_however_far_they_are_apart(bits: int) -> None:
    """Also where a start and a row do not fit into one number."""
    randomly = random.Random(bits)
    near = range(1 << bits, (1 << bits) + 50)
    starts = [*randomly.sample(range(1 << bits), 300), *near]
    nodes = [Node(start, start + 1, 2) for start in starts]
    randomly.shuffle(nodes)
    spans = [sorted(randomly.sample(range(-1, 2 << bits), 2)) for _ in range(60)]
    rows = [Row(id_, 0, Node(low, high, 1)) for id_, (low, high) in enumerate(spans)]
    with CClean(Axis.DESCENDANT, budget=1 << 20) as clean:
        deliver(clean, 0, nodes, last=True)
        found, _ = clean.left(inputs_of(rows))
    assert counted(found) == brute(Axis.DESCENDANT, rows, {0: nodes})


# --- what is new, what is complete ----------------------------------------------------------

NESTED = [Node(0, 9, 0), Node(1, 4, 1), Node(2, 3, 2), Node(5, 8, 1), Node(6, 7, 2)]


def test_new_labels_are_told_once() -> None:
    rows = [Row(at, key, NESTED[0]) for at, key in enumerate([5, 5, 6, 5, 261, 6])]
    with CClean("child") as clean:
        _, fresh = clean.left(inputs_of(rows))
        assert fresh is not None
        assert fresh.tolist() == [0, 2, 4]
        assert clean.left(inputs_of(rows))[1] is None
        assert clean.counters.unique_labels == 3


def test_a_complete_label_keeps_no_inputs() -> None:
    rows = [Row(at, 1, NESTED[at % 5]) for at in range(1000)]
    with CClean("descendant", partition=8) as clean:
        clean.left(inputs_of(rows))
        before = clean.counters.bytes_held
        deliver(clean, 1, NESTED, last=True)
        assert clean.counters.bytes_held < before / 50
        held = clean.counters.bytes_held
        for _ in range(20):
            clean.left(inputs_of(rows))
        assert clean.counters.bytes_held == held


def test_candidates_that_are_spilled_come_back_when_they_are_wanted() -> None:
    nodes = [Node(2 * at, 2 * at + 1, 1) for at in range(600)]
    with CClean("self", budget=20_000) as clean:
        for key in range(3):
            deliver(clean, key, nodes, last=True)
        assert clean.counters.spills > 0
        for key in (0, 1, 2, 2, 2, 2, 0, 1) * 5:
            rows = [Row(at, key, node) for at, node in enumerate(nodes)]
            assert counted(clean.left(inputs_of(rows))[0]) == brute(Axis.SELF, rows, {key: nodes})
            assert clean.counters.bytes_held <= 20_000
        for _ in range(3):
            clean.left(inputs_of(rows))
        before = clean.counters.overflow_reads
        clean.left(inputs_of(rows))
        assert clean.counters.overflow_reads == before


def test_pages_of_what_is_on_disk_are_kept_while_there_is_room() -> None:
    nodes = [Node(2 * at, 2 * at + 1, 1) for at in range(2000)]
    rows = [Row(at, 7, node) for at, node in enumerate(nodes)]
    with CClean("self", budget=30_000) as clean:
        deliver(clean, 7, nodes, last=True)
        assert clean.counters.bytes_held == 0
        clean.left(inputs_of(rows[:1000]))
        before = clean.counters
        assert 0 < before.bytes_held <= 30_000
        again = clean.left(inputs_of(rows[:1000]))[0]
        assert counted(again) == brute(Axis.SELF, rows[:1000], {7: nodes})
        assert clean.counters.overflow_reads == before.overflow_reads
        # All of them have no room; what was not used for longest goes.
        for _ in range(3):
            assert len(clean.left(inputs_of(rows))[0]) == 2000
            assert clean.counters.bytes_held <= 30_000
        assert clean.counters.overflow_reads > before.overflow_reads
        # A list that needs the room gets it.
        deliver(clean, 8, nodes[:1500], last=True)
        deliver(clean, 9, nodes[:5], last=True)
        assert clean.counters.bytes_held <= 30_000
        assert len(clean.left(inputs_of([row._replace(key=8) for row in rows]))[0]) == 1500
        clean.renumber(np.array([-1], np.int32))
        assert clean.counters.bytes_held == 0


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("budget", [0, 40_000, 1 << 24])
def test_long_lists(axis: Axis, budget: int) -> None:
    randomly = random.Random(9)
    nodes = tree(randomly, 9000)
    rows = [Row(at, 7, randomly.choice(nodes)) for at in range(300)]
    small = [row for row in rows if row.node.end - row.node.start < 500]
    with CClean(axis, budget=budget) as clean:
        clean.left(inputs_of(small[:20]))
        for low in range(0, len(nodes), 4000):
            deliver(clean, 7, nodes[low : low + 4000], last=low + 4000 >= len(nodes))
        first = clean.take()
        after = clean.left(inputs_of(small[20:]))[0]
        in_order = clean.left(inputs_of(sorted(small, key=lambda row: row.node)))[0]
        assert counted(first, after) == brute(axis, small, {7: nodes})
        assert counted(first, after) == counted(in_order)
        assert clean.counters.bytes_held <= budget


def test_segments_are_renumbered() -> None:
    rows = [Row(1, 0 << 8 | 4, NESTED[0]), Row(2, 1 << 8 | 4, NESTED[0])]
    for budget in (0, 1 << 16):
        with CClean("child", budget=budget) as clean:
            clean.left(inputs_of(rows))
            deliver(clean, 0 << 8 | 4, NESTED[:2], last=True)
            deliver(clean, 1 << 8 | 4, NESTED, last=True)
            assert len(clean.take()) == 3
            clean.renumber(np.array([-1, 0], np.int32))
            moved = [Row(3, 0 << 8 | 4, NESTED[0]), Row(4, 1 << 8 | 4, NESTED[0])]
            matches, fresh = clean.left(inputs_of(moved))
            assert counted(matches) == Counter({(3, 1): 1, (3, 5): 1})
            assert fresh is not None
            assert fresh.tolist() == [1]


def test_many_labels() -> None:
    with CClean("self", budget=1 << 14) as clean:
        for low in range(0, 256, 32):
            rows = [
                Row(low + at, segment << 8 | low + at, NESTED[0])
                for at in range(32)
                for segment in range(3)
            ]
            clean.left(inputs_of(rows))
        assert clean.counters.unique_labels == 768
        for key in range(256):
            for segment in range(3):
                deliver(clean, segment << 8 | key, NESTED[:1], last=True)
        assert len(clean.take()) == 768


# --- asked first ----------------------------------------------------------------------------


def test_new_labels_are_told_before_anything_is_taken() -> None:
    rows = [Row(at, key, NESTED[0]) for at, key in enumerate([5, 261, 5, 6, 262])]
    with CClean("child") as clean:
        matches, fresh, deferred = clean.ask(inputs_of(rows))
        assert (len(matches), deferred) == (0, None)
        assert fresh is not None
        told = [(place, first, ranks.tolist()) for place, first, ranks, _ in fresh]
        assert told == [(0, 0, [5, 6]), (1, 2, [5, 6])]
        assert clean.counters.inputs == 0
        columns = np.array(NESTED, np.int64).T
        start, end, level = columns[0], columns[1], columns[2].astype(np.int16)
        # The second label of the first segment has all of them, the first of the other two.
        clean.settle(0, [1], None, start, end, level)
        clean.settle(2, None, [0, 0], start[:2], end[:2], level[:2])
        matches, deferred = clean.answer(inputs_of(rows))
        assert deferred is None
        wanted = {5: [], 6: NESTED, 261: NESTED[:2], 262: []}
        assert counted(matches) == brute(Axis.CHILD, rows, wanted)
        # All of them are known now, those without candidates, too.
        matches, fresh, deferred = clean.ask(inputs_of(rows))
        assert (fresh, deferred) == (None, None)
        assert counted(matches) == brute(Axis.CHILD, rows, wanted)
        with pytest.raises(ValueError, match="complete"):
            deliver(clean, 5, NESTED, last=True)
        assert clean.counters.inputs == 10
        assert clean.counters.bytes_held < 1000


def test_many_new_labels_come_at_once() -> None:
    # So many that the table grows while they are looked for, over several chunks.
    ranks = np.arange(5000, dtype=np.int64) * 7
    zeros = np.zeros(len(ranks), np.int64)
    inputs = Inputs(
        ranks, zeros.astype(np.int32), zeros, zeros + 9, zeros.astype(np.int16), ranks, ranks
    )
    with CClean("descendant") as clean:
        fresh = clean.ask(inputs)[1]
        assert fresh is not None
        assert fresh[0][2].tolist() == ranks.tolist()
        some = np.arange(0, 5000, 10)
        one = np.ones(len(some), np.int64)
        clean.settle(0, some, np.arange(len(some)), one, one + 1, one.astype(np.int16))
        for matches in (clean.answer(inputs)[0], clean.ask(inputs)[0]):
            assert matches.id.tolist() == ranks[some].tolist()
        assert clean.counters.unique_labels == 5000


def test_only_what_was_asked_is_answered() -> None:
    rows = [Row(1, 1, NESTED[0]), Row(2, 2, NESTED[0])]
    one = np.zeros(1, np.int64)
    with CClean("child") as clean:
        with pytest.raises(ValueError, match="other inputs"):
            clean.answer(inputs_of(rows))
        clean.ask(inputs_of(rows))
        wrong: list[tuple[int, list[int] | None, int]] = [
            (0, None, 2),
            (2, None, 0),
            (0, [2], 0),
            (1, [1], 0),
            (0, None, -1),
        ]
        for first, places, left in wrong:
            with pytest.raises(ValueError, match="not asked for"):
                clean.settle(first, places, [left], one, one, one.astype(np.int16))
        with pytest.raises(ValueError, match="not asked for"):
            clean.wait(0, [2])
        clean.rent = 1.0, 0.0
        with pytest.raises(ValueError, match="not asked for"):
            clean.defer(1, [1, 1])
        with pytest.raises(ValueError, match="one length"):
            clean.settle(0, None, [0], one, np.zeros(2), one.astype(np.int16))
        with pytest.raises(ValueError, match="other inputs"):
            clean.answer(inputs_of(rows[:1]))


# --- how it is called -----------------------------------------------------------------------


def test_inputs_need_labels() -> None:
    one = np.zeros(1, np.int64)
    bare = Inputs(one, one.astype(np.int32), one, one, one.astype(np.int16))
    with CClean("child", scheme="vist") as clean:
        with pytest.raises(MissingLabels, match="'vist'"):
            clean.left(bare)
        assert clean.left(inputs_of([Row(1, 1, NESTED[0])]))[1] is not None


def test_columns_must_fit_together() -> None:
    one, two = np.zeros(1, np.int64), np.zeros(2, np.int64)
    with CClean("child") as clean:
        with pytest.raises(ValueError, match="one length"):
            clean.left(Inputs(one, two.astype(np.int32), one, one, one.astype(np.int16), one, one))
        with pytest.raises(ValueError, match="one length"):
            clean.right(0, 1, one, two, one.astype(np.int16), True)  # noqa: FBT003
        with pytest.raises(ValueError, match="one length"):
            clean.settle(0, None, one, two, two, two.astype(np.int16))


def test_columns_of_any_shape_are_taken() -> None:
    rows = [Row(at, at % 3, NESTED[at % 5]) for at in range(40)]
    plain = inputs_of(rows)
    columns = columns_of(plain)
    shapes: list[list[Any]] = [
        [np.repeat(column, 2)[::2] for column in columns],
        [column.astype(np.int32) for column in columns],
        [column.tolist() for column in columns],
    ]
    wide, other, lists = (Inputs(*shape) for shape in shapes)
    found = []
    before = look_directly(False)  # noqa: FBT003
    try:
        for direct in (True, False):
            look_directly(direct)
            for inputs in (plain, wide, other, lists):
                with CClean("descendant") as clean:
                    clean.left(inputs)
                    for key in range(3):
                        deliver(clean, key, NESTED, last=True)
                    found.append(counted(clean.take(), clean.left(inputs)[0]))
    finally:
        look_directly(before)
    assert all(each == found[0] for each in found)
    assert found[0].total() > 0


def columns_of(inputs: Inputs) -> list[Any]:
    return [
        inputs.id,
        inputs.segment,
        inputs.start,
        inputs.end,
        inputs.level,
        inputs.rank,
        inputs.last,
    ]


def test_many_pairs_are_handed_over_whole() -> None:
    nodes = [Node(0, 100_001, 0), *(Node(at, at + 1, 1) for at in range(1, 100_001, 2))]
    with CClean("child") as clean:
        deliver(clean, 1, nodes, last=True)
        matches = clean.left(inputs_of([Row(1, 1, nodes[0])] * 3))[0]
        assert len(matches) == 150_000
        again = clean.left(inputs_of([Row(1, 1, nodes[1])]))[0]
        assert len(again) == 0
        assert np.array_equal(matches.start[:50_000], np.arange(1, 100_001, 2))
        assert matches.start[:50_000].tolist() == matches.start[100_000:].tolist()


def test_candidates_after_the_last_are_refused() -> None:
    with CClean("child") as clean:
        deliver(clean, 1, NESTED, last=True)
        with pytest.raises(ValueError, match="complete"):
            deliver(clean, 1, NESTED, last=True)
        rows = [Row(1, 1, NESTED[0])]
        assert counted(clean.left(inputs_of(rows))[0]) == brute(Axis.CHILD, rows, {1: NESTED})


@pytest.mark.parametrize("options", [{"budget": -1}, {"partition": 0}, {"partition": 1 << 30}])
def test_sizes_must_make_sense(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="budget"):
        CClean("child", **options)  # type: ignore[arg-type]


def test_a_closed_one_says_so() -> None:
    clean = CClean("child")
    clean.close()
    clean.close()
    for call in (
        clean.take,
        lambda: clean.left(inputs_of([])),
        lambda: deliver(clean, 1, NESTED, last=True),
        lambda: clean.renumber(np.zeros(1, np.int32)),
    ):
        with pytest.raises(OperatorClosed):
            call()
    assert clean.closed
    assert clean.counters.bytes_held == 0
