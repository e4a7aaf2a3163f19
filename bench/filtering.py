"""Filtering, parse included, as ratios to lxml's parse of the same documents in the same run.

The workload is that of the YFilter studies: 500 news documents of about 4 KB, statements with
D=6, W=0.2, DS=0.2. `--docs DIR --queries FILE` takes others, and then leaves out the parts with
made-up predicates; `--quick` leaves out the million.

Each part runs in a process of its own, so that memory and caches start alike. Times are CPU
times; rivals take turns, and the best round counts. `warm`: the documents have been filtered
before. `unseen`: the automaton is warm, the documents are new to it. `cold`: nothing has been
filtered yet. The rival of the ratios is `lxml.etree.fromstring` alone; that of the crossover is
lxml's compiled XPath, one statement at a time on a tree parsed once.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree

from bench.clock import compare
from fmware import FilterEngine
from fmware.datasets import load_dtd, news_documents, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["run"]

DEPTH = 6
WILDCARD = 0.2
DESCENDANT = 0.2
DOCUMENTS = 500
ROUNDS = 5


@dataclass(frozen=True)
class Workload:
    """Where documents and statements come from; files, so that any process can read them."""

    seen: str
    unseen: str
    queries: str


def run(argv: list[str]) -> dict[str, object]:
    """All keys of the benchmark."""
    options = _options(argv)
    with tempfile.TemporaryDirectory() as folder:
        work = _write_workload(Path(folder), options)
        result: dict[str, object] = {"documents": _facts(work)}
        for size in (1_000, 10_000, 100_000):
            result[f"warm_{size // 1000}k"] = _apart(_warm, work, "plain", size)
        result |= _apart(_cold_and_unseen, work, 100_000)
        if not options.queries:
            result["predicates_100k"] = _apart(_warm, work, "predicates", 100_000)
            result["nested_100k"] = _apart(_warm, work, "nested", 100_000)
        result |= _apart(_build, work, 100_000)
        result["lxml_crossover"] = _apart(_crossover, work)
        result["two_threads_speedup"] = _apart(_threads, work, 100_000)
        if not options.quick:
            result |= _apart(_million, work)
        return result


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench filtering")
    parser.add_argument("--docs", type=Path, help="a directory of documents of your own")
    parser.add_argument("--queries", type=Path, help="a file of statements, one a line")
    parser.add_argument("--quick", action="store_true", help="without the million statements")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(argv)


# -- the workload --


def _write_workload(folder: Path, options: argparse.Namespace) -> Workload:
    work = Workload(str(folder / "seen"), str(folder / "unseen"), str(folder / "queries"))
    if options.docs:
        files = sorted(path for path in options.docs.rglob("*") if path.is_file())
        documents = [path.read_bytes() for path in files]
        half = max(1, len(documents) // 2)
        _write_documents(Path(work.seen), documents[:half])
        _write_documents(Path(work.unseen), documents[half:] or documents)
    else:
        _write_documents(Path(work.seen), news_documents(DOCUMENTS, seed=options.seed))
        _write_documents(Path(work.unseen), news_documents(DOCUMENTS, seed=options.seed + 1))
    Path(work.queries).mkdir()
    sizes = {"plain": 100_000 if options.quick else 1_000_000}
    sizes |= {"predicates": 100_000, "nested": 100_000}
    for kind, count in sizes.items():
        lines = _statements(kind, count, options)
        with (Path(work.queries) / kind).open("w") as file:
            file.writelines(line + "\n" for line in lines)
    return work


def _statements(kind: str, count: int, options: argparse.Namespace) -> Iterator[str]:
    if options.queries:
        return iter(options.queries.read_text().splitlines())
    return queries(
        load_dtd("news"),
        count,
        seed=options.seed + 2,
        depth=DEPTH,
        wildcard=WILDCARD,
        descendant=DESCENDANT,
        predicates=int(kind == "predicates"),
        nested=int(kind == "nested"),
    )


def _write_documents(folder: Path, documents: Any) -> None:
    folder.mkdir()
    for number, document in enumerate(documents):
        (folder / f"{number:06}.xml").write_bytes(document)


def _documents(folder: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(folder).iterdir())]


def _engine(work: Workload, kind: str, count: int) -> FilterEngine:
    engine = FilterEngine()
    with (Path(work.queries) / kind).open() as file:
        for _, line in zip(range(count), file, strict=False):
            engine.subscribe(line.rstrip("\n"))
    # What has been built is there to stay: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return engine


def _facts(work: Workload) -> dict[str, object]:
    documents = _documents(work.seen)
    return {"count": len(documents), "mean_bytes": sum(map(len, documents)) // len(documents)}


# -- the parts --


def _apart(part: Callable[..., Any], *arguments: object) -> Any:
    """Run a part in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(part, arguments)


