"""Does the cost model choose well? Adaptive against every fixed choice, and estimates against both.

Cases are the six matching queries of `bench mq`, at several scales, hot and cold, with hash tables
as scarce and as ample as the paper's; and streams that mix clusters of all sizes, skewed and
drifting (`datasets.workloads`). In each, ADMatch, CMatch under each scheme and Adaptive take turns
on the same batches, in an order that is drawn anew each time; all answers are checked to be the
same. Adaptive is told nothing of what comes. All probe in the caller's thread. Inputs are put at
several places in memory: where they lie makes some percent of difference, and they are others for
each scheme. Memory that is free is given back before each turn, because what an operator holds for
long lies in memory that nothing has lain in before. Times are of the CPU, at each place the best of
the rounds, and of places the median; so it is with what one takes over another. Cold, it is the
best of all, and a wait for the disk is added for each major fault, as long as such a wait was when
unit costs were measured. Making and closing an operator is not in them.

- `regret`: Adaptive's time over that of the best fixed choice, less 1. Which is the best at a
  place, the other places say: else it would be whichever of several that are alike had most luck.
- `estimate_within_2x`: the share of estimates, of fixed choices, within a factor of two of what was
  measured; the estimates know how many inputs come, and how many at once.
- `per_input_worst`: Adaptive over the best fixed choice, where inputs are streamed and hot.
- `mixed_gain`: the best fixed choice over Adaptive, the least of the mixed streams.
- `noise`: the best fixed choice runs as two, in turns like the others; what these differ by, nobody
  is to blame for. There are more places until that is little, or they were many.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections import deque
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.mq import BATCH, BUDGETS, SCALES, SCHEMES, SEED, _build, _inputs, _write
from bench.pages import Pages, metered
from bench.turns import ADAPTIVE, ENOUGH_SECONDS, FIXED, NAMES, Case, Turns, by_need, fed, make
from cmatch import (
    Adaptive,
    Axis,
    CostModel,
    Inputs,
    Matches,
    Profile,
    Workload,
    calibrate,
)
from datasets.matching import MATCHING_QUERIES, MatchingQuery
from datasets.workloads import STOCKS, STREAMS, Stock, Stream, corpus
from fmware.corpus import build_index
from index import Index

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cmatch import UnitCosts

    Row = dict[str, Any]

__all__ = ["run"]

AT_ONCE, STREAMED, COLD = "at once", "streamed", "cold streamed"
AMPLE = 64 << 20
SHORT_SECONDS, MORE = 0.02, 6
"""A case of which the first turn of each choice takes less has so many times as many rounds."""
LOST = 0.25
"""Adaptive's regret from which a case is told of."""


