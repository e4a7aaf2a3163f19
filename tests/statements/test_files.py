"""Statement files with more than expressions, and that both readers read the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fmware.filtering import statements as filtering
from fmware.statements import (
    Returns,
    Statement,
    StatementError,
    StatementFileError,
    Statements,
    parse_statements,
    read_statements,
)
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
[namespaces]
p = "urn:p"

[[statement]]
name = "one"
expression = "//sale/product//local:warehouse"
returns = "value"

[[statement]]
name = "two"
filter = "//sale/p:product/units"
match = "warehouse[@open]"
anchor = "p:product"
axis = "descendant"
returns = ["message", "fragment"]

[[statement]]
name = "three"
filter = "//q:sale"
match = "."
anchor = 1
namespaces = { q = "urn:q" }
"""


def read(path: Path, text: str, **namespaces: str) -> Statements:
    path.write_text(text)
    return read_statements(path, namespaces=namespaces)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "statements.toml"


def test_a_plain_file(tmp_path: Path) -> None:
    found = read(tmp_path / "s.txt", "//a\n\n# no\n//p:b/local:c\n//d[\n", p="urn:p")
    assert found == [
        Statement.parse("//a", name="1", namespaces={"p": "urn:p"}),
        Statement.parse("//p:b/local:c", name="4", namespaces={"p": "urn:p"}),
    ]
    [bad] = found.bad
    assert (bad.name, bad.line) == ("5", 5)
    assert isinstance(bad.error, XPathError)


def test_both_forms_stand_in_one_file(toml: Path) -> None:
    found = read(toml, FILE)
    assert found.bad == []
    assert [each.name for each in found] == ["one", "two", "three"]
    one, two, three = found
    assert one.returns == {Returns.VALUE}
    assert two == Statement.two_part(
        filter="//sale/p:product/units",
        match="//warehouse[@open]",
        anchor=2,
        name="two",
        namespaces={"p": "urn:p"},
        returns=["fragment", "message"],
    )
    assert three.namespaces == {"p": "urn:p", "q": "urn:q"}
    assert three.crossings[0].anchor.step == 0


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('expression = "//b"\nmatch = "c"', "match beside expression"),
        ('expression = "//b"\nanchor = 1', "anchor beside expression"),
        ('filter = "//b"', "write an expression, or filter and match"),
        ('match = "b"', "write an expression, or filter and match"),
        ('returns = "value"', "write an expression, or filter and match"),
        ('expression = ""', "write an expression, or filter and match"),
        ("filter = 3\nmatch = 4", "filter is not a string"),
        ('filter = "//b"\nmatch = "c"\naxis = 1', "axis is not a string"),
        ('filter = "//b"\nmatch = "c"\nanchor = true', "anchor is the number of a step"),
        ('filter = "//b"\nmatch = "c"\nanchor = 1.5', "anchor is the number of a step"),
        ('expression = "//b/local:c"\nreturns = [1]', "returns has strings only"),
        ('expression = "//b"\ntuples = true', "unknown key 'tuples'"),
        ("expression = 3\nreturns = 'value'", "expression is missing, or not a string"),
    ],
)
def test_keys_that_do_not_go_together(toml: Path, entry: str, reason: str) -> None:
    found = read(toml, f'\n[[statement]]\nname = "x"\n{entry}\n')
    assert found == []
    [bad] = found.bad
    assert (bad.name, bad.line) == ("x", 2)
    assert isinstance(bad.error, StatementFileError)
    assert reason in str(bad.error)


def test_parts_that_do_not_fit_are_collected(toml: Path) -> None:
    text = '[[statement]]\nname = "x"\nfilter = "//b"\nmatch = "c"\nanchor = 2\n'
    [bad] = read(toml, text + '[[statement]]\nname = "y"\nexpression = "//b"\n').bad
    assert (bad.name, bad.line) == ("x", 1)
    assert isinstance(bad.error, StatementError)
    assert "steps count from 1, and there are 1" in str(bad.error)


def test_the_filter_takes_the_same_files_but_not_the_other_keys(toml: Path) -> None:
    toml.write_text(FILE + '[[statement]]\nname = "four"\nexpression = "//a"\n')
    found = filtering.read_statements(toml)
    assert [each.name for each in found] == ["four"]
    assert [bad.name for bad in found.bad] == ["one", "two", "three"]


def test_bytes_do_as_well_as_a_file() -> None:
    assert [each.text for each in parse_statements(b"//a\n//b", "-")] == ["//a", "//b"]


def test_a_file_as_a_whole_that_is_wrong_is_told(toml: Path) -> None:
    with pytest.raises(StatementFileError):
        read(toml, "statement = 3")
    with pytest.raises(FileNotFoundError):
        read_statements(toml.with_name("nothing.txt"))
