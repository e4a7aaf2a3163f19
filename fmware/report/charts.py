"""What the page draws, as Vega-Lite specifications with their data in them.

A specification says nothing of colours: names of styles and the order of categories do, and the
configuration of a theme, light or dark, gives them their looks. So one specification serves both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fmware.report.report import BAND, points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.report.report import JoinReport, Report, StatementReport

__all__ = ["THEMES", "Chart", "charts"]

Spec: TypeAlias = dict[str, Any]

SHOWN = 12
"""Rows of a chart with a row each: more are in the tables."""
MICRO = 1e6
MILLI = 1e3
ROW = 30
"""Pixels of a row; the axis below takes `FRAME` more."""
FRAME = 56

CHOICES = (
    "admatch",
    "cmatch/path",
    "cmatch/vist",
    "cmatch/prix",
    "cmatch/path+admatch",
    "cmatch/vist+admatch",
    "cmatch/prix+admatch",
)
"""In the order of the colours, so that a choice has the same one in every chart."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the page: what it is called, what it says in words, and how it is drawn.

    The legend is the page's, which knows how to wrap it: categories in the order of their colours.
    """

    name: str
    title: str
    caption: str
    description: str
    spec: Spec
    legend: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        """Pixels, known before it is drawn, so that nothing on the page moves."""
        return int(self.spec["height"])


def charts(report: Report) -> list[Chart]:
    """The charts of a report, in the order of the page; those that would be empty are left out."""
    made = (
        _accuracy(report),
        _alternatives(report),
        _slowest(report),
        _switches(report),
        _clustering(report),
        _stages(report),
    )
    return [chart for chart in made if chart is not None]


# -- the charts --


def _accuracy(report: Report) -> Chart | None:
    """Estimated against measured."""
    rows: list[Spec] = [
        {
            "join": join.name,
            "choice": each.choice,
            "estimate": (each.estimate or 0.0) * MICRO,
            "measured": (each.measured or 0.0) * MICRO,
            "ratio": each.ratio,
            "role": "chosen" if each.choice == join.choice else "alternative",
        }
        for join, each in points(report.joins)
    ]
    if not rows:
        return None
    low, high = _span([row[key] for row in rows for key in ("estimate", "measured")])
    scale = _log(low, high)
    band = [{"x": x, "low": x / BAND, "high": x * BAND} for x in (low, high)]
    axis = {"title": "estimated, µs an input", **_decades(low, high)}
    x = {"field": "estimate", "type": "quantitative", "scale": scale, "axis": axis}
    y = {**x, "field": "measured", "axis": {**axis, "title": "measured, µs an input"}}
    choice = _choice(rows)
    spec: Spec = {
        "height": 400,
        "layer": [
            {
                "data": {"values": band},
                "mark": {"type": "area", "style": "band", "clip": True},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative", "scale": scale},
                    "y": {"field": "low", "type": "quantitative", "scale": scale},
                    "y2": {"field": "high"},
                },
            },
            {
                "data": {"values": [{"x": low}, {"x": high}]},
                "mark": {"type": "line", "style": "even", "clip": True},
                "encoding": {
                    "x": {"field": "x", "type": "quantitative", "scale": scale},
                    "y": {"field": "x", "type": "quantitative", "scale": scale},
                },
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "size": 90, "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "y": y,
                    "stroke": choice,
                    "fill": choice,
                    "fillOpacity": _chosen(0.85, 0.0),
                    "tooltip": [
                        _tip("join", "join"),
                        _tip("choice", "way"),
                        _tip("role", "role"),
                        _tip("estimate", "estimated, µs", ",.3~f"),
                        _tip("measured", "measured, µs", ",.3~f"),
                        _tip("ratio", "measured / estimated", ".2f"),
                    ],
                },
            },
        ],
    }
    within = report.accuracy.within or 0.0
    return Chart(
        "accuracy",
        "How well the cost model knew",
        "Each point is one way to do one join: what the model says that inputs like these cost, "
        "and what they did cost. Filled points are what was chosen. In the band, the estimate is "
        "off by less than a factor of two.",
        f"Estimated against measured cost of {len(rows)} alternatives on logarithmic axes; "
        f"{within:.0%} of them lie within a factor of two.",
        _whole(spec),
        _legend(rows),
    )


def _alternatives(report: Report) -> Chart | None:
    """What else the joins could have cost."""
    joins = [j for j in report.by_cost if any(a.cost for a in j.alternatives)][:SHOWN]
    if not joins:
        return None
    rows: list[Spec] = [
        {
            "join": join.name,
            "choice": each.choice,
            "cost": each.cost * MICRO,
            "first": None if each.first is None else each.first * MICRO,
            "role": "chosen" if each.choice == join.choice else "alternative",
        }
        for join in joins
        for each in join.alternatives
        if each.cost
    ]
    low, high = _span([v for row in rows for k in ("cost", "first") if (v := row[k])])
    y = _named("join", [join.name for join in joins])
    axis = {"title": "µs an input", "grid": True, **_decades(low, high)}
    x = {"field": "cost", "type": "quantitative", "scale": _log(low, high), "axis": axis}
    choice = _choice(rows)
    tips = [
        _tip("join", "join"),
        _tip("choice", "way"),
        _tip("role", "role"),
        _tip("cost", "measured, µs", ",.3~f"),
        _tip("first", "expected, µs", ",.3~f"),
    ]
    spec: Spec = {
        "height": ROW * len(joins) + FRAME,
        "data": {"values": rows},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "rule", "style": "span"},
                "encoding": {
                    "x": {**x, "aggregate": "min"},
                    "x2": {"field": "cost", "aggregate": "max"},
                },
            },
            {
                "mark": {"type": "tick", "thickness": 2, "size": 16, "opacity": 0.75},
                "encoding": {
                    "x": {**x, "field": "first"},
                    "color": choice,
                    "tooltip": tips,
                },
            },
            {
                "mark": {"type": "point", "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "stroke": choice,
                    "fill": choice,
                    "fillOpacity": _chosen(0.9, 0.0),
                    "size": _chosen(150, 70),
                    "tooltip": tips,
                },
            },
        ],
    }
    return Chart(
        "alternatives",
        "What the alternatives would have cost",
        "The most expensive joins, each done in every way on the same inputs of this run. The "
        "filled point is what was chosen; the further left, the cheaper. Thin ticks are what was "
        "expected before the first message.",
        f"For {len(joins)} joins, the measured cost an input of every alternative.",
        _whole(spec),
        _legend(rows),
    )


def _slowest(report: Report) -> Chart | None:
    """The statements that took longest."""
    found = [each for each in report.statements if each.measured]
    found = sorted(found, key=lambda each: -(each.measured or 0.0))[:SHOWN]
    if not found:
        return None
    rows: list[Spec] = [
        {
            "statement": _label(each),
            "choice": (each.choice or "").split(", ")[0],
            "measured": (each.measured or 0.0) * MILLI,
            "best": None if each.best is None else each.best * MILLI,
            "inputs": each.inputs,
            "matches": each.matches,
        }
        for each in found
    ]
    axis = {"title": "CPU ms of joins in this run", "grid": True, "tickCount": 6}
    x = {"field": "measured", "type": "quantitative", "axis": axis}
    tips = [
        _tip("statement", "statement"),
        _tip("choice", "way"),
        _tip("measured", "measured, ms", ",.3~f"),
        _tip("best", "best choice, ms", ",.3~f"),
        _tip("inputs", "inputs", ","),
        _tip("matches", "matches", ","),
    ]
    spec: Spec = {
        "height": ROW * len(rows) + FRAME,
        "data": {"values": rows},
        "encoding": {"y": _named("statement", [row["statement"] for row in rows])},
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.62}},
                "encoding": {
                    "x": x,
                    "color": _choice(rows),
                    "tooltip": tips,
                },
            },
            {
                "mark": {"type": "tick", "style": "best", "thickness": 3, "size": 24},
                "encoding": {"x": {**x, "field": "best"}, "tooltip": tips},
            },
        ],
    }
    return Chart(
        "slowest",
        "The slowest statements",
        "Time in joins, over the whole run. The tick is what it would have been with the best "
        "choices: the bar beyond it is regret.",
        f"CPU milliseconds of the {len(rows)} statements with the most expensive joins.",
        _whole(spec),
        _legend(rows),
    )


def _switches(report: Report) -> Chart | None:
    """Which choice ran when."""
    found = [join for join in report.by_cost if join.inputs]
    found = sorted(found, key=lambda join: not join.switches)[:SHOWN]
    if not found:
        return None
    rows = [row for join in found for row in _stretches(join)]
    marks = [
        {"join": join.name, "at": each.inputs / join.inputs, "why": each.why, "inputs": each.inputs}
        for join in found
        for each in join.switches
    ]
    axis = {"title": "share of the join's inputs so far", "format": ".0%", "tickCount": 5}
    x = {"type": "quantitative", "scale": {"domain": [0, 1], "nice": False}, "axis": axis}
    spec: Spec = {
        "height": ROW * len(found) + FRAME,
        "encoding": {"y": _named("join", [join.name for join in found])},
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "height": {"band": 0.55}},
                "encoding": {
                    "x": {**x, "field": "begin"},
                    "x2": {"field": "end"},
                    "color": _choice(rows),
                    "tooltip": [
                        _tip("join", "join"),
                        _tip("choice", "way"),
                        _tip("inputs", "inputs", ","),
                    ],
                },
            },
            {
                "data": {"values": marks},
                "mark": {"type": "tick", "style": "best", "thickness": 3, "size": 22},
                "encoding": {
                    "x": {**x, "field": "at"},
                    "tooltip": [_tip("inputs", "after inputs", ","), _tip("why", "why")],
                },
            },
        ],
    }
    count = sum(len(join.switches) for join in found)
    return Chart(
        "switches",
        "What ran when",
        "Every join from its first input to its last. A tick is where live figures made it change "
        "its mind; those that did come first.",
        f"The choices of {len(found)} joins over their inputs, with {count} switches.",
        _whole(spec),
        _legend(rows),
    )


def _clustering(report: Report) -> Chart | None:
    """How well labels cluster anchors."""
    anchors: dict[str, dict[str, float]] = {}
    for join in report.by_cost:
        if any(join.power.values()):
            anchors.setdefault(join.anchor or "any tag", join.power)
    rows: list[Spec] = [
        {
            "anchor": anchor,
            "choice": f"cmatch/{scheme}",
            "scheme": scheme,
            "power": power,
            # Schemes may cluster alike: then the points are rings around each other.
            "area": 85 * (len(each) - number) - 20,
        }
        for anchor, each in list(anchors.items())[:SHOWN]
        for number, (scheme, power) in enumerate(each.items())
        if power
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(row["anchor"] for row in rows))
    high = 2 * max(row["power"] for row in rows)
    axis = {"title": "nodes that share a label", "grid": True, **_decades(1, high)}
    choice = _choice(rows)
    x = {"field": "power", "type": "quantitative", "scale": _log(0.8, high), "axis": axis}
    spec: Spec = {
        "height": ROW * len(names) + FRAME,
        "data": {"values": rows},
        "encoding": {"y": _named("anchor", names)},
        "layer": [
            {
                "mark": {"type": "rule", "style": "span"},
                "encoding": {
                    "x": {**x, "aggregate": "min"},
                    "x2": {"field": "power", "aggregate": "max"},
                },
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "x": x,
                    "color": choice,
                    "size": {"field": "area", "type": "quantitative", "scale": None},
                    "tooltip": [
                        _tip("anchor", "anchors"),
                        _tip("scheme", "scheme"),
                        _tip("power", "nodes that share a label", ",.1~f"),
                    ],
                },
            },
        ],
    }
    return Chart(
        "clustering",
        "How well labels cluster",
        "Clustering power of the anchors' tags: CMatch asks the index once a label, so the more "
        "nodes share one, the less it asks; a power of one gains nothing.",
        f"Mean number of nodes that share a SES label, for {len(names)} tags and each scheme.",
        _whole(spec),
        _legend(rows),
    )


def _stages(report: Report) -> Chart | None:
    """Where the time went."""
    seconds = report.summary.seconds
    if not report.summary.busy:
        return None
    rows: list[Spec] = [
        {"stage": stage, "order": number, "ms": spent * MILLI, "share": spent / report.summary.busy}
        for number, (stage, spent) in enumerate(seconds.items())
    ]
    spec: Spec = {
        "height": 116,
        "data": {"values": rows},
        "mark": {"type": "bar", "height": {"band": 0.8}, "cornerRadius": 3, "style": "stage"},
        "encoding": {
            "x": {
                "field": "ms",
                "type": "quantitative",
                "stack": "zero",
                "axis": {"title": "ms by the clock", "tickCount": 5, "grid": False},
                "scale": {"nice": False},
            },
            "color": {
                "field": "stage",
                "type": "nominal",
                "scale": {"domain": list(seconds), "range": "ordinal"},
                "legend": None,
            },
            "order": {"field": "order"},
            "tooltip": [
                _tip("stage", "stage"),
                _tip("ms", "ms", ",.1~f"),
                _tip("share", "share", ".1%"),
            ],
        },
    }
    return Chart(
        "stages",
        "Where the time went",
        "Filter: reading messages and running all filter parts. Identify: the anchors' local "
        "nodes. Match: joins, and what is left of the match parts.",
        "Milliseconds of the run, by stage: "
        + ", ".join(f"{row['stage']} {row['share']:.0%}" for row in rows),
        _whole(spec),
        tuple(seconds),
    )


# -- what they share --


def _whole(spec: Spec) -> Spec:
    """A specification that is as wide as its place, and exactly as high as it says."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "autosize": {"type": "fit", "contains": "padding", "resize": True},
        **spec,
    }


