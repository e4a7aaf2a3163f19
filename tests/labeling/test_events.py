"""Reading from events and walking a tree are two ways to the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from fmware.labeling import EventsUnavailable, NodeTable, Reader, ReadError, Vocabulary, _kernel
from tests.labeling.documents import xml_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = ("kind", "tag", "parent", "level", "start", "end")

pytestmark = pytest.mark.skipif(
    not _kernel.reads_events(), reason="this lxml does not export its libxml2"
)


@pytest.fixture
def trees() -> Iterator[None]:
    """Only trees, for the length of a test."""
    before = _kernel.use_events(wanted=False)
    yield
    _kernel.use_events(wanted=before)


def read_both_ways(
    document: bytes, *, values: bool = True, blanks: bool = True
) -> tuple[NodeTable, NodeTable]:
    vocabulary = Vocabulary()
    events = Reader(vocabulary, values=values, blanks=blanks).read(document)
    _kernel.use_events(wanted=False)
    try:
        return events, Reader(vocabulary, values=values, blanks=blanks).read(document)
    finally:
        _kernel.use_events(wanted=True)


def assert_same(left: NodeTable, right: NodeTable) -> None:
    for column in COLUMNS:
        assert np.array_equal(getattr(left, column), getattr(right, column)), column
    assert left.has_values == right.has_values
    if left.has_values:
        assert [left.value(row) for row in range(len(left))] == [
            right.value(row) for row in range(len(right))
        ]


@given(document=xml_documents())
@settings(max_examples=400, deadline=None)
def test_the_same_table(document: bytes) -> None:
    assert_same(*read_both_ways(document))


@given(document=xml_documents())
@settings(max_examples=200, deadline=None)
def test_the_same_table_without_blanks_and_values(document: bytes) -> None:
    assert_same(*read_both_ways(document, blanks=False))
    assert_same(*read_both_ways(document, blanks=False, values=False))
    assert_same(*read_both_ways(document, values=False))


@given(document=xml_documents())
@settings(max_examples=100, deadline=None)
def test_names_that_a_closed_reader_does_not_know(document: bytes) -> None:
    reader = Reader(Vocabulary(["a"]), grow=False)
    first = reader.read(document)
    assert set(first.tag.tolist()) <= {0, 1, 2}
    # A name that is learned between two documents is known in the second.
    reader.vocabulary.add("b")
    open_table = Reader(Vocabulary(), grow=True).read(document)
    again = reader.read(document)
    names = [open_table.name(row) for row in range(len(open_table))]
    assert [first.name(row) for row in range(len(first))] == names
    ids = {"#text": 0, "a": 2, "b": 3}
    assert again.tag.tolist() == [ids.get(name, 1) for name in names]
    renamed = first.renamed()
    assert renamed is not None
    assert renamed.tag.tolist() == again.tag.tolist()


def test_the_tree_comes_when_it_is_asked_for() -> None:
    table = Reader(Vocabulary()).read(b"<a><!-- c --><b x='1'>t</b></a>")
    assert table.fragment(0) == b'<a><!-- c --><b x="1">t</b></a>'
    assert table.root is table.root


def test_many_names_do_not_pile_up() -> None:
    reader = Reader(Vocabulary(["a"]), grow=False)
    for number in range(0, 150_000, 500):
        names = "".join(f"<n{n}/>" for n in range(number, number + 500))
        assert len(reader.read(f"<a>{names}</a>".encode())) == 501
    assert reader.read(b"<a/>").tag.tolist() == [2]


@pytest.mark.usefixtures("trees")
def test_trees_alone_do_as_well() -> None:
    reader = Reader(Vocabulary())
    assert len(reader.read(b"<a x='1'>t</a>")) == 3
    with pytest.raises(ReadError):
        reader.read(b"<a>")


@pytest.mark.usefixtures("trees")
def test_batches_without_events_say_what_to_do() -> None:
    with pytest.raises(EventsUnavailable, match="build it again"):
        next(Reader(Vocabulary()).read_batches([b"<a/>"]))
