"""The command line as a whole: versions, exit codes, errors, pipes."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from lxml import etree
from typer.main import get_command

import fmware as package
from fmware.cli import PACKAGES, app, versions
from fmware.cli.demo import STATEMENTS
from fmware.cli.output import examples, exit_code_of, expand, prose
from fmware.labeling import MalformedXML
from tests.cli.conftest import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Fmware, Process


def test_version_names_what_it_stands_on(fmware: Fmware) -> None:
    result = fmware("version", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found) == ["fmware", "python", "lxml", "libxml2", "pyarrow", "lmdb", "kernel"]
    assert found["fmware"] == package.__version__
    assert found["python"] == platform.python_version()
    assert found["libxml2"] == ".".join(map(str, etree.LIBXML_VERSION))
    assert found["kernel"] is True


def test_version_is_a_line_each_for_people(fmware: Fmware) -> None:
    assert [line.split()[0] for line in fmware("version").stdout.splitlines()] == list(versions())


@pytest.mark.parametrize("missing", ["nowhere", "half"])
def test_version_tells_a_kernel_that_was_not_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str
) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "__init__.py").touch()
    (tmp_path / "half" / "_kernel.pyx").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("fmware.cli.PACKAGES", (*PACKAGES, missing))
    assert versions()["kernel"] is False


def test_every_package_with_a_kernel_is_asked_for_it() -> None:
    built = re.findall(r'"(fmware/\w+)/[\w/]*\.pyx"', (ROOT / "setup.py").read_text())
    linked = {each for each in built if (ROOT / each).is_symlink()}
    assert linked
    assert {"fmware", *(each.replace("/", ".") for each in linked)} == set(PACKAGES)


def test_starting_up_imports_nothing_heavy() -> None:
    code = (
        "import sys, fmware.cli;"
        "heavy = {'numpy', 'pyarrow', 'fmware.labeling'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def every_command() -> Iterator[tuple[str, ...]]:
    """All commands and groups, by the words that lead to them."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), get_command(app))]
    while waiting:
        words, command = waiting.pop()
        yield words
        inner = getattr(command, "commands", {})
        waiting += [((*words, name), each) for name, each in inner.items()]


@pytest.mark.parametrize("command", list(every_command()), ids=" ".join)
def test_every_command_teaches(fmware: Fmware, command: tuple[str, ...]) -> None:
    for option in ("--help", "-h"):
        result = fmware(*command, option)
        assert result.exit_code == 0
        assert "Usage" in result.stdout


def test_help_lists_the_commands_and_the_exit_codes(fmware: Fmware) -> None:
    shown = fmware("--help").stdout
    for word in ("version", "label", "statements", "demo", "Exit codes", "fmware demo"):
        assert word in shown


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["label"], ["label", "-", "--format", "xls"], ["--nothing"]]
)
def test_a_wrong_command_line_is_code_2(process: Process, arguments: list[str]) -> None:
    result = process(*arguments)
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"Traceback" not in result.stderr


def test_a_process_reads_stdin_and_writes_stdout(process: Process) -> None:
    result = process("label", "-", stdin=b"<a>\xc3\xbc</a>")
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout.splitlines()[1])["value"] == "ü"


def test_a_bad_document_is_code_1_and_one_line(process: Process) -> None:
    result = process("label", "-", stdin=b"<a><b></a>")
    assert (result.returncode, result.stdout) == (1, b"")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(b"fmware: <stdin>: line 1, column ")


def test_a_bad_expression_is_code_2(process: Process) -> None:
    result = process("statements", "parse", "//a[")
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr


def test_an_expression_is_explained(fmware: Fmware) -> None:
    result = fmware("statements", "parse", "--json", "//sale/product[.//units > 3]/local:city")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["filter"] == "//sale/product[.//units > 3]"


def test_a_workload_is_made(fmware: Fmware) -> None:
    result = fmware("generate", "queries", "--count", 5)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 5
    assert all(line.startswith("/") for line in result.stdout.splitlines())


def test_what_is_made_can_be_labelled(fmware: Fmware) -> None:
    made = fmware("generate", "documents", "--count", 3)
    labelled = fmware("label", "-", stdin=made.stdout)
    assert (made.exit_code, labelled.exit_code) == (0, 0)
    assert {json.loads(line)["document"] for line in labelled.stdout.splitlines()} == {1, 2, 3}


