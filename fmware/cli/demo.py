"""`fmware demo`: the main job from end to end, on data made for it.

Each step is a function in `STEPS` that takes the `Run`, does its part and returns what there is to
say about it. What a later step needs, an earlier one has put on the `Run`; a new step is a new
function in the tuple. The data depend on the seed alone.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmware.cli.index import show_summary
from fmware.cli.output import console, emit_json, examples, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from fmware.corpus import IndexSummary
    from fmware.matching.results import LocalNode
    from fmware.middleware import Middleware

__all__ = ["EPILOG", "STEPS", "demo"]

STATEMENTS = (
    "//notice[@priority = 'high']",
    "/notice/order[@currency = 'EUR'][total > 500]/customer",
    "//review[verdict = 'accept'][not(.//rating < 4)]",
    "//citation[citing/article]/cited//phdthesis",
    "//review[verdict = 'accept']/article/local:author",
    "//order/book[quantity > 5]/local:publisher",
    "//cited/article[local:year > 2015]//local:title",
    "//citing/inproceedings[local:crossref]/local:pages/text()",
    "//review[@round = 3]/*/self::local:*/@mdate",
    "//cited/*[passage/@page > 350][.//local:ee][local:author]",
)

EPILOG = examples(
    ("fmware demo", "5 MB of corpus and 2,000 messages into demo-out/"),
    ("fmware demo --size 100 --messages 20000 --out large-demo", "more of both, elsewhere"),
    ("fmware demo --json", "the figures for a program"),
)


@dataclass(slots=True)
class Run:
    """One run: what was asked for, and what the steps have found so far."""

    directory: Path
    size: int
    messages: int
    crowd: int
    seed: int
    master: str
    in_process: bool = False
    records: int = 0
    summary: IndexSummary | None = None
    middleware: Middleware | None = None
    matched: list[int] = field(default_factory=list)
    shown: dict[str, LocalNode] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)

    @property
    def corpus_file(self) -> Path:
        return self.directory / "corpus.xml"

    @property
    def index(self) -> Path:
        return self.directory / "corpus.index"

    @property
    def messages_file(self) -> Path:
        return self.directory / "messages.xml"

    @property
    def statements_file(self) -> Path:
        return self.directory / "statements.txt"

    @property
    def report_file(self) -> Path:
        return self.directory / "report" / "report.html"


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where the data go.")
    ] = Path("demo-out"),
    size: Annotated[int, typer.Option(min=1, metavar="MB", help="Size of the corpus.")] = 5,
    messages: Annotated[int, typer.Option(min=1, help="Length of the message stream.")] = 2000,
    crowd: Annotated[
        int, typer.Option(min=0, help="Statements made up beside the demo's own.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="Another seed, other data.")] = 7,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
    in_process: Annotated[bool, typer.Option("--in-process", help="Do without Spark.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object of figures.")] = False,
) -> None:
    """Run the main job from end to end on made-up data: a bibliography and notices that cite it."""
    out.mkdir(parents=True, exist_ok=True)
    run = Run(out, size * 1_000_000, messages, crowd, seed, master, in_process)
    screen = console()
    for step in STEPS:
        name = step.__name__.strip("_")
        if as_json:
            note(f"{name} ...")
        began = time.perf_counter()
        said = step(run)
        seconds = time.perf_counter() - began
        run.figures[f"{name}_seconds"] = round(seconds, 3)
        if not as_json:
            screen.print(f"[bold]{name:10}[/bold] {said} [dim]in {seconds:.1f} s[/dim]")
    if as_json:
        emit_json(run.figures)
    else:
        assert run.summary is not None
        show_summary(run.summary)
        _show(run)
        if run.report_file.exists():
            screen.print(f"the report of this run is in {run.report_file}", soft_wrap=True)


def _corpus(run: Run) -> str:
    """Make the local store's source: a bibliography in the shape of dblp's."""
    from fmware.datasets.bibliography import bibliography

    made = bibliography(size=run.size, seed=run.seed)
    with run.corpus_file.open("wb") as file:
        for chunk in made:
            file.write(chunk)
    run.records = made.records
    run.figures |= {"corpus_bytes": made.bytes, "records": made.records}
    return f"{made.records:,} records, {made.bytes / 1e6:.1f} MB, in {run.corpus_file}"


def _index(run: Run) -> str:
    """Label the corpus and index it; a record lost or refused would be a bug."""
    from fmware.corpus import build_index
    from fmware.datasets.bibliography import TAGS
    from fmware.session import spark_session

    shutil.rmtree(run.index, ignore_errors=True)
    with nullcontext() if run.in_process else spark_session(run.master) as spark:
        made = build_index(
            run.corpus_file,
            run.index,
            spark=spark,
            record=TAGS,
            identity=[f"{tag}=@key" for tag in TAGS],
            schemes=("path", "vist", "prix"),
        )
    if made.records != run.records or made.rejected:
        raise RuntimeError(f"{run.records} records were written and {made.records} indexed")
    run.summary = made
    run.figures |= {"nodes": made.nodes, "labels": made.labels}
    where = "here" if run.in_process else f"by Spark on {run.master}"
    return f"{made.nodes:,} nodes of {made.records:,} records labelled {where}, into {run.index}"


def _messages(run: Run) -> str:
    """Make the stream: notices that cite records of the corpus, some of them unknown."""
    from fmware.datasets.messages import citations

    made = citations(run.messages, seed=run.seed, corpus_seed=run.seed, records=run.records)
    with run.messages_file.open("wb") as file:
        for message in made:
            file.write(message + b"\n")
    size = run.messages_file.stat().st_size
    run.figures |= {"messages": run.messages, "messages_bytes": size}
    return f"{run.messages:,} messages, {size / 1e6:.1f} MB, in {run.messages_file}"


def _statements(run: Run) -> str:
    """Subscribe the demo's own statements, and a crowd of made-up ones that only filter."""
    from fmware.datasets.queries import queries
    from fmware.middleware import Middleware
    from fmware.statements import Statement

    run.statements_file.write_text("\n".join(STATEMENTS) + "\n", encoding="utf-8")
    run.middleware = middleware = Middleware(run.index)
    for line, text in enumerate(STATEMENTS, 1):
        selects = Statement.parse(text).selects
        returns = ("message", "local", "fragment") if selects else ("message",)
        middleware.subscribe(text, name=str(line), returns=returns)
    made = queries("notices", run.crowd, seed=run.seed, predicates=1, distinct=False)
    for number, text in enumerate(made):
        middleware.subscribe(text, name=f"crowd {number}", returns="name")
    total = len(STATEMENTS) + run.crowd
    run.figures |= {"statements": total}
    return f"{total:,} subscribed, the first {len(STATEMENTS)} in {run.statements_file}"