def _parse_all(documents: list[bytes]) -> Callable[[], None]:
    def parse() -> None:
        for document in documents:
            etree.fromstring(document)

    return parse


def _filter_all(engine: FilterEngine, documents: list[bytes]) -> Callable[[], None]:
    def work() -> None:
        for document in documents:
            engine.filter(document)

    return work


def _warm(work: Workload, kind: str, count: int, rounds: int = ROUNDS) -> float:
    documents = _documents(work.seen)
    engine = _engine(work, kind, count)
    rivals = {"lxml": _parse_all(documents), "ours": _filter_all(engine, documents)}
    taken = compare(rivals, rounds=rounds)
    return taken["ours"] / taken["lxml"]


def _cold_and_unseen(work: Workload, count: int) -> dict[str, float]:
    engine = _engine(work, "plain", count)
    seen, unseen = _documents(work.seen), _documents(work.unseen)
    parse = compare({"lxml": _parse_all(unseen)}, rounds=ROUNDS)["lxml"] / len(unseen)
    cold = []
    for document in unseen[:20]:
        engine.forget()
        cold.append(_cpu(lambda document=document: engine.filter(document)))  # type: ignore[misc]
    engine.forget()
    _filter_all(engine, seen)()
    new = _cpu(_filter_all(engine, unseen)) / len(unseen)
    return {"cold_100k": statistics.median(cold) / parse, "unseen_100k": new / parse}


def _cpu(call: Callable[[], object]) -> float:
    begin = time.process_time_ns()
    call()
    return (time.process_time_ns() - begin) / 1e9


def _build(work: Workload, count: int) -> dict[str, float]:
    with (Path(work.queries) / "plain").open() as file:
        lines = [line.rstrip("\n") for _, line in zip(range(count), file, strict=False)]
    engine = FilterEngine()
    engine.subscribe("/warm/up")
    before = _rss_mb()
    taken = _cpu(lambda: [engine.subscribe(line) for line in lines])
    return {
        "build_us_per_statement": taken / len(lines) * 1e6,
        # The expressions themselves are kept for explanations: they count as well.
        "mb_per_100k": (_rss_mb() - before + _text_mb(lines)) / len(lines) * 100_000,
        "bytes_per_statement": engine.stats()["bytes"] / len(lines),
        "states_per_statement": engine.stats()["states"] / len(lines),
    }


def _text_mb(lines: list[str]) -> float:
    return sum(49 + len(line) for line in lines) / 2**20


def _million(work: Workload) -> dict[str, float]:
    documents = _documents(work.seen)
    engine = _engine(work, "plain", 1_000_000)
    rivals = {"lxml": _parse_all(documents), "ours": _filter_all(engine, documents)}
    taken = compare(rivals, rounds=2)
    return {
        "warm_1m": taken["ours"] / taken["lxml"],
        "statements_1m": len(engine),
        "rss_mb_1m": _rss_mb(),
    }


def _rss_mb() -> float:
    with Path("/proc/self/status").open() as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")


def _crossover(work: Workload) -> int:
    """The least number of statements from which we are faster than lxml's XPath one by one."""
    documents = _documents(work.seen)[:100]
    with (Path(work.queries) / "plain").open() as file:
        lines = [line.rstrip("\n") for _, line in zip(range(200), file, strict=False)]
    for count in range(1, len(lines)):
        taken = compare(_one_by_one(documents, lines[:count]), rounds=7)
        if taken["ours"] < taken["lxml"]:
            return count
    return len(lines)


def _one_by_one(documents: list[bytes], lines: list[str]) -> dict[str, Callable[[], None]]:
    engine = FilterEngine()
    engine.subscribe_many(lines)
    compiled = [etree.XPath(line, smart_strings=False) for line in lines]

    def lxml_xpath() -> None:
        for document in documents:
            tree = etree.fromstring(document)
            for xpath in compiled:
                xpath(tree)

    return {"lxml": lxml_xpath, "ours": _filter_all(engine, documents)}


def _threads(work: Workload, count: int) -> float:
    """Documents a second by two threads against one, by the wall clock.

    Both cores must be free for it to mean anything, so the best of many short rounds counts.
    """
    documents = _documents(work.seen)
    engine = _engine(work, "plain", count)
    _in_threads(engine, documents, 2)
    one, two = [], []
    for _ in range(40):
        one.append(_in_threads(engine, documents, 1))
        two.append(_in_threads(engine, documents, 2))
    return 2 * min(one) / min(two)


def _in_threads(engine: FilterEngine, documents: list[bytes], count: int) -> float:
    """Wall seconds of `count` threads that each filter all documents."""
    threads = [threading.Thread(target=_filter_all(engine, documents)) for _ in range(count)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin
