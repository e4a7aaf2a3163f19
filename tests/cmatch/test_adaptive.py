"""The adaptive operator: whatever it runs, and whenever that changes, every pair comes once."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import adaptation
from cmatch import (
    DEFAULT_UNITS,
    Adaptive,
    Axis,
    Choice,
    Inputs,
    Matches,
    MissingLabels,
    Operator,
    OperatorClosed,
    Workload,
    adaptive,
    measure,
    outlook,
    split,
)
from cmatch.admatch import FOREVER
from cmatch.cclean import BUDGET
from cmatch.model import CostModel
from cmatch.outlook import Outlook
from cmatch.policy import ANY, NEVER
from cmatch.profile import Clusters, Profile
from cmatch.split import Rental, Terms
from cmatch.watched import WatchedADMatch, WatchedCMatch
from fmware.corpus import build_index
from index import Index, UnknownScheme
from tests.cmatch.oracle import AXES, SCHEMES, TAGS, Pairs, batches, counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cmatch import UnitCosts
    from labeling.runs import Tag
    from tests.cmatch.oracle import World

pytestmark = pytest.mark.usefixtures("nothing_left")

CHOICES = [
    Choice("admatch"),
    *(Choice("cmatch", scheme, split) for scheme in SCHEMES for split in (False, True)),
]
CASES = 250
EAGER = DEFAULT_UNITS.scaled(aside_call=1e3, ad_call=1e3)
"""Unit costs with which no label is worth going aside; and such with which most are."""
RENTING = DEFAULT_UNITS.scaled(candidate=1e4)


def everything(world: World, tag: Tag) -> list[tuple[int, Any]]:
    return [*enumerate(world.known[tag])]


# --- exact, whatever happens ----------------------------------------------------------------


def check(
    worlds: Sequence[Sequence[World]],
    seed: int,
    units: Sequence[UnitCosts] = (DEFAULT_UNITS, EAGER, RENTING),
) -> None:
    """Switches are forced at random batches; generations change in between."""
    randomly = random.Random(seed)
    generations = randomly.choice(worlds)
    lived = generations[randomly.randrange(len(generations)) :]
    axis, target = randomly.choice(AXES), randomly.choice(TAGS)
    tag = randomly.choice([each for each in lived[0].tags if all(each in w.tags for w in lived)])
    wanted, found = Pairs(), Pairs()
    with Adaptive(
        lived[0].index,
        target,
        axis,
        anchors=tag,
        budget=randomly.choice([0, 300, 2000, 1 << 20]),
        threads=randomly.choice([0, 0, 1, 2]),
        units=randomly.choice(units),
    ) as operator:
        for number, world in enumerate(lived):
            found += counted(operator.move(world.index))
            some = [randomly.choice(world.known[tag]) for _ in range(randomly.choice([5, 60, 250]))]
            anchors = [(1000 * number + randomly.randrange(100), node) for node in some]
            wanted += world.pairs(target, axis, anchors)
            labelled = {
                scheme: [*batches(world.inputs(tag, scheme, anchors), 5)]
                for scheme in (None, *SCHEMES)
            }
            for at in range(len(labelled[None])):
                scheme = operator.needs
                if randomly.random() < 0.2:
                    found += counted(operator.switch(randomly.choice(CHOICES)))
                    # Sometimes the batch was made before.
                    scheme = randomly.choice([scheme, None, operator.needs])
                found += counted(operator.feed(labelled[scheme][at]))
        found += counted(operator.drain())
        counters, switches = operator.counters, operator.switches
        inputs = operator.spent.inputs
    assert found == wanted, f"seed {seed}"
    assert counters.pairs == wanted.total(), f"seed {seed}"
    assert counters.inputs == inputs
    assert all(each.inputs <= counters.inputs for each in switches)


@pytest.mark.parametrize("portion", range(10))
def test_switching_loses_and_repeats_nothing(worlds: list[list[World]], portion: int) -> None:
    for seed in range(portion, CASES, 10):
        check(worlds, seed)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_operator_that_changes_its_mind_by_itself_is_exact(
    worlds: list[list[World]], data: st.DataObject
) -> None:
    """Every few batches it thinks, and whatever it thinks of next is far better."""
    world = data.draw(st.sampled_from([world for each in worlds for world in each]))
    tag = data.draw(st.sampled_from(world.tags))
    target, axis = data.draw(st.sampled_from(TAGS)), data.draw(st.sampled_from(AXES))
    nodes = data.draw(st.lists(st.sampled_from(world.known[tag]), min_size=1, max_size=40))
    anchors = [*enumerate(nodes * 8)]
    labelled = {
        scheme: [*batches(world.inputs(tag, scheme, anchors), 3)] for scheme in (None, *SCHEMES)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "FIRST_LOOK", 2)
        patch.setattr(adaptive, "LONGEST", 4)
        patch.setattr(adaptive, "THOUGHT", 0.0)
        patch.setattr(adaptive, "RECENT", 2)
        patch.setattr(adaptive, "EARLY", 3)
        patch.setattr(Adaptive, "_worse", lambda *_: data.draw(st.booleans()))
        with Adaptive(world.index, target, axis, anchors=tag) as operator:
            found = [
                operator.feed(labelled[operator.needs][at]) for at in range(len(labelled[None]))
            ]
            found.append(operator.drain())
            assert counted(*found) == world.pairs(target, axis, anchors)


@pytest.mark.parametrize("portion", range(5))
def test_resting_loses_and_repeats_nothing(
    worlds: list[list[World]], portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most labels go aside, and after a batch or two ADMatch takes all for a batch or two."""
    monkeypatch.setattr(adaptive, "FIRST_LOOK", 2)
    monkeypatch.setattr(adaptive, "REST", 1)
    monkeypatch.setattr(adaptive, "SAMPLE", 1)
    monkeypatch.setattr(adaptive, "LONGEST_REST", 2)
    rests = []
    rest = WatchedCMatch.rest

    def counting(operator: WatchedCMatch, inputs: int, woken: Any) -> WatchedADMatch:
        rests.append(inputs)
        return rest(operator, inputs, woken)

    monkeypatch.setattr(WatchedCMatch, "rest", counting)
    for seed in range(portion, 100, 5):
        check(worlds, seed, [RENTING, RENTING.scaled(candidate=1e-2)])
    assert len(rests) > 5