def _match(run: Run) -> str:
    """Filter every message by all statements, and match what passes against the index."""
    middleware = run.middleware
    assert middleware is not None
    own = {str(line) for line in range(1, len(STATEMENTS) + 1)}
    found: Counter[str] = Counter()
    unmatched = errors = 0
    with run.messages_file.open("rb") as messages:
        for result in middleware.stream(messages):
            unmatched += result.unmatched
            errors += len(result.errors)
            for match in result.matches:
                found[match.statement] += 1
                if match.local is not None:
                    run.shown.setdefault(match.statement, match.local)
    if errors:
        raise RuntimeError(f"{errors} messages had errors")
    counters = middleware.counters()
    run.matched = [found[str(line)] for line in range(1, len(STATEMENTS) + 1)]
    inputs = sum(each.inputs for each in counters.values())
    run.figures |= {
        "matches": found.total(),
        "own_matches": sum(found[name] for name in own),
        "matched": run.matched,
        "unmatched_anchors": unmatched,
        "inputs": inputs,
        "pairs": sum(each.pairs for each in counters.values()),
    }
    return (
        f"{run.messages:,} messages: {found.total():,} matches, {sum(run.matched):,} of them of "
        f"the first {len(STATEMENTS)}; {inputs:,} anchors joined, {unmatched:,} unknown here"
    )


def _report(run: Run) -> str:
    """Tell how it went: what was chosen, what it cost, and what else it could have cost."""
    from fmware.report import ReportError

    middleware = run.middleware
    assert middleware is not None
    report = middleware.report()
    middleware.close()
    report.title = "FMware demo"
    run.report_file.parent.mkdir(exist_ok=True)
    try:
        report.write(run.report_file)
    except ReportError as error:
        return f"no page: {error}"
    run.figures |= {"report": str(run.report_file.relative_to(run.directory))}
    within, over = report.accuracy.within or 0.0, report.summary.regret_share or 0.0
    return f"{report.summary.joins:,} joins, {within:.0%} estimated within 2x, {over:.1%} regret"


STEPS: tuple[Callable[[Run], str], ...] = (
    _corpus,
    _index,
    _messages,
    _statements,
    _match,
    _report,
)


def _show(run: Run) -> None:
    """What each of the demo's own statements found, with a piece of the corpus."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("line", justify="right")
    grid.add_column("statement")
    grid.add_column("matches", justify="right")
    grid.add_column("found in the corpus, for example")
    for line, (text, matches) in enumerate(zip(STATEMENTS, run.matched, strict=True), 1):
        node = run.shown.get(str(line))
        found = "" if node is None else (node.fragment or b"").decode()
        if node is not None and node.tag.startswith(("@", "#")):
            found = f"{node.tag} {found}"
        grid.add_row(str(line), Text(text), f"{matches:,}", Text(found[:60]))
    console().print(grid)
