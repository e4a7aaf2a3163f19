"""The page in a browser: drawn, true to its twin, silent on the network, and never markup."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fmware.report import Accuracy, Report, StatementReport, Summary
from fmware.report.charts import charts
from fmware.report.page import page
from fmware.report.themes import THEMES
from tests.report.conftest import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from tests.report.conftest import Run

MARKS = "svg g.mark-symbol path, svg g.mark-rect path, svg g.mark-rule line"
SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) sum += each.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 50);
})"""
"""How far things moved on the page while it was drawn."""
SIZES = {"laptop": (1366, 768), "phone": (390, 844)}


def test_a_page_names_nothing_outside_itself(run: Run) -> None:
    text = run.page.read_text()
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)", markup)
    assert "default-src 'none'" in text
    assert "unsafe-eval" not in text
    assert not re.search(r"script-src[^;]*unsafe-inline", text)


def test_statements_are_data_never_markup(run: Run) -> None:
    text = run.page.read_text()
    assert text.count("<script") == text.count("</script>") == 4
    assert "document.title = 1</script>" not in text
    block = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.S)
    assert block is not None
    assert json.loads(block[1]) == json.loads(run.twin.read_text())
    assert HOSTILE in {each["text"] for each in json.loads(block[1])["statements"]}


def test_names_of_the_index_are_escaped(run: Run) -> None:
    odd = replace(run.report, title="<b>&", index={**run.report.index, "path": "</title><i>"})
    text = page(odd)
    assert "<title>&lt;b&gt;&amp;</title>" in text
    assert "<i>" not in text


def test_a_page_is_made_again_from_its_twin(run: Run) -> None:
    assert page(Report.load(run.twin)) == run.page.read_text()


def test_a_choice_has_one_colour_in_all_charts(run: Run) -> None:
    domains = {
        json.dumps(domain)
        for chart in charts(run.report)
        for domain in re.findall(r'"domain": (\["admatch".*?\])', json.dumps(chart.spec))
    }
    assert len(domains) == 1
    assert {len(theme["range"]["category"]) for theme in THEMES.values()} == {9}


# -- in a browser --


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


class Seen:
    """A page that is open, and what it did that it should not."""

    def __init__(self, browser: Browser, path: Path, size: str = "laptop", **options: Any) -> None:
        width, height = SIZES[size]
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def looked_up(twin: Any, path: str) -> Any:
    for key in path.split("."):
        twin = twin[int(key) if isinstance(twin, list) else key]
    return twin


