"""Parts of Vega-Lite specifications that charts share: axes, scales, tips, the order of choices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHOICES",
    "Spec",
    "by_choice",
    "by_name",
    "decades",
    "if_chosen",
    "legend_of",
    "log_scale",
    "span_of",
    "tip",
    "whole",
]

Spec: TypeAlias = dict[str, Any]

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


def whole(spec: Spec) -> Spec:
    """A specification that is as wide as its place, and exactly as high as it says."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "autosize": {"type": "fit", "contains": "padding", "resize": True},
        **spec,
    }


def by_choice(rows: Sequence[Spec]) -> Spec:
    others = [each for each in legend_of(rows) if each not in CHOICES]
    scale = {"domain": [*CHOICES, *others]}
    return {"field": "choice", "type": "nominal", "scale": scale, "legend": None}


def legend_of(rows: Sequence[Spec]) -> tuple[str, ...]:
    """The choices that there are, in their order."""
    used = {row["choice"] for row in rows}
    return (*(each for each in CHOICES if each in used), *sorted(used - set(CHOICES)))


def log_scale(low: float, high: float) -> Spec:
    return {"type": "log", "domain": [low, high], "nice": False}


def decades(low: float, high: float) -> Spec:
    """Ticks of a logarithmic axis: a grid of nine lines a decade is more ink than data."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if high / low > 1000 else (1, 3) if high / low > 30 else (1, 2, 5)
    values = [each for ten in tens for step in steps if low <= (each := step * 10.0**ten) <= high]
    return {"values": values, "format": "~s" if low >= 1 else "~g"}


def by_name(field: str, order: list[str]) -> Spec:
    return {"field": field, "type": "nominal", "sort": order, "axis": {"title": None}}


def if_chosen(yes: float, no: float) -> Spec:
    return {"condition": {"test": "datum.role === 'chosen'", "value": yes}, "value": no}


def tip(field: str, title: str, form: str | None = None) -> Spec:
    found: Spec = {"field": field, "title": title}
    return found | ({"format": form, "type": "quantitative"} if form else {"type": "nominal"})


def span_of(values: list[float]) -> tuple[float, float]:
    """Bounds of a logarithmic axis, with some room on both sides."""
    return min(values) / 1.6, max(values) * 1.6
