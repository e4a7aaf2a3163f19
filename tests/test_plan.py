"""The plan of a statement: what is asked of whom, which way, and what each way costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fmware.cmatch import Workload
from fmware.corpus import build_index
from fmware.index import Index
from fmware.middleware import Middleware
from fmware.plan import plan_of
from fmware.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.plan import Plan

ITEMS = "".join(
    f"<item k='{n}'><city>C{n}</city><shelf><box>{n % 7}</box></shelf></item>" for n in range(300)
)
PARTS = "".join(f"<part k='{n}'><city>P</city></part>" for n in range(20))
MESSAGE = b"<s>%s</s>"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    place = tmp_path_factory.mktemp("plan")
    (place / "stock.xml").write_text(f"<stock>{ITEMS}{PARTS}</stock>")
    build_index(
        place / "stock.xml",
        place / "index",
        record=("item", "part"),
        identity=["item=@k", "part=@k"],
        schemes=("path", "vist"),
        calibrate=False,
    )
    with Index.open(place / "index") as opened:
        yield opened


def planned(index: Index, text: str, *others: str, workload: Workload | None = None) -> Plan:
    beside = [Statement.parse(each) for each in others]
    return plan_of(index, Statement.parse(text), others=beside, workload=workload)


def test_the_parts_of_a_statement(index: Index) -> None:
    plan = planned(index, "//s/item[@n > 3][.//local:box = 2]/local:city")
    assert plan.filter == "//s/item[@n > 3]"
    found = [(each.axis, each.match, each.selects) for each in plan.crossings]
    assert found == [("descendant", ".//box[. = 2]", False), ("child", "city", True)]
    assert {each.anchor for each in plan.crossings} == {"//s/item[@n > 3]"}
    assert plan.advice == []


def test_the_way_through_the_automaton(index: Index) -> None:
    plan = planned(index, "//s/item[@n > 3]//note/local:city", "//s/item", "//s//x", "/y")
    first, second, third = plan.way
    assert [each.step for each in plan.way] == ["//s", "/item", "//note"]
    assert [each.shared for each in plan.way] == [True, True, False]
    assert [each.asks for each in plan.way] == [[], ["[@n > 3]"], []]
    assert [bool(each.loop) for each in plan.way] == [True, False, True]
    assert len({0, first.loop, first.state, second.state, third.loop, third.state}) == 6
    assert plan.statements == 4


def test_states_are_those_of_the_automaton(index: Index) -> None:
    """A statement with the same beginning passes the same states, and one alike all of them."""
    beginning = planned(index, "//s/item", "//s/item/a")
    whole = planned(index, "//s/item/a", "//s/item/a[@k]")
    assert [each.state for each in whole.way[:2]] == [each.state for each in beginning.way]
    assert all(each.shared for each in whole.way)


def test_a_filter_alone_has_nothing_to_match(index: Index) -> None:
    plan = planned(index, "//s[item]")
    assert plan.crossings == []
    assert [each.asks for each in plan.way] == [["[item]"]]


def test_every_way_has_a_cost_in_parts(index: Index) -> None:
    (crossing,) = planned(index, "//item/local:city").crossings
    (join,) = crossing.joins
    assert (join.name, join.anchors, join.matches) == ("item/child::city", 300, 320)
    assert join.choice in {each.choice for each in join.alternatives}
    assert {each.choice.split("+")[0] for each in join.alternatives} == {
        *("admatch", "cmatch/path", "cmatch/vist")
    }
    for each in join.alternatives:
        assert each.estimate is not None
        assert sum(each.parts.values()) == pytest.approx(each.estimate)
    assert "instead of" in join.why


def test_more_inputs_are_weighed_otherwise(index: Index) -> None:
    def estimates(inputs: int) -> dict[str, float]:
        load = Workload(inputs, 1)
        (join,) = planned(index, "//item/local:city", workload=load).crossings[0].joins
        assert join.choice == join.alternatives[0].choice
        return {each.choice.split("+")[0]: each.estimate or 0.0 for each in join.alternatives}

    once, often = estimates(1), estimates(1_000_000)
    assert min(once, key=lambda each: once[each]) == "admatch"
    assert often["admatch"] == once["admatch"]
    assert often["cmatch/path"] < once["cmatch/path"]


def test_anchors_of_any_name_are_those_with_keys(index: Index) -> None:
    (crossing,) = planned(index, "//*/local:city").crossings
    [join] = crossing.joins
    assert join.name == "*/child::city"
    counts = [sum(each.count(tag) for each in index.segments) for tag in ("item", "part")]
    assert join.anchors == sum(counts)


def test_what_the_index_does_not_hold(index: Index) -> None:
    plan = planned(index, "//item/local:citi")
    assert plan.advice == ["the corpus has no citi; nearest: city"]
    assert plan.crossings[0].joins == []
    assert "nothing can match" in (plan.crossings[0].note or "")
    plan = planned(index, "//thing/local:city")
    assert "only fm:mi" in (plan.crossings[0].note or "")
    (crossing,) = planned(index, "//item/self::local:*").crossings
    assert "nothing to join" in (crossing.note or "")


def test_a_run_is_put_beside_the_plan(index: Index) -> None:
    text = "//item/local:city"
    plan = planned(index, text)
    with Middleware(index) as middleware:
        middleware.subscribe(text)
        middleware.publish(MESSAGE % b"".join(b"<item k='%d'/>" % n for n in range(250, 310)))
        plan.take(middleware.report())
    assert plan.ran is not None
    assert (plan.ran.messages, plan.ran.passed, plan.ran.matches) == (1, 1, 50)
    assert plan.ran.unmatched == 10
    (join,) = plan.crossings[0].joins
    assert join.report is not None
    assert (join.report.inputs, join.report.sample) == (50, 50)
    assert all(each.measured for each in join.report.alternatives)
    assert plan.to_json()["crossings"][0]["joins"][0]["report"]["inputs"] == 50


def test_labels_of_other_nodes_are_joined_with_those_of_the_name(index: Index) -> None:
    """A message may carry the label of any node: here an item that is a part."""
    plan = planned(index, "//item/local:city")
    label = int(index.identify("part", [b"7"]).right.start[0])
    with Middleware(index) as middleware:
        middleware.subscribe("//item/local:city")
        middleware.publish(b"<item xmlns:fm='urn:fmware' fm:mi='%d'/>" % label)
        plan.take(middleware.report())
    [join] = plan.crossings[0].joins
    assert join.name == "item/child::city"
    assert join.report is not None
    assert join.report.inputs == 1


def test_a_wildcard_is_one_join(index: Index) -> None:
    plan = planned(index, "//s/*/local:*")
    [join] = plan.crossings[0].joins
    assert join.name == "*/child::*"
    with Middleware(index) as middleware:
        middleware.subscribe("//s/*/local:*")
        middleware.publish(b"<s><item k='1'/><part k='7'/></s>")
        plan.take(middleware.report())
    assert join.report is not None
    assert join.report.inputs >= 1
    assert not join.report.error
