"""Operators against brute force: the pairs that hold, each of them once."""

from __future__ import annotations

import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.cmatch import ADMatch, Axis, CMatch, Inputs, Operator, Rent
from fmware.cmatch.rent import FETCH_ALL
from fmware.index import Index, UnknownScheme
from fmware.labeling.runs import Tag
from tests.cmatch.oracle import AXES, SCHEMES, TAGS, Pairs, any_rent, batches, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmware.index import Segment
    from tests.cmatch.oracle import World
    from tests.index.oracle import Known

pytestmark = pytest.mark.usefixtures("nothing_left")

CASES = 5000
PORTIONS = 20


class Jumpy(CMatch):
    """Its probes take their time, each another."""

    naps: random.Random

    def _probe(self, segment: Segment, task: Any) -> None:
        time.sleep(self.naps.choice([0, 0, 1e-4, 5e-4]))
        super()._probe(segment, task)
        time.sleep(self.naps.choice([0, 0, 1e-4]))


@dataclass
class Case:
    """Anchors, and a way to match them, that a seed decides."""

    seed: int

    def __post_init__(self) -> None:
        self.randomly = random.Random(self.seed)

    def anchors(self, nodes: Sequence[Known], first: int) -> list[tuple[int, Known]]:
        """Some nodes, many of them again and again, with ids that may come twice, too."""
        randomly = self.randomly
        some = randomly.sample(nodes, randomly.randrange(1, min(30, len(nodes)) + 1))
        count = randomly.choice([1, 4, 16, 60, 150])
        found = [(first + randomly.randrange(100), randomly.choice(some)) for _ in range(count)]
        if randomly.random() < 0.4:
            found.sort(key=lambda each: each[1].start)
        return found

    def operator(self, world: World, tags: Sequence[Tag], axis: Axis, scheme: str) -> CMatch:
        randomly = self.randomly
        threads = randomly.choice([0, 0, 0, 1, 2, 4])
        made = Jumpy(
            world.index,
            tags,
            axis,
            scheme,
            budget=randomly.choice([0, 200, 400, 800, 2000, 8000, 1 << 20]),
            partition=randomly.choice([1, 2, 3, 8, 64]),
            threads=threads,
            vector=randomly.choice([1, 2, 5, 40, 65536]),
            # Whether labels are asked for before their inputs are taken, or while these wait.
            few=randomly.choice([None, None, -1, -1, -1, 0, 5, 40]),
            rent=any_rent(randomly) if randomly.random() < 0.3 else FETCH_ALL,
            # Steps 1 and 2 drift apart, so that time-stamps decide.
            jitter=randomly.choice([0, 0, 100]) if threads else 0,
        )
        made.naps = randomly
        return made


