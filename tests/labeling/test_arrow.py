"""NodeTables to Arrow and back."""

from __future__ import annotations

import numpy as np  # noqa: TC002
import pyarrow as pa
import pytest
from hypothesis import given, settings
from lxml import etree

from fmware import labeling
from fmware.labeling import NodeTable, Vocabulary
from tests.labeling.documents import xml_documents
from tests.labeling.oracle import nodes, rows

SOME = settings(max_examples=30, deadline=None)
COLUMNS = ("kind", "parent", "level", "start", "end")
DOCUMENT = b'<a x="1">one<b>two</b><p:c xmlns:p="u" p:y="z"/>\xc3\xbc</a>'


def same_memory(column: pa.Array, array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> bool:
    address: int = column.buffers()[1].address
    return address == array.ctypes.data


@SOME
@given(xml_documents())
def test_there_and_back(document: bytes) -> None:
    table = labeling.read(document)
    batch = table.to_arrow()
    batch.validate(full=True)
    back = NodeTable.from_arrow(batch, table.vocabulary)
    assert rows(back) == nodes(document)
    assert back.to_arrow().equals(batch)


def test_no_byte_is_copied() -> None:
    table = labeling.read(DOCUMENT)
    batch = table.to_arrow()
    back = NodeTable.from_arrow(batch, table.vocabulary)
    for name in COLUMNS:
        assert same_memory(batch.column(name), getattr(table, name))
        assert same_memory(batch.column(name), getattr(back, name))
    assert same_memory(batch.column("tag").indices, table.tag)
    assert same_memory(batch.column("tag").indices, back.tag)
    _, offsets, data = batch.column("value").buffers()
    for one in (table, back):
        assert offsets.address == one.value_offsets.ctypes.data
        assert data.address == one.value_bytes.ctypes.data


def test_the_batch_outlives_the_table() -> None:
    batch = labeling.read(DOCUMENT).to_arrow()
    trash = [labeling.read(b"<z>" + b"<y/>" * 50 + b"</z>") for _ in range(50)]
    batch.validate(full=True)
    assert batch.column("value").to_pylist()[1] == "1"
    del trash


@SOME
@given(xml_documents())
def test_another_vocabulary_renumbers_the_tags(document: bytes) -> None:
    table = labeling.read(document, vocabulary=Vocabulary())
    other = Vocabulary(["zzz", "a", "{urn:one}b"])
    back = NodeTable.from_arrow(table.to_arrow(), other)
    assert back.vocabulary is other
    assert rows(back) == nodes(document)
    assert rows(NodeTable.from_arrow(table.to_arrow())) == nodes(document)


def test_a_dictionary_in_any_order_is_understood() -> None:
    table = labeling.read(DOCUMENT, vocabulary=Vocabulary())
    batch = table.to_arrow()
    tags = batch.column("tag")
    shuffled = pa.array(tags.to_pylist()).dictionary_encode()
    at = batch.schema.get_field_index("tag")
    batch = batch.set_column(at, "tag", shuffled)
    assert rows(NodeTable.from_arrow(batch)) == nodes(DOCUMENT)
    assert rows(NodeTable.from_arrow(batch, Vocabulary(["q"]))) == nodes(DOCUMENT)


def test_ipc() -> None:
    table = labeling.read(DOCUMENT, vocabulary=Vocabulary())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.to_arrow().schema) as writer:
        writer.write_batch(table.to_arrow())
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        back = NodeTable.from_arrow(reader.read_next_batch())
    assert rows(back) == nodes(DOCUMENT)


def test_slices_of_batches() -> None:
    table = labeling.read(DOCUMENT)
    batch = table.to_arrow()
    whole = rows(table)
    for begin in range(len(table)):
        part = NodeTable.from_arrow(batch.slice(begin), table.vocabulary)
        assert rows(part) == whole[begin:]
        if len(part):
            assert part.to_arrow().column("value").equals(batch.slice(begin).column("value"))
    empty = NodeTable.from_arrow(batch.slice(0, 0), table.vocabulary)
    assert len(empty) == 0
    assert repr(empty) == "<NodeTable of nothing: 0 nodes>"


def test_a_table_without_values_has_no_value_column() -> None:
    batch = labeling.read(DOCUMENT, values=False).to_arrow()
    assert "value" not in batch.schema.names
    assert not NodeTable.from_arrow(batch).has_values


def test_a_document_without_text() -> None:
    table = NodeTable.from_arrow(labeling.read(b"<a/>").to_arrow())
    assert table.value(0) == ""
    assert table.string_value(0) == ""


@pytest.mark.parametrize("missing", ["tag", "kind", "parent", "level", "start", "end"])
def test_a_missing_column_is_named(missing: str) -> None:
    batch = labeling.read(DOCUMENT).to_arrow()
    batch = batch.drop_columns([missing])
    with pytest.raises(TypeError, match=missing):
        NodeTable.from_arrow(batch)


@pytest.mark.parametrize("column", ["kind", "start", "value", "tag"])
def test_a_column_of_another_type_is_named(column: str) -> None:
    batch = labeling.read(DOCUMENT).to_arrow()
    wrong = {"value": pa.large_utf8(), "tag": pa.utf8()}.get(column, pa.int32())
    at = batch.schema.get_field_index(column)
    batch = batch.set_column(at, column, batch.column(column).cast(wrong))
    with pytest.raises(TypeError, match=column):
        NodeTable.from_arrow(batch)


def test_elements_are_built_anew() -> None:
    table = labeling.read(DOCUMENT)
    back = NodeTable.from_arrow(table.to_arrow(), table.vocabulary)
    assert back.root is None
    for row in range(len(table)):
        assert back.element(row).tag == table.element(row).tag
    built = etree.fromstring(back.fragment(0))
    assert nodes(etree.tostring(built)) == nodes(DOCUMENT)


@SOME
@given(xml_documents())
def test_built_elements_have_the_same_nodes(document: bytes) -> None:
    back = NodeTable.from_arrow(labeling.read(document).to_arrow())
    assert back.string_value(0) == labeling.read(document).string_value(0)
    names = [element.tag for element in back.element(0).iter()]
    assert names == [node.name for node in nodes(document) if node.kind == labeling.ELEMENT]
