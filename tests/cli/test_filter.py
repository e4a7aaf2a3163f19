"""`fmware filter` and `fmware statements explain`."""

from __future__ import annotations

import doctest
import gzip
import json
import os
import re
import select
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fmware import FilterEngine, FilterLimits
from fmware.cli.filter import Answerer, Wanted
from tests.cli.conftest import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Fmware, Process

STATEMENTS = """//sale

# what sells
//sale[units > 3]/product
//product/@sku
"""
PEN = b"<sale><product sku='p7'>Pen</product><units>7</units></sale>"
VOID = b"<void/>"
BAD = b"<sale>\n  <product></units>\n</sale>"


@pytest.fixture
def statements(tmp_path: Path) -> Path:
    path = tmp_path / "statements.txt"
    path.write_text(STATEMENTS)
    return path


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    for name, data in {"b/2.xml": VOID, "a.xml": PEN, "b/1.xml": PEN, "b/x.txt": b"no"}.items():
        path = tmp_path / "inbox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "inbox"


def lines(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def answers(text: str | bytes) -> list[tuple[str, list[str]]]:
    return [(line["message"], line["statements"]) for line in lines(text)]


# --- what comes out -------------------------------------------------------------------------


def test_a_message_is_a_line_and_names_are_line_numbers(
    process: Process, statements: Path, inbox: Path
) -> None:
    done = process("filter", statements, inbox / "a.xml")
    name = json.dumps(str(inbox / "a.xml"))
    expected = f'{{"message": {name}, "statements": ["1", "4", "5"]}}\n'
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, expected, b"")


@pytest.mark.parametrize("threads", [1, 3])
def test_lines_come_in_the_order_of_the_messages(
    fmware: Fmware, statements: Path, inbox: Path, threads: int
) -> None:
    result = fmware("filter", statements, inbox / "b", inbox, "--threads", threads)
    assert answers(result.stdout) == [
        (str(inbox / "b/1.xml"), ["1", "4", "5"]),
        (str(inbox / "b/2.xml"), []),
        (str(inbox / "a.xml"), ["1", "4", "5"]),
        (str(inbox / "b/1.xml"), ["1", "4", "5"]),
        (str(inbox / "b/2.xml"), []),
    ]


def test_threads_give_what_one_gives(fmware: Fmware, tmp_path: Path) -> None:
    statements = tmp_path / "s"
    statements.write_text("".join(f"//m[@n = {n}]\n//m[@n > {n}]/k\n" for n in range(50)))
    for n in range(200):
        (tmp_path / f"{n:03}.xml").write_text(f"<m n='{n}'><k/>{'<j/>' * (n % 17)}</m>")
    stream = b"".join(b"<m n='%d'><k/></m>" % n for n in range(300))
    one = fmware("filter", statements, tmp_path, "-", stdin=stream)
    many = fmware("filter", statements, tmp_path, "-", "--threads", 4, stdin=stream)
    assert one.exit_code == many.exit_code == 0
    assert len(one.stdout.splitlines()) == 500
    assert many.stdout == one.stdout


def test_statements_keep_the_order_of_the_file(fmware: Fmware, tmp_path: Path) -> None:
    statements = tmp_path / "s"
    statements.write_text("//k\n//m[k]\n/m\n//*\n//m/k\n//m[k]\n" + "//m\n" * 10)
    result = fmware("filter", statements, "-", stdin=b"<m><k/></m>")
    assert answers(result.stdout) == [("-#1", [str(n) for n in range(1, 17)])]


def test_documents_in_one_file_are_numbered(fmware: Fmware, statements: Path) -> None:
    several = statements.parent / "several.xml"
    several.write_bytes(VOID + b"\n" + PEN)
    result = fmware("filter", statements, several, "-", stdin=PEN)
    assert answers(result.stdout) == [
        (f"{several}#1", []),
        (f"{several}#2", ["1", "4", "5"]),
        ("-#1", ["1", "4", "5"]),
    ]


def test_records_are_messages(fmware: Fmware, statements: Path) -> None:
    document = b"<log>" + PEN + VOID + PEN + b"</log>"
    result = fmware("filter", statements, "-", "--record", "sale", stdin=document)
    assert answers(result.stdout) == [("-#1", ["1", "4", "5"]), ("-#2", ["1", "4", "5"])]


