"""Corpora that are built once for all tests of matching."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.matching.corpora import Corpus, cut, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = range(6)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Corpus]]:
    """Documents as records, and records cut out of documents, in several segments."""
    place = tmp_path_factory.mktemp
    made = [make(seed, place(f"corpus{seed}")) for make in (whole, cut) for seed in SEEDS]
    yield made
    for corpus in made:
        corpus.index.close()
