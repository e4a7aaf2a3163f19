"""The benchmark of the six queries, on next to nothing: it checks all answers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench import mq
from bench.pages import Pages, metered
from fmware.datasets.matching import MATCHING_QUERIES
from fmware.index import Index

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    arguments = "--scales 1 --queries MQ3 MQ5 --rounds 1 --cold-rounds 1 --around 20000"
    return mq.run(arguments.split())


def test_every_case_has_all_matchers_in_every_state(found: dict[str, Any]) -> None:
    assert list(found["cases"]) == ["MQ3 x1", "MQ5 x1"]
    for case in found["cases"].values():
        assert {"ADMatch", "numpy", "SQLite", "DuckDB"} < set(case["hot streamed"])
        assert set(case["hot streamed"]) == set(case["hot at once"])
        assert set(case["cold first streamed"]) == set(case["cold every batch"])
        assert all(row["us"] > 0 for row in case["hot at once"].values())


def test_labels_are_those_of_the_table_and_each_is_scanned_once(found: dict[str, Any]) -> None:
    case = found["cases"]["MQ5 x1"]
    assert (case["inputs"], case["local"]) == ("463:224", "5821:5280")
    assert case["labels"]["vist"] == {"inputs": 224, "local": 5280, "candidates": 2}
    assert found["scans_exact"]
    assert case["hot at once"]["CMatch vist ample"]["scans"] == 224
    assert case["hot at once"]["ADMatch"]["scans"] == 463


def test_bounds_are_of_the_scales_that_ran(found: dict[str, Any]) -> None:
    assert found["cmatch_speedup_hot"] is None
    assert found["admatch_ratio"] is None
    assert found["cmatch_worst"] > 0


def test_dropped_pages_are_gone_although_the_index_is_open(tmp_path: Path) -> None:
    path = mq._build(tmp_path, [MATCHING_QUERIES[2]], 20_000)
    pages = Pages(path)
    with Index.open(path) as index:
        before = len(mq._nodes(index, "anchor3").start)
        assert pages.resident() > 0
        pages.drop()
        if pages.resident():
            pytest.skip("this file system is in memory, or another reader holds the pages")
        with metered() as cost:
            assert len(mq._nodes(index, "anchor3").start) == before == 222
        assert 0 < pages.resident() <= pages.total
        assert cost.wall > 0
