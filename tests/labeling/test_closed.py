"""Closed reading: names that are not in the vocabulary share an id, and stay in the document."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.labeling import (
    ATTRIBUTE,
    ELEMENT,
    TEXT,
    LimitExceeded,
    Limits,
    NodeTable,
    Reader,
    Vocabulary,
    _kernel,
)
from fmware.labeling._kernel import UNKNOWN_TAG
from tests.labeling.documents import xml_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

SPACES = b"<a xmlns:p='u' xmlns:q='v'><p:b p:c='1' q:c='2'/><q:b/><d/></a>"


@pytest.fixture(params=["events", "trees"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both ways to read."""
    if not _kernel.reads_events():
        pytest.skip("this lxml does not export its libxml2")
    _kernel.use_events(wanted=request.param == "events")
    yield request.param
    _kernel.use_events(wanted=True)


def selected(table: NodeTable, path: str) -> list[object]:
    assert table.root is not None
    found = etree.ETXPath(path)(table.root)
    assert isinstance(found, list)
    return found


@given(document=xml_documents(), known=st.sets(st.sampled_from(["a", "{urn:one}*", "b", "x"])))
@settings(max_examples=200, deadline=None)
def test_a_path_selects_its_row_alone(document: bytes, known: set[str]) -> None:
    table = Reader(Vocabulary(known), grow=False).read(document)
    open_table = Reader(Vocabulary()).read(document)
    paths = table.paths(range(len(table)))
    assert paths == open_table.paths(range(len(table)))
    assert len(set(paths)) == len(table)
    assert table.root is not None
    for row, path in enumerate(paths):
        assert table.path(row) == path
        (found,) = selected(table, path)
        if table.kind[row] == ELEMENT:
            assert found is table.element(row)
        else:
            assert found == table.value(row)
            assert found.getparent() is not None  # type: ignore[attr-defined]
            parent = found.getparent()  # type: ignore[attr-defined]
            assert found.is_attribute == (table.kind[row] == ATTRIBUTE)  # type: ignore[attr-defined]
            if table.kind[row] == ATTRIBUTE or found.is_text:  # type: ignore[attr-defined]
                assert parent is table.element(row)


def test_paths_come_in_the_order_asked_for() -> None:
    table = Reader(Vocabulary()).read(b"<a><b/>x<b y='1'>z</b></a>")
    assert table.paths([4, 0, 3, 4]) == ["/a[1]/b[2]/@y", "/a[1]", "/a[1]/b[2]", "/a[1]/b[2]/@y"]
    assert table.paths(np.array([2])) == ["/a[1]/text()[1]"]
    assert table.paths([]) == []
    for row in (-1, 6):
        with pytest.raises(IndexError):
            table.paths([row])


def test_many_siblings_take_linear_time() -> None:
    document = b"<a>" + b"<b/><c>t</c>" * 100_000 + b"</a>"
    table = Reader(Vocabulary(["a", "b"]), grow=False).read(document)
    rows = range(len(table))
    begin = time.process_time()
    paths = table.paths(rows)
    assert time.process_time() - begin < 3
    assert paths[-2:] == ["/a[1]/c[100000]", "/a[1]/c[100000]/text()[1]"]
    assert paths[-3] == "/a[1]/b[100000]"


def test_names_of_a_namespace_share_the_id_of_its_wildcard(way: str) -> None:
    vocabulary = Vocabulary(["a", "{u}*", "{v}c"])
    reader = Reader(vocabulary, grow=False)
    assert reader.read(SPACES).tag.tolist() == [2, 3, 3, 4, UNKNOWN_TAG, UNKNOWN_TAG]
    wild, name = vocabulary.add("{v}*"), vocabulary.add("{u}b")
    table = reader.read(SPACES)
    assert table.tag.tolist() == [2, name, 3, 4, wild, UNKNOWN_TAG]
    assert [table.name(row) for row in range(6)] == ["a", "{u}b", "{u}c", "{v}c", "{v}b", "d"]
    assert len(vocabulary) == 7


def test_open_readers_give_every_name_its_own_id() -> None:
    vocabulary = Vocabulary(["{u}*"])
    table = Reader(vocabulary).read(SPACES)
    assert len(set(table.tag.tolist())) == 6
    assert 2 not in table.tag


def test_tables_look_their_names_up_again(way: str) -> None:
    vocabulary = Vocabulary(["a"])
    reader = Reader(vocabulary, grow=False)
    table = reader.read(SPACES, source="here")
    vocabulary.add("{u}*")
    vocabulary.add("d")
    renamed = table.renamed()
    assert renamed is not None
    assert renamed.tag.tolist() == reader.read(SPACES).tag.tolist()
    assert (renamed.known, renamed.source) == (len(vocabulary), "here")
    assert renamed.paths(range(6)) == table.paths(range(6))
    assert renamed.fragment(1) == table.fragment(1)
    assert renamed.subtree(1).name(1) == "{u}c"
    assert NodeTable.joined([table]).renamed() is None
    assert NodeTable.joined([table]).name(1) == "#unknown"
    assert NodeTable.joined([table]).path(4) == "/a[1]/*[2]"
    assert NodeTable.joined([table]).path(3) == "/a[1]/*[1]/@*[2]"
    opened = Reader(vocabulary).read(SPACES)
    assert opened.renamed() is opened


