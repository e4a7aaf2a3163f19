"""Inputs know the labels of local nodes; matches and inputs are joined and cut."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fmware.cmatch import (
    Axis,
    GenerationGone,
    Inputs,
    MatchError,
    Matches,
    MissingLabels,
    OperatorClosed,
    ProbeFailed,
    SpillFailed,
)
from tests.cmatch.oracle import SCHEMES, TAGS

if TYPE_CHECKING:
    from tests.cmatch.oracle import World

A = TAGS[0]


def test_labels_are_those_of_the_index(world: World) -> None:
    nodes = world.known[A]
    for scheme in (None, *SCHEMES):
        made = Inputs.of(world.index, A, scheme, range(len(nodes)), [n.start for n in nodes])
        assert made.id.tolist() == [*range(len(nodes))]
        for at, node in enumerate(nodes):
            label = made.start[at], made.end[at], made.level[at]
            assert label == (node.start, node.end, node.level)
            segment = world.index.segments[made.segment[at]]
            assert segment.low <= node.start < segment.high
            if scheme is None:
                assert made.rank is None
                assert made.last is None
                continue
            rank, last = segment.labels(A, segment.locate(A, [node.start]), scheme)
            assert made.rank is not None
            assert made.last is not None
            assert (made.rank[at], made.last[at]) == (rank[0], last[0])


def test_starts_without_a_node_are_left_out(worlds: list[list[World]]) -> None:
    for world in (worlds[0][0], worlds[2][2]):
        starts = [node.start for node in world.known[A]]
        asked = sorted([*starts, 10**9, -5, *(node.start for node in world.known[TAGS[1]])])
        made = Inputs.of(world.index, A, "path", asked, asked)
        assert made.id.tolist() == made.start.tolist() == sorted(starts)
        assert len(Inputs.of(world.index, A, "path", [1], [10**9])) == 0


def test_rows_that_are_known_are_not_looked_up(world: World) -> None:
    index = world.index
    for place, segment in enumerate(index.segments):
        found = segment.identify(A, [b"1", b"2", b"3"])
        assert found.rows is not None
        for labels in (None, found.right):
            made = Inputs.at(index, A, "prix", place, found.left, found.rows, labels)
            other = Inputs.of(index, A, "prix", found.left, found.right.start)
            for mine, theirs in (
                (made.id, other.id),
                (made.segment, other.segment),
                (made.start, other.start),
                (made.end, other.end),
                (made.level, other.level),
                (made.rank, other.rank),
            ):
                assert mine is not None
                assert theirs is not None
                assert mine.tolist() == theirs.tolist()
                assert mine.dtype == theirs.dtype


def test_batches_are_cut_and_joined(world: World) -> None:
    starts = [node.start for node in world.known[A]]
    whole = Inputs.of(world.index, A, "path", range(len(starts)), starts)
    parts = [whole.take(slice(at, at + 3)) for at in range(0, len(whole), 3)]
    again = Inputs.joined(parts)
    assert again.start.tolist() == whole.start.tolist()
    assert again.rank is not None
    assert Inputs.joined(parts[:1]) is parts[0]
    bare = Inputs.of(world.index, A, None, range(len(starts)), starts)
    assert Inputs.joined([whole, bare]).rank is None
    assert len(Inputs.joined([])) == 0
    assert Inputs.empty(labelled=False).rank is None


def test_matches_are_cut_and_joined() -> None:
    one = Matches(
        np.array([1, 2]),
        np.array([0, 1], np.int32),
        np.array([5, 7]),
        np.array([6, 8]),
        np.array([1, 2], np.int16),
    )
    assert len(Matches.joined([])) == 0
    assert Matches.joined([Matches.empty(), one]) is one
    both = Matches.joined([one, one.take(np.array([1]))])
    assert both.id.tolist() == [1, 2, 2]
    assert both.segment.tolist() == [0, 1, 1]
    assert both.level.dtype == np.int16


def test_axes_know_their_side() -> None:
    assert {axis: axis.side for axis in Axis} == {
        Axis.CHILD: "descendant",
        Axis.DESCENDANT: "descendant",
        Axis.SELF: "self",
        Axis.PARENT: "ancestor",
        Axis.ANCESTOR: "ancestor",
    }
    assert [axis for axis in Axis if axis.downwards] == [Axis.CHILD, Axis.DESCENDANT]
    assert [axis for axis in Axis if axis.one_level] == [Axis.CHILD, Axis.PARENT]


@pytest.mark.parametrize(
    "error",
    [
        MissingLabels("path"),
        OperatorClosed("one"),
        SpillFailed("/tmp", "full", 28),
        ProbeFailed("one", "two"),
        GenerationGone("one", "two"),
    ],
)
def test_errors_say_what_to_do_and_can_be_pickled(error: MatchError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
