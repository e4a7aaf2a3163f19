"""The local corpus: build an index of it, add to it, replace and remove records.

`build_index` labels a corpus, with Spark or in this process, and publishes it as the first
generation of a new index. `add` labels a few documents more, in this process, with the options the
index was built with; `upsert` puts them in the place of records with the same key; `remove` and
`compact` take out what is no longer wanted. Each returns when the new generation is durable, and
readers of older ones go on undisturbed.

What matching costs on this machine is measured when a middleware first needs it, see
`fmware.cmatch.calibration`, or now with `calibrate=True`.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fmware.cmatch.units import FILE as UNITS
from fmware.errors import FMwareError
from fmware.index import Index, Writer
from fmware.labeling import CHARACTER_ENTITIES, Limits
from fmware.labeling.identity import parse_rules
from fmware.labeling.job import label_corpus, label_documents, label_here
from fmware.labeling.mapper import local
from fmware.labeling.ses import scheme as scheme_of
from fmware.labeling.tasks import REJECTS, rejects_table
from fmware.sources import documents_of
from fmware.upserts import replaced_by, rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fmware.cmatch.units import UnitCosts
    from fmware.index import Statistics
    from fmware.labeling.identity import IdentityRule
    from fmware.labeling.job import Corpus, Progress
    from fmware.labeling.mapper import Mapper
    from fmware.labeling.runs import Run, Tag
    from fmware.labeling.ses import Scheme
    from fmware.sources import Sources

__all__ = [
    "IndexSummary",
    "NotIndexed",
    "NothingIndexed",
    "add",
    "build_index",
    "compact",
    "describe",
    "remove",
    "upsert",
]

CORPUS_LIMITS = Limits()
HTML4 = "html4"
"""The character entities of HTML 4: `labeling.CHARACTER_ENTITIES`."""
NO_RANGES = np.empty((0, 2), np.int64)


class NothingIndexed(FMwareError):
    """The corpus has no record at all, so there is nothing to index."""


class NotIndexed(FMwareError):
    """Something that is to be removed is not in the index."""


@dataclass(slots=True)
class IndexSummary:
    """What has been done to an index, and how it stands now.

    `keys` has the keys that each identity rule gave, of what was read; `empty` counts rows of a
    DataFrame without XML; `warnings` are what a user will want to know; `replaced` are records that
    `upsert` took out. Names that begin with `total` are of the whole index; `total_keys` is None
    where records were removed and their keys were not counted.
    """

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
    replaced: int = 0
    empty: int = 0
    keys: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    segments: int = 0
    total_records: int = 0
    total_nodes: int = 0
    total_keys: int | None = None
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
    source: Sources,
    out: str | Path,
    *,
    spark: SparkSession | None = None,
    record: str | Sequence[str] = (),
    identity: str | Iterable[str | IdentityRule] = (),
    schemes: Iterable[str | Scheme] = ("path",),
    partitions: int | None = None,
    entities: Mapping[str, str] | str | None = HTML4,
    limits: Limits | None = None,
    column: str = "xml",
    name: str | None = None,
    progress: Progress | None = None,
    calibrate: bool = False,
) -> IndexSummary:
    """Label a corpus and index it at `out`; if that fails, nothing is left there.

    Args:
        source: a file, directory or pattern, or several; bytes; a binary file; a DataFrame.
        out: the directory of the index, where nothing may be yet.
        spark: a session whose workers all see `out`; without one, the work is done here.
        record: names of elements that are records of their own; else each document is one.
        identity: by what elements are known: "item=@sku", "person=name/last", "isbn=.".
        schemes: SES schemes: "path", "vist", "prix".
        partitions: tasks to cut the work into; by size unless said.
        entities: those that documents may use: "html4", names to characters, or None.
        limits: what a record may ask for.
        column, name: of a DataFrame, the columns of XML and of names.
        progress: called with the bytes done and the bytes in all.
        calibrate: measure now what matching costs here; else when it is first needed.

    Raises:
        IndexExists, NothingIndexed, SourceError, UnknownSource, RuleError, SchemeError.
    """
    began = time.perf_counter()
    records = (record,) if isinstance(record, str) else tuple(record)
    rules = parse_rules((identity,) if isinstance(identity, str) else identity)
    chosen = [scheme_of(each) for each in schemes]
    wanted = _entities(entities)
    limits = limits or CORPUS_LIMITS
    options = {"record": list(records), "limits": _plain(limits), "entities": _named(wanted)}
    documents = None if _is_frame(source) else documents_of(source, column, name)
    with _new(Path(out)):
        made = Writer.create(out, schemes=chosen, identity=[*map(str, rules)], options=options)
        with made as writer, _workplace(writer) as work:
            common: dict[str, Any] = {
                "work": work,
                "record": records,
                "identity": rules,
                "schemes": chosen,
                "entities": wanted,
                "limits": limits,
                "base": writer.next_label,
            }
            mapper: Mapper = local
            files = cast("Any", source)
            if documents is not None:
                corpus = label_documents(documents, **common)
            elif spark is None:
                corpus = label_here(files, partitions=partitions, progress=progress, **common)
            else:
                from fmware.labeling.spark import SparkMapper

                more: dict[str, Any] = {"column": column, "name": name, "progress": progress}
                corpus = label_corpus(spark, files, partitions=partitions, **more, **common)
                mapper = SparkMapper(spark, work)
            summary = _publish(writer, corpus, mapper)
    summary.warnings = _unused_rules(Path(out), rules, summary.keys)
    summary.seconds = time.perf_counter() - began
    if calibrate:
        summary.calibration_error = _calibrate(Path(out))
        summary.calibrated = summary.calibration_error is None
    return summary


@contextmanager
def _new(out: Path) -> Iterator[None]:
    """Take back what was made at `out` if the index is not published; it may be an empty folder."""
    there = out.exists()
    empty = out.is_dir() and not any(out.iterdir())
    try:
        yield
    except BaseException:
        if not there:
            shutil.rmtree(out, ignore_errors=True)
        elif empty:
            for each in out.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise


def _unused_rules(
    path: Path, rules: Iterable[IdentityRule], counts: Mapping[str, int]
) -> list[str]:
    """A warning for each identity rule that gave no key, with the names that may be meant."""
    unused = [rule for rule in rules if not counts.get(str(rule))]
    if not unused:
        return []
    with Index.open(path) as reader:
        tags = reader.tags
    return [_unused(rule, tags) for rule in unused]


def _unused(rule: IdentityRule, tags: Iterable[Tag]) -> str:
    elements = [tag.name for tag in tags if not tag.kind]
    attributes = [tag.name for tag in tags if tag.kind]
    meant = replace(
        rule,
        element=_meant(rule.element, elements),
        steps=tuple(_meant(step, elements) for step in rule.steps),
        attribute=_meant(rule.attribute, attributes) if rule.attribute else None,
    )
    said = f"identity rule {rule} gave no key, so no message finds a node by it"
    if meant != rule:
        return f"{said}; names of the corpus are in a namespace: write '{meant}'"
    if rule.element not in (*elements, "*"):
        return f"{said}; the corpus has no element {rule.element}"
    return f"{said}; no {rule.element} of the corpus has {str(rule).partition('=')[2]}"


def _meant(name: str, known: Sequence[str]) -> str:
    """A name, or the only one of the corpus that differs from it in its namespace alone."""
    if name in known or name == "*":
        return name
    bare = name.rpartition("}")[2]
    alike = [each for each in known if each.rpartition("}")[2] == bare]
    return alike[0] if len(alike) == 1 else name


_UNITS: dict[int, UnitCosts] = {}
"""Unit costs that this process has measured, by device: they are the machine's, not an index's."""


def _calibrate(folder: Path) -> str | None:
    """Keep unit costs beside a new index, or say why not: without them it is as good an index."""
    from fmware.cmatch.calibration import calibrated

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
    column: str = "xml",
    name: str | None = None,
    progress: Progress | None = None,
) -> IndexSummary:
    """Label documents here and add them to an index.

    Args:
        path: the index.
        source: a file, directory or pattern, or several; bytes; a binary file; a DataFrame.
        record: names of records, where they are others than the index was built with.
        column, name: of a DataFrame, the columns of XML and of names.
        progress: called with the bytes done and the bytes in all.

    Raises:
        NothingIndexed: there is no record in the source.
        UnknownSource, SourceError, StoreError: it cannot be read; the index cannot be written.
    """
    began = time.perf_counter()
    with Writer.open(path) as writer:
        documents = _in_memory(source, column, name)
        corpus = _labelled(writer, source, documents, record, progress=progress)
        summary = _publish(writer, corpus, local)
    summary.seconds = time.perf_counter() - began
    return summary


def upsert(
    path: str | Path,
    source: Sources,
    *,
    by: str | None = None,
    record: str | Sequence[str] | None = None,
    column: str = "xml",
    name: str | None = None,
) -> IndexSummary:
    """Add records, each in the place of the one with the same key, as one new generation.

    A record is known by the key of its root element; keys of nodes inside it do not count.

    Args:
        path: the index.
        source: as of `add`.
        by: the identity rule to go by, where several are for the roots of records.
        record, column, name: as of `add`.

    Raises:
        UpsertError: a record has no key, or two have the same; nothing is changed then.
        NothingIndexed, UnknownSource, SourceError, StoreError: as of `add`.
    """
    began = time.perf_counter()
    with Writer.open(path) as writer:
        documents = _in_memory(source, column, name)
        label = partial(_labelled, writer, source, documents, record)
        corpus = label()
        rule, alone = rule_for(corpus, parse_rules(writer.manifest.identity), by)
        # A run has the keys of all rules: where several are for a record, ask for those of one.
        keyed = corpus if alone else label(identity=[rule])
        with Index.open(path) as reader:
            ranges = replaced_by(reader, keyed, rule)
        summary = _publish(writer, corpus, local, without=ranges)
    summary.replaced = len(ranges)
    summary.seconds = time.perf_counter() - began
    return summary


def _labelled(
    writer: Writer,
    source: Sources,
    documents: Sequence[pa.RecordBatch] | None,
    record: str | Sequence[str] | None,
    *,
    identity: Sequence[IdentityRule] | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Documents, or else the files of a source, labelled here as the index was built."""
    options = writer.manifest.options
    common: dict[str, Any] = {
        "record": options["record"] if record is None else record,
        "identity": writer.manifest.identity if identity is None else identity,
        "schemes": [scheme_of(each) for each in writer.manifest.schemes],
        "entities": _entities(options["entities"]),
        "limits": Limits(**options["limits"]),
        "base": writer.next_label,
    }
    if documents is not None:
        return label_documents(documents, **common)
    return label_here(cast("Any", source), progress=progress, **common)


