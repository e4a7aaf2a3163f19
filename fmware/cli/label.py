"""`fmware label`: XML documents to labelled nodes, for people (a table) and for programs."""

from __future__ import annotations

import json
import re
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from fmware.cli.output import (
    FAILED,
    STDIN,
    USAGE,
    binary_stdin,
    binary_stdout,
    complain,
    console,
    examples,
    expand,
    fail,
    note,
    progress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.table import Table

    from fmware.labeling import NodeTable, Reader

__all__ = ["label"]

CHUNK = 1 << 18
ROW_GROUP = 1 << 20
"""Nodes a row group of Parquet holds, at the least but for the last."""
WIDE = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<")

EPILOG = examples(
    ("fmware label message.xml", "the nodes of one document, as a table"),
    ("curl -s URL | fmware label - --json", "one JSON object a node"),
    (
        "fmware label dblp.xml --entities --record article --record book --out nodes.parquet",
        "a large file, record by record, in constant memory",
    ),
    (
        "fmware label inbox/ --format arrow --no-values > nodes.arrow",
        "every *.xml below a directory, structure only",
    ),
    after="A document that cannot be read is reported on stderr with its line and column, and the "
    "rest goes on; the exit code is then 1.",
)


class Format(StrEnum):
    """What comes out."""

    table = "table"
    jsonl = "jsonl"
    arrow = "arrow"
    parquet = "parquet"


SUFFIXES = {
    ".jsonl": Format.jsonl,
    ".ndjson": Format.jsonl,
    ".arrow": Format.arrow,
    ".arrows": Format.arrow,
    ".parquet": Format.parquet,
}


def label(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="XML files, directories, or - for stdin.")
    ],
    output: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="table for people; jsonl, arrow (an IPC stream, one batch a document) or parquet "
            "for programs. Default: by the suffix of --out; else table on a terminal, jsonl in a "
            "pipe.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write here instead of stdout.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record",
            "-r",
            metavar="TAG",
            help="Read each element of this name, prefix included, as a document of its own. "
            "May be repeated.",
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="Keep the values of attributes and text.")
    ] = True,
    blanks: Annotated[
        bool, typer.Option("--blanks/--no-blanks", help="Keep text of white space only.")
    ] = True,
    entities: Annotated[
        bool,
        typer.Option(
            "--entities",
            help="Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one.",
        ),
    ] = False,
    rows: Annotated[
        int, typer.Option(min=0, help="Nodes to show in tables at most; 0 shows all.")
    ] = 200,
    limit_bytes: Annotated[
        int | None, typer.Option(help="Bytes a document may have.", rich_help_panel="Limits")
    ] = None,
    limit_depth: Annotated[
        int | None, typer.Option(help="Levels of nesting.", rich_help_panel="Limits")
    ] = None,
    limit_nodes: Annotated[
        int | None, typer.Option(help="Nodes a document may have.", rich_help_panel="Limits")
    ] = None,
    limit_attribute: Annotated[
        int | None, typer.Option(help="Bytes of an attribute's value.", rich_help_panel="Limits")
    ] = None,
    limit_text: Annotated[
        int | None, typer.Option(help="Bytes of a text node.", rich_help_panel="Limits")
    ] = None,
    limit_names: Annotated[
        int | None,
        typer.Option(help="Different names a document may have.", rich_help_panel="Limits"),
    ] = None,
    limit_name_bytes: Annotated[
        int | None, typer.Option(help="Bytes of those names.", rich_help_panel="Limits")
    ] = None,
) -> None:
    """Read XML and give its [bold]labelled nodes[/bold]: kind, name, parent, AD label, value.

    The AD label is (start, end, level): a node is an ancestor of another exactly when its start
    is smaller and its end is larger. Names are Clark names, {uri}local. `parent` is the row of
    the parent within the document, -1 at its root.
    """
    limits = {
        "bytes": limit_bytes,
        "depth": limit_depth,
        "nodes": limit_nodes,
        "attribute": limit_attribute,
        "text": limit_text,
        "names": limit_names,
        "name_bytes": limit_name_bytes,
    }
    form = _format(Format.jsonl if as_json else output, out)
    reader = _reader(limits, values=values, blanks=blanks, entities=entities)
    names = list(expand(files))
    if not names:
        raise fail("no *.xml file in what was named", FAILED)
    rejects = _Rejects()
    with progress("labelling", _total(names)) as advance, _sink(form, out, names, rows) as sink:
        for name in names:
            for table in _tables(name, reader, record or (), rejects, advance):
                sink.write(table)
    note(f"{sink.documents:,} documents, {sink.nodes:,} nodes, {rejects.count:,} rejected")
    if rejects.count:
        raise typer.Exit(FAILED)


