"""How filtering grows: with statements, document size, `*`, `//` and depth, one at a time.

Everything else stays at the base: 100,000 statements with D=6, W=0.2, DS=0.2 on news documents of
about 4 KB and depth 8. A row is a process of its own. `--full` adds a million statements, and
document sizes with as many bytes in each row.

In a row: `ratio` is the CPU time of filtering, parse included, over `lxml.etree.fromstring` of the
same documents in the same run, warm. `us` are its microseconds a document, `us_kb` a KB, `lxml_us`
those of the rival. `first_us` is the first pass, which makes the `dfa` states and takes the
`nfa_steps`. `build_us` a statement and `mb` are the price of the statements themselves.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lxml import etree

from bench.clock import compare
from fmware import FilterEngine
from fmware.datasets import load_dtd, news_documents, queries

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run"]

STATEMENTS = (1_000, 10_000, 100_000, 300_000)
SIZES = (1, 4, 16, 64, 256, 1024)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
DEPTHS = (6, 8, 10, 12)
SEED = 1


@dataclass(frozen=True)
class Point:
    """One row: what is filtered, and by what."""

    statements: int = 100_000
    kilobytes: int = 4
    wildcard: float = 0.2
    descendant: float = 0.2
    query_depth: int = 6
    document_depth: int = 8
    documents: int = 500
    rounds: int = 7


class Row(dict[str, float]):
    """The figures of a point; as text, a line of a table."""

    def __str__(self) -> str:
        return "  ".join(f"{key} {_shown(value):<7}" for key, value in self.items()).rstrip()


def run(argv: list[str]) -> dict[str, object]:
    """A table for each thing that grows, by its value."""
    full = _options(argv).full
    tables = {name: _table(points) for name, points in _points(full).items()}
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {**tables, "cpu_seconds": sum(each.ru_utime + each.ru_stime for each in usage)}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench growth")
    parser.add_argument("--full", action="store_true", help="a million statements, more documents")
    return parser.parse_args(argv)


def _points(full: bool) -> dict[str, dict[str, Point]]:
    base = Point()
    counts = (*STATEMENTS, 1_000_000) if full else STATEMENTS
    volume = 16 * 1024 if full else 2000
    return {
        "statements": {f"{count:,}": replace(base, statements=count) for count in counts},
        "document_kb": {
            f"{size}": replace(base, kilobytes=size, documents=min(1000, max(3, volume // size)))
            for size in SIZES
        },
        "wildcard": {f"{share}": replace(base, wildcard=share) for share in SHARES},
        "descendant": {f"{share}": replace(base, descendant=share) for share in SHARES},
        "depth": {
            f"{depth}": replace(base, query_depth=depth, document_depth=depth) for depth in DEPTHS
        },
    }


def _table(points: dict[str, Point]) -> dict[str, Row]:
    context = multiprocessing.get_context("spawn")
    rows = {}
    for name, point in points.items():
        # Memory and caches start alike.
        with context.Pool(1) as pool:
            rows[name] = pool.apply(measure, (point,))
            pool.close()
            pool.join()  # else its CPU time is not counted
    return rows


def measure(point: Point) -> Row:
    """The figures of one point."""
    documents = list(
        news_documents(
            point.documents, SEED, size=point.kilobytes * 1024, depth=point.document_depth
        )
    )
    engine, build, megabytes = _build(point)
    first = _cpu(lambda: _filter_all(engine, documents))
    stats = engine.stats()
    rivals: dict[str, Callable[[], object]] = {
        "lxml": lambda: _parse_all(documents),
        "ours": lambda: _filter_all(engine, documents),
    }
    taken = compare(rivals, rounds=point.rounds)
    each = 1e6 / len(documents)
    size = sum(map(len, documents)) / 1024 / len(documents)
    return Row(
        ratio=taken["ours"] / taken["lxml"],
        us=taken["ours"] * each,
        us_kb=taken["ours"] * each / size,
        lxml_us=taken["lxml"] * each,
        first_us=first * each,
        kb=size,
        documents=len(documents),
        matches=sum(len(engine.filter(document)) for document in documents) / len(documents),
        states=stats["states"],
        dfa=stats["dfa_states"],
        dfa_mb=stats["dfa_bytes"] / 2**20,
        nfa_steps=stats["nfa_steps"],
        flushes=engine.stats()["flushes"],
        build_us=build,
        mb=megabytes,
    )


def _build(point: Point) -> tuple[FilterEngine, float, float]:
    """The engine, with microseconds a statement and MB of all."""
    made = queries(
        load_dtd("news"),
        point.statements,
        seed=SEED + 2,
        depth=point.query_depth,
        wildcard=point.wildcard,
        descendant=point.descendant,
    )
    lines = list(made)
    engine = FilterEngine()
    engine.subscribe("/warm/up")
    gc.collect()
    before = _rss_mb()
    taken = _cpu(lambda: engine.subscribe_many(lines))
    # The expressions are kept for explanations, so they count.
    texts = sum(49 + len(line) for line in lines) / 2**20
    megabytes = _rss_mb() - before + texts
    gc.collect()
    gc.freeze()
    return engine, taken / len(lines) * 1e6, megabytes


def _parse_all(documents: list[bytes]) -> None:
    for document in documents:
        etree.fromstring(document)


def _filter_all(engine: FilterEngine, documents: list[bytes]) -> None:
    for document in documents:
        engine.filter(document)


def _cpu(call: Callable[[], object]) -> float:
    begin = time.process_time_ns()
    call()
    return (time.process_time_ns() - begin) / 1e9


def _rss_mb() -> float:
    with Path("/proc/self/status").open() as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")


def _shown(value: float) -> str:
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
