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

from fmware import __version__
from fmware.cli import (
    advertise,
    calibrate,
    check,
    demo,
    explain,
    init,
    label,
    match,
    reduce,
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
from fmware.cli.groups import BuildsByDefault, Group, attach, group
from fmware.cli.output import FAILED, complain, emit_json, examples, exit_code_of

__all__ = ["app", "main"]

PACKAGES = ("fmware.labeling", "fmware.index", "fmware.cmatch", "fmware")
"""Those with native modules, without which nothing can be read or filtered."""

EPILOG = examples(
    ("fmware demo", "the whole way of the data, on made-up data, in some seconds"),
    ("echo '<sale><units>7</units></sale>' | fmware label -f table -", "labelled nodes"),
    after="""
[bold]Exit codes[/bold]: 0 fine; 1 something was rejected or failed at run time; 2 the command line
or an expression in it is wrong. Results go to stdout, all else to stderr; a lone - is stdin.
""",
)


PANELS = MESSAGES, CORPUS, SERVICE, MORE = (
    "Messages",
    "Statements and corpus",
    "Service",
    "More",
)
INDEX, STATEMENTS = "index", "statements"
MOVED = {
    **{name: (INDEX, name) for name in ("add", "calibrate", "compact", "remove", "show", "stats")},
    "verify": (INDEX, "verify"),
    "validate": (STATEMENTS, "check"),
    "explain": (STATEMENTS, "explain"),
    "xpath": (STATEMENTS, "parse"),
}
"""Commands that were not in groups, and where they are now."""


class Commands(Group):
    """The group of all commands; errors that are the user's to see become one line."""

    moves = MOVED

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them, panel by panel: typer puts groups behind commands."""
        names = super().list_commands(ctx)
        commands: dict[str, Any] = dict(self.commands)
        return sorted(names, key=lambda name: PANELS.index(commands[name].rich_help_panel))

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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fmware {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="FMWARE_DEBUG", help="Show the traceback of an error."),
    ] = False,
    only_version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Show the version of FMware and leave.",
        ),
    ] = False,
) -> None:
    """Filter streams of XML messages, and match what passes against a local corpus."""


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


index_commands = group(
    INDEX,
    "Build an [bold]index[/bold] of the local corpus, change it, look into it.",
    epilog=indexing.GROUP,
    cls=BuildsByDefault,
)
attach(index_commands, indexing.build, epilog=indexing.EPILOG)
attach(index_commands, indexing.add, epilog=indexing.ADD)
attach(index_commands, indexing.upsert, epilog=indexing.UPSERT)
attach(index_commands, store.remove, epilog=store.REMOVE, renamed={"-f": "--file"})
attach(index_commands, store.compact, epilog=store.COMPACT)
attach(index_commands, store.verify, epilog=store.VERIFY)
attach(index_commands, store.stats, epilog=store.STATS)
attach(index_commands, store.show, epilog=store.SHOW, renamed={"--record": "--whole"})
attach(index_commands, calibrate.calibrate, epilog=calibrate.EPILOG)

statement_commands = group(
    STATEMENTS,
    "Check [bold]statements[/bold], and see how they are understood and answered.",
    epilog=validate.GROUP,
)
attach(statement_commands, validate.check, epilog=validate.EPILOG, renamed={"-i": "-x"})
attach(statement_commands, explain.explain, epilog=explain.EPILOG)
attach(statement_commands, xpath.xpath, "parse", epilog=xpath.EPILOG)
attach(statement_commands, reduce.reduce, epilog=reduce.EPILOG)

attach(app, filtering.filter, epilog=filtering.EPILOG, panel=MESSAGES)
attach(app, match.match, epilog=match.EPILOG, panel=MESSAGES)
attach(app, report.report, epilog=report.EPILOG, panel=MESSAGES)
attach(app, label.label, epilog=label.EPILOG, panel=MESSAGES)
attach(app, advertise.advertise, epilog=advertise.EPILOG, panel=MESSAGES)
app.add_typer(statement_commands, rich_help_panel=CORPUS)
app.add_typer(index_commands, rich_help_panel=CORPUS)
attach(app, init.init, epilog=init.EPILOG, panel=SERVICE, renamed={"-i": "-x"})
attach(app, check.check, epilog=check.EPILOG, panel=SERVICE)
attach(app, test.test, epilog=test.EPILOG, panel=SERVICE)
attach(app, serve.serve, epilog=serve.EPILOG, panel=SERVICE)
attach(app, demo.demo, epilog=demo.EPILOG, panel=MORE)
app.add_typer(generate, name="generate", rich_help_panel=MORE)
attach(app, version, panel=MORE)


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
