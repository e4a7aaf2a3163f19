"""What a report says of a run: everything that happened, and nothing that did not."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from fmware.cmatch import ProbeFailed
from fmware.corpus import add, build_index
from fmware.middleware import Middleware
from fmware.report import (
    Accuracy,
    Alternative,
    JoinReport,
    Report,
    ReportError,
    Share,
    StatementReport,
    Summary,
    Switch,
)
from tests.report.conftest import CROWD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.report.conftest import Run


def test_matches_and_messages_are_counted(run: Run) -> None:
    found = Counter(match.statement for result in run.results for match in result.matches)
    told = {each.name: each.matches for each in run.report.statements}
    assert {name: count for name, count in told.items() if count} == dict(found)
    summary = run.report.summary
    assert summary.matches == found.total()
    assert summary.messages == len(run.messages)
    assert summary.matched == sum(bool(result.matches) for result in run.results)
    assert summary.unmatched == sum(result.unmatched for result in run.results)
    assert summary.statements == len(told)
    assert summary.local_statements == sum(each.local for each in run.report.statements) == 6


def test_joins_are_those_of_statements(run: Run) -> None:
    report = run.report
    assert {s.join for each in report.statements for s in each.joins} == {
        join.name for join in report.joins
    }
    for join in report.joins:
        shares = [s for each in report.statements for s in each.joins if s.join == join.name]
        assert join.inputs == sum(share.inputs for share in shares) > 0
        assert join.counters["inputs"] == join.inputs
        assert join.counters["pairs"] == sum(share.pairs for share in shares)
        assert join.seconds == pytest.approx(sum(share.seconds for share in shares))
        assert sum(join.ran.values()) == join.inputs


def test_every_way_is_estimated_and_replayed(run: Run) -> None:
    for join in run.report.joins:
        ways = {each.choice: each for each in join.alternatives}
        schemes = {name.partition("/")[2].partition("+")[0] for name in ways}
        assert schemes == {"", "path", "vist", "prix"}
        assert join.choice in ways
        assert 0 < join.sample <= join.inputs
        for each in ways.values():
            assert each.measured is not None
            assert each.measured > 0
            assert each.cost == each.measured, "all inputs of so short a run are replayed"
            assert each.estimate is not None
            assert sum(each.parts.values()) == pytest.approx(each.estimate)
        assert join.best is not None
        assert ways[join.best].measured == min(each.measured or 0 for each in ways.values())
        assert join.regret is not None
        assert join.regret >= 0
    assert run.report.accuracy.points == sum(len(j.alternatives) for j in run.report.joins)


def test_the_twin_is_the_report(run: Run) -> None:
    assert Report.load(run.twin).to_json() == run.report.to_json()
    assert json.loads(run.twin.read_text()) == run.report.to_json()


def test_statements_that_only_filter_have_no_joins(run: Run) -> None:
    plain = [each for each in run.report.statements if not each.local]
    assert len(plain) == 5 + CROWD
    assert all(each.choice is None and each.measured is None for each in plain)


def test_an_operator_that_was_given_is_compared_with_nothing(run: Run) -> None:
    with Middleware(run.index, operator="cmatch", scheme="vist") as middleware:
        middleware.subscribe("//cited/article/local:author")
        list(middleware.stream(run.messages))
        report = middleware.report()
    (join,) = report.joins
    assert (join.choice, join.anchor, join.alternatives) == ("cmatch/vist", None, [])
    assert report.summary.regret_seconds is None
    assert report.accuracy == Accuracy()
    assert report.statements[0].measured == pytest.approx(join.seconds)


def test_a_run_without_messages(tmp_path: Path, run: Run) -> None:
    with Middleware(run.index) as middleware:
        middleware.subscribe("//article/local:author")
        report = middleware.report()
    assert (report.summary.messages, report.summary.rate, report.joins) == (0, 0.0, [])
    twin = report.write(tmp_path / "empty.html")
    assert Report.load(twin).to_json() == report.to_json()


def test_a_new_generation_is_replayed_alone(tmp_path: Path) -> None:
    (tmp_path / "one.xml").write_text("<s><item k='1'><city/></item></s>")
    (tmp_path / "two.xml").write_text("<s><item k='2'><city/></item></s>")
    build_index(tmp_path / "one.xml", tmp_path / "index", record="item", identity=["item=@k"])
    with Middleware(tmp_path / "index") as middleware:
        middleware.subscribe("//item/local:city")
        middleware.publish(b"<s><item k='1'/><item k='1'/></s>")
        add(tmp_path / "index", tmp_path / "two.xml")
        middleware.publish(b"<s><item k='2'/></s>")
        (join,) = middleware.report().joins
    assert (join.inputs, join.sample) == (3, 1)
    assert all(each.measured for each in join.alternatives)


def test_what_cannot_be_replayed_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ProbeFailed("it", "the disk is on fire")

    monkeypatch.setattr("fmware.report.collect.measure", broken)
    with Middleware(run.index) as middleware:
        middleware.subscribe("//cited/article/local:author")
        list(middleware.stream(run.messages))
        report = middleware.report()
    assert "the disk is on fire" in (report.joins[0].error or "")
    assert report.summary.regret_seconds is None


def test_nothing_is_replayed_without_time(run: Run) -> None:
    with Middleware(run.index) as middleware:
        middleware.subscribe("//cited/article/local:author")
        list(middleware.stream(run.messages))
        (join,) = middleware.report(seconds=0).joins
    assert (join.sample, join.best) == (0, None)
    assert all(each.estimate for each in join.alternatives)


# -- what follows from what --


def join_of(*ways: tuple[str, float, float], choice: str, inputs: int = 100) -> JoinReport:
    made = [Alternative(name, None, estimate, cost, cost) for name, estimate, cost in ways]
    return JoinReport(
        "a/child::b",
        "a",
        "child",
        "b",
        choice,
        inputs=inputs,
        batches=10,
        seconds=0.5,
        estimate=2e-6,
        alternatives=made,
        switches=[Switch(10, 0.1, "admatch", choice, "so")],
        counters={"pairs": 7, "false_hits": 10, "spills": 2},
        power={"path": 50.0, "vist": 2.0},
    ).settle()


def test_regret_is_what_the_best_would_have_saved() -> None:
    join = join_of(("admatch", 1e-6, 3e-6), ("cmatch/path", 2e-6, 1e-6), choice="admatch")
    assert (join.best, join.as_good) == ("cmatch/path", False)
    assert join.regret == pytest.approx(2e-6)
    assert join.regret_seconds == pytest.approx(2e-4)
    summary = Summary(seconds={"filter": 1.0, "match": 1.0}, messages=10).settle([join])
    assert (summary.busy, summary.rate, summary.switches, summary.pairs) == (2.0, 5.0, 1, 7)
    assert summary.regret_share == pytest.approx(2e-4 / 0.5)


def test_a_choice_that_is_nearly_as_good_is_right() -> None:
    near = join_of(("admatch", 1e-6, 1.05e-6), ("cmatch/path", 1e-6, 1e-6), choice="admatch")
    far = join_of(("admatch", 1e-6, 2e-6), ("cmatch/path", 1e-6, 1e-6), choice="admatch")
    unknown = join_of(choice="admatch")
    found = Accuracy.of([near, far, unknown])
    assert (found.joins, found.right) == (2, 0.5)


def test_accuracy_counts_estimates_within_a_factor_of_two() -> None:
    join = join_of(
        *(("admatch", 1e-6, 1.9e-6), ("cmatch/path", 1e-6, 2.1e-6), ("cmatch/vist", 1e-6, 0.4e-6)),
        choice="admatch",
    )
    found = Accuracy.of([join])
    assert found.points == 3
    assert found.within == pytest.approx(1 / 3)
    assert found.ratio == pytest.approx(1.9)


def test_a_statement_has_its_share_of_a_join() -> None:
    join = join_of(("admatch", 1e-6, 3e-6), ("cmatch/path", 2e-6, 1e-6), choice="admatch")
    shares = [Share(join.name, 50, 4, 0.25), Share("gone/child::c", 3, 1, 0.1)]
    mine = StatementReport("s", "//a/local:b", 5, 4, joins=shares).settle({join.name: join})
    assert (mine.inputs, mine.pairs, mine.measured) == (50, 4, 0.25)
    assert mine.estimate == pytest.approx(1e-4)
    assert mine.regret == pytest.approx(1e-4)
    assert mine.best == pytest.approx(0.25 - 1e-4)
    assert (mine.false_hits, mine.spills, mine.power, mine.switches) == (5, 1, 50.0, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "not JSON"),
        ("[]", "not a report"),
        ('{"format": 99}', "not a report"),
        ('{"format": 1}', "missing"),
        ('{"format": 1, "summary": {"what": 1}}', "missing"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=says) as caught:
        Report.load(path)
    assert str(path) in str(caught.value)


def test_a_page_is_not_written_over_its_figures(tmp_path: Path, run: Run) -> None:
    with pytest.raises(ReportError, match="suffix"):
        run.report.write(tmp_path / "r.json")
    assert not list(tmp_path.iterdir())
