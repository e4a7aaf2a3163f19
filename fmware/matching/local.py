"""The local side: what is left of a match part when an operator has joined its first step.

An operator gives pairs of an anchor and a node that the first step's axis and name lead to. What
else the match part says is decided pair by pair, so that pairs may come in any order and in any
batches:

- **Where structure decides**, it is structural joins over the index's lists, for all pairs at once:
  steps, and predicates that only ask what is there, such as `[@open]` or `[not(.//stock)]`.
- **Where values or positions are asked for**, it is the evaluator, on the table of the record that
  the node is in; from such a step on, all of the rest. Positions of `x[2]` and of `//x[2]` count
  among siblings, so the node itself knows them. Only those of `ancestor::x[2]` count from the
  anchor, whose local node must then be given.

Text has no lists in the index: a match part that begins with `text()` is taken to be
`self::*/text()`.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cmatch import ADMatch, Matches
from cmatch import Axis as Theta
from fmware.matching.columns import expand, first_of_each
from fmware.matching.evaluate import Evaluators, resolved
from fmware.xpath import And, Axis, Exists, Kind, Not, Or, Path, Step
from fmware.xpath.tree import positional
from index.labels import Labels, Pairs
from labeling.runs import Tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from cmatch import Inputs
    from fmware.matching.evaluate import Evaluator
    from fmware.xpath import Crossing, Expr
    from index import Index

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

__all__ = ["LocalPart", "Sought"]

Sought: TypeAlias = tuple[str, int, str]
"""An axis, a kind of node, and a name that is resolved."""


class LocalPart:
    """The match part of a crossing, ready to be asked.

    `axis` and `tags` are what an operator is to join; `finish` takes its pairs on to the nodes that
    the match part selects, `holding` to the anchors for which it selects any. Immutable, and safe
    to share between threads. `evaluators`, which several parts may share, keeps what is known of
    records.
    """

    def __init__(
        self,
        crossing: Crossing,
        namespaces: Mapping[str, str] | None = None,
        *,
        evaluators: Evaluators | None = None,
    ) -> None:
        steps = resolved(crossing.match, namespaces or {}).steps
        if steps[0].kind is Kind.TEXT:
            steps = (Step(Axis.SELF, Kind.ELEMENT, None, "*", (), local=True), *steps)
        self._first, self._rest = steps[0], steps[1:]
        cut = next((at for at, step in enumerate(self._rest) if not _is_join(step)), len(steps))
        self._joins = self._rest[:cut]
        self._walk = Path(self._rest[cut:])
        self._tests, self._value_tests = _parted(self._first.predicates)
        self._evaluators = evaluators or Evaluators()
        self.sought: Sought = self._first.axis.name, int(self._first.kind), self._first.name
        """What the first step seeks, its predicates apart: an axis, a kind and a name."""
        self.done = not self._rest and not self._first.predicates
        """Whether the first step is all: `finish` then only drops what came twice."""
        self.itself = self._first.axis is Axis.SELF and self._first.name == "*"
        """Whether the first step is the anchor's local node, whatever it is: nothing to join."""

    # --- what the operator does -------------------------------------------------------------

    @property
    def axis(self) -> Theta:
        """The axis of the first step: the paper's Theta."""
        return Theta(self._first.axis.name.lower())

    def tags(self, index: Index) -> tuple[Tag, ...]:
        """The tags of the index that the first step joins: none, one, or for `*` many."""
        return _tags(index, self._first)

    def probe(self, index: Index, inputs: Inputs) -> Matches:
        """The first step for a batch of anchors, by AD label alone."""
        if self.itself:
            return Matches(inputs.id, inputs.segment, inputs.start, inputs.end, inputs.level)
        tags = self.tags(index)
        return Matches.joined([ADMatch(index, tag, self.axis).feed(inputs) for tag in tags])

    # --- what is left -----------------------------------------------------------------------

    @property
    def kind(self) -> Kind:
        """What the match part selects: elements, attributes or texts."""
        return (self._rest or (self._first,))[-1].kind

    @property
    def needs_anchors(self) -> bool:
        """Whether `finish` must be told the anchors: for positions on the ancestor axis."""
        return self._first.axis is Axis.ANCESTOR and any(map(positional, self._first.predicates))

    @property
    def repeats(self) -> bool:
        """Whether a node may be selected by way of several first nodes of one anchor.

        `finish` gives it once a call; if pairs of an anchor come to several calls, it may come
        again. So may any node if one id stands for several local nodes.
        """
        nested = self._first.axis in (Axis.DESCENDANT, Axis.ANCESTOR)
        return nested and any(step.axis is Axis.DESCENDANT for step in self._rest)

    def finish(self, index: Index, matches: Matches, anchors: Inputs | None = None) -> Matches:
        """From pairs with first nodes to pairs with selected ones, by id and in document order.

        `index` is the generation the pairs are of. `anchors`, with the ids of the pairs, are looked
        at only if they are needed. A text node has the label it has in its record's table.
        """
        pairs = _having(index, self._tests, matches)
        pairs = self._passing(index, pairs, anchors)
        for step in self._joins:
            pairs = _joined(index, step, pairs)
        if self._walk.steps:
            pairs = self._walked(index, pairs)
        return _once(pairs)

    def holding(self, index: Index, matches: Matches, anchors: Inputs | None = None) -> Int64s:
        """The ids for which anything is selected, each once and in order: a condition's answer."""
        pairs = matches if self.done else self.finish(index, matches, anchors)
        found: Int64s = np.unique(pairs.id)
        return found

    # --- predicates of the first step -------------------------------------------------------

    def _passing(self, index: Index, pairs: Matches, anchors: Inputs | None) -> Matches:
        tests = self._value_tests
        if not tests or not len(pairs):
            return pairs
        if self.needs_anchors:
            if anchors is None:
                raise ValueError("positions on the ancestor axis need the anchors of the pairs")
            return pairs.take(self._by_anchor(index, pairs, anchors))
        nodes = _Nodes(pairs)
        passed = np.zeros(len(nodes), np.bool_)
        siblings = self._first.axis in (Axis.CHILD, Axis.DESCENDANT)
        by_parent = siblings and any(map(positional, tests))
        decide = self._by_parent if by_parent else self._by_node
        for part, evaluator, rows in nodes.records(index, self._evaluators):
            passed[part] = decide(evaluator, rows)
        return pairs.take(passed[nodes.of])

    def _by_node(self, evaluator: Evaluator, rows: Sequence[int]) -> list[bool]:
        """A node alone: where positions are asked for, it is the only one, and the first."""
        tests = self._value_tests
        return [all(evaluator.holds(test, row, 1) for test in tests) for row in rows]

    def _by_parent(self, evaluator: Evaluator, rows: Sequence[int]) -> list[bool]:
        """A node among its siblings."""
        step = Path((replace(self._first, axis=Axis.CHILD),))
        parents = {evaluator.parent[row] for row in rows}
        passed = {row for parent in parents for row in evaluator.select(step, [parent])}
        return [row in passed for row in rows]

    def _by_anchor(self, index: Index, pairs: Matches, anchors: Inputs) -> Bools:
        """An ancestor among those of the anchor; of one of them, if its id has several nodes."""
        wanted = anchors.take(np.isin(anchors.id, pairs.id))
        nodes = _Nodes(Matches(wanted.id, wanted.segment, wanted.start, wanted.end, wanted.level))
        above: list[set[int]] = []
        for _, evaluator, rows in nodes.records(index, self._evaluators):
            start = evaluator.start
            above += [{start[at] for at in self._above(evaluator, row)} for row in rows]
        passed: dict[int, set[int]] = {}
        for number, node in zip(wanted.id.tolist(), nodes.of.tolist(), strict=True):
            passed.setdefault(number, set()).update(above[node])
        there = zip(pairs.id.tolist(), pairs.start.tolist(), strict=True)
        return np.array([start in passed.get(number, ()) for number, start in there], np.bool_)

    def _above(self, evaluator: Evaluator, row: int) -> list[int]:
        """The ancestors of a row that pass: positions count from the nearest."""
        rows: list[int] = []
        while (row := evaluator.parent[row]) >= 0:
            if evaluator.fits(self._first, row):
                rows.append(row)
        for test in self._first.predicates:
            rows = [at for place, at in enumerate(rows, 1) if evaluator.holds(test, at, place)]
        return rows

    # --- steps whose values are asked for ---------------------------------------------------

    def _walked(self, index: Index, pairs: Matches) -> Matches:
        """The rest of the path, on the tables of the records."""
        nodes = _Nodes(pairs)
        counts: list[int] = []
        start: list[int] = []
        end: list[int] = []
        level: list[int] = []
        for _, evaluator, rows in nodes.records(index, self._evaluators):
            found = [evaluator.select(self._walk, [row]) for row in rows]
            counts += map(len, found)
            every = [row for each in found for row in each]
            start += [evaluator.start[row] for row in every]
            end += [evaluator.end[row] for row in every]
            level += [evaluator.level[row] for row in every]
        left = np.repeat(np.arange(len(nodes)), counts)
        labels = np.array(start, np.int64), np.array(end, np.int64), np.array(level, np.int16)
        return nodes.spread(pairs, [Pairs(left, Labels(*labels))])


