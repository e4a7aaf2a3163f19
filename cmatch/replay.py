"""What other choices would have cost: recorded batches, fed again to operators of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fmware.cmatch.adaptive import Adaptive, relabelled
from fmware.cmatch.cclean import BUDGET
from fmware.cmatch.errors import MissingLabels
from fmware.cmatch.operator import tags_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fmware.cmatch.axes import Axis
    from fmware.cmatch.choice import Choice
    from fmware.cmatch.inputs import Inputs
    from fmware.cmatch.operator import Tags
    from fmware.index import Index
    from fmware.labeling.runs import Tag

__all__ = ["measure"]


def measure(
    index: Index,
    tags: Tags,
    axis: Axis | str,
    sample: Sequence[Inputs],
    choices: Iterable[Choice],
    *,
    anchors: Tags | None = None,
    budget: int = BUDGET,
    rounds: int = 3,
) -> dict[Choice, float]:
    """CPU seconds an input that choices take for a sample, each on an operator of its own.

    They take turns, and the best turn counts; what other threads do meanwhile does not. A choice is
    left out if labels that it needs cannot be found: anchors may have the tags `anchors`, or any.
    """
    number = sum(map(len, sample))
    if not number:
        return {}
    above = None if anchors is None else tags_of(anchors)
    feeds: dict[Choice, list[Inputs]] = {}
    for choice in choices:
        batches = [*sample]
        if choice.scheme is not None:
            try:
                batches = [_labelled(index, above, choice.scheme, each) for each in sample]
            except MissingLabels:
                continue
        feeds[choice] = batches
    taken = dict.fromkeys(feeds, float("inf"))
    for _ in range(rounds):
        for choice, batches in feeds.items():
            with Adaptive(
                index, tags, axis, anchors=above, budget=budget, choice=choice
            ) as operator:
                began = time.thread_time_ns()
                for batch in batches:
                    operator.feed(batch)
                operator.drain()
                taken[choice] = min(taken[choice], (time.thread_time_ns() - began) / 1e9)
    return {choice: seconds / number for choice, seconds in taken.items()}


def _labelled(index: Index, anchors: Sequence[Tag] | None, scheme: str, inputs: Inputs) -> Inputs:
    if inputs.rank is not None and inputs.scheme == scheme:
        return inputs
    return relabelled(index, anchors, scheme, inputs)
