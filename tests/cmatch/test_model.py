"""The cost model against its own terms, and against what operators count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmatch import (
    DEFAULT_UNITS,
    ADMatch,
    Axis,
    Choice,
    CMatch,
    Cost,
    CostModel,
    Profile,
    Workload,
)
from cmatch import profile as profiles
from cmatch.model import ad_doublings, list_doublings
from cmatch.profile import Clusters, Extent
from labeling.runs import Tag
from tests.cmatch.oracle import AXES, SCHEMES, TAGS, World, batches

AD, PATH, SPLIT = Choice("admatch"), Choice("cmatch", "path"), Choice("cmatch", "path", split=True)
MODEL = CostModel(DEFAULT_UNITS)


def profile(
    cps: list[int], candidates: list[int], *, fanout: float = 0.5, matches: int = 1000
) -> Profile:
    """A join by its labels."""
    clusters = Clusters(np.array(cps), np.array(candidates), np.ones(len(cps)))
    extent = Extent(matches, 26 * matches, 4080, 1 << 24)
    lists: dict[str, tuple[Extent, ...]] = {"path": (extent,)}
    return Profile(
        Axis.DESCENDANT,
        sum(cps),
        matches,
        fanout,
        1,
        matches,
        {"path": clusters},
        (extent,),
        lists,
        {"path": (replace(extent, rows=len(cps), size=24 * len(cps)),)},
    )


LABELS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 5000)), min_size=1, max_size=30)
LOADS = st.builds(
    Workload,
    st.integers(1, 5000),
    st.sampled_from([1, 16, 300]),
    st.booleans(),
    st.booleans(),
)


def of(labels: list[tuple[int, int]], **more: float) -> Profile:
    return profile([cps for cps, _ in labels], [c for _, c in labels], **more)  # type: ignore[arg-type]


# --- monotone in what must raise it ---------------------------------------------------------


@given(LABELS, LOADS, st.integers(1, 5000))
def test_more_inputs_cost_more(labels: list[tuple[int, int]], load: Workload, more: int) -> None:
    whole = replace(load, inputs=load.inputs + more)
    for choice in (AD, PATH):
        before = MODEL.cost(of(labels), choice, load).total
        assert before <= MODEL.cost(of(labels), choice, whole).total * (1 + 1e-9)


@given(LABELS, LOADS, st.integers(0, 29), st.integers(1, 10_000))
def test_more_candidates_cost_cmatch_more_and_admatch_nothing(
    labels: list[tuple[int, int]], load: Workload, at: int, more: int
) -> None:
    at %= len(labels)
    grown = [*labels]
    grown[at] = labels[at][0], labels[at][1] + more
    assert MODEL.cost(of(labels), PATH, load) < MODEL.cost(of(grown), PATH, load)
    assert MODEL.cost(of(labels), AD, load) == MODEL.cost(of(grown), AD, load)


@given(LABELS, LOADS, st.integers(0, 29), st.integers(1, 10_000))
def test_labels_on_the_way_up_cost_cmatch_more_and_admatch_nothing(
    labels: list[tuple[int, int]], load: Workload, at: int, more: int
) -> None:
    climbs = np.zeros(len(labels), np.int64)
    flat = of(labels)
    climbs[at % len(labels)] = more
    deep = replace(flat, schemes={"path": replace(flat.schemes["path"], climbs=climbs)})
    assert MODEL.cost(flat, PATH, load) < MODEL.cost(deep, PATH, load)
    assert MODEL.cost(flat, AD, load) == MODEL.cost(deep, AD, load)
    clusters = deep.schemes["path"]
    if any(c for _, c in labels):
        fetch = MODEL.fetch_one(100.0, clusters)
        assert fetch > MODEL.fetch_one(100.0, flat.schemes["path"])
        assert MODEL.fetch(np.array([100]), clusters) == pytest.approx([fetch])


@given(st.integers(1, 1000), st.integers(0, 1 << 24), st.integers(0, 1 << 24))
def test_lists_are_the_farther_the_more_there_are_of_them(lists: int, some: int, more: int) -> None:
    assert list_doublings(lists, some) <= list_doublings(lists, some + more)
    assert list_doublings(lists, some) <= list_doublings(lists + 1, some)
    assert list_doublings(1, some) == 0


@given(st.integers(0, 1 << 28), st.integers(1, 1 << 28), st.integers(0, 1 << 24))
def test_a_list_is_the_farther_the_longer_it_is_and_the_more_of_it_is_looked_at(
    matches: int, places: int, more: int
) -> None:
    assert ad_doublings(matches, places) <= ad_doublings(matches + more, places)
    assert ad_doublings(matches, places) <= ad_doublings(matches, places + more)
    assert ad_doublings(matches, 1) == 0


@given(LABELS, LOADS)
def test_labels_that_fall_apart_cost_cmatch_more(
    labels: list[tuple[int, int]], load: Workload
) -> None:
    """The same anchors under twice the labels, each with the same candidates."""
    halves = [(half, c) for cps, c in labels for half in (cps // 2, cps - cps // 2) if half]
    before, after = (MODEL.cost(of(each), PATH, load) for each in (labels, halves))
    assert before.index_access <= after.index_access * (1 + 1e-9)
    assert MODEL.cost(of(labels), AD, load) == MODEL.cost(of(halves), AD, load)


@given(LABELS, LOADS, st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_less_memory_costs_more(
    labels: list[tuple[int, int]], load: Workload, some: int, more: int
) -> None:
    scarce, ample = CostModel(DEFAULT_UNITS, some), CostModel(DEFAULT_UNITS, some + more)
    assert (
        ample.cost(of(labels), PATH, load).spills
        <= scarce.cost(of(labels), PATH, load).spills * (1 + 1e-9) + 1e-15
    )
    assert scarce.cost(of(labels), AD, load) == ample.cost(of(labels), AD, load)


@given(LABELS, LOADS)
def test_cold_pages_cost_more(labels: list[tuple[int, int]], load: Workload) -> None:
    hot, cold = (replace(load, cold=each) for each in (False, True))
    for choice in (AD, PATH, SPLIT):
        warm, waiting = (MODEL.cost(of(labels), choice, each) for each in (hot, cold))
        assert warm.cold_pages == 0
        assert warm + Cost(cold_pages=waiting.cold_pages) == waiting
    assert MODEL.cost(of(labels), AD, cold).cold_pages > 0


@given(LABELS, LOADS, st.floats(0, 100), st.floats(0, 100))
def test_more_pairs_cost_more(
    labels: list[tuple[int, int]], load: Workload, some: float, more: float
) -> None:
    for choice in (AD, PATH):
        few, many = (
            MODEL.cost(of(labels, fanout=each), choice, load) for each in (some, some + more)
        )
        assert few.total <= many.total * (1 + 1e-9)


@given(LABELS, LOADS)
def test_every_unit_cost_counts_and_none_twice(
    labels: list[tuple[int, int]], load: Workload
) -> None:
    """The model is linear in the unit costs: all twice as high, all costs twice as high."""
    names = [name for name in DEFAULT_UNITS.__slots__ if name != "machine"]
    twice = CostModel(DEFAULT_UNITS.scaled(**dict.fromkeys(names, 2.0)))
    for choice in (AD, PATH):
        single, double = (each.cost(of(labels), choice, load).total for each in (MODEL, twice))
        assert double == pytest.approx(2 * single)


@given(LABELS, st.integers(1, 5000), st.integers(1, 300))
def test_expectations_stay_within_what_is_there(
    labels: list[tuple[int, int]], inputs: int, batch: int
) -> None:
    known = of(labels)
    for once in (True, False):
        for choice in (PATH, SPLIT):
            found = MODEL.expect(known, choice, Workload(inputs, batch, once))
            assert 0 <= found.unique_labels <= len(labels) + 1e-9
            assert found.unique_labels <= inputs + 1e-6
            assert found.fresh_calls <= found.calls + 1e-9
            assert found.scan_calls <= found.fresh_calls + 1e-9
            assert found.fresh_calls <= found.unique_labels + 1e-6
            assert 0 <= found.aside <= inputs * (1 + 1e-9)


def test_a_split_leaves_the_labels_that_do_not_pay() -> None:
    one = profile([5000, 1, 1], [4, 4000, 4000])
    found = MODEL.expect(one, SPLIT, Workload(5002))
    assert found.unique_labels == 1
    assert found.candidates == 4
    assert found.aside == pytest.approx(2)
    costs = MODEL.estimate(one, Workload(5002), [AD, PATH, SPLIT])
    assert costs[SPLIT] < costs[PATH] < costs[AD]


# --- exact where it can be ------------------------------------------------------------------


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_predicted_is_what_operators_count(
    worlds: list[list[World]], axis: Axis, scheme: str
) -> None:
    """If all anchors of a tag come, scans, labels and candidates are exactly as predicted."""
    for world in (generations[0] for generations in worlds[:4]):
        for tag in world.tags:
            inputs = world.inputs(tag, scheme, [*enumerate(world.known[tag])])
            for target in (TAGS[0], TAGS[2]):
                known = Profile.of(world.index, tag, target, axis)
                assert known.anchors == len(inputs)
                load = Workload(len(inputs), 7)
                expected = CostModel(DEFAULT_UNITS).expect(known, Choice("cmatch", scheme), load)
                with CMatch(world.index, target, axis, scheme, threads=0) as operator:
                    for batch in batches(inputs, 7):
                        operator.feed(batch)
                    counted = operator.counters
                assert expected.unique_labels == counted.unique_labels
                assert expected.index_scans == counted.index_scans
                assert expected.candidates == counted.candidates
                assert expected.pairs == pytest.approx(counted.pairs)
                if scheme != "prix" and axis.downwards:
                    assert expected.climbed == 0
                elif counted.candidates:
                    assert expected.climbed or axis is Axis.SELF or scheme == "prix"
                with ADMatch(world.index, target, axis) as rival:
                    pairs = sum(len(rival.feed(batch)) for batch in batches(inputs, 7))
                    by_ad = MODEL.expect(known, AD, load)
                    assert by_ad.aside == rival.counters.index_scans
                    assert by_ad.calls == -(-len(inputs) // 7)
                assert by_ad.pairs == pytest.approx(pairs)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_part_of_the_anchors_brings_about_as_many_labels_as_expected(
    worlds: list[list[World]], data: st.DataObject
) -> None:
    world = data.draw(st.sampled_from([generations[0] for generations in worlds]))
    tag = data.draw(st.sampled_from(world.tags))
    scheme = data.draw(st.sampled_from(SCHEMES))
    nodes = [*enumerate(world.known[tag])]
    number = data.draw(st.integers(1, len(nodes)))
    whole = world.inputs(tag, scheme, nodes)
    assert whole.rank is not None
    key = whole.segment.astype(np.int64) << 32 | whole.rank
    randomly = np.random.default_rng(1)
    drawn = [len(np.unique(key[randomly.permutation(len(key))[:number]])) for _ in range(60)]
    expected = MODEL.expect(
        Profile.of(world.index, tag, TAGS[0], "descendant"),
        Choice("cmatch", scheme),
        Workload(number),
    )
    assert expected.unique_labels == pytest.approx(np.mean(drawn), rel=0.1, abs=1.0)


def test_a_sample_stands_for_all_labels(
    worlds: list[list[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (world, tag) = max(
        ((each[0], tag) for each in worlds for tag in each[0].tags),
        key=lambda pair: len(pair[0].known[pair[1]]),
    )
    exact = Profile.of(world.index, tag, TAGS[0], "descendant").schemes["vist"]
    monkeypatch.setattr(profiles, "MOST", 16)
    monkeypatch.setattr(profiles, "STRETCHES", 8)
    some = Profile.of(world.index, tag, TAGS[0], "descendant").schemes["vist"]
    assert exact.exact
    assert not some.exact
    assert len(some.cps) < len(exact.cps)
    assert some.anchors == pytest.approx(exact.anchors)
    assert some.labels == pytest.approx(exact.labels, rel=1.0)


def test_what_is_not_there_costs_next_to_nothing(world: World) -> None:
    for anchors, tag in (("nothing", TAGS[0]), (TAGS[0], Tag(0, "nothing"))):
        known = Profile.of(world.index, anchors, tag, "descendant")
        costs = MODEL.estimate(known, Workload(1))
        assert set(costs) == {AD, *(Choice("cmatch", scheme) for scheme in SCHEMES)}
        assert all(cost.total < 1e-3 for cost in costs.values())
        assert known.fanout == 0
