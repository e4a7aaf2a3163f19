"""Probes of an index: by AD label in batches, by SES label, by key; beside numpy, SQLite, DuckDB.

One corpus: records `r` of several `s`, each with a few `v`; as many `v` as `--nodes` says, and each
has a key of its own. The join is r//v: for a batch of `r`, all (r, v) with the labels of v. All
answers are checked to be the same in the same run. Times are CPU time of the whole process, all
threads of it. What each rival was stands in `rivals`.

`ad_batch_ratio` is our time over numpy's for the largest batch, sorted: at most 1.5 is wanted.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.clock import compare
from fmware.index import Index, Writer
from fmware.labeling import Limits, Reader, Vocabulary
from fmware.labeling.identity import parse_rules
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, Source
from fmware.labeling.ses import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fmware.index import Segment

    Int64s = npt.NDArray[np.int64]

__all__ = ["run"]

NODES = 1_000_000
ANCHORS = (1_000, 10_000, 100_000)
SCANS = (1, 100, 10_000)
SEED = 3
LIMITS = Limits(bytes=2**31 - 16, nodes=2**30)

RIVALS = {
    "numpy": "two searchsorted on int64 columns in memory, then repeat, arange and three takes for "
    "the same pairs",
    "sqlite": "in memory; v by INTEGER PRIMARY KEY (its clustered form), anchors loaded before the "
    "clock starts; one prepared join; the faster of fetching the pairs and of only summing them up",
    "duckdb": "in memory, one thread, anchors loaded before the clock starts; the fastest of a "
    "range join, the same with v sorted and clustered, and an ASOF join to positions that unnests "
    "them; pairs fetched as numpy columns",
    "sqlite keys": "WITHOUT ROWID table by key with the label in it; one at a time a prepared "
    "SELECT, in batches a join with the keys loaded before the clock starts",
    "dict": "a Python dict from key to label, in memory",
    "slices": "copies of three slices of numpy columns in memory",
}


@dataclass(frozen=True)
class Columns:
    """The nodes of a tag in memory, as rivals have them."""

    start: Int64s
    end: Int64s
    level: npt.NDArray[np.int16]


def run(argv: list[str]) -> dict[str, object]:
    """Ratios, and nanoseconds a node and a pair."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
        path = Path(scratch) / "index"
        scans = _build(path, options.nodes, options.scans)
        with Index.open(path) as index:
            segment = index.segments[0]
            records, values = _columns(segment, "r"), _columns(segment, "v")
            probes = _probes(segment, records, values, options)
            found: dict[str, object] = {
                **_headline(probes, max(options.anchors)),
                **_joins(segment, records, values, options),
                "ad": probes,
                "ses": _scans(segment, values, scans, options),
                "identity": _identity(segment, values, options),
                "nodes": len(values.start),
                "pairs_per_anchor": len(values.start) / len(records.start),
                "rivals": RIVALS,
            }
        # With no other reader open, so that nothing has been checked before.
        found["cold"] = _cold(path, records, options)
    return found


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench probes", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the list that is probed")
    parser.add_argument("--anchors", type=int, nargs="+", default=ANCHORS, help="sizes of batches")
    parser.add_argument("--scans", type=int, nargs="+", default=SCANS, help="postings of labels")
    parser.add_argument("--batch", type=int, default=10_000, help="keys in the largest batch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", help="where to build the index")
    return parser.parse_args(argv)


# --- the corpus -----------------------------------------------------------------------------


