"""The join anchor//match elsewhere: numpy in memory, SQLite, DuckDB; at once and in batches.

All have the nodes of the match tag in memory, by their start, and nothing else around. Each of the
databases has several forms of the join. `fastest` runs all of them on the same inputs, holds them
to the right answer, and keeps the one that took least.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench.probes import DUCKDB_JOINS, SQLITE_JOIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Batch = tuple[Int64s, Int64s, Int64s]
    Form = Callable[[Sequence[Batch]], list["Found"]]

__all__ = ["DuckDb", "Found", "Nodes", "Numpy", "Sqlite", "fastest", "same"]


class Found(NamedTuple):
    """Pairs: the id of the anchor, the label of the match."""

    id: npt.NDArray[Any]
    start: npt.NDArray[Any]
    end: npt.NDArray[Any]
    level: npt.NDArray[Any]


@dataclass(frozen=True)
class Nodes:
    """The nodes of the match tag, by start."""

    start: Int64s
    end: Int64s
    level: npt.NDArray[np.int16]


def ordered(found: Sequence[Found]) -> Found:
    """One answer of many, in an order that is the same whoever gave it."""
    columns = [np.concatenate([np.asarray(part[i], np.int64) for part in found]) for i in range(4)]
    order = np.lexsort((columns[1], columns[0]))
    return Found(*(column[order] for column in columns))


def same(one: Found, other: Found) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def fastest(forms: Mapping[str, Form], batches: Sequence[Batch], wanted: Found) -> tuple[str, Form]:
    """The form that takes least; all must give what is wanted."""
    taken = {}
    for name, form in forms.items():
        begin = time.perf_counter()
        found = form(batches)
        taken[name] = time.perf_counter() - begin
        if not same(ordered(found), wanted):
            raise AssertionError(f"{name} gives another answer")
    best = min(taken, key=taken.__getitem__)
    return best, forms[best]


class Numpy:
    """Two searches in a sorted column, then repeat, arange and takes for the same pairs."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def __call__(self, batches: Sequence[Batch]) -> list[Found]:
        return [self._join(*batch) for batch in batches]

    def _join(self, ids: Int64s, starts: Int64s, ends: Int64s) -> Found:
        nodes = self._nodes
        low = nodes.start.searchsorted(starts, "right")
        count = nodes.start.searchsorted(ends, "left") - low
        left = np.repeat(np.arange(len(starts)), count)
        row = np.arange(len(left)) + np.repeat(low - np.cumsum(count) + count, count)
        return Found(ids[left], nodes.start[row], nodes.end[row], nodes.level[row])


_TURNED = """SELECT a.id, v.start, v.stop, v.level FROM v CROSS JOIN temp.a
    WHERE a.start < v.start AND a.stop > v.start"""
_ONE = "SELECT ?1, start, stop, level FROM v WHERE start > ?2 AND start < ?3"
_VALUES = """WITH a(id, start, stop) AS (VALUES {rows})
    SELECT a.id, v.start, v.stop, v.level FROM a CROSS JOIN v
    WHERE v.start > a.start AND v.start < a.stop"""


