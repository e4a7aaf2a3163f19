"""What lxml says: which statements match a document, and by which path tuples.

Tuples are found the long way: every step is an expression of its own, asked of every node that
the step before has found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lxml import etree

from tests.filtering.workload import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Place: TypeAlias = tuple[etree._Element, str]
"""Where a node is: an element and, of an attribute, its name; `#text` or `#tail` for text."""


Node: TypeAlias = "etree._Element | etree._ElementTree[etree._Element]"


class Statement:
    """A statement for lxml: whole, and step by step."""

    def __init__(self, steps: Sequence[str]) -> None:
        self.text = "".join(steps)
        self.whole = etree.XPath(self.text, namespaces=NAMESPACES)
        self.steps = [
            etree.XPath(f".{step}" if index else step, namespaces=NAMESPACES)
            for index, step in enumerate(steps)
        ]

    def rows(self, document: Document) -> list[int]:
        """The nodes it selects, as rows, in document order."""
        return sorted(document.rows[place] for place in places(self.whole(document.tree)))

    def tuples(self, document: Document) -> list[list[int]]:
        """All ways to go through the steps, in document order."""
        return sorted(self._extended(document, 0, document.tree, []))

    def _extended(
        self, document: Document, index: int, node: Node, before: list[int]
    ) -> Iterator[list[int]]:
        for place in places(self.steps[index](node)):
            found = [*before, document.rows[place]]
            if index + 1 == len(self.steps):
                yield found
            else:
                yield from self._extended(document, index + 1, place[0], found)


class Document:
    """A document for lxml, its nodes numbered as the rows of a NodeTable are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        root = etree.fromstring(data)
        self.tree = root.getroottree()
        self.rows: dict[Place, int] = {}
        self._number(root)

    def _number(self, element: etree._Element) -> None:
        # Comments and processing instructions are no rows; the text behind them is.
        if isinstance(element.tag, str):
            self._add(element, "")
            for name in element.attrib:
                self._add(element, str(name))
            if element.text is not None:
                self._add(element, "#text")
        for child in element:
            self._number(child)
            if child.tail is not None:
                self._add(child, "#tail")

    def _add(self, element: etree._Element, part: str) -> None:
        self.rows[element, part] = len(self.rows)


def places(selected: object) -> Iterator[Place]:
    """Where the nodes of an answer are."""
    assert isinstance(selected, list)
    for node in selected:
        if isinstance(node, etree._Element):
            yield node, ""
        elif node.is_attribute:
            yield node.getparent(), node.attrname
        else:
            yield node.getparent(), "#text" if node.is_text else "#tail"
