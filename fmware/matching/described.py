"""Local nodes as results tell them, made when a caller looks at them.

Tag, label and value of a node come from the lists of the index: the statement says which tags its
local nodes may have, and a node is found among the nodes of a tag by where it begins. The record
is read for fragments, for values that the index does not keep, and for paths and sources when these
are asked for. Corpora have favourites, so descriptions are kept, those that were used last.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fmware.index._kernel import describe_each
from fmware.index.errors import NoSuchNode
from fmware.labeling import ELEMENT, TEXT
from fmware.labeling.runs import Tag
from fmware.labeling.values import ELSEWHERE, Values
from fmware.matching.results import LocalNode
from fmware.statements import Returns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fmware.index import Index, Segment
    from fmware.index._kernel import Nodes
    from fmware.index._kernel import Values as ValueList
    from fmware.matching.plan import Plan

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]
    Named = tuple[int, str]
    Listed = tuple[str, Nodes, ValueList]

__all__ = ["Descriptions", "NodeColumns"]

ROOM: Final = 16 << 20
"""Bytes of descriptions that are kept, about."""
EACH: Final = 600
"""Bytes of a description beside its value and its fragment; a path, when it is read, included."""

Told = dict[int, LocalNode]
"""Descriptions by the label at which their node begins, which no other node ever has."""


class NodeColumns(NamedTuple):
    """Tags and values of local nodes, a line each."""

    tag: list[str]
    values: Values


class Descriptions:
    """Describes local nodes of one generation of an index, and keeps descriptions.

    `lease` is an `Index.lease`: it stays open for as long as anybody has this, or a node that was
    not read to its end. Threads may share it.

    What is kept is in two halves: a young one, and an old one, which goes when the young one is
    full and takes its place. What is used again moves to the young one.
    """

    def __init__(self, lease: Index, room: int = ROOM) -> None:
        self._lease = lease
        self._half = room // 2
        self._young: dict[frozenset[Returns], Told] = {}
        self._old: dict[frozenset[Returns], Told] = {}
        self._size = 0
        self._lists: dict[tuple[int, Named], list[Listed]] = {}
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """How many descriptions are kept."""
        halves = (self._young, self._old)
        return sum(len(told) for half in halves for told in half.values())

    # --- objects ----------------------------------------------------------------------------

    def of(self, segment: int, start: int, plan: Plan) -> LocalNode:
        """The node that begins at `start` and that a statement selects, with what it returns."""
        wanted = plan.read
        young = self._young.get(wanted)
        node = young.get(start) if young is not None else None
        if node is None:
            old = self._old.get(wanted)
            node = None if old is None else old.pop(start, None)
            if node is None:
                node = self._described(segment, start, plan)
            self._keep(node, wanted)
        return node

    def _keep(self, node: LocalNode, wanted: frozenset[Returns]) -> None:
        size = EACH + len(node.value or "") + len(node.fragment or b"")
        if size > self._half:
            return
        with self._lock:
            self._young.setdefault(wanted, {})[node.start] = node
            self._size += size
            if self._size > self._half:
                self._young, self._old = {}, self._young
                self._size = 0

    def _described(self, segment: int, start: int, plan: Plan) -> LocalNode:
        place = self._lease.segments[segment]
        tag, end, level, value = self._found(place, segment, start, plan)
        fragment = place.fragment(start) if Returns.FRAGMENT in plan.read else None
        # Before it is kept: it may come long after its batch was checked.
        place.check()
        return LocalNode.later(place, tag, (start, end, level), value, fragment)

    def _found(
        self, place: Segment, segment: int, start: int, plan: Plan
    ) -> tuple[str, int, int, str | None]:
        """Tag, end, level and, if it is returned, the value."""
        wanted = Returns.VALUE in plan.read
        if plan.selected[0] == TEXT:
            end, level, text = self._text(segment, start, plan.selected)
            return "#text", end, level, text if wanted else None
        for tag, nodes, values in self._listed(segment, plan.selected):
            found = values.described(nodes, start, wanted)
            if found is not None:
                end, level, value = found
                if wanted and value is None:
                    value = place.value(start)
                return tag, end, level, value
        raise NoSuchNode(start)

    def _text(self, segment: int, start: int, named: Named) -> tuple[int, int, str]:
        """End, level and value of a text node: its element has it, or else the record."""
        for _, nodes, values in self._listed(segment, named):
            found = values.text(nodes, start)
            if found is not None:
                return found
        table = self._lease.segments[segment].table(start)
        row = int(table.start.searchsorted(start))
        return int(table.end[row]), int(table.level[row]), table.value(row)

    def _listed(self, segment: int, named: Named) -> list[Listed]:
        """The lists of a segment in which nodes with a kind and a name, or with any, are."""
        found = self._lists.get((segment, named))
        if found is None:
            kind, name = named
            if kind == TEXT:
                kind = ELEMENT
            held = self._lease.segments[segment].files.lists
            if name.endswith("*"):
                tags = [tag for tag in held if isinstance(tag, Tag) and tag.kind == kind]
                tags = [tag for tag in tags if tag.name.startswith(name[:-1])]
            else:
                tags = [Tag(kind, name)] if (kind, name) in held else []
            found = [(str(tag), held[tag].nodes, held[tag].values) for tag in tags]
            self._lists[segment, named] = found
        return found

    # --- columns ----------------------------------------------------------------------------

    def columns(
        self,
        plans: Sequence[Plan],
        plan: npt.NDArray[np.int32],
        segment: Int32s,
        start: Int64s,
        wanted: npt.NDArray[np.bool_],
    ) -> NodeColumns:
        """The nodes that begin at `start`, each selected by one of the plans; without objects.

        `wanted` are those whose values must be there; of others they may be.
        """
        places = segment.tolist()
        known: dict[tuple[int, int], list[Listed]] = {}
        listed = []
        for key in zip(plan.tolist(), places, strict=True):
            own = known.get(key)
            if own is None:
                selected = plans[key[0]].selected
                own = [] if selected[0] == TEXT else self._listed(key[1], selected)
                known[key] = own
            listed.append(own)
        which, _, _, mark, offsets, data = describe_each(listed, start)
        numbers = which.tolist()
        tag = [
            own[number][0] if number >= 0 else "#text"
            for own, number in zip(listed, numbers, strict=True)
        ]
        values = Values(mark, offsets, data)
        elsewhere = np.flatnonzero(wanted & (mark & ELSEWHERE != 0))
        if len(elsewhere):
            read: dict[int, str] = {}
            for at in elsewhere.tolist():
                begins = int(start[at])
                if begins not in read:
                    read[begins] = self._read(places[at], begins, plans[plan[at]], numbers[at])
            every = [read[begins] for begins in start[elsewhere].tolist()]
            values = _completed(values, elsewhere, every)
        self._lease.check()
        return NodeColumns(tag, values)

    def _read(self, segment: int, start: int, plan: Plan, number: int) -> str:
        """A value that the lists of its tag do not have."""
        if number < 0:
            return self._text(segment, start, plan.selected)[2]
        return self._lease.segments[segment].value(start)


def _completed(values: Values, missing: npt.NDArray[np.intp], read: list[str]) -> Values:
    """The values with those that were read elsewhere."""
    data = [text.encode() for text in read]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    more = Values(np.zeros(len(data), np.uint8), offsets, np.frombuffer(b"".join(data), np.uint8))
    order = np.arange(len(values))
    order[missing] = np.arange(len(values), len(values) + len(read))
    return Values.taken([values, more], order)
