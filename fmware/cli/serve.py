"""`fmware serve`: the service, over HTTP and with brokers, until it is told to stop."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import Annotated

import typer

from fmware.cli.output import USAGE, examples, fail

__all__ = ["EPILOG", "serve"]

EPILOG = examples(
    ("fmware serve dblp", "on http://127.0.0.1:8400, for this machine only"),
    ("fmware serve --config fmware.toml", "as a file says; fmware init writes one"),
    ("fmware serve dblp --set server.port=0 --set engine.workers=1", "settings one by one"),
    after="""
It logs to stderr, a line of text each on a terminal and a JSON object elsewhere, and stops at
SIGTERM or SIGINT (Ctrl-C) when what is under way is done. The exit code is 0 then, 2 if the
configuration is wrong and 1 if it cannot be started.
""",
)


def serve(
    index: Annotated[
        Path | None,
        typer.Argument(metavar="INDEX", help="The index; by default the configuration's."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The configuration, fmware.toml."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="One setting, as a.b=value; may be repeated."
        ),
    ] = None,
) -> None:
    """Serve: [bold]statements[/bold] and [bold]messages[/bold] over HTTP, matches out."""
    try:
        from fmware.service.server import serve as run
        from fmware.service.settings import SettingsError, default_file, load
    except ModuleNotFoundError as error:
        raise fail(f"{error.name} is not installed: pip install 'fmware[service]'", USAGE) from None
    said = [f"index={index}"] if index is not None else []
    try:
        found = load(config or default_file(os.environ), os.environ, [*said, *(settings or [])])
    except SettingsError as error:
        raise fail(error, USAGE) from None
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}", USAGE) from None
    run(found)
