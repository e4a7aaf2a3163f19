"""The statistics of segments, by tag, summed up for the cost model.

Every segment has SES labels of its own, and a scan asks each of them: so labels add up, and the
clustering power of all is nodes over labels. Removed records still count, until a compaction;
`fmware.index.live` leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fmware.index.segment import Segment
    from fmware.labeling.runs import Tag

__all__ = ["Fanout", "LabelStatistics", "Statistics", "TagStatistics"]


@dataclass(slots=True)
class LabelStatistics:
    """SES labels of a scheme, or of a tag under it.

    `largest` is how many nodes share the label that most do. The histogram tells, by power of two,
    how many labels at least so many and less than twice as many nodes share, and how many nodes
    those are; tags have none.
    """

    labels: int = 0
    nodes: int = 0
    largest: int = 0
    histogram: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def power(self) -> float:
        """The clustering power: the mean number of nodes that share a label."""
        return self.nodes / self.labels if self.labels else 0.0


@dataclass(slots=True)
class TagStatistics:
    """The nodes of a tag; `depth` is how many of them stand in each other at most."""

    nodes: int = 0
    depth: int = 0
    keys: int = 0
    schemes: dict[str, LabelStatistics] = field(default_factory=dict)


@dataclass(slots=True)
class Fanout:
    """Pairs of nodes of two tags: one above the other, and one the parent of the other."""

    pairs: int = 0
    children: int = 0


@dataclass(slots=True)
class Statistics:
    """Counts of an index, or of one segment.

    `fanout` is None where the `path` scheme is not there to count by. `stores` are the bytes that
    each kind of list takes.
    """

    nodes: int = 0
    tags: dict[Tag, TagStatistics] = field(default_factory=dict)
    schemes: dict[str, LabelStatistics] = field(default_factory=dict)
    fanout: dict[tuple[Tag, Tag], Fanout] | None = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> Statistics:
        """The statistics of some segments, summed up."""
        whole = cls()
        for segment in segments:
            whole.add(segment.tags, segment.statistics)
        return whole

    def add(self, tags: tuple[Tag, ...], found: dict[str, Any]) -> None:
        """Add what was counted of a segment, as `fmware.index.statistics` has it."""
        self.nodes += found["nodes"]
        for tag, each in zip(tags, found["tags"], strict=True):
            mine = self.tags.setdefault(tag, TagStatistics())
            mine.nodes += each["nodes"]
            mine.depth = max(mine.depth, each["depth"])
            mine.keys += each["keys"]
        for name, scheme in found["schemes"].items():
            self._add_scheme(name, tags, scheme)
        self._add_fanout(tags, found["fanout"].get("pairs"))
        for name, size in found["stores"].items():
            self.stores[name] = self.stores.get(name, 0) + size

    def _add_scheme(self, name: str, tags: tuple[Tag, ...], scheme: dict[str, Any]) -> None:
        whole = self.schemes.setdefault(name, LabelStatistics())
        whole.labels += scheme["labels"]
        whole.nodes += scheme["nodes"]
        for power, labels, nodes in scheme["histogram"]:
            before = whole.histogram.get(power, (0, 0))
            whole.histogram[power] = before[0] + labels, before[1] + nodes
        for tag, each in zip(tags, scheme["tags"], strict=True):
            mine = self.tags[tag].schemes.setdefault(name, LabelStatistics())
            mine.labels += each["labels"]
            mine.nodes += each["nodes"]
            mine.largest = max(mine.largest, each["cps"])
            whole.largest = max(whole.largest, each["cps"])

    def _add_fanout(self, tags: tuple[Tag, ...], pairs: list[list[int]] | None) -> None:
        if pairs is None or self.fanout is None:
            self.fanout = None
            return
        for above, below, total, children in pairs:
            mine = self.fanout.setdefault((tags[above], tags[below]), Fanout())
            mine.pairs += total
            mine.children += children
