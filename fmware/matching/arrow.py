"""The matches of a batch as an Arrow table, from the columns of `Results`.

Named matches come first, then tuples, then local ones; a stable sort by message puts them into the
order of messages. Paths, values and fragments are made once for each node of a message. Tags,
labels and values of local nodes come from the index as columns.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fmware.filtering._kernel import expand_rows
from fmware.matching.columns import texts
from fmware.matching.plan import FRAGMENTS, PATHS, VALUES
from fmware.statements import Returns
from labeling import NodeTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from fmware.matching.described import NodeColumns
    from fmware.matching.results import LocalNode, Results

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]

__all__ = ["SCHEMA", "schema_of", "table_of"]

SCHEMA: Final = pa.schema(
    [
        pa.field("message", pa.utf8(), nullable=False),
        pa.field("statement", pa.utf8(), nullable=False),
        pa.field("rows", pa.list_(pa.int32())),
        pa.field("nodes", pa.list_(pa.utf8())),
        pa.field("local_tag", pa.utf8()),
        pa.field("local_path", pa.utf8()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
        pa.field("level", pa.int16()),
        pa.field("source", pa.utf8()),
        pa.field("value", pa.utf8()),
        pa.field("fragment", pa.utf8()),
    ]
)


def schema_of(columns: Iterable[str] | None) -> pa.Schema:
    """The schema of some columns, or of all."""
    names = SCHEMA.names if columns is None else columns
    try:
        return pa.schema([SCHEMA.field(name) for name in names])
    except KeyError as error:
        unknown = error.args[0]
        raise ValueError(f"{unknown}; there are {', '.join(SCHEMA.names)}") from None


def table_of(results: Results, columns: Iterable[str] | None = None) -> pa.Table:
    """All matches, a row each, message by message; of the columns, those that are wanted."""
    schema = schema_of(columns)
    names = schema.names
    matches = _Matches(results, values="value" in names)
    made = [matches.column(name) for name in names]
    batch = pa.RecordBatch.from_arrays(made, schema=schema)
    if matches.mixed:
        batch = batch.take(pa.array(np.argsort(matches.place, kind="stable")))
    return pa.Table.from_batches([batch])


class _Matches:
    """The matches of a batch: of each its message, what is returned, and its rows."""

    def __init__(self, results: Results, *, values: bool) -> None:
        found, local = results.found, results.local
        self._results = results
        self._wants_values = values
        ends = np.column_stack([found.ends[:, :2], np.array(local.ends, np.int64)])
        counts = ends.copy()
        counts[1:] -= ends[:-1]
        places = np.arange(len(results))
        self._named, self._local = len(found.ids), len(local.plans)
        self.count = self._named + len(found.told) + self._local
        self.mixed = sum(map(bool, (self._named, len(found.told), self._local))) > 1
        self.place: Ints = np.concatenate([np.repeat(places, counts[:, kind]) for kind in range(3)])
        self._numbers: Ints = np.concatenate([found.ids, found.told[:, 0]])
        # Local matches have their rows apart from those of the filter: they go behind them.
        widths = np.array([*map(len, local.rows)], np.int64)
        behind = np.cumsum(widths) - widths + len(found.rows)
        flat = [row for rows in local.rows for row in rows]
        self._rows = np.concatenate([found.rows, np.array(flat, np.int32)]) if flat else found.rows
        nothing = np.zeros(self._named, np.int64)
        self._begin = np.concatenate([nothing, found.told[:, 1], behind])
        self._width = np.concatenate([nothing, found.told[:, 2], widths])
        returned = np.array([plan.nodes for plan in local.plans], np.uint8)
        self._nodes = np.concatenate([results.registry.nodes[self._numbers], returned])

    def column(self, name: str) -> pa.Array:
        """One of the columns of the schema."""
        match name:
            case "message":
                there, of = np.unique(self.place, return_inverse=True)
                names = texts([self._results.message(place) for place in there.tolist()])
                return names.take(pa.array(of))
            case "statement":
                return self.statements()
            case "rows" | "nodes":
                return self._tuples[name == "nodes"]
            case "value":
                return self._contents(VALUES, self._values(), NodeTable.string_value)
            case "fragment":
                return self._contents(FRAGMENTS, self._objects("fragment"), _fragment)
            case "local_path" | "source":
                return self._behind(self._objects(name.removeprefix("local_")))
            case _:
                return self._behind(self._local_columns[name])

    def statements(self) -> pa.StringArray:
        """The names of the statements."""
        names = self._results.registry.names.take(pa.array(self._numbers))
        if not self._local:
            return names
        local = [plan.name for plan in self._results.local.plans]
        return pa.concat_arrays([names, texts(local)])

    @cached_property
    def _tuples(self) -> tuple[pa.Array, pa.Array]:
        """The rows of path tuples, and their paths; null where no tuple is returned."""
        given = (self._nodes & PATHS) > 0
        if not given.any():
            return pa.nulls(self.count, pa.list_(pa.int32())), pa.nulls(
                self.count, pa.list_(pa.utf8())
            )
        offsets, rows = expand_rows(self._begin, np.where(given, self._width, 0), self._rows)
        owners = np.repeat(self.place, np.diff(offsets))
        paths = self._of_nodes(owners, rows, lambda table, some: table.paths(some))
        missing = None if given.all() else pa.array(~given)
        return (
            pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows), mask=missing),
            pa.ListArray.from_arrays(pa.array(offsets), paths, mask=missing),
        )

    def _of_nodes(
        self,
        places: Ints,
        rows: npt.NDArray[np.int32],
        make: Callable[[NodeTable, list[int]], list[str]],
    ) -> pa.StringArray:
        """A text for each of many nodes, made once for each node of a message."""
        asked = np.unique(places).tolist()
        tables = [self._results.found.table(place) for place in asked]
        first = np.zeros(len(self._results) + 1, np.int64)
        first[[place + 1 for place in asked]] = [
            0 if each is None else len(each) for each in tables
        ]
        first = np.cumsum(first)
        keys = first[places] + rows
        there = np.zeros(int(first[-1]), np.bool_)
        there[keys] = True
        made: list[str] = []
        for place, table in zip(asked, tables, strict=True):
            assert table is not None
            own = np.flatnonzero(there[first[place] : first[place + 1]])
            made += make(table, own.tolist())
        index = np.cumsum(there, dtype=np.int32) - np.int32(1)
        return pa.array(made, pa.utf8()).take(pa.array(index[keys]))

    # --- local nodes ------------------------------------------------------------------------

    @cached_property
    def _there(self) -> npt.NDArray[np.intp]:
        """The local matches that have a local node."""
        return np.flatnonzero(self._results.local.segment >= 0)

    def _spread(self, made: pa.Array) -> pa.Array:
        """A column of local nodes as one of local matches, with null where there is no node."""
        if len(self._there) == self._local:
            return made
        place = np.full(self._local, -1, np.int64)
        place[self._there] = np.arange(len(self._there))
        return made.take(pa.array(place, mask=place < 0))

    def _behind(self, made: pa.Array) -> pa.Array:
        """A column of local matches as one of all: theirs come last."""
        before = self.count - self._local
        return pa.concat_arrays([pa.nulls(before, made.type), made]) if before else made

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Of local nodes that come several times, the first; and which of these each one is."""
        starts = self._results.local.start[self._there]
        _, first, of = np.unique(starts, return_index=True, return_inverse=True)
        return first, of

    @cached_property
    def _described(self) -> NodeColumns:
        """The local nodes that differ: a node is the same wherever its label is."""
        local, there = self._results.local, self._there[self._distinct[0]]
        assert local.descriptions is not None
        plans = [local.plans[at] for at in there.tolist()]
        return local.descriptions.columns(
            plans, local.segment[there], local.start[there], values=self._wants_values
        )

    @cached_property
    def _local_columns(self) -> dict[str, pa.Array]:
        """Tags and labels of local nodes, by the names of their columns."""
        names = ("local_tag", "start", "end", "level")
        if not len(self._there):
            return {name: pa.nulls(self._local, SCHEMA.field(name).type) for name in names}
        found, (first, of) = self._described, self._distinct
        start = self._results.local.start[self._there[first]]
        made = (texts(found.tag), pa.array(start), pa.array(found.end), pa.array(found.level))
        each = (column.take(pa.array(of)) for column in made)
        return {name: self._spread(column) for name, column in zip(names, each, strict=True)}

    def _values(self) -> pa.Array:
        """The values of local nodes, null where they are not returned."""
        local, there = self._results.local, self._there
        wanted = np.array([Returns.VALUE in plan.read for plan in local.plans], np.bool_)[there]
        if not wanted.any():
            return pa.nulls(self._local, pa.utf8())
        values, of = self._described.values, self._distinct[1]
        wanted &= self._fitting(there, np.where(wanted, np.diff(values.offsets)[of], 0))
        buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
        made = pa.Array.from_buffers(pa.large_utf8(), len(values), buffers)
        return self._spread(made.take(pa.array(of, mask=~wanted)).cast(pa.utf8()))

    def _fitting(self, local: npt.NDArray[np.intp], sizes: Ints) -> npt.NDArray[np.bool_]:
        """Which of some local matches fit into what their messages may have; others are noted."""
        results, most = self._results, self._results.limits.bytes
        if int(sizes.sum()) <= most:
            return np.ones(len(sizes), np.bool_)
        places = self.place[self.count - self._local :][local]
        first = np.searchsorted(places, places)
        total = np.cumsum(sizes)
        before = np.concatenate([[0], total])[first]
        fits: npt.NDArray[np.bool_] = total - before <= most
        for at in np.flatnonzero(~fits).tolist():
            plan = results.local.plans[int(local[at])]
            results.troubles.cut(int(places[at]), plan.name)
        return fits

    def _objects(self, name: str) -> pa.Array:
        """What is read from records, node by node."""
        local = self._results.local
        made = [_decoded(local.node(at), name) for at in range(self._local)]
        sizes = np.array([0 if each is None else len(each) for each in made], np.int64)
        fits = self._fitting(np.arange(self._local), sizes)
        return texts([each if fit else None for each, fit in zip(made, fits, strict=True)])

    def _contents(
        self, wanted: int, local: pa.Array, make: Callable[[NodeTable, int], str]
    ) -> pa.Array:
        """Values or fragments: of the message nodes that are selected, or of the local ones."""
        own = (self._nodes & wanted) > 0
        made = self._behind(local)
        if not own.any():
            return made
        last = self._rows[self._begin[own] + self._width[own] - 1]
        of_messages = self._of_nodes(
            self.place[own], last, lambda table, rows: [make(table, row) for row in rows]
        )
        # A match has the one or the other: those of messages are numbered behind all others.
        place = np.arange(self.count)
        place[own] = np.arange(self.count, self.count + len(of_messages))
        return pa.concat_arrays([made, of_messages]).take(pa.array(place))


def _fragment(table: NodeTable, row: int) -> str:
    return table.fragment(row).decode(errors="replace")


def _decoded(node: LocalNode | None, name: str) -> str | None:
    said = None if node is None else getattr(node, name)
    return said.decode(errors="replace") if isinstance(said, bytes) else said
