"""Every probe against brute force, on random corpora."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.index.errors import UnknownScheme
from fmware.index.reader import Index
from fmware.index.writer import Writer
from fmware.labeling.runs import Tag
from tests.index import oracle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.index.segment import Segment
    from tests.index.oracle import Corpus, Known, Label

A, B, C, D = (Tag(0, name) for name in "abcd")
KEY, FLAG = Tag(1, "key"), Tag(1, "flag")
TAGS = (A, B, C, D, KEY, FLAG, Tag(0, "unknown"))
AXES = ("descendant", "ancestor", "self")

NESTED = ["<a key='k1'><a><b><a flag='1'/></b></a><c>k1</c><b key='k2'/></a>", "<b><a/><a/></b>"]


@contextmanager
def index_of(
    lists: Sequence[Sequence[str]], rows: int, removed: Sequence[int] = ()
) -> Iterator[tuple[Index, list[Corpus], list[list[Known]]]]:
    """An index, its corpora, and the nodes of each that are left.

    `removed` are places of records, counted through all corpora.
    """
    corpora = oracle.corpora_of(lists)
    folder = Path(tempfile.mkdtemp())
    try:
        with oracle.small_blocks(rows):
            oracle.build(folder / "index", corpora)
        gone = _remove(folder / "index", corpora, removed)
        left = [[node for node in each.nodes if node.record not in gone] for each in corpora]
        with Index.open(folder / "index") as index:
            yield index, corpora, left
    finally:
        shutil.rmtree(folder)


def _remove(path: Path, corpora: Sequence[Corpus], places: Sequence[int]) -> set[int]:
    ranges = [span for corpus in corpora for span in corpus.ranges(range(len(corpus.records)))]
    chosen = sorted({ranges[place % len(ranges)] for place in places})
    if chosen:
        with Writer.open(path) as writer:
            writer.remove(chosen)
    return {start for start, _ in chosen}


def held(
    index: Index, corpora: Sequence[Corpus], left: Sequence[list[Known]]
) -> list[tuple[Segment, Corpus, list[Known]]]:
    """Segments with their corpora; one whose records are all removed is no longer there."""
    kept = [(corpus, nodes) for corpus, nodes in zip(corpora, left, strict=True) if nodes]
    return [(segment, *each) for segment, each in zip(index.segments, kept, strict=True)]


def anchors_of(nodes: Sequence[Known], order: str) -> list[Label]:
    labels = [node.label for node in nodes]
    if order == "reversed":
        labels.reverse()
    elif order == "mixed":
        random.Random(7).shuffle(labels)
        labels += labels[:3]
    return labels


def columns(labels: Sequence[Label]) -> tuple[Any, Any, Any]:
    array = np.array(labels, np.int64).reshape(-1, 3)
    return array[:, 0], array[:, 1], array[:, 2].astype(np.int16)


CORPORA = st.lists(oracle.RECORDS, min_size=1, max_size=3)
REMOVED = st.lists(st.integers(0, 20), max_size=4)
some = settings(max_examples=20, deadline=None)


@some
@given(CORPORA, st.sampled_from([1, 2, 3, 4096]), REMOVED, st.sampled_from(["sorted", "mixed"]))
def test_descendants_and_children(
    lists: list[list[str]], rows: int, removed: list[int], order: str
) -> None:
    with index_of(lists, rows, removed) as (index, corpora, left):
        everything = [node for nodes in left for node in nodes]
        anchors = anchors_of([node for each in corpora for node in each.nodes], order)
        starts, ends, levels = columns(anchors)
        for tag in TAGS:
            found = oracle.pairs_of(index.descendants(tag, starts, ends))
            assert found == oracle.descendants(everything, tag, anchors)
            found = oracle.pairs_of(index.descendants(tag, starts, ends, levels))
            assert found == oracle.descendants(everything, tag, anchors, children=True)


@pytest.mark.parametrize("rows", [1, 5, 64, 4096])
@pytest.mark.parametrize("order", ["sorted", "mixed", "reversed"])
def test_many_anchors_at_once(rows: int, order: str) -> None:
    """Searches of many anchors go on from each other, or take turns: that changes no answer."""
    randomly = random.Random(rows)
    inside = ["", "<b/>", "<b><c/><b/></b>", "<a><c/><b/></a>", "<c/>" * 40]
    records = [f"<a>{''.join(randomly.choices(inside, k=3))}</a>" for _ in range(120)]
    with index_of([records], rows) as (index, corpora, left):
        anchors = anchors_of([node for node in corpora[0].nodes if node.tag == A], order)
        # One that ends before the first node, and one that begins behind the last.
        anchors += [(-5, -1, 0), (corpora[0].high + 1, corpora[0].high + 9, 0)]
        starts, ends, levels = columns(anchors)
        for tag in (A, B, C):
            found = oracle.pairs_of(index.descendants(tag, starts, ends))
            assert found == oracle.descendants(left[0], tag, anchors)
            found = oracle.pairs_of(index.descendants(tag, starts, ends, levels))
            assert found == oracle.descendants(left[0], tag, anchors, children=True)


@some
@given(CORPORA, st.sampled_from([1, 2, 3, 4096]), REMOVED, st.sampled_from(["sorted", "mixed"]))
def test_ancestors_and_parents(
    lists: list[list[str]], rows: int, removed: list[int], order: str
) -> None:
    with index_of(lists, rows, removed) as (index, corpora, left):
        everything = [node for nodes in left for node in nodes]
        anchors = anchors_of([node for each in corpora for node in each.nodes], order)
        starts, ends, levels = columns(anchors)
        for tag in TAGS:
            found = oracle.pairs_of(index.ancestors(tag, starts, ends))
            assert found == oracle.ancestors(everything, tag, anchors)
            found = oracle.pairs_of(index.ancestors(tag, starts, ends, levels))
            assert found == oracle.ancestors(everything, tag, anchors, parents=True)


@some
@given(CORPORA, st.sampled_from([1, 3, 4096]), REMOVED, st.sampled_from(oracle.SCHEMES))
def test_scans_by_ses_label(
    lists: list[list[str]], rows: int, removed: list[int], scheme: Any
) -> None:
    with index_of(lists, rows, removed) as (index, corpora, left):
        for segment, corpus, nodes in held(index, corpora, left):
            labels = sorted(set(corpus.ranks[scheme.name].values()))
            for tag in TAGS:
                for axis in AXES:
                    check_scans(segment, corpus, nodes, scheme.name, tag, labels, axis)


def check_scans(
    segment: Segment,
    corpus: Corpus,
    nodes: Sequence[Known],
    scheme: str,
    tag: Tag,
    labels: Sequence[tuple[int, int]],
    axis: Any,
) -> None:
    ranks, lasts = (list(column) for column in zip(*labels, strict=True))
    wanted = [oracle.scan(corpus, nodes, scheme, tag, label, axis) for label in labels]
    whole = [oracle.scan(corpus, corpus.nodes, scheme, tag, label, axis) for label in labels]
    for (rank, last), expected in zip(labels, wanted, strict=True):
        found = oracle.labels_of(segment.scan(scheme, tag, rank, last, axis))
        assert len(found) == len(set(found))
        assert set(found) == expected
    pairs = oracle.pairs_of(segment.scans(scheme, tag, ranks, lasts, axis))
    assert [left for left, _ in pairs] == sorted(left for left, _ in pairs)
    assert set(pairs) == {(at, label) for at, each in enumerate(wanted) for label in each}
    assert len(pairs) == sum(map(len, wanted))
    assert segment.counts(scheme, tag, ranks, lasts, axis).tolist() == [len(w) for w in whole]


@some
@given(CORPORA, st.sampled_from([1, 3, 4096]), REMOVED)
def test_rows_and_their_labels(lists: list[list[str]], rows: int, removed: list[int]) -> None:
    with index_of(lists, rows, removed) as (index, corpora, left):
        for place, (segment, corpus, nodes) in enumerate(held(index, corpora, left)):
            starts = np.arange(corpus.base, corpus.high)
            for tag in TAGS:
                own = {node.start: node for node in nodes if node.tag == tag}
                found = segment.locate(tag, starts)
                assert {int(s) for s in starts[found >= 0]} == set(own)
                located = index.locate(tag, starts)
                assert located.row.tolist() == found.tolist()
                assert set(located.segment[found >= 0].tolist()) <= {place}
                for scheme in oracle.SCHEMES:
                    ranks, lasts = segment.labels(tag, found, scheme.name)
                    for start, row, rank, last in zip(starts, found, ranks, lasts, strict=True):
                        if row < 0:
                            assert (rank, last) == (-1, -1)
                        else:
                            assert (rank, last) == corpus.ses(own[int(start)], scheme.name)
                if own:
                    again = oracle.labels_of(segment.at(tag, found[found >= 0]))
                    assert again == [own[start].label for start in sorted(own)]


@some
@given(CORPORA, st.sampled_from([1, 2, 4096]), REMOVED)
def test_identity(lists: list[list[str]], rows: int, removed: list[int]) -> None:
    with index_of(lists, rows, removed) as (index, corpora, left):
        everything = [node for nodes in left for node in nodes]
        keys = sorted({key for node in everything for key in node.keys})
        asked = [b"none", *keys, b"", b"k1", b"k"]
        for tag in TAGS:
            expected = oracle.identify(everything, tag, asked)
            assert sorted(oracle.pairs_of(index.identify(tag, asked))) == expected
            for at, key in enumerate(asked):
                found = index.identify(tag, [key])
                assert sorted(oracle.labels_of(found.right)) == [
                    label for place, label in expected if place == at
                ]
            for segment, _, nodes in held(index, corpora, left):
                found = segment.identify(tag, asked)
                assert sorted(oracle.pairs_of(found)) == oracle.identify(nodes, tag, asked)
                assert found.rows is not None
                located = segment.locate(tag, found.right.start)
                assert located.tolist() == found.rows.tolist()


# --- what is easily forgotten ---------------------------------------------------------------


def test_a_clark_name_means_an_element() -> None:
    with index_of([NESTED], 3) as (index, corpora, _):
        starts, ends, levels = columns([node.label for node in corpora[0].nodes])
        by_name = oracle.pairs_of(index.descendants("a", starts, ends))
        assert by_name == oracle.pairs_of(index.descendants(A, starts, ends))
        assert by_name
        assert len(index.descendants("key", starts, ends, levels)) == 0


def test_nothing_asked_nothing_found() -> None:
    with index_of([NESTED, NESTED], 3) as (index, _, _):
        assert len(index.descendants(A, [], [])) == 0
        assert len(index.ancestors(A, [], [], [])) == 0
        assert len(index.identify(A, [])) == 0
        assert len(index.locate(A, []).row) == 0
        segment = index.segments[0]
        assert len(segment.scans("path", A, [], [], "descendant")) == 0
        assert len(segment.scan("path", A, 5, 4, "descendant")) == 0
        assert len(segment.scan("path", A, -1, -1, "self")) == 0
        assert len(segment.scan("path", A, 2**33, 2**34, "ancestor")) == 0
        assert segment.counts("path", Tag(0, "zz"), [0], [9], "descendant").tolist() == [0]


def test_labels_beyond_the_index_are_nobody_s() -> None:
    with index_of([NESTED, NESTED], 3) as (index, _, _):
        far = [-(2**40), -1, 2**33, 2**62]
        assert len(index.descendants(A, far, far)) == 0
        assert len(index.ancestors(A, far, far)) == 0
        assert index.locate(A, far).row.tolist() == [-1] * 4
        whole = index.descendants(A, [-(2**62)], [2**62])
        # Anchors are nodes of one segment: this one begins before all of them.
        assert len(whole) == 0
        assert len(index.segments[1].descendants(A, [-(2**62)], [2**62])) == 5


def test_columns_of_different_length_are_refused() -> None:
    with index_of([NESTED], 3) as (index, _, _):
        with pytest.raises(ValueError, match="one length"):
            index.descendants(A, [1, 2], [3])
        with pytest.raises(ValueError, match="one length"):
            index.segments[0].ancestors(A, [1], [3], [1, 2])
        with pytest.raises(ValueError, match="one length"):
            index.segments[0].scans("path", A, [1], [3, 4], "self")


def test_rows_that_are_not_there_are_refused() -> None:
    with index_of([NESTED], 3) as (index, _, _):
        segment = index.segments[0]
        for rows in ([99], [-2]):
            with pytest.raises(IndexError, match="no row"):
                segment.at(A, rows)
            with pytest.raises(IndexError, match="no row"):
                segment.labels(A, rows, "path")
        with pytest.raises(IndexError, match="no rows of"):
            segment.at("unknown", [0])
        with pytest.raises(IndexError, match="no rows of"):
            segment.labels("unknown", [0], "path")


def test_schemes_and_keys_are_checked() -> None:
    with index_of([NESTED], 3) as (index, _, _):
        segment = index.segments[0]
        with pytest.raises(UnknownScheme, match="path, vist, prix"):
            segment.scan("dewey", A, 0, 1, "self")
        with pytest.raises(UnknownScheme):
            segment.labels(A, [0], "dewey")
        with pytest.raises(TypeError, match="bytes"):
            segment.identify(A, ["k1"])  # type: ignore[list-item]


def test_what_lies_in_one_block_is_not_copied() -> None:
    records = ["<a key='k1'/>"] * 2000
    with index_of([records], 4096) as (index, corpora, _):
        segment = index.segments[0]
        rank, last = corpora[0].ses(corpora[0].nodes[0], "path")
        found = segment.scan("path", A, rank, last, "self")
        assert len(found) == 2000
        assert found.start.base is not None
        assert not found.start.flags.writeable
        assert found.start.tolist() == [node.start for node in corpora[0].nodes if node.tag == A]
        del segment
        index.close()
        # The array keeps what it looks into.
        assert int(found.start[-1]) == max(node.start for node in corpora[0].nodes if node.tag == A)
