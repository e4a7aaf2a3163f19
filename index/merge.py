"""Runs to the files of a segment: pieces of work that a mapper may spread over processes.

1. `survey` tells what a run holds; the driver makes one list of tags of it.
2. `merge_scheme` brings the tries of all runs together. It leaves, as arrays in the building
   directory, the merged trie, its ranks grouped by tag, and for each run a table from its own ranks
   to rows in the tag's list of labels.
3. `build_part` writes a file: all lists of a set of tags, or the records of a stretch of runs.
4. `build_meta` writes tries, contexts, sources and statistics.

Every piece can be done again: it leaves the same behind.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fmware.index import format as form
from fmware.index.blocks import ColumnWriter, ListWriter, write_lines
from fmware.index.errors import BadRun
from fmware.index.files import FILES, Files
from fmware.index.part import PartFile, PartWriter
from fmware.index.postings import (
    MergedTrie,
    Piece,
    TagBuilt,
    TagLists,
    array_file,
    grouped,
    load_array,
)
from fmware.index.statistics import statistics
from fmware.index.stored import StoredSegment
from fmware.labeling.runs import Context, Run, Tag, open_run
from fmware.labeling.trie import TrieColumns, merge_tries, renumbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from fmware.labeling.runs import RecordBlock
    from fmware.labeling.ses import Direction

    Longs = npt.NDArray[np.int64]
    Ints = npt.NDArray[np.uint32]

__all__ = [
    "MetaItem",
    "NodesBuilt",
    "NodesItem",
    "Plan",
    "RecordsBuilt",
    "RecordsItem",
    "RunReference",
    "SchemeItem",
    "Survey",
    "build_meta",
    "build_part",
    "merge_scheme",
    "merge_vocabulary",
    "survey",
]

RunReference = Run | str | Path
"""A run, or where `fmware.labeling.runs.store` put it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a run holds: tags as it numbers them, and how many nodes each has."""

    tags: tuple[Tag, ...]
    counts: tuple[int, ...]
    low: int
    high: int
    schemes: dict[str, Direction]
    extra_is_tag: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Plan:
    """What all pieces of one segment share."""

    folder: Path
    runs: tuple[RunReference, ...]
    tags: tuple[Tag, ...]
    schemes: tuple[str, ...]
    extra_is_tag: dict[str, bool]
    files: Files = FILES


@dataclass(frozen=True, slots=True)
class SchemeItem:
    plan: Plan
    scheme: str


@dataclass(frozen=True, slots=True)
class NodesItem:
    """Build all lists of some tags, which ascend."""

    plan: Plan
    number: int
    tags: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecordsItem:
    """Build the list of records of the runs from `first` to before `last`."""

    plan: Plan
    number: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NodesBuilt:
    number: int
    file: PartFile
    tags: dict[int, TagBuilt]


@dataclass(frozen=True, slots=True)
class RecordsBuilt:
    number: int
    first: int
    last: int
    file: PartFile
    records: int
    contexts: dict[int, Context]


@dataclass(frozen=True, slots=True)
class MetaItem:
    plan: Plan
    nodes: tuple[NodesBuilt, ...]
    records: tuple[RecordsBuilt, ...]


def opened(run: RunReference) -> Run:
    return open_run(run) if isinstance(run, str | Path) else run


@contextmanager
def opened_runs(references: Sequence[RunReference]) -> Iterator[list[Run]]:
    """Runs while a piece of work is done: a worker lives long, and segments are deleted."""
    runs = [opened(each) for each in references]
    try:
        yield runs
    finally:
        for run in runs:
            if isinstance(run, StoredSegment):
                run.close()


def survey(reference: RunReference) -> Survey:
    """What a run holds."""
    with opened_runs([reference]) as (run,):
        if list(run.tags) != sorted(set(run.tags)):
            raise BadRun(f"the tags of the run at {run.low} are not sorted")
        return Survey(
            tuple(run.tags),
            tuple(run.counts),
            run.low,
            run.high,
            dict(run.schemes),
            dict(run.extra_is_tag),
        )


def merge_vocabulary(surveys: Sequence[Survey]) -> dict[Tag, int]:
    """The tags of all runs that have nodes, in order, and how many nodes each has."""
    counts: dict[Tag, int] = {}
    for each in surveys:
        for tag, count in zip(each.tags, each.counts, strict=True):
            if count:
                counts[tag] = counts.get(tag, 0) + count
    return dict(sorted(counts.items()))


# Tries


def merge_scheme(item: SchemeItem) -> int:
    """Merge the tries of a scheme and leave what the parts need; answers with its labels."""
    plan, name = item.plan, item.scheme
    number = {tag: place for place, tag in enumerate(plan.tags)}
    tries, olds = [], []
    with opened_runs(plan.runs) as runs:
        for run in runs:
            trie, old = _pruned(run, name)
            tags = np.array([number.get(tag, 0) for tag in run.tags], np.uint32)
            tries.append(renumbered(trie, tags, plan.extra_is_tag[name]))
            olds.append(old)
    merged, ranks = merge_tries(tries)
    order, begin, rows = grouped(merged.tag, len(plan.tags))
    for place, (rank, old) in enumerate(zip(ranks, olds, strict=True)):
        table = rows[rank]
        if old is not None:
            table = _spread(table, old)
        plan.files.save(array_file(plan.folder, name, f"rows{place}"), table)
    for field in ("tag", "extra", "size"):
        plan.files.save(array_file(plan.folder, name, field), getattr(merged, field))
    plan.files.save(array_file(plan.folder, name, "order"), order)
    plan.files.save(array_file(plan.folder, name, "begin"), begin)
    return len(merged)


def _pruned(run: Run, scheme: str) -> tuple[TrieColumns, Longs | None]:
    """The run's trie without nodes that nothing refers to, and the old ranks, if any went."""
    trie = run.trie(scheme)
    if not (isinstance(run, StoredSegment) and run.prunes):
        return trie, None
    used = np.zeros(len(trie) + 1, np.int64)
    for tag in range(len(run.tags)):
        used[run.nodes(tag).ranks[scheme]] = 1
    # Used ranks before each rank; a subtree is a stretch of ranks, and goes if it has none.
    before = np.concatenate(([0], used.cumsum()))
    rank = np.arange(len(trie), dtype=np.int64)
    kept = before[rank + trie.size] > before[rank]
    place = np.concatenate(([0], kept.cumsum()))
    size = (place[rank + trie.size] - place[rank]).astype(np.uint32)
    columns = TrieColumns(trie.tag[kept], trie.extra[kept], size[kept])
    # The last one tells how long the table of all old ranks is.
    return columns, np.concatenate((np.flatnonzero(kept), [len(trie)]))