# --- what it does by itself -----------------------------------------------------------------


def watched(operator: Adaptive) -> WatchedCMatch:
    """The CMatch that runs."""
    assert isinstance(operator._operator, WatchedCMatch)
    return operator._operator


def fed(operator: Adaptive, world: World, tag: Tag, number: int, size: int = 4) -> list[Matches]:
    """All anchors of a tag, again and again."""
    anchors = everything(world, tag)
    labelled = {
        scheme: [*batches(world.inputs(tag, scheme, anchors), size)] for scheme in (None, *SCHEMES)
    }
    return [
        operator.feed(labelled[operator.needs][at % len(labelled[None])]) for at in range(number)
    ]


def test_it_is_an_operator_and_tells_what_it_expects(world: World) -> None:
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[1]) as operator:
        assert isinstance(operator, Operator)
        schemes = {choice.scheme for choice in operator.estimates}
        assert schemes == {None, *SCHEMES}
        assert operator.choice in operator.estimates
        assert operator.needs == operator.choice.scheme
        assert "by" in repr(operator)


def test_without_a_tag_of_anchors_ad_only_match_is_all_there_is(world: World) -> None:
    with Adaptive(world.index, TAGS[0], "descendant") as operator:
        assert operator.choice == Choice("admatch")
        assert operator.needs is None
        found = fed(operator, world, TAGS[0], 300)
        assert not operator.switches
        assert sum(map(len, found)) == operator.counters.pairs
        operator.switch(Choice("cmatch", "path"))
        with pytest.raises(MissingLabels):
            operator.feed(world.inputs(TAGS[0], None, everything(world, TAGS[0])))


def test_what_costs_nothing_is_chosen(world: World) -> None:
    dear = DEFAULT_UNITS.scaled(ad_call=1e3)
    free = DEFAULT_UNITS.scaled(ad_call=0, ad_input=0, ad_hit=0, ad_pair=0, ad_segment=0)
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0], units=dear) as operator:
        assert operator.choice.operator == "cmatch"
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0], units=free) as operator:
        assert operator.choice == Choice("admatch")


def test_known_labels_are_not_watched_and_new_ones_are(world: World) -> None:
    """Once nothing is new, nothing is counted; a generation brings the watch back."""
    choice = Choice("cmatch", "path")
    with Adaptive(
        world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=choice, units=EAGER
    ) as operator:
        fed(operator, world, TAGS[0], 400)
        assert operator.choice == choice
        assert not watched(operator).watched
        operator.move(world.index)
        assert watched(operator).watched
        fed(operator, world, TAGS[0], 400)
        assert not watched(operator).watched
        assert operator.feed == operator._operator.feed


