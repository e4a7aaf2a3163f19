"""`fmware index` and `fmware add`: a corpus of XML to an index that statements match against."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import FAILED, complain, console, emit_json, examples, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fmware.corpus import IndexSummary
    from labeling import Limits

__all__ = ["add", "index", "show_summary"]

EPILOG = examples(
    (
        "fmware index dblp.xml --record article --record book --identity article=@key --out dblp",
        "one large file, cut into records and labelled in parallel",
    ),
    (
        "fmware index 'archive/**/*.xml.gz' news.tar.zst --schemes path,vist --out news",
        "many documents, packed or not, under two SES schemes",
    ),
    (
        "fmware index corpus/ --out corpus.fm --master spark://host:7077 --partitions 400",
        "on a cluster that sees both directories",
    ),
    after="""
Sources are files, directories (every *.xml below, *.xml.gz, *.xml.zst, *.xml.bz2, *.xml.xz, and tar
archives of them), or patterns. What cannot be read is kept in OUT/rejects as Parquet, with file,
offset, reason and bytes; the rest is indexed, and the exit code is then 1.
""",
)

Record = Annotated[
    list[str] | None,
    typer.Option(
        "--record",
        "-r",
        metavar="TAG",
        help="Cut large files at elements of this name, prefix included; each is labelled by "
        "itself. May be repeated. Without it, each document is one record.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]


def index(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Files, directories or patterns.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the index is to be.")
    ],
    record: Record = None,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            "--identity",
            "-i",
            metavar="RULE",
            help="By what elements are known: article=@key, person=name/last, isbn=. "
            "May be repeated.",
        ),
    ] = None,
    schemes: Annotated[
        str, typer.Option(help="SES schemes, comma separated: path, vist, prix.")
    ] = "path",
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Tasks to cut the work into. Default: by size.")
    ] = None,
    master: Annotated[
        str, typer.Option(help="The Spark master.", rich_help_panel="Spark")
    ] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="KEY=VALUE", help="An option of Spark.", rich_help_panel="Spark"
        ),
    ] = None,
    in_process: Annotated[
        bool,
        typer.Option("--in-process", help="Do without Spark, here.", rich_help_panel="Spark"),
    ] = False,
    entities: Annotated[
        bool,
        typer.Option(
            "--entities/--no-entities",
            help="Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one.",
        ),
    ] = True,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Measure what matching costs on this machine, for the cost model.",
        ),
    ] = True,
    limit_bytes: Annotated[
        int | None, typer.Option(help="Bytes a record may have.", rich_help_panel="Limits")
    ] = None,
    limit_depth: Annotated[
        int | None, typer.Option(help="Levels of nesting.", rich_help_panel="Limits")
    ] = None,
    limit_nodes: Annotated[
        int | None, typer.Option(help="Nodes a record may have.", rich_help_panel="Limits")
    ] = None,
    as_json: Json = False,
) -> None:
    """Label a corpus of XML and [bold]index[/bold] it, with Spark."""
    from fmware.corpus import build_index
    from labeling import CHARACTER_ENTITIES

    limits = _limits(bytes=limit_bytes, depth=limit_depth, nodes=limit_nodes)
    with ExitStack() as stack:
        spark = None
        if not in_process:
            from fmware.session import spark_session

            spark = stack.enter_context(spark_session(master, options=_pairs(conf)))
        told = stack.enter_context(_progress("labelling"))
        summary = build_index(
            sources,
            out,
            spark=spark,
            record=record or (),
            identity=identity or (),
            schemes=[each.strip() for each in schemes.split(",") if each.strip()],
            partitions=partitions,
            entities=CHARACTER_ENTITIES if entities else None,
            limits=limits,
            progress=told,
            calibrate=calibrate,
        )
    if summary.calibration_error is not None:
        said = f"what matching costs here could not be measured: {summary.calibration_error}"
        note(f"{said}; try fmware calibrate {out}")
    _report(summary, as_json)


def add(
    path: Annotated[Path, typer.Argument(metavar="INDEX", help="The index to add to.")],
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Files, directories or patterns.")
    ],
    record: Record = None,
    as_json: Json = False,
) -> None:
    """[bold]Add[/bold] documents to an index, here and at once, without Spark.

    They are labelled as the index was built: its record tags, identity rules, schemes and limits.
    """
    from fmware.corpus import add as add_to

    with _progress("adding") as told:
        summary = add_to(path, sources, record=record, progress=told)
    _report(summary, as_json)


def _limits(**given: int | None) -> Limits:
    from labeling import Limits

    try:
        return Limits(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _pairs(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--conf")
        found[key] = value
    return found


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr that is told how many bytes of how many; none where no terminal shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    shown = Progress(*columns, TransferSpeedColumn(), console=console(stderr=True), transient=True)
    with shown as bar:
        task = bar.add_task(what, total=None)

        def told(done: int, total: int) -> None:
            after = "indexing" if done >= total else what
            bar.update(task, completed=done, total=total, description=after)

        yield told


def _report(summary: IndexSummary, as_json: bool) -> None:
    if as_json:
        emit_json(summary.to_json())
    else:
        show_summary(summary)
    if summary.rejected:
        places = ", ".join(summary.rejects) or "the summary"
        complain(f"{summary.rejected:,} records were rejected; see {places}")
        raise typer.Exit(FAILED)


def show_summary(summary: IndexSummary) -> None:
    """What was done, as a table."""
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, show_header=False)
    grid.add_column(style="bold")
    grid.add_column(justify="right")
    for name, value in _rows(summary):
        grid.add_row(name, value)
    console().print(grid)


def _rows(summary: IndexSummary) -> Iterator[tuple[str, str]]:
    yield "index", f"{summary.path}, generation {summary.generation}"
    if summary.files or summary.source_bytes:
        size = summary.source_bytes / 1e6
        files = "1 file" if summary.files == 1 else f"{summary.files:,} files"
        yield "read", f"{files}, {size:,.1f} MB"
        yield "labelled", f"{summary.records:,} records, {summary.nodes:,} nodes"
        yield "rejected", f"{summary.rejected:,}"
        if summary.skipped:
            yield "skipped", f"{summary.skipped:,} archive members that are no documents"
        if summary.recut:
            yield "cut again", f"{len(summary.recut):,} files"
    if summary.removed:
        yield "removed", f"{summary.removed:,} records"
    segments = "1 segment" if summary.segments == 1 else f"{summary.segments:,} segments"
    yield "holds", f"{summary.total_records:,} records, {summary.total_nodes:,} nodes, {segments}"
    for scheme, labels in summary.labels.items():
        power = summary.total_nodes / labels if labels else 0.0
        yield f"clusters, {scheme}", f"{labels:,} ({power:,.1f} nodes each)"
    records = summary.record_store_bytes / 1e6
    yield "size", f"{summary.index_bytes / 1e6:,.1f} MB, {records:,.1f} of them the records' source"
    if summary.seconds:
        rate = f", {summary.source_bytes / 1e6 / summary.seconds:,.1f} MB/s"
        yield "took", f"{summary.seconds:,.1f} s{rate if summary.source_bytes else ''}"
