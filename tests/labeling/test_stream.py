"""Streams: documents one after the other, and the records of one root."""

from __future__ import annotations

import gc
import io
import itertools
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import labeling
from fmware.labeling import Limits, Reader, Reject, read_stream
from tests.labeling.documents import xml_documents
from tests.labeling.oracle import Node, nodes, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOME = settings(max_examples=40, deadline=None)
# Bad in ways that tags alone show, in ways that only a parser sees, and cut short.
BAD = (
    b"<a><b></a>",
    b"<a></b></a>",
    b"<a>&nope;</a>",
    b"<a b=1/>",
    b"<p:a/>",
    b"<a>\xff</a>",
    b"<!DOCTYPE a><a/>",
    b"junk",
    b"</a>",
    b"<a><b>\n",
    b"<a>",
    b"<a x='1' x='2'/>",
    b"<a>a < b</a>",
)
GOOD = (b"<a/>", b"<a>\n<b/>x</a>", b"<?xml version='1.0'?><a y='>'/>", b"<a><!-- <a> --></a>")


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def outcome(
    chunks: object, record: str | None = None, reader: Reader | None = None
) -> tuple[list[tuple[int, list[Node]]], list[tuple[int, bytes, str]]]:
    rejects: list[Reject] = []
    tables = [
        (int(table.start[0]), rows(table))
        for table in read_stream(chunks, record=record, reader=reader, rejects=rejects.append)  # type: ignore[arg-type]
    ]
    return tables, [(reject.offset, reject.data, str(reject.error)) for reject in rejects]


@SOME
@given(st.lists(xml_documents(depth=2), max_size=5), st.sampled_from((b"", b"\n", b"\n \t\r\n")))
def test_documents_one_after_the_other(documents: list[bytes], between: bytes) -> None:
    data = between.join(documents)
    rejects: list[Reject] = []
    tables = list(read_stream(data, rejects=rejects.append))
    assert not rejects
    assert [rows(table) for table in tables] == [nodes(document) for document in documents]
    ends = [(int(table.start[0]), int(table.end[0])) for table in tables]
    assert all(one[1] < two[0] for one, two in itertools.pairwise(ends))
    assert all(end < len(data) for _, end in ends)


@SOME
@given(
    st.lists(st.one_of(st.sampled_from(BAD + GOOD), xml_documents(depth=1)), max_size=6),
    st.lists(st.integers(0, 10**6), max_size=8),
    st.sampled_from((None, "a", "record")),
)
def test_chunks_do_not_matter(pieces: list[bytes], cuts: list[int], record: str | None) -> None:
    data = b"\n".join(pieces)
    expected = outcome(data, record)
    assert outcome(split(data, cuts), record) == expected
    assert outcome([bytes([byte]) for byte in data], record) == expected
    small = Reader(limits=Limits(bytes=24))
    assert outcome([bytes([byte]) for byte in data], record, small) == outcome(data, record, small)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(BAD + GOOD), max_size=8))
def test_every_good_document_is_read_and_every_bad_one_rejected(pieces: list[bytes]) -> None:
    data = b""
    good: list[int] = []
    bad: list[int] = []
    for piece in pieces:
        (good if piece in GOOD else bad).append(len(data))
        data += piece + b"\n"
        # Nothing but a declaration tells junk from more junk, or text from text behind it.
        good.append(len(data))
        data += b"<?xml version='1.0'?><a/>"
    tables, rejects = outcome(data)
    assert [offset for offset, _ in tables] == good
    # A bad document may fall into several rejects, but one begins where it begins.
    offsets = {offset for offset, _, _ in rejects}
    assert set(bad) <= offsets
    assert not offsets & set(good)
    for offset, piece, message in rejects:
        assert data[offset : offset + len(piece)] == piece
        line = data.count(b"\n", 0, offset) + 1
        assert int(message.split("line ")[1].split(",")[0]) >= line


def test_the_place_of_an_error_is_the_streams() -> None:
    _, rejects = outcome(b"<a/>\n<b/>  <c>\n  <d></e>\n</c>\n<f/>")
    assert [(offset, piece) for offset, piece, _ in rejects] == [(11, b"<c>\n  <d></e>\n</c>")]
    assert "line 3, column 10" in rejects[0][2]
    _, rejects = outcome(b"<a/>\n<b/>  <c></d></c><f/>")
    assert "line 2, column 14" in rejects[0][2]


