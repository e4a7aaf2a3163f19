"""`fmware filter`: which statements does each message match, one JSON line a message.

Tasks come in the order of the messages (`_tasks`), run here or on threads (`_in_order`), and their
lines go out in that order. A small file is one task, read and filtered on one thread; of a stream,
each message is one, so that memory stays bounded.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from time import perf_counter
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from fmware.cli.messages import (
    CHUNK,
    UNREADABLE,
    inputs_of,
    is_small,
    is_stream,
    messages_of,
    opened,
)
from fmware.cli.output import (
    FAILED,
    STDIN,
    USAGE,
    binary_stdin,
    complain,
    declared,
    examples,
    fail,
    note,
    telling,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from fmware.filtering import FilterEngine, FilterResult
    from fmware.labeling import NodeTable, Reader

__all__ = ["EPILOG", "filter"]

WAITING = 8
"""Tasks a thread may have waiting, so that a fast reader does not fill the memory."""

EPILOG = examples(
    ("fmware filter statements.txt inbox/", "every *.xml below a directory, in order"),
    ("tail -f log.xml | fmware filter statements.txt - --matched-only", "as messages arrive"),
    (
        "fmware filter statements.txt dblp.xml.gz --record article --entities --threads 2",
        "the records of one large document",
    ),
    (
        "fmware filter statements.txt endless.xml --batches 65536",
        "one document of any length, a line a batch of so many nodes",
    ),
    (
        "fmware filter -n a=http://www.w3.org/2005/Atom statements.txt feed.xml --tuples",
        "with the nodes that matched",
    ),
    after="""
