"""The local side: what is left of a match part when an operator has joined its first step.

An operator gives pairs of an anchor and a node that the first step's axis and name lead to. What
else the match part says is decided pair by pair, so that pairs may come in any order and in any
batches:

- **Steps, and predicates on what is there and on values**, are decided by the index's lists, for
  all pairs at once: `[@open]`, `[not(.//stock)]`, `[year > 2015]`, a last step `text()`. See
  `fmware.matching.decide`.
- **Where positions are asked for**, it is the evaluator, on the table of the record that the node
  is in; from such a step on, all of the rest. Positions of `x[2]` and of `//x[2]` count among
  siblings, so the node itself knows them. Only those of `ancestor::x[2]` count from the anchor,
  whose local node must then be given.

Text has no lists in the index: a match part that begins with `text()` is taken to be
`self::*/text()`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fmware.cmatch import ADMatch, Matches
from fmware.cmatch import Axis as Theta
from fmware.matching.decide import (
    Decider,
    LocalNodes,
    decidable,
    is_join,
    is_plain_text,
    once,
    tags_of,
)
from fmware.matching.evaluate import Evaluators, resolved
from fmware.xpath import Axis, Kind, Path, Step
from fmware.xpath.tree import positional

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fmware.cmatch import Inputs
    from fmware.index import Index
    from fmware.labeling.runs import Tag
    from fmware.matching.evaluate import Evaluator
    from fmware.xpath import Crossing, Expr

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
        rest = self._rest
        cut = next((at for at, step in enumerate(rest) if not is_join(step)), len(rest))
        self._joins = rest[:cut]
        plain = cut == len(rest) - 1 and is_plain_text(rest[cut])
        self._text = rest[cut] if plain else None
        self._walk = Path(() if plain else rest[cut:])
        self._tests, self._value_tests = _parted(self._first.predicates)
        self._evaluators = evaluators or Evaluators()
        self.sought: Sought = self._first.axis.name, int(self._first.kind), self._first.name
        """What the first step seeks, its predicates apart: an axis, a kind and a name."""
        self.selected: tuple[int, str] = int(steps[-1].kind), _named(steps)
        """The kind and the name, which is resolved, of the nodes that are selected; of texts, the
        name of the elements that they are in."""
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
        return tags_of(index, self._first)

    def probe(self, index: Index, inputs: Inputs) -> Matches:
        """The first step for a batch of anchors, by AD label alone."""
        if self.itself:
            return Matches(inputs.id, inputs.segment, inputs.start, inputs.end, inputs.level)
        return ADMatch(index, self.tags(index), self.axis).feed(inputs)

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
        decider = Decider(index, self._evaluators)
        pairs = matches
        if self._tests:
            pairs = decider.having(self._tests, self.tags(index), pairs)
        pairs = self._passing(index, pairs, anchors)
        for step in self._joins:
            pairs = decider.joined(step, pairs)
        if self._text is not None:
            tags = tags_of(index, (self._first, *self._joins)[-1])
            return decider.texts(self._text, tags, pairs)
        if self._walk.steps:
            pairs = decider.walked(self._walk, pairs)
        return once(pairs)

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
        nodes = LocalNodes(pairs)
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
        nodes = LocalNodes(
            Matches(wanted.id, wanted.segment, wanted.start, wanted.end, wanted.level)
        )
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


def _named(steps: Sequence[Step]) -> str:
    """The name of the nodes that steps lead to; of texts, that of their elements."""
    last = steps[-1]
    if last.kind is not Kind.TEXT:
        return last.name
    return steps[-2].name if last.axis is Axis.CHILD else "*"


def _parted(tests: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Predicates that the index decides, and the others; positions see what is left by those
    before them, so that nothing moves past one."""
    if any(map(positional, tests)):
        return (), tests
    decided = tuple(filter(decidable, tests))
    return decided, tuple(test for test in tests if not decidable(test))
