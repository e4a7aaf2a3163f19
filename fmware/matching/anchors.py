"""Anchors: the nodes of a message that the corpus is asked about, and their local nodes.

An anchor's local node is the one whose label it carries, in the attribute `mi` of the namespace
`urn:fmware`; else those that have its key, by the identity rules of the index. A rule holds for
elements of messages as it holds for those of the corpus: `article=@key` says that an article of a
message is the article of the corpus with the same key. A key may belong to several nodes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from cmatch import Inputs
from fmware.filtering.errors import ForeignTable
from fmware.matching.columns import expand, first_of_each
from fmware.matching.evaluate import Evaluators, resolved
from index.labels import Labels
from labeling import ATTRIBUTE, ELEMENT, NodeTable, Vocabulary
from labeling.identity import keys_of, parse_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from fmware.xpath import Anchor
    from index import Index
    from labeling.identity import IdentityRule
    from labeling.runs import Tag

    Int16s = npt.NDArray[np.int16]
    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

__all__ = ["MI", "AnchorPart", "Locals", "Missing", "Resolver"]

MI: Final = "{urn:fmware}mi"
"""The attribute in which a message carries the label of a local node: its AD start."""
SMALL: Final = 512
"""Rows up to which a loop over a message is faster than numpy and Arrow are to begin."""

_LABEL: Final = re.compile(rb"[ \t\r\n]*([0-9]{1,18})[ \t\r\n]*")
_Way: TypeAlias = tuple[list[int], int]
"""Tags to go down by, and that of the attribute to take there, or NOTHING."""
NOTHING: Final = -1


class AnchorPart:
    """The anchor of a crossing: a step of the filter, or what a branch down from it leads to."""

    def __init__(
        self,
        anchor: Anchor,
        namespaces: Mapping[str, str] | None = None,
        *,
        evaluators: Evaluators | None = None,
    ) -> None:
        self.step = anchor.step
        self._branch = resolved(anchor.branch, namespaces or {})
        self._evaluators = evaluators or Evaluators()

    @property
    def direct(self) -> bool:
        """Whether it is a step of the filter itself."""
        return not self._branch.steps

    def rows(self, table: NodeTable, tuples: Int32s) -> tuple[Int64s, Int64s]:
        """The anchors of path tuples: for each its tuple, by its line, and its row in the table.

        A tuple has one anchor, or by way of a branch any number.
        """
        own = tuples[:, self.step].astype(np.int64)
        lines = np.arange(len(own), dtype=np.int64)
        if self.direct:
            return lines, own
        evaluator = self._evaluators.of(table)
        starts, of = np.unique(own, return_inverse=True)
        found = [evaluator.select(self._branch, [row]) for row in starts.tolist()]
        each = [found[at] for at in of.tolist()]
        rows = np.array([row for rows in each for row in rows], np.int64)
        return np.repeat(lines, [*map(len, each)]), rows


@dataclass(frozen=True, slots=True, eq=False)
class Locals:
    """The local nodes of some anchors, as columns, by anchor.

    `anchor` is a place among the anchors that were asked for, `tag` one in `tags`, `segment` one in
    `Index.segments`; `row` is the node's in its tag's list of that segment. `missing` are the
    places of anchors that have no local node.
    """

    tags: tuple[Tag, ...]
    anchor: Int64s
    tag: Int64s
    segment: Int32s
    row: Int64s
    start: Int64s
    end: Int64s
    level: Int16s
    missing: Int64s

    def __len__(self) -> int:
        return len(self.anchor)

    def take(self, rows: slice | npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Locals:
        """Some of the local nodes; what is missing stays missing."""
        return Locals(
            self.tags,
            self.anchor[rows],
            self.tag[rows],
            self.segment[rows],
            self.row[rows],
            self.start[rows],
            self.end[rows],
            self.level[rows],
            self.missing,
        )

    def by_tag(self) -> Iterator[tuple[Tag, Locals]]:
        """The local nodes of each tag; mostly there is one."""
        few = len(self.tag) <= SMALL
        there = sorted({*self.tag.tolist()}) if few else np.unique(self.tag).tolist()
        for tag in there:
            yield self.tags[tag], self if len(there) == 1 else self.take(self.tag == tag)

    def inputs(
        self,
        index: Index,
        ids: npt.ArrayLike | None = None,
        scheme: str | None = None,
        tag: Tag | None = None,
    ) -> Inputs:
        """The local nodes as inputs of an operator; `ids` are those of the anchors, or places.

        Whoever knows that all nodes have one `tag` says so.
        """
        own = self.anchor if ids is None else np.asarray(ids, np.int64)[self.anchor]
        if scheme is None:
            return Inputs(own, self.segment, self.start, self.end, self.level)
        if tag is not None and len(index.segments) == 1:
            labels = index.segments[0].labels(tag, self.row, scheme)
            return Inputs(own, self.segment, self.start, self.end, self.level, *labels, scheme)
        places = self.segment * len(self.tags) + self.tag
        if len(places) and (places == places[0]).all():
            segment, number = divmod(int(places[0]), len(self.tags))
            labels = index.segments[segment].labels(self.tags[number], self.row, scheme)
            return Inputs(own, self.segment, self.start, self.end, self.level, *labels, scheme)
        rank = np.empty(len(own), np.int64)
        last = np.empty(len(own), np.int64)
        for place in np.unique(places).tolist():
            segment, number = divmod(place, len(self.tags))
            rows = np.flatnonzero(places == place)
            labels = index.segments[segment].labels(self.tags[number], self.row[rows], scheme)
            rank[rows], last[rows] = labels
        return Inputs(own, self.segment, self.start, self.end, self.level, rank, last, scheme)


class Missing(NamedTuple):
    """An anchor without a local node.

    `key` is the label or one of the keys that nothing in the corpus has; None if it has neither.
    """

    message: int
    row: int
    path: str
    tag: str
    key: str | None


class Resolver:
    """Finds the local nodes of anchors in one generation of an index. Safe to share."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.rules = parse_rules(index.identity)
        self.elements = tuple(tag for tag in index.tags if tag.kind == 0)
        self.numbers = {tag.name: number for number, tag in enumerate(self.elements)}

    @property
    def names(self) -> set[str]:
        """The names that a reader of messages must not forget: those that identity hangs on."""
        names = {MI}
        for rule in self.rules:
            names |= {*rule.steps, *([rule.attribute] if rule.attribute else ())}
            names |= self.numbers.keys() if rule.element == "*" else {rule.element}
        return names

    def prepare(self, vocabulary: Vocabulary) -> None:
        """Have readers with this vocabulary keep these names, also closed ones."""
        for name in self.names:
            vocabulary.add(name)

    def has_key(self, name: str) -> bool:
        """Whether a rule gives keys to elements of a Clark name."""
        return any(rule.element in ("*", name) for rule in self.rules)

    def resolve(
        self, tables: Sequence[NodeTable], message: npt.ArrayLike, row: npt.ArrayLike
    ) -> Locals:
        """The local nodes of anchors, given by the place of their table and their row in it.

        An anchor may be given any number of times; the work is done once, for all tables at once.
        The tables must have their values.
        """
        messages, rows = np.asarray(message, np.int64), np.asarray(row, np.int64)
        begin = [0, *accumulate(map(len, tables))]
        asked, of = np.unique(np.array(begin)[messages] + rows, return_inverse=True)
        marks = _Marks(self)
        numbers: list[int] = asked.tolist()
        low = 0
        while low < len(numbers):
            at = bisect_right(begin, numbers[low]) - 1
            high = bisect_left(numbers, begin[at + 1], low)
            marks.read(tables[at], low, [number - begin[at] for number in numbers[low:high]])
            low = high
        found = _Found()
        marks.by_label(self.index, found)
        marks.by_key(self.index, found)
        return found.locals(self.elements, of, len(asked))

    def missing(
        self,
        tables: Sequence[NodeTable],
        message: npt.ArrayLike,
        row: npt.ArrayLike,
        found: Locals,
    ) -> Iterator[Missing]:
        """Which anchors have no local node, of those that were asked for, and why."""
        messages, rows = np.asarray(message)[found.missing], np.asarray(row)[found.missing]
        for number, at in zip(messages.tolist(), rows.tolist(), strict=True):
            table = tables[number]
            yield Missing(number, at, table.path(at), table.name(at), self._mark(table, at))

    def _mark(self, table: NodeTable, row: int) -> str | None:
        """What an anchor is known by."""
        anchor = _Rows(table)
        label = table.vocabulary.get(MI)
        carried = [] if label is None else anchor.attributes(row, label)
        keys = carried or [
            key
            for rule in self.rules
            if rule.element in ("*", table.name(row))
            if (way := _way(rule, table.vocabulary)) is not None
            for key in anchor.keys(row, *way)
        ]
        return keys[0].decode() if keys else None


