"""The middleware beside its own engine: what is added to reading and filtering a message.

Workloads are drawn from `--seed`. Each part runs in a process of its own; rivals take turns, and
the best round of each counts. Ratios are of CPU time, but for threads, which are compared by the
wall clock.

- `many_over_engine`: 10,000 plain statements, of which about a quarter match each news item of 1.7
  KB. `Middleware.publish_batch`, 64 messages each, over `FilterEngine.filter` of each message; both
  give numbers of statements. `many_arrow_over_engine` reads the results as Arrow, names included.
- `many_ns_per_tuple`: the same statements with `returns="message"`, published and read as Arrow
  with the paths of all nodes; nanoseconds for each path tuple.
- `few_over_engine`: 100,000 statements with three predicates each, none of which matches any of the
  first messages, on notices of about 4 KB.
- `single_over_batch`: 100 statements that go on in a corpus, `publish` of one message over the same
  in batches of 64. Results are looked at: the number of matches is taken.
- `threads_speedup`: two threads through one `Middleware` over one thread, the workload of
  `few_over_engine`. It needs both cores for itself.
- `branching_...`, `keyed_...`, `substrings_...` and others: see `bench.branching`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.branching import branching, keyed, substrings
from bench.clock import compare
from bench.cold import cold
from bench.joins import demo, five, thousand, wildcard
from bench.serving import build, matching
from fmware.datasets import news_documents, queries
from fmware.datasets.messages import citations
from fmware.filtering import FilterEngine
from fmware.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["run"]

BATCH: Final = 64
MANY: Final = 10_000
FEW: Final = 100_000
SIZE: Final = 1_700
NOTICE: Final = range(3_500, 4_700)
SAMPLE: Final = 200
THREADS: Final = 2
ROUNDS: Final = 15


@dataclass(frozen=True)
class Work:
    """What a part needs to draw its workload."""

    index: str
    corpus: Path
    records: int
    seed: int
    messages: int
    rounds: int


def run(argv: list[str]) -> dict[str, object]:
    """All keys of the benchmark."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as folder:
        index, records = build(Path(folder), options.size)
        corpus = Path(folder) / "corpus.xml"
        work = Work(str(index), corpus, records, options.seed, options.messages, options.rounds)
        parts = (_many, _tuples, _few, _single, _threads, five, thousand, demo, wildcard, cold)
        more = (branching, keyed, substrings)
        return {key: value for part in parts + more for key, value in _apart(part, work).items()}


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench pipeline", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of messages and statements")
    parser.add_argument("--size", type=int, default=20_000_000, help="bytes of the corpus")
    parser.add_argument("--messages", type=int, default=512, help="of each workload")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--dir", help="where to build the index")
    return parser.parse_args(argv)


