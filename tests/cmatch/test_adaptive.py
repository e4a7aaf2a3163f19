"""The adaptive operator: whatever it runs, and whenever that changes, every pair comes once."""

from __future__ import annotations

import gc
import json
import random
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.cmatch import (
    DEFAULT_UNITS,
    Adaptive,
    Axis,
    Choice,
    Inputs,
    MissingLabels,
    Operator,
    OperatorClosed,
    Workload,
    adaptive,
    measure,
)
from fmware.cmatch.adaptive import relabelled
from fmware.index import UnknownScheme
from tests.cmatch.oracle import AXES, SCHEMES, TAGS, Pairs, batches, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmware.cmatch import UnitCosts
    from fmware.labeling.runs import Tag
    from tests.cmatch.oracle import World
    from tests.index.oracle import Known

pytestmark = pytest.mark.usefixtures("nothing_left")

ADMATCH = Choice("admatch")
CHOICES = [
    ADMATCH,
    *(Choice("cmatch", scheme, rents) for scheme in SCHEMES for rents in (False, True)),
]
CASES, PORTIONS = 200, 4
DEAR_AD = replace(DEFAULT_UNITS, ad_input=1e-3)
"""Unit costs with which CMatch is always better."""
DEAR_LABELS = replace(DEFAULT_UNITS, label=1e-3, candidate=1e-3, list=1e-3)
"""Unit costs with which ADMatch is."""
RENTING = replace(DEFAULT_UNITS, ad_call=1e-3, candidate=1e-5, list=1e-5)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks cost nothing: there is one with the first batch, and then whenever inputs double."""
    monkeypatch.setattr(adaptive, "CHOOSING", 0.0)


def anchors_of(randomly: random.Random, nodes: Sequence[Known]) -> list[tuple[int, Known]]:
    some = randomly.sample(nodes, randomly.randrange(1, min(30, len(nodes)) + 1))
    number = randomly.choice([1, 5, 40, 200])
    return [(randomly.randrange(100), randomly.choice(some)) for _ in range(number)]


def made(randomly: random.Random, world: World, targets: tuple[Tag, ...], axis: Axis) -> Adaptive:
    return Adaptive(
        world.index,
        targets,
        axis,
        anchors=randomly.choice([None, tuple(world.tags)]),
        budget=randomly.choice([0, 300, 2000, 1 << 20]),
        threads=randomly.choice([0, 0, 1, 3]),
        units=randomly.choice([DEFAULT_UNITS, DEAR_AD, DEAR_LABELS, RENTING]),
        workload=randomly.choice([None, None, Workload(1000, 4), Workload(1)]),
    )


def check(worlds: Sequence[Sequence[World]], seed: int) -> None:
    """Batches of any labels, or of none, while the operator looks, is switched and moved."""
    randomly = random.Random(seed)
    lived = randomly.choice(worlds)[randomly.randrange(4) :]
    lived = lived if randomly.random() < 0.3 else lived[:1]
    axis = randomly.choice(AXES)
    targets = tuple(randomly.sample(TAGS, randomly.choice([1, 1, 2, len(TAGS)])))
    wanted, found, fed = Pairs(), Pairs(), 0
    with made(randomly, lived[0], targets, axis) as operator:
        for world in lived:
            found += counted(operator.move(world.index))
            tag = randomly.choice(world.tags)
            anchors = anchors_of(randomly, world.known[tag])
            for target in targets:
                wanted += world.pairs(target, axis, anchors)
            size = randomly.choice([1, 3, 16, 100])
            for low in range(0, len(anchors), size):
                scheme = randomly.choice([operator.needs, operator.needs, None, *SCHEMES])
                batch = world.inputs(tag, scheme, anchors[low : low + size])
                found += counted(operator.feed(batch))
                fed += len(batch)
                if randomly.random() < 0.1:
                    found += counted(operator.switch(randomly.choice(CHOICES)))
                if randomly.random() < 0.1:
                    assert operator.wait(operator.mark)
                    assert operator.reached(operator.mark)
        found += counted(operator.drain())
        counters, ran = operator.counters, operator.ran
    assert found == wanted, f"seed {seed}"
    assert counters.inputs == sum(ran.values()) == fed, f"seed {seed}"
    assert counters.pairs == wanted.total(), f"seed {seed}"
    assert counters.deferred <= counters.ad_probes <= fed, f"seed {seed}"


@pytest.mark.parametrize("portion", range(PORTIONS))
@pytest.mark.usefixtures("eager")
def test_every_pair_comes_once(worlds: list[list[World]], portion: int) -> None:
    for seed in range(portion, CASES, PORTIONS):
        check(worlds, seed)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_pair_comes_once_also_in_small_cases(
    worlds: list[list[World]], data: st.DataObject
) -> None:
    world = data.draw(st.sampled_from([world for each in worlds for world in each]))
    tag, target = (data.draw(st.sampled_from(each)) for each in (world.tags, TAGS))
    axis = data.draw(st.sampled_from(AXES))
    nodes = data.draw(st.lists(st.sampled_from(world.known[tag]), max_size=8))
    anchors = [*enumerate(nodes)]
    found = Pairs()
    with Adaptive(world.index, target, axis, anchors=tag) as operator:
        for one in anchors:
            if data.draw(st.booleans()):
                found += counted(operator.switch(data.draw(st.sampled_from(CHOICES))))
            found += counted(operator.feed(world.inputs(tag, operator.needs, [one])))
        found += counted(operator.drain())
    assert found == world.pairs(target, axis, anchors)


# --- when it looks --------------------------------------------------------------------------


def everything(world: World, tag: Tag) -> list[tuple[int, Known]]:
    return [*enumerate(world.known[tag])]


def fed(operator: Adaptive, world: World, times: int = 1, size: int = 4) -> Pairs:
    found = Pairs()
    for _ in range(times):
        anchors = everything(world, TAGS[0])
        for low in range(0, len(anchors), size):
            batch = world.inputs(TAGS[0], operator.needs, anchors[low : low + size])
            found += counted(operator.feed(batch))
    return found + counted(operator.drain())


def test_admatch_begins_and_nothing_is_looked_up(world: World) -> None:
    with Adaptive(world.index, TAGS[1], "descendant", anchors=TAGS[0]) as operator:
        assert isinstance(operator, Operator)
        assert (operator.choice, operator.needs, operator.looks) == (ADMATCH, None, [])
        fed(operator, world)
        assert operator._model is None
        assert "begins" in operator.why
        assert operator.looks == []


@pytest.mark.usefixtures("eager")
def test_it_looks_when_inputs_have_doubled(world: World) -> None:
    with Adaptive(world.index, TAGS[1], "descendant", anchors=TAGS[0]) as operator:
        for _ in range(100):
            batch = world.inputs(TAGS[0], operator.needs, everything(world, TAGS[0])[:1])
            operator.feed(batch)
        assert [each.inputs for each in operator.looks] == [0, 1, 3, 7, 15, 31, 63]
        json.dumps([each.to_json() for each in operator.looks])


def test_a_first_batch_that_alone_costs_enough_is_chosen_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive, "CHOOSING", 1e-9)
    monkeypatch.setattr(adaptive, "SHARE", 1e-4)
    anchors = everything(world, TAGS[0]) * 40
    with Adaptive(world.index, TAGS[1], "descendant", anchors=TAGS[0], units=DEAR_AD) as operator:
        found = operator.feed(world.inputs(TAGS[0], None, anchors))
        assert operator.looks[0].inputs == 0
        assert operator.choice.operator == "cmatch"
        assert counted(found) == world.pairs(TAGS[1], Axis.DESCENDANT, anchors)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("units", "ends"), [(DEAR_AD, "cmatch"), (DEAR_LABELS, "admatch")])
def test_it_ends_with_what_costs_least(world: World, units: UnitCosts, ends: str) -> None:
    for start in (ADMATCH, Choice("cmatch", "vist")):
        with Adaptive(world.index, TAGS[1], "descendant", anchors=TAGS[0], units=units) as operator:
            if operator.choice != start:
                operator.switch(start)
            found = fed(operator, world, 20)
            assert operator.choice.operator == ends
            assert operator.why
            anchors = everything(world, TAGS[0])
            assert found.total() == 20 * world.pairs(TAGS[1], Axis.DESCENDANT, anchors).total()


@pytest.mark.usefixtures("eager")
def test_what_was_seen_decides_and_not_what_was_assumed(worlds: list[list[World]]) -> None:
    """If labels stay new, CMatch is given up, whatever the index promised."""
    world = worlds[2][0]
    with Adaptive(
        world.index, TAGS[1], "descendant", anchors=TAGS[0], workload=Workload(1e9)
    ) as operator:
        operator.switch(Choice("cmatch", "vist"))
        model = operator.model
        counters = replace(
            operator.counters, inputs=1000, unique_labels=900, index_scans=900, candidates=10**7
        )
        model.figures.schemes["vist"] = replace(model.figures.schemes["vist"], total=10**6)
        operator._reconsidered(counters, 10**6)
        assert operator.choice.scheme != "vist"
        assert operator.switches[-1].before == Choice("cmatch", "vist")


def test_a_choice_that_was_given_stays(world: World, eager: None) -> None:
    for choice in CHOICES:
        with Adaptive(
            world.index, TAGS[1], "child", anchors=TAGS[0], choice=choice, units=DEAR_AD
        ) as operator:
            fed(operator, world, 3)
            assert (operator.choice, operator.looks, operator.why) == (choice, [], "asked for")


def test_what_will_come_is_chosen_for_at_once(world: World) -> None:
    for units, wanted in ((DEAR_AD, "cmatch"), (DEAR_LABELS, "admatch")):
        with Adaptive(
            world.index, TAGS[1], "child", anchors=TAGS[0], units=units, workload=Workload(500, 8)
        ) as operator:
            assert operator.choice == operator.preferred
            assert operator.choice.operator == wanted
            assert operator.expected == Workload(500, 8)
            assert {each.scheme for each in operator.estimates} == {None, *SCHEMES}
            assert "instead of" in operator.why


def test_rented_labels_are_deferred_until_they_are_paid(world: World) -> None:
    renting = Choice("cmatch", "path", rents=True)
    with Adaptive(
        world.index, TAGS[1], "descendant", anchors=TAGS[0], choice=renting, units=RENTING
    ) as operator:
        fed(operator, world)
        assert operator.counters.deferred > 0
        fed(operator, world, 200)
        before = operator.counters.deferred
        fed(operator, world)
        assert operator.counters.deferred == before


def test_where_lists_are_not_in_memory_threads_wait_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmware.index.segment.Segment.in_memory", lambda *_: False)
    monkeypatch.setattr(adaptive, "CHOOSING", 0.0)
    for threads, wanted in ((0, "admatch"), (1, "cmatch")):
        with Adaptive(
            world.index, TAGS[1], "descendant", anchors=TAGS[0], threads=threads, units=DEAR_LABELS
        ) as operator:
            assert operator.choice.operator == wanted
            found = fed(operator, world, 3)
            assert operator.choice.operator == wanted
            anchors = everything(world, TAGS[0])
            assert found.total() == 3 * world.pairs(TAGS[1], Axis.DESCENDANT, anchors).total()


# --- generations, labels, the end -----------------------------------------------------------


def test_a_scheme_that_is_gone_is_switched_from(world: World) -> None:
    class Poorer:
        """The same index without its schemes."""

        def __init__(self) -> None:
            self.schemes: dict[str, object] = {}

        def __getattr__(self, name: str) -> object:
            return getattr(world.index, name)

    with Adaptive(world.index, TAGS[1], "child", anchors=TAGS[0]) as operator:
        operator.switch(Choice("cmatch", "path"))
        operator.move(Poorer())  # type: ignore[arg-type]
        assert operator.choice == ADMATCH
        assert "no scheme path" in operator.why


def test_an_unknown_scheme_leaves_all_as_it_was(world: World) -> None:
    with Adaptive(world.index, TAGS[1], "child", anchors=TAGS[0]) as operator:
        with pytest.raises(UnknownScheme):
            operator.switch(Choice("cmatch", "nothing"))
        assert operator.choice == ADMATCH
        assert fed(operator, world) == world.pairs(TAGS[1], Axis.CHILD, everything(world, TAGS[0]))


def test_inputs_are_labelled_anew_whatever_their_tags(world: World) -> None:
    anchors = [(7, node) for tag in TAGS for node in world.known.get(tag, ())]
    random.Random(1).shuffle(anchors)
    whole = Inputs.joined(
        [world.inputs(tag, None, [(7, n)]) for tag in TAGS for n in world.known[tag]]
    )
    for tags in (None, TAGS):
        found = relabelled(world.index, tags, "vist", whole)
        assert sorted(found.start.tolist()) == sorted(whole.start.tolist())
        assert (found.id == 7).all()
        assert found.scheme == "vist"
    with pytest.raises(MissingLabels):
        relabelled(world.index, TAGS[:1], "vist", whole)


def test_closed_is_closed(world: World) -> None:
    batch = world.inputs(TAGS[0], None, everything(world, TAGS[0]))
    for choice in (ADMATCH, Choice("cmatch", "path")):
        operator = Adaptive(world.index, TAGS[1], "child", anchors=TAGS[0], choice=choice)
        gone = weakref.ref(operator._operator)
        operator.close()
        operator.close()
        with pytest.raises(OperatorClosed):
            operator.feed(batch)
        with pytest.raises(OperatorClosed):
            operator.switch(ADMATCH)
        del operator
        gc.collect()
        assert gone() is None


def test_every_way_can_be_measured(world: World) -> None:
    anchors = everything(world, TAGS[0])
    sample = [*batches(world.inputs(TAGS[0], "path", anchors), 4)]
    taken = measure(world.index, TAGS[1], "child", sample, CHOICES, anchors=TAGS[0], rounds=1)
    assert {*taken} == {*CHOICES}
    assert all(seconds > 0 for seconds in taken.values())
    assert measure(world.index, TAGS[1], "child", [], CHOICES) == {}
    # Labels that cannot be found are those of no choice.
    taken = measure(world.index, TAGS[1], "child", sample, CHOICES, anchors=TAGS[1], rounds=1)
    assert {each.scheme for each in taken} == {None, "path"}