def test_compressed_files_are_read(fmware: Fmware, statements: Path, inbox: Path) -> None:
    packed = inbox / "b" / "0.xml.gz"
    packed.write_bytes(gzip.compress(PEN))
    (inbox / "b" / "other.gz").write_bytes(b"")
    result = fmware("filter", statements, packed, inbox / "b")
    names = [name for name, _ in answers(result.stdout)]
    assert names == [str(packed), str(packed), f"{inbox}/b/1.xml", f"{inbox}/b/2.xml"]


def test_utf16_is_read(fmware: Fmware, statements: Path) -> None:
    wide = statements.parent / "wide.xml"
    wide.write_bytes("<sale/>".encode("utf-16"))
    result = fmware("filter", statements, wide, "-", stdin=wide.read_bytes())
    assert answers(result.stdout) == [(str(wide), ["1"]), ("-#1", ["1"])]


def test_large_files_are_read_as_streams(
    fmware: Fmware, statements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmware.cli.messages.SMALL", 10)
    large = statements.parent / "large.xml"
    large.write_bytes(PEN)
    assert answers(fmware("filter", statements, large).stdout) == [(str(large), ["1", "4", "5"])]


def test_lines_without_a_match_can_be_left_out(
    fmware: Fmware, statements: Path, inbox: Path
) -> None:
    (inbox / "z.xml").write_bytes(BAD)
    result = fmware("filter", statements, inbox, "--matched-only")
    names = [name for name, _ in answers(result.stdout)]
    assert names == [str(inbox / name) for name in ("a.xml", "b/1.xml", "z.xml")]


def test_lines_go_to_a_file(fmware: Fmware, statements: Path, inbox: Path) -> None:
    out = inbox / "out.jsonl"
    result = fmware("filter", statements, inbox / "a.xml", "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert answers(out.read_bytes()) == [(str(inbox / "a.xml"), ["1", "4", "5"])]


def test_namespaces_and_entities(fmware: Fmware, tmp_path: Path) -> None:
    statements = tmp_path / "s"
    statements.write_text("//p:a[. = 'ü']\n")
    message = b"<a xmlns='urn:p'>&uuml;</a>"
    found = fmware("filter", statements, "-", "-n", "p=urn:p", "--entities", stdin=message)
    assert answers(found.stdout) == [("-#1", ["1"])]
    refused = fmware("filter", statements, "-", "-n", "p=urn:p", stdin=message)
    assert refused.exit_code == 1
    assert "--entities" in lines(refused.stdout)[0]["error"]


def test_a_toml_file_names_its_statements(fmware: Fmware, tmp_path: Path) -> None:
    statements = tmp_path / "s.toml"
    statements.write_text(
        '[namespaces]\np = "urn:p"\n[[statement]]\nname = "spaced"\nexpression = "//p:a"\n'
        '[[statement]]\nname = "any"\nexpression = "//*"\n'
    )
    result = fmware("filter", statements, "-", stdin=b"<a xmlns='urn:p'/><a/>")
    assert answers(result.stdout) == [("-#1", ["spaced", "any"]), ("-#2", ["any"])]


def test_names_that_are_not_utf8_are_escaped(process: Process, statements: Path) -> None:
    name = os.fsencode(statements.parent) + b"/\xfc.xml"
    with open(name, "wb") as file:  # noqa: PTH123
        file.write(PEN)
    done = process("filter", statements, statements.parent)
    assert done.returncode == 0
    assert lines(done.stdout)[0]["message"].endswith("/\udcfc.xml")


# --- tuples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_tuples_are_the_matched_nodes(fmware: Fmware, statements: Path, threads: int) -> None:
    result = fmware("filter", statements, "-", "--tuples", "-j", threads, stdin=PEN + VOID)
    first, second = lines(result.stdout)
    sale = {"path": "/sale[1]", "value": "Pen7"}
    product = {"path": "/sale[1]/product[1]", "value": "Pen"}
    sku = {"path": "/sale[1]/product[1]/@sku", "value": "p7"}
    assert first["tuples"] == {"1": [[sale]], "4": [[sale, product]], "5": [[product, sku]]}
    assert second["tuples"] == {}


def test_fragments_are_the_xml_of_elements(fmware: Fmware, statements: Path) -> None:
    result = fmware("filter", statements, "-", "--fragments", stdin=PEN)
    product, sku = lines(result.stdout)[0]["tuples"]["5"][0]
    assert product["fragment"] == '<product sku="p7">Pen</product>'
    assert sku == {"path": "/sale[1]/product[1]/@sku", "value": "p7"}


def test_paths_have_names_that_no_statement_has(fmware: Fmware, tmp_path: Path) -> None:
    statements = tmp_path / "s"
    statements.write_text("//k\n")
    result = fmware(
        "filter", statements, "-", "--tuples", stdin=b"<m xmlns='urn:m'><k xmlns=''/></m>"
    )
    assert lines(result.stdout)[0]["tuples"]["1"][0][0]["path"] == "/{urn:m}m[1]/k[1]"


@pytest.mark.parametrize(
    ("limits", "expression", "key"),
    [
        (FilterLimits(work=100), "//m//k[.//k = 'x']", "undecided"),
        (FilterLimits(tuples=2), "//m//k", "truncated"),
    ],
)
def test_what_the_limits_left_open_is_named(
    limits: FilterLimits, expression: str, key: str
) -> None:
    engine = FilterEngine(limits=limits)
    engine.subscribe(expression, tuples=True)
    wanted = Wanted(tuples=True, fragments=False, entities=False)
    answer = Answerer(engine, {0: "hard"}, wanted)
    line = answer("name", answer.reader.read(b"<m>" + b"<k><k/></k>" * 300 + b"</m>"))
    found = json.loads(line.data)
    assert found[key] == ["hard"]
    assert line.open == (key == "undecided")


# --- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_a_message_that_cannot_be_read_does_not_stop_the_rest(
    fmware: Fmware, statements: Path, inbox: Path, threads: int
) -> None:
    (inbox / "b/1.xml").write_bytes(BAD)
    result = fmware("filter", statements, inbox, inbox / "none.xml", "--threads", threads)
    assert result.exit_code == 1
    found = lines(result.stdout)
    assert [line["message"].rpartition("/")[2] for line in found] == [
        "a.xml",
        "1.xml",
        "2.xml",
        "none.xml",
    ]
    assert [set(line) - {"message", "statements"} for line in found] == [
        set(),
        {"error", "line", "column"},
        set(),
        {"error"},
    ]
    assert (found[1]["line"], found[1]["column"]) == (2, 20)
    assert "mismatch" in found[1]["error"]
    assert found[3]["error"] == "No such file or directory"
    assert "2 of 4 messages could not be read" in result.stderr
    assert fmware("filter", statements, inbox, "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.xml", b""),
        ("x.xml", b"no xml"),
        ("x.xml.gz", b"not compressed"),
        ("x.xml.gz", gzip.compress(PEN * 100, mtime=0)[:-9]),
        ("x.xml.gz", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20),
        ("x.xml", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"),
    ],
)
def test_nothing_that_a_file_holds_stops_the_stream(
    fmware: Fmware, statements: Path, inbox: Path, name: str, data: bytes
) -> None:
    (statements.parent / name).write_bytes(data)
    result = fmware("filter", statements, statements.parent / name, inbox / "a.xml")
    *_, failed, last = lines(result.stdout)
    assert result.exit_code == 1
    assert failed["message"].startswith(str(statements.parent / name))
    assert failed["error"]
    assert last == {"message": str(inbox / "a.xml"), "statements": ["1", "4", "5"]}


