"""One document in batches: the rows are those of the whole, and memory stays bounded."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fmware.labeling import (
    ATTRIBUTE,
    ELEMENT,
    DoctypeRefused,
    LimitExceeded,
    Limits,
    MalformedXML,
    NodeTable,
    Reader,
    ReadError,
    Vocabulary,
)
from fmware.labeling._kernel import OPEN_END, UNKNOWN_TAG
from tests.labeling.documents import xml_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


class Row(NamedTuple):
    """A row, its parent by the left end of its label."""

    start: int
    kind: int
    name: str
    level: int
    parent: int
    end: int
    value: str


def rows_of(table: NodeTable) -> list[Row]:
    return [
        Row(
            int(table.start[row]),
            int(table.kind[row]),
            table.name(row),
            int(table.level[row]),
            int(table.start[table.parent[row]]) if table.parent[row] >= 0 else -1,
            int(table.end[row]),
            table.value(row) if table.has_values and table.kind[row] != ELEMENT else "",
        )
        for row in range(table.rows)
    ]


def chunked(document: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(document), size):
        yield document[at : at + size]


def sizes(table: NodeTable) -> dict[int, int]:
    """How many rows each element has, by its start."""
    return {int(table.start[row]): table.size(row) for row in range(table.rows)}


def check(document: bytes, size: int, nodes: int, reader: Reader) -> None:
    whole = reader.read(document)
    expected = {row.start: row for row in rows_of(whole)}
    found: dict[int, Row] = {}
    cut: set[int] = set()
    batches = list(reader.read_batches(chunked(document, size), nodes=nodes))
    for index, table in enumerate(batches):
        assert table.continued == (index > 0)
        carried = True
        new = 0
        last = -1
        for row in rows_of(table):
            assert row.start > last
            last = row.start
            assert row.level == (row.parent >= 0 and expected[row.parent].level + 1)
            if row.end == OPEN_END:
                assert row.kind == ELEMENT
                cut.add(row.start)
            else:
                assert row.end == expected[row.start].end
            if row.start in found:
                # It began before: first of all come the open elements and their attributes.
                assert carried
                assert row.end == OPEN_END or row.kind == ATTRIBUTE
                assert row == found[row.start]
                continue
            carried = False
            new += 1
            found[row.start] = row
            assert row._replace(end=0) == expected[row.start]._replace(end=0)
        assert new > 0
        assert_tree(table)
    assert found.keys() == expected.keys()
    assert [batch.has_values for batch in batches] == [reader.values] * len(batches)
    # What is open in one batch is open in all that it is in, and too large to be moved.
    size_of = sizes(whole)
    assert all(size_of[start] > nodes // 2 for start in cut)
    assert {start for start, row in found.items() if row.end == OPEN_END} == cut


def assert_tree(table: NodeTable) -> None:
    """Parents come before their children, one level up, and there is one root."""
    assert table.parent[0] == -1
    assert table.level[0] == 0
    stack: list[int] = []
    for row in range(table.rows):
        del stack[int(table.level[row]) :]
        assert int(table.parent[row]) == (stack[-1] if stack else -1)
        stack.append(row)
        assert table.size(row) == 1 + sum(
            1 for lower in range(row + 1, table.rows) if is_below(table, lower, row)
        )


def is_below(table: NodeTable, lower: int, upper: int) -> bool:
    while lower > upper:
        lower = int(table.parent[lower])
    return lower == upper


@settings(unhurried, max_examples=250)
@given(
    xml_documents(),
    st.one_of(st.integers(1, 8), st.integers(1, 5000)),
    st.integers(2, 50),
    st.booleans(),
    st.booleans(),
)
def test_the_batches_are_the_document(
    document: bytes, size: int, nodes: int, values: bool, blanks: bool
) -> None:
    check(document, size, nodes, Reader(Vocabulary(), values=values, blanks=blanks))


@settings(unhurried, max_examples=60)
@given(xml_documents(), st.integers(1, 300))
def test_a_small_document_is_one_batch(document: bytes, size: int) -> None:
    reader = Reader(Vocabulary())
    (table,) = reader.read_batches(chunked(document, size), nodes=100_000)
    assert rows_of(table) == rows_of(reader.read(document))
    assert not table.continued


@pytest.mark.parametrize("blanks", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_text_is_never_cut(blanks: bool, values: bool) -> None:
    inner = b"".join(b"<b>%b</b>" % (b"x" * n) + b" " * n + b"<!---->\n" for n in range(300))
    document = b"<a y='1'>" + inner + b"</a>"
    for size in (1, 7, 100, 10_000):
        check(document, size, 10, Reader(Vocabulary(), values=values, blanks=blanks))


def test_elements_deeper_than_a_batch_is_long() -> None:
    document = b"<a x='1' y='2'>" * 60 + b"<b/>" * 100 + b"</a>" * 60
    check(document, 50, 4, Reader(Vocabulary()))


def test_batches_have_about_the_asked_length_whatever_the_chunks() -> None:
    document = b"<a>" + b"<b>x</b>" * 50_000 + b"</a>"
    for size in (1000, len(document)):
        tables = list(Reader().read_batches(chunked(document, size), nodes=500))
        assert all(table.rows <= 750 for table in tables)
        assert len(tables) >= 100_000 // 750


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_encodings(encoding: str, size: int) -> None:
    text = "<ä>" + "<b c='ß'>ü</b>" * 20 + "</ä>"
    if encoding == "iso-8859-1":
        text = f"<?xml version='1.0' encoding='{encoding}'?>{text}"
    data = text.encode(encoding)
    check(data, size, 10, Reader(Vocabulary()))


def test_a_closed_reader_learns_names_between_batches() -> None:
    vocabulary = Vocabulary(["b"])
    reader = Reader(vocabulary, grow=False)
    document = b"<a x='1'>" + b"<b/><c/>" * 100 + b"</a>"
    batches = reader.read_batches([document], nodes=20)
    first = next(batches)
    assert first.known == len(vocabulary)
    assert (first.tag[:2] == UNKNOWN_TAG).all()
    added = [vocabulary.add(name) for name in ("a", "x", "c")]
    second = next(batches)
    assert second.known == len(vocabulary) > first.known
    assert second.tag[:2].tolist() == added[:2]
    assert UNKNOWN_TAG not in second.tag.tolist()


# --- bad documents --------------------------------------------------------------------------


def broken(document: bytes, reader: Reader | None = None, size: int = 100) -> tuple[int, ReadError]:
    """How many batches came, and what then was wrong."""
    given: list[str | None] = []
    reader = reader or Reader(Vocabulary())
    batches = reader.read_batches(chunked(document, size), nodes=10, source="s")
    with pytest.raises(ReadError) as caught:
        given.extend(table.source for table in batches)
    assert set(given) <= {"s"}
    assert caught.value.source == "s"
    return len(given), caught.value


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_what_comes_before_an_error_is_given(size: int) -> None:
    document = b"<a>\n" + b"<b/>\n" * 500 + b"<c></d>" + b"<b/>" * 100
    count, error = broken(document, size=size)
    assert count > 30
    assert isinstance(error, MalformedXML)
    assert error.line == 502
    assert error.column >= 7
    with pytest.raises(MalformedXML) as whole:
        Reader().read(document)
    assert error.reason == whole.value.reason


@pytest.mark.parametrize(
    "document", [b"", b"  ", b"x", b"<a>", b"<a/>x", b"<a/><b/>", b"<a>&x;</a>", b"<p:a/>", b"\xff"]
)
def test_no_documents(document: bytes) -> None:
    assert broken(document)[0] == 0


def test_a_doctype_is_refused_with_its_place() -> None:
    count, error = broken(b"<?xml version='1.0'?>\n<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>")
    assert count == 0
    assert isinstance(error, DoctypeRefused)
    assert error.line == 2


@pytest.mark.parametrize(
    ("bad", "limit"),
    [
        (b"<c>" * 6 + b"</c>" * 6, "depth"),
        (b"<c>" + b"x" * 200 + b"</c>", "text"),
        (b"<c x='" + b"x" * 200 + b"'/>", "attribute"),
    ],
)
def test_limits_hold(bad: bytes, limit: str) -> None:
    limits = Limits(depth=5, text=100, attribute=100, nodes=10, bytes=9)
    reader = Reader(Vocabulary(), limits=limits)
    count, error = broken(b"<a>\n" + b"<b/>\n" * 500 + bad + b"</a>", reader)
    assert count > 30
    assert isinstance(error, LimitExceeded)
    assert error.limit == limit
    assert error.line == 502


def test_names_are_limited() -> None:
    reader = Reader(Vocabulary(limit=10))
    document = b"<a>" + b"".join(b"<b%d/>" % n for n in range(100)) + b"</a>"
    _, error = broken(document, reader)
    assert isinstance(error, LimitExceeded)


@pytest.mark.parametrize("nodes", [1, 0, -1])
def test_a_batch_has_at_least_two_nodes(nodes: int) -> None:
    with pytest.raises(ValueError, match="between 2 and"):
        next(Reader().read_batches([b"<a/>"], nodes=nodes))


# --- memory ---------------------------------------------------------------------------------

ENDLESS = """
import resource
from fmware.labeling import Reader

def chunks():
    yield b"<log version='1'>"
    for number in range(60):
        yield b"<entry n='1'><text>a line of it</text><!-- and a remark --></entry>\\n" * 15_000
    yield b"</log>"

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

reader = Reader()
for table in reader.read_batches([b"<a>", b"<b>x</b>" * 30_000, b"</a>"]):
    pass
before = peak()
rows = sum(table.rows for table in reader.read_batches(chunks()))
assert rows > 60 * 15_000 * 5, rows
print(peak() - before)
"""


def test_memory_is_bounded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS], capture_output=True, cwd=ROOT, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 * 1024


def test_batches_adjoin() -> None:
    tables = list(Reader().read_batches([b"<a>" + b"<b/>" * 100 + b"</a>"], nodes=10))
    assert all(left.start[-1] < right.start[1] for left, right in pairwise(tables))
