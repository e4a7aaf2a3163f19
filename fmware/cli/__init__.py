"""The command line: `fmware COMMAND`.

`app` assembles the commands, a module each; `main` is the entry point. What they share (exit
codes, consoles, where errors go) is in `fmware.cli.output`. Modules import what is heavy inside
their commands, so that `fmware --help` and `fmware version` answer at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fmware import __version__
from fmware.cli import (
    calibrate,
    demo,
    explain,
    init,
    label,
    match,
    report,
    serve,
    store,
    test,
    validate,
    xpath,
)
from fmware.cli import filter as filtering
from fmware.cli import index as indexing
from fmware.cli.generate import generate
from fmware.cli.output import FAILED, complain, emit_json, examples, exit_code_of, prose

__all__ = ["app", "main"]

PACKAGES = ("labeling", "index", "cmatch", "fmware")
"""Those with native modules, without which nothing can be read or filtered."""

EPILOG = examples(
    ("fmware demo", "the whole way of the data, on made-up data, in some seconds"),
    ("echo '<sale><units>7</units></sale>' | fmware label -f table -", "labelled nodes"),
    after="""
[bold]Exit codes[/bold]: 0 fine; 1 something was rejected or failed at run time; 2 the command line
or an expression in it is wrong. Results go to stdout, all else to stderr; a lone - is stdin.
""",
)


class Commands(TyperGroup):
    """The group of all commands; errors that are the user's to see become one line."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            _mute_stdout()
            raise typer.Exit(FAILED) from None
        except Exception as error:
            code = exit_code_of(error)
            if code is None or ctx.params.get("debug"):
                raise
            complain(error)
            raise typer.Exit(code) from None


app = typer.Typer(
    name="fmware",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="FMWARE_DEBUG", help="Show the traceback of an error."),
    ] = False,
) -> None:
    """Filter streams of XML messages, and match what passes against a local corpus."""


@app.command()
def version(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the versions of FMware and of what it stands on."""
    found = versions()
    if as_json:
        emit_json(found)
        return
    for name, value in found.items():
        shown = ("built" if value else "not built") if isinstance(value, bool) else value
        typer.echo(f"{name:10} {shown}")


def versions() -> dict[str, str | bool]:
    """What `fmware version` shows; `kernel` is whether all native modules have been built."""
    from importlib.metadata import version as version_of
    from platform import python_version

    from lxml import etree

    return {
        "fmware": __version__,
        "python": python_version(),
        "lxml": version_of("lxml"),
        "libxml2": ".".join(map(str, etree.LIBXML_VERSION)),
        "pyarrow": version_of("pyarrow"),
        "lmdb": version_of("lmdb"),
        "kernel": all(map(_built, PACKAGES)),
    }


def _built(package: str) -> bool:
    """Whether the native modules of a package are there, told without importing it."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    spec = find_spec(package)
    places = (spec.submodule_search_locations or []) if spec else []
    sources = [source for place in places for source in Path(place).rglob("*.pyx")]
    return bool(places) and all(
        any(source.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)
        for source in sources
    )


for command, epilog in (
    (label.label, label.EPILOG),
    (xpath.xpath, xpath.EPILOG),
    (filtering.filter, filtering.EPILOG),
    (explain.explain, explain.EPILOG),
    (validate.validate, validate.EPILOG),
    (match.match, match.EPILOG),
    (report.report, report.EPILOG),
    (calibrate.calibrate, calibrate.EPILOG),
    (serve.serve, serve.EPILOG),
    (indexing.index, indexing.EPILOG),
    (indexing.add, ""),
    (store.remove, ""),
    (store.compact, ""),
    (store.verify, store.VERIFY),
    (store.stats, store.STATS),
    (store.show, store.SHOW),
    (init.init, init.EPILOG),
    (test.test, test.EPILOG),
    (demo.demo, demo.EPILOG),
):
    app.command(help=prose(command.__doc__ or ""), epilog=epilog)(command)
app.add_typer(generate, name="generate")


def _mute_stdout() -> None:
    """Have nothing more written to a pipe that is closed, also not at the interpreter's end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app(prog_name="fmware")
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _mute_stdout()
