"""`fmware label`."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmware import NodeTable, read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware, Process

GOOD = b"<sale at='9'><product>Pen &amp; ink</product> <units>7</units></sale>"
OTHER = b"<s:sale xmlns:s='urn:s'><s:void/></s:sale>"
BAD = b"<sale>\n  <product></units>\n</sale>"
NAMES = ["sale", "at", "product", "#text", "#text", "units", "#text"]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.xml"
    path.write_bytes(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.xml"
    path.write_bytes(BAD)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other.xml"
    path.write_bytes(OTHER)
    return path


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_node_is_a_json_object_in_a_pipe(fmware: Fmware, good: Path) -> None:
    result = fmware("label", good)
    assert result.exit_code == 0
    rows = lines(result.stdout)
    assert [row["tag"] for row in rows] == NAMES
    assert rows[1] == {
        "source": str(good),
        "document": 1,
        "row": 1,
        "kind": "attribute",
        "tag": "at",
        "parent": 0,
        "level": 1,
        "start": 1,
        "end": 2,
        "value": "9",
    }


def test_json_is_short_for_its_format(fmware: Fmware, good: Path) -> None:
    assert fmware("label", good, "--json").stdout == fmware("label", good, "-f", "jsonl").stdout


def test_a_table_indents_by_level(fmware: Fmware, good: Path) -> None:
    result = fmware("label", good, "--format", "table")
    assert result.exit_code == 0
    assert "  0       -1       0       0    13   sale" in result.stdout
    assert "     @at" in result.stdout
    assert "'Pen & ink'" in result.stdout


def test_a_table_of_a_value_in_brackets_shows_the_brackets(fmware: Fmware) -> None:
    assert (
        "'[bold]x[/nothing]'"
        in fmware("label", "-", "-f", "table", stdin=b"<a>[bold]x[/nothing]</a>").stdout
    )


def test_a_table_stops_at_its_rows_and_says_so(fmware: Fmware, good: Path) -> None:
    result = fmware("label", good, good, "--format", "table", "--rows", 3)
    assert result.exit_code == 0
    assert result.stdout.count("sale") == 1
    assert "product" in result.stdout
    assert "11 more nodes not shown" in result.stderr
    assert "not shown" not in fmware("label", good, "--format", "table", "--rows", 0).stderr


def test_a_table_goes_to_a_file(fmware: Fmware, good: Path, tmp_path: Path) -> None:
    out = tmp_path / "nodes.txt"
    result = fmware("label", good, "-f", "table", "-o", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "sale" in out.read_text()


def test_an_arrow_stream_reads_back_as_node_tables(
    fmware: Fmware, good: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "nodes.arrow"
    assert fmware("label", good, other, "--out", out).exit_code == 0
    with pa.ipc.open_stream(out.read_bytes()) as reader:
        batches = list(reader)
    assert [batch.column("document").to_pylist()[0] for batch in batches] == [1, 2]
    assert [batch.column("source").to_pylist()[0] for batch in batches] == [str(good), str(other)]
    first, second = (NodeTable.from_arrow(batch) for batch in batches)
    assert [first.name(row) for row in range(len(first))] == NAMES
    assert first.string_value(0) == "Pen & ink 7"
    assert [second.name(row) for row in range(2)] == ["{urn:s}sale", "{urn:s}void"]


def test_arrow_goes_down_a_pipe(process: Process, good: Path) -> None:
    result = process("label", good, "--format", "arrow")
    assert (result.returncode, result.stderr) == (0, b"")
    assert pa.ipc.open_stream(result.stdout).read_all().num_rows == len(NAMES)


def test_parquet_has_names_any_tool_reads(
    fmware: Fmware, good: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "nodes.parquet"
    assert fmware("label", good, other, "--out", out).exit_code == 0
    table = pq.read_table(out)
    assert table.column("tag").type == pa.string()
    assert table.column("tag").to_pylist() == [*NAMES, "{urn:s}sale", "{urn:s}void"]
    assert table.column("document").to_pylist() == [1] * len(NAMES) + [2, 2]


def test_parquet_goes_down_a_pipe(process: Process, good: Path) -> None:
    result = process("label", good, "--format", "parquet")
    assert (result.returncode, result.stderr) == (0, b"")
    assert pq.read_table(io.BytesIO(result.stdout)).num_rows == len(NAMES)


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_no_document_is_a_file_of_no_rows(
    fmware: Fmware, bad: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"none.{suffix}"
    assert fmware("label", bad, "--out", out).exit_code == 1
    table = pq.read_table(out) if suffix == "parquet" else _read_stream(out)
    assert table.num_rows == 0
    assert "tag" in table.schema.names


def _read_stream(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path.read_bytes()).read_all()


def test_without_values_there_is_no_value_column(
    fmware: Fmware, good: Path, tmp_path: Path
) -> None:
    out = tmp_path / "nodes.parquet"
    fmware("label", good, "--no-values", "--out", out)
    assert "value" not in pq.read_table(out).schema.names
    assert {row["value"] for row in lines(fmware("label", good, "--no-values").stdout)} == {None}


def test_without_blanks_white_space_is_no_node(fmware: Fmware, good: Path) -> None:
    rows = lines(fmware("label", good, "--no-blanks").stdout)
    assert [row["value"] for row in rows if row["kind"] == "text"] == ["Pen & ink", "7"]


def test_stdin_holds_one_document_after_the_other(fmware: Fmware) -> None:
    rows = lines(fmware("label", "-", stdin=GOOD + b"\n" + OTHER).stdout)
    assert {(row["source"], row["document"]) for row in rows} == {("<stdin>", 1), ("<stdin>", 2)}


def test_records_of_a_document_come_one_by_one(fmware: Fmware) -> None:
    stdin = b"<r><a>1</a><b>2</b><x>3</x><a>4</a></r>"
    rows = lines(fmware("label", "-", "--record", "a", "--record", "b", stdin=stdin).stdout)
    assert [row["tag"] for row in rows if row["parent"] == -1] == ["a", "b", "a"]
    assert {row["level"] for row in rows if row["parent"] == -1} == {1}


def test_a_directory_is_its_xml_files_in_order(
    fmware: Fmware, good: Path, other: Path, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.xml").write_bytes(b"<a/>")
    (tmp_path / "notes.txt").write_text("not xml")
    rows = lines(fmware("label", tmp_path).stdout)
    assert [row["tag"] for row in rows if row["parent"] == -1] == ["a", "sale", "{urn:s}sale"]


def test_a_directory_without_xml_is_an_error(fmware: Fmware, tmp_path: Path) -> None:
    result = fmware("label", tmp_path)
    assert result.exit_code == 1
    assert "no *.xml file" in result.stderr


def test_utf16_is_read_from_a_file_of_one_document(fmware: Fmware, tmp_path: Path) -> None:
    path = tmp_path / "wide.xml"
    path.write_bytes("<a>ü</a>".encode("utf-16"))
    assert [row["value"] for row in lines(fmware("label", path).stdout)] == [None, "ü"]


def test_a_bad_document_is_placed_and_the_rest_goes_on(
    fmware: Fmware, good: Path, bad: Path, other: Path
) -> None:
    result = fmware("label", bad, good, other)
    assert result.exit_code == 1
    assert {row["source"] for row in lines(result.stdout)} == {str(good), str(other)}
    assert f"{bad}: line 2, column" in result.stderr
    assert "mismatch" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bad_record_is_placed_and_the_rest_goes_on(fmware: Fmware) -> None:
    stdin = b"<r>\n<a>1</a>\n<a>&nosuch;</a>\n<a>3</a></r>"
    result = fmware("label", "-", "--record", "a", stdin=stdin)
    assert result.exit_code == 1
    assert [row["value"] for row in lines(result.stdout) if row["kind"] == "text"] == ["1", "3"]
    assert "<stdin>: line 3, column" in result.stderr


def test_a_missing_file_is_told_and_the_rest_goes_on(fmware: Fmware, good: Path) -> None:
    result = fmware("label", "no-such.xml", good)
    assert result.exit_code == 1
    assert "no-such.xml: No such file" in result.stderr
    assert len(lines(result.stdout)) == len(NAMES)


def test_an_input_of_nothing_is_told(fmware: Fmware) -> None:
    result = fmware("label", "-", stdin=b"")
    assert result.exit_code == 1
    assert "<stdin>: no document in it" in result.stderr
    result = fmware("label", "-", "-r", "a", "-r", "b", stdin=b"<r/>")
    assert "<stdin>: no <a> or <b> in it" in result.stderr


def test_entities_are_refused_with_the_option_that_allows_them(fmware: Fmware) -> None:
    stdin = b"<!DOCTYPE a [<!ENTITY eszett '&#223;'>]><a>Stra&eszett;e M&uuml;nchen</a>"
    refused = fmware("label", "-", stdin=stdin)
    assert refused.exit_code == 1
    assert "--entities" in refused.stderr
    allowed = fmware("label", "-", "--entities", stdin=stdin)
    assert allowed.exit_code == 0
    assert lines(allowed.stdout)[1]["value"] == "Straße München"


@pytest.mark.parametrize(
    ("option", "stdin"),
    [
        ("bytes", b"<a>123456789</a>"),
        ("depth", b"<a><b><c><d/></c></b></a>"),
        ("nodes", b"<a><b/><b/><b/></a>"),
        ("attribute", b"<a b='123456789'/>"),
        ("text", b"<a>123456789</a>"),
    ],
)
def test_a_limit_names_its_option(fmware: Fmware, option: str, stdin: bytes) -> None:
    result = fmware("label", "-", f"--limit-{option}", 3, stdin=stdin)
    assert result.exit_code == 1
    assert f"--limit-{option}" in result.stderr
    assert "Limits." not in result.stderr


def test_a_limit_out_of_range_is_a_usage_error(fmware: Fmware) -> None:
    result = fmware("label", "-", "--limit-depth", 0, stdin=GOOD)
    assert result.exit_code == 2
    assert "--limit-depth lies between" in result.stderr


def test_an_unknown_suffix_is_a_usage_error(fmware: Fmware, good: Path, tmp_path: Path) -> None:
    result = fmware("label", good, "--out", tmp_path / "nodes.csv")
    assert result.exit_code == 2
    assert "--format" in result.stderr


def test_a_place_that_cannot_be_written_is_one_line(
    fmware: Fmware, good: Path, tmp_path: Path
) -> None:
    result = fmware("label", good, "--out", tmp_path / "none" / "nodes.arrow")
    assert result.exit_code == 1
    assert result.stderr.startswith("fmware: ")
    assert len(result.stderr.splitlines()) == 1


def test_what_label_writes_is_what_read_gives(fmware: Fmware) -> None:
    table = read(GOOD)
    rows = lines(fmware("label", "-", stdin=GOOD).stdout)
    assert [{k: v for k, v in row.items() if k not in {"source", "document"}} for row in rows] == (
        list(table.records())
    )
