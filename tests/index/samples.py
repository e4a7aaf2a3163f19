"""Random documents, labelled: the runs that tests build indexes from, and what is in them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from labeling import Reader, Vocabulary
from labeling.identity import parse_rules
from labeling.labeller import Labeller
from labeling.runs import Context, Source
from labeling.ses import PATH, PRIX, VIST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from labeling import NodeTable
    from labeling.runs import MemoryRun
    from labeling.ses import Scheme

__all__ = ["RULES", "SCHEMES", "Node", "Sample", "document", "sample"]

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
