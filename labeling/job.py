"""Labelling a corpus: plan the work, spread it, and see that every cut was a true one.

`label_corpus` spreads it over Spark, `label_here` does it in this process. Both plan tasks over
stretches of files and call `label_task` with each. The stretches of one large file are labelled
apart, each taking for granted that it begins between records; then each stretch's end is held
against the next one's beginning. The first begins where the file does, so if all agree, all are
true. From the first that does not agree, the file is scanned once from end to end, without being
parsed, and its stretches are done again from their true beginnings.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmware.labeling.arrow import binary_column, column
from fmware.labeling.entities import CHARACTER_ENTITIES
from fmware.labeling.errors import SourceError
from fmware.labeling.identity import parse_rules
from fmware.labeling.limits import DEFAULT_LIMITS, Limits
from fmware.labeling.mapper import local
from fmware.labeling.records import agree, exact_starts
from fmware.labeling.ses import scheme as scheme_of
from fmware.labeling.sources import GAP, UNKNOWN, File, files_of, find, stretches
from fmware.labeling.tasks import DONE, Task, TaskOptions, TaskReport, label_rows, label_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fmware.labeling.identity import IdentityRule
    from fmware.labeling.mapper import Mapper
    from fmware.labeling.records import Start
    from fmware.labeling.runs import MemoryRun
    from fmware.labeling.ses import Scheme
    from fmware.labeling.tasks import Rejected

    Progress = Callable[[int, int], None]
    Sources = str | Path | Iterable[str | Path]

__all__ = ["Corpus", "label_corpus", "label_documents", "label_here"]

STRETCH = 32 << 20
"""Bytes of a stretch, unless the number of partitions is given."""
POLL_SECONDS = 0.2


@dataclass(slots=True)
class Corpus:
    """What labelling has made of a corpus: runs in the order of their labels, and what it saw.

    `runs` are places of stored runs, `held` runs in memory; `high` lies behind every label that
    was given out; `recut` names the files in which a stretch had begun at a false boundary; `keys`
    has the keys that each identity rule gave; `empty` counts rows of a DataFrame without XML.
    """

    runs: list[str] = field(default_factory=list)
    held: list[MemoryRun] = field(default_factory=list)
    high: int = 0
    files: int = 0
    source_bytes: int = 0
    records: int = 0
    nodes: int = 0
    keys: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    bytes: int = 0
    rejected: int = 0
    rejects: list[Rejected] = field(default_factory=list)
    rejects_files: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    recut: list[str] = field(default_factory=list)
    tasks: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0

    def take(self, report: TaskReport) -> None:
        """Count a task's report in."""
        self.tasks += 1
        self.runs += report.runs
        self.held += report.held
        self.records += report.records
        self.nodes += report.nodes
        self.keys.update(report.keys)
        self.empty += report.empty
        self.bytes += report.bytes
        self.rejected += report.rejected
        self.rejects += report.rejects
        if report.rejects_file:
            self.rejects_files.append(report.rejects_file)
        self.skipped += report.skipped
        self.cpu_seconds += report.cpu_seconds