def check(worlds: Sequence[Sequence[World]], seed: int) -> None:
    case = Case(seed)
    randomly = case.randomly
    generations = randomly.choice(worlds)
    # Mostly one generation; sometimes the operator lives through several.
    lived = generations[randomly.randrange(len(generations)) :]
    lived = lived if randomly.random() < 0.2 else lived[:1]
    axis, scheme = randomly.choice(AXES), randomly.choice(SCHEMES)
    targets = randomly.sample(TAGS, randomly.choice([1, 1, 2, 3, len(TAGS)]))
    size = randomly.choice([1, 3, 10, 50, 200])
    wanted, found, by_ad = Pairs(), Pairs(), Pairs()
    labels = 0
    seen: set[tuple[object, int]] = set()
    with (
        case.operator(lived[0], targets, axis, scheme) as operator,
        ADMatch(lived[0].index, targets, axis) as rival,
    ):
        for number, world in enumerate(lived):
            found += counted(operator.move(world.index))
            rival.move(world.index)
            tag = randomly.choice(world.tags)
            anchors = case.anchors(world.known[tag], 1000 * number)
            wanted += all_pairs(world, targets, axis, anchors)
            inputs = world.inputs(tag, scheme, anchors)
            for batch in batches(inputs, size):
                found += counted(operator.feed(batch))
                by_ad += counted(rival.feed(batch))
            assert inputs.rank is not None
            held = {place: operator._held[place] for place in set(inputs.segment.tolist())}
            seen = {each for each in seen if each[0] in operator._held}
            now = {
                (held[place], rank)
                for place, rank in zip(inputs.segment.tolist(), inputs.rank.tolist(), strict=True)
            }
            labels += len(now - seen)
            seen |= now
        found += counted(operator.drain())
        counters = operator.counters
    assert by_ad == wanted, f"AD-only match, seed {seed}"
    assert found == wanted, f"CMatch, seed {seed}"
    assert counters.unique_labels == labels, f"labels, seed {seed}"
    if operator.rent == FETCH_ALL:
        assert counters.index_scans == labels, f"scans, seed {seed}"
    assert counters.index_scans <= labels, f"scans, seed {seed}"
    assert counters.ad_probes == counters.deferred, f"deferred, seed {seed}"
    assert counters.pairs == wanted.total(), f"seed {seed}"


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_every_pair_comes_once(worlds: list[list[World]], portion: int) -> None:
    for seed in range(portion, CASES, PORTIONS):
        check(worlds, seed)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_pair_comes_once_also_in_small_cases(
    worlds: list[list[World]], data: st.DataObject
) -> None:
    world = data.draw(st.sampled_from([world for each in worlds for world in each]))
    tag = data.draw(st.sampled_from(world.tags))
    targets = data.draw(st.lists(st.sampled_from(TAGS), unique=True))
    axis, scheme = data.draw(st.sampled_from(AXES)), data.draw(st.sampled_from(SCHEMES))
    nodes = data.draw(st.lists(st.sampled_from(world.known[tag]), max_size=6))
    anchors = [*enumerate(nodes)]
    options: dict[str, Any] = {
        "budget": data.draw(st.sampled_from([0, 150, 600, 1 << 16])),
        "partition": data.draw(st.integers(1, 5)),
        "vector": data.draw(st.integers(1, 4)),
        "threads": data.draw(st.integers(0, 1)),
        "few": data.draw(st.sampled_from([None, -1, 0, 2])),
        "rent": Rent(data.draw(st.integers(0, 4)), data.draw(st.sampled_from([0.0, 0.3, 2.0]))),
    }
    with CMatch(world.index, targets, axis, scheme, **options) as operator:
        inputs = world.inputs(tag, scheme, anchors)
        answers = [operator.feed(batch) for batch in batches(inputs, data.draw(st.integers(1, 4)))]
        assert counted(*answers, operator.drain()) == all_pairs(world, targets, axis, anchors)


# --- one by one -----------------------------------------------------------------------------


def everything(world: World, tag: Tag) -> list[tuple[int, Known]]:
    return [*enumerate(world.known[tag])]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_operators_agree_with_brute_force(world: World, axis: Axis, scheme: str) -> None:
    for tag in world.tags:
        anchors = everything(world, tag)
        inputs = world.inputs(tag, scheme, anchors)
        for target in world.tags:
            wanted = world.pairs(target, axis, anchors)
            operator: Operator
            for operator in (
                ADMatch(world.index, target, axis),
                CMatch(world.index, target, axis, scheme),
                CMatch(world.index, target, axis, scheme, few=-1),
            ):
                assert isinstance(operator, Operator)
                found = [operator.feed(inputs), operator.poll(), operator.drain()]
                operator.close()
                assert counted(*found) == wanted


def test_matches_carry_the_whole_label(world: World) -> None:
    a = TAGS[0]
    anchors = everything(world, a)
    inputs = world.inputs(a, "path", anchors)
    nodes = {node.start: node for tag in world.tags for node in world.known[tag]}
    bounds = [(segment.low, segment.high) for segment in world.index.segments]
    for operator in (
        ADMatch(world.index, a, "descendant"),
        CMatch(world.index, a, "descendant", "path", threads=0),
    ):
        matches = operator.feed(inputs)
        operator.close()
        assert len(matches) > 0
        for at, start in enumerate(matches.start.tolist()):
            node = nodes[start]
            assert (matches.end[at], matches.level[at]) == (node.end, node.level)
            low, high = bounds[matches.segment[at]]
            assert low <= start < high


