"""Thinking it over: what the choice that runs takes, and what another would, by what has come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmatch.inputs import Inputs
from cmatch.live import Live
from cmatch.model import ADMATCH, LIST_ROW, Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cmatch.counters import Counters
    from cmatch.outlook import Outlook
    from cmatch.split import Rental
    from cmatch.watched import News
    from index import Index
    from labeling.runs import Tag

__all__ = ["Thought", "of_admatch", "of_clustered", "rent_is_paid"]


class Thought(NamedTuple):
    """Seconds an input, if the choice stays and with another one; and why that may be better."""

    stay: float
    other: float
    choice: Choice
    live: Live

    @property
    def why(self) -> str:
        """Why, in words: written only if somebody wants to know."""
        live = self.live
        if self.choice.scheme is None:
            return f"{live.fresh:.1%} of inputs have new labels, {live.aside:.0%} go aside"
        why = f"by {self.choice.scheme}, {live.fresh:.1%} of inputs would have new labels"
        return why + (f", {live.aside:.0%} would go aside" if live.aside else "")


def of_clustered(
    outlook: Outlook,
    scheme: str,
    policy: Rental | None,
    now: News,
    since: News,
    batch: float,
    horizon: float,
) -> Thought:
    """ADMatch instead of CMatch: labels may go on to be new, or to go aside.

    `since` is what was known at the last look; `horizon` are the inputs to come.
    """
    rows, rented = 1.0, 0.0
    if policy is not None:
        rows = batch if batch <= policy.together else policy.rows
        rented = policy.rented / horizon
    live = Live.counted(now, since, batch, rows, outlook.profile, scheme, rented)
    unknown = max(outlook.profile.schemes[scheme].labels - now.labels, 0.0)
    known = now.candidates / max(now.labels, 1)
    stay = live.clustered(outlook.model, min(live.fresh, unknown / horizon), known)
    return Thought(stay, live.by_ad(outlook.model), ADMATCH, live)


def rent_is_paid(
    outlook: Outlook, scheme: str, policy: Rental, now: News, since: News, batch: float
) -> bool:
    """Whether all that went aside has cost as much more as it would have cost to fetch it.

    To fetch whatever may come of its size: while CMatch rests it does not see which labels do.
    """
    whole = policy.whole()
    live = Live.counted(now, since, batch, batch, outlook.profile, scheme, 0.0)
    each = whole.candidates / max(whole.labels, 1.0)
    fetched = replace(live, aside=0.0, lists=whole.labels, held=whole.candidates * LIST_ROW)
    saved = live.by_ad(outlook.model) - fetched.clustered(outlook.model, 0.0, each)
    return now.aside * saved >= whole.fetch


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
    parted = outlook.under[scheme].split or (split and live.aside > 0)
    return Thought(live.by_ad(outlook.model), cost, Choice("cmatch", scheme, parted), live)
