"""Records out of byte ranges: gathered as cut, begun where they begin, read as one by one."""

from __future__ import annotations

import itertools
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware import labeling
from fmware.labeling import CHARACTER_ENTITIES, Limits, Reader, Vocabulary, _kernel
from fmware.labeling.records import (
    BEGINNING,
    Batch,
    Piece,
    RangeReport,
    ScanContext,
    Start,
    agree,
    cut_range,
    cut_stream,
    exact_starts,
    head,
)
from tests.labeling.documents import xml_documents
from tests.labeling.test_stream import BAD, GOOD, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fmware.labeling import NodeTable

SOME = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=200, deadline=None)
HUGE = 1 << 40
READER = Reader(entities=CHARACTER_ENTITIES)

# What may stand in a file of records, named rec and oth: good, bad, and misleading.
PARTS = (
    b"<rec>1</rec>",
    b"<rec a='1'/>\r\n",
    b"<rec><x/>2<rec>3</rec><oth/></rec>\n",
    b"<oth>4<y z='>'>5</y></oth> ",
    b"<group>",
    b"</group>",
    b"<group xmlns='urn:g'>",
    b'<group xmlns:p="urn:p">',
    b"<p:rec/>",
    b"<record/>",
    b"<!-- <rec>6</rec> -->",
    b"<!-- <rec>7</rec> <group> <rec/> <oth>8</oth>" + b" <rec>no</rec>" * 9 + b" -->",
    b"<![CDATA[ <rec>9</rec> ]]>",
    b"<rec><![CDATA[<rec>]]><!-- <oth> --><?p </rec>?></rec>",
    b"<?p <rec>10</rec> ?>",
    b"<x y=' <rec/> '/>",
    b'<x y="/rec> &lt;rec>">11</x>',
    b" text ",
    b"</wrong>",
    b"</rec>",
    b"<rec>12<x>",
    b"<rec>13</oth>",
    b"<rec>14<rec>15</rec><z>",
    b"<rec>a < b</rec>",
    b"<",
    b"<rec",
    b"<rec <oth/>",
    b"<rec>" + b"<y>16</y>" * 12 + b"</rec>",
    b"<rec" + b" " * 90 + b"/>",
    b"<rec>\xfc&uuml;</rec>",
    b"<?xml version='1.0' encoding='UTF-8'?>",
    b"<!DOCTYPE r [<!ENTITY me 'M'>]>",
)
ENDINGS = (
    b"",
    b"</r>",
    b"<!-- <rec>17</rec>",
    b"<rec><!-- <rec>18</rec>",
    b"<![CDATA[<rec/>",
    b"<rec>",
)
BEGINNINGS = (b"<r>", b"\xef\xbb\xbf<?xml version='1.0'?>\r\n<r>", b"<r xmlns='urn:r'><group>", b"")
NAMES = ("rec", "oth")

files = st.builds(
    lambda begin, parts, end: begin + b"".join(parts) + end,
    st.sampled_from(BEGINNINGS),
    st.lists(st.sampled_from(PARTS), max_size=14),
    st.sampled_from(ENDINGS),
)
Found = tuple[bytes, int, int, bool, tuple[bytes, bytes, bytes]]


# --- gathering ------------------------------------------------------------------------------


def by_cutting(
    chunks: Sequence[bytes], names: Sequence[str], limit: int
) -> list[tuple[object, ...]]:
    """All pieces of a stream, with what is around them, one by one."""
    scanner = _kernel.Scanner([name.encode() for name in names], limit)
    found: list[tuple[object, ...]] = []
    for chunk in [*chunks, None]:
        if chunk is None:
            scanner.finish()
        else:
            scanner.feed(chunk)
        while (piece := scanner.cut()) is not None:
            found.append((piece, around(scanner)))
    return found