# --- AD-only match --------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_ad_only_match_finds_the_pairs_of_all_tags(
    worlds: list[list[World]], data: st.DataObject
) -> None:
    generations = data.draw(st.sampled_from(worlds))
    targets = data.draw(st.lists(st.sampled_from([*TAGS, Tag(0, "nosuch")]), unique=True))
    axis = data.draw(st.sampled_from(AXES))
    with ADMatch(generations[0].index, targets, axis) as operator:
        for world in generations:
            operator.move(world.index)
            nodes = [node for tag in world.tags for node in world.known[tag]]
            # In any order, so that segments alternate.
            anchors = [*enumerate(data.draw(st.lists(st.sampled_from(nodes), max_size=80)))]
            parts = [
                world.inputs(tag, None, [each for each in anchors if each[1].tag == tag])
                for tag in world.tags
            ]
            inputs = Inputs.joined(parts)
            inputs = inputs.take(np.argsort(inputs.id))
            assert counted(operator.feed(inputs)) == all_pairs(world, targets, axis, anchors)


def all_pairs(
    world: World, tags: Sequence[Tag], axis: Axis, anchors: Sequence[tuple[int, Known]]
) -> Pairs:
    """The pairs with nodes of several tags."""
    return sum((world.pairs(tag, axis, anchors) for tag in tags), Pairs())


def test_threads_share_ad_only_match(worlds: list[list[World]]) -> None:
    """Without a lock, also while lists are opened and the operator moves."""
    first, second = worlds[2][2:4]
    target, axis = TAGS[1], Axis.DESCENDANT
    anchors = everything(first, TAGS[0])
    inputs = first.inputs(TAGS[0], None, anchors)
    wanted = first.pairs(target, axis, anchors)
    rounds = 200
    for _ in range(5):
        with (
            Index.open(first.index.path) as index,
            ADMatch(first.index, [target, "nosuch"], axis) as operator,
            ThreadPoolExecutor(4) as pool,
        ):

            def work(_: int, operator: ADMatch = operator) -> list[Pairs]:
                return [counted(operator.feed(inputs)) for _ in range(rounds)]

            found = [*pool.map(work, range(4))]
            assert all(each == wanted for answers in found for each in answers)
            counters = operator.counters
            assert counters.inputs == counters.ad_probes == 4 * rounds * len(inputs)
            assert counters.pairs == 4 * rounds * wanted.total()
            assert index.generation == second.index.generation
            operator.move(index)
            assert len(operator.feed(Inputs.empty(labelled=False))) == 0


def test_an_input_of_no_segment_is_refused(world: World) -> None:
    inputs = world.inputs(TAGS[0], None, everything(world, TAGS[0]))
    with ADMatch(world.index, TAGS[0], "child") as operator:
        for segment in (-1, len(world.index.segments)):
            wrong = replace(inputs, segment=np.full(len(inputs), segment, np.int32))
            with pytest.raises(IndexError, match="a segment that is not among"):
                operator.feed(wrong)
        assert counted(operator.feed(inputs)) == world.pairs(
            TAGS[0], Axis.CHILD, everything(world, TAGS[0])
        )


def test_tags_are_given_as_names_or_tags_each_once(world: World) -> None:
    a, b = TAGS[:2]
    anchors = everything(world, a)
    inputs = world.inputs(a, "path", anchors)
    wanted = all_pairs(world, [a, b], Axis.DESCENDANT, anchors)
    several: list[Sequence[Tag | str]] = [["a", "b"], (b, "a", a), [a, "b", "b"]]
    for tags in several:
        for operator in (
            ADMatch(world.index, tags, "descendant"),
            CMatch(world.index, tags, "descendant", "path", threads=0),
        ):
            assert counted(operator.feed(inputs)) == wanted
            assert sorted(operator.tags) == [a, b]
            operator.close()
    operator = ADMatch(world.index, [*"abcde"], "child")
    assert repr(operator) == "<ADMatch child::a|b|c|... (5 tags)>"


