"""Random corpora, indexed, and what lxml knows of the same files.

The labels of the oracle are counted anew on lxml's trees: a tick where a node begins and one where
it ends, attributes and texts included.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from lxml import etree

from fmware.cmatch import Inputs, Matches
from fmware.corpus import add, build_index, compact, remove
from fmware.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Element: TypeAlias = etree._Element

NAMES = ("a", "a", "b", "b", "c", "{urn:p}a", "{urn:q}c")
ATTRIBUTES = ("x", "y", "{urn:p}x")
VALUES = ("", "1", "2", "3", "10", "1.5", "-2", "ab", "b", " 2 ")
SPACES = {"p": "urn:p", "q": "urn:q"}
RULES = ("*=@k", "a=b", "rec=@k")
KEYS = 12
"""Keys are few, so that some belong to several nodes."""


class Label(NamedTuple):
    """A node by its AD label."""

    start: int
    end: int
    level: int


@dataclass
class Tree:
    """A record as lxml has it, with the labels of its nodes.

    A node is an element and what of it: the element itself, an attribute by its name, its text, or
    the text behind it.
    """

    root: Element
    labels: dict[tuple[Element, str], Label] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Element, start: int, level: int) -> Tree:
        tree = cls(root)
        tree._count(root, start, level)
        return tree

    def _count(self, node: Element, at: int, level: int) -> int:
        begin, at = at, at + 1
        for name in node.attrib:
            at = self._leaf(node, f"@{name}", at, level + 1)
        at = self._leaf(node, "text", at, level + 1) if node.text else at
        for child in node:
            if isinstance(child.tag, str):
                at = self._count(child, at, level + 1)
            at = self._leaf(child, "tail", at, level + 1) if child.tail else at
        self.labels[node, ""] = Label(begin, at, level)
        return at + 1

    def _leaf(self, node: Element, what: str, at: int, level: int) -> int:
        self.labels[node, what] = Label(at, at + 1, level)
        return at + 2

    @property
    def elements(self) -> list[tuple[Element, Label]]:
        return [(node, label) for (node, what), label in self.labels.items() if not what]

    def places(self, nodes: Iterable[object]) -> list[Label]:
        """The labels of what an XPath of lxml's has selected."""
        return [self.labels[_place(node)] for node in nodes]


def _place(node: object) -> tuple[Element, str]:
    if isinstance(node, etree._Element):
        return node, ""
    assert isinstance(node, etree._ElementUnicodeResult)
    parent = node.getparent()
    assert parent is not None
    if node.is_attribute:
        return parent, f"@{node.attrname}"
    return parent, "tail" if node.is_tail else "text"


@dataclass
class Corpus:
    """An index and its records as lxml has them."""

    index: Index
    trees: list[Tree]

    @property
    def elements(self) -> list[tuple[Element, Label]]:
        """All elements, in the order of their labels."""
        return sorted((pair for tree in self.trees for pair in tree.elements), key=lambda p: p[1])

    def inputs(self, ids: Iterable[int], labels: Iterable[Label]) -> Inputs:
        """Anchors with these local nodes."""
        columns = np.array([(*label,) for label in labels], np.int64).reshape(-1, 3)
        lows = [segment.low for segment in self.index.segments]
        places = (np.searchsorted(lows, columns[:, 0], "right") - 1).astype(np.int32)
        start, end = np.ascontiguousarray(columns[:, 0]), np.ascontiguousarray(columns[:, 1])
        return Inputs(
            np.array([*ids], np.int64), places, start, end, columns[:, 2].astype(np.int16)
        )


def document(randomly: random.Random, root: str | None = None, size: int = 24) -> Element:
    """A small tree, in which names nest in themselves, with comments between texts."""
    spaces = {prefix: uri for prefix, uri in SPACES.items() if randomly.random() < 0.7}
    made = etree.Element(root or randomly.choice(NAMES), nsmap=spaces)
    nodes = [made]
    for _ in range(randomly.randrange(size)):
        parent = randomly.choice(nodes)
        nodes.append(etree.SubElement(parent, randomly.choice(NAMES)))
    for node in nodes:
        for name in ATTRIBUTES:
            if randomly.random() < 0.4:
                node.set(name, randomly.choice(VALUES))
        if randomly.random() < 0.4:
            node.set("k", f"k{randomly.randrange(KEYS)}")
        if randomly.random() < 0.15:
            node.insert(0, etree.Comment("between"))
        for each in (node, *node):
            if randomly.random() < 0.6:
                _say(each, node, randomly.choice(VALUES))
    return made


def _say(each: Element, node: Element, text: str) -> None:
    if each is node:
        node.text = text
    else:
        each.tail = text


def whole(seed: int, place: Path) -> Corpus:
    """Documents that are records themselves, in one segment."""
    randomly = random.Random(seed)
    for number in range(6):
        _write(place / f"{number}.xml", document(randomly))
    build_index(str(place / "*.xml"), place / "index", identity=RULES)
    return opened(place / "index", lambda root: [root])


def cut(seed: int, place: Path) -> Corpus:
    """Records of larger documents, in several segments, some of them removed."""
    randomly = random.Random(seed)
    for number in range(3):
        root = etree.Element("records", nsmap=SPACES)
        root.set("x", "1")
        for _ in range(3):
            root.append(document(randomly, "rec", 24))
        _write(place / f"{number}.xml", root)
    index = place / "index"
    build_index(str(place / "0.xml"), index, record="rec", identity=RULES)
    add(index, [place / "1.xml"])
    if seed % 2:
        compact(index)
    add(index, [place / "2.xml"])
    with Index.open(index) as reader:
        [begin, *_] = reader.segments[-1].records_between(-1, 1 << 62)[:, 0].tolist()
    remove(index, labels=[begin])
    return opened(index, lambda root: list(root.iterchildren("rec")))


def _write(path: Path, root: Element) -> None:
    path.write_bytes(etree.tostring(root, encoding="utf-8"))


def opened(path: Path, records: Callable[[Element], list[Element]]) -> Corpus:
    """The index, and the records of its files that are in it."""
    index = Index.open(path)
    trees: list[Tree] = []
    for segment in index.segments:
        there = {int(start) for start, _ in segment.records_between(-1, 1 << 62)}
        for source in segment.sources:
            roots = records(etree.parse(source.name).getroot())
            # Records that were removed still have their place in the file.
            starts = _starts(Path(source.name).read_bytes(), source.base, roots)
            trees += [
                Tree.of(_alone(root), start, index.record(start).level)
                for root, start in zip(roots, starts, strict=True)
                if start in there
            ]
    return Corpus(index, trees)


def _starts(data: bytes, base: int, roots: list[Element]) -> list[int]:
    """Labels of a record count from its byte."""
    if len(roots) == 1 and roots[0].getparent() is None:
        return [base]
    at, found = -1, []
    for _ in roots:
        at = data.index(b"<rec", at + 1)
        if data[at : at + 8] == b"<records":
            at = data.index(b"<rec", at + 1)
        found.append(base + at)
    return found


def _alone(record: Element) -> Element:
    """A record without what is around it."""
    root = copy.deepcopy(record)
    root.tail = None
    return root


def pairs_of(matches: Matches) -> list[tuple[int, Label]]:
    """Pairs as plain values, in their order."""
    columns = (matches.id, matches.start, matches.end, matches.level)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(number, Label(start, end, level)) for number, start, end, level in rows]