def by_gathering(
    chunks: Sequence[bytes], names: Sequence[str], limit: int, size: int
) -> list[tuple[object, ...]]:
    """The same, a batch at a time; of gathered pieces the lines are not known."""
    scanner = _kernel.Scanner([name.encode() for name in names], limit)
    found: list[tuple[object, ...]] = []
    for chunk in [*chunks, None]:
        if chunk is None:
            scanner.finish()
        else:
            scanner.feed(chunk)
        while True:
            batch = scanner.gather(size)
            if batch is not None:
                found += (((*piece, False), batch[4]) for piece in apart(batch))
            elif (piece := scanner.cut()) is not None:
                found.append((piece, around(scanner)))
            else:
                break
    return found


def around(scanner: _kernel.Scanner) -> tuple[object, ...]:
    return scanner.declaration or b"", scanner.doctype or b"", tuple(scanner.ancestors)


def apart(batch: tuple[Any, ...]) -> Iterator[tuple[bytes, int, None, None, int]]:
    data, offsets, sizes, levels, _ = batch
    assert (offsets.dtype, sizes.dtype, levels.dtype) == (np.int64, np.int64, np.int16)
    assert int(sizes.sum()) == len(data)
    at = 0
    for offset, size, level in zip(offsets, sizes, levels, strict=True):
        yield data[at : at + size], int(offset), None, None, int(level)
        at += int(size)


def without_lines(found: list[tuple[Any, ...]], like: list[tuple[Any, ...]]) -> list[object]:
    """The pieces of `found`, with lines only where `like` has them."""
    return [
        ((*piece[:2], None, None, *piece[4:]), context) if other[0][2] is None else (piece, context)
        for (piece, context), other in itertools.zip_longest(found, like, fillvalue=((0,) * 6, 0))
    ]


def assert_gathered_as_cut(data: bytes, cuts: list[int], names: Sequence[str], limit: int) -> None:
    expected = by_cutting([data], names, limit)
    for size in (1, 40, HUGE):
        for chunks in ([data], split(data, cuts), [bytes([byte]) for byte in data]):
            found = by_gathering(chunks, names, limit, size)
            assert found == without_lines(expected, found)


@SOME
@given(
    st.lists(st.one_of(st.sampled_from(BAD + GOOD), xml_documents(depth=1)), max_size=6),
    st.lists(st.integers(0, 10**6), max_size=8),
    st.sampled_from(("a", "record")),
    st.sampled_from((24, HUGE)),
)
def test_documents_are_gathered_as_they_are_cut(
    pieces: list[bytes], cuts: list[int], record: str, limit: int
) -> None:
    assert_gathered_as_cut(b"\n".join(pieces), cuts, [record], limit)


@MANY
@given(files, st.lists(st.integers(0, 10**6), max_size=8), st.sampled_from((24, 100, HUGE)))
def test_records_are_gathered_as_they_are_cut(data: bytes, cuts: list[int], limit: int) -> None:
    assert_gathered_as_cut(data, cuts, NAMES, limit)


def test_whole_records_go_together_and_a_bad_one_by_itself() -> None:
    data = b"<r><rec>1</rec>\n<rec/><rec>2<x></rec><rec>3</rec></r>"
    found = list(cut_stream([data], ["rec"]))
    assert [type(each) for each in found] == [Batch, Piece, Batch]
    one, bad, two = found
    assert isinstance(one, Batch)
    assert isinstance(bad, Piece)
    assert isinstance(two, Batch)
    assert (one.data, one.offsets.tolist()) == (b"<rec>1</rec><rec/>", [3, 16])
    assert (bad.data, bad.offset, bad.line, bad.column) == (b"<rec>2<x></rec>", 22, 2, 7)
    assert [piece.data for piece in two.pieces()] == [b"<rec>3</rec>"]


