"""The benchmark of a stream, on next to nothing: it checks all pairs against AD-only match."""

from __future__ import annotations

import json

import pytest

from bench import stream


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
