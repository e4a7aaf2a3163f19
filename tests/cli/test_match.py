"""`fmware match`: files and pipes in, JSON lines, CSV and Parquet out."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from fmware.corpus import build_index

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware, Process

STOCK = (
    "<stock><item k='1'><city>Ulm</city><city>Bonn</city></item>"
    "<item k='2'><city>Kiel</city></item></stock>"
)
SALE = b"<sale><item k='1'><n>7</n></item></sale>"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "stock.xml").write_text(STOCK)
    build_index(tmp_path / "stock.xml", tmp_path / "index", record="item", identity=["item=@k"])
    (tmp_path / "statements.txt").write_text("//item[n > 5]/local:city\n//sale\n")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.xml").write_bytes(SALE)
    (inbox / "b.xml").write_bytes(
        b"<sale><item k='2'><n>9</n></item><item k='5'><n>9</n></item></sale>"
    )
    return tmp_path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_a_match(fmware: Fmware, place: Path) -> None:
    result = fmware("match", place / "index", place / "statements.txt", place / "inbox")
    assert result.exit_code == 0, result.stderr
    found = lines(result.stdout)
    local = [(each["message"][-5:], each["local"]["value"]) for each in found if "local" in each]
    assert local == [("a.xml", "Ulm"), ("a.xml", "Bonn"), ("b.xml", "Kiel")]
    one = next(each for each in found if "local" in each)
    assert one["nodes"] == [{"path": "/sale[1]/item[1]"}]
    assert one["statement"] == "1"
    assert set(one["local"]) == {"tag", "path", "label", "source", "value"}
    assert one["local"]["path"] == "/item[1]/city[1]"
    assert [each["statement"] for each in found].count("2") == 2


def test_fragments_values_and_missing(fmware: Fmware, place: Path) -> None:
    result = fmware(
        *("match", place / "index", place / "statements.txt", place / "inbox" / "b.xml"),
        *("--fragments", "--no-values", "--missing", "--operator", "admatch"),
    )
    found = lines(result.stdout)
    (local,) = [each["local"] for each in found if "local" in each]
    assert local["fragment"] == "<city>Kiel</city>"
    assert "value" not in local
    assert found[-1]["missing"] == {"path": "/sale[1]/item[2]", "tag": "item", "key": "5"}


def test_what_is_returned_can_be_said_for_all_statements(fmware: Fmware, place: Path) -> None:
    (place / "statements.txt").write_text("//item\n//item/local:city\n")
    arguments = ("match", place / "index", place / "statements.txt", place / "inbox" / "b.xml")
    found = lines(fmware(*arguments, "--returns", "message", "--returns", "fragment").stdout)
    plain = [each["nodes"] for each in found if each["statement"] == "1"]
    assert [[node["path"] for node in nodes] for nodes in plain] == [
        ["/sale[1]/item[1]"],
        ["/sale[1]/item[2]"],
    ]
    assert all(nodes[0]["fragment"].startswith("<item") for nodes in plain)
    (local,) = [each for each in found if each["statement"] == "2"]
    assert (local["nodes"], local["local"]["fragment"]) == (
        [{"path": "/sale[1]/item[1]"}],
        "<city>Kiel</city>",
    )
    named = lines(fmware(*arguments, "--returns", "local").stdout)
    assert [[*each] for each in named] == [
        ["message", "statement"],
        ["message", "statement", "local"],
    ]
    assert fmware(*arguments, "--returns", "everything").exit_code == 2


def test_csv_and_parquet_have_the_same(fmware: Fmware, place: Path) -> None:
    arguments = ("match", place / "index", place / "statements.txt", place / "inbox")
    rows = list(csv.DictReader(io.StringIO(fmware(*arguments, "--format", "csv").stdout)))
    assert fmware(*arguments, "--out", place / "m.parquet").exit_code == 0
    table = pq.read_table(place / "m.parquet").to_pylist()
    assert len(rows) == len(table) == 5
    for row, other in zip(rows, table, strict=True):
        del other["rows"]
        other["nodes"] = " ".join(other["nodes"] or ())
        assert row == {k: "" if v is None else str(v) for k, v in other.items()}
    assert {row["value"] for row in rows} == {"Ulm", "Bonn", "Kiel", ""}


def test_what_cannot_be_read_is_said_and_the_rest_goes_on(fmware: Fmware, place: Path) -> None:
    (place / "inbox" / "aa.xml").write_bytes(b"<sale><item>")
    result = fmware("match", place / "index", place / "statements.txt", place / "inbox")
    assert result.exit_code == 1
    found = lines(result.stdout)
    assert [each["message"][-6:] for each in found if "error" in each] == ["aa.xml"]
    assert sum("local" in each for each in found) == 3


def test_statements_that_are_refused(fmware: Fmware, place: Path) -> None:
    (place / "statements.txt").write_text("//item[\n//sale\n//p:item\n")
    result = fmware("match", place / "index", place / "statements.txt", place / "inbox")
    assert result.exit_code == 2
    assert "statements.txt, line 1: " in result.stderr
    assert "statements.txt, line 3: " in result.stderr
    assert {each["statement"] for each in lines(result.stdout)} == {"2"}


def test_toml_in_two_parts(fmware: Fmware, place: Path) -> None:
    (place / "s.toml").write_text(
        '[[statement]]\nname = "cities"\nfilter = "//item"\nmatch = "city"\nreturns = ["value"]\n'
    )
    found = lines(fmware("match", place / "index", place / "s.toml", place / "inbox").stdout)
    assert sorted(each["local"]["value"] for each in found) == ["Bonn", "Kiel", "Ulm"]
    assert all("nodes" not in each for each in found)


def test_a_pipe_is_an_endless_stream(process: Process, place: Path) -> None:
    ran = process(
        *("match", place / "index", place / "statements.txt", "-", "--threads", "1"),
        stdin=SALE * 3,
    )
    assert ran.returncode == 0, ran.stderr
    assert len(lines(ran.stdout.decode())) == 9


def test_an_index_or_scheme_that_is_not_there(fmware: Fmware, place: Path) -> None:
    arguments = (place / "statements.txt", place / "inbox")
    assert fmware("match", place / "none", *arguments).exit_code == 1
    result = fmware("match", place / "index", *arguments, "--scheme", "vist")
    assert result.exit_code == 1
    assert "vist" in result.stderr
    assert fmware("match", place / "index", place / "none.txt", place / "inbox").exit_code == 2
