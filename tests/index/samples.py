"""Random documents, labelled: the runs that tests build indexes from, and what is in them."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fmware.index import format as form
from fmware.index.manifest import load_segment
from fmware.index.stored import StoredLists, decompressed, unpacked
from fmware.labeling import Reader, Vocabulary
from fmware.labeling.identity import parse_rules
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, Source
from fmware.labeling.ses import PATH, PRIX, VIST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fmware.labeling import NodeTable
    from fmware.labeling.runs import MemoryRun
    from fmware.labeling.ses import Scheme

__all__ = ["RULES", "SCHEMES", "Node", "Sample", "contents", "document", "rows", "sample"]

SCHEMES = (PATH, VIST, PRIX)
RULES = ("b=@id", "c=@id", "d=.")

NAMES = ("a", "b", "c", "d", "{urn:x}e")


class Node(NamedTuple):
    """An indexed node, as an oracle knows it."""

    kind: int
    name: str
    start: int
    end: int
    level: int
    record: int


class Sample(NamedTuple):
    """Documents labelled into runs; `sources` has each document's bytes by its root's start."""

    runs: list[MemoryRun]
    nodes: list[Node]
    sources: dict[int, bytes]
    high: int

    @property
    def records(self) -> list[tuple[int, int]]:
        return [(node.start, node.end) for node in self.nodes if node.start == node.record]


def document(randomly: random.Random, depth: int = 6) -> bytes:
    """A small document in which tags nest in themselves and keys come twice."""
    return _element(randomly, depth).encode()


def _element(randomly: random.Random, depth: int) -> str:
    name = randomly.choice(NAMES)
    uri, _, local = name.rpartition("}")
    space = f' xmlns="{uri[1:]}"' if uri else ' xmlns=""'
    key = f' id="k{randomly.randrange(40)}"' if randomly.random() < 0.5 else ""
    inside = "".join(
        _element(randomly, depth - 1) if randomly.random() < 0.7 else f"t{randomly.randrange(9)}"
        for _ in range(randomly.randrange(4) if depth else 0)
    )
    return f"<{local}{space}{key}>{inside}</{local}>"


def sample(
    seed: int,
    documents: int,
    *,
    runs: int = 1,
    low: int = 0,
    schemes: Sequence[Scheme] = SCHEMES,
    depth: int = 6,
) -> Sample:
    """Random documents, in so many runs; labels begin at `low`."""
    randomly = random.Random(seed)
    vocabulary = Vocabulary()
    reader = Reader(vocabulary)
    rules = parse_rules(RULES)
    made, nodes, sources = [], [], {}
    cuts = np.linspace(0, documents, runs + 1).astype(int)
    base = low
    for first, last in pairwise(cuts.tolist()):
        labeller = Labeller(schemes, vocabulary, rules)
        for number in range(first, last):
            data = document(randomly, depth)
            table = reader.read(data, base=base)
            size = len(data)
            labeller.add(
                table,
                np.array([0], np.int64),
                Source(f"document{seed}-{number}.xml", base, size),
                data,
                np.array([size], np.int64),
                Context(document=True),
            )
            nodes += _nodes(table)
            sources[int(table.start[0])] = data
            base += size
        if last > first:
            made.append(labeller.finish())
    return Sample(made, nodes, sources, base)


def _nodes(table: NodeTable) -> list[Node]:
    return [
        Node(
            int(table.kind[row]),
            table.name(row),
            int(table.start[row]),
            int(table.end[row]),
            int(table.level[row]),
            int(table.start[0]),
        )
        for row in range(len(table))
        if table.kind[row] != 2
    ]


# What is in a segment, whatever its files


def contents(folder: Path) -> dict[tuple[str, object], object]:
    """All lists of a segment by database and tag, as plain values."""
    about = load_segment(folder, None)
    found: dict[tuple[str, object], object] = {}
    for number, entry in enumerate(about.tags):
        name = form.nodes_file(entry.file)
        lists = StoredLists(folder / name, about.files[name])
        found["ad", entry.tag] = _ad(lists, number)
        for scheme in about.schemes:
            for database, shape in (
                (form.ses(scheme), form.SES_SHAPE),
                (form.labels(scheme), form.LABEL_SHAPE),
            ):
                found[database, entry.tag] = rows(lists, database, number, shape)
        found["values", entry.tag] = _values(lists, number)
        found["identity", entry.tag] = _keys(lists, number)
        lists.close()
    meta = StoredLists(folder / form.META, about.files[form.META])
    for scheme in about.schemes:
        found[form.trie(scheme), 0] = rows(meta, form.trie(scheme), 0, form.TRIE_SHAPE)
    contexts = form.unpack_contexts(meta.lines(form.CONTEXTS))
    found["sources", 0] = form.unpack_sources(meta.lines(form.SOURCES))
    statistics = json.loads(meta.lines(form.STATISTICS)[0])
    del statistics["stores"]
    found["statistics", 0] = statistics
    meta.close()
    records: dict[int, tuple[int, int, bytes, Context]] = {}
    for part in about.parts:
        name = form.records_file(part.file)
        lists = StoredLists(folder / name, about.files[name])
        for block in lists.blocks(form.RECORDS, 0, form.RECORDS_SHAPE):
            data = decompressed(block)
            start, end, level, offset = (block.columns[c].tolist() for c in block.columns)
            for at in range(block.rows):
                source = data[offset[at] : offset[at + 1]]
                records[start[at]] = (end[at], level[at], source, contexts[block.head[0]])
        lists.close()
    found["records", 0] = records
    return found


def rows(lists: StoredLists, database: str, number: int, shape: form.Shape) -> list[object]:
    """The rows of a list as tuples."""
    return [
        row
        for block in lists.blocks(database, number, shape)
        for row in zip(*(column.tolist() for column in block.columns.values()), strict=True)
    ]


def _ad(lists: StoredLists, number: int) -> list[object]:
    found: list[object] = []
    for block in lists.blocks(form.AD, number):
        columns = dict(block.columns)
        start = columns.pop("start").astype(np.int64) + block.head[0]
        found += zip(start.tolist(), *(each.tolist() for each in columns.values()), strict=True)
    return found


def _values(lists: StoredLists, number: int) -> list[object]:
    found: list[object] = []
    for block in lists.blocks(form.VALUES, number, form.VALUES_SHAPE):
        values = unpacked(block)
        found += [(int(values.mark[at]), values.text(at)) for at in range(block.rows)]
    return found


def _keys(lists: StoredLists, number: int) -> list[object]:
    found: list[object] = []
    for block in lists.blocks(form.IDENTITY, number, form.IDENTITY_SHAPE):
        hashes, row, offset = (column.tolist() for column in block.columns.values())
        text = bytes(block.tail)
        found += [
            (hashes[at], text[offset[at] : offset[at + 1]], row[at]) for at in range(block.rows)
        ]
    return found
