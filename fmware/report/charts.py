"""What the page draws, as Vega-Lite specifications with their data in them.

A specification says nothing of colours: names of styles and the order of categories do, and a
theme (see `themes`) gives them their looks. So one specification serves light and dark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fmware.report.report import BAND, points
from fmware.report.specs import (
    by_choice,
    by_name,
    decades,
    if_chosen,
    legend_of,
    log_scale,
    span_of,
    tip,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.report.report import JoinReport, Report, StatementReport
    from fmware.report.specs import Spec

__all__ = ["Chart", "charts"]

SHOWN = 12
"""Rows of a chart with a row each: more are in the tables."""
MICRO = 1e6
MILLI = 1e3
ROW = 30
"""Pixels of a row; the axis below takes `FRAME` more."""
FRAME = 56


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
    low, high = span_of([row[key] for row in rows for key in ("estimate", "measured")])
    scale = log_scale(low, high)
    band = [{"x": x, "low": x / BAND, "high": x * BAND} for x in (low, high)]
    axis = {"title": "estimated, µs an input", **decades(low, high)}
    x = {"field": "estimate", "type": "quantitative", "scale": scale, "axis": axis}
    y = {**x, "field": "measured", "axis": {**axis, "title": "measured, µs an input"}}
    choice = by_choice(rows)
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
                    "fillOpacity": if_chosen(0.85, 0.0),
                    "tooltip": [
                        tip("join", "join"),
                        tip("choice", "way"),
                        tip("role", "role"),
                        tip("estimate", "estimated, µs", ",.3~f"),
                        tip("measured", "measured, µs", ",.3~f"),
                        tip("ratio", "measured / estimated", ".2f"),
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
        whole(spec),
        legend_of(rows),
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
    low, high = span_of([v for row in rows for k in ("cost", "first") if (v := row[k])])
    y = by_name("join", [join.name for join in joins])
    axis = {"title": "µs an input", "grid": True, **decades(low, high)}
    x = {"field": "cost", "type": "quantitative", "scale": log_scale(low, high), "axis": axis}
    choice = by_choice(rows)
    tips = [
        tip("join", "join"),
        tip("choice", "way"),
        tip("role", "role"),
        tip("cost", "measured, µs", ",.3~f"),
        tip("first", "expected, µs", ",.3~f"),
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
                    "fillOpacity": if_chosen(0.9, 0.0),
                    "size": if_chosen(150, 70),
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
        whole(spec),
        legend_of(rows),
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
        tip("statement", "statement"),
        tip("choice", "way"),
        tip("measured", "measured, ms", ",.3~f"),
        tip("best", "best choice, ms", ",.3~f"),
        tip("inputs", "inputs", ","),
        tip("matches", "matches", ","),
    ]
    spec: Spec = {
        "height": ROW * len(rows) + FRAME,
        "data": {"values": rows},
        "encoding": {"y": by_name("statement", [row["statement"] for row in rows])},
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.62}},
                "encoding": {
                    "x": x,
                    "color": by_choice(rows),
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
        whole(spec),
        legend_of(rows),
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
        "encoding": {"y": by_name("join", [join.name for join in found])},
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "height": {"band": 0.55}},
                "encoding": {
                    "x": {**x, "field": "begin"},
                    "x2": {"field": "end"},
                    "color": by_choice(rows),
                    "tooltip": [
                        tip("join", "join"),
                        tip("choice", "way"),
                        tip("inputs", "inputs", ","),
                    ],
                },
            },
            {
                "data": {"values": marks},
                "mark": {"type": "tick", "style": "best", "thickness": 3, "size": 22},
                "encoding": {
                    "x": {**x, "field": "at"},
                    "tooltip": [tip("inputs", "after inputs", ","), tip("why", "why")],
                },
            },
        ],
    }
    count = sum(len(join.switches) for join in found)
    return Chart(
        "switches",
        "What ran when",
        "Every join from its first input to its last. A tick is where what was counted made it "
        "switch; joins that switched come first.",
        f"The choices of {len(found)} joins over their inputs, with {count} switches.",
        whole(spec),
        legend_of(rows),
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
    axis = {"title": "nodes that share a label", "grid": True, **decades(1, high)}
    choice = by_choice(rows)
    x = {"field": "power", "type": "quantitative", "scale": log_scale(0.8, high), "axis": axis}
    spec: Spec = {
        "height": ROW * len(names) + FRAME,
        "data": {"values": rows},
        "encoding": {"y": by_name("anchor", names)},
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
                        tip("anchor", "anchors"),
                        tip("scheme", "scheme"),
                        tip("power", "nodes that share a label", ",.1~f"),
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
        whole(spec),
        legend_of(rows),
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
                tip("stage", "stage"),
                tip("ms", "ms", ",.1~f"),
                tip("share", "share", ".1%"),
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
        whole(spec),
        tuple(seconds),
    )


# -- what is in them --


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
