"""How charts look, light and dark: the configuration that Vega-Lite draws a specification with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmware.report.specs import Spec

__all__ = ["THEMES"]

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