def test_a_bad_document_in_a_stream_has_its_number_and_its_place(
    fmware: Fmware, statements: Path
) -> None:
    result = fmware("filter", statements, "-", stdin=PEN + b"\n<a>&what;</a>\n" + PEN)
    first, bad, last = lines(result.stdout)
    assert [first["message"], bad["message"], last["message"]] == ["-#1", "-#2", "-#3"]
    assert bad["line"] == 2
    assert last["statements"] == ["1", "4", "5"]


def test_refused_statements_are_reported_and_the_rest_goes_on(
    fmware: Fmware, tmp_path: Path
) -> None:
    statements = tmp_path / "s"
    statements.write_text("//a\n//b[\n//p:c\n//d/local:e\n//a[1]\n")
    result = fmware("filter", statements, "-", stdin=b"<a/>")
    assert result.exit_code == 2
    assert answers(result.stdout) == [("-#1", ["1", "5"])]
    assert re.findall(r"line (\d+): ", result.stderr) == ["2", "3", "4"]
    assert re.search(r"\n +//b\[\n +\^\n", result.stderr)
    skipped = fmware("filter", statements, "-", "--skip-bad-statements", stdin=b"<a/>")
    assert (skipped.exit_code, skipped.stdout) == (0, result.stdout)
    assert skipped.stderr == result.stderr


