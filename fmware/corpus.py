"""The local corpus: build an index of it, add to it, remove from it.

`build_index` labels a corpus, with Spark or in this process, and publishes it as the first
generation of a new index. `add` labels a few documents more, in this process, with the options the
index was built with; `remove` and `compact` take out what is no longer wanted. Each returns when
the new generation is durable, and readers of older ones go on undisturbed.

When an index is built, what matching costs on this machine is measured once and kept beside it, for
the cost model.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from cmatch.calibration import calibrated
from cmatch.units import FILE as UNITS
from fmware.errors import FMwareError
from index import Index, Writer
from labeling import CHARACTER_ENTITIES, Limits
from labeling.identity import parse_rules
from labeling.job import label_corpus, label_here
from labeling.mapper import local
from labeling.ses import scheme as scheme_of
from labeling.tasks import REJECTS, rejects_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cmatch.units import UnitCosts
    from labeling.identity import IdentityRule
    from labeling.job import Corpus, Progress
    from labeling.mapper import Mapper
    from labeling.ses import Scheme

    Sources = str | Path | Iterable[str | Path]

__all__ = [
    "IndexSummary",
    "NotIndexed",
    "NothingIndexed",
    "add",
    "build_index",
    "compact",
    "describe",
    "remove",
]

CORPUS_LIMITS = Limits()


class NothingIndexed(FMwareError):
    """The corpus has no record at all, so there is nothing to index."""


class NotIndexed(FMwareError):
    """Something that is to be removed is not in the index."""


@dataclass(slots=True)
class IndexSummary:
    """What has been done to an index, and how it stands now."""

    path: str
    generation: int
    files: int = 0
    source_bytes: int = 0
    records: int = 0
    nodes: int = 0
    rejected: int = 0
    rejects: list[str] = field(default_factory=list)
    skipped: int = 0
    recut: list[str] = field(default_factory=list)
    removed: int = 0
    segments: int = 0
    total_records: int = 0
    total_nodes: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    index_bytes: int = 0
    record_store_bytes: int = 0
    tasks: int = 0
    seconds: float = 0.0
    label_seconds: float = 0.0
    label_cpu_seconds: float = 0.0
    calibrated: bool = False
    calibration_error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)


def build_index(
    source: Sources | DataFrame,
    out: str | Path,
    *,
    spark: SparkSession | None = None,
    record: str | Sequence[str] = (),
    identity: Iterable[str | IdentityRule] = (),
    schemes: Iterable[str | Scheme] = ("path",),
    partitions: int | None = None,
    entities: Mapping[str, str] | None = CHARACTER_ENTITIES,
    limits: Limits = CORPUS_LIMITS,
    column: str = "xml",
    name: str | None = None,
    progress: Progress | None = None,
    calibrate: bool = True,
) -> IndexSummary:
    """Label a corpus and index it at `out`, where nothing may be yet.

    With a Spark session the work is spread over its workers, which must all see `out`; without
    one it is done here. See `labeling.label_corpus` for the other options. `calibrate` measures
    what matching costs here, which takes a second; without, the cost model assumes a usual machine.
    """
    began = time.perf_counter()
    records = (record,) if isinstance(record, str) else tuple(record)
    rules = parse_rules(identity)
    chosen = [scheme_of(each) for each in schemes]
    options = {"record": list(records), "limits": _plain(limits), "entities": _named(entities)}
    made = Writer.create(out, schemes=chosen, identity=[*map(str, rules)], options=options)
    with made as writer, _workplace(writer) as work:
        common: dict[str, Any] = {
            "work": work,
            "record": records,
            "identity": rules,
            "schemes": chosen,
            "partitions": partitions,
            "entities": entities,
            "limits": limits,
            "base": writer.next_label,
            "progress": progress,
        }
        mapper: Mapper = local
        if spark is None:
            corpus = label_here(source, **common)  # type: ignore[arg-type]
        else:
            from labeling.spark import SparkMapper

            corpus = label_corpus(spark, source, column=column, name=name, **common)
            mapper = SparkMapper(spark, work)
        summary = _publish(writer, corpus, mapper)
    summary.seconds = time.perf_counter() - began
    if calibrate:
        summary.calibration_error = _calibrate(Path(out))
        summary.calibrated = summary.calibration_error is None
    return summary


_UNITS: dict[int, UnitCosts] = {}
"""Unit costs that this process has measured, by device: they are the machine's, not an index's."""


def _calibrate(folder: Path) -> str | None:
    """Keep unit costs beside a new index, or say why not: without them it is as good an index."""
    try:
        device = folder.stat().st_dev
        if device in _UNITS:
            (folder / UNITS).write_text(json.dumps(_UNITS[device].to_json()), encoding="utf-8")
        else:
            _UNITS[device] = calibrated(folder)
    except Exception as error:  # Whatever it is, the index has been published.
        return str(error) or type(error).__name__
    return None


def add(
    path: str | Path,
    source: Sources,
    *,
    record: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> IndexSummary:
    """Label documents here and add them to an index, as it was built unless `record` says else."""
    began = time.perf_counter()
    with Writer.open(path) as writer:
        options = writer.manifest.options
        corpus = label_here(
            source,
            record=options["record"] if record is None else record,
            identity=writer.manifest.identity,
            schemes=[scheme_of(each) for each in writer.manifest.schemes],
            entities=_entities(options["entities"]),
            limits=Limits(**options["limits"]),
            base=writer.next_label,
            progress=progress,
        )
        summary = _publish(writer, corpus, local)
    summary.seconds = time.perf_counter() - began
    return summary


def remove(
    path: str | Path,
    *,
    keys: Iterable[tuple[str, str]] = (),
    files: Iterable[str] = (),
    labels: Iterable[int] = (),
) -> IndexSummary:
    """Take records out: those of nodes with these (element, key), of these files, or labels.

    A record goes as a whole: a key of an inner node removes the record it stands in. What is not
    there is an error, and then nothing is removed.
    """
    began = time.perf_counter()
    with Writer.open(path) as writer:
        with Index.open(path) as reader:
            ranges = _ranges(reader, keys, files, labels)
        writer.remove(ranges)
    summary = describe(path)
    summary.removed = len(ranges)
    summary.seconds = time.perf_counter() - began
    return summary


def compact(
    path: str | Path, *, spark: SparkSession | None = None, parts: int | None = None
) -> IndexSummary:
    """Merge all segments into one, without what was removed."""
    began = time.perf_counter()
    with Writer.open(path) as writer, _workplace(writer) as work:
        mapper: Mapper = local
        if spark is not None:
            from labeling.spark import SparkMapper

            mapper = SparkMapper(spark, work)
        writer.compact(mapper=mapper, parts=parts)
    summary = describe(path)
    summary.seconds = time.perf_counter() - began
    return summary


def describe(path: str | Path) -> IndexSummary:
    """How an index stands."""
    with Index.open(path) as reader:
        return _described(reader)


def _described(reader: Index) -> IndexSummary:
    counted = reader.statistics
    entries = reader.manifest.segments
    removed = sum(entry.tombstones.removed for entry in entries if entry.tombstones)
    sizes = [(file.name, file.stat().st_size) for file in reader.path.rglob("*") if file.is_file()]
    return IndexSummary(
        str(reader.path),
        reader.generation,
        segments=len(entries),
        total_records=sum(entry.records for entry in entries) - removed,
        total_nodes=counted.nodes,
        labels={name: each.labels for name, each in counted.schemes.items()},
        index_bytes=sum(size for _, size in sizes),
        record_store_bytes=sum(size for name, size in sizes if name.startswith("records-")),
    )


def _publish(writer: Writer, corpus: Corpus, mapper: Mapper) -> IndexSummary:
    """Make what was labelled the next generation; rejects are there before it is."""
    rejects = _keep_rejects(writer, corpus)
    if not corpus.records and not corpus.rejected:
        raise NothingIndexed("there is no record in the corpus; is --record the right tag?")
    writer.append([*corpus.runs, *corpus.held], high=corpus.high, mapper=mapper)
    summary = describe(writer.path)
    summary.files = corpus.files
    summary.source_bytes = corpus.source_bytes
    summary.records = corpus.records
    summary.nodes = corpus.nodes
    summary.rejected = corpus.rejected
    summary.rejects = rejects
    summary.skipped = len(corpus.skipped)
    summary.recut = corpus.recut
    summary.tasks = corpus.tasks
    summary.label_seconds = corpus.seconds
    summary.label_cpu_seconds = corpus.cpu_seconds
    return summary


def _keep_rejects(writer: Writer, corpus: Corpus) -> list[str]:
    """What could not be read, as one Parquet file named after the generation to come."""
    if not corpus.rejected:
        return []
    place = writer.path / "rejects"
    place.mkdir(exist_ok=True)
    file = place / f"{writer.manifest.generation + 1:08d}.parquet"
    with pq.ParquetWriter(file, REJECTS) as out:
        for each in corpus.rejects_files:
            out.write_table(pq.read_table(each, schema=REJECTS))
        if corpus.rejects:
            out.write_table(rejects_table(corpus.rejects))
    return [str(file)]


@contextmanager
def _workplace(writer: Writer) -> Iterator[Path]:
    """Where tasks leave their runs: on the disk of the index, and gone afterwards."""
    place = writer.path / "building" / "labelling"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _ranges(
    reader: Index,
    keys: Iterable[tuple[str, str]],
    files: Iterable[str],
    labels: Iterable[int],
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(start, end) of the records that are meant, each once."""
    starts = list(labels)
    for element, key in keys:
        found = reader.identify(element, [key.encode()]).right.start.tolist()
        if not found:
            raise NotIndexed(f"no {element} has the key {key!r}; nothing was removed")
        starts += found
    records = [reader.record(start) for start in starts]
    ranges = [np.array([(r.start, r.end) for r in records], np.int64).reshape(-1, 2)]
    ranges += [_of_file(reader, name) for name in files]
    return np.unique(np.concatenate(ranges), axis=0)


def _of_file(reader: Index, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = [
        segment.records_between(source.base, source.base + source.size)
        for segment in reader.segments
        for source in segment.sources
        if source.name == name
    ]
    if not found:
        raise NotIndexed(f"no file {name} was indexed, by that name; nothing was removed")
    return np.concatenate(found)


def _plain(limits: Limits) -> dict[str, int]:
    return asdict(limits)


def _named(entities: Mapping[str, str] | None) -> str | dict[str, str] | None:
    # The usual ones would take most of the manifest.
    return "html4" if entities is CHARACTER_ENTITIES else None if entities is None else {**entities}


def _entities(named: str | dict[str, str] | None) -> Mapping[str, str] | None:
    return CHARACTER_ENTITIES if isinstance(named, str) else named
