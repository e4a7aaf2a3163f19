"""The help of every command is what was looked at and found good."""

from __future__ import annotations

from tests.cli.help import GOLDEN, WIDTH, commands, everything


def test_help_is_the_golden_file() -> None:
    """If the change is meant: `python -m tests.cli.help`, and look at the difference."""
    assert everything() == GOLDEN.read_text(encoding="utf-8")


def test_help_fits_the_terminal() -> None:
    assert max(map(len, everything().splitlines())) <= WIDTH


def test_every_command_is_there() -> None:
    words = set(commands())
    assert {("index", "upsert"), ("statements", "reduce"), ("check",), ("serve",)} <= words