def _format(wanted: Format | None, out: Path | None) -> Format:
    if wanted is not None:
        return wanted
    if out is not None:
        if out.suffix not in SUFFIXES:
            known = ", ".join(SUFFIXES)
            raise fail(f"{out}: no format has this suffix; add --format or use {known}", USAGE)
        return SUFFIXES[out.suffix]
    return Format.table if sys.stdout.isatty() else Format.jsonl


def _reader(limits: dict[str, int | None], *, values: bool, blanks: bool, entities: bool) -> Reader:
    from fmware.labeling import CHARACTER_ENTITIES, Limits, Reader, Vocabulary

    try:
        bounds = Limits(**{name: value for name, value in limits.items() if value is not None})
    except ValueError as error:
        raise fail(_as_option(str(error)), USAGE) from None
    known = CHARACTER_ENTITIES if entities else None
    return Reader(Vocabulary(), limits=bounds, values=values, blanks=blanks, entities=known)


def _as_option(reason: str) -> str:
    """A reason that speaks of Python's keywords, in the words of the command line."""
    reason = reason.replace("entities={...}", "--entities").replace("name_bytes", "name-bytes")
    return re.sub(r"Limits\.([\w-]+)", r"--limit-\1", reason)


class _Rejects:
    """Counts and reports what could not be read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, reason: object) -> None:
        self.count += 1
        complain(_as_option(str(reason)))


def _source(name: str) -> str:
    return "<stdin>" if name == STDIN else name


def _total(names: Sequence[str]) -> int | None:
    """The bytes to come, where they are known."""
    try:
        return sum(Path(name).stat().st_size for name in names) if STDIN not in names else None
    except OSError:
        return None


def _tables(
    name: str,
    reader: Reader,
    records: Sequence[str],
    rejects: _Rejects,
    advance: Callable[[int], None],
) -> Iterator[NodeTable]:
    """The documents of one input; whatever is wrong with it is reported, never raised."""
    from fmware.labeling import ReadError

    source = _source(name)
    before = rejects.count
    found = False
    try:
        with ExitStack() as stack:
            file = binary_stdin() if name == STDIN else stack.enter_context(Path(name).open("rb"))
            for table in _documents(file, source, reader, records, rejects, advance):
                found = True
                yield table
    except ReadError as error:
        rejects(error)
    except OSError as error:
        rejects(f"{source}: {error.strerror or error}")
    if not found and rejects.count == before:
        what = " or ".join(f"<{record}>" for record in records) or "document"
        rejects(f"{source}: no {what} in it")


def _documents(
    file: IO[bytes],
    source: str,
    reader: Reader,
    records: Sequence[str],
    rejects: _Rejects,
    advance: Callable[[int], None],
) -> Iterator[NodeTable]:
    from fmware.labeling import read_stream

    chunks = _chunks(file, advance)
    head = next(chunks, b"")
    if head.startswith(WIDE) and not records:
        # UTF-16 cannot be cut at its tags, so this is one document.
        rest = file.read(max(0, reader.limits.bytes - len(head)) + 1)
        advance(len(rest))
        yield reader.read(head + rest, source=source)
        return

    yield from read_stream(
        _chain(head, chunks),
        record=records,
        reader=reader,
        rejects=lambda piece: rejects(piece.error),
        name=source,
    )


def _chunks(file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    take = getattr(file, "read1", file.read)
    while chunk := take(CHUNK):
        advance(len(chunk))
        yield chunk


def _chain(head: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest


class Sink(ABC):
    """Takes documents; counts them and their nodes."""

    def __init__(self) -> None:
        self.documents = self.nodes = 0

    def write(self, table: NodeTable) -> None:
        """One document more."""
        self.documents += 1
        self.nodes += len(table)
        self.put(table)

    @abstractmethod
    def put(self, table: NodeTable) -> None:
        """What is done with a document."""

    def close(self) -> None:  # noqa: B027  most have nothing to end
        """No more documents come."""


@contextmanager
def _sink(form: Format, out: Path | None, names: Sequence[str], rows: int) -> Iterator[Sink]:
    with ExitStack() as stack:
        if form is Format.table:
            text = stack.enter_context(out.open("w", encoding="utf-8")) if out else None
            sink: Sink = _Tables(rows, text)
        else:
            binary = binary_stdout if form is not Format.jsonl else lambda: sys.stdout.buffer
            file = stack.enter_context(out.open("wb")) if out else binary()
            sources = [_source(name) for name in names]
            if form is Format.jsonl:
                sink = _Lines(file)
            else:
                sink = _Arrow(file, sources) if form is Format.arrow else _Parquet(file, sources)
        yield sink
        sink.close()


class _Tables(Sink):
    """For people: a table a document, names indented by level."""

    def __init__(self, rows: int, file: IO[str] | None) -> None:
        super().__init__()
        self._left = rows or sys.maxsize
        self._hidden = 0
        self._console = console(file=file)

    def put(self, table: NodeTable) -> None:
        shown = min(len(table), self._left)
        self._left -= shown
        self._hidden += len(table) - shown
        if shown:
            self._console.print(_grid(table, shown))

    def close(self) -> None:
        if self._hidden:
            complain(f"{self._hidden:,} more nodes not shown; --rows 0 shows all")


def _grid(table: NodeTable, rows: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=table.source, title_justify="left", box=box.SIMPLE_HEAD)
    numbers = ("row", "parent", "level", "start", "end")
    for name in numbers:
        grid.add_column(name, justify="right")
    grid.add_column("node", no_wrap=True)
    grid.add_column("value", no_wrap=True, overflow="ellipsis")
    base = int(table.level[0])
    for row in islice(table.records(), rows):
        indent = "  " * (int(table.level[cast("int", row["row"])]) - base)
        mark = "@" if row["kind"] == "attribute" else ""
        value = "" if row["value"] is None else repr(row["value"])
        cells = (str(row[name]) for name in numbers)
        grid.add_row(*cells, Text(f"{indent}{mark}{row['tag']}"), Text(value))
    return grid


class _Lines(Sink):
    """JSON Lines, one node each; a document is written as soon as it has been read."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file

    def put(self, table: NodeTable) -> None:
        place = {"source": table.source, "document": self.documents}
        encode = json.JSONEncoder(ensure_ascii=False).encode
        lines = (encode(place | row) + "\n" for row in table.records())
        while chunk := "".join(islice(lines, 1024)):
            self._file.write(chunk.encode())
        self._file.flush()


