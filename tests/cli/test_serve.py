"""`fmware serve`: what it says when it cannot, and what it leaves behind then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Fmware


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_that_is_not_there_is_a_usage_error(fmware: Fmware) -> None:
    ran = fmware("serve", "--config", "nowhere.toml")
    assert (ran.exit_code, ran.stderr) == (2, "fmware: nowhere.toml: No such file or directory\n")


@pytest.mark.parametrize("place", ["nowhere", "stock.xml"])
def test_without_an_index_it_says_how_to_make_one_and_leaves_nothing(
    fmware: Fmware, tmp_path: Path, place: str
) -> None:
    (tmp_path / "stock.xml").write_text("<stock/>")
    ran = fmware("serve", place, "--set", "server.port=0")
    assert ran.exit_code == 1
    said = f"{tmp_path / place}: no index here; make one with: fmware index build CORPUS --out"
    assert ran.stderr.startswith(f"fmware: {said}")
    assert ran.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["stock.xml"]


def test_a_setting_that_is_not_known_is_a_usage_error(fmware: Fmware) -> None:
    ran = fmware("serve", "corpus.fm", "--set", "server.prot=1")
    assert ran.exit_code == 2
    assert "did you mean port?" in ran.stderr
