"""Benchmarks, on next to nothing: of a stream, which checks its pairs; how choices are judged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import stream
from bench.turns import ADAPTIVE, over_best


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


def test_one_of_several_that_are_alike_is_not_judged_by_who_had_most_luck() -> None:
    """If all take the same but for noise, nobody is better than the best of the others."""
    random = np.random.default_rng(7)
    names = ["one", "two", "three", ADAPTIVE]
    over, lucky = [], []
    for _ in range(400):
        there = {name: random.normal(1.0, 0.04, 9).tolist() for name in names}
        over.append(over_best(there, names[:3], {"one": random.normal(1.0, 0.04, 9).tolist()}))
        least = min(np.median(there[name]) for name in names[:3])
        lucky.append(float(np.median(there[ADAPTIVE]) / least))
    assert np.mean(over) == pytest.approx(1.0, abs=0.005)
    assert np.mean(lucky) > 1.01


def test_whoever_is_worse_is_told_so_in_spite_of_noise() -> None:
    random = np.random.default_rng(7)
    names = ["one", "two", "three", ADAPTIVE]
    takes = dict(zip(names, (1.0, 1.3, 1.01, 1.1), strict=True))
    there = {name: random.normal(takes[name], 0.01, 9).tolist() for name in names}
    again = {"one": random.normal(1.0, 0.01, 9).tolist()}
    assert over_best(there, names[:3], again) == pytest.approx(1.1, abs=0.02)
