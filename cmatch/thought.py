"""Thinking it over: what the choice that runs takes, and what another would, by what has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmatch.inputs import Inputs
from cmatch.live import Live
from cmatch.model import ADMATCH, Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cmatch.counters import Counters
    from cmatch.outlook import Outlook
    from cmatch.split import Rental
    from index import Index
    from labeling.runs import Tag

__all__ = ["Thought", "of_admatch", "of_clustered"]


class Thought(NamedTuple):
    """Seconds an input, if the choice stays and with another one; and why that may be better."""

    stay: float
    other: float
    choice: Choice
    why: str


def of_clustered(
    outlook: Outlook,
    scheme: str,
    policy: Rental | None,
    counters: Counters,
    since: Counters,
    batch: float,
    horizon: float,
) -> Thought:
    """ADMatch instead of CMatch: labels may go on to be new, or to go aside.

    `counters` are of now, `since` of the last look; `horizon` are the inputs to come.
    """
    rows, rented = 1.0, 0.0
    if policy is not None:
        rows = batch if batch <= policy.together else policy.rows
        rented = policy.rented / horizon
    live = Live.counted(counters, since, batch, rows, outlook.profile, scheme, rented)
    unknown = max(outlook.profile.schemes[scheme].labels - counters.unique_labels, 0.0)
    known = counters.candidates / max(counters.unique_labels, 1)
    stay = live.clustered(outlook.model, min(live.fresh, unknown / horizon), known)
    why = f"{live.fresh:.1%} of inputs have new labels, {live.aside:.0%} go aside"
    return Thought(stay, live.by_ad(outlook.model), ADMATCH, why)


def of_admatch(
    outlook: Outlook,
    index: Index,
    tag: Tag | str,
    anchors: Tag | str,
    early: Sequence[Inputs],
    recent: Sequence[Inputs],
    counters: Counters,
    horizon: float,
    *,
    split: bool,
) -> Thought | None:
    """CMatch instead of ADMatch, which needs no labels: those of some inputs are looked up.

    `early` and `recent` are consecutive batches, the more inputs between them the better. None: no
    label can be looked up.
    """
    some = Inputs.joined([*early, *recent])
    first = sum(map(len, early))
    batches = np.full(len(some), -1, np.int64)
    batches[first:] = np.repeat(np.arange(len(recent)), [*map(len, recent)])
    pairs = counters.pairs / max(counters.inputs, 1)
    best: tuple[float, str, Live] | None = None
    for scheme in outlook.promising():
        labelled = Inputs.of(index, anchors, scheme, np.arange(len(some)), some.start)
        if len(labelled) < len(some) or first == len(some):
            continue
        live = Live.sampled(
            outlook.model,
            index,
            tag,
            outlook.profile,
            scheme,
            labelled,
            batches[labelled.id],
            horizon,
            pairs,
        )
        cost = live.clustered(outlook.model, live.fresh, live.candidates)
        cost += outlook.costs[outlook.under[scheme]].spills
        if best is None or cost < best[0]:
            best = cost, scheme, live
    if best is None:
        return None
    cost, scheme, live = best
    why = f"by {scheme}, {live.fresh:.1%} of inputs would have new labels"
    if live.aside:
        why += f", {live.aside:.0%} would go aside"
    parted = outlook.under[scheme].split or (split and live.aside > 0)
    return Thought(live.by_ad(outlook.model), cost, Choice("cmatch", scheme, parted), why)