def test_records_and_batches_keep_their_names() -> None:
    reader = Reader(Vocabulary(["rec"]), grow=False)
    found = reader.read_records(
        b"<rec x='1'/><rec><y/></rec>",
        np.array([12, 15]),
        np.array([0, 100]),
        np.array([0, 0], np.int16),
    )
    assert found is not None
    assert found[0].paths(range(4)) == ["/rec[1]", "/rec[1]/@x", "/rec[1]", "/rec[1]/y[1]"]
    record = reader.read_record(b"<rec><p:y/></rec>", namespaces=b"xmlns:p='u'")
    assert record.path(1) == "/rec[1]/{u}y[1]"
    assert record.fragment(1) == b'<p:y xmlns:p="u"/>'
    document = b"<rec>" + b"<n><m/></n>" * 50 + b"</rec>"
    for table in reader.read_batches([document], nodes=10):
        assert {table.name(row) for row in range(len(table))} == {"rec", "n", "m"}
        assert table.path(2) == "/rec[1]/n[1]/m[1]"
    assert len(reader.vocabulary) == 3


def test_entities_and_names_go_together() -> None:
    reader = Reader(Vocabulary(["a"]), grow=False, entities={"uuml": "ü"})
    table = reader.read(b"<!DOCTYPE a><a><b>&uuml;</b></a>")
    assert table.paths(range(3)) == ["/a[1]", "/a[1]/b[1]", "/a[1]/b[1]/text()[1]"]
    assert table.fragment(1) == "<b>ü</b>".encode()
    assert table.element(1).text == "ü"


@given(document=xml_documents())
@settings(max_examples=150, deadline=None)
def test_fragments_are_those_of_lxml(document: bytes) -> None:
    table = Reader(Vocabulary(), grow=False).read(document)
    for row in np.flatnonzero(table.kind == ELEMENT).tolist():
        wanted = etree.tostring(table.element(row), encoding="utf-8", with_tail=False)
        assert table.fragment(row) == wanted
    assert TEXT not in table.kind[:1]


# -- limits --------------------------------------------------------------------------------------

OVER = [
    ("names", Limits(names=3), b"<a><b/>\n<b c=''/><d/></a>", (2, 10)),
    (
        "names",
        Limits(names=2),
        b"<a xmlns:p='u'><p:a/><p:a/><a/>\n<a p:a='' a=''/><p:b/></a>",
        (2, 17),
    ),
    ("name_bytes", Limits(name_bytes=10), b"<abc><defg/>\n<abc/><hijk/></abc>", (2, 7)),
    (
        "name_bytes",
        Limits(name_bytes=6),
        b"<a xmlns='uri'><b/><b xmlns='uri'/><c/>\n<d/></a>",
        (2, 1),
    ),
]


@pytest.mark.parametrize(("name", "limits", "document", "place"), OVER)
@pytest.mark.parametrize("grow", [False, True])
def test_names_are_counted_exactly(
    way: str, name: str, limits: Limits, document: bytes, place: tuple[int, int], grow: bool
) -> None:
    reader = Reader(Vocabulary(), limits=limits, grow=grow)
    for _ in range(2):
        with pytest.raises(LimitExceeded, match=f"raise Limits.{name}") as caught:
            reader.read(document)
        assert (caught.value.limit, caught.value.allowed) == (name, getattr(limits, name))
        assert (caught.value.line, caught.value.column) == place
    more = Limits(**{name: getattr(limits, name) + 1})
    assert len(Reader(Vocabulary(), limits=more, grow=grow).read(document)) > 3


@pytest.mark.parametrize("grow", [False, True])
def test_names_of_documents_do_not_add_up(way: str, grow: bool) -> None:
    reader = Reader(Vocabulary(), limits=Limits(names=3, name_bytes=30), grow=grow)
    for index in range(100):
        table = reader.read(f"<a{index} xmlns='urn:{index}'><b/><c/><b/></a{index}>".encode())
        assert table.name(0) == f"{{urn:{index}}}a{index}"


def test_names_of_batches_are_those_of_the_document() -> None:
    reader = Reader(Vocabulary(), limits=Limits(names=50), grow=False)
    document = b"<a>" + b"".join(b"<n%d/>" % index for index in range(60)) + b"</a>"
    with pytest.raises(LimitExceeded, match=r"Limits\.names"):
        list(reader.read_batches([document], nodes=10))
    same = b"<a>" + b"<b/>" * 1000 + b"</a>"
    assert sum(len(table) for table in reader.read_batches([same], nodes=10)) > 1000


def test_names_of_one_record_are_limited() -> None:
    reader = Reader(Vocabulary(), limits=Limits(names=2))
    with pytest.raises(LimitExceeded, match=r"Limits\.names"):
        reader.read_record(b"<a><b/><c/></a>")
    assert len(reader.read_record(b"<a><b/><b/></a>")) == 3


def test_tables_in_a_cycle_are_collected() -> None:
    """The collector clears what a table refers to before the table itself goes."""
    vocabulary = Vocabulary(["b"])
    reader = Reader(vocabulary, grow=False)
    for _ in range(20):
        whole = [reader.read(f"<a{number}><b/></a{number}>".encode()) for number in range(50)]
        tables = [each for table in whole for each in (table, table.subtree(0))]
        assert [table.path(1) for table in tables][14:16] == ["/a7[1]/b[1]"] * 2
        for table in tables:
            # The source may be any object, so it may lead back to the table.
            table.source = [table]  # type: ignore[assignment]
        del table, tables, whole
        gc.collect()