def test_without_rejects_the_error_is_raised_and_the_stream_goes_on() -> None:
    stream = read_stream(b"<a/><b></c></b><d/>")
    assert next(stream).name(0) == "a"
    with pytest.raises(labeling.MalformedXML):
        next(stream)
    assert next(stream).name(0) == "d"
    with pytest.raises(StopIteration):
        next(stream)


def test_what_may_stand_between_documents() -> None:
    data = (
        b"\xef\xbb\xbf<?xml version='1.0'?><a/><!-- <x> --><?p <y>?>\n"
        b"<?xml version='1.0' encoding='ISO-8859-1'?><b>\xfc</b>\r\n\xef\xbb\xbf<c/><!-- end -->"
    )
    rejects: list[Reject] = []
    tables = list(read_stream(data, rejects=rejects.append))
    assert [table.name(0) for table in tables] == ["a", "b", "c"]
    assert tables[1].string_value(0) == "ü"
    assert not rejects


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("data", [b"hello", b" hello\n", b"\x00\x01", b"</a>", b"&lt;"])
def test_what_is_no_xml_at_all_is_rejected(data: bytes, size: int) -> None:
    rejects: list[labeling.Reject] = []
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(labeling.read_stream(chunks, rejects=rejects.append)) == []
    assert [reject.data.strip() for reject in rejects] == [data.strip()]
    assert isinstance(rejects[0].error, labeling.MalformedXML)


def test_a_truncated_end_is_rejected() -> None:
    for end in (
        b"<",
        b"<b",
        b"<b>",
        b"<b>x",
        b"<b a='",
        b"<b/",
        b"<!-",
        b"<!--x",
        b"<![CDATA[",
        b"<?x",
    ):
        tables, rejects = outcome(b"<a/>" + end)
        assert len(tables) == 1
        assert [(offset, piece) for offset, piece, _ in rejects] == [(4, end)], end


def test_truncation_everywhere() -> None:
    data = b"<?xml version='1.0'?><a b='1'>x<!-- c --><![CDATA[d]]><e/></a>"
    for end in range(1, len(data)):
        tables, rejects = outcome(data[:end] + b"<?xml version='1.0'?><z/>")
        assert [table[0] for table in tables][-1:] == [end], data[:end]
        assert len(rejects) == 1


def test_many_documents_cut_short_in_a_row() -> None:
    tables, rejects = outcome(b"<a>1<b>" * 50 + b"<a>2</a>" * 50 + b"<a>3<b>" * 50 + b"<a/>")
    assert len(tables) == 51
    assert len(rejects) == 100


# --- records --------------------------------------------------------------------------------


def test_records_of_one_root() -> None:
    data = b"<root><record>1</record>junk<other><record>2<record>3</record></record></other></root>"
    tables = list(read_stream(data, record="record"))
    assert [table.string_value(0) for table in tables] == ["1", "23"]
    assert [int(table.level[0]) for table in tables] == [1, 2]
    assert [int(table.start[0]) for table in tables] == [6, 35]


def test_tags_that_are_no_tags() -> None:
    data = (
        (
            b"<!-- <record> --><root a='<'><!-- <record> --><?p <record> ?><![CDATA[<record>]]>"
            b"<x y='</record>' z=\"<'record>\"/><record a='>'><![CDATA[</record>]]><!--</record>-->"
            b"<?p </record>?>x</record></root>"
        )
        .replace(b"='<'", b"=''")
        .replace(b"'</record>'", b"'/record>'")
        .replace(b"\"<'", b"\"'")
    )
    tables = list(read_stream(data, record="record"))
    assert [table.string_value(0) for table in tables] == ["</record>x"]


def test_namespaces_around_records() -> None:
    data = (
        b"<r xmlns='u' xmlns:p='v' t=' xmlns=\"w\" '><p:in xmlns:q='w'><rec><q:x p:y='1'/></rec>"
        b"</p:in><s xmlns=''><rec/></s><rec><q xmlns:p='z'><p:k/></q></rec></r>"
    )
    tables = list(read_stream(data, record="rec"))
    names = [[table.name(row) for row in range(len(table))] for table in tables]
    assert names == [["{u}rec", "{w}x", "{v}y"], ["rec"], ["{u}rec", "{u}q", "{z}k"]]


