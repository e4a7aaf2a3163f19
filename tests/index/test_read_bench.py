"""The benchmark of probes, on next to nothing: it checks all answers against its rivals'."""

from __future__ import annotations

import json

import pytest

from bench import probes


def test_the_benchmark_runs_and_its_rivals_agree() -> None:
    pytest.importorskip("duckdb")
    sizes = "--nodes 3000 --anchors 20 200 --scans 1 50 --batch 40 --rounds 1"
    found = probes.run(sizes.split())
    json.dumps(found)
    for name in ("ad_batch_ratio", "sqlite_speedup", "duckdb_speedup"):
        ratio = found[name]
        assert isinstance(ratio, float)
        assert ratio > 0
    assert found["nodes"] == 3051
