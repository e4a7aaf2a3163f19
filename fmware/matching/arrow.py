"""The matches of a batch as an Arrow table, from the columns of `Results`.

`in_order` puts named matches, tuples and local ones into the order of messages; all columns are
made in that order. Paths, values and fragments are made once for each node of a message. Labels of
local nodes are columns already; their tags and values come from the index.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fmware.filtering._kernel import expand_rows
from fmware.labeling import NodeTable
from fmware.matching._columns import Texts, in_order
from fmware.matching.plan import FRAGMENTS, PATHS, VALUES
from fmware.statements import Returns

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
    return pa.Table.from_arrays(made, schema=schema)


class _Matches:
    """The matches of a batch in the order of messages.

    Of each: the place of its message, the number of its statement, what is returned of message
    nodes, where its rows begin and how many they are, and its number among local matches, or -1.
    """

    def __init__(self, results: Results, *, values: bool) -> None:
        found, local = results.found, results.local
        self._results = results
        self._wants_values = values
        self._place, self._number, self._begin, self._width, self._local = in_order(
            found.ends,
            found.ids,
            found.told,
            np.array(local.hits.ends, np.int64),
            local.hits.plan,
            local.hits.at,
            np.array(local.numbers, np.int64),
            np.array(local.widths, np.int64),
        )

    def column(self, name: str) -> pa.Array:
        """One of the columns of the schema."""
        match name:
            case "message":
                return Texts(self._results.messages).take(self._place)
            case "statement":
                return self._results.registry.names.take(self._number)
            case "rows" | "nodes":
                return self._tuples[name == "nodes"]
            case "value":
                return self._contents(VALUES, self._values, NodeTable.string_value)
            case "fragment":
                return self._contents(FRAGMENTS, lambda: self._objects("fragment"), _fragment)
            case "local_path" | "source":
                return _taken(self._objects(name.removeprefix("local_")))
            case "local_tag":
                tags: list[str] = self._described.tag if len(self._selected) else []
                return Texts(tags).take(self._numbered)
            case _:
                return self._label(name)

    @cached_property
    def _returned(self) -> npt.NDArray[np.uint8]:
        """What is returned of message nodes."""
        returned: npt.NDArray[np.uint8] = self._results.registry.nodes[self._number]
        return returned

    @cached_property
    def _tuples(self) -> tuple[pa.Array, pa.Array]:
        """The rows of path tuples, and their paths; null where no tuple is returned."""
        given = (self._returned & PATHS) > 0
        if not given.any():
            types = pa.list_(pa.int32()), pa.list_(pa.utf8())
            return pa.nulls(len(given), types[0]), pa.nulls(len(given), types[1])
        rows_of = self._results.found.rows
        offsets, rows = expand_rows(self._begin, np.where(given, self._width, 0), rows_of)
        owners = np.repeat(self._place, np.diff(offsets))
        texts, of = self._of_nodes(owners, rows, lambda table, some: table.paths(some))
        missing = None if given.all() else pa.array(~given)
        return (
            pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows), mask=missing),
            pa.ListArray.from_arrays(pa.array(offsets), texts.take(of), mask=missing),
        )

    def _of_nodes(
        self,
        places: Ints,
        rows: npt.NDArray[np.int32],
        make: Callable[[NodeTable, list[int]], list[str]],
    ) -> tuple[Texts, Ints]:
        """Texts of nodes, each made once for a node of a message; and the number of each one's."""
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
        return Texts(made), (np.cumsum(there) - 1)[keys]

    # --- local nodes ------------------------------------------------------------------------

    @cached_property
    def _selected(self) -> npt.NDArray[np.intp]:
        """The matches that select a local node."""
        local = self._results.local
        if not len(local):
            return np.empty(0, np.intp)
        own = np.flatnonzero(self._local >= 0)
        return own[local.hits.segment[self._local[own]] >= 0]

    @cached_property
    def _numbered(self) -> Ints:
        """By match, its number among those that select a local node, or -1."""
        numbers = np.full(len(self._place), -1, np.int64)
        numbers[self._selected] = np.arange(len(self._selected))
        return numbers

    def _label(self, name: str) -> pa.Array:
        """`start`, `end` or `level` of local nodes."""
        selected = self._selected
        of_local = getattr(self._results.local.hits, name)
        made = np.zeros(len(self._place), of_local.dtype)
        made[selected] = of_local[self._local[selected]]
        if len(selected) == len(made):
            return pa.array(made)
        return pa.array(made, mask=self._numbered < 0)

    @cached_property
    def _valued(self) -> Bools:
        """Of the matches that select a local node, those whose statement returns its value."""
        local = self._results.local
        returned = np.array([Returns.VALUE in plan.read for plan in local.plans], np.bool_)
        valued: Bools = returned[local.hits.plan[self._local[self._selected]]]
        return valued

    @cached_property
    def _described(self) -> NodeColumns:
        """Tags and values of the local nodes that are selected."""
        local, which = self._results.local, self._local[self._selected]
        assert local.descriptions is not None
        return local.descriptions.columns(
            local.plans,
            local.hits.plan[which],
            local.hits.segment[which],
            local.hits.start[which],
            self._valued & self._wants_values,
        )

    def _values(self) -> tuple[Texts, Ints]:
        """The values of local nodes, and by match which of them it has, or -1."""
        numbers = np.full(len(self._place), -1, np.int64)
        selected = self._selected[self._valued] if len(self._selected) else self._selected
        if not len(selected):
            return Texts([]), numbers
        values = self._described.values
        texts = Texts.of(values.offsets, values.data)
        numbers[selected] = np.flatnonzero(self._valued)
        self._fit(numbers, texts.sizes(numbers))
        return texts, numbers

    def _objects(self, name: str) -> tuple[Texts, Ints]:
        """What is read from records, node by node, and by match which of it it has, or -1."""
        local, made = self._results.local, list[str]()
        numbers = np.full(len(self._place), -1, np.int64)
        for at in self._selected.tolist():
            said = _decoded(local.node(int(self._local[at])), name)
            if said is not None:
                numbers[at] = len(made)
                made.append(said)
        texts = Texts(made)
        self._fit(numbers, texts.sizes(numbers))
        return texts, numbers

    def _fit(self, numbers: Ints, sizes: Ints) -> None:
        """Put -1 where texts do not fit into what their messages may have, and note that."""
        results, most = self._results, self._results.limits.bytes
        if int(sizes.sum()) <= most:
            return
        first = np.searchsorted(self._place, self._place)
        total = np.cumsum(sizes)
        before = np.concatenate([[0], total])[first]
        for at in np.flatnonzero((total - before > most) & (numbers >= 0)).tolist():
            plan = results.registry[int(self._number[at])]
            results.troubles.cut(int(self._place[at]), plan.name)
            numbers[at] = -1

    def _contents(
        self,
        wanted: int,
        local: Callable[[], tuple[Texts, Ints]],
        make: Callable[[NodeTable, int], str],
    ) -> pa.StringArray:
        """Values or fragments: of the message nodes that are selected, or of the local ones."""
        texts, numbers = local()
        own = np.flatnonzero(self._returned & wanted)
        if len(own):
            last = self._results.found.rows[self._begin[own] + self._width[own] - 1]
            of_messages, which = self._of_nodes(
                self._place[own], last, lambda table, rows: [make(table, row) for row in rows]
            )
            # A match has the one or the other: those of messages are numbered behind all others.
            numbers[own] = which + len(texts)
            texts = Texts.joined([texts, of_messages])
        return texts.take(numbers)


def _taken(made: tuple[Texts, Ints]) -> pa.StringArray:
    texts, numbers = made
    return texts.take(numbers)


def _fragment(table: NodeTable, row: int) -> str:
    return table.fragment(row).decode(errors="replace")


def _decoded(node: LocalNode | None, name: str) -> str | None:
    said = None if node is None else getattr(node, name)
    return said.decode(errors="replace") if isinstance(said, bytes) else said