class _Marks:
    """What the anchors of a batch are known by: a label, or keys. Anchors are numbers here."""

    def __init__(self, resolver: Resolver) -> None:
        self._rules = resolver.rules
        self._elements = resolver.elements
        self._numbers = resolver.numbers
        self._ways: dict[int, _Ways] = {}
        self._labels: list[tuple[int, int]] = []
        self._keys: dict[int, tuple[list[int], list[bytes]]] = {}

    def read(self, table: NodeTable, first: int, rows: list[int]) -> None:
        """Look at the rows of one table that are anchors; they are numbered from `first`."""
        if not table.has_values:
            raise ForeignTable("the table was read without values, and keys are values")
        if len(table) <= SMALL:
            self._read_rows(table, first, rows)
        else:
            self._read_table(table, first, rows)

    def _read_rows(self, table: NodeTable, first: int, rows: list[int]) -> None:
        """One anchor after the other."""
        vocabulary = table.vocabulary
        ways = self._ways.get(id(vocabulary)) or self._find_ways(vocabulary)
        read = _Rows(table)
        for anchor, row in enumerate(rows, first):
            tag = read.tag[row]
            if ways.label is not None and (carried := read.attributes(row, ways.label)):
                self._labels += [(anchor, label) for label in map(_label, carried) if label >= 0]
                continue
            for steps, attribute in ways.of(tag):
                for key in read.keys(row, steps, attribute):
                    self._keep(anchor, ways.number(tag), key)

    def _read_table(self, table: NodeTable, first: int, rows: list[int]) -> None:
        """All keys of the table, and of them those of anchors."""
        places = np.full(len(table), -1, np.int64)
        places[rows] = np.arange(first, first + len(rows))
        at = table.rows_of(MI, ATTRIBUTE)
        at = at[places[table.parent[at]] >= 0]
        for row, owner in zip(at.tolist(), table.parent[at].tolist(), strict=True):
            label = _label(table.value_at(row))
            self._labels += [(int(places[owner]), label)] if label >= 0 else []
            # A label says more than a key.
            places[owner] = -1
        for owners, keys in keys_of(table, self._rules):
            there = places[owners] >= 0
            keyed = keys.filter(pa.array(there)).to_pylist() if there.any() else []
            owned = owners[there].tolist()
            for owner, key in zip(owned, keyed, strict=True):
                self._keep(int(places[owner]), self._numbers.get(table.name(owner)), key.encode())

    def _find_ways(self, vocabulary: Vocabulary) -> _Ways:
        # The vocabulary is held with them, so that its id stays its own.
        return self._ways.setdefault(id(vocabulary), _Ways(vocabulary, self._rules, self._numbers))

    def _keep(self, anchor: int, number: int | None, key: bytes) -> None:
        if number is not None:
            anchors, keys = self._keys.setdefault(number, ([], []))
            anchors.append(anchor)
            keys.append(key)

    def by_label(self, index: Index, found: _Found) -> None:
        """The nodes that labels name, whatever their tag."""
        if not self._labels:
            return
        anchors, starts = np.array(self._labels, np.int64).T
        for number, tag in enumerate(self._elements):
            located = index.locate(tag, starts)
            for place in np.unique(located.segment[located.segment >= 0]).tolist():
                own = located.segment == place
                labels = index.segments[place].at(tag, located.row[own])
                found.add(anchors[own], number, place, located.row[own], labels)
            left = located.segment < 0
            anchors, starts = anchors[left], starts[left]
            if not len(starts):
                break

    def by_key(self, index: Index, found: _Found) -> None:
        """The nodes that have the keys, tag by tag."""
        for number, (anchors, keys) in self._keys.items():
            own = np.array(anchors, np.int64)
            for place, segment in enumerate(index.segments):
                pairs = segment.identify(self._elements[number], keys)
                if len(pairs):
                    assert pairs.rows is not None
                    found.add(own[pairs.left], number, place, pairs.rows, pairs.right)