def test_an_operator_of_many_tags_opens_no_list_before_it_is_fed(world: World) -> None:
    class Counting:
        """A segment that counts what is asked of it."""

        def __init__(self, segment: Segment) -> None:
            self._segment = segment

        def __getattr__(self, name: str) -> Any:
            if name in ("related", "probe", "prepare", "cold"):
                asked.append(name)
            return getattr(self._segment, name)

    asked: list[str] = []
    index = Index.open(world.index.path)
    index._segments = tuple(map(Counting, index.segments))  # type: ignore[arg-type]
    tags = [f"tag{number}" for number in range(100)]
    with ADMatch(index, tags, "child"), CMatch(index, tags, "child", "path"):
        assert not asked
    index.close()


def test_a_tag_that_is_not_there_matches_nothing(world: World) -> None:
    inputs = world.inputs(TAGS[0], "path", everything(world, TAGS[0]))
    for axis in AXES:
        with CMatch(world.index, "nothing", axis, "path") as operator:
            assert len(operator.feed(inputs)) + len(operator.drain()) == 0
        with ADMatch(world.index, "nothing", axis) as rival:
            assert len(rival.feed(inputs)) == 0


def test_a_batch_of_nothing_is_taken(world: World) -> None:
    for scheme in (None, "path"):
        none = Inputs.of(world.index, TAGS[0], scheme, [], [])
        assert len(none) == 0
        with ADMatch(world.index, TAGS[0], "child") as rival:
            assert len(rival.feed(none)) == 0
    with CMatch(world.index, TAGS[0], "child", "path") as operator:
        assert len(operator.feed(none)) == 0
        assert len(operator.poll()) == 0
        assert len(operator.drain()) == 0


def test_an_unknown_scheme_is_named(world: World, worlds: list[list[World]]) -> None:
    with pytest.raises(UnknownScheme, match="no scheme 'nothing'"):
        CMatch(world.index, TAGS[0], "child", "nothing")


# --- the index is asked once a label --------------------------------------------------------


def test_each_label_is_scanned_for_once(world: World) -> None:
    for scheme in SCHEMES:
        inputs = world.inputs(TAGS[0], scheme, everything(world, TAGS[0]))
        assert inputs.rank is not None
        labels = {*zip(inputs.segment.tolist(), inputs.rank.tolist(), strict=True)}
        for few in (None, -1):
            with CMatch(world.index, TAGS[1], "descendant", scheme, threads=2, few=few) as operator:
                for _ in range(3):
                    operator.feed(inputs)
                operator.drain()
                operator.feed(inputs)
                counters = operator.counters
            assert counters.index_scans == counters.unique_labels == len(labels)
            assert counters.inputs == 4 * len(inputs)


def test_candidates_of_segments_that_stay_are_kept(worlds: list[list[World]]) -> None:
    before, after = worlds[2][1:3]
    a = TAGS[0]
    anchors = everything(before, a)
    with CMatch(before.index, a, "descendant", "path", threads=0) as operator:
        first = operator.feed(before.inputs(a, "path", anchors))
        scans = operator.counters.index_scans
        assert len(operator.move(after.index)) == 0
        second = operator.feed(after.inputs(a, "path", anchors))
        assert operator.counters.index_scans == scans
        assert counted(first) == counted(second)


def test_what_was_removed_is_not_matched_after_a_move(worlds: list[list[World]]) -> None:
    before, after = worlds[2][:2]
    a = TAGS[0]
    with CMatch(before.index, a, "ancestor", "path", threads=1, budget=500, few=-1) as operator:
        answers = [operator.feed(before.inputs(a, "path", everything(before, a)))]
        answers.append(operator.move(after.index))
        assert counted(*answers) == before.pairs(a, Axis.ANCESTOR, everything(before, a))
        answers = [operator.feed(after.inputs(a, "path", everything(after, a))), operator.drain()]
        assert counted(*answers) == after.pairs(a, Axis.ANCESTOR, everything(after, a))