def _spread(table: Ints, old: Longs) -> Ints:
    whole = np.full(int(old[-1]), form.NONE, np.uint32)
    whole[old[:-1]] = table
    return whole


# Parts


def build_part(item: NodesItem | RecordsItem) -> NodesBuilt | RecordsBuilt:
    """Write one file of nodes or of records."""
    if isinstance(item, RecordsItem):
        return _build_records(item)
    return _build_nodes(item)


def _build_nodes(item: NodesItem) -> NodesBuilt:
    plan = item.plan
    built: dict[int, TagBuilt] = {}
    counts: list[list[Longs]] = [[] for _ in plan.schemes]
    tries = [MergedTrie(plan.folder, name) for name in plan.schemes]
    path = plan.folder / form.nodes_file(item.number)
    with opened_runs(plan.runs) as runs, PartWriter(path, plan.files) as part:
        pieces = _pieces(plan, runs, item.tags)
        for tag in item.tags:
            lists = TagLists(part, tag, pieces[tag], tries)
            built[tag] = lists.build()
            for some, own in zip(counts, lists.counts, strict=True):
                some.append(own)
        file = part.close()
    for name, some in zip(plan.schemes, counts, strict=True):
        whole = np.concatenate([np.empty(0, np.int64), *some])
        plan.files.save(array_file(plan.folder, name, f"counts{item.number}"), whole)
    return NodesBuilt(item.number, file, built)


def _pieces(plan: Plan, runs: Sequence[Run], tags: Sequence[int]) -> dict[int, list[Piece]]:
    """Where the nodes of each tag are."""
    found: dict[int, list[Piece]] = {tag: [] for tag in tags}
    wanted = {plan.tags[tag]: tag for tag in tags}
    for number, run in enumerate(runs):
        counts = run.counts
        for local, name in enumerate(run.tags):
            if name in wanted and counts[local]:
                pieces = found[wanted[name]]
                base = pieces[-1].base + pieces[-1].count if pieces else 0
                pieces.append(Piece(number, run, local, counts[local], base))
    return found


