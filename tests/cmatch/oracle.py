"""What operators must answer, found by looking at every node; and indexes to ask."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fmware.cmatch import Axis, Inputs, Rent
from fmware.index import Index, Writer
from fmware.labeling.runs import Tag
from tests.index import oracle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fmware.cmatch import Matches
    from tests.index.oracle import Corpus, Known

SCHEMES = tuple(scheme.name for scheme in oracle.SCHEMES)
AXES = tuple(Axis)
NAMES = "abcd"
TAGS = (*(Tag(0, name) for name in NAMES), Tag(1, "key"))

Pairs = Counter[tuple[int, int]]
"""(id, start of the match), as often as it came."""


# --- random records -------------------------------------------------------------------------


def record(randomly: random.Random, depth: int = 6, breadth: int = 4) -> str:
    """A small record in which tags nest in themselves."""
    name = randomly.choice(NAMES)
    key = f' key="{randomly.randrange(5)}"' if randomly.random() < 0.3 else ""
    inside = "".join(
        record(randomly, depth - 1, breadth)
        for _ in range(randomly.randrange(breadth) if depth else 0)
    )
    return f"<{name}{key}>{inside}</{name}>"


# --- rents ----------------------------------------------------------------------------------


def any_rent(randomly: random.Random) -> Rent:
    """Some labels are fetched at once, some after a few inputs, some never."""
    return Rent(
        randomly.choice([0.0, 0.0, 0.5, 1.0, 3.0, 40.0, math.inf, -5.0]),
        randomly.choice([0.0, 0.01, 0.3, 1.0, 5.0, math.inf]),
    )


# --- generations of an index ----------------------------------------------------------------


@dataclass
class World:
    """One generation of an index, and all that it holds."""

    index: Index
    known: dict[Tag, list[Known]]
    cached: dict[tuple[Tag, Axis, int], list[int]] = field(default_factory=dict)

    @property
    def tags(self) -> list[Tag]:
        return sorted(self.known)

    def pairs(self, tag: Tag, axis: Axis, anchors: Sequence[tuple[int, Known]]) -> Pairs:
        """The pairs of some anchors, (id, node)."""
        found: Pairs = Counter()
        for id_, anchor in anchors:
            key = tag, axis, anchor.start
            starts = self.cached.get(key)
            if starts is None:
                starts = [n.start for n in self.known.get(tag, ()) if holds(axis, anchor, n)]
                self.cached[key] = starts
            found.update((id_, start) for start in starts)
        return found

    def inputs(self, tag: Tag, scheme: str | None, anchors: Sequence[tuple[int, Known]]) -> Inputs:
        """The anchors as operators take them."""
        ids = np.array([id_ for id_, _ in anchors], np.int64)
        starts = np.array([node.start for _, node in anchors], np.int64)
        made = Inputs.of(self.index, tag, scheme, ids, starts)
        assert len(made) == len(anchors)
        return made


def holds(axis: Axis, anchor: Known, node: Known) -> bool:
    """Theta, as the paper has it."""
    below = anchor.start < node.start and node.end < anchor.end
    above = node.start < anchor.start and anchor.end < node.end
    match axis:
        case Axis.CHILD:
            return below and node.level == anchor.level + 1
        case Axis.DESCENDANT:
            return below
        case Axis.SELF:
            return node.start == anchor.start
        case Axis.PARENT:
            return above and node.level == anchor.level - 1
        case Axis.ANCESTOR:
            return above


def generations(path: Path, seed: int, *, segments: int = 2, records: int = 5) -> list[World]:
    """An index as it grows, loses records, grows again, and is compacted: a world for each time."""
    randomly = random.Random(seed)
    lists = [[record(randomly) for _ in range(records)] for _ in range(segments + 1)]
    corpora = oracle.corpora_of(lists)
    gone: set[int] = set()
    with oracle.small_blocks(randomly.choice([2, 5, 4096])):
        oracle.build(path, corpora[:segments])
        found = [_world(path, corpora[:segments], gone)]
        gone |= _removed(path, corpora[:segments], randomly)
        found.append(_world(path, corpora[:segments], gone))
        with Writer.open(path) as writer:
            writer.append([corpora[-1].run()], high=corpora[-1].high, check="off")
        found.append(_world(path, corpora, gone))
        with Writer.open(path) as writer:
            writer.compact()
        found.append(_world(path, corpora, gone))
    return found


def _removed(path: Path, corpora: Sequence[Corpus], randomly: random.Random) -> set[int]:
    ranges = [span for each in corpora for span in each.ranges(range(len(each.records)))]
    chosen = sorted(randomly.sample(ranges, randomly.randrange(1, len(ranges) // 2 + 1)))
    with Writer.open(path) as writer:
        writer.remove(chosen)
    return {start for start, _ in chosen}


def _world(path: Path, corpora: Sequence[Corpus], gone: set[int]) -> World:
    known: dict[Tag, list[Known]] = {}
    for corpus in corpora:
        for node in corpus.nodes:
            if node.record not in gone:
                known.setdefault(node.tag, []).append(node)
    return World(Index.open(path), known)


def counted(*answers: Matches) -> Pairs:
    """What operators gave, as often as they gave it."""
    found: Pairs = Counter()
    for matches in answers:
        found.update(zip(matches.id.tolist(), matches.start.tolist(), strict=True))
    return found


def batches(inputs: Inputs, size: int) -> Iterator[Inputs]:
    """The same in batches of a size."""
    for low in range(0, len(inputs), size):
        yield inputs.take(slice(low, low + size))
