"""Benchmarks, on next to nothing: of a stream, which checks its pairs; how choices are judged."""

from __future__ import annotations

import json

import pytest

from bench import adaptation, stream


@pytest.mark.parametrize("budget", ["1", "0.002"])
def test_the_benchmark_runs_and_its_rival_agrees(budget: str) -> None:
    sizes = f"--anchors 6000 --labels 60 --items 5 --batch 100 --threads 1 --budget {budget}"
    found = stream.run(sizes.split())
    json.dumps(found)
    assert found["inputs"] == 6000
    assert found["labels"] == found["index_scans"] == 60
    growth, pairs = found["rss_growth_mb"], found["pairs"]
    assert isinstance(growth, float)
    assert growth < 50
    assert isinstance(pairs, int)
    assert pairs > 6000


def test_choices_are_judged_on_drawn_workloads() -> None:
    """All answers are compared there, so this is a test of them, too."""
    found = adaptation.run(["--corpora", "1", "--cases", "2", "--rounds", "1", "--seed", "4"])
    json.dumps(found)
    cases = found["cases"]
    assert isinstance(cases, dict)
    assert len(cases) == 2
    for name in ("regret_median", "regret_p90", "end_to_end_over_best"):
        assert isinstance(found[name], float)