def _build_records(item: RecordsItem) -> RecordsBuilt:
    plan = item.plan
    numbers: dict[Context, int] = {}
    path = plan.folder / form.records_file(item.number)
    own = plan.runs[item.first : item.last]
    with opened_runs(own) as runs, PartWriter(path, plan.files) as part:
        writer = ListWriter(part, form.RECORDS, 0)
        for run in runs:
            before = run.low - 1
            for block in run.records():
                # Parts are built apart, so each has numbers of its own.
                context = numbers.setdefault(block.context, (item.number << 32) + len(numbers))
                before = _write_records(writer, block, context, before)
        records = writer.close()
        # What else a record is read with, once more: `repair` needs this file and no other.
        writer.copy_directory(form.RECORDS_COPY)
        contexts = {number: context for context, number in numbers.items()}
        write_lines(part, form.CONTEXTS, form.pack_contexts(contexts))
        sources = sorted({each for run in runs for each in run.sources()}, key=lambda s: s.base)
        write_lines(part, form.SOURCES, form.pack_sources(sources))
        file = part.close()
    return RecordsBuilt(item.number, item.first, item.last, file, records, contexts)


def _write_records(writer: ListWriter, block: RecordBlock, context: int, before: int) -> int:
    """Add a block of records; answers with the last one's label."""
    if not len(block):
        return before
    if int(block.starts[0]) <= before or (np.diff(block.starts) <= 0).any():
        raise BadRun(f"records do not ascend: one at {block.starts[0]} comes after {before}")
    columns = (block.starts, block.ends, block.levels, block.offsets)
    packed = form.RECORDS_SHAPE.pack(columns, rows=len(block), head=(context,), tail=block.data)
    writer.add(int(block.starts[0]), len(block), packed)
    return int(block.starts[-1])


# Meta


def build_meta(item: MetaItem) -> PartFile:
    """Write the tries, contexts, sources and statistics of a segment."""
    plan = item.plan
    schemes = {name: _counted(item, name) for name in plan.schemes}
    contexts: dict[int, Context] = {}
    for each in item.records:
        contexts |= each.contexts
    with opened_runs(plan.runs) as runs:
        sources = sorted({each for run in runs for each in run.sources()}, key=lambda s: s.base)
    with PartWriter(plan.folder / form.META, plan.files) as part:
        for name, (trie, _) in schemes.items():
            writer = ColumnWriter(
                part, form.trie(name), 0, shape=form.TRIE_SHAPE, limit=form.TRIE_ROWS
            )
            writer.write(trie.tag, trie.extra, trie.size)
            writer.close()
        write_lines(part, form.CONTEXTS, form.pack_contexts(contexts))
        write_lines(part, form.SOURCES, form.pack_sources(sources))
        figures = statistics(schemes, _by_number(item), _stores(item, part.stores))
        write_lines(part, form.STATISTICS, [form.canonical(figures).decode()])
        return part.close()


def _counted(item: MetaItem, scheme: str) -> tuple[TrieColumns, Longs]:
    """The merged trie, and how many nodes each of its nodes has."""
    tag, extra, size, order, begin = (
        load_array(item.plan.folder, scheme, what)
        for what in ("tag", "extra", "size", "order", "begin")
    )
    counts = np.zeros(len(tag), np.int64)
    for part in item.nodes:
        own = load_array(item.plan.folder, scheme, f"counts{part.number}")
        at = 0
        for number in part.tags:
            ranks = order[begin[number] : begin[number + 1]]
            counts[ranks] = own[at : at + len(ranks)]
            at += len(ranks)
    return TrieColumns(tag, extra, size), counts


def _by_number(item: MetaItem) -> list[dict[str, int]]:
    tags = {tag: built for part in item.nodes for tag, built in part.tags.items()}
    return [asdict(tags[tag]) for tag in sorted(tags)]


def _stores(item: MetaItem, meta: Mapping[str, int]) -> dict[str, int]:
    """Bytes a store takes in all files; statistics, which tell of it, are not there yet."""
    total = dict(meta)
    for file in (*(each.file for each in item.nodes), *(each.file for each in item.records)):
        for name, size in file.stores.items():
            total[name] = total.get(name, 0) + size
    return total
