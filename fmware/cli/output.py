"""What all commands share: the two consoles, progress, input by name or `-`, how errors look.

Results go to stdout, everything else to stderr, so that a pipe carries results alone. The exit
codes are `OK`, `FAILED` (something was rejected or broke at run time) and `USAGE` (the command
line or an expression in it is wrong).
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.console import Console

__all__ = [
    "FAILED",
    "OK",
    "STDIN",
    "USAGE",
    "binary_stdin",
    "binary_stdout",
    "complain",
    "console",
    "counted",
    "declared",
    "emit_json",
    "examples",
    "exit_code_of",
    "expand",
    "fail",
    "note",
    "progress",
    "prose",
    "telling",
]

OK, FAILED, USAGE = 0, 1, 2
STDIN = "-"
PIPE_WIDTH = 120


def console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A rich console; made when asked for, since streams may be replaced and rich takes time."""
    from rich.console import Console

    made = Console(stderr=stderr, file=file, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = PIPE_WIDTH
    return made


def prose(text: str) -> str:
    """Paragraphs for the help: line ends in the source are not those of the terminal."""
    return "\n\n".join(" ".join(block.split()) for block in text.strip().split("\n\n"))


def examples(*lines: tuple[str, str], after: str = "") -> str:
    """The end of a help page: commands to copy, each with what it does."""
    shown = "\n\n".join(
        "[cyan]{}[/cyan]  {}".format(command.replace("[", r"\["), what) for command, what in lines
    )
    return f"[bold]Examples[/bold]\n\n{shown}\n\n{prose(after)}".strip()


def complain(message: object) -> None:
    """Say on stderr what went wrong, and go on."""
    typer.echo(f"fmware: {message}", err=True)


def fail(message: object, code: int = FAILED) -> typer.Exit:
    """Say what went wrong; the exception to raise is returned, so that `raise` is in sight."""
    complain(message)
    return typer.Exit(code)


def note(message: str) -> None:
    """A word to a person at a terminal; nothing in a pipe or a log."""
    if sys.stderr.isatty():
        typer.echo(message, err=True)


def counted(number: int, what: str, more: str | None = None) -> str:
    """A number of things: `1 record`, `2 records`; `more` is the plural if it is irregular."""
    return f"{number:,} {what if number == 1 else more or what + 's'}"


def emit_json(value: object) -> None:
    """One JSON value on one line of stdout."""
    import json

    typer.echo(json.dumps(value, ensure_ascii=False))


def exit_code_of(error: Exception) -> int | None:
    """The exit code of an error that is the user's to see; None for one that is a bug."""
    # The family is asked for by where it lives: importing all of them would cost every start.
    families = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    if families & {
        "fmware.xpath.errors.XPathError",
        "fmware.datasets.errors.ParameterError",
        "fmware.labeling.errors.RuleError",
        "fmware.labeling.errors.SchemeError",
    }:
        return USAGE
    if families & {
        "fmware.errors.FMwareError",
        "fmware.index.errors.StoreError",
        "fmware.labeling.errors.LabelingError",
        "fmware.datasets.errors.DatasetError",
    }:
        return FAILED
    return FAILED if isinstance(error, OSError) else None


def binary_stdin() -> IO[bytes]:
    """The bytes of stdin."""
    return sys.stdin.buffer


def binary_stdout() -> IO[bytes]:
    """The bytes of stdout; a terminal is refused, it would only show noise."""
    if sys.stdout.isatty():
        raise fail("binary output to a terminal: add --out FILE or redirect it", USAGE)
    sys.stdout.flush()
    return sys.stdout.buffer


def expand(names: Iterable[str], suffixes: tuple[str, ...] = (".xml",)) -> Iterator[str]:
    """Names of files, `-` as it is, and for a directory its files with a suffix, in order."""
    for name in names:
        path = Path(name)
        if name != STDIN and path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in suffixes and p.is_file())
            yield from map(str, found)
        else:
            yield name


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is told how many bytes more; nothing where no terminal would show it.

    There is none either if stdout is a terminal, whose results it would run into.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    shown = Progress(*columns, TransferSpeedColumn(), console=console(stderr=True), transient=True)
    with shown as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def telling(what: str, *, quiet: bool, piped: bool) -> Iterator[Callable[[object], None]]:
    """A line on stderr that tells how far it is, where a terminal shows it and nothing else.

    It is given what to show, which is made a text now and then.
    """
    if quiet or not sys.stderr.isatty() or (sys.stdout.isatty() and not piped):
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        told = 0.0

        def show(state: object) -> None:
            nonlocal told
            if (now := perf_counter()) - told > 0.1:
                told = now
                bar.update(task, description=str(state))

        yield show


def declared(pairs: list[str]) -> Mapping[str, str]:
    """The namespaces of `--namespace PREFIX=URI` options."""
    found: dict[str, str] = {}
    for pair in pairs:
        prefix, equals, uri = pair.partition("=")
        if not (prefix and equals and uri):
            raise typer.BadParameter(f"{pair!r} is not PREFIX=URI", param_hint="--namespace")
        if prefix == "local":
            raise typer.BadParameter("local: means the corpus", param_hint="--namespace")
        found[prefix] = uri
    return found
