"""A segment built from runs: work dealt to a mapper, answers put together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fmware.index import format as form
from fmware.index import merge
from fmware.index.manifest import RecordsPart, SegmentAbout, TagEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fmware.labeling.mapper import Mapper

    Progress = Callable[[str], None]

__all__ = ["build"]

PART_NODES = 4_000_000
"""Nodes a part has, unless the caller says how many parts there are to be."""

MOST_PARTS = 64


def build(
    plan: merge.Plan,
    surveys: Sequence[merge.Survey],
    mapper: Mapper,
    parts: int | None,
    tell: Progress,
) -> SegmentAbout:
    """Build all files of a segment but `segment.json`, whose contents are the answer.

    `surveys` are of the plan's runs, in their order. `parts` is how many files of nodes, and as
    many of records at most, there are to be.
    """
    counts = merge.merge_vocabulary(surveys)
    tell("merge")
    mapper(merge.merge_scheme, [merge.SchemeItem(plan, name) for name in plan.schemes])
    wanted = parts or min(sum(counts.values()) // PART_NODES + 1, MOST_PARTS)
    tell("build")
    items: list[merge.NodesItem | merge.RecordsItem] = [
        *_deal_tags(plan, list(counts.values()), wanted),
        *_deal_runs(plan, surveys, wanted),
    ]
    built = mapper(merge.build_part, items)
    nodes = tuple(each for each in built if isinstance(each, merge.NodesBuilt))
    records = tuple(each for each in built if isinstance(each, merge.RecordsBuilt))
    tell("meta")
    (meta,) = mapper(merge.build_meta, [merge.MetaItem(plan, nodes, records)])
    files = {form.META: meta}
    files |= {form.nodes_file(each.number): each.file for each in nodes}
    files |= {form.records_file(each.number): each.file for each in records}
    tags = {
        tag: TagEntry(plan.tags[tag], one.nodes, each.number, one.depth, one.keys)
        for each in nodes
        for tag, one in each.tags.items()
    }
    return SegmentAbout(
        plan.schemes,
        surveys[0].low if surveys else 0,
        surveys[-1].high if surveys else 0,
        sum(each.nodes for each in tags.values()),
        sum(each.records for each in records),
        tuple(tags[number] for number in range(len(plan.tags))),
        tuple(
            RecordsPart(
                each.number,
                surveys[each.first].low,
                surveys[each.last - 1].high,
                each.records,
            )
            for each in records
        ),
        files,
    )


def _deal_tags(plan: merge.Plan, counts: Sequence[int], parts: int) -> list[merge.NodesItem]:
    """Tags dealt to parts, the largest first, each to the part that has the least."""
    parts = max(min(parts, len(counts)), 1)
    dealt: list[list[int]] = [[] for _ in range(parts)]
    loads = [0] * parts
    for tag in sorted(range(len(counts)), key=lambda tag: -counts[tag]):
        least = loads.index(min(loads))
        dealt[least].append(tag)
        loads[least] += counts[tag]
    return [merge.NodesItem(plan, i, tuple(sorted(tags))) for i, tags in enumerate(dealt)]


def _deal_runs(
    plan: merge.Plan, surveys: Sequence[merge.Survey], parts: int
) -> list[merge.RecordsItem]:
    """Runs cut into stretches that span about as many labels, which follow the bytes."""
    if not surveys:
        return []
    parts = min(parts, len(surveys))
    spans = np.cumsum([each.high - each.low for each in surveys])
    bounds = spans[-1] * np.arange(1, parts) / parts
    cuts = sorted({0, *np.searchsorted(spans, bounds).tolist(), len(surveys)})
    return [
        merge.RecordsItem(plan, i, first, last) for i, (first, last) in enumerate(pairwise(cuts))
    ]
