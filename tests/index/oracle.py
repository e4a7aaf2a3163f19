"""What an index must answer, found by looking at every node of a small corpus."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from fmware.index import format as form
from fmware.index.writer import Writer
from fmware.labeling import ATTRIBUTE, ELEMENT, TEXT, NodeTable, Reader, Vocabulary
from fmware.labeling.identity import parse_rules
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, MemoryRun, Source, Tag
from fmware.labeling.ses import PATH, PRIX, VIST, Direction, Scheme

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fmware.index.labels import Labels, Pairs

SCHEMES: tuple[Scheme, ...] = (PATH, VIST, PRIX)
DIRECTIONS = {scheme.name: scheme.direction for scheme in SCHEMES}
RULES = ("a=@key", "b=@key", "c=.")
GAP = 7

Label = tuple[int, int, int]
Symbols = tuple[tuple[Tag, object], ...]


# --- random records -------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d"])
KEYS = st.sampled_from(["k1", "k2", "k3", "ü", "a longer key than the others are"])


def _element(name: str, key: str | None, flag: bool, inside: list[str]) -> str:
    attributes = (f' key="{key}"' if key else "") + (' flag="1"' if flag else "")
    return f"<{name}{attributes}>{''.join(inside)}</{name}>"


def _elements(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(_element, NAMES, st.none() | KEYS, st.booleans(), st.lists(inside, max_size=4))


CONTENT = st.recursive(
    st.sampled_from(["text", "k1", "&amp;", "<a/>", "<b key='k2'/>"]), _elements, max_leaves=12
)
RECORDS = st.lists(_elements(CONTENT), min_size=1, max_size=6)


# --- the corpus -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A node, and all that is to be known of it."""

    tag: Tag
    start: int
    end: int
    level: int
    record: int
    symbols: dict[str, Symbols]
    keys: tuple[bytes, ...]

    @property
    def label(self) -> Label:
        return self.start, self.end, self.level