class _Ways:
    """The ways to the keys of elements, by tags of one vocabulary, for one batch."""

    def __init__(
        self, vocabulary: Vocabulary, rules: tuple[IdentityRule, ...], numbers: Mapping[str, int]
    ) -> None:
        self.label = vocabulary.get(MI)
        self._vocabulary = vocabulary
        self._rules = rules
        self._numbers = numbers
        self._of: dict[int, list[_Way]] = {}

    def of(self, tag: int) -> list[_Way]:
        """The ways to the keys of elements with a tag; none if the corpus has no such element."""
        if tag not in self._of:
            name = self._vocabulary.name(tag)
            rules = [rule for rule in self._rules if rule.element in ("*", name)]
            ways = (_way(rule, self._vocabulary) for rule in rules if name in self._numbers)
            self._of[tag] = [way for way in ways if way is not None]
        return self._of[tag]

    def number(self, tag: int) -> int:
        return self._numbers[self._vocabulary.name(tag)]


def _way(rule: IdentityRule, vocabulary: Vocabulary) -> _Way | None:
    """A rule by tags; None if the vocabulary has not all of its names, so that no node has."""
    steps = [vocabulary.get(step) for step in rule.steps]
    attribute = vocabulary.get(rule.attribute) if rule.attribute else NOTHING
    if attribute is None or None in steps:
        return None
    return [step for step in steps if step is not None], attribute


