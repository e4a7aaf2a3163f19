"""The work of one task: stretches of the corpus in, runs and rejects out.

It knows nothing of Spark. `label_task` is a function of its task alone, so it runs the same in a
worker on another machine and in the caller's own process.
"""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fmware.labeling._kernel import Scanner, Vocabulary
from fmware.labeling.entities import CHARACTER_ENTITIES
from fmware.labeling.errors import (
    EncodingError,
    LimitExceeded,
    MalformedXML,
    ReadError,
    SourceError,
)
from fmware.labeling.labeller import Labeller
from fmware.labeling.limits import DEFAULT_LIMITS, Limits
from fmware.labeling.memory import held_memory
from fmware.labeling.reader import Reader
from fmware.labeling.records import BEGINNING, Batch, Piece, RangeReport, cut_range, cut_stream
from fmware.labeling.runs import Context, Source, store
from fmware.labeling.sources import GAP, UNKNOWN, Document, Reading
from fmware.labeling.stream import WIDE, move

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fmware.labeling.identity import IdentityRule
    from fmware.labeling.records import Start
    from fmware.labeling.runs import MemoryRun
    from fmware.labeling.ses import Scheme
    from fmware.labeling.sources import Stretch

__all__ = [
    "REJECTS",
    "Rejected",
    "Task",
    "TaskOptions",
    "TaskReport",
    "label_rows",
    "label_task",
    "rejects_table",
]

RUN_BYTES = 64 << 20
"""Source bytes after which a run is finished: what a task holds is a few times that."""
KEPT_BYTES = 1 << 20
"""Of a reject, no more bytes than these are kept."""
DONE = "done"
"""Below the place to work: a file for each finished run, named after its source bytes."""
_ONE = np.zeros(1, np.int64)

