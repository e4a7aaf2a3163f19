"""The page of a report: one HTML file that needs nothing else, neither now nor in ten years.

Scripts, styles, charts and figures are all in it, and its policy forbids it to fetch anything, or
to run scripts other than its own: those are named there by their digests. What comes from users,
such as statements, is data in a block of JSON, or text; it never becomes markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from fmware.report.charts import charts
from fmware.report.report import ReportError
from fmware.report.themes import THEMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmware.report.charts import Chart
    from fmware.report.report import Report

__all__ = ["page"]

SPACE = "\u202f"
NONE = "–"
MARK = (
    '<svg width="26" height="26" viewBox="0 0 26 26" aria-hidden="true">'
    '<rect width="26" height="26" rx="7" fill="#2563eb"/>'
    '<path d="M7 6v14M7 7h11M7 13h7" stroke="#fff" stroke-width="2.4" stroke-linecap="round"/>'
    '<circle cx="18.5" cy="18.5" r="2.6" fill="#fff"/></svg>'
)


def page(report: Report) -> str:
    """The whole page."""
    drawn = charts(report)
    scripts = [_asset("page.js"), _vega()]
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            '<link rel="icon" href="data:,">\n',
            f"<title>{escape(report.title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n",
            '<body>\n<a class="skip" href="#statements">To the statements</a>\n',
            _header(report),
            '<main class="wide">\n',
            _cards(report),
            _figures(drawn),
            _statements(report),
            _joins(report),
            _facts(report),
            "</main>\n",
            _footer(report),
            _data("report", report.to_json()),
            _data("charts", {"charts": [_chart(each) for each in drawn], "themes": THEMES}),
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body>\n</html>\n",
        ]
    )


def _footer(report: Report) -> str:
    return (
        f'<footer class="wide">Made by FMware {escape(report.version)}. '
        "The same figures are in the JSON file beside this page.</footer>\n"
    )


# -- what is in it --


@cache
def _asset(name: str) -> str:
    return resources.files("fmware.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and vega-embed, as one script."""
    try:
        import vl_convert
    except ImportError:
        raise ReportError(
            "the page needs vl-convert-python for its charts: pip install 'fmware[report]'"
        ) from None
    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return made.replace("</script", "<\\/script")


def _policy(scripts: Iterable[str]) -> str:
    """Nothing may be fetched, and no script may run but these."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    known = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return (
        f"default-src 'none'; script-src {known}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(name: str, value: Any) -> str:
    """A block of JSON in which nothing can end the block, or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def _chart(chart: Chart) -> dict[str, Any]:
    return {"name": chart.name, "spec": chart.spec | {"description": chart.description}}


# -- its head --


def _header(report: Report) -> str:
    run, index = report.summary, report.index
    made = escape(report.made.replace("T", " ").removesuffix("Z"))
    title = (
        f"{_count(run.messages, 'message')}, {_count(run.matches, 'match', 'matches')}, "
        f"{run.rate:,.0f} messages a second"
    )
    about = [
        f"Index <code>{escape(str(index.get('path', NONE)))}</code>",
        f"generation {escape(str(index.get('generation', NONE)))}",
        f"{index.get('nodes', 0):,} nodes",
        f"{made} UTC",
    ]
    return (
        f'<header class="wide">\n<div class="brand">{MARK} {escape(report.title)}</div>\n'
        f'<h1>{title}</h1>\n<p class="lead">{_verdict(report)}</p>\n'
        f'<ul class="about">{"".join(f"<li>{each}</li>" for each in about)}</ul>\n</header>\n'
    )


def _verdict(report: Report) -> str:
    """What a reader in a hurry is to take away."""
    run, known = report.summary, report.accuracy
    if not report.joins:
        return "No statement asked the local corpus, so there was nothing to choose."
    kinds = Counter("CMatch" if j.choice.startswith("cmatch") else "AD-only" for j in report.joins)
    chose = ", ".join(f"<b>{name}</b> did {count:,}" for name, count in kinds.most_common())
    said = f"Of {_count(run.joins, 'join')} with the corpus, {chose}."
    if known.right is None:
        return f"{said} The operator was given, so nothing was estimated or compared."
    over = run.regret_share or 0.0
    more = f"<b>{over:.1%}</b> more than" if over >= 0.0005 else "<b>no more</b> than"
    said += (
        f" The cost model's choice was as good as the best way in <b>{known.right:.0%}</b> of "
        f"them, and all choices together cost {more} the best ones would have."
    )
    if known.within is not None:
        said += f" <b>{known.within:.0%}</b> of its estimates were within a factor of two."
    return said


