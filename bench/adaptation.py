"""Does the cost model choose well? Auto against every fixed operator, on workloads that are drawn.

All of a case is drawn from `--seed`: the corpus (how many anchors share a structure, how many
matches they have), the schemes of its index, the axis, how many inputs come, how many at once,
which anchors and how often. In each, ADMatch, CMatch under each scheme and `Adaptive` take turns on
the same batches, in an order that is drawn anew each time; all answers are checked to be the same.
`Adaptive` is told nothing of what comes. Times are of the CPU, the best of the rounds, without
making and closing an operator; what it takes to make one is `making_us`.

- `regret_median`, `regret_p90`: auto's time over that of the best fixed operator, less 1.
- `end_to_end_over_best`: the same for messages through `Middleware(operator="auto")`, a ratio, the
  median over corpora. Here the operators are made by the first message.
- `estimate_within_2x`: the share of estimates of fixed operators within a factor of two of what was
  measured; the estimates know how many inputs come, and how many at once.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fmware import Middleware
from fmware.cmatch import Adaptive, ADMatch, Axis, Choice, CMatch, Inputs, Workload, calibrate
from fmware.cmatch.heap import give_back
from fmware.corpus import build_index
from fmware.datasets.workloads import arrivals, corpus, drawn, logarithmic
from fmware.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fmware.cmatch import Matches, Operator, UnitCosts
    from fmware.datasets.workloads import Stock

    Row = dict[str, Any]

__all__ = ["run"]

SCHEMES = ("path", "vist", "prix")
AUTO = "auto"
INPUTS, BATCHES, MESSAGES = (256, 1 << 18), (1, 1 << 10), (100, 2000)
"""From how many to how many are drawn: inputs of a case, inputs at once, messages."""
MOST = 20_000
"""Batches of a case at most."""
SHORT = 0.005
"""Seconds: what is over sooner is done several times, each with its own operator."""
STEPS = {
    Axis.CHILD: "local:",
    Axis.DESCENDANT: "/local:",
    Axis.PARENT: "parent::local:",
    Axis.ANCESTOR: "ancestor::local:",
}


class Case(NamedTuple):
    """A stream of anchors for one join; its batches carry the labels of each scheme."""

    name: str
    anchors: str
    match: str
    axis: Axis
    batch: int
    batches: Mapping[str | None, Sequence[Inputs]]

    @property
    def inputs(self) -> int:
        return sum(map(len, self.batches[None]))


def run(argv: list[str]) -> dict[str, object]:
    """The bounds, then every case."""
    options = _options(argv)
    began = time.perf_counter()
    units = calibrate(options.dir)
    rows: dict[str, Row] = {}
    messages: dict[str, Row] = {}
    for number in range(options.corpora):
        rng = Random(f"{options.seed} {number}")
        with tempfile.TemporaryDirectory(prefix="fmware-bench-", dir=options.dir) as scratch:
            stock, path = _corpus(Path(scratch), rng)
            for each in range(options.cases):
                with Index.open(path) as index:
                    case = _case(index, stock, f"{number}.{each}", rng)
                    rows[case.name] = _measured(index, case, options.rounds, units, rng)
            messages[str(number)] = _end_to_end(path, stock, options.rounds // 2 + 1, rng)
    return {
        **_bounds(rows, messages),
        "seconds": time.perf_counter() - began,
        "units": units.to_json(),
        "cases": rows,
        "messages": messages,
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench adaptation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpora", type=int, default=10)
    parser.add_argument("--cases", type=int, default=3, help="of each corpus")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dir", help="where to build indexes; not a file system in memory")
    return parser.parse_args(argv)


# --- what is drawn --------------------------------------------------------------------------


def _corpus(folder: Path, rng: Random) -> tuple[Stock, Path]:
    stock = drawn(rng)
    (folder / "corpus.xml").write_bytes(b"".join(corpus(stock, seed=rng.randrange(1 << 30))))
    build_index(
        [folder / "corpus.xml"],
        folder / "index",
        record=stock.record,
        identity=[f"{stock.anchor}=@k"],
        schemes=[each for each in SCHEMES if rng.random() < 0.6] or [rng.choice(SCHEMES)],
        calibrate=False,
    )
    return stock, folder / "index"


def _case(index: Index, stock: Stock, name: str, rng: Random) -> Case:
    axis = rng.choice([*Axis])
    tags = [stock.anchor, stock.match]
    if not axis.downwards and axis is not Axis.SELF and not stock.nested:
        tags.reverse()
    anchors, match = tags[0], tags[0] if axis is Axis.SELF else tags[1]
    (segment,) = index.segments
    starts = segment.descendants(anchors, [segment.low - 1], [segment.high]).right.start
    batch = logarithmic(rng, *BATCHES)
    inputs = min(logarithmic(rng, *INPUTS), MOST * batch)
    rows = arrivals(rng, len(starts), inputs)
    batches: dict[str | None, Sequence[Inputs]] = {}
    for scheme in (None, *index.schemes):
        whole = Inputs.of(index, anchors, scheme, np.arange(inputs), starts[rows])
        batches[scheme] = [whole.take(slice(at, at + batch)) for at in range(0, inputs, batch)]
    name = f"{name}: {inputs} {anchors}/{axis.value}::{match}, {batch} at once"
    return Case(name, anchors, match, axis, batch, batches)


# --- what is measured -----------------------------------------------------------------------


def _makers(index: Index, case: Case, units: UnitCosts) -> dict[str, Callable[[], Operator]]:
    about = index, case.match, case.axis
    return {
        "admatch": partial(ADMatch, *about),
        **{
            f"cmatch/{scheme}": partial(CMatch, *about, scheme, threads=0)
            for scheme in index.schemes
        },
        AUTO: partial(Adaptive, *about, anchors=case.anchors, units=units),
    }


def fed(operator: Operator, case: Case, keep: Callable[[Matches], None]) -> None:
    """Feed all batches, with the labels that are needed."""
    at, number = 0, len(case.batches[None])
    while at < number:
        needs, feed = operator.needs, operator.feed
        for batch in case.batches[needs][at:] if at else case.batches[needs]:
            keep(feed(batch))
            at += 1
            if operator.feed is not feed:
                feed = operator.feed
                if operator.needs is not needs:
                    break
    keep(operator.drain())


def _turn(make: Callable[[], Operator], case: Case, again: int) -> float:
    """CPU seconds of one run of a case."""
    made = [make() for _ in range(again)]
    found: deque[Matches] = deque(maxlen=1)
    gc.collect()
    # What is held for long lies in memory that nothing has lain in before.
    give_back()
    gc.disable()
    began = time.process_time_ns()
    for operator in made:
        fed(operator, case, found.append)
    taken = (time.process_time_ns() - began) / 1e9
    gc.enable()
    for operator in made:
        operator.close()
    return taken / again


def _measured(index: Index, case: Case, rounds: int, units: UnitCosts, rng: Random) -> Row:
    makers = _makers(index, case, units)
    row = _checked(makers, case)
    again = {}
    for name, make in makers.items():
        again[name] = min(max(int(SHORT / max(_turn(make, case, 1), 1e-6)), 1), 50)
    taken = dict.fromkeys(makers, float("inf"))
    for _ in range(rounds):
        for name in rng.sample([*makers], len(makers)):
            taken[name] = min(taken[name], _turn(makers[name], case, again[name]))
    fixed = {name: seconds for name, seconds in taken.items() if name != AUTO}
    best = min(fixed, key=lambda name: fixed[name])
    each = case.inputs / 1e6
    load = Workload(case.inputs, case.batch)
    with Adaptive(
        index, case.match, case.axis, anchors=case.anchors, units=units, workload=load
    ) as operator:
        told = {name: operator.model.cost(Choice.parse(name), load).total for name in fixed}
    return {
        "regret": taken[AUTO] / fixed[best] - 1,
        "best": best,
        **row,
        "us": {name: seconds / each for name, seconds in taken.items()},
        "estimated_us": {name: seconds * 1e6 for name, seconds in told.items()},
    }


def _checked(makers: Mapping[str, Callable[[], Operator]], case: Case) -> Row:
    """Run all once, and compare their answers; says what auto did."""
    answers: dict[str, tuple[int, int]] = {}
    row: Row = {}
    for name, make in makers.items():
        found: list[Matches] = []
        began = time.process_time_ns()
        operator = make()
        making = (time.process_time_ns() - began) / 1e3
        fed(operator, case, found.append)
        keys = np.concatenate([(each.id << 32) ^ each.start for each in found])
        answers[name] = len(keys), int(np.bitwise_xor.reduce(keys * 0x9E3779B97F4A7C1))
        if isinstance(operator, Adaptive):
            looks = operator.looks
            row = {
                "chosen": str(looks[0].before if looks else operator.choice),
                "ended": str(operator.choice),
                "switches": [each.to_json() for each in operator.switches],
                "looks": len(looks),
                "deferred": operator.counters.deferred,
                "making_us": making,
            }
        operator.close()
    if len({*answers.values()}) > 1:
        raise AssertionError(f"{case.name}: answers differ: {answers}")
    return row


def _end_to_end(path: Path, stock: Stock, rounds: int, rng: Random) -> Row:
    """Messages through middlewares with each operator, in turns; each with one of its own."""
    axis = rng.choice([*STEPS] if stock.nested else [Axis.CHILD, Axis.DESCENDANT])
    match = stock.anchor if axis in (Axis.PARENT, Axis.ANCESTOR) else stock.match
    text = f"//{stock.anchor}/{STEPS[axis]}{match}"
    number, size = logarithmic(rng, *MESSAGES), logarithmic(rng, 1, 32)
    anchors = sum(kind.size for kind in stock.kinds)
    with Index.open(path) as index:
        anchors = anchors or sum(each.count(stock.anchor) for each in index.segments)
        schemes = [*index.schemes]
    rows = arrivals(rng, anchors, number * size).reshape(number, size)
    messages = [
        b"<m>%s</m>" % b"".join(b'<%s k="%d"/>' % (stock.anchor.encode(), each) for each in row)
        for row in rows.tolist()
    ]
    ways: dict[str, dict[str, Any]] = {"admatch": {"operator": "admatch"}, AUTO: {}}
    ways |= {f"cmatch/{scheme}": {"scheme": scheme} for scheme in schemes}
    taken = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name in rng.sample([*ways], len(ways)):
            taken[name] = min(taken[name], _published(path, text, messages, ways[name]))
    fixed = {name: seconds for name, seconds in taken.items() if name != AUTO}
    best = min(fixed, key=lambda name: fixed[name])
    return {
        "statement": text,
        "messages": number,
        "anchors_each": size,
        "best": best,
        "over_best": taken[AUTO] / fixed[best],
        "us": {name: seconds / number * 1e6 for name, seconds in taken.items()},
    }


def _published(path: Path, text: str, messages: Sequence[bytes], way: Mapping[str, Any]) -> float:
    with Middleware(path, **way) as middleware:
        middleware.subscribe(text)
        gc.collect()
        began = time.process_time_ns()
        for low in range(0, len(messages), 16):
            middleware.publish_batch(messages[low : low + 16])
        return (time.process_time_ns() - began) / 1e9


# --- what follows ---------------------------------------------------------------------------


def _bounds(rows: Mapping[str, Row], messages: Mapping[str, Row]) -> dict[str, object]:
    regrets = [row["regret"] for row in rows.values()]
    ratios = [
        row["us"][name] / told
        for row in rows.values()
        for name, told in row["estimated_us"].items()
    ]
    return {
        "regret_median": float(np.median(regrets)),
        "regret_p90": float(np.quantile(regrets, 0.9)),
        "regret_worst": max(regrets),
        "end_to_end_over_best": float(np.median([each["over_best"] for each in messages.values()])),
        "estimate_within_2x": sum(0.5 <= each <= 2 for each in ratios) / len(ratios),
        "making_us": float(np.median([row["making_us"] for row in rows.values()])),
        "worst": [
            f"{name}: {row['regret']:.0%} over {row['best']}, chose {row['chosen']}, "
            f"ended with {row['ended']}"
            for name, row in sorted(rows.items(), key=lambda each: -each[1]["regret"])[:6]
        ],
    }
