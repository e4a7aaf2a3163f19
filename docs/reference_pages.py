"""Pages that are made from the code: the commands by their help, the Python API by its names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command_pages", "helps", "write_pages"]

GROUPS = {
    "Corpus": [
        "build_index",
        "add",
        "upsert",
        "remove",
        "compact",
        "describe",
        "IndexSummary",
        "Index",
    ],
    "Statements": [
        "Statement",
        "Returns",
        "Subscription",
        "read_statements",
        "lint",
        "parse_xpath",
    ],
    "Filtering": ["FilterEngine", "FilterResult", "FilterLimits", "explain", "Explanation"],
    "Matching": [
        *("Middleware", "Results", "Result", "Match", "LocalNode", "ResultStream"),
        *("MatchLimits", "Report"),
    ],
    "Reading": [
        *("read", "read_stream", "Reader", "NodeTable", "Stream", "Reject", "Limits", "Vocabulary"),
        "XPathLimits",
    ],
}


def write_pages(place: Path) -> None:
    """Write `cli.md` and `api.md`; a file whose text is the same is left alone."""
    place.mkdir(exist_ok=True)
    for name, text in (("cli.md", command_pages()), ("api.md", api_page())):
        file = place / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def helps() -> dict[str, str]:
    """The help of every command at 80 columns, by the words that lead to it."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from fmware.cli import app

    env = {**os.environ, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    found: dict[str, str] = {}
    waiting: list[tuple[list[str], Any]] = [([], get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        ran = CliRunner().invoke(app, [*words, "--help"], env=env, prog_name="fmware")
        lines = [line.rstrip() for line in ran.stdout.strip("\n").splitlines()]
        found[" ".join(["fmware", *words])] = "\n".join(lines).strip("\n") + "\n"
        inner = getattr(command, "commands", {})
        waiting += [([*words, name], each) for name, each in inner.items()]
    return found


def command_pages() -> str:
    """The reference of the command line, in Markdown."""
    parts = ["# Command line\n\nEvery command, as `--help` shows it. Made from the commands.\n"]
    parts += [f"## `{name}`\n\n```text\n{text}```\n" for name, text in sorted(helps().items())]
    return "\n".join(parts)


def api_page() -> str:
    """The reference of the Python API: all that `fmware` exports."""
    import fmware

    errors = sorted(
        name
        for name in fmware.__all__
        if isinstance(getattr(fmware, name), type) and issubclass(getattr(fmware, name), Exception)
    )
    parts = ["# Python API\n\nAll that `fmware` exports. Made from the docstrings.\n"]
    for title, names in {**GROUPS, "Errors": errors}.items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, getattr(fmware, name)) for name in names]
    return "\n".join(parts)


def _entry(name: str, value: object) -> str:
    kind = "autofunction"
    options = ""
    if isinstance(value, type):
        kind = "autoexception" if issubclass(value, Exception) else "autoclass"
        options = "" if kind == "autoexception" else "   :members:\n"
    return f"```{{eval-rst}}\n.. {kind}:: fmware.{name}\n{options}```\n"
