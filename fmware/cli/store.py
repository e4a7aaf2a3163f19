"""`fmware index remove`, `compact`, `verify`, `stats` and `show`: what is done with an index."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.index import show_summary
from fmware.cli.output import (
    FAILED,
    USAGE,
    complain,
    console,
    emit_json,
    examples,
    fail,
    note,
    telling,
)

if TYPE_CHECKING:
    from rich.table import Table

    from fmware.index.reader import Index

__all__ = [
    "COMPACT",
    "REMOVE",
    "SHOW",
    "STATS",
    "VERIFY",
    "compact",
    "remove",
    "show",
    "stats",
    "verify",
]

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The directory of the index.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
BAR = 24
"""Characters of the longest bar."""


REMOVE = examples(
    ("fmware index remove dblp article=journals/x/Smith99", "the record with that key"),
    ("fmware index remove dblp --file old.xml", "all records of a source file"),
    after="If one of them is not there, nothing is removed: exit code 1.",
)


def remove(
    path: IndexPath,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="ELEMENT=KEY", help="Records by the key of a node in them."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", help="All records of a source file, by its name as indexed."),
    ] = None,
    label: Annotated[
        list[int] | None,
        typer.Option("--label", "-l", help="The record that a node with this AD start is in."),
    ] = None,
    as_json: Json = False,
) -> None:
    """[bold]Remove[/bold] records from an index.

    They are marked and no longer found; compact takes them out of the files.
    """
    from fmware.corpus import remove as remove_from

    if not (keys or file or label):
        raise fail("nothing to remove: name keys, --file or --label", USAGE)
    summary = remove_from(
        path, keys=[_pair(text) for text in keys or ()], files=file or (), labels=label or ()
    )
    if as_json:
        emit_json(summary.to_json())
    else:
        show_summary(summary)


COMPACT = examples(
    ("fmware index compact dblp", "after many records were added or removed"),
    after="Readers go on with the generation that they have opened.",
)


def compact(
    path: IndexPath,
    as_json: Json = False,
) -> None:
    """[bold]Compact[/bold] an index: one segment, without what was removed."""
    from fmware.corpus import compact as compact_all

    summary = compact_all(path)
    if as_json:
        emit_json(summary.to_json())
    else:
        show_summary(summary)


VERIFY = examples(
    ("fmware index verify dblp", "every checksum, count, order and reference"),
    ("fmware index verify dblp --repair", "and rebuild what is damaged from the records"),
    after="Exit codes: 0, all is as written, or is so again; 1, something is damaged; 3, it was "
    "repaired, but records were lost.",
)
LOST = 3
"""The exit code of a repair that lost records."""


def verify(
    path: IndexPath,
    mend: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rebuild damaged segments from their records, as a new generation.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """[bold]Verify[/bold] every byte of an index: checksums, counts, orders, references.

    With --repair, what follows from the records (postings, labels, values, keys, statistics) is
    made anew; records whose own bytes are damaged are lost, and named. Their old files are kept in
    INDEX/damaged. What cannot be made again: the manifest, and the lists of removed records.
    """
    if mend:
        _repair(path, as_json)
        return
    from fmware.index.verify import verify as verified

    with telling("verifying", quiet=False, piped=True) as tell:
        report = verified(path, progress=tell)
    if as_json:
        emit_json({**asdict(report), "ok": report.ok})
    elif report.ok:
        typer.echo(f"generation {report.generation}: {len(report.files)} files, all as written")
    for problem in report.problems:
        complain(problem)
    if report.weak:
        said = f"{len(report.weak)} files of an older version have no checksums of their pieces"
        note(f"{said}: damage in them is found later, and less of it can be repaired")
    if not report.ok:
        raise typer.Exit(FAILED)


def _repair(path: Path, as_json: bool) -> None:
    from fmware.index.repair import repair

    with telling("verifying", quiet=False, piped=True) as tell:
        done = repair(path, progress=tell)
    if as_json:
        emit_json({**asdict(done), "whole": done.whole})
    elif not done.problems:
        typer.echo(f"generation {done.generation}: all as written, nothing to repair")
    elif done.segments:
        what = f"{len(done.segments)} segments rebuilt from {done.records:,} records"
        typer.echo(f"generation {done.generation}: {what}")
    for lost in done.lost:
        complain(lost)
    for kept in done.kept:
        complain(f"the files they were in are kept in {kept}")
    for problem in done.left:
        complain(f"not repaired: {problem}")
    if done.left:
        raise typer.Exit(FAILED)
    if done.lost:
        raise typer.Exit(LOST)


STATS = examples(
    ("fmware index stats dblp", "sizes, counts, and how well labels cluster, per tag and scheme"),
    ("fmware index stats dblp --tag author --json", "of one tag, for programs"),
    after="The bars are on a scale of powers of ten: how many nodes share an SES label on average, "
    "the clustering power of the tag. The higher it is, the fewer probes CMatch needs.",
)


def stats(
    path: IndexPath,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="Only these (@name: an attribute).")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Tags to show at most; 0 shows all.")] = 40,
    as_json: Json = False,
) -> None:
    """Show what an index holds: sizes, counts and [bold]clustering power[/bold]."""
    from fmware.index.reader import Index

    with Index.open(path) as index:
        if as_json:
            emit_json(_figures(index, tag))
            return
        from fmware.corpus import describe

        show_summary(describe(path, exact=True))
        console().print(_clustering(index, tag, rows))


SHOW = examples(
    ("fmware index show dblp article=journals/x/Smith99", "the node with that key: labels and XML"),
    ("fmware index show dblp --label 1042 --whole", "the whole record a label lies in"),
)


def show(
    path: IndexPath,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="ELEMENT=KEY", help="Nodes by their keys.")
    ] = None,
    label: Annotated[
        list[int] | None, typer.Option("--label", "-l", help="A node by its AD start.")
    ] = None,
    record: Annotated[bool, typer.Option("--whole", help="The record it is in, whole.")] = False,
    as_json: Json = False,
) -> None:
    """[bold]Show[/bold] nodes of an index: their labels, where they stand, and their XML."""
    from fmware.index.reader import Index

    if not (keys or label):
        raise fail("nothing to show: name keys or --label", USAGE)
    with Index.open(path) as index:
        missing = [text for text in keys or () if not _show_key(index, text, record, as_json)]
        for start in label or ():
            _show_node(index, start, record, as_json)
    for text in missing:
        complain(f"no node {text}")
    if missing:
        raise typer.Exit(FAILED)


def _pair(text: str) -> tuple[str, str]:
    # A Clark name may hold an equals sign in its namespace.
    brace = text.find("}") if text.startswith("{") else 0
    at = text.find("=", max(brace, 0))
    if at <= 0:
        raise typer.BadParameter(f"{text!r} is not ELEMENT=KEY, as in article=journals/x/1")
    return text[:at], text[at + 1 :]


def _show_key(index: Index, text: str, record: bool, as_json: bool) -> bool:
    """Show the nodes that have a key; whether there are any."""
    element, key = _pair(text)
    found = index.identify(element, [key.encode()]).right.start.tolist()
    for start in found:
        _show_node(index, start, record, as_json)
    return bool(found)


def _show_node(index: Index, start: int, record: bool, as_json: bool) -> None:
    about = _about(index, start)
    stored = index.record(start)
    shown = index.fragment(stored.start if record else start).decode()
    if as_json:
        emit_json({**about, "xml": shown})
        return
    labels = "  ".join(f"{name} {label}" for name, label in about["ses"].items())
    typer.echo(f"{about['path']}  in {about['source']}")
    typer.echo(f"AD {about['ad']}  level {about['level']}  {labels}")
    typer.echo(shown)


def _about(index: Index, start: int) -> dict[str, Any]:
    """Where a node stands: names, labels, source."""
    node = index.node(start)
    segment = index.segment_of(start)
    row = segment.locate(node.tag, [start])
    ses = {}
    for scheme in index.schemes:
        rank, last = segment.labels(node.tag, row, scheme)
        ses[scheme] = [int(rank[0]), int(last[0])]
    return {
        "tag": str(node.tag),
        "path": index.path_of(start),
        "ad": [node.start, node.end],
        "level": node.level,
        "segment": segment.name,
        "ses": ses,
        "source": index.record(start).source,
    }


def _figures(index: Index, tags: list[str] | None) -> dict[str, Any]:
    """The statistics for programs."""
    counted = index.live_statistics()
    wanted = set(tags or ())
    return {
        "path": str(index.path),
        "generation": index.generation,
        "segments": len(index.segments),
        "nodes": counted.nodes,
        "stores": counted.stores,
        "schemes": {
            name: {
                "direction": index.schemes[name].value,
                "labels": each.labels,
                "clustering_power": each.power,
                "largest": each.largest,
                "histogram": {str(power): pair for power, pair in each.histogram.items()},
            }
            for name, each in counted.schemes.items()
        },
        "tags": {
            str(tag): {
                "nodes": each.nodes,
                "depth": each.depth,
                "keys": each.keys,
                "clustering_power": {name: one.power for name, one in each.schemes.items()},
                "labels": {name: one.labels for name, one in each.schemes.items()},
            }
            for tag, each in counted.tags.items()
            if not wanted or str(tag) in wanted
        },
    }


def _clustering(index: Index, tags: list[str] | None, rows: int) -> Table:
    """Clustering power per tag and scheme, as bars."""
    from rich import box
    from rich.table import Table

    counted = index.live_statistics()
    wanted = set(tags or ())
    chosen = sorted(
        ((tag, each) for tag, each in counted.tags.items() if not wanted or str(tag) in wanted),
        key=lambda pair: -pair[1].nodes,
    )
    unknown = wanted - {str(tag) for tag, _ in chosen}
    if unknown:
        raise fail(f"no node {min(unknown)} in this index", FAILED)
    most = max((each.nodes for each in counted.tags.values()), default=1)
    grid = Table(box=box.SIMPLE_HEAD, title="Clustering power", title_justify="left")
    grid.add_column("tag", no_wrap=True)
    grid.add_column("nodes", justify="right")
    for name in index.schemes:
        grid.add_column(f"{name} (nodes a label)", no_wrap=True)
    for tag, each in chosen[: rows or None]:
        bars = [_bar(each.schemes[name].power, most) for name in index.schemes]
        grid.add_row(str(tag), f"{each.nodes:,}", *bars)
    left = len(chosen) - len(chosen[: rows or None])
    if left:
        grid.caption = f"and {left:,} tags more; --rows 0 shows all"
    return grid


def _bar(power: float, most: int) -> str:
    """A bar on a scale of powers of ten, from one node a label to the most there could be."""
    length = round(BAR * math.log10(max(power, 1)) / max(math.log10(most), 1e-9)) if most > 1 else 0
    return f"[cyan]{'█' * length:<{BAR}}[/cyan] {power:>9,.1f}"