def _choice(rows: Sequence[Spec]) -> Spec:
    others = [each for each in _legend(rows) if each not in CHOICES]
    scale = {"domain": [*CHOICES, *others]}
    return {"field": "choice", "type": "nominal", "scale": scale, "legend": None}


def _legend(rows: Sequence[Spec]) -> tuple[str, ...]:
    """The choices that there are, in their order."""
    used = {row["choice"] for row in rows}
    return (*(each for each in CHOICES if each in used), *sorted(used - set(CHOICES)))


def _log(low: float, high: float) -> Spec:
    return {"type": "log", "domain": [low, high], "nice": False}


def _decades(low: float, high: float) -> Spec:
    """Ticks of a logarithmic axis: a grid of nine lines a decade is more ink than data."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high / low > 1000 else (1, 3) if high / low > 30 else (1, 2, 5)
    values = [each for ten in tens for step in steps if low <= (each := step * 10.0**ten) <= high]
    return {"values": values, "format": "~s" if low >= 1 else "~g"}


def _named(field: str, order: list[str]) -> Spec:
    return {"field": field, "type": "nominal", "sort": order, "axis": {"title": None}}


def _chosen(yes: float, no: float) -> Spec:
    return {"condition": {"test": "datum.role === 'chosen'", "value": yes}, "value": no}


def _tip(field: str, title: str, form: str | None = None) -> Spec:
    found: Spec = {"field": field, "title": title}
    return found | ({"format": form, "type": "quantitative"} if form else {"type": "nominal"})


def _span(values: list[float]) -> tuple[float, float]:
    """Bounds of a logarithmic axis, with some room on both sides."""
    return min(values) / 1.6, max(values) * 1.6


def _stretches(join: JoinReport) -> Iterator[Spec]:
    """From one switch to the next."""
    begin = 0
    for choice, end in [
        *((each.before, each.inputs) for each in join.switches),
        (join.choice, join.inputs),
    ]:
        if end > begin:
            yield {
                "join": join.name,
                "choice": choice,
                "begin": begin / join.inputs,
                "end": end / join.inputs,
                "inputs": end - begin,
            }
        begin = end


def _label(statement: StatementReport) -> str:
    """A statement by its name, and its text if that is another."""
    if statement.name == statement.text:
        return statement.text
    return f"{statement.name}  {statement.text}"


# -- how they look --

_FONT = "Inter, ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def _config(
    ink: str, soft: str, line: str, band: str, colours: list[str], blues: list[str]
) -> Spec:
    """The configuration of a theme."""
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": None},
        "range": {"category": colours, "ordinal": blues},
        "axis": {
            "labelColor": soft,
            "titleColor": soft,
            "titleFontWeight": 500,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titlePadding": 10,
            "labelPadding": 6,
            "domain": False,
            "ticks": False,
            "gridColor": line,
        },
        "axisBand": {"grid": False},
        "axisY": {"labelColor": ink, "minExtent": 30},
        "bar": {"cornerRadiusEnd": 3},
        "style": {
            "band": {"color": band, "opacity": 1},
            "even": {"color": soft, "strokeDash": [4, 4], "strokeWidth": 1.5},
            "span": {"color": line, "strokeWidth": 6, "strokeCap": "round"},
            "best": {"color": ink, "opacity": 1},
        },
    }


THEMES: dict[str, Spec] = {
    "light": _config(
        "#1c2430",
        "#566173",
        "#e3e7ee",
        "#e8eef9",
        [
            "#c2570c",
            "#2563eb",
            "#0d8577",
            "#8b3fd9",
            "#0891c5",
            "#5b8a12",
            "#c22472",
            "#6b7280",
            "#92702a",
        ],
        ["#1e3a8a", "#3b82f6", "#a5c8fb", "#c7b8f5"],
    ),
    "dark": _config(
        "#e8ecf3",
        "#9aa6b8",
        "#2b3341",
        "#1d2738",
        [
            "#fb923c",
            "#6ea8fe",
            "#2dd4bf",
            "#c084fc",
            "#38bdf8",
            "#a3e635",
            "#f472b6",
            "#9ca3af",
            "#eab308",
        ],
        ["#3b6fe0", "#7fb2ff", "#c6dcff", "#b7a5f0"],
    ),
}