class _Arrow(Sink):
    """An Arrow IPC stream: a batch a document, which `NodeTable.from_arrow` takes as it is."""

    def __init__(self, file: IO[bytes], sources: Sequence[str]) -> None:
        super().__init__()
        self._file = file
        self._sources = sources
        self._writer: Any = None

    def put(self, table: NodeTable) -> None:
        self._put(_placed(table, self.documents, self._sources))

    def _put(self, batch: Any) -> None:
        import pyarrow as pa

        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
            self._writer = pa.ipc.new_stream(self._file, batch.schema, options=options)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is None:
            self._put(_nothing(self._sources))
        self._writer.close()


class _Parquet(Sink):
    """Parquet, many documents a row group; names as plain strings, which any tool reads."""

    def __init__(self, file: IO[bytes], sources: Sequence[str]) -> None:
        super().__init__()
        self._file = file
        self._sources = sources
        self._batches: list[Any] = []
        self._waiting = 0
        self._writer: Any = None

    def put(self, table: NodeTable) -> None:
        self._batches.append(_plain(_placed(table, self.documents, self._sources)))
        self._waiting += len(table)
        if self._waiting >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        rows = pa.Table.from_batches(self._batches)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, rows.schema, compression="zstd")
        self._writer.write_table(rows, row_group_size=max(1, len(rows)))
        self._batches.clear()
        self._waiting = 0

    def close(self) -> None:
        if self._writer is None and not self._batches:
            self._batches.append(_plain(_nothing(self._sources)))
        if self._batches:
            self._flush()
        self._writer.close()


def _placed(table: NodeTable, document: int, sources: Sequence[str]) -> Any:
    """The batch of a document, with where it is from and which it is."""
    import numpy as np
    import pyarrow as pa

    batch = table.to_arrow()
    source = np.full(len(table), sources.index(table.source or sources[0]), np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(source), pa.array(list(sources))),
        pa.array(np.full(len(table), document, np.int64)),
        *batch.columns,
    ]
    return pa.RecordBatch.from_arrays(columns, ["source", "document", *batch.schema.names])


def _plain(batch: Any) -> Any:
    """The batch with strings where it has dictionaries."""
    import pyarrow as pa

    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _nothing(sources: Sequence[str]) -> Any:
    """A batch of no nodes, for an output of no documents."""
    from fmware.labeling import Vocabulary, read

    return _placed(read(b"<none/>", vocabulary=Vocabulary()), 0, sources).slice(0, 0)
