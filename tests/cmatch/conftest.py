"""Indexes that the tests of this package share: building one takes longer than asking it."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cmatch import oracle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cmatch.oracle import World


@pytest.fixture(scope="package")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[World]]]:
    """Several indexes, each with its generations."""
    folder = tmp_path_factory.mktemp("worlds")
    made = [
        oracle.generations(folder / f"{seed}", seed, segments=1 + seed % 3, records=4)
        for seed in range(6)
    ]
    yield made
    for generations in made:
        for world in generations:
            world.index.close()


@pytest.fixture
def world(worlds: list[list[World]]) -> World:
    """One with several segments and removed records."""
    return worlds[2][2]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Whatever a test does, no thread and no open file stays behind."""
    gc.collect()
    before = threading.active_count(), open_files()
    yield
    # Errors keep the frames they came through, and those what was open in them: an index.
    gc.collect()
    assert (threading.active_count(), open_files()) == before


def open_files() -> int:
    files = Path("/proc/self/fd")
    return len([*files.iterdir()]) if files.exists() else 0