def test_a_batch_shares_what_is_around_it() -> None:
    data = (
        b"<r><rec/><a><rec/></a><b xmlns='u'><rec/></b><b xmlns='u'><rec/></b>"
        b"<b xmlns='v'><rec/></b><rec/></r>"
    )
    batches = [batch for batch in cut_stream([data], ["rec"]) if isinstance(batch, Batch)]
    assert [(len(batch), batch.context.namespaces) for batch in batches] == [
        (2, b""),
        (2, b"xmlns='u'"),
        (1, b"xmlns='v'"),
        (1, b""),
    ]
    assert [batch.levels.tolist() for batch in batches] == [[1, 2], [2, 2], [2], [1]]


def test_batches_are_of_about_the_size_that_is_asked_for() -> None:
    data = b"<r>" + b"<rec>12345</rec>" * 1000 + b"</r>"
    sizes = [len(batch.data) for batch in cut_stream([data], ["rec"], size=1600)]
    assert sizes == [1600] * 10


def test_documents_are_not_gathered() -> None:
    scanner = _kernel.Scanner()
    with pytest.raises(ValueError, match="records"):
        scanner.gather(1)
    with pytest.raises(ValueError, match="records"):
        scanner.seek(1)
    with pytest.raises(ValueError, match="records"):
        _kernel.Scanner(context=ScanContext())
    with pytest.raises(ValueError, match="at least one"):
        head([b""], [])


# --- ranges ---------------------------------------------------------------------------------


def opener(data: bytes, chunk: int = 1 << 18) -> Callable[[int], Iterable[bytes]]:
    return lambda offset: (data[at : at + chunk] for at in range(offset, len(data), chunk))


def flat(found: Iterable[Batch | Piece]) -> list[Found]:
    pieces = itertools.chain.from_iterable(
        [each] if isinstance(each, Piece) else each.pieces() for each in found
    )
    return [
        (
            piece.data,
            piece.offset,
            piece.level,
            piece.over,
            (piece.context.declaration, piece.context.doctype, piece.context.namespaces),
        )
        for piece in pieces
    ]


def in_ranges(
    data: bytes, edges: Sequence[int], limit: int, chunk: int = 1 << 18
) -> tuple[list[list[Found]], int | None]:
    """What the ranges hold, each done again from its true start if it has to be.

    Also the number of the first that had to.
    """
    open_at = opener(data, chunk)
    ranges = [
        cut_range(open_at, begin, end, NAMES, limit=limit, size=50)
        for begin, end in itertools.pairwise(edges)
    ]
    found = [flat(each) for each in ranges]
    reports = [each.report for each in ranges]
    assert pickle.loads(pickle.dumps(reports)) == reports
    bad = agree(reports)
    if bad is not None:
        again = list(range(bad, len(ranges)))
        starts = exact_starts(open_at, [edges[number] for number in again], NAMES, limit=limit)
        for number, start in zip(again, starts, strict=True):
            exact = cut_range(
                open_at,
                edges[number],
                edges[number + 1],
                NAMES,
                start.context,
                first=start.offset,
                limit=limit,
                size=50,
            )
            found[number] = flat(exact)
            reports[number] = exact.report
        assert agree(reports) is None
    return found, bad


def joined(found: list[list[Found]]) -> list[Found]:
    return list(itertools.chain.from_iterable(found))


@settings(max_examples=400, deadline=None)
@given(
    files,
    st.lists(st.integers(0, 10**6), max_size=6),
    st.sampled_from((24, 100, HUGE)),
    st.sampled_from((7, 1 << 18)),
)
def test_every_piece_comes_once_whatever_the_ranges(
    data: bytes, cuts: list[int], limit: int, chunk: int
) -> None:
    expected = flat(cut_stream([data], NAMES, limit=limit))
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    found, _ = in_ranges(data, edges, limit, chunk)
    assert joined(found) == expected