def run(argv: list[str]) -> dict[str, object]:
    """The bounds, then every case."""
    options = _options(argv)
    began = time.perf_counter()
    units = calibrate(options.dir)
    rows: dict[str, Row] = {}
    for scale in options.scales:
        with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
            rows |= _queries(Path(scratch), scale, options, units)
    if not options.no_streams:
        with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
            rows |= _streams(Path(scratch), options, units)
    return {
        **_bounds(rows),
        "seconds": time.perf_counter() - began,
        "units": units.to_json(),
        "rows": rows,
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench adaptation", description=__doc__)
    parser.add_argument("--scales", type=int, nargs="*", default=SCALES)
    known = [query.name for query in MATCHING_QUERIES]
    parser.add_argument("--queries", nargs="+", default=known, choices=known)
    parser.add_argument("--streams", nargs="+", help="only those whose name contains one of these")
    parser.add_argument("--no-streams", action="store_true", help="the six queries alone")
    parser.add_argument("--rounds", type=int, default=7, help="of hot runs; large ones take fewer")
    parser.add_argument("--cold-rounds", type=int, default=5, help="0: hot alone")
    parser.add_argument("--batches", type=int, default=10_000, help="at most so many of a query")
    parser.add_argument("--cold-batches", type=int, default=500)
    parser.add_argument("--stream-batches", type=int, default=6_000)
    parser.add_argument("--around", type=int, default=2_000_000, help="bytes of the bibliography")
    parser.add_argument("--smaller", type=int, default=1, help="divides what streams come from")
    parser.add_argument("--dir", help="where to build indexes; not a file system in memory")
    return parser.parse_args(argv)


# --- cases ----------------------------------------------------------------------------------


def _queries(
    folder: Path, scale: int, options: argparse.Namespace, units: UnitCosts
) -> dict[str, Row]:
    queries = [each.scaled(scale) for each in MATCHING_QUERIES if each.name in options.queries]
    path = _build(folder, queries, options.around)
    rows: dict[str, Row] = {}
    for query in queries:
        with Index.open(path) as index:
            cases = [*_cases(index, query, scale, options)]
        rows |= _measured(path, cases, options, units)
    return rows


def _cases(
    index: Index, query: MatchingQuery, scale: int, options: argparse.Namespace
) -> Iterator[Case]:
    labelled = _inputs(index, query)
    number = len(labelled[SCHEMES[0]])
    streamed = _cut(labelled, BATCH, options.batches)
    at_once = {scheme: [each] for scheme, each in labelled.items()}
    states: dict[str, Mapping[str, Sequence[Inputs]]]
    states = {STREAMED: streamed, AT_ONCE: at_once, COLD: streamed}
    budgets = [int(size * 1e6 * scale) for size in BUDGETS[query.name]]
    for memory, budget in zip(("constrained", "ample"), budgets, strict=True):
        for state, batches in states.items():
            if state == AT_ONCE and number <= BATCH:
                continue
            yield Case(
                f"{query.name} x{scale} {memory} {state}",
                state,
                query.match,
                Axis.DESCENDANT,
                query.anchor,
                budget,
                batches,
            )


def _cut(labelled: Mapping[str, Inputs], size: int, most: int) -> dict[str, Sequence[Inputs]]:
    return {
        scheme: [each.take(slice(at, at + size)) for at in range(0, len(each), size)][:most]
        for scheme, each in labelled.items()
    }


def _streams(folder: Path, options: argparse.Namespace, units: UnitCosts) -> dict[str, Row]:
    stocks = {stock.name: stock.smaller(options.smaller) for stock in STOCKS}
    _write(folder / "corpus.xml", corpus(stocks.values(), seed=SEED))
    build_index(
        [folder / "corpus.xml"],
        folder / "index",
        record=[stock.record for stock in stocks.values()],
        schemes=SCHEMES,
    )
    wanted = [each for each in STREAMS if _asked(each, options.streams)]
    rows: dict[str, Row] = {}
    for stream in wanted:
        with Index.open(folder / "index") as index:
            case = _stream(index, stream, stocks[stream.stock], options)
        rows |= _measured(folder / "index", [case], options, units)
    return rows


def _asked(stream: Stream, names: Sequence[str] | None) -> bool:
    return names is None or any(name in stream.name for name in names)


def _stream(index: Index, stream: Stream, stock: Stock, options: argparse.Namespace) -> Case:
    (segment,) = index.segments
    starts = segment.descendants(stock.anchor, [segment.low - 1], [segment.high]).right.start
    batches = stream.batches(stock, options.stream_batches, BATCH, len(starts), SEED)
    rows = np.concatenate(batches)
    ids = np.arange(len(rows))
    labelled = {
        scheme: Inputs.of(index, stock.anchor, scheme, ids, starts[rows]) for scheme in SCHEMES
    }
    return Case(
        stream.name,
        STREAMED,
        stock.match,
        Axis(stream.axis),
        stock.anchor,
        AMPLE,
        _cut(labelled, BATCH, len(batches)),
        stream.mixed,
    )


# --- what is measured -----------------------------------------------------------------------


def _measured(
    path: Path, cases: Sequence[Case], options: argparse.Namespace, units: UnitCosts
) -> dict[str, Row]:
    # Batches are many objects, which no collection between the turns needs to walk.
    gc.collect()
    gc.freeze()
    rows = {}
    for case in cases:
        if case.state == COLD:
            if options.cold_rounds:
                rows[case.name] = _cold(path, case, options, units)
        else:
            rows[case.name] = _hot(path, case, options.rounds, units)
    gc.unfreeze()
    return rows


def _hot(path: Path, case: Case, rounds: int, units: UnitCosts) -> Row:
    row: Row = {"inputs": case.inputs}
    with Index.open(path) as index:
        turns = Turns(case, index, units)
        answers, first = {}, {}
        for name in NAMES:
            found: deque[Matches] = deque()
            operator, first[name] = turns.one(name, found)
            answers[name] = _checksum([*found])
            if isinstance(operator, Adaptive):
                row |= _told(operator)
        if len(set(answers.values())) > 1:
            raise AssertionError(f"{case.name}: answers differ: {answers}")
        # The first turn of all finds the pages of the index out of reach.
        slow = {name for name in NAMES if first[name] > ENOUGH_SECONDS}
        turns.at_places = {name: [first[name]] for name in slow}
        short = max(first.values()) * turns.again < SHORT_SECONDS
        turns.take([name for name in NAMES if name not in slow], rounds * MORE if short else rounds)
        final = turns.final(rounds * MORE if short else rounds)
        row |= _judged(case, turns.taken, index, units)
        return row | {"regret": final.over - 1, "noise": final.noise}


def _cold(path: Path, case: Case, options: argparse.Namespace, units: UnitCosts) -> Row:
    labelled = case.first(options.cold_batches)
    feed = by_need(labelled)
    some = Case(
        case.name, COLD, case.match, case.axis, case.anchors, case.budget, labelled, case.mixed
    )
    pages = Pages(path)
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    row: Row = {"inputs": some.inputs}
    # Hot runs before have pages in use that cannot be dropped; whoever is first lets go of them.
    turns = [*NAMES[:1], *(options.cold_rounds * NAMES)]
    for name in turns:
        with (
            Index.open(path) as index,
            closing(make(some, name, index, units)) as operator,
        ):
            # Whoever was before must not hold pages any more.
            gc.collect()
            # Adaptive has read the lists of labels when it was made; so all have.
            Profile.of(index, some.anchors, some.match, some.axis)
            pages.drop()
            last: deque[Matches] = deque(maxlen=1)
            with metered() as cost:
                fed(operator, feed, last.append)
            # The clock would tell more of other processes.
            taken[name].append(cost.cpu + cost.major * units.fault)
            if isinstance(operator, Adaptive):
                row |= _told(operator)
    with Index.open(path) as index:
        taken[NAMES[0]].pop(0)
        best = {name: min(each) for name, each in taken.items()}
        return row | _judged(some, best, index, units)


def _checksum(found: Sequence[Matches]) -> tuple[int, int]:
    """Of pairs in any order: how many there are, and a sum that hangs on each of them."""
    pairs = Matches.joined(found)
    mixed = pairs.id.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= pairs.start.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed *= mixed >> np.uint64(29)
    return len(pairs), int(mixed.sum(dtype=np.uint64))


def _told(operator: Adaptive) -> Row:
    counters = operator.counters
    return {
        "chosen": str(operator.switches[0].before if operator.switches else operator.choice),
        "choice": str(operator.choice),
        "switches": [each.to_json() for each in operator.switches],
        "scans": counters.index_scans,
        "aside": getattr(counters, "aside", 0),
    }


def _judged(case: Case, taken: Mapping[str, float], index: Index, units: UnitCosts) -> Row:
    """Regret, and estimates beside what was measured; microseconds an input."""
    profile = Profile.of(index, case.anchors, case.match, case.axis)
    batches = case.labelled[SCHEMES[0]]
    load = Workload(
        case.inputs,
        len(batches[0]),
        once=case.inputs <= profile.anchors,
        cold=case.state == COLD,
    )
    model = CostModel(units, case.budget)
    estimates = {str(each): cost for each, cost in model.estimate(profile, load, FIXED).items()}
    fixed = {name: each for name, each in taken.items() if name != ADAPTIVE}
    best = min(fixed, key=lambda name: fixed[name])
    scale = 1e6 / case.inputs
    return {
        "state": case.state,
        "mixed": case.mixed,
        "best": best,
        "regret": taken[ADAPTIVE] / fixed[best] - 1,
        "us": {name: each * scale for name, each in taken.items()},
        "estimated_us": {name: cost.total * scale for name, cost in estimates.items()},
        "estimates": {name: estimates[name].total / each for name, each in fixed.items()},
    }


# --- the bounds -----------------------------------------------------------------------------


def _bounds(rows: Mapping[str, Row]) -> dict[str, object]:
    regrets = sorted((row["regret"], name) for name, row in rows.items())
    ratios = [ratio for row in rows.values() for ratio in row["estimates"].values()]
    within = [0.5 <= ratio <= 2 for ratio in ratios]
    streamed = {name: row["regret"] + 1 for name, row in rows.items() if row["state"] == STREAMED}
    gains = {name: 1 / (row["regret"] + 1) for name, row in rows.items() if row["mixed"]}
    only = np.array([regret for regret, _ in regrets])
    return {
        "cases": len(rows),
        "regret_median": float(np.median(only)) if len(only) else None,
        "regret_p95": float(np.quantile(only, 0.95)) if len(only) else None,
        "regret_by_state": {
            state: _quantiles([row["regret"] for row in rows.values() if row["state"] == state])
            for state in (STREAMED, AT_ONCE, COLD)
        },
        "noise": _quantiles([row["noise"] for row in rows.values() if "noise" in row]),
        "estimate_within_2x": sum(within) / len(within) if within else None,
        "estimate_by_choice": {
            str(choice): _share([row["estimates"][str(choice)] for row in rows.values()])
            for choice in FIXED
        },
        "per_input_worst": max(streamed.values(), default=None),
        "mixed_gain": min(gains.values(), default=None),
        "mixed_gains": gains,
        "notes": [
            f"{name}: {regret:.0%} over {rows[name]['best']}, chose {rows[name]['chosen']}, "
            f"ended with {rows[name]['choice']}"
            for regret, name in reversed(regrets)
            if regret > LOST
        ],
    }


def _quantiles(regrets: Sequence[float]) -> dict[str, float]:
    if not regrets:
        return {}
    return {
        "median": float(np.median(regrets)),
        "p95": float(np.quantile(regrets, 0.95)),
        "worst": max(regrets),
    }


def _share(ratios: Sequence[float]) -> float:
    return sum(0.5 <= ratio <= 2 for ratio in ratios) / len(ratios) if ratios else 1.0
