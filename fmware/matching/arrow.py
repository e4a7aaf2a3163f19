"""The matches of a batch as an Arrow table, from the columns of `Results`.

Named matches come first, then tuples, then local ones; a stable sort by message puts them into the
order of messages. Paths, values and fragments are made once for each node of a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fmware.filtering._kernel import expand_rows
from fmware.matching.columns import texts
from fmware.matching.plan import FRAGMENTS, PATHS, VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fmware.matching.results import Results
    from labeling import NodeTable

    Bools = npt.NDArray[np.bool_]
    Ints = npt.NDArray[np.int64]

__all__ = ["SCHEMA", "table_of"]

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
LOCAL: Final = ("tag", "path", "start", "end", "level", "source")


def table_of(results: Results) -> pa.Table:
    """All matches, a row each, message by message."""
    matches = _Matches(results)
    columns = [
        texts(results.messages).take(pa.array(matches.place)),
        matches.statements(),
        *matches.tuples(),
        *matches.locals(),
        matches.contents(VALUES, "value", lambda table, row: table.string_value(row)),
        matches.contents(
            FRAGMENTS, "fragment", lambda table, row: table.fragment(row).decode(errors="replace")
        ),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    if matches.mixed:
        batch = batch.take(pa.array(np.argsort(matches.place, kind="stable")))
    return pa.Table.from_batches([batch])


class _Matches:
    """The matches of a batch: of each its message, what is returned, and its rows."""

    def __init__(self, results: Results) -> None:
        found, local = results.found, results.local
        self._results = results
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

    def statements(self) -> pa.StringArray:
        """The names of the statements."""
        names = self._results.registry.names.take(pa.array(self._numbers))
        if not self._local:
            return names
        local = [plan.name for plan in self._results.local.plans]
        return pa.concat_arrays([names, texts(local)])

    def tuples(self) -> tuple[pa.Array, pa.Array]:
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

    def locals(self) -> list[pa.Array]:
        """The columns of local nodes."""
        before = self.count - self._local
        return [self._local_column(name, before) for name in LOCAL]

    def _local_column(self, name: str, before: int) -> pa.Array:
        field = SCHEMA.field(f"local_{name}" if name in ("tag", "path") else name)
        if not self._local:
            return pa.nulls(before, field.type)
        nodes = self._results.local.nodes
        values = [None if node is None else getattr(node, name) for node in nodes]
        made = texts(values) if field.type == pa.utf8() else pa.array(values, field.type)
        return pa.concat_arrays([pa.nulls(before, field.type), made])

    def contents(
        self, wanted: int, name: str, make: Callable[[NodeTable, int], str]
    ) -> pa.StringArray:
        """Values or fragments: of the message nodes that are selected, or of the local ones."""
        own = (self._nodes & wanted) > 0
        nodes = self._results.local.nodes
        local = [None if node is None else getattr(node, name) for node in nodes]
        if not own.any() and not any(each is not None for each in local):
            return pa.nulls(self.count, pa.utf8())
        made = np.empty(self.count, object)
        if self._local:
            made[self.count - self._local :] = [
                each.decode(errors="replace") if isinstance(each, bytes) else each for each in local
            ]
        if own.any():
            last = self._rows[self._begin[own] + self._width[own] - 1]
            made[own] = self._of_nodes(
                self.place[own], last, lambda table, rows: [make(table, row) for row in rows]
            ).to_pylist()
        return pa.array(made, pa.utf8())
