"""An endless stream of anchors through CMatch: memory that stays, time an input; beside ADMatch.

A corpus of `item`s with a few `v` each, which stand in as many differently named places as
`--labels` says, so that `item` has as many SES labels. Anchors are drawn from all items at random
and come in batches; CMatch has `--budget` MB. The first tenth is the warm-up, in which all labels
are seen.

`rss_growth_mb` is what the process has grown by after that, which is to be under 100.
`ns_per_input` is the time of feeding, warm, and `ad_ns_per_input` that of AD-only match on the same
batches in the same run; `first_match_ms` is the time from the first feed of a new operator to its
first pairs. The pairs of both are checked to be the same: how many, and a sum over all (id, start).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fmware.cmatch import ADMatch, CMatch, Inputs
from fmware.index import Index, Writer
from fmware.labeling import Limits, Reader, Vocabulary
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, Source
from fmware.labeling.ses import scheme as scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.cmatch import Matches

__all__ = ["run"]

SEED = 5
LIMITS = Limits(bytes=2**31 - 16, nodes=2**30)
PAGE = os.sysconf("SC_PAGE_SIZE")


def run(argv: list[str]) -> dict[str, object]:
    """Memory and times."""
    options = _options(argv)
    with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
        path = Path(scratch) / "index"
        _build(path, options)
        with Index.open(path) as index:
            return _stream(index, options)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench stream", description=__doc__)
    parser.add_argument("--anchors", type=int, default=2_000_000, help="inputs of the stream")
    parser.add_argument("--labels", type=int, default=10_000, help="SES labels of the inputs")
    parser.add_argument("--items", type=int, default=20, help="local nodes a label")
    parser.add_argument("--batch", type=int, default=1_000, help="inputs fed at once")
    parser.add_argument("--budget", type=float, default=64, help="MB of memory for CMatch")
    parser.add_argument("--threads", type=int, default=1, help="probe threads")
    parser.add_argument("--axis", default="child")
    parser.add_argument("--scheme", default="path")
    parser.add_argument("--dir", help="where to build the index, and to spill")
    return parser.parse_args(argv)


# --- the corpus -----------------------------------------------------------------------------


def _build(path: Path, options: argparse.Namespace) -> None:
    document = _document(options.labels, options.items)
    reader = Reader(Vocabulary(), limits=LIMITS)
    scheme = scheme_of(options.scheme)
    labeller = Labeller([scheme], reader.vocabulary, ())
    starts, sizes = np.zeros(1, np.int64), np.array([len(document)], np.int64)
    source = Source("bench.xml", 0, len(document))
    context = Context(document=True)
    labeller.add(reader.read(document), starts, source, document, sizes, context)
    with Writer.create(path, schemes=[scheme], identity=[]) as writer:
        writer.append([labeller.finish()], check="off")


def _document(labels: int, items: int) -> bytes:
    random = np.random.default_rng(SEED)
    counts = random.integers(0, 4, (labels, items)).tolist()
    parts = ["<all>"]
    for label, row in enumerate(counts):
        inside = "".join(f"<item>{'<v/>' * count}</item>" for count in row)
        parts.append(f"<k{label}>{inside}</k{label}>")
    return "".join([*parts, "</all>"]).encode()


# --- the stream -----------------------------------------------------------------------------


class Sum:
    """How many pairs there were, and a sum over all of them that no order changes."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    def add(self, matches: Matches) -> None:
        mixed = matches.id.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= matches.start.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        self.count += len(matches)
        self.total = (self.total + int(mixed.sum(dtype=np.uint64))) % 2**64

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _batches(whole: Inputs, options: argparse.Namespace, first: int, last: int) -> Iterator[Inputs]:
    """Batches `first` to `last` of the stream, the same at every call."""
    for number in range(first, last):
        random = np.random.default_rng([SEED, number])
        rows = random.integers(0, len(whole), options.batch)
        batch = whole.take(rows)
        ids = np.arange(number * options.batch, (number + 1) * options.batch, dtype=np.int64)
        yield Inputs(
            ids, batch.segment, batch.start, batch.end, batch.level, batch.rank, batch.last
        )


def _stream(index: Index, options: argparse.Namespace) -> dict[str, object]:
    segment = index.segments[0]
    items = segment.descendants("item", [segment.low - 1], [segment.high]).right.start
    whole = Inputs.of(index, "item", options.scheme, items, items)
    count = max(2, options.anchors // options.batch)
    warm = max(1, count // 10)
    operator = CMatch(
        index,
        "v",
        options.axis,
        options.scheme,
        budget=int(options.budget * 2**20),
        threads=options.threads,
        place=options.dir,
    )
    mine, theirs = Sum(), Sum()
    with operator, ADMatch(index, "v", options.axis) as rival:
        first_match = _first_match(operator, next(_batches(whole, options, 0, 1)), mine)
        for batch in _batches(whole, options, 1, warm):
            mine.add(operator.feed(batch))
        mine.add(operator.drain())
        for batch in _batches(whole, options, 0, warm):
            theirs.add(rival.feed(batch))
        before, most = _resident(), 0.0
        ours = others = 0.0
        for batch in _batches(whole, options, warm, count):
            began = time.perf_counter()
            matches = operator.feed(batch)
            middle = time.perf_counter()
            rivals = rival.feed(batch)
            others += time.perf_counter() - middle
            ours += middle - began
            mine.add(matches)
            theirs.add(rivals)
            most = max(most, _resident() - before)
        mine.add(operator.drain())
        counters = operator.counters
    if mine != theirs:
        raise AssertionError("CMatch and ADMatch give other pairs")
    inputs = (count - warm) * options.batch
    return {
        "rss_growth_mb": most,
        "ns_per_input": ours / inputs * 1e9,
        "ad_ns_per_input": others / inputs * 1e9,
        "ad_ratio": others / ours,
        "first_match_ms": first_match * 1e3,
        "inputs": counters.inputs,
        "labels": counters.unique_labels,
        "index_scans": counters.index_scans,
        "pairs": mine.count,
        "batch": options.batch,
        "counters": counters.to_json(),
    }


def _first_match(operator: CMatch, batch: Inputs, found: Sum) -> float:
    """Seconds until a new operator gives its first pairs."""
    began = time.perf_counter()
    matches = operator.feed(batch)
    while not len(matches):
        if operator.counters.index_scans == operator.counters.unique_labels:
            matches = operator.drain()
            break
        time.sleep(0)
        matches = operator.poll()
    taken = time.perf_counter() - began
    found.add(matches)
    return taken


def _resident() -> float:
    """MB of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20
