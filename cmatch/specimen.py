"""A small index with labels of all kinds: what operators are measured on.

Tags have one label or thousands, with few candidates or with many, in short lists and in long ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from index import Writer
from labeling.runs import MemoryRun, Nodes, Tag
from labeling.ses import PATH, Direction
from labeling.trie import TrieColumns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

__all__ = [
    "ALIKE",
    "DEEP",
    "EACH_ONE",
    "FEW_HITS",
    "MANY_CANDIDATES",
    "MANY_LABELS",
    "MANY_LISTS",
    "MANY_PAIRS",
    "SCATTERED",
    "SCHEME",
    "UNORDERED",
    "VERY_MANY_LABELS",
    "Kind",
    "build",
]

SCHEME = PATH.name


@dataclass(frozen=True, slots=True)
class Kind:
    """Anchors of a tag, so many to each of some labels; `full` of these have `inside` matches.

    Matches of a label have `spread` labels in turn. Only every so many-th label has any. `other` is
    a tag of matches that are nowhere near. `around`: all anchors have the same matches, which stand
    around them and in each other, each with a label of its own.
    """

    name: str
    labels: int
    anchors: int
    full: int
    inside: int
    spread: int = 1
    every: int = 1
    other: str | None = None
    around: bool = False

    @property
    def axis(self) -> str:
        return "ancestor" if self.around else "descendant"

    @property
    def match(self) -> str:
        return self.other or f"{self.name}m"

    @property
    def without(self) -> Kind:
        """The same anchors, asked for what none of them has, and which has one label."""
        return replace(self, full=0, other="bm")

    @property
    def among(self) -> Kind:
        """The same, of which those without matches are asked for: these lie among the others."""
        return replace(self, full=0)

    @property
    def match_labels(self) -> int:
        """Labels of the matches that are asked for."""
        if self.around:
            return self.inside
        return 1 if self.other is not None else self.labels * self.spread // self.every

    @property
    def candidates(self) -> int:
        return self.full * self.inside

    @property
    def matches(self) -> int:
        return self.labels * self.candidates

    @property
    def climbs(self) -> int:
        """Labels that a scan takes one by one."""
        return self.inside if self.around else 0


ALIKE = Kind("a", 1, 16384, 16, 1)
EACH_ONE = Kind("b", 1, 65536, 65536, 1)
MANY_LABELS = Kind("c", 4096, 2, 2, 2)
MANY_CANDIDATES = Kind("d", 48, 4, 1, 4096)
MANY_PAIRS = Kind("e", 1, 128, 128, 256)
FEW_HITS = Kind("f", 1, 32768, 2048, 32)
UNORDERED = Kind("g", 16, 64, 64, 64, spread=16)
VERY_MANY_LABELS = Kind("h", 65536, 1, 1, 1)
SCATTERED = Kind("i", 65536, 1, 1, 1, every=2)
DEEP = Kind("j", 64, 1, 1, 1024, around=True)
MANY_LISTS = Kind("k", 256, 1024, 1024, 4)
KINDS = (
    ALIKE,
    EACH_ONE,
    MANY_LABELS,
    MANY_CANDIDATES,
    MANY_PAIRS,
    FEW_HITS,
    UNORDERED,
    VERY_MANY_LABELS,
    SCATTERED,
    DEEP,
    MANY_LISTS,
)


def build(folder: Path, segments: Sequence[Sequence[Kind]] = (KINDS,)) -> None:
    """An index with such kinds in each of its segments."""
    low = 0
    with Writer.create(folder, schemes=[PATH]) as writer:
        for kinds in segments:
            run = _run(kinds, low)
            writer.append([run], high=run.high, check="off")
            low = run.high


class Part(NamedTuple):
    """A kind: its part of the trie, in order, its nodes, and where the next ones begin.

    Of each label: whether it is of matches, what tells it from its siblings, and its descendants
    with itself.
    """

    match: Bools
    extra: Int64s
    size: Int64s
    above: Nodes
    below: Nodes
    high: int


def _run(kinds: Sequence[Kind], base: int) -> MemoryRun:
    """Kinds, one after the other."""
    tags = [Tag(0, name) for kind in kinds for name in (kind.name, kind.match)]
    parts: list[Part] = []
    rank, low = 0, base
    for kind in kinds:
        parts.append((_around if kind.around else _inside)(kind, rank, low))
        rank, low = rank + len(parts[-1].match), parts[-1].high
    tag = [2 * number + part.match for number, part in enumerate(parts)]
    trie = TrieColumns(
        *(
            np.concatenate(column).astype(np.uint32)
            for column in (tag, [part.extra for part in parts], [part.size for part in parts])
        )
    )
    nodes = [each for part in parts for each in (part.above, part.below)]
    return MemoryRun(
        {SCHEME: Direction.ANCESTOR}, {SCHEME: False}, tags, base, low, nodes, {SCHEME: trie}
    )


def _inside(kind: Kind, rank: int, low: int) -> Part:
    """Each label, and behind it those of its matches.

    Anchors of all labels come in turn, the full ones among the others, apart as records are.
    """
    wide = 1 + kind.spread * (np.arange(kind.labels) % kind.every == 0)
    places = np.cumsum(wide) - wide
    of = np.repeat(np.arange(kind.labels), wide)
    at = np.arange(len(of)) - places[of]
    number = kind.labels * kind.anchors
    step = kind.anchors // kind.full
    turn, off = np.divmod(np.arange(number) // kind.labels, step)
    label = np.arange(number) % kind.labels
    full = (off == 0) & (turn < kind.full) & (label % kind.every == 0)
    inside = np.where(full, kind.inside, 0)
    room = 2 * inside + 40
    start = low + np.cumsum(room) - room
    ranks = (rank + places[label]).astype(np.uint32)
    # None is empty: that nothing is in an empty one can be seen from its label.
    above = Nodes(start, start + 2 * inside + 3, np.ones(number, np.int16), {SCHEME: ranks})
    outer = np.repeat(np.arange(number), inside)
    place = np.arange(len(outer)) - np.repeat(np.cumsum(inside) - inside, inside)
    begin = start[outer] + 1 + 2 * place
    inner = (ranks[outer] + 1 + place % kind.spread).astype(np.uint32)
    below = Nodes(begin, begin + 1, np.full(len(outer), 2, np.int16), {SCHEME: inner})
    extra, size = np.where(at == 0, of, at), np.where(at == 0, wide[of], 1)
    return Part(at > 0, extra, size, above, below, int(low + room.sum()))


def _around(kind: Kind, rank: int, low: int) -> Part:
    """Labels of matches, each in the one before, and in the last those of the anchors.

    So are the nodes; there is one of each label.
    """
    deep, number = kind.inside, kind.labels
    at, anchor = np.arange(deep), np.arange(number)
    high = low + 2 * deep + 4 * number
    begin = low + deep + 4 * anchor
    ranks = (rank + deep + anchor).astype(np.uint32)
    above = Nodes(begin, begin + 3, np.full(number, deep + 1, np.int16), {SCHEME: ranks})
    around = (rank + at).astype(np.uint32)
    below = Nodes(low + at, high - at, (at + 1).astype(np.int16), {SCHEME: around})
    match = np.arange(deep + number) < deep
    extra = np.where(match, 0, np.arange(deep + number) - deep)
    size = np.where(match, deep + number - np.arange(deep + number), 1)
    return Part(match, extra, size, above, below, high + 1)