def test_it_goes_to_ad_only_match_when_labels_are_always_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dear = DEFAULT_UNITS.scaled(fresh_call=1e4, label=1e4)
    monkeypatch.setattr(adaptive, "FIRST_LOOK", 2)
    monkeypatch.setattr(adaptive, "QUIET", -1.0)
    choice = Choice("cmatch", "vist")
    with Adaptive(
        world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=choice, units=dear
    ) as operator:
        fed(operator, world, TAGS[0], 40, size=1)
        (switch,) = operator.switches
        assert (switch.before, switch.after) == (choice, Choice("admatch"))
        assert "new labels" in switch.why
        told = json.loads(json.dumps(switch.to_json()))
        assert told["from"] == "cmatch/vist"
        assert told["to"] == "admatch"


def test_it_goes_to_cmatch_when_few_of_many_labels_come(world: World) -> None:
    """The index says that every anchor comes once; but it is the same few again and again."""
    few = everything(world, TAGS[0])[:3]
    inputs = {scheme: world.inputs(TAGS[0], scheme, few * 5) for scheme in (None, *SCHEMES)}
    with Adaptive(
        world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=Choice("admatch")
    ) as operator:
        found = Pairs()
        for _ in range(4000):
            found += counted(operator.feed(inputs[operator.needs]))
            if operator.switches:
                break
        assert operator.choice.operator == "cmatch"
        times = operator.counters.inputs // len(few)
        pairs = world.pairs(TAGS[0], Axis.DESCENDANT, few)
        assert found == Pairs(dict.fromkeys(pairs, times))


def test_a_large_batch_chooses_for_itself(world: World) -> None:
    anchors = everything(world, TAGS[0])
    units = DEFAULT_UNITS.scaled(ad_call=100, input=1250, ad_segment=0)
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0], units=units) as operator:
        needs = operator.needs
        assert needs is not None
        whole = Inputs.joined([world.inputs(TAGS[0], needs, anchors)] * 40)
        found = operator.feed(whole)
        assert operator.choice == Choice("admatch")
        assert "at once" in operator.switches[0].why
        pairs = world.pairs(TAGS[0], Axis.DESCENDANT, anchors)
        assert counted(found) == Pairs(dict.fromkeys(pairs, 40))


def resting(world: World, **more: Any) -> Adaptive:
    """One that sends all labels aside, as soon as it has a choice."""
    choice = Choice("cmatch", "path", split=True)
    some: dict[str, Any] = {"units": RENTING, **more}
    return Adaptive(world.index, TAGS[0], "ancestor", anchors=TAGS[2], choice=choice, **some)


def test_while_all_goes_aside_labels_are_not_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptive, "ALL", 0.0)
    with resting(world) as operator:
        fed(operator, world, TAGS[2], 2 * adaptive.SAMPLE + 1)
        labels = operator.counters.unique_labels
        assert (operator.needs, operator.choice.scheme) == (None, "path")
        assert not operator.switches
        # It rests, and some batches later it sees whether that is still so.
        found = fed(operator, world, TAGS[2], 4 * adaptive.REST)
        rested = operator.counters
        assert rested.inputs == operator.spent.inputs
        assert rested.aside == rested.ad_probes > 0.9 * rested.inputs
        assert sum(map(len, found)) < rested.pairs
        assert labels <= rested.unique_labels
        # Another generation is looked at, too.
        operator.move(world.index)
        assert operator.needs == "path"
        anchors = everything(world, TAGS[2])
        pairs = world.pairs(TAGS[0], Axis.ANCESTOR, anchors)
        assert counted(operator.feed(world.inputs(TAGS[2], "path", anchors))) == pairs
    with pytest.raises(OperatorClosed):
        operator.feed(world.inputs(TAGS[2], "path", anchors))