def _apart(part: Callable[[Work], dict[str, float]], work: Work) -> dict[str, float]:
    """A part in a process of its own, so that memory and caches start alike."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(part, (work,))


def _batches(messages: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [messages[at : at + BATCH] for at in range(0, len(messages), BATCH)]


# --- plain statements of which many match ------------------------------------------------------


def _news(work: Work) -> list[bytes]:
    return list(news_documents(work.messages, seed=work.seed, size=SIZE))


def _quarter(work: Work) -> list[str]:
    """Statements as subscribers write them, equal ones among them."""
    drawn = queries(
        "news",
        MANY,
        seed=work.seed + 1,
        depth=4,
        wildcard=0.5,
        descendant=0.5,
        distinct=False,
    )
    return list(drawn)


def _engine(statements: Sequence[str]) -> FilterEngine:
    engine = FilterEngine()
    for number, text in enumerate(statements):
        engine.subscribe(text, name=str(number))
    return engine


def _middleware(work: Work, statements: Sequence[str], returns: Any = None) -> Middleware:
    middleware = Middleware(work.index)
    for number, text in enumerate(statements):
        middleware.subscribe(text, name=str(number), returns=returns)
    return middleware


def _many(work: Work) -> dict[str, float]:
    messages, statements = _news(work), _quarter(work)
    engine, batches = _engine(statements), _batches(messages)
    with _middleware(work, statements) as middleware:
        times = compare(
            {
                "engine": lambda: [engine.filter(each) for each in messages],
                "middleware": lambda: [middleware.publish_batch(some) for some in batches],
                "arrow": lambda: [middleware.publish_batch(some).to_arrow() for some in batches],
            },
            rounds=work.rounds,
        )
        count = sum(middleware.publish_batch(some).match_count for some in batches)
    return {
        "many_over_engine": times["middleware"] / times["engine"],
        "many_arrow_over_engine": times["arrow"] / times["engine"],
        "many_matches": count / len(messages),
        "many_bytes": sum(map(len, messages)) / len(messages),
        "many_engine_us": times["engine"] / len(messages) * 1e6,
        "many_middleware_us": times["middleware"] / len(messages) * 1e6,
    }


def _tuples(work: Work) -> dict[str, float]:
    batches = _batches(_news(work))
    with _middleware(work, _quarter(work), "message") as middleware:
        # Some rounds are enough: each makes millions of paths.
        rounds = max(3, work.rounds // 4)
        read = {"arrow": lambda: [middleware.publish_batch(some).to_arrow() for some in batches]}
        times = compare(read, rounds=rounds)
        tuples = sum(middleware.publish_batch(some).match_count for some in batches)
    return {
        "many_ns_per_tuple": times["arrow"] / tuples * 1e9,
        "many_tuples": tuples / work.messages,
    }


# --- statements that seldom match --------------------------------------------------------------


def _notices(work: Work) -> list[bytes]:
    found = citations(work.messages * 20, seed=work.seed, records=work.records, cited=20)
    return list(islice((each for each in found if len(each) in NOTICE), work.messages))


def _seldom(work: Work, messages: Sequence[bytes]) -> list[str]:
    """Statements on messages alone; those that match one of the first messages are left out."""
    drawn = list(queries("notices", FEW + FEW // 2, predicates=3, seed=work.seed + 2))
    engine = _engine(drawn)
    often = {number for body in messages[:SAMPLE] for number in engine.filter(body).ids.tolist()}
    return list(islice((each for at, each in enumerate(drawn) if at not in often), FEW))


def _few(work: Work) -> dict[str, float]:
    messages = _notices(work)
    statements = _seldom(work, messages)
    engine, batches = _engine(statements), _batches(messages)
    with _middleware(work, statements) as middleware:
        times = compare(
            {
                "engine": lambda: [engine.filter(each) for each in messages],
                "middleware": lambda: [middleware.publish_batch(some) for some in batches],
            },
            rounds=work.rounds,
        )
        count = sum(middleware.publish_batch(some).match_count for some in batches)
    return {
        "few_over_engine": times["middleware"] / times["engine"],
        "few_matches": count / len(messages),
        "few_engine_us": times["engine"] / len(messages) * 1e6,
        "few_middleware_us": times["middleware"] / len(messages) * 1e6,
    }


# --- statements that go on in the corpus -------------------------------------------------------


def _single(work: Work) -> dict[str, float]:
    messages = _notices(work)
    batches = _batches(messages)
    with _middleware(work, matching(), ["local", "value"]) as middleware:
        times = compare(
            {
                "single": lambda: [len(middleware.publish(each).matches) for each in messages],
                "batch": lambda: [middleware.publish_batch(some).match_count for some in batches],
            },
            rounds=work.rounds,
        )
        count = sum(middleware.publish_batch(some).match_count for some in batches)
    return {
        "single_over_batch": times["single"] / times["batch"],
        "single_us": times["single"] / len(messages) * 1e6,
        "batch_us": times["batch"] / len(messages) * 1e6,
        "joined_matches": count / len(messages),
    }


# --- threads -----------------------------------------------------------------------------------


def _threads(work: Work) -> dict[str, float]:
    messages = _notices(work)
    batches = _batches(messages)
    with _middleware(work, _seldom(work, messages)) as middleware:

        def publish(some: Iterator[Sequence[bytes]]) -> None:
            for each in some:
                middleware.publish_batch(each)

        def seconds(threads: int) -> float:
            """Each thread publishes all batches."""
            own = [threading.Thread(target=publish, args=(iter(batches),)) for _ in range(threads)]
            began = time.perf_counter()
            for thread in own:
                thread.start()
            for thread in own:
                thread.join()
            return time.perf_counter() - began

        seconds(THREADS)
        times = [(seconds(1), seconds(THREADS)) for _ in range(work.rounds * 2)]
    alone, together = min(a for a, _ in times), min(b for _, b in times)
    return {"threads_speedup": THREADS * alone / together}