def test_records_with_a_prefix_and_of_several_names() -> None:
    data = b"<r xmlns:p='u'><p:a>1</p:a><a>2</a><b/><p:b/></r>"
    names = [table.name(0) for table in read_stream(data, record=("p:a", "b"))]
    assert names == ["{u}a", "b"]


def test_the_declared_encoding_holds_for_records() -> None:
    data = "<?xml version='1.0'\n encoding='ISO-8859-1'?>\r\n<r>\r\n<rec>\xfc\r\n</rec>\r\n</r>"
    (table,) = read_stream(data.encode("latin-1"), record="rec")
    assert table.string_value(0) == "\xfc\n"


def test_entities_of_the_doctype_hold_for_records() -> None:
    data = b"<!DOCTYPE r SYSTEM 'r.dtd' [<!ENTITY me 'M'>]><r><rec k='&me;'>&uuml;&me;</rec></r>"
    reader = Reader(entities=labeling.CHARACTER_ENTITIES)
    (table,) = read_stream(data, record="rec", reader=reader)
    assert (table.value(1), table.value(2)) == ("M", "\xfcM")
    _, rejects = outcome(data, "rec")
    assert "entit" in rejects[0][2]


def test_bad_records_between_good_ones() -> None:
    data = (
        b"<r xmlns='u'>\n<rec>1</rec>\n<rec><x></rec>\n<rec>2</rec></wrong>\n<rec>3\n"
        b"<rec>4</rec>\n<other>&nope;</other><rec>&nope;</rec></rec><rec>5</rec></r>"
    )
    rejects: list[Reject] = []
    tables = list(read_stream(data, record="rec", rejects=rejects.append))
    assert [table.string_value(0) for table in tables] == ["1", "2", "5"]
    assert {table.name(0) for table in tables} == {"{u}rec"}
    assert [data[reject.offset :][:10] for reject in rejects] == [
        b"<rec><x></",
        b"</wrong>\n<",
        b"<rec>3\n<re",
    ]
    assert (rejects[0].error.line, rejects[2].error.line) == (3, 7)


def test_a_record_without_its_end_does_not_take_the_next() -> None:
    data = b"<r><rec>1<x><rec>2</rec><oth>3</oth></r>"
    rejects: list[Reject] = []
    tables = list(read_stream(data, record=("rec", "oth"), rejects=rejects.append))
    assert [table.string_value(0) for table in tables] == ["2", "3"]
    assert [(reject.offset, reject.data) for reject in rejects] == [(3, b"<rec>1<x>")]


@SOME
@given(
    st.lists(xml_documents(names=("rec", "a"), depth=2), max_size=4),
    st.lists(st.integers(0, 999), max_size=4),
)
def test_records_are_the_outermost_elements_of_the_name(
    documents: list[bytes], cuts: list[int]
) -> None:
    bodies = [
        etree.tostring(etree.fromstring(document), encoding="unicode").encode()
        for document in documents
    ]
    data = b"<all xmlns:w='urn:w'>" + b" ".join(bodies) + b"</all>"
    tree = etree.fromstring(data)
    expected = tree.xpath("//*[name()='rec'][not(ancestor::*[name()='rec'])]")
    tables = list(read_stream(split(data, cuts), record="rec"))
    assert len(tables) == len(expected)
    for table, element in zip(tables, expected, strict=True):
        element.tail = None
        assert rows(table) == [
            type(node)(
                node.kind, node.name, node.value, node.parent, node.level + int(table.level[0])
            )
            for node in nodes(etree.tostring(element, encoding="unicode").encode())
        ]
        assert table.level[0] == len(list(element.iterancestors()))


def test_an_endless_root_gives_records_before_it_ends() -> None:
    asked = 0

    def endless() -> Iterator[bytes]:
        nonlocal asked
        yield b"<r>"
        while True:
            asked += 1
            yield b"<rec>%d</rec>" % asked

    stream = read_stream(endless(), record="rec")
    found = [table.string_value(0) for table in itertools.islice(stream, 1000)]
    assert found == [str(i) for i in range(1, 1001)]
    assert asked == 1000


