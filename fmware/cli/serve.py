"""`fmware serve`: the service, over HTTP and with brokers, until it is told to stop."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import Annotated

import typer

from fmware.cli.config import Config, Sets, load_settings
from fmware.cli.output import examples

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
    config: Config = None,
    sets: Sets = None,
) -> None:
    """Serve: [bold]statements[/bold] and [bold]messages[/bold] over HTTP, matches out."""
    said = [f"index={index}"] if index is not None else []
    settings = load_settings(config, [*said, *(sets or [])], required=False)
    from fmware.service.server import serve as run

    run(settings)