def label_corpus(
    spark: SparkSession,
    source: Sources | DataFrame,
    *,
    work: str | Path,
    record: str | Sequence[str] = (),
    identity: Iterable[str | IdentityRule] = (),
    schemes: Iterable[str | Scheme] = ("path",),
    partitions: int | None = None,
    entities: Mapping[str, str] | None = CHARACTER_ENTITIES,
    limits: Limits = DEFAULT_LIMITS,
    base: int = 0,
    column: str = "xml",
    name: str | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Label a corpus with Spark; the runs are stored below `work`, a directory all workers see.

    `source` is a file, directory or pattern, or several of them, or a DataFrame with a `column` of
    XML (and one that has the `name` of each document, for rejects). Large files are cut at
    elements called `record`. AD labels count from `base`. `progress` is told from time to time how
    many bytes of how many are labelled.
    """
    from fmware.labeling.spark import SparkMapper

    began = time.perf_counter()
    place = Path(work)
    place.mkdir(parents=True, exist_ok=True)
    options = _options(record, identity, schemes, entities, limits, str(place))
    if _is_frame(source):
        corpus = _label_frame(source, options, base, column, name)
    else:
        mapper = SparkMapper(spark, place)
        names = cast("Sources", source)
        corpus = _label_files(names, options, base, mapper, partitions, progress)
    corpus.seconds = time.perf_counter() - began
    return corpus


def _is_frame(source: object) -> TypeGuard[DataFrame]:
    # There are two classes of that name, Spark's own and that of Spark Connect.
    return hasattr(source, "mapInArrow")


def label_here(
    source: Sources,
    *,
    work: str | Path | None = None,
    record: str | Sequence[str] = (),
    identity: Iterable[str | IdentityRule] = (),
    schemes: Iterable[str | Scheme] = ("path",),
    partitions: int | None = None,
    entities: Mapping[str, str] | None = CHARACTER_ENTITIES,
    limits: Limits = DEFAULT_LIMITS,
    base: int = 0,
    progress: Progress | None = None,
) -> Corpus:
    """Label a corpus in this process; without a place to `work`, the runs stay in memory."""
    began = time.perf_counter()
    options = _options(record, identity, schemes, entities, limits, str(work) if work else None)
    corpus = _label_files(source, options, base, local, partitions, progress)
    corpus.seconds = time.perf_counter() - began
    return corpus


def label_documents(
    batches: Iterable[pa.RecordBatch],
    *,
    work: str | Path | None = None,
    record: str | Sequence[str] = (),
    identity: Iterable[str | IdentityRule] = (),
    schemes: Iterable[str | Scheme] = ("path",),
    entities: Mapping[str, str] | None = CHARACTER_ENTITIES,
    limits: Limits = DEFAULT_LIMITS,
    base: int = 0,
    name: str = "documents",
) -> Corpus:
    """Label documents in this process: a column of XML in bytes, and perhaps one of their names.

    `name` is the source that those without a name of their own are said to be of.
    """
    began = time.perf_counter()
    options = _options(record, identity, schemes, entities, limits, str(work) if work else None)
    given = list(batches)
    sizes = [pc.sum(pc.binary_length(batch.column(0))).as_py() or 0 for batch in given]
    report = label_rows(options, given, base, name)
    rows = sum(batch.num_rows for batch in given)
    corpus = Corpus(high=base + sum(sizes) + rows * GAP, source_bytes=sum(sizes))
    corpus.take(report)
    corpus.seconds = time.perf_counter() - began
    return corpus


def _options(
    record: str | Sequence[str],
    identity: Iterable[str | IdentityRule],
    schemes: Iterable[str | Scheme],
    entities: Mapping[str, str] | None,
    limits: Limits,
    work: str | None,
) -> TaskOptions:
    records = (record,) if isinstance(record, str) else tuple(record)
    chosen = tuple({each.name: each for each in map(scheme_of, schemes)}.values())
    return TaskOptions(records, chosen, parse_rules(identity), entities, limits, work)


def _label_files(
    source: Sources,
    options: TaskOptions,
    base: int,
    mapper: Mapper,
    partitions: int | None,
    progress: Progress | None,
) -> Corpus:
    names = [source] if isinstance(source, str | Path) else list(source)
    files = files_of(find(names), base)
    total = sum(file.size for file in files)
    size = STRETCH if partitions is None else max(1, -(-total // max(1, partitions)))
    tasks = [Task(options, tuple(s)) for s in stretches(files, size, cut=bool(options.records))]
    with _watched(options.work, total, progress):
        reports = mapper(label_task, tasks)
        recut = _settle(mapper, tasks, reports)
    corpus = Corpus(recut=recut, files=len(files), source_bytes=total)
    for report in reports:
        corpus.take(report)
    corpus.high = max((file.base + file.span for file in files), default=base)
    return corpus


def _settle(mapper: Mapper, tasks: list[Task], reports: list[TaskReport]) -> list[str]:
    """Do again what began at a false boundary; the names of the files that had one."""
    wrong: dict[File, list[int]] = {}
    for file, numbers in _cut_files(tasks).items():
        bad = agree([reports[number].cuts[0] for number in numbers])
        if bad is not None:
            wrong[file] = numbers[bad:]
    begins = {file: [tasks[n].stretches[0].begin for n in wrong[file]] for file in wrong}
    scans = [(file, begins[file], tasks[0].options) for file in wrong]
    for file, starts in zip(wrong, mapper(_true_starts, scans), strict=True):
        for number, start in zip(wrong[file], starts, strict=True):
            tasks[number] = replace(tasks[number], start=start)
    again = [number for numbers in wrong.values() for number in numbers]
    for number, report in zip(again, mapper(label_task, [tasks[n] for n in again]), strict=True):
        reports[number] = report
    return [file.path for file in wrong]


def _cut_files(tasks: list[Task]) -> dict[File, list[int]]:
    """The files that are cut into several stretches, with the numbers of their tasks in order."""
    found: dict[File, list[int]] = {}
    for number, task in enumerate(tasks):
        stretch = task.stretches[0]
        if stretch.begin > 0 or stretch.end < stretch.file.size:
            found.setdefault(stretch.file, []).append(number)
    return found


def _true_starts(item: tuple[File, list[int], TaskOptions]) -> list[Start]:
    file, begins, options = item
    return exact_starts(file.chunks, begins, options.records, limit=options.limits.bytes)


def _label_frame(
    frame: DataFrame, options: TaskOptions, base: int, column: str, name: str | None
) -> Corpus:
    names = [column, *([name] if name else [])]
    missing = [each for each in names if each not in frame.columns]
    if missing:
        raise SourceError(f"the DataFrame has no column {missing[0]!r}; it has {frame.columns}")
    labelled = frame.select(*names).mapInArrow(
        partial(_label_batches, options, base), "number long, answer binary"
    )
    corpus = Corpus(high=base)
    for row in sorted(labelled.collect(), key=lambda row: int(row["number"])):
        report, size = pickle.loads(row["answer"])
        corpus.take(report)
        corpus.source_bytes += size
        corpus.high = max(corpus.high, base + (row["number"] + 1) * UNKNOWN)
    return corpus


def _label_batches(
    options: TaskOptions, base: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a worker does with its partition of a DataFrame."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.partitionId() if context else 0
    report = label_rows(options, batches, base + number * UNKNOWN, f"partition {number}")
    answer = pickle.dumps((report, report.bytes))
    yield pa.RecordBatch.from_arrays(
        [column(np.array([number])), binary_column([answer], pa.binary())], ["number", "answer"]
    )


@contextmanager
def _watched(work: str | None, total: int, progress: Progress | None) -> Iterator[None]:
    """Tell `progress`, while tasks are under way elsewhere, how many bytes they have labelled."""
    if work is None or progress is None:
        yield
        if progress is not None:
            progress(total, total)
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(Path(work) / DONE, total, progress, ended))
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    progress(total, total)


def _watch(place: Path, total: int, progress: Progress, ended: threading.Event) -> None:
    while not ended.wait(POLL_SECONDS):
        if place.is_dir():
            done = sum(int(each.name.partition("-")[0]) for each in place.iterdir())
            progress(min(done, total), total)