# --- bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inner",
    [b"x", b"<!-- x -->", b"<y/>", b"<y z='1'>t</y>", b"<![CDATA[<a>]]>"],
    ids=["text", "comments", "tags", "elements", "cdata"],
)
def test_a_document_over_the_limit_is_passed_over(inner: bytes) -> None:
    reader = Reader(limits=Limits(bytes=1000))
    data = b"<a/><big>" + inner * 2000 + b"</big><b/>"
    tables, rejects = outcome(split(data, list(range(0, len(data), 700))), reader=reader)
    assert [offset for offset, _ in tables] == [0, len(data) - 4]
    ((offset, head, message),) = rejects
    assert (offset, head) == (4, data[4:1004])
    assert "limit of 1,000 bytes" in message


@pytest.mark.parametrize(
    ("before", "unit", "after"),
    [
        (b"<big>", b"x", b"</big>"),
        (b"<big><!--", b"x", b"--></big>"),
        (b"<big><![CDATA[", b"x", b"]]></big>"),
        (b"<big><?p ", b"x", b"?></big>"),
        (b"<big a='", b"x", b"'/>"),
        (b"<!DOCTYPE a [", b"<!ENTITY a 'b'>", b"]><big/>"),
    ],
    ids=["text", "comment", "cdata", "instruction", "attribute", "doctype"],
)
def test_memory_is_bounded_whatever_is_long(before: bytes, unit: bytes, after: bytes) -> None:
    reader = Reader(limits=Limits(bytes=10_000))
    held = 0

    def chunks() -> Iterator[bytes]:
        nonlocal held
        yield b"<a/>" + before
        for _ in range(2000):
            yield unit * (1000 // len(unit))
            held = max(held, _held(stream))
        yield after + b"<c/>"

    rejects: list[Reject] = []
    stream = read_stream(chunks(), reader=reader, rejects=rejects.append)
    assert [table.name(0) for table in stream] == ["a", "c"]
    assert [type(reject.error) for reject in rejects] == [labeling.LimitExceeded]
    assert len(rejects[0].data) <= 4096
    assert held <= 12_000


def _held(stream: labeling.Stream) -> int:
    return stream._scanner.held


def test_a_long_comment_between_records_is_not_kept() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"<r><!--"
        for _ in range(1000):
            yield b"x" * 1000
            assert _held(stream) < 3000
        yield b"--><rec/></r>"

    stream = read_stream(chunks(), record="rec", reader=Reader(limits=Limits(bytes=10_000)))
    assert len(list(stream)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"<a>" * 300_000,
        b"<a><b>" * 150_000,
        b"<a><a/>" * 15_000,
        b"<a>" * 300_000 + b"</b>",
        b"<" * 100_000,
        b"<a " * 30_000,
        b"<!--" * 300_000,
        b"<![CDATA[" * 100_000,
        b"</a>" * 10_000,
        b"<a><!DOCTYPE" * 10_000,
        b"&" * 1_000_000,
    ],
    ids=lambda data: data[:8].decode(),
)
@pytest.mark.parametrize("record", [None, "a"])
def test_hostile_streams_take_linear_time(data: bytes, record: str | None) -> None:
    # Four times as long; quadratic cutting would take sixteen times as long.
    assert cutting(data, record) < 10 * cutting(data[: len(data) // 4], record) + 0.05


def cutting(data: bytes, record: str | None) -> float:
    """CPU seconds that it takes to cut and reject a stream."""
    rejects: list[Reject] = []
    chunks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    # The collector looks at all that the process holds, again and again as rejects pile up.
    gc.collect()
    gc.disable()
    begin = time.process_time()
    try:
        for _ in read_stream(chunks, record=record, rejects=rejects.append):
            pass
        taken = time.process_time() - begin
    finally:
        gc.enable()
    assert rejects or record
    return taken


def test_utf16_is_refused_by_name() -> None:
    with pytest.raises(labeling.EncodingError, match="UTF-16"):
        next(read_stream("<a/>".encode("utf-16")))


# --- sources --------------------------------------------------------------------------------


def test_sources_of_all_kinds(tmp_path: Path) -> None:
    data = b"<a/>" * 3
    path = tmp_path / "stream.xml"
    path.write_bytes(data)
    for source in (data, path, str(path), io.BytesIO(data), [data[:5], b"", data[5:]]):
        assert len(list(read_stream(source))) == 3
    table = next(read_stream(path))
    assert table.source == str(path)
    assert next(read_stream(data, name="here")).source == "here"
    assert list(read_stream(b"")) == []
    assert list(read_stream(b" \n ")) == []
