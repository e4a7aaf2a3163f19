"""Runs: the labelled nodes of a stretch of the corpus, as labelling hands them to the index.

A run holds, by tag, the AD labels of its nodes and for each scheme the rank of their SES label in
the run's own trie; the values of nodes; the tries; the keys by which nodes are found; and the
source of its records.
`MemoryRun` is one in memory. `store` writes it as a directory of Arrow files, from which
`open_run` gives it back without copying, in any process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from fmware.labeling.arrow import binary_column, column
from fmware.labeling.errors import RunError
from fmware.labeling.ses import Direction
from fmware.labeling.trie import TrieColumns
from fmware.labeling.values import Values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

__all__ = [
    "Context",
    "Keys",
    "MemoryRun",
    "Nodes",
    "RecordBlock",
    "Run",
    "Source",
    "Tag",
    "open_run",
    "store",
]


class Tag(NamedTuple):
    """What postings are kept by: a kind (element or attribute) and a Clark name."""

    kind: int
    name: str

    def __str__(self) -> str:
        return f"@{self.name}" if self.kind else self.name


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of one tag, by AD start; for each scheme, the rank of the SES label of each."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    level: npt.NDArray[np.int16]
    ranks: dict[str, npt.NDArray[np.uint32]]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of nodes: the i-th, `data[offsets[i]:offsets[i + 1]]`, is one of row `row[i]`."""

    offsets: npt.NDArray[np.int64]
    data: npt.NDArray[np.uint8]
    row: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Context:
    """What a record needs beside its bytes to be read again.

    A whole `document` needs nothing; a record that was cut out of one, what stood around it.
    """

    declaration: bytes = b""
    doctype: bytes = b""
    namespaces: bytes = b""
    document: bool = False


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """The source of some records, one zstd frame; (starts, ends, levels) label their roots."""

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    levels: npt.NDArray[np.int16]
    offsets: npt.NDArray[np.int64]
    context: Context
    data: bytes

    def __len__(self) -> int:
        return len(self.starts)


class Source(NamedTuple):
    """A file, and where the labels of its nodes lie: from `base` on, fewer than `size`."""

    name: str
    base: int
    size: int


class Run(Protocol):
    """What an index is built from; runs that are given together are disjoint and in order.

    Tags are numbered by their place in `tags`, which is sorted; all labels lie in [low, high).
    """

    @property
    def schemes(self) -> Mapping[str, Direction]: ...
    @property
    def extra_is_tag(self) -> Mapping[str, bool]: ...
    @property
    def tags(self) -> Sequence[Tag]: ...
    @property
    def counts(self) -> Sequence[int]: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    def nodes(self, tag: int) -> Nodes: ...
    def values(self, tag: int) -> Values: ...
    def trie(self, scheme: str) -> TrieColumns: ...
    def keys(self, tag: int) -> Keys | None: ...
    def records(self) -> Iterator[RecordBlock]: ...
    def sources(self) -> Sequence[Source]: ...


@dataclass(slots=True)
class MemoryRun:
    """A run in memory."""

    schemes: Mapping[str, Direction]
    extra_is_tag: Mapping[str, bool]
    tags: Sequence[Tag]
    low: int
    high: int
    postings: Sequence[Nodes]
    tries: Mapping[str, TrieColumns]
    identity: Mapping[int, Keys] = field(default_factory=dict)
    blocks: Sequence[RecordBlock] = ()
    files: Sequence[Source] = ()
    texts: Sequence[Values] = ()
    """The values of the nodes by tag; none at all if the records have them."""

    @property
    def counts(self) -> Sequence[int]:
        """How many nodes each tag has."""
        return [len(nodes) for nodes in self.postings]

    def nodes(self, tag: int) -> Nodes:
        return self.postings[tag]

    def values(self, tag: int) -> Values:
        return self.texts[tag] if self.texts else Values.none(len(self.postings[tag]))

    def trie(self, scheme: str) -> TrieColumns:
        return self.tries[scheme]

    def keys(self, tag: int) -> Keys | None:
        return self.identity.get(tag)

    def records(self) -> Iterator[RecordBlock]:
        return iter(self.blocks)

    def sources(self) -> Sequence[Source]:
        return self.files


