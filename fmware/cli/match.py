"""`fmware match`: messages through statements, matched against an index, one line a match."""

from __future__ import annotations

import csv
import io
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer looks at it
from time import perf_counter
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from fmware.cli.calibrate import Beside, recalibrate
from fmware.cli.messages import inputs_of, is_stream, messages_of
from fmware.cli.output import (
    FAILED,
    USAGE,
    binary_stdout,
    complain,
    counted,
    declared,
    examples,
    fail,
    note,
    telling,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from fmware.middleware import Middleware, Results
    from fmware.statements import Returns, Statement

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
A line of JSON is {"message": NAME, "statement": NAME, "nodes": [{"path"}, ...], "local": {"tag",
"path", "label": [START, END, LEVEL], "source", "value", "fragment"}}: the nodes of the message that
matched, a step each, and the node of the corpus, if the statement selects one. A statement without
local: gives its name alone, unless --returns or its entry in a .toml file asks for more; the last
of its nodes then has "value" and "fragment". A
message that cannot be read, or a statement that fails for it, is not decided within the limits or
has more tuples than they allow, gives a line with "error", and the exit code is then 1; with
--missing, anchors without a local counterpart give lines with "missing".
A statement that is refused is reported on stderr, the rest goes on, and the exit code is then 2.
CSV and Parquet have a row a match, with the same in columns; errors go to stderr.
""",
)


class Format(StrEnum):
    """What comes out."""

    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


class Given(StrEnum):
    """What can be returned of a match."""

    name = "name"
    message = "message"
    local = "local"
    value = "value"
    fragment = "fragment"


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
        bool, typer.Option("--values/--no-values", help="The values of nodes of the corpus.")
    ] = True,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="The XML of nodes of the corpus.")
    ] = False,
    returns: Annotated[
        list[Given] | None,
        typer.Option(
            help="What every statement returns, whatever its file says. May be repeated.",
            show_default=False,
        ),
    ] = None,
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
            "--threads",
            "-j",
            min=0,
            help="Threads of each that fetch what is not in memory; 0: none.",
            rich_help_panel="Operators",
        ),
    ] = 1,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")
    ] = False,
) -> None:
    """Match messages: filter them, and ask the [bold]local corpus[/bold] about what passes."""
    from fmware.labeling import CHARACTER_ENTITIES
    from fmware.middleware import Middleware

    names = list(inputs_of(messages))
    if not names:
        raise fail("no *.xml file in what was named", FAILED)
    wanted = Wanted(values, fragments, tuple(each.value for each in returns or ()))
    count = Count(perf_counter())
    if operator is Choice.auto and report is not None:
        recalibrate(index)
    with ExitStack() as stack:
        beside = Beside(index)
        stack.callback(beside.close)
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
        sink = stack.enter_context(_sink(_format(output, out), out))
        shown = stack.enter_context(telling("matching", quiet=quiet, piped=out is not None))
        live = any(map(is_stream, names))
        for results in results_of(middleware, names, record or (), 1 if live else BATCH):
            count.add(results)
            sink.write(results)
            if live:
                sink.flush()
            shown(count)
            if operator is Choice.auto:
                beside.look()
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
    """What is wanted of matches: `returns`, or else what statements say and more of local nodes."""

    values: bool = True
    fragments: bool = False
    returns: tuple[str, ...] = ()

    def of(self, statement: Statement) -> frozenset[Returns]:
        """What a statement is to return."""
        from fmware.statements import Returns

        if self.returns:
            every = frozenset(map(Returns, self.returns))
            own = every if statement.selects else every - {Returns.LOCAL}
            return own or frozenset({Returns.NAME})
        more = {Returns.VALUE} if self.values else set()
        more |= {Returns.FRAGMENT} if self.fragments else set()
        return statement.returns | (more if statement.selects else set())


def subscribe(
    middleware: Middleware, path: Path, namespaces: Mapping[str, str], wanted: Wanted
) -> int:
    """Register the statements of a file; how many were refused."""
    from dataclasses import replace

    from fmware.errors import FMwareError
    from fmware.statements import StatementFileError, read_statements, refusal

    try:
        found = read_statements(path, namespaces=namespaces)
    except (OSError, StatementFileError) as error:
        why = f"{path}: {error.strerror}" if isinstance(error, OSError) else error
        raise fail(why, USAGE) from None
    said = [refusal(path, each) for each in found.bad]
    for statement in found:
        try:
            middleware.subscribe(replace(statement, returns=wanted.of(statement)))
        except FMwareError as error:
            said.append(f"{path}, statement {statement.name}: {error}")
    for each in said:
        complain(each)
    return len(said)


def results_of(
    middleware: Middleware, names: Iterable[str], records: Sequence[str], batch: int
) -> Iterator[Results]:
    """The results of all messages, in their order, a batch at a time.

    What could not be read has its error in its place.
    """
    found = (each for name in names for each in messages_of(name, middleware.reader, records))
    while taken := list(islice(found, batch)):
        yield middleware.publish_batch(
            [message for _, message in taken], names=[name for name, _ in taken]
        )


# -- what comes out ----------------------------------------------------------------------------


class Sink(ABC):
    """Where results go."""

    @abstractmethod
    def write(self, results: Results) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Have what was written be seen, where that is possible."""

    @abstractmethod
    def close(self) -> None:
        """No more is to come."""


class JsonLines(Sink):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, results: Results) -> None:
        self._file.write(results.to_json_lines())
        for result in results.incomplete:
            for problem in result.problems:
                self._line({"message": result.message, "error": problem})
        for result in results:
            for lost in result.missing:
                about = {"path": lost.path, "tag": lost.tag, "key": lost.key}
                self._line({"message": result.message, "missing": about})

    def _line(self, line: dict[str, Any]) -> None:
        from fmware.matching.to_json import encode

        self._file.write(f"{encode(line)}\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.flush()


class Csv(Sink):
    def __init__(self, file: IO[bytes]) -> None:
        from fmware.matching.arrow import SCHEMA

        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._rows = csv.DictWriter(self._text, [name for name in SCHEMA.names if name != "rows"])
        self._rows.writeheader()

    def write(self, results: Results) -> None:
        for row in results.to_arrow().drop_columns(["rows"]).to_pylist():
            row["nodes"] = " ".join(row["nodes"] or ())
            self._rows.writerow(row)
        _tell(results)

    def flush(self) -> None:
        self._text.flush()

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


class Parquet(Sink):
    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow.parquet as pq

        from fmware.matching.arrow import SCHEMA

        self._writer = pq.ParquetWriter(file, SCHEMA)
        self._held: list[pa.Table] = []

    def write(self, results: Results) -> None:
        self._held.append(results.to_arrow())
        _tell(results)
        if sum(map(len, self._held)) >= ROWS:
            self._store()

    def flush(self) -> None:
        """A row group has many rows: they are seen when it is full."""

    def _store(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.concat_tables(self._held))
        self._held.clear()

    def close(self) -> None:
        self._store()
        self._writer.close()


def _tell(results: Results) -> None:
    for result in results.incomplete:
        for problem in result.problems:
            complain(f"{result.message}: {problem}")
    for result in results:
        for lost in result.missing:
            complain(f"{result.message}: no local node for {lost.path} (key {lost.key})")


def _format(wanted: Format | None, out: Path | None) -> Format:
    if wanted is not None:
        return wanted
    suffix = out.suffix.removeprefix(".") if out else ""
    return Format(suffix) if suffix in Format.__members__ else Format.jsonl


@contextmanager
def _sink(wanted: Format, out: Path | None) -> Iterator[Sink]:
    with ExitStack() as stack:
        if out is not None:
            file: IO[bytes] = stack.enter_context(out.open("wb"))
        elif wanted is Format.parquet:
            file = binary_stdout()
        else:
            file = sys.stdout.buffer
        sink: Sink
        if wanted is Format.jsonl:
            sink = JsonLines(file)
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

    def add(self, results: Results) -> None:
        counts = results.match_counts()
        self.messages += len(counts)
        self.matched += len(counts) - counts.count(0)
        self.matches += sum(counts)
        self.unmatched += sum(results.troubles.unmatched.values())
        self.failed += len(results.incomplete)

    def __str__(self) -> str:
        rate = self.messages / max(perf_counter() - self.began, 1e-9)
        matches = counted(self.matches, "match", "matches")
        lost = counted(self.unmatched, "anchor", "anchors")
        return (
            f"{counted(self.messages, 'message')}, {self.matched:,} matched, {matches}, "
            f"{lost} without a local node, {rate:,.0f} messages/s"
        )


def _complain(count: Count) -> None:
    if count.failed:
        complain(f"{count.failed:,} of {counted(count.messages, 'message')} had errors")
