"""`fmware statements check`: good statements, bad ones, and those that an index lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

import pytest
import typer
from typer.testing import CliRunner

from fmware.cli import Commands
from fmware.cli.validate import check
from fmware.corpus import build_index
from fmware.index import Index
from fmware.matching import Resolver, advice
from fmware.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

FILE = """
[[statement]]
name = "cities"
expression = "//sale/product[units > 3]//local:warehouse[@open = 'yes']/local:city"
returns = ["local", "value"]

[[statement]]
name = "plain"
expression = "//sale"

[[statement]]
name = "both"
filter = "//sale[product[local:stock]/@sku]/refund"
match = "ancestor::shop"
anchor = "sale"

[[statement]]
name = "wrong"
filter = "//sale/refund"
match = "//shop["
"""


class Run(Protocol):
    def __call__(self, *arguments: object, stdin: str = "") -> Result: ...


@pytest.fixture
def run() -> Run:
    app = typer.Typer(cls=Commands)
    app.callback()(lambda: None)
    app.command()(check)

    def invoke(*arguments: object, stdin: str = "") -> Result:
        return CliRunner().invoke(app, ["check", *map(str, arguments)], input=stdin)

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "statements.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "shop.xml").write_text(
        "<shop xmlns:p='urn:p'><product sku='1'><stock qty='2'/></product>"
        "<warehouse><city/><p:city/><open/></warehouse></shop>"
    )
    path = tmp_path / "index"
    build_index(tmp_path / "shop.xml", path, identity=["product=@sku", "customer=@id"])
    return path


@pytest.fixture
def index(path: Path) -> Iterator[Index]:
    with Index.open(path) as index:
        yield index


# --- the command ----------------------------------------------------------------------------


def test_good_statements_are_taken_apart(run: Run, file: Path) -> None:
    found = run(file)
    assert found.exit_code == 2
    assert found.stdout.splitlines() == [
        "cities  //sale/product[units > 3]//local:warehouse[@open = 'yes']/local:city",
        "  filter part   //sale/product[units > 3]",
        "  anchor        //sale/product[units > 3]",
        "  crossing axis descendant",
        "  match part    .//warehouse[@open = 'yes']/city",
        "  returns       local, value",
        "plain  //sale",
        "  filter part   //sale",
        "  match part    none: a plain filter",
        "  returns       name",
        "both  //sale[product[local:stock]/@sku]/refund at step 1 -> ancestor::shop",
        "  filter part   //sale[product/@sku]/refund",
        "  anchor        product[@sku], from //sale[product/@sku]",
        "  crossing axis child",
        "  must match    stock",
        "  anchor        //sale[product/@sku]",
        "  crossing axis ancestor",
        "  match part    ancestor::shop",
        "  returns       local, message",
    ]
    assert f"{file}, line 17, statement wrong: FMX002 at character 8" in found.stderr
    assert "  //shop[\n         ^" in found.stderr
    assert found.stderr.endswith("3 good, 1 refused\n")


def test_one_json_line_a_statement(run: Run, file: Path) -> None:
    found = run(file, "--json")
    cities, plain, both, wrong = map(json.loads, found.stdout.splitlines())
    assert (plain["file"], plain["name"], plain["ok"]) == (str(file), "plain", True)
    assert cities["crossings"] == [
        {
            "anchor": "//sale/product[units > 3]",
            "step": 2,
            "axis": "descendant",
            "match": ".//warehouse[@open = 'yes']/city",
            "selects": True,
        }
    ]
    assert cities["warnings"] == []
    assert [each["selects"] for each in both["crossings"]] == [False, True]
    assert (wrong["ok"], wrong["line"]) == (False, 17)
    assert wrong["error"]["code"] == "FMX002"
    assert wrong["error"]["expression"] == "//shop["


def test_several_files_and_stdin(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("//a\n")
    found = run(tmp_path / "a.txt", "-", "-n", "p=urn:p", stdin="//p:b\n//c[\n")
    assert found.exit_code == 2
    assert "//p:b" in found.stdout
    assert "-, line 2: " in found.stderr


def test_good_statements_are_worth_no_word_if_it_is_to_be_quiet(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("//a\n//b/local:c\n")
    found = run(tmp_path / "a.txt", "--quiet")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "", "2 good\n")


@pytest.mark.parametrize("text", [b"//a\n\xff", None])
def test_a_file_that_cannot_be_read_is_an_error(
    run: Run, tmp_path: Path, text: bytes | None
) -> None:
    if text is not None:
        (tmp_path / "a.txt").write_bytes(text)
    found = run(tmp_path / "a.txt")
    assert found.exit_code == 2
    assert found.stderr.startswith(f"fmware: {tmp_path / 'a.txt'}: ")


def test_an_index_tells_what_it_lacks(run: Run, path: Path) -> None:
    found = run("-", "--index", path, "-q", stdin="//product/local:stok\n//product/local:stock\n")
    assert found.exit_code == 0
    assert found.stdout == (
        "1  //product/local:stok\n  warning       the corpus has no stok; nearest: stock\n"
    )
    assert found.stderr == "2 good, 1 warning\n"
    [line, _] = run("-", "--index", path, "--json", stdin="//a/local:b\n//c").stdout.splitlines()
    assert len(json.loads(line)["warnings"]) == 2


def test_no_index_is_an_error(run: Run, tmp_path: Path) -> None:
    assert run("-", "--index", tmp_path / "none", stdin="//a").exit_code == 1


# --- advice ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("//anything[at = 'all']", []),
        ("//product/local:stock[@qty > 1]", []),
        ("//product[local:stock/@qty]", []),
        ("//*/local:stock", []),
        ("//product//local:*/@*", []),
        ("//product/local:stok", ["the corpus has no stok; nearest: stock"]),
        ("//product/local:stock[@quantity]", ["the corpus has no @quantity"]),
        ("//product/local:stock[.//zzz = 1]", ["the corpus has no zzz"]),
        ("//product/local:qty", ["the corpus has no qty; it has the attribute @qty"]),
        ("//product/local:warehouse/@open", ["the corpus has no @open; it has the element open"]),
        ("//product/local:stock[q:city]", ["the corpus has no {urn:q}city; nearest: city"]),
        (
            "//product/local:stock[q:*]",
            ["the corpus has no {urn:q}*: nothing in this namespace"],
        ),
        (
            "//shop/local:stock",
            [
                (
                    "no identity rule is for shop, which is matched only by fm:mi; "
                    "there are product=@sku, customer=@id"
                )
            ],
        ),
        (
            "//customer/local:stock",
            ["the corpus has no customer, so no key of one leads anywhere"],
        ),
        (
            "//product[sale/local:stock]",
            [
                (
                    "no identity rule is for sale, which is matched only by fm:mi; "
                    "there are product=@sku, customer=@id"
                )
            ],
        ),
    ],
)
def test_what_an_index_cannot_answer(index: Index, text: str, expected: list[str]) -> None:
    found = advice(Statement.parse(text, namespaces={"q": "urn:q"}), Resolver(index))
    assert [each.split("; nearest")[0] for each in found] == [
        each.split("; nearest")[0] for each in expected
    ]
    for each, wanted in zip(found, expected, strict=True):
        if "nearest" in wanted:
            assert wanted.split("nearest: ")[1] in each


def test_without_rules_labels_alone_lead_to_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a><b/></a>")
    build_index(tmp_path / "a.xml", tmp_path / "index")
    with Index.open(tmp_path / "index") as index:
        found = advice(Statement.parse("//a/local:b"), Resolver(index))
    assert found == ["the index has no identity rules: a is matched only by fm:mi"]
