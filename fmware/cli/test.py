"""`fmware test`: the `[[tests]]` of a configuration, on the real index and statements."""

# ruff: noqa: PT028 - the command is called test, and is none.
from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.config import Config, Sets, load_settings
from fmware.cli.groups import moved
from fmware.cli.output import FAILED, USAGE, complain, counted, emit_json, examples, fail

if TYPE_CHECKING:
    from fmware.service.checks import Verdict

__all__ = ["EPILOG", "test"]

EPILOG = examples(
    ("fmware test", "the tests of fmware.toml"),
    ("fmware test -c staging.toml --set index=dblp", "another file, and another index"),
    ("fmware test --json | jq 'select(.passed | not)'", "one JSON object a test"),
    after="""
A test names a message and all matches that it must have; what a match does not say of the local
node may be anything. A line with - was expected and did not come, one with + came and was not
expected. Exit codes: 0 all passed; 1 some failed; 2 the configuration is wrong.
""",
)


def test(
    old: Annotated[Path | None, typer.Argument(metavar="CONFIG", hidden=True)] = None,
    config: Config = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a test.")] = False,
) -> None:
    """Run the [bold]tests[/bold] of a configuration: messages, and the matches they must have."""
    from fmware.service.checks import has_index, run
    from fmware.service.errors import StatementRefused

    if old is not None:
        moved("fmware test FILE", "fmware test --config FILE")
    settings = load_settings(config or old, sets or [])
    if not settings.tests:
        raise fail("there are no [[tests]] in the configuration; `fmware init -` shows some", USAGE)
    if not has_index(settings):
        complain(f"hint: no index at {settings.index}: what asks messages alone is tested")
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
    typer.echo(f"{counted(len(settings.tests), 'test')}, {failed:,} failed", err=True)
    if failed:
        raise typer.Exit(FAILED)


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