@pytest.mark.parametrize(
    ("data", "reason"), [(None, "No such file"), (b"//a\n//\xff", "line 2: byte 3")]
)
def test_a_statement_file_that_cannot_be_read_is_an_error_of_usage(
    fmware: Fmware, tmp_path: Path, data: bytes | None, reason: str
) -> None:
    statements = tmp_path / "s"
    if data is not None:
        statements.write_bytes(data)
    result = fmware("filter", statements, "-", stdin=PEN)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


def test_other_mistakes_are_told(fmware: Fmware, statements: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert fmware("filter", statements, tmp_path / "empty").exit_code == 1
    assert fmware("filter", "-", "-").exit_code == 2
    assert fmware("filter", statements, "-", "-n", "nothing").exit_code == 2
    result = fmware("filter", "-", tmp_path / "empty", statements, stdin="//a\n")
    assert result.exit_code == 1
    (tmp_path / "none").write_text("# nothing\n")
    result = fmware("filter", tmp_path / "none", "-", stdin=PEN)
    assert answers(result.stdout) == [("-#1", [])]
    assert "no statement" in result.stderr


# --- streams --------------------------------------------------------------------------------


@pytest.fixture(params=["1", "2"])
def running(request: pytest.FixtureRequest, statements: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["filter", str(statements), "-", "--threads", request.param]
    with subprocess.Popen(
        [sys.executable, "-m", "fmware", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as started:
        yield started
        started.kill()


def answer_of(running: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert running.stdout is not None
    ready, _, _ = select.select([running.stdout], [], [], 60)
    assert ready, "no answer though the message is whole"
    found: dict[str, Any] = json.loads(running.stdout.readline())
    return found


def test_an_answer_does_not_wait_for_the_next_message(running: subprocess.Popen[bytes]) -> None:
    assert running.stdin is not None
    for number in (1, 2):
        running.stdin.write(PEN)
        running.stdin.flush()
        assert answer_of(running) == {"message": f"-#{number}", "statements": ["1", "4", "5"]}
    running.stdin.close()
    assert running.wait(60) == 0


def test_a_reader_that_leaves_ends_it(running: subprocess.Popen[bytes]) -> None:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(PEN)
    running.stdin.flush()
    answer_of(running)
    running.stdout.close()
    running.stdin.write(PEN * 10)
    running.stdin.flush()
    assert running.wait(60) == 1
    assert running.stderr is not None
    assert running.stderr.read() == b""


# --- batches --------------------------------------------------------------------------------


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    path = tmp_path / "endless.xml"
    path.write_bytes(b"<log>" + b"<e><n>7</n></e>\n" * 200 + b"<last/></log>")
    return path


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("source", ["file", "stdin", "gz"])
def test_one_document_in_batches(
    fmware: Fmware, tmp_path: Path, endless: Path, threads: int, source: str
) -> None:
    statements = tmp_path / "s"
    statements.write_text("//e[n = 7]\n/log/last\n/log[not(x)]\n//e[n = 8]\n")
    packed = tmp_path / "endless.xml.gz"
    packed.write_bytes(gzip.compress(endless.read_bytes()))
    name = {"file": str(endless), "stdin": "-", "gz": str(packed)}[source]
    stdin = endless.read_bytes() if source == "stdin" else b""
    result = fmware("filter", statements, name, "--batches", 50, "-j", threads, stdin=stdin)
    assert result.exit_code == 0
    found = lines(result.stdout)
    assert len(found) > 10
    assert [(line["message"], line["batch"]) for line in found] == [
        (name, number) for number in range(1, len(found) + 1)
    ]
    assert all(line["undecided"] == ["3"] for line in found)
    assert {name for line in found for name in line["statements"]} == {"1", "2"}
    assert "2" in found[-1]["statements"]


def test_a_document_that_breaks_off_ends_with_its_error(
    fmware: Fmware, statements: Path, endless: Path
) -> None:
    endless.write_bytes(endless.read_bytes()[:-12])
    result = fmware("filter", statements, endless, statements.parent / "none", "--batches", 50)
    assert result.exit_code == 1
    *good, bad, missing = lines(result.stdout)
    assert len(good) > 10
    assert not any("error" in line for line in good)
    assert (bad["batch"], bad["line"]) == (len(good) + 1, 201)
    assert missing["error"] == "No such file or directory"


@pytest.mark.parametrize("option", ["--tuples", "--fragments", "--entities", "--record=e"])
def test_batches_go_without(fmware: Fmware, statements: Path, endless: Path, option: str) -> None:
    result = fmware("filter", statements, endless, "--batches", 50, option)
    assert result.exit_code == 2
    assert "--batches goes without" in result.stderr


# --- explain --------------------------------------------------------------------------------


@pytest.fixture
def message(tmp_path: Path) -> Path:
    path = tmp_path / "message.xml"
    path.write_bytes(PEN)
    return path


def test_explain_shows_a_match(fmware: Fmware, message: Path) -> None:
    result = fmware("statements", "explain", "//sale[units > 3]/product", message)
    assert result.exit_code == 0
    assert "matches" in result.stdout
    assert '/sale[1]: units was "7"' in result.stdout
    assert '/sale[1]/product[1] "Pen"' in result.stdout


def test_explain_shows_where_it_stopped(fmware: Fmware, message: Path) -> None:
    result = fmware(
        "statements", "explain", "//sale[units > 30 and not(product/@sku[. = 'p8'])]", message
    )
    assert result.exit_code == 0
    assert "does not match" in result.stdout
    assert 'stopped at step 1, predicate 1: none of 1 passed: units was "7"' in result.stdout
    result = fmware("statements", "explain", "//sale[unit or product/@sko]/x", message)
    assert re.search(r"nearest +units", result.stdout)
    assert re.search(r"nearest +@sku", result.stdout)


def test_explain_tells_how_to_declare_the_namespace(fmware: Fmware) -> None:
    document = b"<f:feed xmlns:f='urn:f'><f:entry/></f:feed>"
    result = fmware("statements", "explain", "//entry", "-", stdin=document)
    assert "would match if namespaces were ignored" in result.stdout
    assert 'fmware statements explain --namespace f=urn:f "//f:entry"' in result.stdout
    result = fmware("statements", "explain", "-n", "f=urn:f", "//f:entry", "-", stdin=document)
    assert "  matches" in result.stdout


def test_explain_is_json_for_programs(fmware: Fmware, message: Path) -> None:
    found = json.loads(fmware("statements", "explain", "//sale/unit", message, "--json").stdout)
    assert found["matched"] is False
    assert found["trace"]["stop"]["did_you_mean"] == ["units"]


def test_explain_reads_what_filter_reads(fmware: Fmware, tmp_path: Path) -> None:
    packed = tmp_path / "m.xml.gz"
    packed.write_bytes(gzip.compress(b"<a>&uuml;</a>"))
    result = fmware("statements", "explain", "//a[. = 'ü']", packed, "--entities")
    assert "  matches" in result.stdout
    assert fmware("statements", "explain", "//a", packed).exit_code == 1
    packed.write_bytes(gzip.compress(PEN, mtime=0)[:-9])
    assert fmware("statements", "explain", "//a", packed).exit_code == 1


def test_exit_codes_of_explain(fmware: Fmware, message: Path, tmp_path: Path) -> None:
    assert fmware("statements", "explain", "//a[", message).exit_code == 2
    assert fmware("statements", "explain", "//p:a", message).exit_code == 2
    assert fmware("statements", "explain", "//a", tmp_path / "none.xml").exit_code == 1
    message.write_bytes(BAD)
    result = fmware("statements", "explain", "//a", message)
    assert result.exit_code == 1
    assert "line 2, column 20" in result.stderr


# --- what the documentation shows -----------------------------------------------------------


@pytest.mark.parametrize("page", ["README.md", "docs/filtering.md"])
def test_commands_in_the_documentation_print_what_is_shown(
    fmware: Fmware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    sale = "<sale><product sku='{}'><units>{}</units></product></sale>"
    atom = "http://www.w3.org/2005/Atom"
    files = {
        "statements.txt": "//product[units > 3]\n//sale/refund\n//product/@sku\n",
        "pens.xml": sale.format("p7", 7),
        "ink.xml": sale.format("p9", 2),
        "feed.xml": f"<feed xmlns='{atom}'><entry><title>One</title></entry></feed>",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"^\$ fmware ((?:filter|explain) .*)\n((?:[^$`].*\n)+)", text, re.M)
    assert shown
    for command, output in shown:
        printed = fmware(*shlex.split(command)).stdout
        assert printed.endswith(output.removeprefix("...\n"))


def test_the_examples_of_the_page_are_true() -> None:
    assert doctest.testfile(str(ROOT / "docs/filtering.md"), module_relative=False).failed == 0
