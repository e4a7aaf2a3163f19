"""Unit costs: measured in seconds, kept with the index, and only used where they are true."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from fmware.cmatch import DEFAULT_UNITS, UnitCosts, calibrated, calibration, load_units, units_of
from fmware.cmatch.calibration import Trial
from fmware.cmatch.units import FILE, MEANINGS, fingerprint
from fmware.index import Index, Writer
from fmware.index.verify import verify
from tests.cmatch import oracle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cmatch.oracle import World


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> UnitCosts:
    folder = tmp_path_factory.mktemp("units")
    found = calibration.calibrate(folder)
    assert not [*folder.iterdir()]
    return found


def test_what_is_measured_makes_sense(units: UnitCosts) -> None:
    costs = {name: value for name, value in asdict(units).items() if name != "machine"}
    assert all(0 <= value < 1 for value in costs.values())
    # A call takes longer than an input; a label that is new longer than one that is known.
    assert units.ad_call > units.ad_input
    assert units.call > units.input
    assert units.label > units.input
    assert units.list + units.candidate > 0
    assert units.deferral > 0
    assert units.spilled > 0
    assert units.machine == fingerprint()


def test_units_are_kept_with_the_index_and_nothing_minds(
    tmp_path: Path, units: UnitCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "calibrate", lambda place: units)
    worlds = oracle.generations(tmp_path / "index", 5, segments=2)
    for world in worlds:
        world.index.close()
    folder = tmp_path / "index"
    assert load_units(folder) is None
    assert calibrated(folder) == units
    assert load_units(folder) == units
    with Index.open(folder) as index:
        assert units_of(index) == units
        with Writer.open(folder) as writer:
            writer.compact()
        index.refresh().close()
    assert not verify(folder).problems
    assert not [each for each in folder.iterdir() if each.name.startswith(FILE + ".")]
    # They are there: nothing is measured again.
    monkeypatch.setattr(calibration, "calibrate", None)
    assert calibrated(folder) == units


def test_units_of_another_machine_are_measured_again(
    tmp_path: Path, units: UnitCosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = units.to_json()
    (tmp_path / FILE).write_text(json.dumps(told | {"machine": "another one"}))
    assert load_units(tmp_path) is None
    monkeypatch.setattr(calibration, "calibrate", lambda place: units)
    assert calibrated(tmp_path) == units
    assert load_units(tmp_path) == units


@pytest.mark.parametrize("text", ["", "{}", "[", '{"version": 1}', '{"version": 0}'])
def test_a_file_that_makes_no_sense_is_as_good_as_none(
    tmp_path: Path, world: World, text: str
) -> None:
    (tmp_path / FILE).write_text(text)
    assert load_units(tmp_path) is None
    assert units_of(world.index) == DEFAULT_UNITS


def test_units_come_back_from_json(units: UnitCosts) -> None:
    assert UnitCosts.from_json(json.loads(json.dumps(units.to_json()))) == units
    assert {*MEANINGS} == {*asdict(units)} - {"machine"}


def trial(**counts: float) -> Trial:
    return Trial(lambda: None, [], known=True, counts=counts)  # type: ignore[arg-type, return-value]


def test_costs_that_are_known_are_found_again() -> None:
    rows = [(1, 2), (3, 1), (1, 100), (7, 7)]
    trials = [trial(call=calls, input=inputs) for calls, inputs in rows]
    found = calibration._explained(trials, [calls * 3.0 + inputs * 0.5 for calls, inputs in rows])
    assert found.pop("call") == pytest.approx(3.0)
    assert found.pop("input") == pytest.approx(0.5)
    assert {*found.values()} == {0.0}
    # What would be negative explains nothing.
    trials = [trial(call=calls, label=1) for calls in (1, 2, 3)]
    assert min(calibration._explained(trials, [1.0, 3.0, 5.0]).values()) >= 0
