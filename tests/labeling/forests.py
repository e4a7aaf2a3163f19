"""Random forests for Hypothesis, and by brute force what each scheme says of their nodes.

The oracle knows a record as a tree of Python objects. What a scheme tells apart it gives as the
sequence of symbols that leads to a node in the scheme's trie. Preorder with sorted children is the
lexicographic order of such sequences, so ranks and sizes follow by sorting them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from hypothesis import strategies as st

from fmware.labeling.ses import PATH, PRIX, VIST, Chain, Direction, Forest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fmware.labeling.ses import Scheme

__all__ = ["ORACLES", "SCHEMES", "Node", "forest_of", "nodes_of", "records"]

TAGS = 6

Symbols = tuple[tuple[int, int], ...]
Shape = list[tuple[int, int]]
"""A record: (depth, tag) of its nodes in preorder."""


@dataclass(eq=False)
class Node:
    tag: int
    parent: Node | None
    row: int
    children: list[Node] = field(default_factory=list)

    def ancestors(self) -> list[Node]:
        """From the record's root down to the parent."""
        return [] if self.parent is None else [*self.parent.ancestors(), self.parent]

    def preorder(self) -> list[Node]:
        return [self, *(node for child in self.children for node in child.preorder())]

    def postorder(self) -> list[Node]:
        return [*(node for child in self.children for node in child.postorder()), self]


@st.composite
def _records(draw: Callable[..., int], most: int) -> Shape:
    # Few tags and a bias to go down: recursive tags, and records that begin alike.
    record = [(0, draw(st.integers(0, 1)))]
    for _ in range(draw(st.integers(0, most))):
        depth = draw(st.integers(1, record[-1][0] + 1))
        record.append((depth, draw(st.integers(0, TAGS - 1))))
    return record


def records(most: int = 14) -> st.SearchStrategy[list[Shape]]:
    """Some records, now and then the same one again."""
    return st.lists(_records(most), max_size=6).flatmap(
        lambda made: (
            st.lists(st.sampled_from(made), max_size=3).map(made.__add__) if made else st.just(made)
        )
    )


def nodes_of(shapes: Sequence[Shape]) -> list[Node]:
    """The nodes of all records in preorder."""
    nodes: list[Node] = []
    for shape in shapes:
        path: list[Node] = []
        for depth, tag in shape:
            del path[depth:]
            node = Node(tag, path[-1] if path else None, len(nodes))
            if path:
                path[-1].children.append(node)
            path.append(node)
            nodes.append(node)
    return nodes


def forest_of(nodes: Sequence[Node]) -> Forest:
    return Forest(
        np.array([node.tag for node in nodes], np.int32),
        np.array([-1 if node.parent is None else node.parent.row for node in nodes], np.int32),
        np.array([len(node.ancestors()) for node in nodes], np.int32),
        np.array([len(node.preorder()) for node in nodes], np.int32),
    )


# --- two schemes that a user might add ------------------------------------------------------


class Positions:
    """The path with positions: the second `b` of a parent differs from its first."""

    name: ClassVar[str] = "positions"
    direction: ClassVar[Direction] = Direction.ANCESTOR
    extra_is_tag: ClassVar[bool] = False

    def chain(self, forest: Forest) -> Chain:
        seen: dict[tuple[int, int], int] = {}
        extra = np.zeros(len(forest), np.uint32)
        for row, (parent, tag) in enumerate(zip(forest.parent, forest.tag, strict=True)):
            if parent >= 0:
                extra[row] = seen[parent, tag] = seen.get((parent, tag), -1) + 1
        return Chain(forest.parent, extra)


class Squeezed:
    """The path with runs of one tag squeezed: a list in a list in a list is a list.

    A node with its parent's tag shares its parent's label, which contains itself.
    """

    name: ClassVar[str] = "squeezed"
    direction: ClassVar[Direction] = Direction.ANCESTOR
    extra_is_tag: ClassVar[bool] = False

    def chain(self, forest: Forest) -> Chain:
        before = forest.parent.copy()
        for row, parent in enumerate(forest.parent):
            if parent >= 0 and forest.tag[row] == forest.tag[parent]:
                before[row] = before[parent]
        return Chain(before, np.zeros(len(forest), np.uint32))


SCHEMES: tuple[Scheme, ...] = (PATH, VIST, PRIX, Positions(), Squeezed())


# --- what schemes say, by brute force -------------------------------------------------------


def _root(node: Node) -> Node:
    return [*node.ancestors(), node][0]


def _path(node: Node) -> Symbols:
    return tuple((above.tag, 0) for above in (*node.ancestors(), node))


def _preorder_prefix(node: Node) -> Symbols:
    sequence = _root(node).preorder()
    before = sequence[: sequence.index(node) + 1]
    return tuple((each.tag, len(each.ancestors())) for each in before)


def _postorder_prefix(node: Node) -> Symbols:
    sequence = _root(node).postorder()
    before = sequence[: sequence.index(node) + 1]
    return tuple((each.tag, 0 if each.parent is None else each.parent.tag + 1) for each in before)


def _position(node: Node) -> int:
    if node.parent is None:
        return 0
    return [child for child in node.parent.children if child.tag == node.tag].index(node)


def _positions(node: Node) -> Symbols:
    return tuple((above.tag, _position(above)) for above in (*node.ancestors(), node))


def _squeezed(node: Node) -> Symbols:
    path = [above.tag for above in (*node.ancestors(), node)]
    return tuple((tag, 0) for i, tag in enumerate(path) if i == 0 or path[i - 1] != tag)


ORACLES: dict[str, Callable[[Node], Symbols]] = {
    "path": _path,
    "vist": _preorder_prefix,
    "prix": _postorder_prefix,
    "positions": _positions,
    "squeezed": _squeezed,
}