def _build(path: Path, nodes: int, scans: list[int]) -> dict[int, tuple[int, int]]:
    """The index; answers with a label of `v` for each number of postings."""
    document = _document(nodes, scans)
    reader = Reader(Vocabulary(), limits=LIMITS)
    table = reader.read(document)
    labeller = Labeller([PATH], reader.vocabulary, parse_rules(["v=."]))
    sizes = np.array([len(document)], np.int64)
    source = Source("bench.xml", 0, len(document))
    labeller.add(table, np.zeros(1, np.int64), source, document, sizes, Context(document=True))
    with Writer.create(path, schemes=[PATH], identity=["v=."]) as writer:
        writer.append([labeller.finish()], check="off")
    with Index.open(path) as index:
        segment = index.segments[0]
        labels = {}
        for number in scans:
            tag = f"t{number}"
            start = _columns(segment, tag).start[:1]
            rank, last = segment.labels(tag, segment.locate(tag, start), "path")
            labels[number] = int(rank[0]), int(last[0])
        rank, last = segment.labels("s", np.zeros(1, np.int64), "path")
        labels[nodes] = int(rank[0]), int(last[0])
    return labels


def _document(nodes: int, scans: list[int]) -> bytes:
    """Records of about ten `v` each; some `v` stand in tags of their own, so many in each."""
    random = np.random.default_rng(SEED)
    parts = ["<all>"]
    special = [f"t{number}" for number in scans for _ in range(number)]
    done = 0
    for many in random.integers(1, 5, nodes).tolist():
        if done >= nodes:
            break
        parts.append("<r>")
        for few in random.integers(1, 7, many).tolist():
            few = min(few, nodes - done)
            inside = "".join(f"<v>key/{(done + i) * 7919 % nodes}</v>" for i in range(few))
            parts.append(f"<s>{inside}</s>")
            done += few
        parts.append("</r>")
    # Behind all records, because there they change nothing for the join.
    parts += (f"<{tag}><v>other/{at}</v></{tag}>" for at, tag in enumerate(special))
    return "".join([*parts, "</all>"]).encode()


def _columns(segment: Segment, tag: str) -> Columns:
    found = segment.descendants(tag, [segment.low - 1], [segment.high]).right
    return Columns(found.start, found.end, found.level)


# --- by AD label ----------------------------------------------------------------------------


def _by_numpy(columns: Columns, starts: Int64s, ends: Int64s) -> tuple[npt.NDArray[Any], ...]:
    low = np.searchsorted(columns.start, starts, "right")
    count = np.maximum(np.searchsorted(columns.start, ends, "left") - low, 0)
    left = np.repeat(np.arange(len(starts)), count)
    row = np.arange(len(left)) + np.repeat(low - np.cumsum(count) + count, count)
    return left, columns.start[row], columns.end[row], columns.level[row]


def _anchors(records: Columns, count: int, order: str) -> tuple[Int64s, Int64s]:
    random = np.random.default_rng(SEED)
    rows = random.choice(len(records.start), min(count, len(records.start)), replace=False)
    if order == "sorted":
        rows.sort()
    return records.start[rows], records.end[rows]


def _probes(
    segment: Segment, records: Columns, values: Columns, options: argparse.Namespace
) -> dict[str, object]:
    return {
        f"{count} {order}": _probe(segment, values, *_anchors(records, count, order), options)
        for count in options.anchors
        for order in ("sorted", "unsorted")
    }


