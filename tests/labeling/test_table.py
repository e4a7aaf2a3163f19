"""The NodeTable against lxml's tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import labeling
from fmware.labeling import ATTRIBUTE, ELEMENT, TEXT
from tests.labeling.documents import xml_documents
from tests.labeling.oracle import nodes, rows, xpath

EVERY = settings(max_examples=80, deadline=None)
SOME = settings(max_examples=30, deadline=None)


@EVERY
@given(xml_documents())
def test_rows_are_the_nodes_of_the_tree(document: bytes) -> None:
    assert rows(labeling.read(document)) == nodes(document)


@EVERY
@given(xml_documents())
def test_text_and_attributes_are_those_xpath_sees(document: bytes) -> None:
    table = labeling.read(document)
    tree = etree.fromstring(document)
    for kind, path in ((TEXT, "//text()"), (ATTRIBUTE, "//@*")):
        found = [table.value(int(row)) for row in np.flatnonzero(table.kind == kind)]
        assert found == tree.xpath(path)
    elements = [table.name(int(row)) for row in np.flatnonzero(table.kind == ELEMENT)]
    assert elements == [element.tag for element in tree.xpath("//*")]


@SOME
@given(xml_documents())
def test_blank_text_can_be_left_out(document: bytes) -> None:
    assert rows(labeling.read(document, blanks=False)) == nodes(document, blanks=False)


@SOME
@given(xml_documents())
def test_without_values_the_rest_is_the_same(document: bytes) -> None:
    whole, bare = labeling.read(document), labeling.read(document, values=False)
    assert not bare.has_values
    for column in ("kind", "tag", "parent", "level", "start", "end"):
        assert np.array_equal(getattr(whole, column), getattr(bare, column))
    with pytest.raises(ValueError, match="without values"):
        bare.value(0)
    with pytest.raises(ValueError, match="without values"):
        _ = bare.value_bytes


@SOME
@given(xml_documents())
def test_string_value_is_xpaths(document: bytes) -> None:
    table = labeling.read(document)
    for row in np.flatnonzero(table.kind == ELEMENT):
        assert table.string_value(int(row)) == table.element(int(row)).xpath("string()")


@SOME
@given(xml_documents())
def test_path_selects_the_row_alone(document: bytes) -> None:
    table = labeling.read(document)
    for row in range(len(table)):
        path, spaces = xpath(table.path(row))
        found = table.element(0).xpath(path, namespaces=spaces)
        assert len(found) == 1, path
        if table.kind[row] == ELEMENT:
            assert found[0] is table.element(row)
        else:
            assert found[0] == table.value(row)
            assert found[0].getparent() is not None


@SOME
@given(xml_documents())
def test_elements_and_fragments(document: bytes) -> None:
    table = labeling.read(document)
    elements = list(etree.fromstring(document).iter(etree.Element))
    own = np.flatnonzero(table.kind == ELEMENT)
    assert len(own) == len(elements)
    for row, element in zip(own, elements, strict=True):
        fragment = etree.fromstring(table.fragment(int(row)))
        element.tail = None
        assert _canonical(fragment) == _canonical(element)
    for row in np.flatnonzero(table.kind != ELEMENT):
        assert table.element(int(row)) is table.element(int(table.parent[row]))
        assert table.fragment(int(row)).decode() == table.value(int(row))


def _canonical(element: etree._Element) -> bytes:
    return etree.tostring(element, method="c14n", exclusive=True, with_comments=True)


@SOME
@given(xml_documents(), st.integers(0, 2**60))
def test_ad_labels_contain_exactly_the_ancestors(document: bytes, base: int) -> None:
    table = labeling.read(document, base=base)
    rows = len(table)
    ancestors = np.zeros((rows, rows), bool)
    for row in range(rows):
        parent = int(table.parent[row])
        if parent >= 0:
            ancestors[:, row] = ancestors[:, parent]
            ancestors[parent, row] = True
    start, end = table.start, table.end
    contains = (start[:, None] < start[None, :]) & (end[None, :] < end[:, None])
    assert np.array_equal(contains, ancestors)
    assert table.is_ancestor(0, rows - 1) == (rows > 1)


@EVERY
@given(xml_documents(), st.integers(0, 2**60))
def test_a_node_takes_two_ticks_and_a_document_fewer_than_its_bytes(
    document: bytes, base: int
) -> None:
    table = labeling.read(document, base=base)
    ticks = np.sort(np.concatenate([table.start, table.end]))
    assert np.array_equal(ticks, base + np.arange(2 * len(table)))
    assert len(ticks) <= len(document)
    assert np.array_equal(table.start, np.sort(table.start))
    sizes = [table.size(row) for row in range(len(table))]
    below = (table.start[:, None] <= table.start) & (table.end <= table.end[:, None])
    assert sizes == np.count_nonzero(below, axis=1).tolist()


@pytest.mark.parametrize(
    "document",
    [b"<a/>", b"<a>x</a>", b"<a>x<b/>y<b/>z</a>", b"<a>x<?p?>y<?p?>z</a>", b'<a b=""/>'],
)
def test_the_densest_documents_have_bytes_enough_for_their_ticks(document: bytes) -> None:
    table = labeling.read(document)
    assert 2 * len(table) <= len(document)


@SOME
@given(xml_documents())
def test_children_and_rows_of(document: bytes) -> None:
    table = labeling.read(document)
    for row in range(len(table)):
        assert table.children(row).tolist() == np.flatnonzero(table.parent == row).tolist()
    for name in ("a", "record", "{urn:one}b"):
        assert len(table.rows_of(name)) == len(list(table.element(0).iter(name)))
    assert table.rows_of("never seen").size == 0


@SOME
@given(xml_documents(), st.data())
def test_a_subtree_is_a_table(document: bytes, data: st.DataObject) -> None:
    table = labeling.read(document)
    row = data.draw(st.integers(0, len(table) - 1))
    below = table.subtree(row)
    last = row + table.size(row)
    assert np.array_equal(below.start, table.start[row:last])
    assert [below.value(i) for i in range(len(below))] == [table.value(i) for i in range(row, last)]
    assert below.parent[0] == -1
    assert np.array_equal(below.parent[1:] + row, table.parent[row + 1 : last])
    if table.kind[row] == ELEMENT:
        assert below.fragment(0) == table.fragment(row)
        assert below.element(len(below) - 1) is table.element(last - 1)
        assert rows(labeling.NodeTable.from_arrow(below.to_arrow())) == rows(below)


def test_cdata_joins_and_comments_split() -> None:
    table = labeling.read(b"<a>1<![CDATA[<2>]]>3<!--x-->4<?p?>5<b/>6</a>")
    texts = [table.value(int(row)) for row in np.flatnonzero(table.kind == TEXT)]
    assert texts == ["1<2>3", "4", "5", "6"]


def test_an_empty_cdata_section_is_no_node() -> None:
    # XPath 1.0: a text node has at least one character. (libxml2 would show an empty one.)
    assert len(labeling.read(b"<a><![CDATA[]]></a>")) == 1
    table = labeling.read(b"<a><![CDATA[]]>x<b/><![CDATA[]]></a>")
    assert [table.value(row) for row in range(len(table))] == ["", "x", ""]


def test_blank_text_next_to_cdata_is_kept_whole() -> None:
    table = labeling.read(b"<a> <![CDATA[x]]> </a>", blanks=False)
    assert table.value(1) == " x "


def test_names_are_clark_names_of_the_namespace_in_force() -> None:
    table = labeling.read(
        b'<a xmlns="u" xmlns:p="v"><p:b p:c="1" d="2"/><e xmlns=""/><p:f xmlns:p="w"/></a>'
    )
    names = [table.name(row) for row in range(len(table))]
    assert names == ["{u}a", "{v}b", "{v}c", "d", "e", "{w}f"]


def test_columns_cannot_be_written() -> None:
    table = labeling.read(b"<a>x</a>")
    for column in ("kind", "tag", "parent", "level", "start", "end", "value_bytes"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(table, column)[0] = 0


def test_columns_outlive_the_table() -> None:
    start = labeling.read(b"<a>" + b"<b>x</b>" * 1000 + b"</a>").start
    trash = [labeling.read(b"<c>" + b"<d>y</d>" * 1000 + b"</c>") for _ in range(20)]
    assert start[0] == 0
    assert np.array_equal(np.diff(start) > 0, np.ones(len(start) - 1, bool))
    del trash


@pytest.mark.parametrize("row", [-1, 2, 10**9])
def test_rows_that_are_not_there(row: int) -> None:
    table = labeling.read(b"<a>x</a>")
    with pytest.raises(IndexError):
        table.element(row)
    with pytest.raises(IndexError):
        table.value(row)


def test_records_and_repr_are_for_people() -> None:
    table = labeling.read(b'<a b="1">x</a>', source="here")
    assert [record["kind"] for record in table.records()] == ["element", "attribute", "text"]
    assert [record["value"] for record in table.records()] == [None, "1", "x"]
    assert repr(table) == "<NodeTable of a: 3 nodes>"
    assert table.source == "here"


def test_a_large_document_keeps_its_columns() -> None:
    document = b"<a>" + b"<b c='1'>text</b>\n" * 600_000 + b"</a>"
    table = labeling.read(document)
    assert len(table) == 1 + 4 * 600_000
    assert table.value(len(table) - 2) == "text"
    assert table.end[0] == 2 * len(table) - 1
    assert table.value_offsets[-1] == len(table.value_bytes)


def test_a_document_denser_than_guessed_grows_the_columns() -> None:
    document = b"<a>" + b"<b/>x" * 5000 + b"</a>"
    assert rows(labeling.read(document)) == nodes(document)