class _Rows:
    """The rows of a small table, to be looked at one by one."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._kind: list[int] = table.kind.tolist()
        self._parent: list[int] = table.parent.tolist()
        self.tag: list[int] = table.tag.tolist()

    def attributes(self, row: int, tag: int) -> list[bytes]:
        """The value of an attribute, if the element has it."""
        at = row + 1
        while at < len(self.tag) and self._kind[at] == ATTRIBUTE:
            if self.tag[at] == tag:
                return [self._table.value_at(at)]
            at += 1
        return []

    def _children(self, row: int, tag: int) -> Iterator[int]:
        for at in range(row + 1, len(self.tag)):
            if self._parent[at] < row:
                return
            if self._parent[at] == row and self.tag[at] == tag and self._kind[at] == ELEMENT:
                yield at

    def keys(self, row: int, steps: Sequence[int], attribute: int) -> list[bytes]:
        """The keys of an element by one rule."""
        rows = [row]
        for step in steps:
            rows = [at for each in rows for at in self._children(each, step)]
        if attribute != NOTHING:
            values = [value for at in rows for value in self.attributes(at, attribute)]
        else:
            values = [self._table.string_value(at).encode() for at in rows]
        return [key for value in values if (key := value.strip(b" \t\r\n"))]


def _label(value: bytes) -> int:
    """The label that an attribute carries; -1 if it is none."""
    match = _LABEL.fullmatch(value)
    return int(match[1]) if match else -1


class _Found:
    """Local nodes as they are found."""

    def __init__(self) -> None:
        nothing = np.empty(0, np.int64)
        self._parts = [(nothing, nothing, nothing.astype(np.int32), nothing, Labels.empty())]

    def add(self, anchors: Int64s, tag: int, segment: int, rows: Int64s, labels: Labels) -> None:
        count = len(anchors)
        places = np.full(count, segment, np.int32)
        self._parts.append((anchors, np.full(count, tag, np.int64), places, rows, labels))

    def locals(self, tags: tuple[Tag, ...], of: npt.NDArray[np.intp], count: int) -> Locals:
        """All of them, for anchors that are `of` these numbers."""
        anchor, tag, segment, row = (
            np.concatenate([part[at] for part in self._parts]) for at in range(4)
        )
        labels = [part[4] for part in self._parts]
        start = np.concatenate([each.start for each in labels])
        end = np.concatenate([each.end for each in labels])
        level = np.concatenate([each.level for each in labels])
        # A node may have several of an anchor's keys.
        once = first_of_each(anchor, start)
        left, at = expand(anchor[once], of, count)
        at = once[at]
        missing = np.flatnonzero(np.bincount(anchor, minlength=count)[of] == 0)
        return Locals(
            tags, left, tag[at], segment[at], row[at], start[at], end[at], level[at], missing
        )