@pytest.mark.browser
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_in_a_browser(browser: Browser, run: Run, theme: Any, size: str) -> None:
    with Seen(browser, run.page, size, color_scheme=theme) as seen:
        page = seen.page
        drawn = charts(run.report)
        assert [chart.name for chart in drawn] == [
            *("accuracy", "alternatives", "slowest", "switches", "clustering", "stages")
        ]
        for chart in drawn:
            plot = page.locator(f"#chart-{chart.name} .plot")
            assert plot.locator(MARKS).count() >= 3 or chart.name == "stages"
            assert plot.locator(MARKS).count() > 0
            box = plot.locator("svg").bounding_box()
            assert box is not None
            assert abs(box["height"] - chart.height) <= 1
        ink = page.evaluate("getComputedStyle(document.querySelector('.plot text')).fill")
        assert ink in page.evaluate(
            "themes => themes.map(c => {const d = document.createElement('i'); d.style.color = c;"
            "document.body.append(d); return getComputedStyle(d).color})",
            [THEMES[theme]["axis"]["labelColor"], THEMES[theme]["axisY"]["labelColor"]],
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert page.evaluate(SHIFTS) == 0
        assert page.title() == run.report.title
        assert seen.said == []
        assert seen.requests == [run.page.as_uri()]


@pytest.mark.browser
def test_what_is_there_can_be_told_without_seeing_it(browser: Browser, run: Run) -> None:
    with Seen(browser, run.page) as seen:
        page = seen.page
        assert page.locator("h1").count() == 1
        assert page.locator("table").count() == page.locator("table > caption").count() == 2
        plots = page.locator(".plot")
        labels = [plot.get_attribute("aria-label") for plot in plots.all()]
        assert labels == [chart.description for chart in charts(run.report)]
        for control in page.locator("input, select, .pager button").all():
            assert control.get_attribute("aria-label")
        toggle = page.locator("#statements button.toggle").first
        toggle.focus()
        page.keyboard.press("Enter")
        assert toggle.get_attribute("aria-expanded") == "true"
        assert page.locator("#statements .join").first.is_visible()


@pytest.mark.browser
def test_every_figure_is_that_of_the_twin(browser: Browser, run: Run) -> None:
    twin = json.loads(run.twin.read_text())
    with Seen(browser, run.page) as seen:
        page = seen.page
        for toggle in page.locator("button.toggle").all():
            toggle.click()
        told = page.eval_on_selector_all(
            "[data-of]", "all => all.map(e => [e.dataset.of, e.dataset.value, e.textContent])"
        )
        assert len(told) > 100
        for of, value, shown in told:
            assert float(value) == pytest.approx(looked_up(twin, of)), of
            assert shown
        counts = {of: shown for of, _, shown in told if of.endswith((".matches", ".messages"))}
        for of, shown in counts.items():
            assert shown == f"{looked_up(twin, of):,}"
        paths = {of for of, _, _ in told}
        assert {f"statements.{n}.matches" for n in range(25)} <= paths
        assert {f"joins.{n}.regret" for n in range(min(25, len(twin["joins"])))} <= paths


@pytest.mark.browser
def test_thousands_of_statements_are_searched_and_paged(
    browser: Browser, run: Run, tmp_path: Path
) -> None:
    crowd = [StatementReport(f"c{n}", f"//a[b = {n}]", n, n) for n in range(3000)]
    many = replace(run.report, statements=run.report.statements + crowd)
    many.write(tmp_path / "many.html")
    with Seen(browser, tmp_path / "many.html") as seen:
        sheet = seen.page.locator("#statements")
        rows = sheet.locator("tbody tr.row")
        assert rows.count() == 25
        assert sheet.locator(".pager span").inner_text().endswith(f"of {len(many.statements):,}")
        sheet.get_by_label("Next page").click()
        assert sheet.locator(".pager span").inner_text().startswith("26–50")
        sheet.get_by_role("button", name="matches").click()
        assert rows.first.locator("[data-label=matches]").inner_text() == "2,999"
        sheet.get_by_role("searchbox").fill("c1234 //a[b")
        assert rows.count() == 1
        sheet.get_by_role("searchbox").fill("document.title")
        assert rows.first.locator(".code").inner_text() == HOSTILE
        sheet.get_by_role("searchbox").fill("")
        sheet.get_by_role("combobox").select_option("local")
        assert rows.count() == 6
        assert seen.said == []


@pytest.mark.browser
def test_runs_with_less_to_tell(browser: Browser, run: Run, tmp_path: Path) -> None:
    given = [replace(each, alternatives=[], switches=[]) for each in run.report.joins]
    empty = replace(run.report, joins=[], statements=[], summary=Summary(), accuracy=Accuracy())
    for name, report, number in (
        ("given", replace(run.report, joins=given, accuracy=Accuracy.of(given)), 4),
        ("empty", empty, 0),
    ):
        path = tmp_path / f"{name}.html"
        report.write(path)
        with Seen(browser, path) as seen:
            assert seen.page.locator(".plot[data-drawn]").count() == number
            assert seen.said == []


@pytest.mark.browser
def test_a_theme_that_changes_is_followed(browser: Browser, run: Run) -> None:
    with Seen(browser, run.page, color_scheme="light") as seen:
        fill = "getComputedStyle(document.querySelector('#chart-accuracy .plot text')).fill"
        before = seen.page.evaluate(fill)
        seen.page.emulate_media(color_scheme="dark")
        seen.page.wait_for_function(f"before => {fill} !== before", arg=before)
        assert seen.said == []
