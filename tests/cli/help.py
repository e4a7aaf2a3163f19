"""The help of every command at 80 columns; `python -m tests.cli.help` writes `help.txt` anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.testing import CliRunner

from fmware.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).with_name("help.txt")
WIDTH = 80
_PLAIN = {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command that help lists: groups first, then what is in them."""
    yield from _below((), typer.main.get_command(app))


def _below(words: tuple[str, ...], command: object) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in sorted(getattr(command, "commands", {}).items()):
        if not each.hidden:
            yield from _below((*words, name), each)


def help_of(words: tuple[str, ...]) -> str:
    """What `fmware WORDS --help` prints, without spaces at the ends of lines."""
    ran = CliRunner().invoke(app, [*words, "--help"], env=_PLAIN, prog_name="fmware")
    assert ran.exit_code == 0, ran.output
    return "\n".join(line.rstrip() for line in ran.output.splitlines()).strip("\n")


def everything() -> str:
    """The help of all commands, each under its name."""
    parts = (f"$ fmware {' '.join((*words, '--help'))}\n{help_of(words)}" for words in commands())
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(everything(), encoding="utf-8")
