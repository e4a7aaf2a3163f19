"""`fmware report`: a run, and a page that tells how it went."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.calibrate import recalibrate
from fmware.cli.match import (
    BATCH,
    Budget,
    Choice,
    Count,
    Entities,
    Namespace,
    Operator,
    Record,
    Scheme,
    Wanted,
    results_of,
    subscribe,
)
from fmware.cli.messages import inputs_of
from fmware.cli.output import FAILED, USAGE, declared, examples, fail, note, telling

if TYPE_CHECKING:
    from fmware.middleware import Middleware

__all__ = ["EPILOG", "report"]

NOTHING = Wanted(values=False, fragments=False)

EPILOG = examples(
    ("fmware report dblp statements.txt inbox/ -o run.html", "match, and tell how it went"),
    ("fmware report run.json -o again.html", "the page once more, from its figures"),
    after="""
The page is one file that needs no network; FILE.json beside it has the same figures for programs.
It tells, for every statement, what was chosen, what that was estimated to cost and what it did
cost, and what every alternative would have cost, measured on a sample of the run. Matches go
nowhere: fmware match --report writes both.
""",
)


def report(
    source: Annotated[
        Path, typer.Argument(metavar="INDEX|FILE.json", help="An index, or a report's figures.")
    ],
    statements: Annotated[
        Path | None,
        typer.Argument(metavar="STATEMENTS", help="One statement a line, or a .toml file."),
    ] = None,
    messages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MESSAGES", help="XML files (.gz too), directories, or - for stdin."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.html", help="Where the page goes.")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
    record: Record = None,
    namespace: Namespace = None,
    entities: Entities = False,
    operator: Operator = Choice.auto,
    scheme: Scheme = None,
    budget: Budget = 64,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")
    ] = False,
) -> None:
    """[bold]Report[/bold] on a run: what was chosen, what it cost, what else it could have cost."""
    from fmware.report import Report

    refused, count = 0, Count(perf_counter())
    if statements is None:
        if source.is_dir():
            raise fail("name a file of statements, and messages, after the index", USAGE)
        made = Report.load(source)
    else:
        names = list(inputs_of(messages or []))
        if not names:
            raise fail("name messages after the statements: files, directories, or -", USAGE)
        with (
            _middleware(source, operator, scheme, budget, entities=entities) as middleware,
            telling("matching", quiet=quiet, piped=True) as shown,
        ):
            refused = subscribe(middleware, statements, declared(namespace or []), NOTHING)
            for results in results_of(middleware, names, record or (), BATCH):
                count.add(results)
                shown(count)
            made = middleware.report()
        if not quiet:
            note(str(count))
    if title is not None:
        made.title = title
    twin = made.write(out)
    typer.echo(out)
    if not quiet:
        note(f"the same figures, for programs, are in {twin}")
    if refused:
        raise typer.Exit(USAGE)
    if count.failed:
        raise typer.Exit(FAILED)


def _middleware(
    index: Path, operator: Choice, scheme: str | None, budget: int, *, entities: bool
) -> Middleware:
    from fmware.labeling import CHARACTER_ENTITIES
    from fmware.middleware import Middleware

    if operator is Choice.auto:
        recalibrate(index)
    return Middleware(
        index,
        operator=operator.value,
        scheme=scheme,
        budget=budget << 20,
        entities=CHARACTER_ENTITIES if entities else None,
    )
