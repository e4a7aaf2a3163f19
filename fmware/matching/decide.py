"""Steps and predicates of match parts, for many local nodes at once.

The lists of the index decide what is there, and what values attributes and elements without
elements have. Only where a node that is compared has its value elsewhere (elements stand in it, or
it is long) the record of the node with the predicate is asked, by the evaluator. Positions are
never decided here.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from fmware.cmatch import Matches
from fmware.index.labels import Labels, Pairs
from fmware.labeling.runs import Tag
from fmware.labeling.values import ELSEWHERE
from fmware.matching._local import compared, containing, distinct, expand, first_of_each
from fmware.matching.joins import tags_like
from fmware.xpath import And, Axis, Compare, Contains, Exists, Kind, Not, Or, Path, StartsWith

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from fmware.index import Index
    from fmware.labeling.values import Values
    from fmware.matching.evaluate import Evaluator, Evaluators
    from fmware.xpath import Expr, Step

    Bools = npt.NDArray[np.bool_]

__all__ = ["Decider", "LocalNodes", "decidable", "is_join", "is_plain_text", "once", "tags_of"]


def is_join(step: Step) -> bool:
    """Whether a step is one that `Decider.joined` can take."""
    return step.kind is not Kind.TEXT and all(map(decidable, step.predicates))


def is_plain_text(step: Step) -> bool:
    """Whether a step is one that `Decider.texts` can take."""
    return step.kind is Kind.TEXT and not step.predicates


def decidable(test: Expr) -> bool:
    """Whether a predicate asks only for what is there and for values, not for positions."""
    match test:
        case And(terms) | Or(terms):
            return all(map(decidable, terms))
        case Not(term):
            return decidable(term)
        case Exists(path) | Compare(path) | Contains(path) | StartsWith(path):
            steps = path.steps
            return all(map(is_join, steps[:-1])) and all(
                is_join(step) or is_plain_text(step) for step in steps[-1:]
            )
        case _:
            return False


def tags_of(index: Index, step: Step) -> tuple[Tag, ...]:
    """The tags of the index with the kind and the name of a step that is resolved."""
    return tags_like(index, Tag(int(step.kind), step.name))


def once(pairs: Matches) -> Matches:
    """The pairs by id and then in document order, each once."""
    rows = first_of_each(pairs.id, pairs.start)
    return pairs if rows is None else pairs.take(rows)


class LocalNodes:
    """The nodes of some pairs, each once and in document order: labels are unique in an index.

    `of` is the node of each pair.
    """

    __slots__ = ("_first", "_pairs", "of", "start")

    def __init__(self, pairs: Matches) -> None:
        self._pairs = pairs
        self._first, self.of = distinct(pairs.start)
        self.start = pairs.start[self._first]

    def __len__(self) -> int:
        return len(self.start)

    def pairs(self) -> Matches:
        """The nodes as anchors of themselves, by their number."""
        every, first = self._pairs, self._first
        return Matches(
            np.arange(len(self)),
            every.segment[first],
            self.start,
            every.end[first],
            every.level[first],
        )

    def records(
        self, index: Index, evaluators: Evaluators
    ) -> Iterator[tuple[slice, Evaluator, list[int]]]:
        """Record by record: which of the nodes are in it, and their rows in its table."""
        starts, places = self.start.tolist(), self._pairs.segment[self._first].tolist()
        segments = index.segments
        at = 0
        while at < len(starts):
            evaluator = evaluators.at(segments[places[at]], starts[at])
            end = bisect_left(starts, evaluator.end[0], at)
            rows = [bisect_left(evaluator.start, start) for start in starts[at:end]]
            yield slice(at, end), evaluator, rows
            at = end

    def spread(self, found: Sequence[Pairs]) -> Matches:
        """What was found from the nodes, as pairs of all anchors that had come to them."""
        pairs = self._pairs
        all_found = Pairs.joined([each for each in found if len(each)])
        rows, at = expand(all_found.left, self.of, len(self))
        right = all_found.right.take(at)
        return Matches(pairs.id[rows], pairs.segment[rows], right.start, right.end, right.level)


class _Ends:
    """Where a path leads from some nodes, and the values there.

    `pairs` have the numbers of the nodes as ids, and are by id and in document order. Of each pair,
    `there` says that the node is surely there, with the value that it has here; `doubtful`, that
    only the record knows.
    """

    __slots__ = ("doubtful", "pairs", "there", "values")

    def __init__(self, pairs: Matches, values: Values, *, text: bool) -> None:
        self.pairs = pairs
        self.values = values
        if text:
            # Just one text node, or none: then the value of its element tells all of it.
            self.doubtful = values.mark != 0
            self.there = ~self.doubtful & (values.offsets[1:] > values.offsets[:-1])
        else:
            self.doubtful = values.mark & ELSEWHERE != 0
            self.there = ~self.doubtful


class Decider:
    """Takes pairs of anchors and local nodes further, on one generation of an index."""

    def __init__(self, index: Index, evaluators: Evaluators) -> None:
        self._index = index
        self._evaluators = evaluators

    def joined(self, step: Step, pairs: Matches) -> Matches:
        """One step further."""
        nodes = LocalNodes(pairs)
        above = nodes.pairs()
        levels = above.level if step.axis is Axis.CHILD else None
        tags = tags_of(self._index, step) if len(nodes) else ()
        found = [self._index.descendants(tag, above.start, above.end, levels) for tag in tags]
        return self.having(step.predicates, tags, once(nodes.spread(found)))

    def texts(self, step: Step, tags: Sequence[Tag], pairs: Matches) -> Matches:
        """On to text nodes, from nodes that have some of the tags.

        A text node has the label it has in its record's table: of an element that holds nothing
        else but attributes, it takes the last two ticks inside.
        """
        ends = _Ends(pairs, self._index.values(tags, pairs.start), text=True)
        own = pairs.take(ends.there)
        end, level = own.end, own.level + np.int16(1)
        found = Matches(own.id, own.segment, end - 2, end - 1, level)
        if ends.doubtful.any():
            read = self.walked(Path((step,)), pairs.take(ends.doubtful))
            found = Matches.joined([found, read])
        return once(found)

    def walked(self, path: Path, pairs: Matches) -> Matches:
        """On by any path, on the tables of the records."""
        nodes = LocalNodes(pairs)
        counts: list[int] = []
        start: list[int] = []
        end: list[int] = []
        level: list[int] = []
        for _, evaluator, rows in nodes.records(self._index, self._evaluators):
            found = [evaluator.select(path, [row]) for row in rows]
            counts += map(len, found)
            every = [row for each in found for row in each]
            start += [evaluator.start[row] for row in every]
            end += [evaluator.end[row] for row in every]
            level += [evaluator.level[row] for row in every]
        left = np.repeat(np.arange(len(nodes)), counts)
        labels = np.array(start, np.int64), np.array(end, np.int64), np.array(level, np.int16)
        return nodes.spread([Pairs(left, Labels(*labels))])

    def having(self, tests: Sequence[Expr], tags: Sequence[Tag], pairs: Matches) -> Matches:
        """The pairs whose nodes, which have some of the tags, fulfil all of the predicates."""
        for test in tests:
            if not len(pairs):
                break
            nodes = LocalNodes(pairs)
            pairs = pairs.take(self._holds(test, tags, nodes)[nodes.of])
        return pairs

    def _holds(self, test: Expr, tags: Sequence[Tag], nodes: LocalNodes) -> Bools:
        """For which nodes a predicate holds."""
        match test:
            case And(terms) | Or(terms):
                both = operator.and_ if isinstance(test, And) else operator.or_
                return reduce(both, (self._holds(term, tags, nodes) for term in terms))
            case Not(term):
                return ~self._holds(term, tags, nodes)
            case Exists(path) if all(map(is_join, path.steps)):
                found = np.zeros(len(nodes), np.bool_)
                found[self._followed(path.steps, nodes).id] = True
                return found
            case Exists(path):
                ends = self._ends(path, tags, nodes)
                return self._decided(test, nodes, ends, ends.there)
            case Compare(path, op, value):
                ends = self._ends(path, tags, nodes)
                wanted = _encoded(value) if isinstance(value, str) else value
                holds = compared(ends.values.offsets, ends.values.data, op, wanted)
                return self._decided(test, nodes, ends, holds & ends.there)
            case Contains(path, text) | StartsWith(path, text):
                begin = isinstance(test, StartsWith)
                return self._first(test, nodes, self._ends(path, tags, nodes), text, begin=begin)
        raise AssertionError(test)

    def _followed(self, steps: Sequence[Step], nodes: LocalNodes) -> Matches:
        """Where steps lead from nodes, whose numbers are the ids."""
        pairs = nodes.pairs()
        for step in steps:
            pairs = self.joined(step, pairs)
        return pairs

    def _ends(self, path: Path, tags: Sequence[Tag], nodes: LocalNodes) -> _Ends:
        """Where a path leads from nodes that have some of the tags."""
        steps = path.steps
        text = bool(steps) and steps[-1].kind is Kind.TEXT
        if text:
            steps = steps[:-1]
        pairs = self._followed(steps, nodes)
        tags = tags_of(self._index, steps[-1]) if steps else tags
        return _Ends(pairs, self._index.values(tags, pairs.start), text=text)

    def _decided(self, test: Expr, nodes: LocalNodes, ends: _Ends, holds: Bools) -> Bools:
        """For which nodes any of the ends holds; records tell where the index does not."""
        found = np.zeros(len(nodes), np.bool_)
        found[ends.pairs.id[holds]] = True
        if not ends.doubtful.any():
            return found
        doubtful = np.zeros(len(nodes), np.bool_)
        doubtful[ends.pairs.id[ends.doubtful]] = True
        return self._asked(test, nodes, found, doubtful & ~found)

    def _first(
        self, test: Expr, nodes: LocalNodes, ends: _Ends, text: str, *, begin: bool
    ) -> Bools:
        """For which nodes the first of the ends has a text in it; without ends it is empty."""
        found = np.full(len(nodes), not text)
        doubtful = np.zeros(len(nodes), np.bool_)
        some = np.flatnonzero(ends.there | ends.doubtful)
        owners, first = np.unique(ends.pairs.id[some], return_index=True)
        chosen = some[first]
        holds = containing(ends.values.offsets, ends.values.data, _encoded(text), begin)
        found[owners] = holds[chosen]
        doubtful[owners] = ends.doubtful[chosen]
        return self._asked(test, nodes, found, doubtful)

    def _asked(self, test: Expr, nodes: LocalNodes, found: Bools, doubtful: Bools) -> Bools:
        """Let records decide where there is doubt."""
        if doubtful.any():
            some = np.flatnonzero(doubtful)
            asked = LocalNodes(nodes.pairs().take(some))
            for part, evaluator, rows in asked.records(self._index, self._evaluators):
                found[some[part]] = [evaluator.holds(test, row, 1) for row in rows]
        return found


def _encoded(text: str) -> bytes:
    # No value has what a surrogate becomes.
    return text.encode(errors="surrogatepass")
