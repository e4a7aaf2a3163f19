from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from lxml import etree
from typer.testing import CliRunner

from fmware.cli.generate import generate, parse_size
from fmware.datasets import ParameterError, dtd_text
from tests.datasets.support import assert_valid, carried

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(generate, list(map(str, arguments)))


def test_documents_go_one_a_line_to_stdout() -> None:
    result = run("documents", "-N", 5, "--size", "2KB")
    assert result.exit_code == 0
    lines = result.stdout_bytes.splitlines()
    assert len(lines) == 5
    assert_valid(carried("news"), lines)


def test_documents_go_to_files_of_a_directory(tmp_path: Path) -> None:
    result = run("documents", "--dtd", "auction", "-N", 3, "--out", tmp_path / "d", "--json")
    assert json.loads(result.stdout)["documents"] == 3
    files = sorted((tmp_path / "d").iterdir())
    assert len(files) == 3
    assert_valid(carried("auction"), (file.read_bytes() for file in files))


def test_queries_take_the_parameters_of_the_papers() -> None:
    result = run("queries", "-N", 40, "-D", 4, "-W", 0, "--DS", 1, "-P", 1, "--np", 1, "--json")
    lines = result.stdout.splitlines()
    assert len(lines) == 40
    assert all(etree.XPath(line).path.startswith("//") for line in lines)
    assert json.loads(result.stderr)["queries"] == 40


def test_a_bibliography_can_be_packed(tmp_path: Path) -> None:
    out = tmp_path / "corpus.xml.gz"
    result = run("bibliography", "--size", "300KB", "--out", out, "--json")
    data = gzip.decompress(out.read_bytes())
    assert json.loads(result.stdout)["records"] == len(etree.fromstring(data))
    assert run("bibliography", "--size", "300KB", "--out", out).exit_code == 0
    assert gzip.decompress(out.read_bytes()) == data


def test_a_file_tells_what_was_written(tmp_path: Path) -> None:
    result = run("recursive", "-N", 3, "--out", tmp_path / "deep.xml")
    assert result.stdout.endswith("deep.xml\n")
    assert len(etree.parse(tmp_path / "deep.xml").getroot()) == 3


def test_messages_go_one_a_line() -> None:
    assert_valid(
        carried("notices"), run("messages", "--records", 50, "-N", 4).stdout_bytes.splitlines()
    )


def test_a_carried_dtd_can_be_printed() -> None:
    assert run("dtd", "news").stdout_bytes == dtd_text("news")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("documents", "-D", 0), "depth is 0"),
        (("documents", "--dtd", "nowhere"), "no DTD 'nowhere'"),
        (("queries", "-W", 3), "wildcard is 3"),
        (("queries", "--dtd", "notices", "-D", 1, "-N", 500), "only 3 exist"),
        (("bibliography", "--size", "5 miles"), "write it as 4096"),
        (("bibliography", "--records", 1, "--doctype", "none"), "entities must be declared"),
        (("messages", "--records", 0), "records is 0"),
        (("recursive", "--out", "/nowhere/at/all.xml"), "No such file"),
        (("dtd", "nowhere"), "the project carries"),
    ],
)
def test_bad_parameters_end_with_exit_code_2_and_say_why(
    arguments: tuple[object, ...], says: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4KB", 4000), ("4 kib", 4096), ("1.5GB", 1_500_000_000), ("2M", 2_000_000)],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KB", "-1", "4TB", "four"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="size is"):
        parse_size(text)