class Sqlite:
    """In memory, matches by INTEGER PRIMARY KEY, its clustered form."""

    def __init__(self, nodes: Nodes) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        run = self._connection.execute
        run("PRAGMA cache_size = -1000000")
        run("CREATE TABLE v (start INTEGER PRIMARY KEY, stop INTEGER, level INTEGER)")
        run("BEGIN")
        rows = zip(nodes.start.tolist(), nodes.end.tolist(), nodes.level.tolist(), strict=True)
        self._connection.executemany("INSERT INTO v VALUES (?, ?, ?)", rows)
        run("COMMIT")
        run("ANALYZE")
        self._matches = len(nodes.start)

    def close(self) -> None:
        self._connection.close()

    def at_once(self, batch: Batch) -> dict[str, Form]:
        """Forms of one join; the anchors are loaded now, before the clock starts."""
        run = self._connection.execute
        run("DROP TABLE IF EXISTS temp.a")
        run("CREATE TEMP TABLE a (id INTEGER PRIMARY KEY, start INTEGER, stop INTEGER)")
        run("BEGIN")
        rows = zip(*(column.tolist() for column in batch), strict=True)
        self._connection.executemany("INSERT INTO temp.a VALUES (?, ?, ?)", rows)
        run("COMMIT")
        forms: dict[str, Form] = {
            "anchors drive": lambda _: [_columns(run(SQLITE_JOIN).fetchall())]
        }
        # Every match looks at all anchors that begin before it: hopeless if both are many.
        if self._matches * len(batch[0]) < 20_000_000:
            run("CREATE INDEX temp.by_start ON a (start, stop, id)")
            forms["matches drive"] = lambda _: [_columns(run(_TURNED).fetchall())]
        return forms

    def streamed(self) -> dict[str, Form]:
        return {"a statement an anchor": self._one_by_one, "a join with VALUES": self._values}

    def _one_by_one(self, batches: Sequence[Batch]) -> list[Found]:
        run = self._connection.execute
        found = []
        for batch in batches:
            rows = []
            for anchor in zip(*(column.tolist() for column in batch), strict=True):
                rows += run(_ONE, anchor).fetchall()
            found.append(_columns(rows))
        return found

    def _values(self, batches: Sequence[Batch]) -> list[Found]:
        run = self._connection.execute
        found = []
        for batch in batches:
            query = _VALUES.format(rows=", ".join(["(?, ?, ?)"] * len(batch[0])))
            flat = np.stack(batch, axis=1).ravel().tolist()
            found.append(_columns(run(query, flat).fetchall()))
        return found


def _columns(rows: Sequence[tuple[int, ...]]) -> Found:
    return Found(*np.array(rows, np.int64).reshape(-1, 4).T)


_UNNESTED = """SELECT a.id, v.start, v.stop, v.level
    FROM (SELECT unnest($1) AS id, unnest($2) AS start, unnest($3) AS stop) a
    JOIN sorted_v v ON v.start > a.start AND v.start < a.stop"""
_WITHIN = "SELECT $1 AS id, start, stop, level FROM sorted_v WHERE start > $2 AND start < $3"


class DuckDb:
    """In memory, one thread, matches sorted by start; answers as numpy columns."""

    def __init__(self, nodes: Nodes) -> None:
        import duckdb

        self._connection: Any = duckdb.connect(":memory:", config={"threads": 1})
        run = self._connection.execute
        columns = {"start": nodes.start, "stop": nodes.end, "level": nodes.level}
        self._connection.register("given", columns)
        run("CREATE TABLE v AS SELECT * FROM given")
        run("CREATE TABLE sorted_v AS SELECT * FROM given ORDER BY start")
        place = "row_number() OVER (ORDER BY start) - 1 AS place"
        run(f"CREATE TABLE placed AS SELECT *, {place} FROM given")
        self._connection.unregister("given")

    def close(self) -> None:
        self._connection.close()

    def at_once(self, batch: Batch) -> dict[str, Form]:
        """Forms of one join; the anchors are loaded now, before the clock starts."""
        columns = dict(zip(("id", "start", "stop"), batch, strict=True))
        self._connection.register("anchors", columns)
        self._connection.execute("CREATE OR REPLACE TABLE a AS SELECT * FROM anchors")
        self._connection.unregister("anchors")
        return {name: self._form(query) for name, query in DUCKDB_JOINS.items()}

    def _form(self, query: str) -> Form:
        return lambda _: [self._fetched(query)]

    def streamed(self) -> dict[str, Form]:
        return {"a join with lists": self._lists, "a statement an anchor": self._one_by_one}

    def _lists(self, batches: Sequence[Batch]) -> list[Found]:
        return [self._fetched(_UNNESTED, [each.tolist() for each in batch]) for batch in batches]

    def _one_by_one(self, batches: Sequence[Batch]) -> list[Found]:
        return [
            self._fetched(_WITHIN, anchor)
            for batch in batches
            for anchor in zip(*(column.tolist() for column in batch), strict=True)
        ]

    def _fetched(self, query: str, values: Sequence[object] = ()) -> Found:
        found = self._connection.execute(query, values).fetchnumpy()
        return Found(*(found[name] for name in ("id", "start", "stop", "level")))