# --- the index is asked first ---------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 1])
def test_labels_with_few_candidates_are_complete_at_once(world: World, threads: int) -> None:
    a = TAGS[0]
    anchors = everything(world, a)
    inputs = world.inputs(a, "vist", anchors)
    with CMatch(world.index, a, "descendant", "vist", threads=threads) as operator:
        matches = operator.feed(inputs)
        assert not operator._workers
        assert counted(matches) == world.pairs(a, Axis.DESCENDANT, anchors)
        counters = operator.counters
        assert counters.index_scans == counters.unique_labels > 1
        # Inputs were never stored: only lists of candidates are held.
        assert counters.bytes_held <= counters.peak_bytes < 200 * counters.candidates


def test_only_labels_with_many_candidates_go_to_threads(world: World) -> None:
    class Telling(CMatch):
        probed: list[int]

        def _probe(self, segment: Segment, task: Any) -> None:
            counts = segment.counts(
                self.scheme, self.tags[0], task.ranks, task.lasts, self.axis.side
            )
            self.probed += counts.tolist()
            super()._probe(segment, task)

    a = TAGS[0]
    anchors = everything(world, a)
    inputs = world.inputs(a, "vist", anchors)
    with Telling(world.index, a, "descendant", "vist", threads=2, few=1) as operator:
        operator.probed = []
        answers = [operator.feed(inputs), operator.drain()]
        assert counted(*answers) == world.pairs(a, Axis.DESCENDANT, anchors)
        counters = operator.counters
        assert 0 < len(operator.probed) < counters.index_scans
        assert min(operator.probed) > 0
        assert sum(operator.probed) >= counters.candidates - len(world.index.segments)


# --- rented labels --------------------------------------------------------------------------


def one_label(world: World) -> tuple[list[tuple[int, Known]], Inputs]:
    """Anchors of one label that have matches, one of them again and again."""
    a = TAGS[0]
    for node in world.known[a]:
        anchors = [(id_, node) for id_ in range(12)]
        if world.pairs(a, Axis.DESCENDANT, anchors):
            return anchors, world.inputs(a, "path", anchors)
    raise AssertionError


def candidates_of(world: World, inputs: Inputs) -> int:
    assert inputs.rank is not None
    assert inputs.last is not None
    segment = world.index.segments[int(inputs.segment[0])]
    found = segment.counts("path", TAGS[0], inputs.rank[:1], inputs.last[:1], "descendant")
    return int(found[0])


def test_a_label_is_rented_before_it_is_fetched(world: World) -> None:
    anchors, inputs = one_label(world)
    number = candidates_of(world, inputs)
    seen = []
    with CMatch(
        world.index, TAGS[0], "descendant", "path", rent=Rent(5 - 0.5 * number, 0.5)
    ) as operator:
        answers = []
        for batch in batches(inputs, 2):
            answers.append(operator.feed(batch))
            counters = operator.counters
            seen.append((counters.deferred, counters.ad_probes, counters.index_scans))
        answers.append(operator.drain())
    assert seen == [(2, 2, 0), (4, 4, 0), (5, 5, 1), (5, 5, 1), (5, 5, 1), (5, 5, 1)]
    assert counted(*answers) == world.pairs(TAGS[0], Axis.DESCENDANT, anchors)
    assert counters.unique_labels == 1
    assert counters.pairs == sum(map(len, answers))


def test_a_batch_with_as_many_inputs_as_are_to_be_deferred_has_its_label_fetched(
    world: World,
) -> None:
    anchors, inputs = one_label(world)
    with CMatch(world.index, TAGS[0], "descendant", "path", rent=Rent(12, 0)) as operator:
        matches = operator.feed(inputs)
        assert counted(matches) == world.pairs(TAGS[0], Axis.DESCENDANT, anchors)
        assert (operator.counters.deferred, operator.counters.index_scans) == (0, 1)


def test_a_label_without_candidates_is_never_rented(world: World) -> None:
    a, key = TAGS[0], TAGS[-1]
    anchors = everything(world, key)
    with CMatch(world.index, a, "descendant", "path", rent=Rent(math.inf, 0)) as operator:
        assert not len(operator.feed(world.inputs(key, "path", anchors)))
        assert operator.counters.deferred == 0


