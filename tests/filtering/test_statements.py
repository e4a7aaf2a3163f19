"""Statement files: names, lines, namespaces, and what is wrong with some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fmware import UndeclaredPrefix, XPathError, XPathSyntaxError
from fmware.filtering.statements import (
    BadStatement,
    Statement,
    StatementFileError,
    Statements,
    iter_statements,
    read_statements,
)

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, text: str | bytes, **namespaces: str) -> Statements:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_statements(path, namespaces=namespaces)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return tmp_path / "statements.txt"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "statements.toml"


# --- plain ----------------------------------------------------------------------------------


def test_a_name_is_the_number_of_its_line(plain: Path) -> None:
    found = read(plain, "//a\n\n# a comment\n  //b[@x = '#']  \n\t\n  # another\n/c")
    assert found == [
        Statement("1", "//a", {}, 1),
        Statement("4", "//b[@x = '#']", {}, 4),
        Statement("7", "/c", {}, 7),
    ]
    assert found.bad == []


def test_bad_statements_are_collected_and_the_rest_goes_on(plain: Path) -> None:
    found = read(plain, "//a\n//b[\n//p:c\n//d\n")
    assert [each.name for each in found] == ["1", "4"]
    assert [(bad.name, bad.line, type(bad.error)) for bad in found.bad] == [
        ("2", 2, XPathSyntaxError),
        ("3", 3, UndeclaredPrefix),
    ]


def test_prefixes_can_be_given_for_all(plain: Path) -> None:
    found = read(plain, "//p:c[@q:d]", p="urn:p", q="urn:q")
    assert found == [Statement("1", "//p:c[@q:d]", {"p": "urn:p", "q": "urn:q"}, 1)]


def test_line_ends_and_marks_of_other_systems_do_no_harm(plain: Path) -> None:
    found = read(plain, b"\xef\xbb\xbf//a\r\n\r\n//b[. = '\xc2\x85\xe2\x80\xa8']\r\n")
    assert [(each.name, each.expression) for each in found] == [
        ("1", "//a"),
        ("3", "//b[. = '\x85\u2028']"),
    ]


def test_an_empty_file_has_no_statements(plain: Path) -> None:
    assert read(plain, "") == []


def test_bytes_that_are_not_utf8_are_told_by_line_and_byte(plain: Path) -> None:
    with pytest.raises(StatementFileError, match="byte 3 of the line is not UTF-8") as caught:
        read(plain, b"//a\n//\xfc\n")
    assert (caught.value.line, caught.value.source) == (2, str(plain))


def test_a_file_that_is_not_there_is_the_error_of_the_system(plain: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_statements(plain)


def test_entries_come_without_being_parsed() -> None:
    assert list(iter_statements(b"//a[", "-")) == [Statement("1", "//a[", {}, 1)]


# --- TOML -----------------------------------------------------------------------------------

GOOD = """
[namespaces]
p = "urn:p"
q = "urn:q"

[[statement]]
name = "first"
expression = "//p:a"

[[statement]]
name = "second"
expression = "//p:a/q:b"
namespaces = { q = "urn:other" }
"""


def test_toml_gives_names_and_namespaces(toml: Path) -> None:
    assert read(toml, GOOD, p="urn:beaten", r="urn:r") == [
        Statement("first", "//p:a", {"p": "urn:p", "q": "urn:q", "r": "urn:r"}, 6),
        Statement("second", "//p:a/q:b", {"p": "urn:p", "q": "urn:other", "r": "urn:r"}, 10),
    ]


@pytest.mark.parametrize(
    ("entry", "name", "reason"),
    [
        ('expression = "//b"', "5", "name is missing"),
        ('name = "x"', "x", "expression is missing"),
        ('name = 3\nexpression = "//b"', "5", "name is missing, or not a string"),
        ('name = "a"\nexpression = "//b"', "a", "the name 'a' is that of the statement on line 1"),
        ('name = "x"\nexpression = "//b"\nnamespaces = { p = 1 }', "x", "strings only"),
        ('name = "x"\nexpression = "//b"\ntuples = true', "x", "unknown key 'tuples'"),
    ],
)
def test_a_bad_entry_is_collected(toml: Path, entry: str, name: str, reason: str) -> None:
    head = '[[statement]]\nname = "a"\nexpression = "//a"\n'
    tail = '[[statement]]\nname = "z"\nexpression = "//z"\n'
    found = read(toml, f"{head}\n[[statement]]\n{entry}\n{tail}")
    assert [each.name for each in found] == ["a", "z"]
    [bad] = found.bad
    assert isinstance(bad, BadStatement)
    assert isinstance(bad.error, StatementFileError)
    assert (bad.name, bad.line) == (name, 5)
    assert reason in str(bad.error)


def test_a_bad_expression_is_collected(toml: Path) -> None:
    found = read(toml, '[[statement]]\nname = "a"\nexpression = "//a["\n')
    assert found == []
    assert isinstance(found.bad[0].error, XPathError)


def test_an_inline_list_does_as_well(toml: Path) -> None:
    found = read(toml, 'statement = [{ name = "a", expression = "//a" }, 3]')
    assert found == [Statement("a", "//a", {}, 1)]
    assert "has a name and an expression" in str(found.bad[0].error)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[[statement]]\nname = \n", 2, "Invalid value"),
        ("[[statement]]\nname = 'a", 2, "line|end"),
        ("statement = 3", 1, "not a list"),
        ("namespaces = 3", 1, "strings only"),
        ("[namespaces]\np = 3", 1, "strings only"),
        ("[statements]", 1, "unknown key 'statements'"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_is_told(
    toml: Path, text: str, line: int, reason: str
) -> None:
    with pytest.raises(StatementFileError, match=reason) as caught:
        read(toml, text)
    assert caught.value.line == line


def test_the_lines_of_many_entries_are_those_of_their_headers(toml: Path) -> None:
    entry = '[[statement]]\nname = "s{}"\nexpression = "//a"\n# a comment\n'
    found = read(toml, "\n".join(entry.format(number) for number in range(300)))
    assert [each.line for each in found] == [1 + 5 * number for number in range(300)]


def test_values_that_lie_too_deep_are_refused(toml: Path) -> None:
    with pytest.raises(StatementFileError, match="too deep"):
        read(toml, "a = " + "[" * 100_000)