# -- structure alone --


def _is_join(step: Step) -> bool:
    return step.kind is not Kind.TEXT and all(map(_is_structural, step.predicates))


def _is_structural(test: Expr) -> bool:
    """Whether a condition asks for no more than what is there."""
    match test:
        case And(terms) | Or(terms):
            return all(map(_is_structural, terms))
        case Not(term):
            return _is_structural(term)
        case Exists(path):
            return all(map(_is_join, path.steps))
        case _:
            return False


def _parted(tests: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Predicates that structure decides, and the others; positions see what is left by those
    before them, so that nothing moves past one."""
    if any(map(positional, tests)):
        return (), tests
    decided = tuple(filter(_is_structural, tests))
    return decided, tuple(test for test in tests if not _is_structural(test))


def _having(index: Index, tests: tuple[Expr, ...], pairs: Matches) -> Matches:
    """The pairs whose nodes fulfil conditions that structure decides."""
    for test in tests:
        nodes = _Nodes(pairs)
        pairs = pairs.take(_holds(index, test, nodes)[nodes.of])
    return pairs


def _holds(index: Index, test: Expr, nodes: _Nodes) -> Bools:
    """For which nodes such a condition holds."""
    match test:
        case And(terms) | Or(terms):
            both = operator.and_ if isinstance(test, And) else operator.or_
            return reduce(both, (_holds(index, term, nodes) for term in terms))
        case Not(term):
            return ~_holds(index, term, nodes)
        case Exists(path):
            pairs = nodes.pairs()
            for step in path.steps:
                pairs = _joined(index, step, pairs)
            found = np.zeros(len(nodes), np.bool_)
            found[pairs.id] = True
            return found
    raise AssertionError(test)


def _tags(index: Index, step: Step) -> tuple[Tag, ...]:
    """The tags of the index with the kind and the name of a step that is resolved."""
    kind, name = int(step.kind), step.name
    if not name.endswith("*"):
        tag = Tag(kind, name)
        return (tag,) if any(segment.count(tag) for segment in index.segments) else ()
    return tuple(tag for tag in index.tags if tag.kind == kind and tag.name.startswith(name[:-1]))


def _joined(index: Index, step: Step, pairs: Matches) -> Matches:
    """One step further, by the index's lists."""
    nodes = _Nodes(pairs)
    levels = nodes.level if step.axis is Axis.CHILD else None
    tags = _tags(index, step) if len(nodes) else ()
    found = [index.descendants(tag, nodes.start, nodes.end, levels) for tag in tags]
    return _having(index, step.predicates, _once(nodes.spread(pairs, found)))


class _Nodes:
    """The nodes of some pairs, each once and in document order: labels are unique in an index.

    `of` is the node of each pair.
    """

    __slots__ = ("end", "level", "of", "segment", "start")

    def __init__(self, pairs: Matches) -> None:
        self.start, first, self.of = np.unique(pairs.start, return_index=True, return_inverse=True)
        self.segment = pairs.segment[first]
        self.end, self.level = pairs.end[first], pairs.level[first]

    def __len__(self) -> int:
        return len(self.start)

    def pairs(self) -> Matches:
        """The nodes as anchors of themselves, by their number."""
        return Matches(np.arange(len(self)), self.segment, self.start, self.end, self.level)

    def records(
        self, index: Index, evaluators: Evaluators
    ) -> Iterator[tuple[slice, Evaluator, list[int]]]:
        """Record by record: which of the nodes are in it, and their rows in its table."""
        starts, places = self.start.tolist(), self.segment.tolist()
        segments = index.segments
        at = 0
        while at < len(starts):
            evaluator = evaluators.at(segments[places[at]], starts[at])
            end = bisect_left(starts, evaluator.end[0], at)
            rows = [bisect_left(evaluator.start, start) for start in starts[at:end]]
            yield slice(at, end), evaluator, rows
            at = end

    def spread(self, pairs: Matches, found: Sequence[Pairs]) -> Matches:
        """What was found from the nodes, as pairs of all anchors that had come to them."""
        all_found = Pairs.joined([each for each in found if len(each)])
        rows, at = expand(all_found.left, self.of, len(self))
        right = all_found.right.take(at)
        return Matches(pairs.id[rows], pairs.segment[rows], right.start, right.end, right.level)


def _once(pairs: Matches) -> Matches:
    """The pairs by id and then in document order, each once."""
    return pairs.take(first_of_each(pairs.id, pairs.start))
