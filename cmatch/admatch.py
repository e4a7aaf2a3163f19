"""AD-only match: every batch is a probe of the index by AD label.

There is no state but the index, and no cleaning: what a probe gives are pairs that hold. It costs
one descent into a list of the size of the tag for each input, however many of them are alike.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from cmatch._kernel import matched
from cmatch.axes import Axis
from cmatch.counters import Counters
from cmatch.errors import OperatorClosed
from cmatch.inputs import Matches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from cmatch.inputs import Inputs
    from index import Index, Segment
    from labeling.runs import Tag

__all__ = ["FOREVER", "ADMatch"]

FOREVER = 1 << 60
"""Inputs, or batches of them, that never come."""


class ADMatch:
    """Matches anchors with the nodes of `tag` on an axis, by AD labels alone."""

    feeder: object | None = None
    needs: str | None = None

    def __init__(self, index: Index, tag: Tag | str, axis: Axis | str) -> None:
        self.index = index
        self.tag = tag
        self.axis = Axis(axis)
        self._counters = Counters()
        self._probe = _PROBES[self.axis]
        self._left = FOREVER
        self._closed = False

    @property
    def counters(self) -> Counters:
        return self._counters

    def feed(self, inputs: Inputs) -> Matches:
        """The pairs of a batch: all of them, at once."""
        number = len(inputs.id)
        self._left -= number
        if self._left < 0:
            return self._over(inputs)
        counters = self._counters
        began = time.perf_counter()
        segments = self.index.segments
        if len(segments) == 1:
            matches = self._probe(segments[0], 0, self.tag, inputs)
        else:
            matches = Matches.joined([*self._parts(segments, inputs)])
        counters.probe_seconds += time.perf_counter() - began
        counters.inputs += number
        counters.index_scans += number
        counters.ad_probes += number
        counters.pairs += len(matches.id)
        return matches

    def resume(self, inputs: Inputs) -> Matches:
        """The rest of a batch that came by `feeder`: there is none."""
        return self.feed(inputs)

    def _over(self, inputs: Inputs) -> Matches:  # noqa: ARG002
        """A batch beyond the inputs that are left: there are none once it is closed."""
        raise OperatorClosed(repr(self))

    def _parts(self, segments: tuple[Segment, ...], inputs: Inputs) -> Iterator[Matches]:
        """The pairs of each segment of which there are inputs."""
        for place in np.unique(inputs.segment).tolist():
            own = inputs.segment == place
            part = inputs if own.all() else inputs.take(own)
            yield self._probe(segments[place], place, self.tag, part)

    def poll(self) -> Matches:
        if self._closed:
            raise OperatorClosed(repr(self))
        return Matches.empty()

    def drain(self) -> Matches:
        return self.poll()

    def move(self, index: Index) -> Matches:
        matches = self.poll()
        self.index = index
        return matches

    def close(self) -> None:
        self._closed = True
        self._left = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ADMatch {self.axis.value}::{self.tag}>"


# A probe a segment, which is at a place in the index.


def _descendants(segment: Segment, place: int, tag: Tag | str, inputs: Inputs) -> Matches:
    pairs = segment.descendants(tag, inputs.start, inputs.end)
    right = pairs.right
    return matched(inputs.id, pairs.left, place, right.start, right.end, right.level)


def _children(segment: Segment, place: int, tag: Tag | str, inputs: Inputs) -> Matches:
    pairs = segment.descendants(tag, inputs.start, inputs.end, inputs.level)
    right = pairs.right
    return matched(inputs.id, pairs.left, place, right.start, right.end, right.level)


def _ancestors(segment: Segment, place: int, tag: Tag | str, inputs: Inputs) -> Matches:
    pairs = segment.ancestors(tag, inputs.start, inputs.end)
    right = pairs.right
    return matched(inputs.id, pairs.left, place, right.start, right.end, right.level)


def _parents(segment: Segment, place: int, tag: Tag | str, inputs: Inputs) -> Matches:
    pairs = segment.ancestors(tag, inputs.start, inputs.end, inputs.level)
    right = pairs.right
    return matched(inputs.id, pairs.left, place, right.start, right.end, right.level)


def _selves(segment: Segment, place: int, tag: Tag | str, inputs: Inputs) -> Matches:
    # A start belongs to one node alone, so the labels are those of the inputs.
    own = np.flatnonzero(segment.locate(tag, inputs.start) >= 0)
    start, end, level = inputs.start.take(own), inputs.end.take(own), inputs.level.take(own)
    return matched(inputs.id, own, place, start, end, level)


_PROBES = {
    Axis.CHILD: _children,
    Axis.DESCENDANT: _descendants,
    Axis.SELF: _selves,
    Axis.PARENT: _parents,
    Axis.ANCESTOR: _ancestors,
}