REJECTS = pa.schema(
    [
        ("file", pa.utf8()),
        ("offset", pa.int64()),
        ("line", pa.int64()),
        ("column", pa.int64()),
        ("kind", pa.utf8()),
        ("reason", pa.utf8()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How the corpus is labelled; the same for all tasks of a job.

    Without a place to `work`, runs and rejects stay in memory.
    """

    records: tuple[str, ...]
    schemes: tuple[Scheme, ...]
    rules: tuple[IdentityRule, ...] = ()
    entities: Mapping[str, str] | None = field(default_factory=lambda: CHARACTER_ENTITIES)
    limits: Limits = DEFAULT_LIMITS
    work: str | None = None
    run_bytes: int = RUN_BYTES


@dataclass(frozen=True, slots=True)
class Task:
    """Stretches to label; `start` is where the only one of them truly begins, if that is known."""

    options: TaskOptions
    stretches: tuple[Stretch, ...]
    start: Start | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document or record that could not be read."""

    file: str
    offset: int
    line: int
    column: int
    kind: str
    reason: str
    data: bytes


def rejects_table(rejects: Iterable[Rejected]) -> pa.Table:
    """Rejects as a table."""
    rows = [{name: getattr(reject, name) for name in REJECTS.names} for reject in rejects]
    return pa.Table.from_pylist(rows, REJECTS)


@dataclass(slots=True)
class TaskReport:
    """What a task has done: its runs, what it refused, and how its cuts fell.

    `keys` has the keys that each identity rule gave; `empty` counts rows without a document.
    """

    runs: list[str] = field(default_factory=list)
    held: list[MemoryRun] = field(default_factory=list)
    records: int = 0
    nodes: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    empty: int = 0
    bytes: int = 0
    rejected: int = 0
    rejects: list[Rejected] = field(default_factory=list)
    rejects_file: str | None = None
    skipped: list[str] = field(default_factory=list)
    cuts: list[RangeReport] = field(default_factory=list)
    cpu_seconds: float = 0.0


def label_task(task: Task) -> TaskReport:
    """Label the stretches of a task."""
    began = time.process_time()
    with held_memory():
        worker = _Worker(task)
        for stretch in task.stretches:
            worker.label(stretch)
        worker.flush()
    worker.keep_rejects()
    worker.report.cpu_seconds = time.process_time() - began
    return worker.report


def label_rows(
    options: TaskOptions, batches: Iterable[pa.RecordBatch], base: int, name: str
) -> TaskReport:
    """Label the documents of Arrow batches: a column of XML, and perhaps one of their names."""
    began = time.process_time()
    worker = _Worker(Task(options, ()))
    number = 0
    source = Source(name, base, UNKNOWN)
    for batch in batches:
        names = batch.column(1).to_pylist() if batch.num_columns > 1 else [None] * batch.num_rows
        for text, called in zip(batch.column(0), names, strict=True):
            number += 1
            data = _bytes_of(text)
            worker.report.empty += not data
            if data:
                label = str(called) if called is not None else f"{name}, row {number}"
                worker.label_document(Document(label, base, Reading(io.BytesIO(data))), source)
                base += len(data) + GAP
    worker.flush()
    worker.keep_rejects()
    worker.report.cpu_seconds = time.process_time() - began
    return worker.report


def _bytes_of(text: pa.Scalar) -> bytes:
    if not text.is_valid:
        return b""
    data: bytes = text.as_buffer().to_pybytes()
    return data


class _Worker:
    def __init__(self, task: Task) -> None:
        options = task.options
        self.task = task
        self.options = options
        self.report = TaskReport()
        vocabulary = Vocabulary()
        self.reader = Reader(
            vocabulary,
            limits=options.limits,
            entities=options.entities,
        )
        self.labeller = Labeller(options.schemes, vocabulary, options.rules)

    def label(self, stretch: Stretch) -> None:
        """Read all of a stretch; a file that is damaged is rejected from there on."""
        file = stretch.file
        if self.options.records and file.plain:
            self._range(stretch)
            return
        name = file.path
        try:
            for document in file.documents(self.report.skipped):
                name = document.name
                self.label_document(document, file.source)
        except SourceError as error:
            self._reject(Rejected(name, 0, 1, 1, type(error).__name__, str(error), b""))

    def label_document(self, document: Document, source: Source) -> None:
        """Read a document, or several that follow each other, or the records of one."""
        if self.options.records:
            self._records(document, source)
        else:
            self._documents(document, source)

    def _range(self, stretch: Stretch) -> None:
        """The records that begin in a stretch of a plain file."""
        file, begin, end = stretch
        start = self.task.start
        cut = cut_range(
            file.chunks,
            begin,
            end,
            self.options.records,
            start.context if start else None,
            first=start.offset if start else None,
            limit=self.options.limits.bytes,
        )
        try:
            self._take(cut, file.path, file.base, file.source)
            self.report.cuts.append(cut.report)
        except EncodingError as error:
            # A file in which nothing can be looked for: its beginning says so, for all of it.
            if begin == 0:
                self._refuse(error, file.path, 0, b"")
            self.report.cuts.append(RangeReport(begin, end, None if begin else BEGINNING, None))

    def _records(self, document: Document, source: Source) -> None:
        cut = cut_stream(document.file, self.options.records, limit=self.options.limits.bytes)
        try:
            self._take(cut, document.name, document.base, source)
        except EncodingError as error:
            self._refuse(error, document.name, 0, b"")

    def _take(self, cut: Iterable[Batch | Piece], name: str, base: int, source: Source) -> None:
        for found in cut:
            if isinstance(found, Piece):
                self._piece(found, name, base, source)
            else:
                self._batch(found, name, base, source)
            self._flush_if_full()

    def _batch(self, batch: Batch, name: str, base: int, source: Source) -> None:
        context = batch.context
        read = self.reader.read_records(
            batch.data,
            batch.sizes,
            batch.offsets + base,
            batch.levels,
            declaration=context.declaration,
            doctype=context.doctype,
            namespaces=context.namespaces,
        )
        if read is not None:
            table, firsts = read
            self.labeller.add(table, firsts, source, batch.data, batch.sizes, context)
            return
        # Together they could not be read: one by one, to keep the good and name the bad.
        for piece in batch.pieces():
            self._piece(piece, name, base, source)

    def _piece(self, piece: Piece, name: str, base: int, source: Source) -> None:
        context = piece.context
        try:
            if piece.over:
                raise LimitExceeded("bytes", self.options.limits.bytes)
            table = self.reader.read_record(
                piece.data,
                declaration=context.declaration,
                doctype=context.doctype,
                namespaces=context.namespaces,
                base=base + piece.offset,
                level=piece.level,
            )
        except ReadError as error:
            self._refuse(error, name, piece.offset, piece.data)
            return
        size = np.array([len(piece.data)], np.int64)
        self.labeller.add(table, _ONE, source, piece.data, size, context)

    def _documents(self, document: Document, source: Source) -> None:
        found = False
        for data, offset, line, column, over in _cut_documents(document, self.options.limits):
            found = True
            try:
                if over:
                    raise LimitExceeded("bytes", self.options.limits.bytes)
                table = self.reader.read(data, base=document.base + offset)
            except ReadError as error:
                move(error, line, column)
                self._refuse(error, document.name, offset, data)
                continue
            size = np.array([len(data)], np.int64)
            self.labeller.add(table, _ONE, source, data, size, Context(document=True))
            self._flush_if_full()
        if not found:
            self._refuse(MalformedXML("no document in it"), document.name, 0, b"")

    def _refuse(self, error: ReadError, name: str, offset: int, data: bytes) -> None:
        kind = type(error).__name__
        self._reject(
            Rejected(name, offset, error.line, error.column, kind, error.reason, data[:KEPT_BYTES])
        )

    def _reject(self, rejected: Rejected) -> None:
        self.report.rejected += 1
        self.report.rejects.append(rejected)

    def _flush_if_full(self) -> None:
        if self.labeller.bytes >= self.options.run_bytes:
            self.flush()

    def flush(self) -> None:
        """Finish the run under way."""
        labeller, report = self.labeller, self.report
        if not labeller.records:
            return
        size = labeller.bytes
        report.records += labeller.records
        report.bytes += size
        run = labeller.finish()
        report.keys = labeller.keys
        report.nodes += sum(run.counts)
        if self.options.work is None:
            report.held.append(run)
            return
        # A task may be tried twice, at once even: each try has places of its own.
        work, name = Path(self.options.work), uuid4().hex
        store(run, work / "runs" / name)
        report.runs.append(str(work / "runs" / name))
        (work / DONE).mkdir(exist_ok=True)
        (work / DONE / f"{size}-{name}").touch()

    def keep_rejects(self) -> None:
        """Write the rejects where the runs are; the report then holds only how many there were."""
        if self.options.work is None or not self.report.rejects:
            return
        path = Path(self.options.work) / "rejects" / f"{uuid4().hex}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rejects_table(self.report.rejects), path)
        self.report.rejects_file = str(path)
        self.report.rejects.clear()


def _cut_documents(
    document: Document, limits: Limits
) -> Iterator[tuple[bytes, int, int, int, bool]]:
    """The documents of a file: (bytes, offset, line, column, over the limit)."""
    chunks = iter(document.file)
    first = next(chunks, b"")
    if first.startswith(WIDE):
        # Its tags cannot be looked for as bytes: it is one document.
        whole = bytearray(first)
        for chunk in chunks:
            whole += chunk
            if len(whole) > limits.bytes:
                break
        yield bytes(whole), 0, 1, 1, len(whole) > limits.bytes
        return
    scanner = Scanner((), limits.bytes)
    scanner.feed(first)
    ended = False
    while True:
        piece = scanner.cut()
        if piece is not None:
            data, offset, line, column, _, over = piece
            yield data, offset, line, column, over
        elif ended:
            return
        elif (more := next(chunks, None)) is not None:
            scanner.feed(more)
        else:
            scanner.finish()
            ended = True
