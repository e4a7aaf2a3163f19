"""Anchors: the nodes of a message that the corpus is asked about, and their local nodes.

An anchor's local node is the one whose label it carries, in the attribute `mi` of the namespace
`urn:fmware`; else those that have its key, by the identity rules of the index. A rule holds for
elements of messages as it holds for those of the corpus: `article=@key` says that an article of a
message is the article of the corpus with the same key. A key may belong to several nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fmware.labeling import ATTRIBUTE
from fmware.labeling.identity import parse_rules
from fmware.matching._kernel import LabelLists, keys_at
from fmware.matching.evaluate import Evaluators, resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from fmware.index import Index
    from fmware.labeling import NodeTable, Vocabulary
    from fmware.labeling.identity import IdentityRule
    from fmware.matching._kernel import Anchors, Found, LocalNodes, Way
    from fmware.xpath import Anchor

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

__all__ = ["MI", "AnchorPart", "Missing", "Resolver", "Ways"]

MI: Final = "{urn:fmware}mi"
"""The attribute in which a message carries the label of a local node: its AD start."""
NOTHING: Final = -1
"""In place of a tag: there is none."""


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
        self.direct = not self._branch.steps
        """Whether it is a step of the filter itself."""

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
        self._prepared: Ways | None = None
        self._finders: dict[int, list[object | None]] = {}
        self.label_lists: dict[tuple[int, str], LabelLists] = {}

    @property
    def names(self) -> set[str]:
        """The names that a reader of messages must not forget: those that identity depends on."""
        names = {MI}
        for rule in self.rules:
            names |= {*rule.steps, *([rule.attribute] if rule.attribute else ())}
            names |= self.numbers.keys() if rule.element == "*" else {rule.element}
        return names

    def prepare(self, vocabulary: Vocabulary) -> None:
        """Have readers with this vocabulary keep these names, also closed ones."""
        for name in self.names:
            vocabulary.add(name)
        # It has all names now, so that what is found out about its tags never changes.
        self._prepared = Ways(vocabulary, self.rules, self.numbers)

    def has_key(self, name: str) -> bool:
        """Whether a rule gives keys to elements of a Clark name."""
        return any(rule.element in ("*", name) for rule in self.rules)

    def find(self, anchors: Anchors, tables: list[NodeTable | None]) -> LocalNodes:
        """The local nodes of anchors.

        Raises:
            ForeignTable: a table was read without values.
        """
        labelled, labels = anchors.read(tables, self)
        if labelled:
            self._by_label(anchors, labelled, labels)
        anchors.identify(self._finders, self._finders_of, self._identify)
        return anchors.spread()

    def labels(self, number: int, scheme: str) -> LabelLists | None:
        """How a kernel looks up SES labels of a tag, by its number; None if it cannot."""
        found = self.label_lists.get((number, scheme))
        if found is None and scheme in self.index.schemes:
            tag, segments = self.elements[number], self.index.segments
            found = LabelLists(scheme, number, [each.labeller(tag, scheme) for each in segments])
            self.label_lists[number, scheme] = found
        return found

    def labelled(
        self, tags: Int32s, segments: Int32s, rows: Int64s, scheme: str
    ) -> tuple[Int64s, Int64s]:
        """The SES labels of local nodes: the slow way, which opens lists that are not open yet.

        A node is given by the number of its tag, its segment, and its row in that tag's list.
        """
        rank, last = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        lists = segments.astype(np.int64) * len(self.elements) + tags
        for each in np.unique(lists).tolist():
            segment, tag = divmod(each, len(self.elements))
            own = np.flatnonzero(lists == each)
            found = self.index.segments[segment].labels(self.elements[tag], rows[own], scheme)
            rank[own], last[own] = found
        return rank, last

    def _finders_of(self, number: int) -> list[object | None]:
        """How a kernel finds elements by key in each segment."""
        tag = self.elements[number]
        found = [segment.finder(tag) for segment in self.index.segments]
        self._finders[number] = found
        return found

    def _identify(self, place: int, number: int, keys: list[bytes]) -> Found:
        """The elements of a segment that have keys."""
        pairs = self.index.segments[place].identify(self.elements[number], keys)
        assert pairs.rows is not None
        found = pairs.right
        return pairs.left, pairs.rows, found.start, found.end, found.level

    def ways(self, vocabulary: Vocabulary) -> Ways:
        """The ways to keys, by tags of a vocabulary."""
        ways = self._prepared
        if ways is not None and ways.vocabulary is vocabulary:
            return ways
        return Ways(vocabulary, self.rules, self.numbers)

    def _by_label(self, anchors: Anchors, nodes: list[int], labels: list[int]) -> None:
        """Find the local nodes that labels name, whatever their tag."""
        left, starts = np.arange(len(nodes)), np.array(labels, np.int64)
        for number, tag in enumerate(self.elements):
            located = self.index.locate(tag, starts)
            for place in np.unique(located.segment[located.segment >= 0]).tolist():
                own = located.segment == place
                rows = located.row[own]
                found = self.index.segments[place].at(tag, rows)
                columns = left[own], rows, found.start, found.end, found.level
                anchors.locate(nodes, number, place, *columns)
            open_ = located.segment < 0
            left, starts = left[open_], starts[open_]
            if not len(starts):
                return

    def described(self, table: NodeTable, message: int, row: int) -> Missing:
        """An anchor that has no local node."""
        path, tag = table.path(row), table.name(row)
        return Missing(message, row, path, tag, self._mark(table, row))

    def _mark(self, table: NodeTable, row: int) -> str | None:
        """What an anchor is known by."""
        ways = Ways(table.vocabulary, self.rules, self.numbers)
        for at in table.children(row).tolist():
            if table.kind[at] == ATTRIBUTE and table.tag[at] == ways.label:
                return table.value(at)
        keys = keys_at(table, row, ways.anyhow(int(table.tag[row])))
        return keys[0].decode() if keys else None


class Ways:
    """The ways to the keys of elements, by tags of one vocabulary.

    `label` is the tag of the attribute that carries a label, or NOTHING. `by_tag` has the number of
    an element in the corpus and the ways to its keys, as far as `find` was asked: a way is the tags
    to go down by, and that of the attribute to take there, or NOTHING.
    """

    __slots__ = ("_numbers", "_rules", "by_tag", "label", "vocabulary")

    def __init__(
        self, vocabulary: Vocabulary, rules: tuple[IdentityRule, ...], numbers: Mapping[str, int]
    ) -> None:
        label = vocabulary.get(MI)
        self.label = NOTHING if label is None else label
        self.vocabulary = vocabulary
        self.by_tag: dict[int, tuple[int, list[Way]]] = {}
        self._rules = rules
        self._numbers = numbers

    def find(self, tag: int) -> tuple[int, list[Way]]:
        """Those of the elements with a tag; none if the corpus has no such element."""
        number = self._numbers.get(self.vocabulary.name(tag), NOTHING)
        found = self.by_tag[tag] = number, [] if number == NOTHING else self.anyhow(tag)
        return found

    def anyhow(self, tag: int) -> list[Way]:
        """The ways to keys of elements with a tag, whether or not the corpus has any."""
        name = self.vocabulary.name(tag)
        ways = (self._way(rule) for rule in self._rules if rule.element in ("*", name))
        return [way for way in ways if way is not None]

    def _way(self, rule: IdentityRule) -> Way | None:
        """A rule by tags; None if the vocabulary lacks a name of it, so that no node has it."""
        steps = [self.vocabulary.get(step) for step in rule.steps]
        attribute = self.vocabulary.get(rule.attribute) if rule.attribute else NOTHING
        if attribute is None or None in steps:
            return None
        return tuple(step for step in steps if step is not None), attribute
