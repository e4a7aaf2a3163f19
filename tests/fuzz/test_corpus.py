"""Inputs that fuzzing has found stay right, and so do those that it begins with."""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fuzz.__main__ import CORPUS, keep, main
from tests.fuzz.coverage import Coverage
from tests.fuzz.mutation import LONGEST, mutated
from tests.fuzz.targets import TARGETS, Target

if TYPE_CHECKING:
    from pathlib import Path

FOUND = sorted(path.relative_to(CORPUS) for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_to_begin_with(name: str) -> None:
    with closing(TARGETS[name]()) as target:
        for data in target.seeds:
            target.check(data)


@pytest.mark.parametrize("place", FOUND, ids=str)
def test_inputs_that_were_found(place: Path) -> None:
    with closing(TARGETS[place.parts[0]]()) as target:
        target.check((CORPUS / place).read_bytes())


class Wrong(Target):
    """A target that cannot bear two brackets."""

    name = "wrong"
    seeds = (b"abc",)
    tokens = (b"<",)

    def check(self, data: bytes) -> None:
        assert data.count(b"<") < 2


def test_an_input_that_is_wrong_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "wrong", Wrong)
    last = tmp_path / "last"
    asked = ["--only=wrong", "--seconds=30", f"--last={last}", f"--corpus={tmp_path}", "--seed=1"]
    assert main(asked) == 1
    assert last.read_bytes().count(b"<") >= 2
    assert "AssertionError" in capsys.readouterr().err
    place = keep(tmp_path / "wrong", last.read_bytes())
    assert place.read_bytes() == last.read_bytes()
    assert keep(tmp_path / "wrong", last.read_bytes()) == place
    # What is in the corpus is tried first.
    assert main([*asked[:1], "--seconds=0", *asked[2:]]) == 1


@pytest.mark.slow
def test_each_target_is_fuzzed_in_a_process_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seconds=1", "--targets=reader,xpath", f"--corpus={tmp_path}", "--seed=1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["reader", "xpath"]


def test_mutation_is_drawn_from_its_seed_and_bounded() -> None:
    kept = [b"<a>" * 2000, b"xyz"]
    drawn = [[mutated(Random(seed), kept[0], kept, [b"<b/>"]) for seed in range(200)] for _ in "ab"]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 100
    assert max(map(len, drawn[0])) == LONGEST


def test_coverage_of_python_tells_what_is_new() -> None:
    with closing(TARGETS["xpath"]()) as target:
        coverage = Coverage(target.package)
        assert coverage.new(lambda: target.check(b"//a"))
        coverage.new(lambda: target.check(b"//a"))  # what is kept of the first is found
        assert not coverage.new(lambda: target.check(b"//a"))
        assert coverage.new(lambda: target.check(b"//a[b = 1]"))
