"""Values that the index keeps are those of the records, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.index import FormatMismatch, Index
from fmware.index import format as form
from fmware.index.verify import verify
from fmware.index.writer import Writer
from fmware.labeling import (
    ATTRIBUTE,
    CHARACTER_ENTITIES,
    ELEMENT,
    TEXT,
    NodeTable,
    Reader,
    Vocabulary,
)
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, MemoryRun, Source, Tag, open_run, store
from fmware.labeling.ses import PATH
from fmware.labeling.values import ELSEWHERE, INNER, LONGEST, SPLIT, Values
from tests.index import oracle

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = st.sampled_from(
    [
        "plain",
        " ",
        "\n\t",
        "&amp;&lt;&#228;",
        "<![CDATA[<raw> & ]]>",
        "<![CDATA[]]>",
        "<!-- a comment -->",
        "<?an instruction?>",
        "ü€𝄞",
        "&uuml;",
        "x" * LONGEST,
        "y" * (LONGEST + 1),
    ]
)
VALUES = st.sampled_from(["", " a  b ", "&quot;&#10;", "ü", "z" * LONGEST, "z" * (LONGEST + 1)])


def _element(name: str, attributes: dict[str, str], inside: list[str]) -> str:
    given = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f'<{name} xmlns:p="urn:p"{given}>{"".join(inside)}</{name}>'


def _elements(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(["a", "b", "p:a", "c"])
    attributes = st.dictionaries(st.sampled_from(["k", "p:k"]), VALUES, max_size=2)
    return st.builds(_element, names, attributes, st.lists(inside, max_size=4))


RECORDS = st.lists(_elements(st.recursive(TEXTS, _elements, max_leaves=10)), min_size=1, max_size=5)


def labelled(records: Sequence[str], base: int) -> tuple[MemoryRun, list[NodeTable], int]:
    """A run of records, their tables, and the label behind them."""
    reader = Reader(Vocabulary(), entities=CHARACTER_ENTITIES)
    labeller = Labeller([PATH], reader.vocabulary)
    tables, low = [], base
    sources = [record.encode() for record in records]
    high = low + sum(map(len, sources))
    for source in sources:
        table = reader.read(source, base=base)
        labeller.add(
            table,
            np.zeros(1, np.int64),
            Source("records.xml", low, high - low),
            source,
            np.array([len(source)], np.int64),
            Context(document=True),
        )
        tables.append(table)
        base += len(source)
    return labeller.finish(), tables, base


def expected(table: NodeTable, row: int) -> tuple[int, str | None]:
    """What is to be kept of a node, by looking at it."""
    value = table.string_value(row)
    if table.kind[row] == ATTRIBUTE:
        texts, inner = 1, False
    else:
        inside = range(row + 1, row + table.size(row))
        inner = any(table.kind[at] == ELEMENT for at in inside)
        texts = sum(table.kind[at] == TEXT for at in inside)
    if inner:
        return ELSEWHERE | INNER, None
    split = table.kind[row] == ELEMENT and texts != bool(value)
    mark = SPLIT if split else 0
    if len(value.encode()) > LONGEST:
        return mark | ELSEWHERE, None
    return mark, value


def check(index: Index, tables: Sequence[NodeTable]) -> None:
    """All nodes of the tables have their values, and there are no others."""
    wanted: dict[Tag, dict[int, tuple[int, str | None]]] = {}
    for table in tables:
        for row in range(len(table)):
            if table.kind[row] != TEXT:
                tag = Tag(int(table.kind[row]), table.name(row))
                wanted.setdefault(tag, {})[int(table.start[row])] = expected(table, row)
                if tag.kind or not wanted[tag][int(table.start[row])][0] & ELSEWHERE:
                    assert index.value(int(table.start[row])) == table.string_value(row)
    for tag, nodes in wanted.items():
        found = {}
        for segment in index.segments:
            starts = [start for start in nodes if segment.low <= start < segment.high]
            rows = segment.locate(tag, np.array(starts[::-1] + starts[:1], np.int64))
            values = segment.values(tag, rows)
            lists = segment.files.lists[tag] if starts else None
            for at, start in enumerate(starts[::-1]):
                found[start] = int(values.mark[at]), values.text(at)
                assert lists is not None
                end, level, value = lists.values.described(lists.nodes, start, wanted=True) or (
                    0,
                    0,
                    "?",
                )
                labels = segment.at(tag, rows[at : at + 1])
                assert (end, level, value) == (labels.end[0], labels.level[0], found[start][1])
                assert lists.values.described(lists.nodes, start + 1, wanted=False) is None or (
                    start + 1 in nodes
                )
        assert found == nodes


@settings(max_examples=60, deadline=None)
@given(RECORDS, RECORDS, st.data())
def test_values_are_those_of_records(
    first: list[str], second: list[str], data: st.DataObject
) -> None:
    blocks = oracle.small_blocks(data.draw(st.sampled_from([1, 3, 4000])))
    with tempfile.TemporaryDirectory() as scratch, blocks:
        folder = Path(scratch) / "index"
        run, tables, high = labelled(first, 5)
        store(run, Path(scratch) / "run")
        with Writer.create(folder, schemes=[PATH]) as writer:
            writer.append([open_run(Path(scratch) / "run")], high=high)
            with Index.open(folder) as index:
                check(index, tables)
            run, more, high = labelled(second, high)
            writer.append([run], high=high)
            with Index.open(folder) as index:
                check(index, tables + more)
            left = []
            for table in tables + more:
                if data.draw(st.booleans()):
                    left.append(table)
                else:
                    writer.remove([(int(table.start[0]), int(table.end[0]))])
            with Index.open(folder) as index:
                check(index, left)
            writer.compact()
            with Index.open(folder) as index:
                check(index, left)
        assert verify(folder).ok


def test_many_values_go_into_blocks_of_few_bytes(tmp_path: Path) -> None:
    records = [f"<a k='{'v' * (number % 300)}'>{number}</a>" for number in range(9000)]
    run, tables, high = labelled(records, 0)
    with Writer.create(tmp_path / "index", schemes=[PATH]) as writer:
        writer.append([run], high=high)
    with Index.open(tmp_path / "index") as index:
        check(index, tables)
        [segment] = index.segments
        attributes = segment.files.lists[Tag(1, "k")].values
        sizes = [len(attributes.view(block)) for block in range(attributes.count)]
        assert attributes.count > 9000 * 150 // form.VALUE_BYTES
        assert max(sizes) <= 8 + 4 * (form.VALUE_ROWS + 2) + form.VALUE_BYTES
        with pytest.raises(IndexError, match="no row 9000"):
            attributes.get(np.array([0, 9000]))
        with pytest.raises(IndexError, match="no row 9000"):
            attributes.at(9000)
        nothing = segment.values("nowhere", [-1])
        assert (nothing.mark.tolist(), nothing.text(0)) == ([ELSEWHERE], None)
        with pytest.raises(IndexError, match="no rows of nowhere"):
            segment.values("nowhere", [0])


def test_a_run_without_values_leaves_them_to_records(tmp_path: Path) -> None:
    run, tables, high = labelled(["<a>text</a>"], 0)
    run.texts = ()
    with Writer.create(tmp_path / "index", schemes=[PATH]) as writer:
        writer.append([run], high=high)
    with Index.open(tmp_path / "index") as index:
        assert index.segments[0].values("a", [0]).text(0) is None
        assert index.value(int(tables[0].start[0])) == "text"


def test_a_run_must_have_a_value_a_node(tmp_path: Path) -> None:
    run, _, high = labelled(["<a>text</a>"], 0)
    run.texts = [Values.none(2)]
    with (
        Writer.create(tmp_path / "index", schemes=[PATH]) as writer,
        pytest.raises(ValueError, match="has 2 values, not 1"),
    ):
        writer.append([run], high=high)


def test_an_index_of_the_format_before_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(form, "VERSION", 1)
        Writer.create(tmp_path / "index", schemes=[PATH]).close()
    with pytest.raises(FormatMismatch, match=r"format 1.*build the index again"):
        Index.open(tmp_path / "index")


def test_records_of_all_segments_share_one_bound(tmp_path: Path) -> None:
    folder, tables, high = tmp_path / "index", [], 0
    with Writer.create(folder, schemes=[PATH]) as writer:
        for segment in range(3):
            records = [f"<a><b>{segment} {'x' * 900}{number}</b>t</a>" for number in range(200)]
            run, more, high = labelled(records, high)
            writer.append([run], high=high)
            tables += more
    for room in (0, 200_000, 1 << 24):
        with Index.open(folder, record_cache=room) as index:
            lease = index.lease()
            for reader in (index, lease, index.refresh()):
                for table in tables[::7]:
                    start = int(table.start[0])
                    assert reader.value(start) == table.string_value(0)
                    # One value is kept, whatever its size: a block is the largest.
                    assert index.records_held <= max(room, 70_000)
            assert index.records_held == lease.records_held
            assert index.records_held > min(room // 2, 300_000)
