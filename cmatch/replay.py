"""What other choices would have cost: recorded batches, fed again to operators of their own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cmatch.adaptive import Adaptive
from cmatch.cclean import BUDGET
from cmatch.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmatch.axes import Axis
    from cmatch.model import Choice
    from index import Index
    from labeling.runs import Tag

__all__ = ["measure"]


def measure(
    index: Index,
    tag: Tag | str,
    axis: Axis | str,
    sample: Sequence[Inputs],
    choices: Iterable[Choice],
    *,
    anchors: Tag | str | None = None,
    budget: int = BUDGET,
    rounds: int = 3,
) -> dict[Choice, float]:
    """CPU seconds an input that choices take for a sample, each on an operator of its own.

    They take turns, and the best turn counts; what other threads do meanwhile does not. Choices
    whose labels the sample does not carry need the tag of the anchors, and are left out without it.
    """
    number = sum(map(len, sample))
    if not number:
        return {}
    feeds: dict[Choice, list[Inputs]] = {}
    for choice in choices:
        labelled = [_relabelled(index, anchors, choice.scheme, each) for each in sample]
        batches = [each for each in labelled if each is not None]
        if len(batches) == len(sample):
            feeds[choice] = batches
    taken = dict.fromkeys(feeds, float("inf"))
    for _ in range(rounds):
        for choice, batches in feeds.items():
            # Only who sets labels aside needs to know the anchors, and knowing them takes time.
            known = anchors if choice.split else None
            with Adaptive(
                index, tag, axis, anchors=known, budget=budget, choice=choice, fixed=True
            ) as operator:
                began = time.thread_time_ns()
                for batch in batches:
                    operator.feed(batch)
                operator.drain()
                taken[choice] = min(taken[choice], (time.thread_time_ns() - began) / 1e9)
    return {choice: seconds / number for choice, seconds in taken.items()}


def _relabelled(
    index: Index, anchors: Tag | str | None, scheme: str | None, inputs: Inputs
) -> Inputs | None:
    if scheme is None or (inputs.rank is not None and inputs.scheme == scheme):
        return inputs
    if anchors is None:
        return None
    return Inputs.of(index, anchors, scheme, inputs.id, inputs.start)
