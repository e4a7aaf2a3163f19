"""What was silent and is said now: each of these misled a new user once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest

from fmware import (
    Index,
    Middleware,
    NothingIndexed,
    ServiceError,
    Statement,
    add,
    build_index,
    describe,
    lint,
    remove,
)
from fmware.plan import plan_of
from fmware.service.brokers import source_of
from fmware.service.settings import SettingsError, load
from tests.cli.conftest import fmware  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware

STOCK = (
    b"<stock><item sku='p7'><city>Ulm</city></item><item sku='p8'><city>Bonn</city></item></stock>"
)
SPACED = b"<stock xmlns='urn:shop'><item sku='p7'/></stock>"


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    build_index(STOCK, tmp_path / "stock", record="item", identity="item=@sku")
    return tmp_path / "stock"


# --- identity rules -------------------------------------------------------------------------


def test_an_identity_rule_without_keys_is_reported_with_its_namespace(tmp_path: Path) -> None:
    rules = ["item=@sku", "{urn:shop}item=@sku"]
    made = build_index(SPACED, tmp_path / "index", record="item", identity=rules)
    assert made.keys == {"item=@sku": 0, "{urn:shop}item=@sku": 1}
    [warning] = made.warnings
    assert warning.startswith("identity rule item=@sku gave no key")
    assert "write '{urn:shop}item=@sku'" in warning


@pytest.mark.parametrize(
    ("rule", "words"),
    [("shelf=@sku", "no element shelf"), ("item=@ean", "no item of the corpus has @ean")],
)
def test_an_identity_rule_says_what_the_corpus_lacks(tmp_path: Path, rule: str, words: str) -> None:
    made = build_index(STOCK, tmp_path / "index", record="item", identity=rule)
    assert words in made.warnings[0]


def test_rules_of_one_element_are_counted_apart(tmp_path: Path) -> None:
    rules = ["item=@sku", "item=city", "item=@ean", "*=@sku"]
    made = build_index(STOCK, tmp_path / "index", record="item", identity=rules)
    assert made.keys == {"item=@sku": 2, "item=city": 2, "item=@ean": 0, "*=@sku": 2}


def test_the_command_line_shows_keys_and_warns(
    fmware: Fmware,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "stock.xml").write_bytes(SPACED)
    arguments = ("-r", "item", "-i", "item=@sku", "--in-process", "-o", tmp_path / "index")
    result = fmware("index", "build", tmp_path / "stock.xml", *arguments)
    assert result.exit_code == 0
    assert "keys, item=@sku" in result.stdout
    assert "1 record, 2 nodes" in result.stdout
    assert "warning: identity rule item=@sku gave no key" in result.stderr


# --- what is counted ------------------------------------------------------------------------


def test_a_row_without_xml_is_counted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"xml": ["<item sku='a'/>", None, "", "<item sku='b'/>"]})
    made = build_index(frame, tmp_path / "index", identity="item=@sku")
    assert (made.records, made.empty) == (2, 2)
    more = add(tmp_path / "index", pa.table({"xml": [None, "<item sku='c'/>"]}))
    assert (more.records, more.empty) == (1, 1)


def test_statistics_count_what_is_left_after_a_removal(
    fmware: Fmware,  # noqa: F811
    stock: Path,
) -> None:
    remove(stock, keys=[("item", "p7")])
    left = describe(stock, exact=True)
    assert (left.total_records, left.total_nodes, left.total_keys) == (1, 3, 1)
    assert describe(stock).total_nodes == 3
    found = json.loads(fmware("index", "stats", stock, "--json").stdout)
    assert found["nodes"] == 3
    assert {name: (each["nodes"], each["keys"]) for name, each in found["tags"].items()} == {
        "item": (1, 1),
        "@sku": (1, 0),
        "city": (1, 0),
    }
    with Index.open(stock) as index:
        assert index.live_statistics().schemes["path"].nodes == 3


def test_an_ad_only_run_scans_by_no_label(stock: Path) -> None:
    with Middleware(stock, operator="admatch") as middleware:
        middleware.subscribe("//sale/item/local:city")
        middleware.publish(b"<sale><item sku='p7'/></sale>")
        counters = middleware.report().summary.counters
    assert counters["index_scans"] == 0
    assert counters["ad_probes"] == 1


def test_a_statement_is_counted_once_in_its_own_plan(stock: Path) -> None:
    statement = Statement.parse("//sale/item/local:city", name="city")
    others = [statement, Statement.parse("//sale/item/local:price")]
    with Index.open(stock) as index:
        plan = plan_of(index, statement, others=others)
        alone = plan_of(index, statement, others=[statement])
    assert (plan.statements, alone.statements) == (2, 1)
    assert not any(way.shared for way in alone.way)


# --- statements -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("//invoice[IssueDate >= '2026-06-01']", 1),
        ("//invoice[not(line[date < 'May'] or a > '2e3')]", 2),
        ("//invoice[position() < 1]", 1),
        ("//sale/item/local:price[. > 'ten']", 1),
        ("//invoice[IssueDate = '2026-06-01'][total > '10.5'][n != 'x'][last > -3]", 0),
        ("//invoice[position() <= 1]", 0),
    ],
)
def test_conditions_that_never_hold_are_warned_of(text: str, number: int) -> None:
    warnings = lint(Statement.parse(text))
    assert len(warnings) == number
    assert all("never holds" in each for each in warnings)


def test_checking_warns_with_and_without_an_index(
    fmware: Fmware,  # noqa: F811
    stock: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "s.txt").write_text("//invoice[IssueDate >= '2026-06-01']\n")
    for more in ((), ("-x", stock)):
        result = fmware("statements", "check", tmp_path / "s.txt", *more)
        assert result.exit_code == 0
        assert "'2026-06-01' is none" in " ".join(result.stdout.split())
        assert "1 warning" in result.stderr


TOML = """\
[[statement]]
name = "fine"
expression = "//a"