def test_a_parameter_out_of_range_is_code_2(process: Process) -> None:
    result = process("generate", "documents", "--count", "-1")
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"Traceback" not in result.stderr


def test_an_error_has_a_traceback_only_if_asked_for(process: Process, tmp_path: Path) -> None:
    arguments = ("label", "-", "--out", tmp_path / "none" / "x.jsonl")
    quiet = process(*arguments, stdin=b"<a/>")
    assert quiet.returncode == 1
    assert quiet.stderr.startswith(b"fmware: ")
    for loud in (
        process("--debug", *arguments, stdin=b"<a/>"),
        process(*arguments, stdin=b"<a/>", env={"FMWARE_DEBUG": "1"}),
    ):
        assert loud.returncode == 1
        assert b"Traceback" in loud.stderr


@pytest.mark.parametrize("form", ["jsonl", "table"])
def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path, form: str) -> None:
    path = tmp_path / "long.xml"
    path.write_bytes(b"<a>" + b"<b>some longer text, to fill the pipe</b>" * 600 + b"</a>")
    with subprocess.Popen(
        [sys.executable, "-m", "fmware", "label", str(path), "-f", form, "--rows", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""


def small_demo(fmware: Fmware, out: Path, *more: object) -> str:
    sizes = ("--size", 1, "--messages", 50, "--crowd", 100, "--in-process")
    result = fmware("demo", "--out", out, *sizes, *more)
    assert result.exit_code == 0
    return result.stdout


def test_a_demo_is_the_same_each_time(fmware: Fmware, tmp_path: Path) -> None:
    names = ("first", "again")
    figures = [json.loads(small_demo(fmware, tmp_path / name, "--json")) for name in names]
    counts = [{k: v for k, v in each.items() if not k.endswith("_seconds")} for each in figures]
    assert counts[0] == counts[1]
    assert (counts[0]["messages"], counts[0]["statements"]) == (50, 100 + len(STATEMENTS))
    assert counts[0]["nodes"] > counts[0]["records"] > 1000
    for path in sorted((tmp_path / "first").glob("*.*")):
        if path.is_dir():
            continue  # an index says when it was made
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_demo_counts_what_lxml_counts(fmware: Fmware, tmp_path: Path) -> None:
    figures = json.loads(small_demo(fmware, tmp_path, "--json"))
    messages = [etree.XML(line) for line in (tmp_path / "messages.xml").read_bytes().splitlines()]
    plain = [text for text in STATEMENTS if "local:" not in text]
    assert figures["matched"][: len(plain)] == [
        sum(len(message.getroottree().xpath(text)) for message in messages) for text in plain
    ]
    assert figures["inputs"] > 0
    assert figures["pairs"] > 0
    assert sum(figures["matched"][len(plain) :]) > 0


def test_a_demo_shows_its_steps(fmware: Fmware, tmp_path: Path) -> None:
    shown = small_demo(fmware, tmp_path)
    words = ("corpus", "index", "messages", "statements", "match", "clusters, vist")
    for word in (*words, "/local:author"):
        assert word in shown
    page = tmp_path / "report" / "report.html"
    assert shown.splitlines()[-1].endswith(str(page))
    assert page.exists()


def test_only_errors_of_the_project_have_an_exit_code() -> None:
    assert exit_code_of(package.XPathSyntaxError("FMX004", "", 0)) == 2
    assert exit_code_of(package.FMwareError("so")) == 1
    assert exit_code_of(MalformedXML("so")) == 1
    assert exit_code_of(OSError("so")) == 1
    assert exit_code_of(ValueError("a bug")) is None


def test_help_texts_are_paragraphs() -> None:
    assert prose("\nOne\n  line.\n\nAnother.\n") == "One line.\n\nAnother."
    shown = examples(("fmware statements parse //a[b]", "a filter"))
    assert shown.endswith(r"[cyan]fmware statements parse //a\[b][/cyan]  a filter")


def test_names_expand_in_order(tmp_path: Path) -> None:
    for name in ("b.xml", "a.xml", "c.txt"):
        (tmp_path / name).touch()
    found = list(expand(["-", str(tmp_path), "missing.xml"]))
    assert found == ["-", str(tmp_path / "a.xml"), str(tmp_path / "b.xml"), "missing.xml"]
