"""The guide to matching: its examples are true."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/matching.md"


def test_the_examples_of_the_page_are_true() -> None:
    ran = doctest.testfile(str(PAGE), module_relative=False)
    assert ran.attempted > 10
    assert ran.failed == 0