Each line is {"message": NAME, "statements": NAMES}; with --batches, "batch" is the number of the
batch, and "undecided" names the statements that may hang on what lies in other batches. In a plain
statement file a statement's name is the number of its line; a .toml file names them. A message that
cannot be read gives a line with "error", and the exit code is then 1; a statement that is refused
is reported on stderr, the rest goes on, and the exit code is then 2.
""",
)


class Line(NamedTuple):
    """What is said of one message."""

    data: bytes
    matches: int = 0
    failed: bool = False
    open: bool = False
    """Whether statements are undecided."""


Task: TypeAlias = "Callable[[], list[Line]]"


def filter(  # noqa: A001
    statements: Annotated[
        str, typer.Argument(metavar="STATEMENTS", help="One statement a line, or a .toml file.")
    ],
    messages: Annotated[
        list[str],
        typer.Argument(
            metavar="MESSAGES", help="XML files (.gz too), directories, or - for stdin."
        ),
    ],
    tuples: Annotated[
        bool, typer.Option("--tuples", help="Add the nodes that matched: path and value.")
    ] = False,
    fragments: Annotated[
        bool, typer.Option("--fragments", help="The same, with the XML of elements.")
    ] = False,
    matched_only: Annotated[
        bool, typer.Option("--matched-only", help="No line for a message that nothing matches.")
    ] = False,
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record",
            "-r",
            metavar="TAG",
            help="Take each element of this name, prefix included, as a message. May be repeated.",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            "--batches",
            metavar="NODES",
            min=2,
            max=1 << 24,
            help="Take each input as one document of any length, and answer every so many nodes.",
        ),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="PREFIX=URI",
            help="Declare a prefix for all statements; may be repeated.",
            show_default=False,
        ),
    ] = None,
    entities: Annotated[
        bool,
        typer.Option(
            "--entities",
            help="Allow a DOCTYPE of character entities, and those of HTML 4 (&uuml;) without one.",
        ),
    ] = False,
    threads: Annotated[
        int, typer.Option("--threads", "-j", min=1, help="Filter on so many threads.")
    ] = 1,
    skip_bad_statements: Annotated[
        bool,
        typer.Option("--skip-bad-statements", help="Refused statements leave the exit code 0."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write here instead of stdout.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")
    ] = False,
) -> None:
    """Filter messages: say of each [bold]which statements it matches[/bold].

    All statements run over a message at once, whatever their number. Answers come in the order of
    the messages, from a pipe each as soon as its message is whole.
    """
    names = list(inputs_of(messages))
    if not names:
        raise fail("no *.xml file in what was named", FAILED)
    if statements == STDIN and STDIN in names:
        raise fail("statements and messages cannot both come from stdin", USAGE)
    if batches and (record or entities or tuples or fragments):
        raise fail("--batches goes without --record, --entities, --tuples and --fragments", USAGE)
    wanted = Wanted(tuples or fragments, fragments, entities)
    loaded = _load(
        statements, declared(namespace or []), wanted, silent=skip_bad_statements and quiet
    )
    answer = loaded.answerer(wanted)
    tasks = _batches(names, answer, batches) if batches else _tasks(names, answer, record or ())
    live = sys.stdout.isatty() or any(map(is_stream, names))
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(out.open("wb")) if out else sys.stdout.buffer
        shown = stack.enter_context(telling("filtering", quiet=quiet, piped=out is not None))
        count = _write(
            _in_order(tasks, threads), file, shown, live=live, all_lines=not matched_only
        )
        file.flush()
    if not quiet:
        _summarise(count)
    if loaded.refused and not skip_bad_statements:
        raise typer.Exit(USAGE)
    if count.failed:
        raise typer.Exit(FAILED)


class Wanted(NamedTuple):
    """What is wanted of the messages."""

    tuples: bool
    fragments: bool
    entities: bool


# -- statements --------------------------------------------------------------------------------


@dataclass(slots=True)
class Loaded:
    """The engine, the names of its statements by id, and how many were refused."""

    engine: FilterEngine
    names: dict[int, str]
    refused: int

    def answerer(self, wanted: Wanted) -> Answerer:
        return Answerer(self.engine, self.names, wanted)


def _load(source: str, namespaces: Mapping[str, str], wanted: Wanted, *, silent: bool) -> Loaded:
    from fmware.filtering import FilterEngine, FilterError
    from fmware.filtering.statements import (
        BadStatement,
        StatementFileError,
        iter_statements,
        refusal,
    )
    from fmware.labeling import CHARACTER_ENTITIES
    from fmware.xpath import XPathError

    engine = FilterEngine(entities=CHARACTER_ENTITIES if wanted.entities else None)
    loaded = Loaded(engine, {}, 0)
    try:
        data = binary_stdin().read() if source == STDIN else Path(source).read_bytes()
        entries = iter_statements(data, source, namespaces=namespaces)
    except (OSError, StatementFileError) as error:
        reason = f"{source}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise fail(reason, USAGE) from None
    for entry in entries:
        try:
            if isinstance(entry, BadStatement):
                raise entry.error
            number = engine.subscribe(
                entry.expression, namespaces=entry.namespaces, tuples=wanted.tuples
            )
        except (XPathError, FilterError) as error:
            loaded.refused += 1
            if not silent:
                complain(refusal(source, BadStatement(entry.name, entry.line, error)))
        else:
            loaded.names[number] = entry.name
    if not loaded.names and not silent:
        complain(f"{source}: no statement to filter with")
    return loaded


# -- messages ----------------------------------------------------------------------------------


def _tasks(names: Iterable[str], answer: Answerer, records: Sequence[str]) -> Iterator[Task]:
    for name in names:
        if not records and is_small(name):
            yield partial(_whole_file, name, answer)
            continue
        for message, document in messages_of(name, answer.reader, records):
            yield partial(_one, message, document, answer)


def _batches(names: Iterable[str], answer: Answerer, nodes: int) -> Iterator[Task]:
    for name in names:
        for number, table in enumerate(_tables(name, answer.reader, nodes), 1):
            yield partial(_one, name, table, answer, number)


def _tables(name: str, reader: Reader, nodes: int) -> Iterator[NodeTable | Exception]:
    """The batches of one input; if it breaks off, its error comes last."""
    from fmware.labeling import ReadError

    try:
        with ExitStack() as stack:
            file = opened(name, stack)
            take = getattr(file, "read1", file.read)
            yield from reader.read_batches(iter(partial(take, CHUNK), b""), nodes=nodes)
    except (ReadError, *UNREADABLE) as error:
        yield error


def _one(
    message: str, document: NodeTable | Exception, answer: Answerer, batch: int | None = None
) -> list[Line]:
    return [answer(message, document, batch)]


def _whole_file(name: str, answer: Answerer) -> list[Line]:
    """A file of one document, as most are; if it turns out to be another, read as a stream."""
    from fmware.labeling import ReadError

    try:
        return [answer(name, answer.reader.read(Path(name).read_bytes()))]
    except (ReadError, OSError):
        return [answer(*each) for each in messages_of(name, answer.reader, ())]


# -- answers -----------------------------------------------------------------------------------


class Answerer:
    """Filters a message and says what came of it, as JSON; any number of threads may call it."""

    def __init__(self, engine: FilterEngine, names: Mapping[int, str], wanted: Wanted) -> None:
        import numpy as np

        self._engine = engine
        self._wanted = wanted
        self._encode = json.JSONEncoder(ensure_ascii=False).encode
        # By id, encoded once, and an array: of many statements, thousands may be in one line.
        self._names = np.full(max(names, default=0) + 1, "", object)
        for number, name in names.items():
            self._names[number] = self._encode(name)
        self.reader = engine.reader

    def __call__(
        self, message: str, document: NodeTable | Exception, batch: int | None = None
    ) -> Line:
        """The line of one message, or of one batch of it."""
        from fmware.filtering import FilterError

        if isinstance(document, Exception):
            return self._failure(message, document, batch)
        try:
            result = self._engine.filter(document)
        except FilterError as error:
            return self._failure(message, error, batch)
        parts = [f'"message": {self._encode(message)}']
        if batch is not None:
            parts.append(f'"batch": {batch}')
        parts.append(f'"statements": {self._list(result.ids)}')
        if self._wanted.tuples:
            parts.append(f'"tuples": {self._tuples(result)}')
        if result.undecided:
            parts.append(f'"undecided": {self._list(result.undecided)}')
        if result.truncated:
            parts.append(f'"truncated": {self._list(result.truncated)}')
        return Line(_line(parts), len(result), open=bool(result.undecided))

    def _failure(self, message: str, error: Exception, batch: int | None) -> Line:
        from fmware.labeling import ReadError

        reason = getattr(error, "strerror", None) or str(error)
        about: dict[str, Any] = {"message": message}
        if batch is not None:
            about["batch"] = batch
        about |= {"statements": [], "error": reason}
        if isinstance(error, ReadError):
            about["error"] = error.reason.replace("entities={...}", "--entities")
            about |= {"line": error.line, "column": error.column}
        return Line(_line([self._encode(about)[1:-1]]), failed=True)

    def _list(self, numbers: npt.ArrayLike) -> str:
        import numpy as np

        return f"[{', '.join(self._names[np.sort(numbers)].tolist())}]"

    def _tuples(self, result: FilterResult) -> str:
        # A node is in many tuples: above all the root, whose value is the longest.
        nodes: dict[int, str] = {}
        found = []
        for number, rows in sorted(result.tuples.items()):
            for row in set(rows.ravel().tolist()) - nodes.keys():
                nodes[row] = self._encode(self._node(result.table, row))
            each = ", ".join(
                f"[{', '.join([nodes[row] for row in line])}]" for line in rows.tolist()
            )
            found.append(f"{self._names[number]}: [{each}]")
        return f"{{{', '.join(found)}}}"

    def _node(self, table: NodeTable, row: int) -> dict[str, str]:
        if self._wanted.fragments and table.kind[row] == 0:
            return {"path": table.path(row), "fragment": table.fragment(row).decode()}
        return {"path": table.path(row), "value": table.string_value(row)}


def _line(parts: Iterable[str]) -> bytes:
    # A name of a file that is not UTF-8 has lone surrogates, which JSON can only write escaped.
    return f"{{{', '.join(parts)}}}\n".encode(errors="backslashreplace")


# -- running and writing -----------------------------------------------------------------------


def _in_order(tasks: Iterator[Task], threads: int) -> Iterator[list[Line]]:
    """What the tasks give, in their order; on threads, each as soon as those before are done."""
    if threads == 1:
        yield from (task() for task in tasks)
        return
    waiting: Queue[Future[list[Line]] | BaseException | None] = Queue(WAITING * threads)
    over = Event()
    producer = Thread(target=_produce, args=(tasks, threads, waiting, over), daemon=True)
    producer.start()
    try:
        while (each := waiting.get()) is not None:
            if isinstance(each, BaseException):
                raise each
            yield each.result()
    finally:
        over.set()
        _drain(waiting)


def _produce(
    tasks: Iterator[Task],
    threads: int,
    waiting: Queue[Future[list[Line]] | BaseException | None],
    over: Event,
) -> None:
    """Start the tasks. It has a thread of its own: it waits for input, lines must not."""
    try:
        with ThreadPoolExecutor(threads) as pool:
            for task in tasks:
                if over.is_set():
                    return
                waiting.put(pool.submit(task))
        waiting.put(None)
    except BaseException as error:
        waiting.put(error)


def _drain(waiting: Queue[Any]) -> None:
    """Let a producer that waits for room go on, and find that it is over."""
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        pass


@dataclass(slots=True)
class Count:
    """How it went."""

    began: float
    messages: int = 0
    matched: int = 0
    matches: int = 0
    failed: int = 0

    def add(self, line: Line) -> None:
        self.messages += 1
        self.matched += line.matches > 0
        self.matches += line.matches
        self.failed += line.failed

    def __str__(self) -> str:
        rate = self.messages / max(perf_counter() - self.began, 1e-9)
        return (
            f"{self.messages:,} messages, {self.matched:,} matched, "
            f"{self.matches:,} matches, {rate:,.0f} messages/s"
        )


def _write(
    results: Iterable[list[Line]],
    file: IO[bytes],
    shown: Callable[[Count], None],
    *,
    live: bool,
    all_lines: bool,
) -> Count:
    count = Count(perf_counter())
    for lines in results:
        for line in lines:
            count.add(line)
            if all_lines or any(line[1:]):
                file.write(line.data)
        if live:
            file.flush()
        shown(count)
    return count


def _summarise(count: Count) -> None:
    note(str(count))
    if count.failed:
        complain(
            f'{count.failed:,} of {count.messages:,} messages could not be read; see "error" '
            "in their lines"
        )
