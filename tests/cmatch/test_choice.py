"""The cost model: what it says of a join is what operators count, as far as that is to be known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fmware.cmatch import (
    DEFAULT_UNITS,
    Axis,
    Choice,
    CMatch,
    Cost,
    CostModel,
    Figures,
    Rent,
    Workload,
)
from fmware.cmatch import figures as figures_module
from fmware.cmatch.choice import ADMATCH, Counts
from fmware.cmatch.figures import Labels, fewest_labels
from fmware.cmatch.rent import FETCH_ALL
from tests.cmatch.oracle import AXES, SCHEMES, TAGS

if TYPE_CHECKING:
    from tests.cmatch.oracle import World


def simple(
    *rows: tuple[float, float], anchors: int = 1000, matches: int = 5000, total: int | None = None
) -> Figures:
    """A join of one scheme; rows are how many anchors share a label, and its candidates."""
    sharing, candidates = np.array(rows, np.float64).T
    labels = Labels(
        round((1 / sharing).mean() * anchors) if total is None else total, sharing, candidates
    )
    return Figures(anchors, matches, float(anchors), {"path": labels})


# --- choices and costs ----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["admatch", "cmatch/path", "cmatch/vist+admatch"])
def test_choices_have_names(text: str) -> None:
    assert str(Choice.parse(text)) == text


@pytest.mark.parametrize("text", ["", "cmatch", "cmatch/", "admatch/path", "auto"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no way to match"):
        Choice.parse(text)


def test_a_cost_is_the_sum_of_its_parts() -> None:
    cost = Cost(1.0, 2.0, 3.0, 4.0)
    assert cost.total == 10.0
    found = cost.to_json()
    assert found.pop("total") == sum(found.values())


# --- figures --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", AXES)
def test_figures_are_counted(worlds: list[list[World]], axis: Axis) -> None:
    """Nodes, labels and pairs are exact, where no record was removed."""
    world = worlds[1][0]
    for above in (TAGS[:1], TAGS[:3], TAGS):
        below = TAGS[1:4]
        found = Figures.of(world.index, above, below, axis)
        nodes = [node for tag in above for node in world.known[tag]]
        assert found.anchors == len(nodes)
        assert found.matches == sum(len(world.known[tag]) for tag in below)
        pairs = sum(world.pairs(tag, axis, [*enumerate(nodes)]).total() for tag in below)
        assert found.pairs == pairs
        for scheme in SCHEMES:
            inputs = [world.inputs(tag, scheme, [*enumerate(world.known[tag])]) for tag in above]
            seen = {
                (place, rank)
                for each in inputs
                if each.rank is not None
                for place, rank in zip(each.segment.tolist(), each.rank.tolist(), strict=True)
            }
            assert found.schemes[scheme].total == len(seen)
            assert (found.schemes[scheme].sharing >= 1).all()


def test_any_anchor_means_all_elements(world: World) -> None:
    found = Figures.of(world.index, None, TAGS[:1], Axis.DESCENDANT)
    elements = [tag for tag in TAGS if tag.kind == 0]
    assert found.anchors == Figures.of(world.index, elements, TAGS[:1], Axis.DESCENDANT).anchors


def test_what_the_index_does_not_hold_has_no_figures(world: World) -> None:
    found = Figures.of(world.index, TAGS[:1], (), Axis.CHILD)
    assert (found.matches, found.pairs, found.fanout) == (0, 0.0, 0.0)
    none = Figures.of(world.index, (), TAGS[:1], Axis.CHILD)
    assert (none.anchors, none.fanout) == (0, 0.0)
    model = CostModel(none, DEFAULT_UNITS)
    assert model.best(model.costs(model.expected)) in model.costs(model.expected)


def test_of_many_tags_some_are_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Figures.of(world.index, TAGS, TAGS, Axis.DESCENDANT)
    monkeypatch.setattr(figures_module, "MOST_TAGS", 1)
    some = Figures.of(world.index, TAGS, TAGS, Axis.DESCENDANT)
    assert (some.anchors, some.matches, some.pairs) == (whole.anchors, whole.matches, whole.pairs)
    assert len(some.schemes["path"].sharing) <= len(whole.schemes["path"].sharing)


def test_the_scheme_with_the_fewest_labels(world: World) -> None:
    found = Figures.of(world.index, TAGS[:2], TAGS, Axis.CHILD)
    least = min(labels.total for labels in found.schemes.values())
    assert found.schemes[fewest_labels(world.index, TAGS[:2])].total == least


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scans_and_candidates_are_those_that_cmatch_counts(world: World, scheme: str) -> None:
    """If every anchor is in the sample and all of them come, again and again."""
    a, b = TAGS[:2]
    anchors = [*enumerate(world.known[a])]
    inputs = world.inputs(a, scheme, anchors)
    with CMatch(world.index, b, "descendant", scheme, threads=0) as operator:
        operator.feed(inputs)
        counters = operator.counters
    assert inputs.rank is not None
    assert inputs.last is not None
    found = Figures.of(world.index, (a,), (b,), Axis.DESCENDANT)
    load = Workload(1000.0 * len(anchors))
    counts = CostModel(found, DEFAULT_UNITS)._counts(scheme, load, FETCH_ALL)
    # Removed records count in the index, and a sample is a sample.
    assert counts.labels * load.inputs == pytest.approx(found.schemes[scheme].total, rel=0.01)
    assert counts.labels * load.inputs >= counters.unique_labels * 0.99
    if counters.candidates:
        assert 0.3 < counts.candidates * load.inputs / counters.candidates < 5


# --- estimates ------------------------------------------------------------------------------


def test_few_labels_of_many_anchors_pay_and_many_do_not() -> None:
    clustered = CostModel(simple((500, 4)), DEFAULT_UNITS)
    apart = CostModel(simple((1, 400)), DEFAULT_UNITS)
    load = Workload(1000, 16)
    assert clustered.best(clustered.costs(load)).operator == "cmatch"
    assert apart.best(apart.costs(load)) == ADMATCH


def test_more_inputs_make_labels_cheaper() -> None:
    model = CostModel(simple((5, 40)), DEFAULT_UNITS)
    choice = Choice("cmatch", "path")
    totals = [model.cost(choice, Workload(inputs)).total for inputs in (10, 100, 1000, 10**5)]
    assert totals == sorted(totals, reverse=True)


def test_fewer_labels_come_if_arrivals_are_skewed() -> None:
    model = CostModel(simple((5, 40)), DEFAULT_UNITS)
    costs = [model.cost(Choice("cmatch", "path"), Workload(500), skew=skew) for skew in (1, 0.1)]
    assert costs[0].index_access > 5 * costs[1].index_access


def test_larger_batches_share_calls() -> None:
    model = CostModel(simple((5, 40)), DEFAULT_UNITS)
    for choice in (ADMATCH, Choice("cmatch", "path")):
        one, many = (model.cost(choice, Workload(1000, batch)) for batch in (1, 100))
        assert one.calls == pytest.approx(100 * many.calls)
        assert one.index_access == many.index_access


def test_what_memory_has_no_room_for_is_looked_for_on_disk() -> None:
    load = Workload(10**5)
    ample, short = (CostModel(simple((5, 400)), DEFAULT_UNITS, each) for each in (1 << 30, 1000))
    choice = Choice("cmatch", "path")
    assert ample.cost(choice, load).spills == 0
    assert short.cost(choice, load).spills > 0


def test_a_rent_is_what_fetching_costs_in_inputs() -> None:
    model = CostModel(simple((100, 400)), DEFAULT_UNITS)
    units = model.units
    load = Workload(1000, 16)
    rent = model.rent(Choice("cmatch", "path", rents=True), load)
    assert rent.candidate / rent.label == pytest.approx(units.candidate / units.list)
    assert model.rent(Choice("cmatch", "path"), load) == model.rent(ADMATCH, load) == FETCH_ALL
    # The more inputs of a batch share a call of ADMatch, the longer labels are rented.
    few, many = (
        model.observed_rent(Counts(0, 0, 0, share, 1.0, 0, 0), 64) for share in (0.01, 1.0)
    )
    assert few.label < many.label


def test_labels_are_deferred_as_long_as_the_rent_says() -> None:
    model = CostModel(simple((10, 100)), DEFAULT_UNITS)
    rent = Rent(5.0, 0.0)
    few, many = (model._counts("path", Workload(inputs, 1), rent) for inputs in (100, 10**5))
    # One arrival of each label, and then a thousand.
    assert few.deferred == 1.0
    assert few.candidates == 0.0
    assert many.deferred == pytest.approx(0.005)
    assert many.candidates > 0
    assert model._counts("path", Workload(100, 1), Rent(math.inf, 0.0)).deferred == 1.0


def test_a_share_that_rounding_makes_more_than_all_is_all() -> None:
    model = CostModel(simple((10, 50)), DEFAULT_UNITS, 1 << 30)
    counts = Counts(0.1, 0.0, 0.0, 1.0, 5.0, 1.0, 0.0)
    rounded = counts._replace(deferred=1.0 + 1e-12)
    assert model.by_label(rounded, 2.5) == model.by_label(counts, 2.5)


def test_why_names_the_other_way_and_what_decided() -> None:
    model = CostModel(simple((1, 4000)), DEFAULT_UNITS)
    costs = model.costs(Workload(1000))
    costs = {
        ADMATCH: costs[ADMATCH],
        Choice("cmatch", "path"): model.cost(Choice("cmatch", "path"), Workload(1000)),
    }
    said = model.why(ADMATCH, costs)
    assert "cmatch/path" in said
    assert "access to the index" in said
    assert model.why(ADMATCH, {ADMATCH: costs[ADMATCH]}) == "there is no other way"
