"""What the cost model wants to know of a segment, counted while it is built.

Clustering power of a label (cps) is how many nodes share it; of a tag (cpt), the mean of that over
the tag's labels. Fan-out of two tags is how many pairs of nodes stand one above the other; it is
counted, not estimated, where the `path` scheme is there: all nodes of one path have the same
ancestors' tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmware.labeling.trie import NO_PARENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fmware.labeling.trie import TrieColumns

    Counts = npt.NDArray[np.int64]

__all__ = ["clustering", "fanout", "statistics"]

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_DENSE = 1 << 22


def statistics(
    schemes: Mapping[str, tuple[TrieColumns, Counts]],
    tags: Sequence[Mapping[str, int]],
    stores: Mapping[str, int],
) -> dict[str, Any]:
    """All of it, ready for JSON. `tags` has the nodes, depth and keys of each tag, by number.

    A scheme's counts are the nodes of each trie node, by rank.
    """
    found = {
        name: clustering(trie.tag, counts, len(tags)) for name, (trie, counts) in schemes.items()
    }
    return {
        "nodes": sum(each["nodes"] for each in tags),
        "tags": list(tags),
        "schemes": found,
        "fanout": fanout(*schemes["path"], len(tags)) if "path" in schemes else _NO_FANOUT,
        "stores": dict(stores),
    }


_NO_FANOUT = {"missing": "pairs of tags are counted by the `path` scheme, which is not there"}


def clustering(tag: npt.NDArray[np.uint32], counts: Counts, tags: int) -> dict[str, Any]:
    """How nodes spread over the labels of a scheme."""
    used = counts > 0
    cps = counts[used]
    labels = np.bincount(tag[used], minlength=tags)
    nodes = _sums(tag[used], cps, tags)
    most = np.zeros(tags, np.int64)
    np.maximum.at(most, tag[used], cps)
    return {
        "nodes": int(cps.sum()),
        "labels": len(cps),
        "cps": float(cps.mean()) if len(cps) else 0.0,
        "quantiles": _quantiles(cps),
        "histogram": _histogram(cps),
        "tags": [
            {"labels": each, "nodes": total, "cpt": total / each if each else 0.0, "cps": top}
            for each, total, top in zip(labels.tolist(), nodes.tolist(), most.tolist(), strict=True)
        ],
    }


def _quantiles(cps: Counts) -> list[list[float]]:
    if not len(cps):
        return []
    values = np.quantile(cps, QUANTILES, method="inverted_cdf")
    return [[share, int(value)] for share, value in zip(QUANTILES, values, strict=True)]


def _histogram(cps: Counts) -> list[list[int]]:
    """Rows of (power of two, labels with at least that many nodes and less than twice, nodes)."""
    power = np.frexp(cps.astype(np.float64))[1] - 1
    labels = np.bincount(power)
    nodes = _sums(power, cps, len(labels))
    some = np.flatnonzero(labels).tolist()
    return [[1 << each, int(labels[each]), int(nodes[each])] for each in some]


def fanout(trie: TrieColumns, counts: Counts, tags: int) -> dict[str, Any]:
    """Rows of (tag above, tag below, ancestor-descendant pairs, parent-child pairs)."""
    parents = trie.parents().astype(np.int64)
    tag = trie.tag.astype(np.int64)
    below = np.flatnonzero(parents != NO_PARENT)
    above = parents[below]
    direct = _pairs(tag[above] * tags + tag[below], counts[below], tags)
    pairs: dict[int, int] = {}
    while len(below):
        for key, total in _pairs(tag[above] * tags + tag[below], counts[below], tags).items():
            pairs[key] = pairs.get(key, 0) + total
        above = parents[above]
        inside = above != NO_PARENT
        below, above = below[inside], above[inside]
    return {
        "pairs": [
            [*divmod(key, tags), total, direct.get(key, 0)]
            for key, total in sorted(pairs.items())
            if total
        ]
    }


def _pairs(keys: Counts, counts: Counts, tags: int) -> dict[int, int]:
    if tags * tags <= _DENSE:
        totals = _sums(keys, counts, tags * tags)
        some = np.flatnonzero(totals)
        return dict(zip(some.tolist(), totals[some].tolist(), strict=True))
    some, place = np.unique(keys, return_inverse=True)
    return dict(zip(some.tolist(), _sums(place, counts, len(some)).tolist(), strict=True))


def _sums(keys: npt.NDArray[Any], counts: Counts, size: int) -> Counts:
    # Not bincount with weights: it sums floats, and these are to be exact.
    totals = np.zeros(size, np.int64)
    np.add.at(totals, keys, counts)
    return totals