@MANY
@given(files, st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_ranges_that_agree_are_right_and_so_are_all_before_one_that_does_not(
    data: bytes, cuts: list[int]
) -> None:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    ranges = [
        cut_range(opener(data), begin, end, NAMES) for begin, end in itertools.pairwise(edges)
    ]
    found = [flat(each) for each in ranges]
    bad = agree([each.report for each in ranges])
    right = joined(found[:bad])
    expected = flat(cut_stream([data], NAMES))
    assert right == (expected if bad is None else expected[: len(right)])


@pytest.mark.parametrize("parts", [2, 3, 7, 16, 33, 64])
def test_one_file_cut_many_ways(parts: int) -> None:
    groups = b"<group>" + b"<rec k='>'>x<![CDATA[<rec>]]></rec>\r\n<oth><rec>y</rec></oth>" * 8
    data = b"\xef\xbb\xbf<?xml version='1.0'?>\r\n<r xmlns='u'>" + (groups + b"</group>\r\n") * 5
    data += b"</r>"
    expected = flat(cut_stream([data], NAMES))
    assert len(expected) == 80
    edges = [len(data) * part // parts for part in range(parts + 1)]
    assert joined(in_ranges(data, edges, HUGE)[0]) == expected


def test_in_a_plain_file_every_guess_is_true() -> None:
    group = b"<group>" + b"<rec>\xfc</rec>\n" * 20 + b"</group>"
    data = b"<?xml version='1.0' encoding='ISO-8859-1'?><r>" + group * 20 + b"</r>"
    for parts in range(2, 65):
        edges = [len(data) * part // parts for part in range(parts + 1)]
        found, bad = in_ranges(data, edges, HUGE)
        assert bad is None
        assert joined(found) == flat(cut_stream([data], NAMES))


# Each has a place at which a range may begin, and a whole range within what misleads it.
MISLEADING = {
    "comment": (b"<!--", b"<rec>no</rec>" * 30, b"-->"),
    "cdata": (b"<![CDATA[", b"<rec>no</rec>" * 30, b"]]>"),
    "instruction": (b"<?p ", b"<rec>no</rec>" * 30, b"?>"),
    "inner records": (b"<oth>", b"<rec>inner</rec>" * 30, b"</oth>"),
    "comment in a record": (b"<rec><!--", b"<rec>no</rec>" * 30, b"--></rec>"),
    "cdata in a record": (b"<rec><![CDATA[", b"<rec>no</rec>" * 30, b"]]></rec>"),
    "namespaces": (b"<group xmlns='u'>", b"<rec>yes</rec>" * 30, b"</group>"),
    "depth": (b"<group>", b"<rec>yes</rec>" * 30, b"</group>"),
    "a doctype": (b"<!DOCTYPE r [<!ENTITY a 'b'>]>", b"<rec>yes</rec>" * 30, b""),
    "bad records": (b"<rec><x>", b"<rec>no</rec>" * 30, b"</y>"),
}


@pytest.mark.parametrize("kind", MISLEADING)
def test_a_false_start_is_found_out(kind: str) -> None:
    begin, inner, end = MISLEADING[kind]
    data = b"<r><rec>1</rec>" + begin + inner + end + b"<rec>2</rec><rec>3</rec></r>"
    at = data.index(inner)
    expected = flat(cut_stream([data], NAMES))
    # The second range begins inside, and the third too: the second lies wholly within.
    edges = [0, at + len(inner) // 3, at + len(inner) * 2 // 3, data.index(b"<rec>2"), len(data)]
    found, bad = in_ranges(data, edges, HUGE)
    assert bad == 1
    assert joined(found) == expected
    # Two false ranges that agree with each other do not hide it.
    ranges = [cut_range(opener(data), *span, NAMES) for span in itertools.pairwise(edges)]
    for each in ranges:
        list(each)
    assert ranges[1].report.next == ranges[2].report.first
    assert agree([each.report for each in ranges]) == 1


def test_attribute_values_that_look_like_records() -> None:
    # No XML, but it must not mislead either.
    data = b"<r><x a='" + b"<rec/>" * 20 + b"'/><rec>1</rec></r>"
    for edge in range(1, len(data)):
        found, _ = in_ranges(data, [0, edge, len(data)], HUGE)
        assert joined(found) == flat(cut_stream([data], NAMES))


def test_a_file_that_breaks_off_in_a_comment() -> None:
    # The first comment that never ends is met inside a record. So it is known of the second, too,
    # that it has no end, and the record in it counts; a range of its own would not know.
    data = b"<r><rec><!-- <rec>1</rec><rec>2</rec></r><!-- <rec>3</rec>"
    edges = [0, data.index(b"<rec>2"), len(data)]
    found, bad = in_ranges(data, edges, HUGE)
    assert bad == 1
    assert joined(found) == flat(cut_stream([data], NAMES))
    assert found[1][-1][0] == b"<rec>3</rec>"


def test_ranges_without_records() -> None:
    long = b"<rec>" + b"x" * 1000 + b"</rec>"
    data = b"<r>" + long + b" " * 1000 + b"<!--" + b" " * 1000 + b"-->" + long + b"<rec/></r>"
    for parts in (5, 20, 60):
        edges = [len(data) * part // parts for part in range(parts + 1)]
        found, bad = in_ranges(data, edges, HUGE)
        assert bad is None
        assert joined(found) == flat(cut_stream([data], NAMES))
        assert [] in found


def test_what_agreement_is() -> None:
    here, there = ScanContext(names=(b"r",)), ScanContext(names=(b"r", b"g"))

    def chain(*ends: tuple[Start | None, Start | None]) -> int | None:
        reports = [
            RangeReport(10 * number, 10 * number + 10, first, after)
            for number, (first, after) in enumerate(ends)
        ]
        return agree(reports)

    assert chain() is None
    assert chain((BEGINNING, None)) is None
    assert chain((None, None)) == 0
    assert chain((BEGINNING, Start(12, here)), (Start(12, here), None)) is None
    assert chain((BEGINNING, Start(12, here)), (Start(13, here), None)) == 1
    assert chain((BEGINNING, Start(12, here)), (Start(12, there), None)) == 1
    assert chain((BEGINNING, Start(12, here)), (None, None)) == 1
    assert chain((BEGINNING, None), (Start(12, here), None)) == 1
    # One record over the whole of the second range, in which something looks like a record.
    assert chain((BEGINNING, Start(22, here)), (None, None), (Start(22, here), None)) is None
    assert (
        chain((BEGINNING, Start(22, here)), (Start(15, here), Start(22, here)), (None, None)) == 1
    )
    assert chain((BEGINNING, Start(22, here)), (None, None), (Start(21, here), None)) == 2
    assert chain((BEGINNING, None), (None, None), (Start(21, here), None)) == 2


@MANY
@given(
    st.lists(st.sampled_from([*PARTS[:4], b"<!-- <rec/> -->", b"<x>", b"</x>"]), max_size=12),
    st.lists(st.integers(0, 400), max_size=9),
)
def test_exact_starts_are_the_first_records_behind(parts: list[bytes], places: list[int]) -> None:
    data = b"<r>" + b"".join(parts)
    pieces = flat(cut_stream([data], NAMES))
    offsets = [offset for piece, offset, *_ in pieces if piece.startswith((b"<rec", b"<oth"))]
    begins = sorted({place % (len(data) + 1) for place in places})
    starts = exact_starts(opener(data, 11), begins, NAMES)
    expected = [
        0 if begin == 0 else min((at for at in offsets if at >= begin), default=len(data))
        for begin in begins
    ]
    assert [start.offset for start in starts] == expected


def test_the_context_at_the_first_record() -> None:
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number, chunk in enumerate(
            (b"<?xml version='1.0'?><!DOCTYPE", b" r><r xmlns='u'><g", b"><rec>", b"</rec></g></r>")
        ):
            read.append(number)
            yield chunk

    context = head(chunks(), ["rec"])
    assert context == ScanContext(
        b"<?xml version='1.0'?>", b"<!DOCTYPE r>", (b"r", b"g"), ((0, b"<r xmlns='u'>"),)
    )
    assert (context.level, context.namespaces) == (2, b"xmlns='u'")
    assert read == [0, 1, 2]
    assert head([b"<r><!-- <rec/> --></r>"], ["rec"]) is None
    assert pickle.loads(pickle.dumps(context)) == context


def test_a_range_has_no_report_before_it_is_cut() -> None:
    cut = cut_range(opener(b"<r/>"), 0, 4, NAMES)
    with pytest.raises(ValueError, match="before"):
        _ = cut.report
    assert list(cut) == []
    assert cut.report == RangeReport(0, 4, BEGINNING, None)


def test_utf16_is_refused() -> None:
    data = "<r><rec/></r>".encode("utf-16")
    with pytest.raises(labeling.EncodingError, match="UTF-16"):
        list(cut_range(opener(data), 0, len(data), NAMES))
    with pytest.raises(labeling.EncodingError, match="UTF-16"):
        list(cut_stream([data], NAMES))


# --- reading --------------------------------------------------------------------------------

COLUMNS = ("kind", "level", "start", "end")


def named(table: NodeTable) -> list[str]:
    return [table.name(row) for row in range(len(table))]


def assert_read_as_one_by_one(reader: Reader, found: Iterable[Batch | Piece]) -> int:
    """Whether the batches among the pieces are read as their records are; how many records."""
    count = 0
    for batch in found:
        if isinstance(batch, Piece):
            continue
        context: dict[str, Any] = {
            "declaration": batch.context.declaration,
            "doctype": batch.context.doctype,
            "namespaces": batch.context.namespaces,
        }
        try:
            expected = [
                reader.read_record(piece.data, base=piece.offset, level=piece.level, **context)
                for piece in batch.pieces()
            ]
        except labeling.ReadError:
            assert reader.read_records(*columns(batch), **context) is None
            continue
        read = reader.read_records(*columns(batch), **context)
        if read is None:
            continue
        table, firsts = read
        count += len(expected)
        assert_joined(table, firsts.tolist(), expected)
    return count


def columns(batch: Batch) -> tuple[Any, Any, Any, Any]:
    return batch.data, batch.sizes, batch.offsets, batch.levels


def assert_joined(table: NodeTable, firsts: list[int], expected: list[NodeTable]) -> None:
    lengths = [len(each) for each in expected]
    assert firsts == [0, *itertools.accumulate(lengths)][:-1]
    assert len(table) == sum(lengths)
    for name in COLUMNS:
        wanted = np.concatenate([getattr(each, name) for each in expected])
        assert getattr(table, name).dtype == wanted.dtype
        assert getattr(table, name).tolist() == wanted.tolist()
    for first, each in zip(firsts, expected, strict=True):
        parent = table.parent[first : first + len(each)].astype(np.int64)
        assert np.where(parent >= 0, parent - first, -1).tolist() == each.parent.tolist()
    assert named(table) == [name for each in expected for name in named(each)]
    assert table.has_values == expected[0].has_values
    if table.has_values:
        values = [each.value(row) for each in expected for row in range(len(each))]
        assert [table.value(row) for row in range(len(table))] == values


def whole(
    data: bytes, reader: Reader = READER, record: Sequence[str] = NAMES
) -> tuple[NodeTable, list[int]] | None:
    """One batch of all records, read at once."""
    (batch,) = cut_stream([data], record)
    assert isinstance(batch, Batch)
    context = batch.context
    read = reader.read_records(
        *columns(batch),
        declaration=context.declaration,
        doctype=context.doctype,
        namespaces=context.namespaces,
    )
    return None if read is None else (read[0], read[1].tolist())


HEADS = (
    b"",
    b"<?xml version='1.0' encoding='ISO-8859-1'?>\r\n",
    b"<?xml version='1.0'\n encoding='windows-1252'?>",
    (
        b"<?xml version='1.0'?><!DOCTYPE r [<!ENTITY me 'M'><!ENTITY uuml 'ue'>"
        b"<!ENTITY q \"'\"><!ENTITY none ''><!ENTITY two 'a b'>]>"
    ),
    b"<!DOCTYPE r [<!ENTITY nl '&#10;'><!ENTITY gt2 '>'>]>",
    b"<!DOCTYPE r [<!ATTLIST a b CDATA 'c'>]>",
    b"<?xml encoding='UTF-8'?>",
    b"<?xml version='1.0' encoding='unknown-1'?>",
    b"<?xml version='1.0' encoding='iso-2022-jp'?>",
)
CONTENTS = (
    b"<rec>1</rec>",
    b"<rec a='&uuml;' p:b=\"&me;&amp;\">&uuml;&eacute;<x/> &#252;&lt;&quot;</rec>\r\n",
    b"<rec>\r\n<![CDATA[&uuml;\r\n]]>&uuml;<!-- &uuml; &nope; -->x<?p &uuml;?></rec>",
    b"<rec><!-- c --><y> </y>\n</rec>",
    b"<rec>a&none;b<z>&none;</z>&two;]]&gt2;</rec>",
    b"<rec x='&q;&nl;'>&q;&nl;</rec>",
    b"<oth><rec>2</rec><rec xmlns='urn:i'>3</rec></oth>",
    b"<rec>\xfc</rec>",
    b"<rec>\x80</rec>",
    b"<rec>\xc3\xbc\xe2\x82\xac</rec>",
    b"<rec \xfc='1'/>",
    b"<rec>&nope;</rec>",
    b"<rec>& &; &#xZ; &#0;</rec>",
    b"<rec><unknown:x/></rec>",
    b"<rec a='1' a='2'/>",
    b"<group xmlns='urn:\xc3\xbc'>",
    b"</group>",
    b"<rec><fm>4</fm></rec>",
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(HEADS),
    st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=6),
    st.sampled_from((None, CHARACTER_ENTITIES, {"uuml": "u", "nope": "<", "me": "&", "q": "\t"})),
    st.booleans(),
    st.booleans(),
)
def test_records_are_read_as_one_by_one(
    start: bytes,
    contents: list[bytes],
    entities: dict[str, str] | None,
    values: bool,
    blanks: bool,
) -> None:
    data = start + b"<r xmlns:p='urn:p'>" + b"".join(contents) + b"</r>"
    reader = Reader(Vocabulary(), entities=entities, values=values, blanks=blanks)
    assert_read_as_one_by_one(reader, cut_stream([data], NAMES))


@MANY
@given(st.lists(xml_documents(names=("rec", "a"), depth=2), min_size=1, max_size=4))
def test_any_records_are_read_as_one_by_one(documents: list[bytes]) -> None:
    data = b"<r>" + b"".join(documents).replace(b"<?xml ", b"<?x ") + b"</r>"
    assert_read_as_one_by_one(READER, cut_stream([data], ["rec"]))


@pytest.mark.parametrize("start", HEADS[:4])
def test_good_records_are_read_together(start: bytes) -> None:
    data = start + b"<r xmlns='urn:r' xmlns:p='urn:p'><g>"
    data += b"".join(CONTENTS[at] for at in (0, 2, 3, 6)) + b"</g></r>"
    assert assert_read_as_one_by_one(READER, cut_stream([data], NAMES)) == 4


def test_characters_of_the_encoding_and_by_name() -> None:
    data = "<?xml version='1.0' encoding='%s'?><r><rec>ü&euro;\x80</rec><rec a='é'>&uuml;</rec></r>"
    for encoding in ("ISO-8859-1", "UTF-8"):
        read = whole((data % encoding).encode(encoding))
        assert read is not None
        table, firsts = read
        assert [table.string_value(first) for first in firsts] == ["ü€\x80", "ü"]
    read = whole((data % "windows-1252").replace("\x80", "€").encode("cp1252"))
    assert read is not None
    assert read[0].string_value(0) == "ü€€"


def test_what_the_doctype_declares_wins() -> None:
    data = b"<!DOCTYPE r [<!ENTITY uuml 'ue'>]><r><rec>&uuml;&ouml;</rec></r>"
    read = whole(data)
    assert read is not None
    assert read[0].string_value(0) == "ueö"


def test_the_root_around_leaves_no_trace() -> None:
    vocabulary = Vocabulary()
    read = whole(b"<r><rec><x/></rec><rec/></r>", Reader(vocabulary))
    assert read is not None
    assert vocabulary.names[2:] == ("rec", "x")
    assert (read[1], read[0].parent.tolist()) == ([0, 2], [-1, 0, -1])
    assert read[0].root is None


def test_limits_are_those_of_a_record() -> None:
    data = b"<r>" + b"<rec><x><y/></x>1</rec>" * 50 + b"</r>"
    assert whole(data, Reader(limits=Limits(nodes=4, depth=3))) is not None
    assert whole(data, Reader(limits=Limits(nodes=3))) is None
    assert whole(data, Reader(limits=Limits(depth=2))) is None
    assert whole(data, Reader(limits=Limits(bytes=23))) is not None
    assert whole(data, Reader(limits=Limits(bytes=22))) is None
    long = b"<r>" + b"<rec a='123'>12345</rec>" * 5 + b"</r>"
    assert whole(long, Reader(limits=Limits(attribute=3, text=5))) is not None
    assert whole(long, Reader(limits=Limits(attribute=2, text=5))) is None
    assert whole(long, Reader(limits=Limits(attribute=3, text=4))) is None


def test_depth_counts_from_the_record() -> None:
    data = b"<a><b><c><rec><x/></rec></c></b></a>"
    assert whole(data, Reader(limits=Limits(depth=2))) is not None
    assert whole(data, Reader(limits=Limits(depth=1))) is None


def test_what_is_not_one_element_a_piece_is_not_read_together() -> None:
    def read(data: bytes, count: int) -> object:
        sizes = np.full(count, 1, np.int64)
        offsets = np.arange(count, dtype=np.int64) * 100
        return READER.read_records(data, sizes, offsets, np.zeros(count, np.int16))

    assert read(b"<rec/><rec/>", 2) is not None
    assert read(b"<rec/><rec/>", 1) is None
    assert read(b"<rec/><rec/>", 3) is None
    assert read(b"<rec/> <rec/>", 2) is None
    assert read(b"<rec/><!-- --><rec/>", 2) is None
    assert read(b"<rec/><?p?><rec/>", 2) is None
    assert read(b"<rec/></fm><fm><rec/>", 2) is None
    assert read(b"", 0) is None
    assert read(b"<rec/><rec>", 2) is None
    assert read(b"<rec/><rec/>", 2) is not None


def test_a_closed_vocabulary_stays_closed() -> None:
    reader = Reader(Vocabulary(["rec"]), grow=False)
    read = whole(b"<r><rec><x/></rec><rec/></r>", reader)
    assert read is not None
    assert read[0].tag.tolist() == [2, 1, 2]
    assert read[0].known == 3


def test_without_events_records_are_read_one_by_one() -> None:
    before = _kernel.use_events(wanted=False)
    try:
        assert whole(b"<r><rec/></r>", Reader()) is None
    finally:
        _kernel.use_events(before)


def test_a_comment_is_no_record() -> None:
    for data in (b"<!-- c -->", b"<?p?>"):
        with pytest.raises(labeling.MalformedXML, match="not an element"):
            READER.read_record(data)
