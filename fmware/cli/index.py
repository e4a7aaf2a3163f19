"""`fmware index build` and `add`: a corpus of XML to an index that statements match against."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path  # noqa: TC003 - typer looks at it
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.output import FAILED, complain, console, counted, emit_json, examples, note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fmware.corpus import IndexSummary
    from fmware.labeling import Limits

__all__ = ["ADD", "EPILOG", "GROUP", "UPSERT", "add", "build", "show_summary", "upsert"]

EPILOG = examples(
    (
        "fmware index build dblp.xml -r article -r book -i article=@key -o dblp",
        "one large file, cut into records and labelled in parallel",
    ),
    (
        "fmware index build 'archive/**/*.xml.gz' news.tar.zst --schemes path,vist --out news",
        "many documents, packed or not, under two SES schemes",
    ),
    (
        "fmware index build corpus/ --out corpus.fm --master spark://host:7077 --partitions 400",
        "on a cluster that sees both directories",
    ),
    after="""
Sources are files, directories (every *.xml below, *.xml.gz, *.xml.zst, *.xml.bz2, *.xml.xz, and tar
archives of them), or patterns. What cannot be read is kept in OUT/rejects as Parquet, with file,
offset, reason and bytes; the rest is indexed, and the exit code is then 1.
""",
)

GROUP = examples(
    (
        "fmware index build stock.xml -r item -i item=@sku --in-process -o stock",
        "a new index, without Spark",
    ),
    ("fmware index stats stock", "what it holds"),
    ("fmware index show stock item=p7", "a node by its key"),
    after="INDEX is always the directory that build has made.",
)
ADD = examples(
    ("fmware index add dblp new.xml", "the records of a file more"),
    ("fmware index add dblp inbox/", "... of every *.xml below a directory"),
    after="What cannot be read is kept in INDEX/rejects; the exit code is then 1.",
)

UPSERT = examples(
    ("fmware index upsert stock changed.xml", "records that are new, or changed"),
    ("fmware index upsert books new.xml --by book=@isbn", "where books have several keys"),
    after="If a record has no key, or two have the same, nothing is changed: exit code 1.",
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


def build(
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
            help="Measure now what matching costs on this machine; else when it is needed.",
        ),
    ] = False,
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
    from fmware.corpus import HTML4, build_index

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
            entities=HTML4 if entities else None,
            limits=limits,
            progress=told,
            calibrate=calibrate,
        )
    if summary.calibration_error is not None:
        said = f"what matching costs here could not be measured: {summary.calibration_error}"
        note(f"{said}; try fmware index calibrate {out}")
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


def upsert(
    path: Annotated[Path, typer.Argument(metavar="INDEX", help="The index to change.")],
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Files, directories or patterns.")
    ],
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="RULE", help="The identity rule to go by, if several are for records."
        ),
    ] = None,
    record: Record = None,
    as_json: Json = False,
) -> None:
    """Add documents, each record in the place of the one with the same [bold]key[/bold].

    A record is known by the key of its root element. Old and new change places at once: no reader
    sees both, or neither.
    """
    from fmware.corpus import upsert as upsert_into

    _report(upsert_into(path, sources, by=by, record=record), as_json)


def _limits(**given: int | None) -> Limits:
    from fmware.labeling import Limits

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
    for warning in summary.warnings:
        complain(f"warning: {warning}")
    if summary.rejected:
        places = ", ".join(summary.rejects) or "the summary"
        said = counted(summary.rejected, "record was", "records were")
        complain(f"{said} rejected; see {places}")
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
    if summary.files or summary.source_bytes or summary.empty:
        yield from _read_rows(summary)
    if summary.replaced:
        yield "replaced", counted(summary.replaced, "record")
    if summary.removed:
        yield "removed", counted(summary.removed, "record")
    holds = [counted(summary.total_records, "record"), counted(summary.total_nodes, "node")]
    if summary.total_keys is not None:
        holds.append(counted(summary.total_keys, "key"))
    yield "holds", ", ".join([*holds, counted(summary.segments, "segment")])
    for scheme, labels in summary.labels.items():
        power = summary.total_nodes / labels if labels else 0.0
        yield f"clusters, {scheme}", f"{labels:,} ({power:,.1f} nodes each)"
    size, records = _size(summary.index_bytes), _size(summary.record_store_bytes)
    yield "size", f"{size}, {records} of them the records' source"
    if summary.seconds:
        rate = f", {summary.source_bytes / 1e6 / summary.seconds:,.1f} MB/s"
        yield "took", f"{summary.seconds:,.1f} s{rate if summary.source_bytes > 1e6 else ''}"


def _read_rows(summary: IndexSummary) -> Iterator[tuple[str, str]]:
    """What was read, and what became of it."""
    files = [counted(summary.files, "file")] if summary.files else []
    yield "read", ", ".join([*files, _size(summary.source_bytes)])
    yield "labelled", f"{counted(summary.records, 'record')}, {counted(summary.nodes, 'node')}"
    for rule, keys in summary.keys.items():
        yield f"keys, {rule}", f"{keys:,}"
    yield "rejected", f"{summary.rejected:,}"
    if summary.empty:
        yield "empty", counted(summary.empty, "row without XML", "rows without XML")
    if summary.skipped:
        yield (
            "skipped",
            counted(
                summary.skipped,
                "archive member that is no document",
                "archive members that are no documents",
            ),
        )
    if summary.recut:
        yield "cut again", counted(len(summary.recut), "file")


def _size(number: int) -> str:
    """Bytes for people, with three digits at least."""
    if number < 10_000:
        return counted(number, "byte")
    return f"{number / 1e3:,.1f} kB" if number < 10**6 else f"{number / 1e6:,.1f} MB"
