"""``fmware statements parse`` as a user meets it."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from fmware.cli.xpath import EPILOG, xpath

APP = typer.Typer()
APP.command(epilog=EPILOG)(xpath)
STATEMENT = "//sale[@x][a/local:b]/product[.//units > 3]//local:warehouse[@open='yes']/local:city"


def test_a_statement_is_explained() -> None:
    result = CliRunner().invoke(APP, [STATEMENT])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert STATEMENT in lines
    assert "filter part //sale[@x][a]/product[.//units > 3]" in lines
    assert "anchor a, from //sale[@x][a]" in lines
    assert "must match local:b" in lines
    assert "anchor //sale[@x][a]/product[.//units > 3]" in lines
    assert "crossing axis descendant" in lines
    assert "match part .//local:warehouse[@open = 'yes']/local:city" in lines


@pytest.mark.parametrize(
    "expression",
    ["//a[not(b or c) and contains(d, 'x')][2]", "//a/@b[. = 'x']", "//a/text()", "//a[.]"],
)
def test_every_kind_of_node_is_shown(expression: str) -> None:
    result = CliRunner().invoke(APP, [expression])
    assert result.exit_code == 0
    assert "a plain filter" in result.stdout


def test_json_has_a_line_for_each_statement() -> None:
    result = CliRunner().invoke(APP, ["--json", STATEMENT, "//a[c][b]"])
    first, second = map(json.loads, result.stdout.splitlines())
    assert [(c["anchor"], c["axis"], c["match"], c["selects"]) for c in first["crossings"]] == [
        ({"step": 0, "name": "a", "branch": "a"}, "child", "local:b", False),
        (
            {"step": 1, "name": "product", "branch": "."},
            "descendant",
            ".//local:warehouse[@open = 'yes']/local:city",
            True,
        ),
    ]
    assert (second["canonical"], second["crossings"]) == ("//a[b][c]", [])
    assert second["steps"][0]["predicates"] == ["c", "b"]


def test_a_bad_statement_does_not_stop_the_others() -> None:
    result = CliRunner().invoke(APP, ["--json", "-"], input="//a[b = ]\n\n//d\n")
    assert result.exit_code == 2
    bad, good = map(json.loads, result.stdout.splitlines())
    assert (bad["error"]["code"], bad["error"]["at"]) == ("FMX001", 8)
    assert good["filter"] == "//d"
    assert "          ^" in result.stderr.splitlines()


def test_what_cannot_be_split_is_refused() -> None:
    result = CliRunner().invoke(APP, ["//a[b or local:c]"])
    assert result.exit_code == 2
    assert "FMX123" in result.stderr


def test_standard_input_is_read_when_nothing_is_given() -> None:
    result = CliRunner().invoke(APP, [], input="//a\n")
    assert result.exit_code == 0
    assert "//a" in result.stdout


def test_prefixes_must_be_declared() -> None:
    assert CliRunner().invoke(APP, ["//p:a"]).exit_code == 2
    assert CliRunner().invoke(APP, ["-n", "p=urn:p", "//p:a"]).exit_code == 0


@pytest.mark.parametrize("pair", ["p", "=urn:p", "p=", "local=urn:p"])
def test_a_bad_declaration_is_refused(pair: str) -> None:
    assert CliRunner().invoke(APP, ["-n", pair, "//a"]).exit_code == 2


def test_help_teaches_with_examples() -> None:
    result = CliRunner().invoke(
        APP, ["--help"], env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}
    )
    assert result.exit_code == 0
    assert "//product[.//local:stock]" in result.stdout
    assert "[@open = 'yes']" in result.stdout