def test_a_label_may_be_rented_for_ever(worlds: list[list[World]]) -> None:
    a = TAGS[0]
    rent = Rent(math.inf, 0)
    with CMatch(worlds[2][0].index, a, "ancestor", "path", rent=rent) as operator:
        # Also in the generations to come.
        for world in worlds[2]:
            operator.move(world.index)
            anchors = everything(world, a)
            for _ in range(2):
                found = [
                    operator.feed(each) for each in batches(world.inputs(a, "path", anchors), 7)
                ]
                assert counted(*found) == world.pairs(a, Axis.ANCESTOR, anchors)
        counters = operator.counters
    assert counters.candidates == 0
    assert counters.deferred == counters.ad_probes > 0
    assert counters.bytes_held == 0


def test_what_is_rented_stays_so_after_a_move(worlds: list[list[World]]) -> None:
    before, after = worlds[4][1:3]
    anchors, inputs = one_label(before)
    with CMatch(before.index, TAGS[0], "descendant", "path", rent=Rent(20, 0)) as operator:
        operator.feed(inputs)
        operator.move(after.index)
        moved = after.inputs(TAGS[0], "path", anchors)
        assert counted(operator.feed(moved)) == after.pairs(TAGS[0], Axis.DESCENDANT, anchors)
        assert (operator.counters.deferred, operator.counters.index_scans) == (20, 1)


def test_a_rent_may_be_changed_at_any_time(world: World) -> None:
    anchors, inputs = one_label(world)
    other = [*everything(world, TAGS[0])]
    with CMatch(world.index, TAGS[0], "descendant", "path") as operator:
        operator.rent = Rent(math.inf, 0)
        assert counted(operator.feed(inputs)) == world.pairs(TAGS[0], Axis.DESCENDANT, anchors)
        assert operator.counters.deferred == len(inputs)
        operator.rent = FETCH_ALL
        found = operator.feed(world.inputs(TAGS[0], "path", other))
        assert counted(found) == world.pairs(TAGS[0], Axis.DESCENDANT, other)
        assert operator.counters.candidates > 0


def test_a_batch_beyond_what_is_ahead_is_handed_back(world: World) -> None:
    _, inputs = one_label(world)
    seen: list[int] = []

    class Watched(CMatch):
        def _handed_back(self, inputs: Inputs) -> Any:
            seen.append(self.counters.inputs)
            self.ahead = 4
            return super().feed(inputs)

    with Watched(world.index, TAGS[0], "descendant", "path") as operator:
        operator.ahead = 2
        found = [operator.feed(batch) for batch in batches(inputs, 1)]
        assert seen == [2, 6, 10]
        assert sum(map(len, found)) == operator.counters.pairs


# --- nothing waits --------------------------------------------------------------------------


def test_pairs_come_before_the_input_ends(world: World) -> None:
    a = TAGS[0]
    anchors = everything(world, a)
    inputs = world.inputs(a, "path", anchors)
    with CMatch(world.index, a, "descendant", "path", budget=300, partition=2, few=-1) as operator:
        got = 0
        for batch in batches(inputs, 1):
            got += len(operator.feed(batch))
            while not got:
                done = operator.counters.index_scans == operator.counters.unique_labels
                got += len(operator.poll())
                if done:
                    break
            if got:
                break
        assert got > 0
        assert operator.counters.inputs < len(inputs)


def test_feed_does_not_wait_for_probes(world: World) -> None:
    class Slow(CMatch):
        def _probe(self, segment: Segment, task: Any) -> None:
            time.sleep(0.05)
            super()._probe(segment, task)

    a = TAGS[0]
    anchors = everything(world, a)
    inputs = world.inputs(a, "path", anchors)
    with Slow(world.index, a, "descendant", "path", few=-1) as operator:
        began = time.perf_counter()
        first = operator.feed(inputs)
        assert time.perf_counter() - began < 0.04
        assert len(first) == 0
        assert counted(operator.drain()) == world.pairs(a, Axis.DESCENDANT, anchors)


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0, 100, 300, 1000, 5000])
def test_memory_stays_within_the_budget(worlds: list[list[World]], budget: int) -> None:
    for world in (generations[0] for generations in worlds):
        for axis in AXES:
            inputs = world.inputs(TAGS[0], "vist", everything(world, TAGS[0]))
            for few in (-1, None):
                with CMatch(
                    world.index,
                    TAGS[0],
                    axis,
                    "vist",
                    budget=budget,
                    partition=2,
                    vector=3,
                    few=few,
                ) as operator:
                    for batch in batches(inputs, 3):
                        operator.feed(batch)
                        assert operator.counters.bytes_held <= budget
                    operator.drain()
                    operator.feed(inputs)
                    counters = operator.counters
                assert counters.peak_bytes <= budget
                assert operator.counters.bytes_held == 0
                if budget == 0 and counters.candidates:
                    assert counters.spills > 0


