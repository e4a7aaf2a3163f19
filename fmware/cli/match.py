"""`fmware match`: messages through statements, matched against an index, one line a match."""

from __future__ import annotations

import csv
import io
import json
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer looks at it
from time import perf_counter
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.calibrate import recalibrate
from fmware.cli.messages import inputs_of, is_stream, messages_of
from fmware.cli.output import (
    FAILED,
    USAGE,
    binary_stdout,
    complain,
    declared,
    examples,
    fail,
    note,
    telling,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fmware.matching.results import Match, Result
    from fmware.middleware import Middleware

__all__ = ["BATCH", "EPILOG", "Count", "Wanted", "match", "results_of", "subscribe"]

BATCH = 64
ROWS = 4096

EPILOG = examples(
    ("fmware match dblp statements.txt inbox/", "every *.xml below a directory, a line a match"),
    ("tail -f log.xml | fmware match dblp statements.toml -", "as messages arrive"),
    (
        "fmware match dblp statements.txt messages.xml --fragments --out matches.parquet",
        "with the XML of what was found, for other tools",
    ),
    (
        "fmware match dblp statements.txt inbox/ -o out.jsonl --report run.html",
        "... and how it went",
    ),
    after="""
A line of JSON is {"message": NAME, "statement": NAME, "nodes": [{"path", "value"}, ...], "local":
{"tag", "path", "label": [START, END, LEVEL], "source", "value", "fragment"}}: the nodes of the
message that matched, a step each, and the node of the corpus, if the statement selects one. A
message that cannot be read, or a statement that fails for it, gives a line with "error", and the
exit code is then 1; with --missing, anchors without a local counterpart give lines with "missing".
A statement that is refused is reported on stderr, the rest goes on, and the exit code is then 2.
CSV and Parquet have a row a match, with the same in columns; errors go to stderr.
""",
)


class Format(StrEnum):
    """What comes out."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


class Choice(StrEnum):
    """How the first step of a match part is joined."""

    auto = "auto"
    cmatch = "cmatch"
    admatch = "admatch"


Record = Annotated[
    list[str] | None,
    typer.Option(
        "--record",
        "-r",
        metavar="TAG",
        help="Take each element of this name, prefix included, as a message. May be repeated.",
    ),
]
Namespace = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="PREFIX=URI",
        help="Declare a prefix for all statements; may be repeated.",
        show_default=False,
    ),
]
Entities = Annotated[
    bool,
    typer.Option(
        "--entities",
        help="Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one.",
    ),
]
Operator = Annotated[
    Choice,
    typer.Option(
        help="The operator that joins; auto is the cost model's choice.",
        rich_help_panel="Operators",
    ),
]
Scheme = Annotated[
    str | None,
    typer.Option(
        help="The SES scheme of CMatch; by default the best, or the index's first.",
        rich_help_panel="Operators",
    ),
]
Budget = Annotated[
    int, typer.Option(metavar="MB", min=1, help="Memory of each.", rich_help_panel="Operators")
]


def match(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index of the corpus.")],
    statements: Annotated[
        Path, typer.Argument(metavar="STATEMENTS", help="One statement a line, or a .toml file.")
    ],
    messages: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGES", help="XML files (.gz too), directories, or - for stdin."
        ),
    ],
    output: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Default: by the suffix of --out, else jsonl."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write here instead of stdout.")
    ] = None,
    values: Annotated[
        bool, typer.Option("--values/--no-values", help="The values of nodes.")
    ] = True,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="The XML of what was found in the corpus.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="List anchors without a local counterpart.")
    ] = False,
    record: Record = None,
    namespace: Namespace = None,
    entities: Entities = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a report of the run, and its figures as JSON beside it.",
        ),
    ] = None,
    operator: Operator = Choice.auto,
    scheme: Scheme = None,
    budget: Budget = 64,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", "-j", min=0, help="Probe threads of each.", rich_help_panel="Operators"
        ),
    ] = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")
    ] = False,
) -> None:
    """Match messages: filter them, and ask the [bold]local corpus[/bold] about what passes."""
    from fmware.middleware import Middleware
    from labeling import CHARACTER_ENTITIES

    names = list(inputs_of(messages))
    if not names:
        raise fail("no *.xml file in what was named", FAILED)
    wanted = Wanted(values, fragments)
    count = Count(perf_counter())
    if operator is Choice.auto:
        recalibrate(index)
    with ExitStack() as stack:
        middleware = stack.enter_context(
            Middleware(
                index,
                operator=operator.value,
                scheme=scheme,
                budget=budget << 20,
                threads=threads,
                missing=missing,
                entities=CHARACTER_ENTITIES if entities else None,
            )
        )
        refused = subscribe(middleware, statements, declared(namespace or []), wanted)
        sink = stack.enter_context(_sink(_format(output, out), out, wanted))
        shown = stack.enter_context(telling("matching", quiet=quiet, piped=out is not None))
        live = any(map(is_stream, names))
        for result in results_of(middleware, names, record or (), 1 if live else BATCH):
            count.add(result)
            sink.write(result)
            if live:
                sink.flush()
            shown(count)
        if report is not None:
            middleware.report().write(report)
    if not quiet:
        note(str(count))
        if report is not None:
            note(f"report in {report}")
        _complain(count)
    if refused:
        raise typer.Exit(USAGE)
    if count.failed:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of the nodes."""

    values: bool
    fragments: bool


def subscribe(
    middleware: Middleware, path: Path, namespaces: Mapping[str, str], wanted: Wanted
) -> int:
    """Register the statements of a file; how many were refused."""
    from dataclasses import replace

    from fmware.errors import FMwareError
    from fmware.statements import Returns, StatementFileError, read_statements

    try:
        found = read_statements(path, namespaces=namespaces)
    except (OSError, StatementFileError) as error:
        said = f"{path}: {error.strerror}" if isinstance(error, OSError) else error
        raise fail(said, USAGE) from None
    bad: list[tuple[str, Exception]] = [(each.name, each.error) for each in found.bad]
    for statement in found:
        more = {Returns.VALUE} if wanted.values else set()
        more |= {Returns.FRAGMENT} if wanted.fragments else set()
        returns = statement.returns | (more if statement.selects else set())
        try:
            middleware.subscribe(replace(statement, returns=returns))
        except FMwareError as error:
            bad.append((statement.name, error))
    for name, reason in bad:
        complain(f"statement {name}: {reason}")
    return len(bad)


def results_of(
    middleware: Middleware, names: Iterable[str], records: Sequence[str], batch: int
) -> Iterator[Result]:
    """The results of all messages, in their order; what could not be read comes as an error."""
    from fmware.matching.results import Result

    found = (each for name in names for each in messages_of(name, middleware.reader, records))
    while taken := list(islice(found, batch)):
        good = [(name, table) for name, table in taken if not isinstance(table, Exception)]
        tables = [table for _, table in good]
        matched = middleware.publish_batch(tables, names=[name for name, _ in good])
        answers = iter(matched)
        for name, table in taken:
            if isinstance(table, Exception):
                yield Result(name, errors=[table])
            else:
                yield next(answers)


# -- what comes out ----------------------------------------------------------------------------


class Sink(ABC):
    """Where results go."""

    @abstractmethod
    def write(self, result: Result) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Have what was written be seen, where that is possible."""

    @abstractmethod
    def close(self) -> None:
        """No more is to come."""


class JsonLines(Sink):
    def __init__(self, file: IO[bytes], wanted: Wanted) -> None:
        from fmware.matching.plain import plain_match

        self._file = file
        self._plain = partial(plain_match, values=wanted.values)
        self._encode = json.JSONEncoder(ensure_ascii=False).encode

    def write(self, result: Result) -> None:
        for found in result.matches:
            about: dict[str, Any] = {"message": result.message, "statement": found.statement}
            self._line(about | self._plain(found, result.table))
        for error in result.errors:
            self._line({"message": result.message, "error": _reason(error)})
        for lost in result.missing:
            about = {"path": lost.path, "tag": lost.tag, "key": lost.key}
            self._line({"message": result.message, "missing": about})

    def _line(self, line: dict[str, Any]) -> None:
        self._file.write(f"{self._encode(line)}\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


COLUMNS = ("message", "statement", "nodes", "local_tag", "local_path", "start", "end", "level")
MORE = ("source", "value", "fragment")


def _row(result: Result, found: Match) -> dict[str, Any]:
    """A match as plain columns."""
    table = result.table
    paths = [table.path(row) for row in found.nodes] if table is not None else []
    row: dict[str, Any] = dict.fromkeys((*COLUMNS, *MORE))
    row |= {"message": result.message, "statement": found.statement, "nodes": " ".join(paths)}
    if (node := found.local) is not None:
        row |= {"local_tag": node.tag, "local_path": node.path, "source": node.source}
        row |= {"start": node.start, "end": node.end, "level": node.level, "value": node.value}
        row["fragment"] = None if node.fragment is None else node.fragment.decode()
    return row


class Csv(Sink):
    def __init__(self, file: IO[bytes]) -> None:
        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._rows = csv.DictWriter(self._text, [*COLUMNS, *MORE])
        self._rows.writeheader()

    def write(self, result: Result) -> None:
        self._rows.writerows(_row(result, found) for found in result.matches)
        _tell(result)

    def flush(self) -> None:
        self._text.flush()

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


class Parquet(Sink):
    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = {"start": pa.int64(), "end": pa.int64(), "level": pa.int16()}
        self._schema = pa.schema([(name, whole.get(name, pa.utf8())) for name in (*COLUMNS, *MORE)])
        self._writer = pq.ParquetWriter(file, self._schema)
        self._held: list[dict[str, Any]] = []

    def write(self, result: Result) -> None:
        self._held += [_row(result, found) for found in result.matches]
        _tell(result)
        if len(self._held) >= ROWS:
            self._store()

    def flush(self) -> None:
        """A row group has many rows: they are seen when it is full."""

    def _store(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist(self._held, self._schema))
        self._held.clear()

    def close(self) -> None:
        self._store()
        self._writer.close()


def _tell(result: Result) -> None:
    for error in result.errors:
        complain(f"{result.message}: {_reason(error)}")
    for lost in result.missing:
        complain(f"{result.message}: no local node for {lost.path} (key {lost.key})")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _format(wanted: Format | None, out: Path | None) -> Format:
    if wanted is not None:
        return wanted
    suffix = out.suffix.removeprefix(".") if out else ""
    return Format(suffix) if suffix in Format.__members__ else Format.jsonl


@contextmanager
def _sink(wanted: Format, out: Path | None, options: Wanted) -> Iterator[Sink]:
    with ExitStack() as stack:
        if out is not None:
            file: IO[bytes] = stack.enter_context(out.open("wb"))
        elif wanted is Format.parquet:
            file = binary_stdout()
        else:
            file = sys.stdout.buffer
        sink: Sink
        if wanted is Format.jsonl:
            sink = JsonLines(file, options)
        else:
            sink = Csv(file) if wanted is Format.csv else Parquet(file)
        yield sink
        sink.close()


@dataclass(slots=True)
class Count:
    """How it went."""

    began: float
    messages: int = 0
    matched: int = 0
    matches: int = 0
    unmatched: int = 0
    failed: int = 0

    def add(self, result: Result) -> None:
        self.messages += 1
        self.matched += bool(result.matches)
        self.matches += len(result.matches)
        self.unmatched += result.unmatched
        self.failed += bool(result.errors)

    def __str__(self) -> str:
        rate = self.messages / max(perf_counter() - self.began, 1e-9)
        return (
            f"{self.messages:,} messages, {self.matched:,} matched, {self.matches:,} matches, "
            f"{self.unmatched:,} anchors without a local node, {rate:,.0f} messages/s"
        )


def _complain(count: Count) -> None:
    if count.failed:
        complain(f"{count.failed:,} of {count.messages:,} messages had errors")
