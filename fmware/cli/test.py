"""`fmware test`: the `[[tests]]` of a configuration, on the real index and statements."""

# ruff: noqa: PT028 - the command is called test, and is none.
from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.output import FAILED, USAGE, emit_json, examples, fail

if TYPE_CHECKING:
    from fmware.service.checks import Verdict
    from fmware.service.settings import Settings

__all__ = ["EPILOG", "test"]

EPILOG = examples(
    ("fmware test", "the tests of fmware.toml"),
    ("fmware test staging.toml --set index=dblp", "another file, and another index"),
    ("fmware test --json | jq 'select(.passed | not)'", "one JSON object a test"),
    after="""
A test names a message and all matches that it must have; what a match does not say of the local
node may be anything. A line with - was expected and did not come, one with + came and was not
expected. Exit codes: 0 all passed; 1 some failed; 2 the configuration is wrong.
""",
)


def test(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="The configuration; fmware.toml unless said."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Say otherwise than the file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a test.")] = False,
) -> None:
    """Run the [bold]tests[/bold] of a configuration: messages, and the matches they must have."""
    from fmware.service.checks import run
    from fmware.service.errors import StatementRefused

    settings = _load(config, sets or [])
    if not settings.tests:
        raise fail("there are no [[tests]] in the configuration; `fmware init -` shows some", USAGE)
    failed = 0
    try:
        for verdict in run(settings):
            failed += not verdict.passed
            if as_json:
                emit_json(verdict.record())
            else:
                _show(verdict)
    except StatementRefused as error:
        raise fail(error, USAGE) from None
    count = len(settings.tests)
    typer.echo(f"{count:,} test{'s' if count > 1 else ''}, {failed:,} failed", err=True)
    if failed:
        raise typer.Exit(FAILED)


def _load(config: Path | None, sets: list[str]) -> Settings:
    from fmware.service.settings import SettingsError, default_file, load

    path = config or default_file(os.environ)
    if path is None:
        raise fail("no fmware.toml here: name a file, or write one with `fmware init`", USAGE)
    try:
        return load(path, os.environ, sets)
    except SettingsError as error:
        raise fail(error, USAGE) from None
    except OSError as error:
        raise fail(f"{path}: {error.strerror}", USAGE) from None


def _show(verdict: Verdict) -> None:
    colour = typer.colors.GREEN if verdict.passed else typer.colors.RED
    word = "ok  " if verdict.passed else "FAIL"
    typer.echo(f"{typer.style(word, fg=colour)}  {verdict.test}")
    for error in verdict.errors:
        typer.echo(f"      {typer.style(f'! {error}', fg=typer.colors.RED)}")
    for each in verdict.missing:
        typer.echo(f"      {typer.style(f'- {_line(each)}', fg=typer.colors.RED)}")
    for each in verdict.surplus:
        typer.echo(f"      {typer.style(f'+ {_line(each)}', fg=typer.colors.GREEN)}")


def _line(match: dict[str, Any]) -> str:
    """A match on one line, its statement first."""
    more = {key: value for key, value in match.items() if key != "statement"}
    shown = [
        f"{key} {' '.join(value) if isinstance(value, list) else repr(value)}"
        for key, value in more.items()
    ]
    return "  ".join([match["statement"], *shown])