_NODES, _VALUES, _TRIES, _KEYS, _RECORDS, _ABOUT = (
    "nodes.arrow",
    "values.arrow",
    "tries.arrow",
    "keys.arrow",
    "records.arrow",
    "run.json",
)
_TRIE_SCHEMA = pa.schema([(name, pa.uint32()) for name in ("tag", "extra", "size")])
_VALUES_SCHEMA = pa.schema([("mark", pa.uint8()), ("value", pa.large_binary())])
_KEYS_SCHEMA = pa.schema([("key", pa.large_binary()), ("row", pa.uint32())])
_RECORDS_SCHEMA = pa.schema(
    [
        ("starts", pa.list_(pa.int64())),
        ("ends", pa.list_(pa.int64())),
        ("levels", pa.list_(pa.int16())),
        ("offsets", pa.list_(pa.int64())),
        ("context", pa.int32()),
        ("data", pa.large_binary()),
    ]
)


def store(run: MemoryRun, path: Path) -> None:
    """Write a run; `run.json` comes last and says that all is there."""
    path.mkdir(parents=True)
    schemes = list(run.schemes)
    columns = [("start", pa.int64()), ("end", pa.int64()), ("level", pa.int16())]
    schema = pa.schema([*columns, *((name, pa.uint32()) for name in schemes)])
    _write(path / _NODES, schema, (_nodes_batch(run, tag, schema) for tag in range(len(run.tags))))
    _write(
        path / _VALUES,
        _VALUES_SCHEMA,
        (_values_batch(run.values(tag)) for tag in range(len(run.tags))),
    )
    _write(path / _TRIES, _TRIE_SCHEMA, (_trie_batch(run.tries[name]) for name in schemes))
    keyed = sorted(run.identity)
    _write(path / _KEYS, _KEYS_SCHEMA, (_keys_batch(run.identity[tag]) for tag in keyed))
    contexts = list(dict.fromkeys(block.context for block in run.blocks))
    number = {context: i for i, context in enumerate(contexts)}
    blocks = [_blocks_batch(run.blocks, number)] if run.blocks else []
    _write(path / _RECORDS, _RECORDS_SCHEMA, blocks)
    about = {
        "schemes": {name: run.schemes[name].value for name in schemes},
        "extra_is_tag": dict(run.extra_is_tag),
        "tags": [list(tag) for tag in run.tags],
        "counts": list(run.counts),
        "low": run.low,
        "high": run.high,
        "keyed": keyed,
        "contexts": [_context_out(context) for context in contexts],
        "sources": [list(source) for source in run.files],
    }
    (path / _ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _nodes_batch(run: MemoryRun, tag: int, schema: pa.Schema) -> pa.RecordBatch:
    nodes = run.nodes(tag)
    ranks = [nodes.ranks[name] for name in run.schemes]
    columns: list[npt.NDArray[Any]] = [nodes.start, nodes.end, nodes.level, *ranks]
    return pa.RecordBatch.from_arrays([column(each) for each in columns], schema=schema)


def _values_batch(values: Values) -> pa.RecordBatch:
    buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
    value = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pa.RecordBatch.from_arrays([column(values.mark), value], schema=_VALUES_SCHEMA)


def _trie_batch(trie: TrieColumns) -> pa.RecordBatch:
    columns = [column(each) for each in (trie.tag, trie.extra, trie.size)]
    return pa.RecordBatch.from_arrays(columns, schema=_TRIE_SCHEMA)


def _keys_batch(keys: Keys) -> pa.RecordBatch:
    buffers = [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
    key = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    return pa.RecordBatch.from_arrays([key, column(keys.row)], schema=_KEYS_SCHEMA)


def _blocks_batch(blocks: Sequence[RecordBlock], contexts: Mapping[Context, int]) -> pa.RecordBatch:
    """All blocks as one batch, a row each: a batch of its own would cost as much as its block."""
    columns = [
        _lists([block.starts for block in blocks]),
        _lists([block.ends for block in blocks]),
        _lists([block.levels for block in blocks]),
        _lists([block.offsets for block in blocks]),
        column(np.array([contexts[block.context] for block in blocks], np.int32)),
        binary_column([block.data for block in blocks], pa.large_binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_RECORDS_SCHEMA)


def _lists(arrays: Sequence[npt.NDArray[Any]]) -> pa.ListArray:
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(column(offsets), column(np.concatenate(arrays)))


def _context_out(context: Context) -> list[str | bool]:
    # Bytes in whatever encoding: Latin 1 keeps each as it is.
    texts = (context.declaration, context.doctype, context.namespaces)
    return [*(text.decode("latin-1") for text in texts), context.document]


def _context_in(texts: Sequence[str | bool]) -> Context:
    declaration, doctype, namespaces = (str(text).encode("latin-1") for text in texts[:3])
    return Context(declaration, doctype, namespaces, bool(texts[3]))


def open_run(path: str | Path) -> StoredRun:
    """A run that was stored; its columns are read from the files when they are asked for."""
    path = Path(path)
    try:
        about = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is not a whole run: {error}") from None
    return StoredRun(path, about)


class StoredRun:
    """A run in files."""

    def __init__(self, path: Path, about: dict[str, list[object]]) -> None:
        self.path = path
        self._about = about
        self._files: dict[str, pa.ipc.RecordBatchFileReader] = {}
        schemes: Mapping[str, str] = about["schemes"]  # type: ignore[assignment]
        self.schemes = {name: Direction(value) for name, value in schemes.items()}
        self.extra_is_tag: Mapping[str, bool] = about["extra_is_tag"]  # type: ignore[assignment]
        self.tags: Sequence[Tag] = [Tag(*tag) for tag in about["tags"]]  # type: ignore[misc]
        self.counts: Sequence[int] = about["counts"]  # type: ignore[assignment]
        self.low: int = about["low"]  # type: ignore[assignment]
        self.high: int = about["high"]  # type: ignore[assignment]
        self._keyed = {tag: i for i, tag in enumerate(about["keyed"])}

    def _batch(self, name: str, number: int) -> pa.RecordBatch:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = pa.ipc.open_file(pa.memory_map(str(self.path / name)))
        return file.get_batch(number)

    def nodes(self, tag: int) -> Nodes:
        columns = [column.to_numpy() for column in self._batch(_NODES, tag).columns]
        start, end, level, *ranks = columns
        return Nodes(start, end, level, dict(zip(self.schemes, ranks, strict=True)))

    def values(self, tag: int) -> Values:
        mark, value = self._batch(_VALUES, tag).columns
        return Values(mark.to_numpy(), *_spans(value))

    def trie(self, scheme: str) -> TrieColumns:
        batch = self._batch(_TRIES, list(self.schemes).index(scheme))
        return TrieColumns(*(column.to_numpy() for column in batch.columns))

    def keys(self, tag: int) -> Keys | None:
        number = self._keyed.get(tag)
        if number is None:
            return None
        key, row = self._batch(_KEYS, number).columns
        return Keys(*_spans(key), row.to_numpy())

    def records(self) -> Iterator[RecordBlock]:
        contexts = [_context_in(texts) for texts in self._about["contexts"]]  # type: ignore[arg-type]
        with pa.memory_map(str(self.path / _RECORDS)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield from _blocks(reader.get_batch(number), contexts)

    def sources(self) -> Sequence[Source]:
        return [Source(*source) for source in self._about["sources"]]  # type: ignore[misc]


def _spans(texts: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The offsets and the bytes of a column that begins at the beginning of its buffers."""
    _, offsets, data = texts.buffers()
    span = np.frombuffer(offsets, np.int64)[: len(texts) + 1]
    return span, np.frombuffer(data or b"", np.uint8)[: span[-1]]


def _blocks(batch: pa.RecordBatch, contexts: Sequence[Context]) -> Iterator[RecordBlock]:
    lists = [batch.column(name) for name in ("starts", "ends", "levels", "offsets")]
    bounds = [column.offsets.to_numpy().tolist() for column in lists]
    values = [column.values.to_numpy() for column in lists]
    data = batch.column("data")
    for row, context in enumerate(batch.column("context").to_pylist()):
        starts, ends, levels, offsets = (
            value[bound[row] : bound[row + 1]] for value, bound in zip(values, bounds, strict=True)
        )
        packed = data[row].as_buffer().to_pybytes()
        yield RecordBlock(starts, ends, levels, offsets, contexts[context], packed)
