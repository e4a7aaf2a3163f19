"""`fmware index`, `add`, `remove`, `compact`, `verify`, `stats`, `show`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware

LIBRARY = (
    "<library>"
    + "".join(
        f'<book isbn="{i}"><title>T{i}</title><by><last>Name{i % 3}</last></by></book>'
        for i in range(20)
    )
    + "</library>"
)


@pytest.fixture
def built(fmware: Fmware, tmp_path: Path) -> Path:
    (tmp_path / "library.xml").write_text(LIBRARY)
    result = fmware(
        *("index", "build", tmp_path / "library.xml", "--out", tmp_path / "index", "--in-process"),
        *("--record", "book", "--identity", "book=@isbn", "--identity", "book=by/last"),
        *("--schemes", "path, vist,prix"),
    )
    assert result.exit_code == 0, result.stderr
    assert "20 records" in result.stdout
    assert "clusters, prix" in result.stdout
    return tmp_path / "index"


def figures(fmware: Fmware, *arguments: object) -> dict[str, object]:
    result = fmware(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_an_index_tells_what_it_holds(fmware: Fmware, built: Path) -> None:
    found = figures(fmware, "index", "stats", built)
    assert (found["nodes"], found["segments"], found["generation"]) == (100, 1, 2)
    tags = found["tags"]
    assert isinstance(tags, dict)
    assert tags["last"]["clustering_power"] == {"path": 20.0, "prix": 20.0, "vist": 20.0}
    assert (tags["book"]["keys"], tags["@isbn"]["nodes"]) == (40, 20)
    shown = fmware("index", "stats", built).stdout
    assert "█" in shown
    assert "Clustering power" in shown


def test_stats_of_some_tags(fmware: Fmware, built: Path) -> None:
    found = figures(fmware, "index", "stats", built, "--tag", "@isbn")
    assert list(found["tags"]) == ["@isbn"]  # type: ignore[call-overload]
    result = fmware("index", "stats", built, "--tag", "nobody")
    assert result.exit_code == 1
    assert "nobody" in result.stderr
    assert "4 tags more" in fmware("index", "stats", built, "--rows", 1).stdout


def test_nodes_are_shown_by_key(fmware: Fmware, built: Path) -> None:
    found = figures(fmware, "index", "show", built, "book=7")
    assert found["xml"] == ('<book isbn="7"><title>T7</title><by><last>Name1</last></by></book>')
    assert (found["tag"], found["level"], found["path"]) == ("book", 1, "/book[1]")
    assert set(found["ses"]) == {"path", "vist", "prix"}  # type: ignore[call-overload]
    label = found["ad"][0]  # type: ignore[index]
    assert fmware("index", "show", built, "--label", label + 1, "--whole").stdout.endswith(
        "</book>\n"
    )
    assert fmware("index", "show", built, "book=Name2").stdout.count("<book") == 6


def test_what_is_not_there_is_not_shown(fmware: Fmware, built: Path) -> None:
    result = fmware("index", "show", built, "book=7", "book=nope")
    assert result.exit_code == 1
    assert "no node book=nope" in result.stderr
    assert fmware("index", "show", built, "--label", 10**9).exit_code == 1
    assert fmware("index", "show", built).exit_code == 2
    assert fmware("index", "show", built, "book").exit_code == 2


def test_documents_are_added_and_removed(fmware: Fmware, built: Path, tmp_path: Path) -> None:
    (tmp_path / "more.xml").write_text('<x><book isbn="n1"/><book isbn="n2"/></x>')
    added = figures(fmware, "index", "add", built, tmp_path / "more.xml")
    assert (added["records"], added["total_records"], added["segments"]) == (2, 22, 2)
    removed = figures(fmware, "index", "remove", built, "book=n1", "book=3")
    assert (removed["removed"], removed["total_records"]) == (2, 20)
    assert fmware("index", "show", built, "book=n1").exit_code == 1
    assert fmware("index", "verify", built).exit_code == 0
    whole = figures(fmware, "index", "compact", built)
    assert (whole["total_records"], whole["segments"]) == (20, 1)
    assert fmware("index", "show", built, "book=n2").exit_code == 0
    gone = figures(fmware, "index", "remove", built, "--file", str(tmp_path / "more.xml"))
    assert (gone["removed"], gone["total_records"]) == (1, 19)
    label = figures(fmware, "index", "show", built, "book=5")["ad"][0]  # type: ignore[index]
    assert figures(fmware, "index", "remove", built, "--label", label)["removed"] == 1
    assert fmware("index", "show", built, "book=5").exit_code == 1


def test_nothing_is_removed_if_something_is_not_there(fmware: Fmware, built: Path) -> None:
    for arguments in (["book=1", "book=nope"], ["book=1", "--file", "nope.xml"]):
        result = fmware("index", "remove", built, *arguments)
        assert result.exit_code == 1
        assert "nothing was removed" in result.stderr
    assert fmware("index", "show", built, "book=1").exit_code == 0
    assert fmware("index", "remove", built).exit_code == 2


def test_damage_is_found(fmware: Fmware, built: Path) -> None:
    assert "all as written" in fmware("index", "verify", built).stdout
    assert figures(fmware, "index", "verify", built)["ok"] is True
    file = next(built.rglob("nodes-000.mdb"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    result = fmware("index", "verify", built)
    assert result.exit_code == 1
    assert "nodes-000.mdb" in result.stderr


def test_damage_is_repaired(fmware: Fmware, built: Path) -> None:
    assert "nothing to repair" in fmware("index", "verify", built, "--repair").stdout
    before = fmware("index", "show", built, "book=7", "--json").stdout
    file = next(built.rglob("nodes-000.mdb"))
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"?" * 8192)
    result = fmware("index", "verify", built, "--repair")
    assert result.exit_code == 0
    assert "1 segments rebuilt from 20 records" in result.stdout
    assert "all as written" in fmware("index", "verify", built).stdout
    again = json.loads(fmware("index", "show", built, "book=7", "--json").stdout)
    assert {**again, "segment": "00000001"} == json.loads(before)


def test_records_that_are_lost_are_named(fmware: Fmware, built: Path, tmp_path: Path) -> None:
    (tmp_path / "more.xml").write_text('<x><book isbn="n1"/></x>')
    assert fmware("index", "add", built, tmp_path / "more.xml").exit_code == 0
    file = built / "segments" / "00000001" / "records-000.mdb"
    data = bytearray(file.read_bytes())
    at = data.index(b"\x28\xb5\x2f\xfd") + 40  # In a frame of zstd.
    data[at] ^= 1
    file.write_bytes(data)
    result = fmware("index", "verify", built, "--repair")
    # No other record of that segment is left, so it cannot be made again.
    assert result.exit_code == 1
    assert "20 records lost" in result.stderr
    assert "book=1" in result.stderr
    assert "not repaired" in result.stderr


def test_a_repair_that_loses_records_has_a_code_of_its_own(fmware: Fmware, tmp_path: Path) -> None:
    """Blocks of records hold 64 KB of source: of three, one is damaged."""
    books = "".join(
        f'<book isbn="{i}"><t>{"".join(chr(97 + i * j % 26) for j in range(900))}</t></book>'
        for i in range(200)
    )
    (tmp_path / "a.xml").write_text(f"<library>{books}</library>")
    out = tmp_path / "index"
    options = ("-o", out, "-r", "book", "-i", "book=@isbn", "--in-process", "--no-calibrate")
    assert fmware("index", "build", tmp_path / "a.xml", *options).exit_code == 0
    file = next(out.rglob("records-000.mdb"))
    data = bytearray(file.read_bytes())
    data[data.index(b"\x28\xb5\x2f\xfd") + 40] ^= 1
    file.write_bytes(data)
    result = fmware("index", "verify", out, "--repair", "--json")
    assert result.exit_code == 3
    done = json.loads(result.stdout)
    assert (done["whole"], done["left"]) == (False, [])
    (lost,) = done["lost"]
    assert lost["records"] == len(lost["keys"]) == 200 - done["records"]
    assert lost["source"].endswith("a.xml")
    assert "lost" in result.stderr
    assert "kept in" in result.stderr
    assert fmware("index", "verify", out).exit_code == 0
    assert fmware("index", "show", out, lost["keys"][0]).exit_code == 1
    assert len([*(out / "damaged").iterdir()]) == 1


def test_rejects_are_kept_and_told(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a><r>1</r><r><b></r><r>2</r></a>")
    out = tmp_path / "index"
    result = fmware("index", "build", tmp_path / "a.xml", "-o", out, "-r", "r", "--in-process")
    assert result.exit_code == 1
    assert "1 record was rejected" in result.stderr
    (row,) = pq.read_table(out / "rejects").to_pylist()
    assert (row["data"], row["kind"]) == (b"<r><b></r>", "MalformedXML")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["gone.xml"], 1, "no file"),
        (["a.xml", "--schemes", "path,nope"], 2, "nope"),
        (["a.xml", "--identity", "broken"], 2, "article=@key"),
        (["a.xml", "--limit-depth", "0"], 2, "depth"),
        (["a.xml", "--record", "nothing"], 1, "no record"),
        (["a.xml", "--conf", "broken"], 2, "KEY=VALUE"),
    ],
)
def test_bad_options_are_said(
    fmware: Fmware, tmp_path: Path, arguments: list[str], code: int, word: str
) -> None:
    (tmp_path / "a.xml").write_text("<a><r/></a>")
    paths = [tmp_path / each if each.endswith(".xml") else each for each in arguments]
    in_process = [] if "--conf" in arguments else ["--in-process"]
    result = fmware("index", "build", *paths, "--out", tmp_path / "index", *in_process)
    assert result.exit_code == code
    assert word in result.stderr


def test_an_index_is_not_built_over_another(fmware: Fmware, built: Path, tmp_path: Path) -> None:
    result = fmware("index", "build", tmp_path / "library.xml", "-o", built, "--in-process")
    assert result.exit_code == 1
    assert "add to it" in result.stderr


def test_a_failed_build_can_be_tried_again(fmware: Fmware, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a><r/></a>")
    arguments = ("index", "build", tmp_path / "a.xml", "-o", tmp_path / "index", "--in-process")
    assert fmware(*arguments, "--record", "nothing").exit_code == 1
    assert fmware(*arguments, "--record", "r").exit_code == 0


def test_an_index_that_is_not_there(fmware: Fmware, tmp_path: Path) -> None:
    for command in ("stats", "compact"):
        result = fmware("index", command, tmp_path / "none")
        assert result.exit_code == 1
        assert "no index here" in result.stderr


@pytest.mark.spark
def test_with_spark(fmware: Fmware, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'fmware[spark]'")
    (tmp_path / "library.xml").write_text(LIBRARY)
    found = figures(
        fmware,
        *("index", tmp_path / "library.xml", "--out", tmp_path / "index", "--master", "local[2]"),
        *("--record", "book", "--partitions", 3, "--conf", "spark.task.maxFailures=2"),
    )
    assert (found["records"], found["tasks"]) == (20, 3)