@pytest.mark.parametrize("rests", [True, False])
def test_a_scheme_that_is_gone_is_left_for_ad_only_match(tmp_path: Path, rests: bool) -> None:
    (tmp_path / "corpus.xml").write_text(f"<all>{'<a><b/><b/></a>' * 40}</all>")
    for schemes in (["path", "vist"], ["vist"]):
        folder = tmp_path / "-".join(schemes)
        build_index(tmp_path / "corpus.xml", folder, record="a", schemes=schemes)
    choice = Choice("cmatch", "path", split=True)
    units = RENTING if rests else EAGER
    with (
        Index.open(tmp_path / "path-vist") as before,
        Index.open(tmp_path / "vist") as after,
        Adaptive(before, "b", "child", anchors="a", choice=choice, units=units) as operator,
    ):
        segment = before.segments[0]
        starts = segment.descendants("a", [segment.low - 1], [segment.high]).right.start
        inputs = Inputs.of(before, "a", "path", np.arange(40), starts)
        for _ in range(2 * adaptive.SAMPLE + 1):
            assert len(operator.feed(inputs)) == 80
        assert (operator.needs is None) == rests
        operator.move(after)
        assert (operator.choice, operator.needs) == (Choice("admatch"), None)
        assert "no scheme path" in operator.switches[-1].why
        assert len(operator.feed(Inputs.of(after, "a", None, np.arange(40), starts))) == 80