def test_counters_add_up(world: World) -> None:
    inputs = world.inputs(TAGS[0], "path", everything(world, TAGS[0]))
    with CMatch(world.index, TAGS[0], "descendant", "path", threads=0) as operator:
        operator.feed(inputs)
        one = operator.counters
    both = one + one
    assert both.inputs == 2 * len(inputs)
    assert both.to_json()["pairs"] == 2 * one.pairs
    assert one.probe_seconds > 0
    assert one.query_seconds > 0
    assert one.table_bytes > 0
    assert np.isfinite([*both.to_json().values()]).all()


# --- new labels that CClean asks for itself -------------------------------------------------


def fed(operator: CMatch, anchors: Sequence[tuple[int, Known]], world: World, tag: Tag) -> Pairs:
    """The pairs of anchors that come a few at a time."""
    found = counted()
    for low in range(0, len(anchors), 5):
        inputs = world.inputs(tag, operator.scheme, anchors[low : low + 5])
        found += counted(operator.feed(inputs))
    return found + counted(operator.drain())


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_new_labels_are_learnt_alike_in_both_ways(
    worlds: list[list[World]], axis: Axis, scheme: str
) -> None:
    """Natively or in Python: the same pairs and the same counts, whatever was removed."""
    for world in [each for generations in worlds for each in generations]:
        tag = TAGS[0]
        anchors = [*enumerate(world.known[tag])]
        counts = []
        for natively in (True, False):
            with CMatch(world.index, tag, axis, scheme, threads=0) as operator:
                if not natively:
                    operator._clean.most = operator._clean.each = -1
                assert fed(operator, anchors, world, tag) == world.pairs(tag, axis, anchors)
                counters = operator.counters
                counts.append(
                    (
                        counters.index_scans,
                        counters.unique_labels,
                        counters.candidates,
                        counters.inputs,
                        counters.pairs,
                    )
                )
                assert natively or operator._scans == counters.index_scans
        assert counts[0] == counts[1]


def test_what_is_learnt_natively_is_counted(world: World) -> None:
    tag = TAGS[0]
    anchors = [*enumerate(world.known[tag])]
    with CMatch(world.index, tag, "descendant", "vist", threads=0) as operator:
        # The first time, lists are opened by whoever can say what is wrong with them.
        first = fed(operator, anchors[:1], world, tag)
        opened = operator._scans
        fed(operator, anchors, world, tag)
        assert operator._clean.counters.index_scans > 0
        assert operator.counters.index_scans > opened
        assert first == world.pairs(tag, Axis.DESCENDANT, anchors[:1])


def test_too_many_candidates_are_not_fetched_natively(world: World) -> None:
    tag = TAGS[0]
    anchors = [*enumerate(world.known[tag])]
    with CMatch(world.index, tag, "descendant", "path", threads=0) as operator:
        fed(operator, anchors[:1], world, tag)
        operator._clean.most = operator._clean.each = -1
        natively = operator._clean.counters.index_scans
        assert fed(operator, anchors, world, tag) == world.pairs(tag, Axis.DESCENDANT, anchors)
        assert operator._clean.counters.index_scans == natively
        assert operator.counters.index_scans > natively


def test_a_segment_without_nodes_of_the_tag_is_asked(world: World) -> None:
    anchors = [*enumerate(world.known[TAGS[0]])]
    with CMatch(world.index, "nosuch", "descendant", "vist", threads=0) as operator:
        assert not fed(operator, anchors, world, TAGS[0])
        counters = operator.counters
        assert counters.index_scans == counters.unique_labels > 0
