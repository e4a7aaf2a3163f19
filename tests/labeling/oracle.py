"""The nodes of a document as an independent walk over lxml's tree finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lxml import etree

from fmware.labeling import ATTRIBUTE, ELEMENT, TEXT, NodeTable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Node", "nodes", "rows", "xpath"]

PARSER = etree.XMLParser(resolve_entities=False, strip_cdata=False)


@dataclass(frozen=True)
class Node:
    kind: int
    name: str
    value: str
    parent: int
    level: int


def nodes(document: bytes, *, blanks: bool = True) -> list[Node]:
    found: list[Node] = []
    _element(etree.fromstring(document, PARSER), -1, 0, found, blanks)
    return found


def _element(
    element: etree._Element, parent: int, level: int, found: list[Node], blanks: bool
) -> None:
    row = len(found)
    found.append(Node(ELEMENT, str(element.tag), "", parent, level))
    for name, value in element.attrib.items():
        found.append(Node(ATTRIBUTE, str(name), str(value), row, level + 1))
    _text(element.text, row, level + 1, found, blanks)
    for child in element:
        if isinstance(child.tag, str):
            _element(child, row, level + 1, found, blanks)
        _text(child.tail, row, level + 1, found, blanks)


def _text(text: str | None, parent: int, level: int, found: list[Node], blanks: bool) -> None:
    if text and (blanks or text.strip(" \t\r\n")):
        found.append(Node(TEXT, "#text", text, parent, level))


def rows(table: NodeTable) -> list[Node]:
    """The same of a table."""
    return [
        Node(
            int(table.kind[row]),
            table.name(row),
            table.value(row),
            int(table.parent[row]),
            int(table.level[row]),
        )
        for row in range(len(table))
    ]


def xpath(path: str) -> tuple[str, dict[str, str]]:
    """A path of Clark names with prefixes instead, and what they stand for."""
    spaces: dict[str, str] = {}
    return "".join(_prefixed(path, spaces)), {prefix: uri for uri, prefix in spaces.items()}


def _prefixed(path: str, spaces: dict[str, str]) -> Iterator[str]:
    while "{" in path:
        before, _, path = path.partition("{")
        uri, _, path = path.partition("}")
        yield before + spaces.setdefault(uri, f"n{len(spaces)}") + ":"
    yield path
