"""`fmware init`: a commented configuration to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmware.cli.output import USAGE, examples, fail, note

__all__ = ["EPILOG", "init"]

EPILOG = examples(
    ("fmware init", "write fmware.toml, every option with its default and a sentence"),
    ("fmware init - --index dblp | less", "only show it"),
    ("fmware init --schema > fmware.schema.json", "for editors that complete and check TOML"),
    after="A file that is there is left alone unless --force is given: exit code 2.",
)


def init(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it; - is stdout.")
    ] = Path("fmware.toml"),
    index: Annotated[
        Path | None,
        typer.Option("--index", "-x", metavar="INDEX", help="The index of the corpus."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the file instead.")
    ] = False,
) -> None:
    """Write a commented [bold]configuration[/bold] for `fmware serve` and `fmware test`."""
    import json

    from fmware.service.settings import schema
    from fmware.service.template import template

    if as_schema:
        typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
        return
    text = template({"index": index} if index else None)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise fail(f"{file} is there already; --force replaces it", USAGE) from None
    named = f" --config {file}" if str(file) != "fmware.toml" else ""
    note(f"wrote {file}; add statements and tests, then: fmware test{named}; fmware serve{named}")