def _cards(report: Report) -> str:
    run, known = report.summary, report.accuracy
    counters = run.counters
    candidates, false_hits = (counters.get(name, 0) for name in ("candidates", "false_hits"))
    cards = [
        ("messages", _value("count", run.messages, "summary.messages"), _per(run.rate, run.busy)),
        (
            "matches",
            _value("count", run.matches, "summary.matches"),
            f"in {run.matched:,} messages, of {_count(run.statements, 'statement')}",
        ),
        (
            "time in joins",
            _value("time", run.join_seconds, "summary.join_seconds"),
            f"{run.inputs:,} inputs, {run.pairs:,} pairs",
        ),
        (
            "regret",
            _value("time", run.regret_seconds, "summary.regret_seconds"),
            "nothing was compared"
            if run.regret_share is None
            else f"{run.regret_share:.1%} of that time",
        ),
        (
            "estimates within 2×",
            _value("share", known.within, "accuracy.within"),
            "none to compare"
            if known.ratio is None
            else f"median of measured to estimated: {known.ratio:.2f}",
        ),
        (
            "index scans by label",
            _value("count", counters.get("index_scans", 0), "summary.counters.index_scans"),
            f"{candidates:,.0f} candidates, {false_hits:,.0f} false hits",
        ),
        (
            "switches",
            _value("count", run.switches, "summary.switches"),
            f"in {_count(run.joins, 'join')}, while messages came",
        ),
        (
            "spills to disk",
            _value("count", counters.get("spills", 0), "summary.counters.spills"),
            f"{counters.get('peak_bytes', 0) / 1e6:,.1f} MB held at most",
        ),
    ]
    shown = "".join(
        f'<dl class="card figure"><dt>{name}</dt>{value}<dd class="note">{note}</dd></dl>\n'
        for name, value, note in cards
    )
    return f'<section aria-label="Totals" class="cards">\n{shown}</section>\n'


def _per(rate: float, busy: float) -> str:
    return f"{rate:,.0f} a second, in {_time(busy)}"


def _figures(drawn: list[Chart]) -> str:
    if not drawn:
        return ""
    # Two short ones stand beside the one with many rows.
    shapes = {"slowest": " full", "switches": " tall"}
    shown = "".join(
        f'<figure class="card chart{shapes.get(chart.name, "")}" id="chart-{chart.name}">\n'
        f"<h2>{escape(chart.title)}</h2>\n<figcaption>{escape(chart.caption)}</figcaption>\n"
        f"{_legend(chart)}"
        f'<div class="plot" role="img" aria-label="{escape(chart.description)}" '
        f'style="height:{chart.height}px"></div>\n</figure>\n'
        for chart in drawn
    )
    return f'<section aria-label="Charts" class="charts">\n{shown}</section>\n'


def _legend(chart: Chart) -> str:
    shown = "".join(
        f'<li class="way" style="--dot: var(--{_colour(each)}, var(--other))">'
        f"{escape(each.removeprefix('cmatch/') if chart.name == 'clustering' else each)}</li>"
        for each in chart.legend
    )
    return f'<ul class="legend" aria-hidden="true">{shown}</ul>\n'


def _colour(choice: str) -> str:
    """The name of a category's colour in the style sheet."""
    scheme = choice.removeprefix("cmatch/").replace("+admatch", "-split")
    return "".join(sign if sign.isalnum() else "-" for sign in scheme)


# -- its tables, which the script fills --


def _statements(report: Report) -> str:
    left = f" {report.left_out:,} more only filter and are left out." if report.left_out else ""
    choices = "".join(
        f'<option value="{value}">{text}</option>'
        for value, text in (
            ("all", "all statements"),
            ("local", "that ask the corpus"),
            ("filter", "that only filter"),
        )
    )
    return _sheet(
        "statements",
        "Statements",
        "Times are CPU time over the run, in joins alone. Estimated: what the chosen ways were "
        "thought to cost for these inputs. Best: what the best ways would have cost. Open a line "
        f"for all alternatives.{left}",
        "statement, passed, matches, inputs, way, estimated, measured, best, regret",
        f'<select aria-label="Which statements">{choices}</select>',
    )


