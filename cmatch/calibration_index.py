"""A small index that operators are measured on: tags with one label or thousands, with few
candidates or with many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fmware.index import Writer
from fmware.labeling.runs import MemoryRun, Nodes, Tag
from fmware.labeling.ses import PATH, Direction
from fmware.labeling.trie import TrieColumns

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

__all__ = [
    "ALIKE",
    "EACH_ONE",
    "MANY_CANDIDATES",
    "MANY_LABELS",
    "MANY_PAIRS",
    "SCHEME",
    "Kind",
    "build",
]

SCHEME = PATH.name


@dataclass(frozen=True, slots=True)
class Kind:
    """Anchors of a tag, the same number to each label; `full` labels have `inside` matches.

    `other` is a tag of matches that none of them has.
    """

    name: str
    labels: int
    anchors: int
    full: int
    inside: int
    other: str | None = None

    @property
    def match(self) -> str:
        return self.other or f"{self.name}m"

    @property
    def without(self) -> Kind:
        """The same anchors, asked for matches that none of them has."""
        return replace(self, full=0, other=EACH_ONE.match)

    @property
    def candidates(self) -> int:
        """The candidates of a label."""
        return self.full * self.inside

    @property
    def matches(self) -> int:
        return self.labels * self.candidates


ALIKE = Kind("a", 1, 16384, 16, 1)
EACH_ONE = Kind("b", 1, 65536, 65536, 1)
MANY_LABELS = Kind("c", 4096, 2, 2, 2)
MANY_CANDIDATES = Kind("d", 48, 4, 1, 4096)
MANY_PAIRS = Kind("e", 1, 128, 128, 256)
KINDS = (ALIKE, EACH_ONE, MANY_LABELS, MANY_CANDIDATES, MANY_PAIRS)


def build(folder: Path) -> None:
    """An index with all kinds, in one segment."""
    with Writer.create(folder, schemes=[PATH]) as writer:
        run = _run()
        writer.append([run], high=run.high, check="off")


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


def _run() -> MemoryRun:
    """The kinds, one after the other."""
    tags = [Tag(0, name) for kind in KINDS for name in (kind.name, kind.match)]
    parts: list[Part] = []
    rank = low = 0
    for kind in KINDS:
        parts.append(_part(kind, rank, low))
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
        {SCHEME: Direction.ANCESTOR}, {SCHEME: False}, tags, 0, low, nodes, {SCHEME: trie}
    )


def _part(kind: Kind, rank: int, low: int) -> Part:
    """Each label of anchors, and behind it that of its matches.

    Anchors of all labels come in turn, the full ones among the others, apart as records are.
    """
    number = kind.labels * kind.anchors
    turn, off = np.divmod(np.arange(number) // kind.labels, kind.anchors // kind.full)
    inside = np.where((off == 0) & (turn < kind.full), kind.inside, 0)
    room = 2 * inside + 40
    start = low + np.cumsum(room) - room
    ranks = (rank + 2 * (np.arange(number) % kind.labels)).astype(np.uint32)
    # None is empty: that nothing is in an empty one can be seen from its label.
    above = Nodes(start, start + 2 * inside + 3, np.ones(number, np.int16), {SCHEME: ranks})
    outer = np.repeat(np.arange(number), inside)
    place = np.arange(len(outer)) - np.repeat(np.cumsum(inside) - inside, inside)
    begin = start[outer] + 1 + 2 * place
    inner = (ranks[outer] + 1).astype(np.uint32)
    below = Nodes(begin, begin + 1, np.full(len(outer), 2, np.int16), {SCHEME: inner})
    label, match = np.divmod(np.arange(2 * kind.labels), 2)
    return Part(
        match > 0, np.where(match, 1, label), 2 - match, above, below, low + int(room.sum())
    )