def test_what_has_gone_aside_for_long_enough_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before it has cost as much."""
    monkeypatch.setattr(adaptive, "ALL", 0.0)
    monkeypatch.setattr(adaptive, "REST", 8)
    with resting(world, units=DEFAULT_UNITS.scaled(candidate=3e3)) as operator:
        anchors = everything(world, TAGS[2])
        inputs = {scheme: world.inputs(TAGS[2], scheme, anchors) for scheme in (None, "path")}
        found = Pairs()
        times = 0
        while not operator.switches and times < 20_000:
            found += counted(operator.feed(inputs[operator.needs]))
            times += 1
        assert times > 2 * adaptive.SAMPLE + 1
        (switch,) = operator.switches
        assert switch.after == Choice("cmatch", "path")
        assert "as much as to fetch" in switch.why
        pairs = world.pairs(TAGS[0], Axis.ANCESTOR, anchors)
        assert found == Pairs(dict.fromkeys(pairs, times))


def test_the_choice_is_not_far_from_the_best_if_more_comes_than_is_expected() -> None:
    """Each anchor twice, labels hardly pay; if more come, they do. Not where all come at once."""
    anchors = 20_000
    ones = np.ones(anchors, np.int64)
    known = Profile(
        Axis.DESCENDANT,
        anchors,
        anchors,
        1.0,
        1,
        anchors,
        {"path": Clusters(ones, ones, np.ones(anchors))},
    )
    chosen = set()
    for dear in np.geomspace(0.1, 30.0, 60).tolist():
        model = CostModel(DEFAULT_UNITS.scaled(list=dear, label=dear))
        found = Outlook._made(known, model, None, split=True)
        choice = found.first(16).choice
        loads = [Workload(times * anchors, 16) for times in (2, 2 * outlook.MORE)]
        costs = [model.estimate(known, load) for load in loads]
        worst = {
            each: max(cost[each].total / min(cost.values()).total for cost in costs)
            for each in costs[0]
        }
        assert worst[choice] <= outlook.TIE * min(worst.values())
        at_once = {each: cost.total for each, cost in found.by_size[-1].items()}
        assert at_once[found.first(1 << 18).choice] <= outlook.TIE * min(at_once.values())
        chosen.add(choice)
    assert len(chosen) == 2


def test_a_scheme_of_many_labels_must_not_hope_for_more_than_is_expected() -> None:
    """One label with many candidates, or many with few: by what comes, be it less or more."""
    anchors = 40_000
    many, one = np.ones(anchors // 2, np.int64), np.ones(1, np.int64)
    known = Profile(
        Axis.DESCENDANT,
        anchors,
        anchors,
        0.01,
        1,
        anchors,
        {
            "path": Clusters(one * anchors, one * 200, np.ones(1)),
            "vist": Clusters(many * 2, many, np.ones(len(many))),
        },
    )
    schemes = [Choice("cmatch", scheme) for scheme in known.schemes]
    chosen = []
    for dear in np.geomspace(0.5, 50.0, 60).tolist():
        model = CostModel(DEFAULT_UNITS.scaled(step=dear, ad_call=1e3))
        choice = Outlook._made(known, model, None, split=False).first(16).choice
        loads = [Workload(times * anchors, 16) for times in (1, 2, 2 * outlook.MORE)]
        costs = [model.estimate(known, load, schemes) for load in loads]
        worst = {
            each: max(cost[each].total / min(cost.values()).total for cost in costs)
            for each in schemes
        }
        assert worst[choice] <= outlook.TIE * min(worst.values())
        chosen.append(choice)
    assert chosen[0] == schemes[0]
    assert chosen[-1] == schemes[1]


def test_what_was_spent_is_told_by_choice(world: World) -> None:
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0]) as operator:
        first = operator.choice
        fed(operator, world, TAGS[0], 50)
        other = next(each for each in CHOICES if each.scheme not in (first.scheme, None))
        operator.switch(other)
        fed(operator, world, TAGS[0], 50)
        spent = operator.spent
        assert {first, other} <= set(spent.choices)
        assert spent.inputs == operator.counters.inputs
        assert spent.inputs == sum(each.inputs for each in spent.choices.values())
        assert spent.seconds == pytest.approx(sum(e.seconds for e in spent.choices.values()))
        assert spent.seconds > 0
        json.dumps(spent.to_json())
        assert operator.switches[-1].inputs == spent.choices[first].inputs


def test_other_choices_are_measured_on_a_sample(world: World) -> None:
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0]) as operator:
        needs = operator.needs
    sample = [*batches(world.inputs(TAGS[0], needs, everything(world, TAGS[0])), 4)]
    found = measure(world.index, TAGS[0], "descendant", sample, CHOICES, anchors=TAGS[0])
    assert set(found) == set(CHOICES)
    assert all(seconds > 0 for seconds in found.values())
    bare = [world.inputs(TAGS[0], None, everything(world, TAGS[0]))]
    alone = measure(world.index, TAGS[0], "descendant", bare, CHOICES)
    assert set(alone) == {Choice("admatch")}
    assert measure(world.index, TAGS[0], "descendant", [], CHOICES) == {}


def test_empty_batches_are_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "THOUGHT", 0.0)
    monkeypatch.setattr(adaptive, "FIRST_LOOK", 2)
    for choice in (*CHOICES, None):
        with Adaptive(
            world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=choice
        ) as operator:
            empty = Inputs.empty()
            assert not any(len(operator.feed(empty)) for _ in range(100))
            assert operator.counters.inputs == operator.spent.inputs == 0
            assert not operator.switches
            inputs = world.inputs(TAGS[0], operator.needs, everything(world, TAGS[0]))
            pairs = world.pairs(TAGS[0], Axis.DESCENDANT, everything(world, TAGS[0]))
            assert counted(operator.feed(inputs)) == pairs


def test_new_labels_end_the_trust(world: World) -> None:
    """Labels that come after a quiet time are watched, as at first; then there is quiet again."""
    few, all_ = everything(world, TAGS[0])[:1], everything(world, TAGS[0])
    with Adaptive(
        world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=Choice("cmatch", "vist")
    ) as operator:
        known = world.inputs(TAGS[0], "vist", few * 16)
        for _ in range(200):
            operator.feed(known)
        assert not watched(operator).watched
        watched(operator).trust(0)
        operator.feed(world.inputs(TAGS[0], "vist", all_))
        assert watched(operator).watched
        assert operator.choice == Choice("cmatch", "vist")
        for _ in range(200):
            operator.feed(known)
        assert not watched(operator).watched


def test_labels_of_another_kind_are_looked_up_whether_anything_is_watched_or_not(
    world: World,
) -> None:
    anchors = everything(world, TAGS[0])
    pairs = world.pairs(TAGS[0], Axis.DESCENDANT, anchors)
    choice = Choice("cmatch", "path")
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=choice) as operator:
        for times in (1, 200):
            for _ in range(times):
                operator.feed(world.inputs(TAGS[0], "path", anchors))
            for scheme in (None, "vist"):
                found = operator.feed(world.inputs(TAGS[0], scheme, anchors))
                assert counted(found) == pairs
        assert not watched(operator).watched


def test_a_batch_that_is_looked_at_is_not_taken_and_comes_once(world: World) -> None:
    """After as many as it says; the next, if it is of another size; then never again."""
    inputs = world.inputs(TAGS[0], "path", everything(world, TAGS[0]))
    number, few = len(inputs), inputs.take(slice(1))
    seen: list[Inputs] = []
    taken = 0

    def look(batch: Inputs) -> Matches:
        assert made.counters.inputs == taken
        seen.append(batch)
        return made.feed(batch)

    made = WatchedCMatch(world.index, TAGS[0], "descendant", "path", threads=0)
    made.look = look
    cases = [
        (2, 0, FOREVER, [few, inputs, few, few], few),
        (FOREVER, 2, number, [few, few], few),
        (FOREVER, 1, number - 1, [inputs, inputs], inputs),
        (FOREVER, 1, number, [few, inputs], None),
        (1, 1, number, [inputs, few, few], few),
    ]
    try:
        for left, least, most, some, wanted in cases:
            made.watch(left, least, most)
            states = [made.watched]
            for batch in some:
                made.feed(batch)
                taken += len(batch)
            states.append(made.watched)
            assert [*map(id, seen)] == ([] if wanted is None else [id(wanted)])
            assert states == [True, False]
            assert made.counters.inputs == taken
            seen.clear()
    finally:
        made.leave()
    with pytest.raises(OperatorClosed):
        made.feed(few)
    with pytest.raises(OperatorClosed):
        made.feed(world.inputs(TAGS[0], None, everything(world, TAGS[0])))


def test_batches_with_new_labels_alone_try_patience(world: World) -> None:
    """After so many what was counted is noted, and after so many more the next is looked at."""
    inputs = world.inputs(TAGS[0], "vist", everything(world, TAGS[0]))
    assert inputs.rank is not None
    key = (inputs.segment.astype(np.int64) << 32) | inputs.rank
    rows = np.unique(key, return_index=True)[1].tolist()
    assert len(rows) > 5
    each = [inputs.take(slice(row, row + 1)) for row in rows]
    seen: list[Inputs] = []

    def look(batch: Inputs) -> Matches:
        seen.append(batch)
        return made.feed(batch)

    made = WatchedCMatch(world.index, TAGS[0], "descendant", "vist", threads=0)
    made.look = look
    made.trust(2, 1)
    try:
        for batch in (each[0], each[0], each[1]):
            assert made.noted is None
            made.feed(batch)
        # Noted when the second label was met, before its input was taken.
        noted = made.noted
        assert noted is not None
        assert (noted.inputs, noted.labels) == (2, 2)
        for batch in (each[0], each[1], each[2]):
            assert not made.watched
            made.feed(batch)
        assert made.noted == noted
        assert made.watched
        assert not seen
        made.feed(each[0])
        assert [*map(id, seen)] == [id(each[0])]
        for batch in each:
            made.feed(batch)
        assert len(seen) == 1
        made.trust(1)
        assert made.noted is None
    finally:
        made.leave()


def test_ad_only_match_is_looked_at_after_so_many_inputs(world: World) -> None:
    inputs = world.inputs(TAGS[0], None, everything(world, TAGS[0]))
    few = inputs.take(slice(1))
    seen: list[Inputs] = []

    def look(batch: Inputs) -> Matches:
        seen.append(batch)
        return made.feed(batch)

    made = WatchedADMatch(world.index, TAGS[0], "descendant")
    made.look = look
    made.watch(2)
    states = [made.watched]
    for batch in [few, Inputs.empty(), few, Inputs.empty(), inputs, few]:
        made.feed(batch)
    states.append(made.watched)
    assert [*map(id, seen)] == [id(inputs)]
    assert states == [True, False]
    assert made.counters.inputs == 3 + len(inputs)
    made.leave()
    for batch in (few, Inputs.empty()):
        with pytest.raises(OperatorClosed):
            made.feed(batch)


def test_a_switch_that_fails_leaves_all_as_it_was(world: World) -> None:
    anchors = everything(world, TAGS[0])
    choice = Choice("cmatch", "path")
    with Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0], choice=choice) as operator:
        with pytest.raises(UnknownScheme):
            operator.switch(Choice("cmatch", "nosuch"))
        assert (operator.choice, operator.needs) == (choice, "path")
        found = operator.feed(world.inputs(TAGS[0], "path", anchors))
        assert counted(found) == world.pairs(TAGS[0], Axis.DESCENDANT, anchors)


def test_a_closed_one_says_so(world: World) -> None:
    operator = Adaptive(world.index, TAGS[0], "descendant", anchors=TAGS[0])
    inputs = world.inputs(TAGS[0], operator.needs, everything(world, TAGS[0]))
    operator.close()
    with pytest.raises(OperatorClosed):
        operator.feed(inputs)
    with pytest.raises(OperatorClosed):
        operator.switch(Choice("admatch"))


# --- which labels go aside ------------------------------------------------------------------


def rental(cps: list[int], candidates: list[int], horizon: float) -> Rental:
    clusters = Clusters(np.array(cps), np.array(candidates), np.ones(len(cps)))
    return Rental(Terms.of(CostModel(DEFAULT_UNITS), clusters, horizon=horizon, search=1e-7))


def test_small_labels_are_fetched_and_large_ones_rented() -> None:
    policy = rental([1] * 100, [50_000] * 100, 100)
    assert policy.aside(np.array([3, 4]), 16).tolist() == [0, 0]
    found = policy.aside(np.array([3, 50_000]), 16)
    assert found[0] == 0
    assert 0 < found[1] < NEVER
    larger = policy.aside(np.array([500_000]), 16)
    assert larger[0] > found[1]


def test_labels_that_surely_pay_are_fetched_at_once() -> None:
    assert rental([100_000], [50_000], 100_000).aside(np.array([50_000]), 16).tolist() == [0]
    assert rental([100_000], [50_000], 10).aside(np.array([50_000]), 16)[0] > 0


def test_after_some_answers_in_a_row_nobody_is_asked() -> None:
    policy = rental([100_000] * 40, [50_000] * 40, 8_000_000)
    asked = policy.cheap
    for _ in range(3):
        assert policy.aside(np.array([50_000]), 16).tolist() == [0]
        assert policy.cheap == asked
        assert not policy.settled
    policy.aside(np.array([50_000]), 16)
    assert policy.cheap == ANY
    assert policy.settled
    # One that was not sure, and all begins anew.
    policy = rental([100_000] * 40 + [1] * 1000, [50_000] * 40 + [5_000_000] * 1000, 8_000_000)
    for _ in range(3):
        policy.aside(np.array([50_000]), 16)
    assert policy.aside(np.array([5_000_000]), 16)[0] > 0
    policy.aside(np.array([50_000]), 16)
    assert policy.cheap == asked


def test_nobody_is_asked_where_every_label_is_sure_to_pay() -> None:
    """Few labels that come often are; many are only once they have come, and rare ones never."""

    def terms(cps: list[int], candidates: list[int]) -> Terms:
        clusters = Clusters(np.array(cps), np.array(candidates), np.ones(len(cps)))
        model = CostModel(DEFAULT_UNITS)
        return Terms.of(model, clusters, horizon=float(sum(cps)), search=1e-7)

    assert terms([100_000], [5_000]).sure(16)
    assert terms([100_000, 1], [5_000, 2]).sure(16)
    assert not terms([100_000, 1], [5_000, 50_000]).sure(16)
    assert not terms([100_000] * split.FEW, [5_000] * split.FEW).sure(16)
    assert terms([1] * 1000, [3] * 1000).sure(16)
    # What is sure is fetched at once, too, if somebody is asked.
    often = terms([100_000], [5_000])
    assert Rental(often).aside(np.array([5_000]), 16).tolist() == [0]


def test_more_rows_that_go_aside_together_wait_longer() -> None:
    """Of a batch that is parted. One that goes as a whole charges each row its part of it."""
    cps, candidates = [1000] * 100 + [1] * 8, [2] * 100 + [50_000] * 8
    for batch, longer in ((1000, True), (16, False)):
        policy = rental(cps, candidates, 1)
        assert (batch > policy.together) == longer
        alone = rental(cps, candidates, 1).aside(np.array([50_000]), batch)
        together = policy.aside(np.array([50_000] * 8), batch)
        assert (together > alone[0]).all() == longer
        assert (together >= alone[0]).all()


def test_a_batch_is_parted_only_if_that_costs_less() -> None:
    """Of a batch one input goes aside: the others stay known, or all are searched for at once."""
    for dear in (1.0, 2.0, 4.0):
        units = DEFAULT_UNITS.scaled(aside_call=dear)
        model = CostModel(units)
        search = 2e-7
        most = model.together(search)
        assert 0 < most < 1000
        for batch, parts in ((most - 1, False), (most + 2, True)):
            known = (batch - 1) * model.known(0.0, 0.0)
            parted = units.answer + known + units.aside_call + search
            whole = units.ad_call + batch * search
            assert (parted < whole) == parts, (dear, batch)


def test_a_batch_whose_labels_all_go_aside_is_not_parted() -> None:
    """Half of the anchors have large labels; where these come together, all share a call."""
    policy = rental([1000] * 40 + [100] * 400, [2] * 40 + [50_000] * 400, 1)

    def sharing(number: int) -> float:
        (kind,) = policy._kinds({16: number}, {16: number * 50_000})
        return policy._sharing(kind, 16)

    assert sharing(1) == sharing(8) == 8
    assert sharing(12) == 12
    # Two inputs may have the same label.
    assert sharing(15) == 16
    # Once it is known how they come, it is no matter how many of them are new.
    assert policy.aside(np.array([50_000] * 15), 16).all()
    assert sharing(1) == 16


def test_a_policy_knows_all_labels_of_the_sizes_that_went_aside() -> None:
    policy = rental([1] * 100 + [7] * 50, [50_000] * 100 + [3] * 50, 100)
    assert policy.whole() == (0, 0, 0)
    policy.aside(np.array([3, 50_000]), 16)
    whole = policy.whole()
    assert whole.labels == 100
    assert whole.candidates == 100 * 50_000
    assert whole.fetch == pytest.approx(100 * policy.rented)


def test_labels_that_few_share_a_call_for_are_fetched_the_sooner() -> None:
    """One label in fifty would not pay if all went aside; alone it has whole batches go with it."""

    def aside(rare: int) -> int:
        cps = [1000] * 100 + [25] * rare
        policy = rental(cps, [2] * 100 + [5_000] * rare, sum(cps))
        return int(policy.aside(np.array([5_000]), 16)[0])

    assert aside(15) == 0
    assert aside(10_000) > 0


def test_a_split_sends_inputs_aside_and_stays_exact(world: World) -> None:
    choice = Choice("cmatch", "path", split=True)
    anchors = everything(world, TAGS[0])
    with Adaptive(
        world.index,
        TAGS[0],
        "descendant",
        anchors=TAGS[0],
        choice=choice,
        units=RENTING,
        workload=Workload(1),
    ) as operator:
        inputs = world.inputs(TAGS[0], "path", anchors)
        found = [operator.feed(batch) for batch in batches(inputs, 4)]
        counters = operator.counters
        assert counters.aside == counters.ad_probes > 0
        assert counted(*found) == world.pairs(TAGS[0], Axis.DESCENDANT, anchors)


# --- the benchmark --------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "calibrate", lambda place: DEFAULT_UNITS)


@pytest.mark.usefixtures("tiny")
def test_the_benchmark_runs_and_all_answers_agree(tmp_path: Any) -> None:
    sizes = (
        "--scales 1 --queries MQ3 --rounds 1 --cold-rounds 1 --batches 20 --cold-batches 5 "
        "--around 10000 --smaller 100 --stream-batches 40 --streams 15% "
        f"--dir {tmp_path}"
    )
    found = adaptation.run(sizes.split())
    json.dumps(found)
    rows = found["rows"]
    assert isinstance(rows, dict)
    assert {row["state"] for row in rows.values()} == {"streamed", "at once", "cold streamed"}
    assert found["cases"] == len(rows)
    assert found["mixed_gain"] is not None


# --- the outlook ----------------------------------------------------------------------------


def test_joins_alike_share_an_outlook_for_as_long_as_the_generation_lives(
    worlds: list[list[World]],
) -> None:
    before, after = worlds[0][:2]
    made = [
        Adaptive(before.index, TAGS[0], axis, anchors=TAGS[1], budget=budget)
        for axis, budget in (("descendant", 1000), ("descendant", 1000), ("ancestor", 1000))
    ]
    try:
        assert made[0]._outlook is made[1]._outlook
        assert made[0]._outlook is not made[2]._outlook
        made[0].move(after.index)
        assert made[0]._outlook is not made[1]._outlook
    finally:
        for each in made:
            each.close()


def test_batches_of_the_sizes_of_a_first_choice_are_its_own(world: World) -> None:
    seen = Outlook.of(
        world.index,
        TAGS[1],
        TAGS[0],
        Axis.DESCENDANT,
        DEFAULT_UNITS,
        BUDGET,
        None,
        split=True,
    )
    for batch in (1, 16, 300, 1 << 20):
        first = seen.first(batch)
        assert first.least <= min(batch, first.most)
        for size, choice, saved in first.others:
            assert saved >= -1e-12
            if first.least <= size <= first.most:
                assert choice == first.choice
