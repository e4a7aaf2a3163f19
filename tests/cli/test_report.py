"""`fmware report`, `match --report`, `calibrate`, and what `index` does of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fmware.cli.calibrate import Beside
from fmware.cmatch.units import DEFAULT_UNITS, FILE, fingerprint, load_units
from fmware.corpus import build_index

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware

STOCK = "".join(f"<item k='{n}'><city>C{n}</city></item>" for n in range(40))
RUN = ("{place}/index", "{place}/statements.txt", "{place}/sales.xml")
SALE = "<sale><item k='1'><n>7</n></item><item k='99'><n>9</n></item></sale>"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "stock.xml").write_text(f"<stock>{STOCK}</stock>")
    build_index(tmp_path / "stock.xml", tmp_path / "index", record="item", identity=["item=@k"])
    (tmp_path / "statements.txt").write_text("//item[n > 5]/local:city\n//sale\n")
    (tmp_path / "sales.xml").write_text(SALE * 20)
    return tmp_path


def test_a_run_is_reported(fmware: Fmware, place: Path) -> None:
    page = place / "run.html"
    arguments = (place / "index", place / "statements.txt", place / "sales.xml")
    result = fmware("report", *arguments, "-o", page, "--title", "Sales & more")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{page}\n"
    found = json.loads((place / "run.json").read_text())
    assert found["summary"]["messages"] == 20
    assert {each["name"]: each["matches"] for each in found["statements"]} == {"1": 20, "2": 20}
    assert found["settings"]["operator"] == "auto"
    assert "<title>Sales &amp; more</title>" in page.read_text()
    again = fmware("report", place / "run.json", "-o", place / "again.html", "--quiet")
    assert again.exit_code == 0
    assert (place / "again.html").read_text() == page.read_text()


def test_matching_reports_beside_its_matches(fmware: Fmware, place: Path) -> None:
    arguments = (place / "index", place / "statements.txt", place / "sales.xml")
    plain = fmware("match", *arguments)
    result = fmware("match", *arguments, "--report", place / "r.html", "--operator", "admatch")
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    found = json.loads((place / "r.json").read_text())
    assert [join["choice"] for join in found["joins"]] == ["admatch"]
    assert (place / "r.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{place}/none.json"], 1, "No such file"),
        (["{place}/sales.xml"], 1, "not JSON"),
        (["{place}/index"], 2, "statements"),
        (["{place}/index", "{place}/statements.txt"], 2, "messages"),
        (["{place}/none", "{place}/statements.txt", "{place}/sales.xml"], 1, "no index here"),
        (["{place}/index", "{place}/none.txt", "{place}/sales.xml"], 2, "none.txt"),
        ([*RUN, "-o", "{place}/r.json"], 1, "suffix"),
    ],
)
def test_what_is_wrong_is_said(
    fmware: Fmware, place: Path, arguments: list[str], code: int, says: str
) -> None:
    named = [each.format(place=place) for each in arguments]
    if "-o" not in named:
        named += ["-o", str(place / "r.html")]
    result = fmware("report", *named)
    assert result.exit_code == code, result.stderr
    assert says in result.stderr


def test_messages_that_cannot_be_read_are_counted(fmware: Fmware, place: Path) -> None:
    (place / "sales.xml").write_text(SALE + "<sale><item></sale>" + SALE)
    result = fmware(
        *("report", place / "index", place / "statements.txt", place / "sales.xml"),
        *("-o", place / "r.html"),
    )
    assert result.exit_code == 1
    assert (place / "r.html").exists()


# -- calibration --


def test_an_index_is_calibrated_when_it_is_asked_for(fmware: Fmware, place: Path) -> None:
    arguments = ("index", "build", place / "stock.xml", "--in-process", "--json")
    made = fmware(*arguments, "--out", place / "with", "--calibrate")
    bare = fmware(*arguments, "--out", place / "without")
    assert [json.loads(each.stdout)["calibrated"] for each in (made, bare)] == [True, False]
    assert load_units(place / "with") is not None
    assert not (place / "without" / FILE).exists()
    assert fmware("index", "verify", place / "with").exit_code == 0


def test_a_build_does_not_hang_on_calibration(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> None:
        raise RuntimeError("no clock")

    monkeypatch.setattr("fmware.cmatch.calibration.calibrated", broken)
    monkeypatch.setattr("fmware.corpus._UNITS", {})
    made = build_index(place / "stock.xml", place / "other", calibrate=True)
    assert (made.calibrated, made.calibration_error, made.records) == (False, "no clock", 1)


def test_calibrating(fmware: Fmware, place: Path) -> None:
    (place / "index" / FILE).unlink(missing_ok=True)
    result = fmware("index", "calibrate", place / "index", "--json")
    assert result.exit_code == 0, result.stderr
    units = load_units(place / "index")
    assert units is not None
    assert json.loads(result.stdout) == json.loads(json.dumps(units.to_json()))
    assert fmware("index", "calibrate", place / "none").exit_code == 1


@pytest.mark.parametrize("machine", ["another", None])
def test_costs_are_measured_when_they_are_first_shown(
    fmware: Fmware, place: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None
) -> None:
    file = place / "index" / FILE
    units = replace(DEFAULT_UNITS, machine=fingerprint())
    monkeypatch.setattr("fmware.cmatch.calibration.calibrate", lambda _: units)
    file.unlink(missing_ok=True)
    if machine is not None:
        file.write_text(json.dumps(replace(units, machine=machine).to_json()))
    arguments = ("match", place / "index", place / "statements.txt", place / "sales.xml")
    assert fmware(*arguments).exit_code == 0
    assert load_units(place / "index") is None, "a short run does not need it"
    assert fmware(*arguments, "--operator", "cmatch").exit_code == 0
    assert load_units(place / "index") is None
    assert fmware(*arguments, "--report", place / "r.html").exit_code == 0
    assert load_units(place / "index") == units


def test_costs_are_measured_beside_a_run_that_lasts(
    fmware: Fmware, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "index" / FILE).unlink(missing_ok=True)
    monkeypatch.setattr("fmware.cli.calibrate.PATIENCE", 0.0)
    beside = Beside(place / "index")
    beside.look()
    assert beside._child is not None
    beside.close()
    assert beside._child.returncode is not None
    assert not list((place / "index").glob("fmware-units-*")), "what was begun is taken back"