def _joins(report: Report) -> str:
    if not report.joins:
        return ""
    return _sheet(
        "joins",
        "Joins",
        "What operators did: anchors of one tag, matched with nodes of another on an axis. "
        "Statements that ask for the same share one. Times are CPU time an input.",
        "join, way, inputs, labels, candidates, false hits, spills, estimated, measured, regret",
    )


def _sheet(name: str, title: str, caption: str, heads: str, more: str = "") -> str:
    texts = {"statement", "join", "way"}
    cells = "".join(
        f'<th scope="col"{" class=text" if head in texts else ""}>'
        f'<button type="button">{head}</button></th>'
        for head in heads.split(", ")
    )
    return (
        f'<section class="card sheet" id="{name}" aria-labelledby="{name}-title">\n'
        f'<h2 id="{name}-title">{title}</h2>\n<p class="caption">{caption}</p>\n'
        f'<div class="tools"><input type="search" placeholder="Search {name}" '
        f'aria-label="Search {name}">{more}<div class="pager">'
        '<span role="status"></span><button type="button" aria-label="Page before">‹</button>'
        '<button type="button" aria-label="Next page">›</button></div></div>\n'
        f'<div class="scroll"><table class="stack"><caption>{title}</caption>'
        f"<thead><tr>{cells}</tr></thead><tbody></tbody></table></div>\n"
        "<noscript><p class=caption>The table is drawn by the script in this page.</p></noscript>\n"
        "</section>\n"
    )


# -- what else there is to know --

WORDS = {
    "Way": "How the first step of a match part is joined. admatch asks the index for every input; "
    "cmatch/path asks once for every label of the scheme path and cleans what comes; "
    "cmatch/path+admatch rents labels first: their inputs go to admatch until that has cost as "
    "much as to fetch them.",
    "Measured": "CPU time of this run, as it was.",
    "Cost": "What an input of this run costs, done in one of the ways: the first inputs of each "
    "join were recorded, and replayed afterwards with all of them. Sample: on these inputs alone.",
    "Estimated": "What the cost model says of the same inputs, from the index's statistics and "
    "from unit costs measured on this machine. Expected: what it said before a message had come.",
    "Regret": "What the chosen way costs more than the best one, both replayed.",
    "False hits": "Candidates that share a label with an input, and that AD labels then refused.",
}


def _facts(report: Report) -> str:
    index = report.index
    about: list[tuple[str, str]] = [("Path", str(index.get("path", NONE)))]
    about += [("Generation", str(index.get("generation", NONE)))]
    about += [("Nodes", f"{index.get('nodes', 0):,}")]
    for scheme, found in index.get("schemes", {}).items():
        power = f"{found['labels']:,} labels, {found['power']:,.1f} nodes each"
        about.append((f"Scheme {scheme}", power))
    about += [(name.capitalize(), _setting(name, value)) for name, value in report.settings.items()]
    units = report.units or {}
    lines = [(name, _unit(value)) for name, value in units.items() if name != "version"]
    calibrated = (
        f"<details><summary>Unit costs of this machine</summary>{_list(lines)}</details>"
        if lines
        else '<p class="caption">Not calibrated here: <code>fmware index calibrate</code>.</p>'
    )
    return (
        '<section class="facts" aria-label="About this run">\n'
        f'<div class="card"><h2>Index and settings</h2>{_list(about)}{calibrated}</div>\n'
        f'<div class="card words"><h2>Words</h2>{_list(WORDS.items())}</div>\n</section>\n'
    )


def _list(rows: Iterable[tuple[str, str]]) -> str:
    shown = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<dl>{shown}</dl>"


def _setting(name: str, value: Any) -> str:
    if value is None:
        return "as the model chooses"
    return f"{value / (1 << 20):,.0f} MB for each operator" if name == "budget" else str(value)


def _unit(value: Any) -> str:
    return _time(value) if isinstance(value, float) and value < 1 else str(value)


# -- figures --


def _value(kind: str, value: float | None, of: str) -> str:
    """A figure, with the place in the JSON twin that it comes from."""
    if value is None:
        return f"<dd>{NONE}</dd>"
    shown = {"count": _whole, "time": _time, "share": _share}[kind](value)
    return f'<dd data-of="{of}" data-value="{value!r}">{shown}</dd>'


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{_short(seconds / size)}{SPACE}{unit}"
    return f"{_short(seconds * 1e9)}{SPACE}ns" if seconds else "0"


def _short(value: float) -> str:
    """Three figures that count."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