[[statement]]
name = "torn"
expression = "//a["
"""


@pytest.mark.parametrize("command", ["check", "filter", "match"])
def test_a_refused_statement_of_a_file_has_file_line_and_name(
    fmware: Fmware,  # noqa: F811
    stock: Path,
    tmp_path: Path,
    command: str,
) -> None:
    file, message = tmp_path / "s.toml", tmp_path / "m.xml"
    file.write_text(TOML)
    message.write_text("<a/>")
    arguments = {
        "check": ("statements", "check", file),
        "filter": ("filter", file, message),
        "match": ("match", stock, file, message),
    }[command]
    result = fmware(*arguments)
    assert result.exit_code == 2
    assert f"{file}, line 5, statement torn: " in result.stderr


def test_a_refused_statement_of_a_configuration_has_file_line_and_name(tmp_path: Path) -> None:
    file = tmp_path / "fmware.toml"
    file.write_text('index = "x"\n\n[[statements]]\nname = "torn"\nexpression = "//a["\n')
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert f"{file}, line 5" in str(caught.value)
    assert "statement torn: " in str(caught.value)


# --- building -------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_build_leaves_nothing_behind(tmp_path: Path, there: bool) -> None:
    out = tmp_path / "index"
    if there:
        out.mkdir()
    with pytest.raises(NothingIndexed):
        build_index(STOCK, out, record="nothing")
    assert out.exists() == there
    assert not there or not any(out.iterdir())
    build_index(STOCK, out, record="item")


def test_a_failed_build_leaves_an_index_that_was_there_alone(stock: Path) -> None:
    before = sorted(each.name for each in stock.rglob("*"))
    with pytest.raises(Exception, match="index"):
        build_index(STOCK, stock, record="item")
    assert sorted(each.name for each in stock.rglob("*")) == before


# --- the service ----------------------------------------------------------------------------


def test_init_then_test_works(
    fmware: Fmware,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fmware("init").exit_code == 0
    result = fmware("test")
    assert result.exit_code == 0, result.output
    assert result.stderr.endswith("1 test, 0 failed\n")
    # What asks a corpus cannot be tested without one.
    more = "[[statements]]\nname = 'city'\nexpression = '//order/item/local:city'\n"
    with (tmp_path / "fmware.toml").open("a") as file:
        file.write(more)
    result = fmware("test")
    assert result.exit_code != 0
    assert "fmware index build" in result.stderr


def test_a_class_of_ones_own_says_how_it_is_found() -> None:
    about = {"kind": "python", "name": "mine", "use": "nowhere_at_all:Tail"}
    with pytest.raises(ServiceError, match="PYTHONPATH"):
        source_of(about)