class Corpus:
    """Records that become one segment; their labels begin at `base`."""

    def __init__(self, records: Sequence[str], base: int = 0) -> None:
        self.records = [record.encode() for record in records]
        self.base = base
        reader = Reader(Vocabulary())
        self.tables: list[NodeTable] = []
        for record in self.records:
            self.tables.append(reader.read_record(record, base=base, level=1))
            base += len(record) + GAP
        self.high = base
        self._reader = reader

    def run(self) -> MemoryRun:
        labeller = Labeller(SCHEMES, self._reader.vocabulary, parse_rules(RULES))
        source = Source("corpus.xml", self.base, self.high - self.base)
        for table, record in zip(self.tables, self.records, strict=True):
            sizes = np.array([len(record)], np.int64)
            labeller.add(table, np.zeros(1, np.int64), source, record, sizes, Context())
        return labeller.finish()

    @cached_property
    def nodes(self) -> list[Known]:
        return [node for table in self.tables for node in _known(table)]

    @cached_property
    def tags(self) -> list[Tag]:
        return sorted({node.tag for node in self.nodes})

    def ranges(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """The (start, end) of some records."""
        return [(int(self.tables[at].start[0]), int(self.tables[at].end[0])) for at in places]

    @cached_property
    def ranks(self) -> dict[str, dict[Symbols, tuple[int, int]]]:
        """By scheme and trie node, its label: places in the sorted order of all trie nodes."""
        found = {}
        for scheme in SCHEMES:
            tries = {
                node.symbols[scheme.name][: at + 1]
                for node in self.nodes
                for at in range(len(node.symbols[scheme.name]))
            }
            ordered = sorted(tries)
            labels = {}
            for rank, each in enumerate(ordered):
                size = sum(other[: len(each)] == each for other in ordered[rank:])
                labels[each] = rank, rank + size - 1
            found[scheme.name] = labels
        return found

    def ses(self, node: Known, scheme: str) -> tuple[int, int]:
        return self.ranks[scheme][node.symbols[scheme]]


def _known(table: NodeTable) -> Iterator[Known]:
    rows = [row for row in range(len(table)) if table.kind[row] != TEXT]
    tags = {row: Tag(int(table.kind[row] == ATTRIBUTE), table.name(row)) for row in rows}
    symbols: dict[str, dict[int, Symbols]] = {"path": {}, "vist": {}, "prix": {}}
    before: Symbols = ()
    for row in rows:
        up = int(table.parent[row])
        above: Symbols = symbols["path"][up] if up >= 0 else ()
        symbols["path"][row] = (*above, (tags[row], 0))
        before = (*before, (tags[row], int(table.level[row] - table.level[0])))
        symbols["vist"][row] = before
    before = ()
    for row in sorted(rows, key=lambda row: table.end[row]):
        up = int(table.parent[row])
        before = (*before, (tags[row], tags[up] if up >= 0 else ()))
        symbols["prix"][row] = before
    for row in rows:
        yield Known(
            tags[row],
            int(table.start[row]),
            int(table.end[row]),
            int(table.level[row]),
            int(table.start[0]),
            {name: symbols[name][row] for name in symbols},
            tuple(_keys(table, row)),
        )


def _keys(table: NodeTable, row: int) -> Iterator[bytes]:
    if table.kind[row] != ELEMENT:
        return
    name = table.name(row)
    if name in "ab":
        for child in table.children(row).tolist():
            if table.kind[child] == ATTRIBUTE and table.name(child) == "key":
                yield table.value(child).strip().encode()
    if name == "c" and (key := table.string_value(row).strip()):
        yield key.encode()


# --- the index of it ------------------------------------------------------------------------


@contextmanager
def small_blocks(rows: int = 3) -> Iterator[None]:
    """Blocks of so few rows that small lists have several."""
    with pytest.MonkeyPatch.context() as patch:
        names = ("AD_ROWS", "SES_ROWS", "LABEL_ROWS", "IDENTITY_ROWS", "VALUE_ROWS", "TRIE_ROWS")
        for name in names:
            patch.setattr(form, name, rows)
        yield


def build(path: Path, corpora: Sequence[Corpus]) -> None:
    """An index with a segment a corpus."""
    with Writer.create(path, schemes=SCHEMES, identity=RULES) as writer:
        for corpus in corpora:
            writer.append([corpus.run()], high=corpus.high, check="off")


def corpora_of(lists: Sequence[Sequence[str]]) -> list[Corpus]:
    """Corpora whose labels follow each other."""
    found: list[Corpus] = []
    for records in lists:
        found.append(Corpus(records, found[-1].high if found else 0))
    return found


# --- answers --------------------------------------------------------------------------------


def descendants(
    nodes: Sequence[Known], tag: Tag, anchors: Sequence[Label], *, children: bool = False
) -> list[tuple[int, Label]]:
    return [
        (left, node.label)
        for left, (start, end, level) in enumerate(anchors)
        for node in nodes
        if node.tag == tag and start < node.start and node.end < end
        if not children or node.level == level + 1
    ]


def ancestors(
    nodes: Sequence[Known], tag: Tag, anchors: Sequence[Label], *, parents: bool = False
) -> list[tuple[int, Label]]:
    return [
        (left, node.label)
        for left, (start, end, level) in enumerate(anchors)
        for node in nodes
        if node.tag == tag and node.start < start and end < node.end
        if not parents or node.level == level - 1
    ]


def scan(
    corpus: Corpus,
    nodes: Sequence[Known],
    scheme: str,
    tag: Tag,
    label: tuple[int, int],
    axis: str,
) -> set[Label]:
    rank, last = label
    found = set()
    for node in nodes:
        own, own_last = corpus.ses(node, scheme)
        within = rank <= own <= last
        around = own <= rank <= own_last
        contains = (DIRECTIONS[scheme] is Direction.ANCESTOR) == (axis == "descendant")
        if node.tag == tag and (own == rank if axis == "self" else within if contains else around):
            found.add(node.label)
    return found


def identify(nodes: Sequence[Known], tag: Tag, keys: Sequence[bytes]) -> list[tuple[int, Label]]:
    return sorted(
        (left, node.label)
        for left, key in enumerate(keys)
        for node in nodes
        if node.tag == tag
        for each in node.keys
        if each == key
    )


def labels_of(labels: Labels) -> list[Label]:
    return list(zip(labels.start.tolist(), labels.end.tolist(), labels.level.tolist(), strict=True))


def pairs_of(pairs: Pairs) -> list[tuple[int, Label]]:
    return list(zip(pairs.left.tolist(), labels_of(pairs.right), strict=True))