def _probe(
    segment: Segment,
    values: Columns,
    starts: Int64s,
    ends: Int64s,
    options: argparse.Namespace,
) -> dict[str, float]:
    mine = segment.descendants("v", starts, ends)
    below = mine.right
    _expect((mine.left, below.start, below.end, below.level), _by_numpy(values, starts, ends))
    up = segment.ancestors("r", below.start, below.end)
    _expect((up.left, up.right.start), (np.arange(len(mine)), starts[mine.left]))
    # Small batches are over too soon for the clock: several of them make one turn.
    times = max(1, 20_000 // len(starts))
    taken = compare(
        {
            "ours": _again(times, lambda: segment.descendants("v", starts, ends)),
            "numpy": _again(times, lambda: _by_numpy(values, starts, ends)),
            "ancestors": _again(times, lambda: segment.ancestors("r", below.start, below.end)),
        },
        rounds=options.rounds,
    )
    per = {name: seconds / times * 1e9 for name, seconds in taken.items()}
    pairs = max(1, len(mine))
    return {
        "ratio": taken["ours"] / taken["numpy"],
        "ns_per_anchor": per["ours"] / len(starts),
        "ns_per_pair": per["ours"] / pairs,
        "numpy_ns_per_pair": per["numpy"] / pairs,
        "ancestors_ns_per_node": per["ancestors"] / pairs,
        "pairs": len(mine),
    }


def _again(times: int, call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(times):
            call()

    return calls


def _headline(probes: dict[str, Any], most: int) -> dict[str, object]:
    return {
        "ad_batch_ratio": probes[f"{most} sorted"]["ratio"],
        "ad_batch_ratio_unsorted": probes[f"{most} unsorted"]["ratio"],
        "ns_per_pair": probes[f"{most} sorted"]["ns_per_pair"],
        "ns_per_node": probes[f"{most} sorted"]["ns_per_anchor"],
    }


def _expect(mine: tuple[Any, ...], wanted: tuple[Any, ...]) -> None:
    for ours, theirs in zip(mine, wanted, strict=True):
        if not np.array_equal(ours, theirs):
            raise AssertionError("a rival gives another answer")


def _cold(path: Path, records: Columns, options: argparse.Namespace) -> dict[str, float]:
    """The first batch on an index that was just opened: every block is checked on the way."""
    starts, ends = _anchors(records, max(options.anchors), "sorted")

    def opened() -> None:
        Index.open(path).close()

    def first() -> None:
        with Index.open(path) as index:
            index.descendants("v", starts, ends)

    taken = compare({"open": opened, "first": first}, rounds=5)
    return {
        "open_ms": taken["open"] * 1e3,
        "first_batch_ms": (taken["first"] - taken["open"]) * 1e3,
    }


# --- the same join elsewhere ----------------------------------------------------------------


def _joins(
    segment: Segment, records: Columns, values: Columns, options: argparse.Namespace
) -> dict[str, object]:
    starts, ends = _anchors(records, max(options.anchors), "sorted")
    wanted = _by_numpy(values, starts, ends)
    rounds = max(3, options.rounds // 4)
    with closing(_sqlite(values)) as lite, closing(_duckdb(values)) as duck:
        _load_sqlite(lite, starts, ends)
        _load_duckdb(duck, starts, ends)
        rivals: dict[str, Callable[[], object]] = {
            "ours": lambda: segment.descendants("v", starts, ends),
            "sqlite fetch": lambda: lite.execute(SQLITE_JOIN).fetchall(),
            "sqlite sums": lambda: lite.execute(SQLITE_SUMS).fetchall(),
        }
        rows = np.array(lite.execute(SQLITE_JOIN).fetchall(), np.int64).reshape(-1, 4)
        _expect(tuple(rows.T), wanted)
        for name, query in DUCKDB_JOINS.items():
            found = duck.execute(query).fetchnumpy()
            order = np.lexsort((found["start"], found["id"]))
            columns = tuple(found[each][order] for each in ("id", "start", "stop", "level"))
            _expect(columns, wanted)
            rivals[f"duckdb {name}"] = partial(_fetched, duck, query)
        taken = compare(rivals, rounds=rounds)
    best = {
        name: min(seconds for each, seconds in taken.items() if each.startswith(name))
        for name in ("sqlite", "duckdb")
    }
    return {
        "sqlite_speedup": best["sqlite"] / taken["ours"],
        "duckdb_speedup": best["duckdb"] / taken["ours"],
        "join_ms": {name: seconds * 1e3 for name, seconds in taken.items()},
    }


SQLITE_JOIN = """SELECT a.id, v.start, v.stop, v.level FROM temp.a CROSS JOIN v
    WHERE v.start > a.start AND v.start < a.stop ORDER BY a.id, v.start"""
SQLITE_SUMS = """SELECT count(*), sum(a.id), sum(v.start), sum(v.stop), sum(v.level)
    FROM temp.a CROSS JOIN v WHERE v.start > a.start AND v.start < a.stop"""


def _sqlite(values: Columns) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA cache_size = -1000000")
    connection.execute("CREATE TABLE v (start INTEGER PRIMARY KEY, stop INTEGER, level INTEGER)")
    columns = (values.start.tolist(), values.end.tolist(), values.level.tolist())
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO v VALUES (?, ?, ?)", zip(*columns, strict=True))
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    return connection


def _load_sqlite(connection: sqlite3.Connection, starts: Int64s, ends: Int64s) -> None:
    connection.execute("CREATE TEMP TABLE a (id INTEGER PRIMARY KEY, start INTEGER, stop INTEGER)")
    columns = (range(len(starts)), starts.tolist(), ends.tolist())
    # One transaction, which stays open: the joins are in it.
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO temp.a VALUES (?, ?, ?)", zip(*columns, strict=True))


DUCKDB_JOINS = {
    "range": """SELECT a.id, v.start, v.stop, v.level FROM a JOIN v
        ON v.start > a.start AND v.start < a.stop""",
    "sorted range": """SELECT a.id, v.start, v.stop, v.level FROM sorted_v v JOIN a
        ON a.start < v.start AND a.stop > v.start""",
    "asof": """WITH low AS (
            SELECT a.id, a.stop, v.place AS low FROM a ASOF LEFT JOIN placed v ON v.start <= a.start
        ), found AS (
            SELECT low.id, low.low, v.place AS high FROM low ASOF JOIN placed v
            ON v.start < low.stop
        ), places AS (
            SELECT id, unnest(range(coalesce(low, -1) + 1, high + 1)) AS place FROM found
        )
        SELECT places.id, v.start, v.stop, v.level FROM places JOIN placed v USING (place)""",
}


def _duckdb(values: Columns) -> Any:
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.register("given", {"start": values.start, "stop": values.end, "level": values.level})
    connection.execute("CREATE TABLE v AS SELECT * FROM given")
    connection.execute("CREATE TABLE sorted_v AS SELECT * FROM given ORDER BY start")
    connection.execute(
        "CREATE TABLE placed AS "
        "SELECT *, row_number() OVER (ORDER BY start) - 1 AS place FROM given"
    )
    connection.unregister("given")
    return connection


def _fetched(connection: Any, query: str) -> object:
    return connection.execute(query).fetchnumpy()


def _load_duckdb(connection: Any, starts: Int64s, ends: Int64s) -> None:
    anchors = {"id": np.arange(len(starts)), "start": starts, "stop": ends}
    connection.register("anchors", anchors)
    connection.execute("CREATE TABLE a AS SELECT * FROM anchors")
    connection.unregister("anchors")


# --- by SES label ---------------------------------------------------------------------------


def _scans(
    segment: Segment,
    values: Columns,
    labels: dict[int, tuple[int, int]],
    options: argparse.Namespace,
) -> dict[str, object]:
    rows: dict[str, object] = {}
    for number, (rank, last) in labels.items():
        found = segment.scan("path", "v", rank, last, "descendant")
        inside = np.isin(values.start, found.start)
        if len(found) != number or not np.array_equal(np.sort(found.start), values.start[inside]):
            raise AssertionError(f"{len(found)} postings where {number} were expected")
        times = max(1, 2_000 // max(1, number // 100))
        taken = compare(
            {
                "ours": _again(times, partial(segment.scan, "path", "v", rank, last, "descendant")),
                "slices": _again(times, partial(_sliced, values, number)),
            },
            rounds=options.rounds,
        )
        rows[f"{number} postings"] = {
            "us": taken["ours"] / times * 1e6,
            "ns_per_node": taken["ours"] / times / number * 1e9,
            "slices_us": taken["slices"] / times * 1e6,
        }
    return rows


def _sliced(values: Columns, number: int) -> Columns:
    return Columns(
        values.start[:number].copy(), values.end[:number].copy(), values.level[:number].copy()
    )


# --- by key ---------------------------------------------------------------------------------


def _identity(segment: Segment, values: Columns, options: argparse.Namespace) -> dict[str, object]:
    keys = [segment.value(start).encode() for start in values.start[:1].tolist()]
    total = len(values.start)
    labels = _keys_of(segment, total)
    random = np.random.default_rng(SEED)
    hits = [f"key/{each}".encode() for each in random.integers(0, options.nodes, options.batch)]
    # Between those that are there, so that nobody finds them all in one place.
    misses = [key + b"-" for key in hits]
    if keys[0] not in labels:
        raise AssertionError("the keys are not those of the corpus")
    rows: dict[str, object] = {}
    with closing(_sqlite_keys(labels)) as lite:
        for name, asked in (("hits", hits), ("misses", misses)):
            for size in (1, 16, options.batch):
                rows[f"{name}, {size} at a time"] = _identity_row(
                    segment, lite, labels, asked, size, options.rounds
                )
    return rows


def _keys_of(segment: Segment, total: int) -> dict[bytes, tuple[int, int, int]]:
    """All keys and their labels, as a rival in memory has them."""
    keys = [f"key/{each}".encode() for each in range(total)]
    found = segment.identify("v", keys)
    columns = (found.left.tolist(), found.right.start.tolist(), found.right.end.tolist())
    level = found.right.level.tolist()
    return {
        keys[left]: (start, end, depth)
        for left, start, end, depth in zip(*columns, level, strict=True)
    }


def _sqlite_keys(labels: dict[bytes, tuple[int, int, int]]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA cache_size = -1000000")
    connection.execute(
        "CREATE TABLE k (key BLOB PRIMARY KEY, start INTEGER, stop INTEGER, level INTEGER) "
        "WITHOUT ROWID"
    )
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO k VALUES (?, ?, ?, ?)",
        ((key, *label) for key, label in sorted(labels.items())),
    )
    connection.execute("COMMIT")
    return connection


SQLITE_KEY = "SELECT start, stop, level FROM k WHERE key = ?"
SQLITE_KEYS = """SELECT asked.id, k.start, k.stop, k.level FROM temp.asked CROSS JOIN k
    ON k.key = asked.key ORDER BY asked.id"""


def _identity_row(
    segment: Segment,
    lite: sqlite3.Connection,
    labels: dict[bytes, tuple[int, int, int]],
    asked: list[bytes],
    size: int,
    rounds: int,
) -> dict[str, float]:
    number = min(len(asked), max(size, 2_000))
    batches = [asked[at : at + size] for at in range(0, number - size + 1, size)]
    number = size * len(batches)
    lite.execute("DROP TABLE IF EXISTS temp.asked")
    lite.execute("CREATE TEMP TABLE asked (id INTEGER PRIMARY KEY, key BLOB)")
    lite.executemany("INSERT INTO temp.asked VALUES (?, ?)", enumerate(asked[:number]))

    def ours() -> None:
        for batch in batches:
            segment.identify("v", batch)

    def one_by_one() -> None:
        for key in asked[:number]:
            lite.execute(SQLITE_KEY, (key,)).fetchall()

    def joined() -> list[Any]:
        return lite.execute(SQLITE_KEYS).fetchall()

    pairs = segment.identify("v", asked[:number])
    mine = [pairs.left, pairs.right.start, pairs.right.end, pairs.right.level]
    theirs = np.array(joined(), np.int64).reshape(-1, 4)
    _expect(tuple(mine), tuple(theirs.T))
    taken = compare(
        {
            "ours": ours,
            "sqlite": one_by_one if size == 1 else joined,
            "dict": lambda: [labels.get(key) for key in asked[:number]],
        },
        rounds=rounds,
    )
    return {
        "ns_per_key": taken["ours"] / number * 1e9,
        "sqlite_ns_per_key": taken["sqlite"] / number * 1e9,
        "dict_ns_per_key": taken["dict"] / number * 1e9,
        "sqlite_speedup": taken["sqlite"] / taken["ours"],
    }