def _in_memory(source: Sources, column: str, name: str | None) -> list[pa.RecordBatch] | None:
    """The documents of a source, unless it names files; rows of Spark are fetched."""
    if _is_frame(source):
        # A few documents: what Spark would gain is less than what its tasks cost.
        frame = cast("DataFrame", source)
        source = frame.select(*[column, *([name] if name else [])]).toPandas()
    return documents_of(source, column, name)


def _is_frame(source: object) -> bool:
    """Whether it is a DataFrame of Spark, which is labelled where its rows are."""
    return hasattr(source, "mapInArrow")


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
            from fmware.labeling.spark import SparkMapper

            mapper = SparkMapper(spark, work)
        writer.compact(mapper=mapper, parts=parts)
    summary = describe(path)
    summary.seconds = time.perf_counter() - began
    return summary


def describe(path: str | Path, *, exact: bool = False) -> IndexSummary:
    """How an index stands, without removed records.

    Clusters and keys are those of the files, which still have removed records, unless it is to be
    `exact`: then all nodes of segments are looked at that records were removed from.
    """
    with Index.open(path) as reader:
        counted = reader.live_statistics() if exact else reader.statistics
        return _described(reader, counted, exact=exact)


def _described(reader: Index, counted: Statistics, *, exact: bool) -> IndexSummary:
    entries = reader.manifest.segments
    removed = sum(entry.tombstones.removed for entry in entries if entry.tombstones)
    sizes = [(file.name, file.stat().st_size) for file in reader.path.rglob("*") if file.is_file()]
    return IndexSummary(
        str(reader.path),
        reader.generation,
        segments=len(entries),
        total_records=sum(entry.records for entry in entries) - removed,
        total_nodes=reader.live_nodes(),
        total_keys=None
        if removed and not exact
        else sum(each.keys for each in counted.tags.values()),
        labels={name: each.labels for name, each in counted.schemes.items()},
        index_bytes=sum(size for _, size in sizes),
        record_store_bytes=sum(size for name, size in sizes if name.startswith("records-")),
    )


def _publish(
    writer: Writer,
    corpus: Corpus,
    mapper: Mapper,
    *,
    without: np.ndarray[Any, np.dtype[np.int64]] = NO_RANGES,
) -> IndexSummary:
    """Make what was labelled the next generation; rejects are there before it is."""
    if not corpus.records and not corpus.rejected:
        raise NothingIndexed("there is no record in the corpus; is --record the right tag?")
    rejects = _keep_rejects(writer, corpus)
    runs: list[str | Path | Run] = [*corpus.runs, *corpus.held]
    writer.append(runs, high=corpus.high, mapper=mapper, without=without)
    summary = describe(writer.path)
    summary.keys = dict(corpus.keys)
    summary.empty = corpus.empty
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
    return HTML4 if entities is CHARACTER_ENTITIES else None if entities is None else {**entities}


def _entities(named: Mapping[str, str] | str | None) -> Mapping[str, str] | None:
    if isinstance(named, str) and named != HTML4:
        raise ValueError(f"entities are {HTML4!r}, a mapping or None, not {named!r}")
    return CHARACTER_ENTITIES if isinstance(named, str) else named
