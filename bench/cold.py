"""Does a label that must be fetched from disk hold up messages that need nothing from there?

The corpus has items on many shelves, each shelf on a path of its own, so that items have many SES
labels. Two threads share one middleware. One publishes messages about a few shelves, whose labels
are known; the time of each is taken. The other publishes messages about shelves that were never
asked for. Before it begins, the pages of the index are dropped from memory, and those that the
known shelves need are read again; so its keys, labels and candidates come from disk.

- `cold_stall`: the 99th percentile of known messages while the others are cold, over the same with
  all pages in memory. `cold_stall_in_caller` is the same figure if the caller probes, without
  threads that fetch. Times are by the wall clock: what is measured is waiting.
"""

from __future__ import annotations

import statistics
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

from bench.pages import Pages
from fmware.corpus import build_index
from fmware.middleware import Middleware

if TYPE_CHECKING:
    from pathlib import Path

    from bench.pipeline import Work

__all__ = ["cold"]

SHELVES: Final = 3000
ITEMS: Final = 12
PARTS: Final = 12
KNOWN: Final = 20
"""Shelves whose labels are known."""
ASKED: Final = 150
"""Shelves that are asked for in a turn, a message each."""
TURNS: Final = 4
PAUSE: Final = 0.001
"""Seconds between two of them: else the known messages would wait for the interpreter's lock."""
STATEMENT: Final = "//order/item/local:part"


def cold(work: Work) -> dict[str, float]:
    """The stall of known messages, with probe threads and with the caller probing."""
    folder = work.corpus.parent / "shelves"
    folder.mkdir(exist_ok=True)
    index = _built(folder, work.seed)
    stalls: dict[int, list[float]] = {0: [], 1: []}
    times: dict[tuple[int, bool], float] = {}
    order = Random(f"cold {work.seed}")
    for _ in range(TURNS):
        for threads in stalls:
            shelves = order.sample(range(KNOWN, SHELVES), 2 * ASKED)
            found = {
                dropped: _p99(index, threads, some, order, dropped=dropped)
                for dropped, some in ((False, shelves[:ASKED]), (True, shelves[ASKED:]))
            }
            stalls[threads].append(found[True] / found[False])
            times |= {(threads, dropped): taken for dropped, taken in found.items()}
    return {
        "cold_stall": statistics.median(stalls[1]),
        "cold_stall_in_caller": statistics.median(stalls[0]),
        "cold_warm_p99_us": times[1, False] * 1e6,
        "cold_p99_us": times[1, True] * 1e6,
        "cold_in_caller_p99_us": times[0, True] * 1e6,
    }


def _built(folder: Path, seed: int) -> Path:
    random = Random(f"shelves {seed}")
    lines = ["<stock>"]
    for shelf in range(SHELVES):
        name = f"s{shelf}"
        lines.append(f"<{name}>")
        for item in range(ITEMS):
            parts = "".join(f"<part>{random.randrange(10**6)}</part>" for _ in range(PARTS))
            lines.append(f"<item k='{shelf}-{item}'>{parts}</item>")
        lines.append(f"</{name}>")
    (folder / "stock.xml").write_text("\n".join([*lines, "</stock>"]), encoding="utf-8")
    build_index(
        folder / "stock.xml",
        folder / "index",
        record=[f"s{shelf}" for shelf in range(SHELVES)],
        identity=["item=@k"],
        schemes=("path",),
        calibrate=True,
    )
    return folder / "index"


def _message(shelf: int, random: Random) -> bytes:
    items = random.sample(range(ITEMS), 4)
    return b"<order>" + b"".join(b"<item k='%d-%d'/>" % (shelf, at) for at in items) + b"</order>"


def _p99(index: Path, threads: int, shelves: list[int], random: Random, *, dropped: bool) -> float:
    """The 99th percentile of known messages while others are about shelves that are new."""
    options: dict[str, Any] = {"operator": "cmatch", "threads": threads}
    known = [_message(shelf, random) for shelf in range(KNOWN) for _ in range(4)]
    others = [_message(shelf, random) for shelf in shelves]
    with Middleware(index, **options) as middleware:
        middleware.subscribe(STATEMENT, returns="name")
        _publish(middleware, known)
        if dropped:
            Pages(index).drop()
            # What known messages need is in memory; twice, because reading ahead may come late.
            _publish(middleware, known)
            _publish(middleware, known)
        other = threading.Thread(target=_publish, args=(middleware, others, PAUSE))
        taken: list[float] = []
        other.start()
        while other.is_alive() or len(taken) < 2 * len(known):
            message = known[len(taken) % len(known)]
            began = time.perf_counter()
            middleware.publish(message)
            taken.append(time.perf_counter() - began)
        other.join()
    return statistics.quantiles(taken, n=100)[98]


def _publish(middleware: Middleware, messages: list[bytes], pause: float = 0.0) -> None:
    for message in messages:
        result = middleware.publish(message)
        if result.errors:
            raise result.errors[0]
        if pause:
            time.sleep(pause)
