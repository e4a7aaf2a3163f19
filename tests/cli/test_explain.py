"""`fmware statements explain INDEX STATEMENT`, and how it is told from the other form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fmware.cli.explain import is_index
from fmware.corpus import build_index

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware

STOCK = "".join(f"<item k='{n}'><city>C{n}</city></item>" for n in range(40))
STATEMENT = "//item[@n > 3]/local:city"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("explain")
    (made / "stock.xml").write_text(f"<stock>{STOCK}</stock>")
    build_index(
        made / "stock.xml", made / "index", record="item", identity=["item=@k"], calibrate=False
    )
    (made / "inbox").mkdir()
    for number in range(3):
        items = "".join(f"<item k='{number * 10 + n}' n='{n}'/>" for n in range(10))
        (made / "inbox" / f"{number}.xml").write_text(f"<sale>{items}</sale>")
    (made / "others.txt").write_text("//item\n//sale[item]\n//item[\n")
    return made


def test_a_plan_for_people(fmware: Fmware, place: Path) -> None:
    result = fmware(
        "statements", "explain", place / "index", STATEMENT, "--with", place / "others.txt"
    )
    assert result.exit_code == 0, result.stderr
    for words in (
        "filter part   //item[@n > 3]",
        "automaton, of 3 statements",
        "shared  asks [@n > 3]",
        "crossing axis child",
        "match part    city",
        "item/child::city",
        "index access",
        "calls",
        "admatch",
        "cmatch/path",
    ):
        assert words in result.stdout
    assert result.stdout.count("→") == 1
    assert "measured" not in result.stdout


def test_a_plan_that_is_run(fmware: Fmware, place: Path) -> None:
    arguments = ("explain", place / "index", STATEMENT, "--run", place / "inbox")
    shown = fmware(*arguments)
    assert shown.exit_code == 0, shown.stderr
    assert "measured" in shown.stdout
    assert "3 messages, 3 passed the filter part, 18 matches" in shown.stdout
    found = json.loads(fmware(*arguments, "--json").stdout)
    (join,) = found["crossings"][0]["joins"]
    assert join["report"]["inputs"] == 18
    ways = {each["choice"]: each["measured"] for each in join["report"]["alternatives"]}
    assert {"admatch", "cmatch/path"} <= ways.keys()
    assert all(cost > 0 for cost in ways.values())
    assert found["ran"]["matches"] == 18


def test_a_plan_for_programs(fmware: Fmware, place: Path) -> None:
    arguments = ("explain", place / "index", STATEMENT, "--json")
    (join,) = json.loads(fmware(*arguments).stdout)["crossings"][0]["joins"]
    once = {each["choice"]: each["estimate"] for each in join["alternatives"]}
    (join,) = json.loads(fmware(*arguments, "--inputs", 10**6, "--batch", 64).stdout)["crossings"][
        0
    ]["joins"]
    often = {each["choice"]: each["estimate"] for each in join["alternatives"]}
    assert often["cmatch/path"] < once["cmatch/path"]


def test_a_filter_alone(fmware: Fmware, place: Path) -> None:
    result = fmware("statements", "explain", place / "index", "//sale[item]")
    assert result.exit_code == 0
    assert "nothing to match" in result.stdout
    assert "asks [item]" in result.stdout


def test_names_the_index_does_not_hold(fmware: Fmware, place: Path) -> None:
    result = fmware("statements", "explain", place / "index", "//item/local:citty")
    assert "the corpus has no citty; nearest: city" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{place}/none", STATEMENT], 1, "no index here"),
        (["none", "//item"], 1, "no index here"),
        (["{place}/inbox", STATEMENT], 1, "no index here"),
        (["{place}/index", "//item["], 2, "FMX"),
        (["{place}/index", "//p:item"], 2, "p"),
        (["{place}/index", STATEMENT, "{place}/inbox"], 2, "add --run"),
        (["{place}/index", STATEMENT, "--run"], 2, "name messages"),
        (["{place}/index", STATEMENT, "--run", "{place}/none.xml"], 1, "could not"),
        (["//item", "{place}/inbox/0.xml", "--run"], 2, "only explain INDEX"),
        (["//item", "{place}/inbox/0.xml", "{place}/inbox/1.xml"], 2, "only explain INDEX"),
    ],
)
def test_what_is_wrong_is_said(
    fmware: Fmware, place: Path, arguments: list[str], code: int, says: str
) -> None:
    result = fmware("statements", "explain", *(each.format(place=place) for each in arguments))
    assert result.exit_code == code, result.stderr
    assert says in result.stderr


def test_the_first_argument_decides(place: Path) -> None:
    message = str(place / "inbox" / "0.xml")
    assert is_index(str(place / "index"), "//item")
    assert is_index("/nowhere/index", "//item/local:city")
    assert not is_index("//item", message)
    assert not is_index("//item", "-")
    assert not is_index("//item", "missing.xml")
