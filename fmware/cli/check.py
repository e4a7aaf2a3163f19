"""`fmware check`: would the service run with this configuration, without starting it."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from fmware.cli.config import Config, Sets, load_settings
from fmware.cli.output import USAGE, counted, emit_json, examples

__all__ = ["EPILOG", "check"]

EPILOG = examples(
    ("fmware check", "a dry run of fmware.toml"),
    ("fmware check -c staging.toml --set server.port=9000", "another file, another port"),
    ("fmware check --json | jq 'select(.verdict != \"ok\")'", "only what is not as it should be"),
    after="""
Index, statements, sources, sinks, tenants, webhooks and state are looked at; no broker is connected
to, no port is opened and nothing is written. Exit codes: 0 nothing is wrong, though there may be
warnings; 2 the configuration is wrong.
""",
)
COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


def check(
    config: Config = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding.")] = False,
) -> None:
    """[bold]Check[/bold] a configuration: a dry run of `fmware serve`, in which nothing starts."""
    settings = load_settings(config, sets or [])
    from fmware.service.dry_run import dry_run

    wrong = warned = 0
    for found in dry_run(settings, os.environ):
        wrong += found.verdict == "wrong"
        warned += found.verdict == "warning"
        if as_json:
            emit_json(asdict(found))
            continue
        word = typer.style(found.verdict.ljust(7), fg=COLOURS[found.verdict])
        typer.echo(f"{word}  {found.subject}: {found.text}")
    said = f"{counted(wrong, 'thing is', 'things are')} wrong, {counted(warned, 'warning')}"
    typer.echo(said, err=True)
    if wrong:
        raise typer.Exit(USAGE)
