"""What is left of an index after records were removed, counted.

The statistics of a segment are counted once, when it is built, and the cost model lives with that.
People want to know what is there now. `live_nodes` asks for the nodes of removed records, which are
few; `live_statistics` looks at all nodes of segments that records were removed from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.index.segment import Segment
from fmware.index.statistics import clustering
from fmware.index.summary import Statistics
from fmware.labeling.identity import keys_of, parse_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fmware.index.reader import Index
    from fmware.labeling.identity import IdentityRule

    Int64s = npt.NDArray[np.int64]

__all__ = ["live_nodes", "live_statistics"]


def live_nodes(index: Index) -> int:
    """How many nodes an index holds without those of removed records; work grows with these."""
    return sum(segment.nodes - _removed_nodes(segment) for segment in index.segments)


def live_statistics(index: Index) -> Statistics:
    """The statistics of an index without removed records.

    Fan-out and the bytes of stores stay as they were counted when segments were built.
    """
    rules = parse_rules(index.manifest.identity)
    whole = Statistics()
    for segment in index.segments:
        left = _left(segment, rules) if len(segment.removed) else segment.statistics
        whole.add(segment.tags, left)
    return whole


def _bare(segment: Segment) -> Segment:
    """A segment with the records that were removed from it."""
    return Segment(segment.name, segment.files, segment.schemes, np.empty((0, 2), np.int64))


def _removed_nodes(segment: Segment) -> int:
    if not len(segment.removed):
        return 0
    bare = _bare(segment)
    # Labels a tick wider than those of records: their roots count, and nothing else lies there.
    starts, ends = segment.removed.starts - 1, segment.removed.ends + 1
    return sum(len(bare.descendants(tag, starts, ends)) for tag in segment.tags)


def _left(segment: Segment, rules: Sequence[IdentityRule]) -> dict[str, Any]:
    """The statistics of a segment, as `fmware.index.statistics` has them, of what is left."""
    built = segment.statistics
    rows = [_rows(segment, tag) for tag in segment.tags]
    gone = _removed_keys(segment, rules)
    tags = [
        {"nodes": len(own), "depth": each["depth"], "keys": each["keys"] - gone.get(str(tag), 0)}
        for tag, own, each in zip(segment.tags, rows, built["tags"], strict=True)
    ]
    schemes = {scheme: _clusters(segment, scheme, rows) for scheme in segment.schemes}
    return {**built, "nodes": sum(map(len, rows)), "tags": tags, "schemes": schemes}


def _rows(segment: Segment, tag: Any) -> Int64s:
    """The rows of the nodes of a tag that were not removed."""
    rows = np.arange(segment.count(tag), dtype=np.int64)
    starts = np.ascontiguousarray(segment.at(tag, rows).start)
    kept: Int64s = rows[~segment.removed.holds(starts)]
    return kept


def _clusters(segment: Segment, scheme: str, rows: Sequence[Int64s]) -> dict[str, Any]:
    counts, owners = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
    for number, (tag, own) in enumerate(zip(segment.tags, rows, strict=True)):
        ranks, _ = segment.labels(tag, own, scheme)
        shared = np.unique(ranks, return_counts=True)[1].astype(np.int64)
        counts.append(shared)
        owners.append(np.full(len(shared), number, np.uint32))
    return clustering(np.concatenate(owners), np.concatenate(counts), len(rows))


def _removed_keys(segment: Segment, rules: Sequence[IdentityRule]) -> Mapping[str, int]:
    """How many keys removed records had, by tag; read from the records themselves."""
    found: dict[str, int] = {}
    bare = _bare(segment)
    for start in segment.removed.starts.tolist() if rules else ():
        table = bare.table(start)
        for rows, _ in keys_of(table, rules):
            for row in rows.tolist():
                name = table.name(row)
                found[name] = found.get(name, 0) + 1
    return found
