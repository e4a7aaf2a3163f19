"""Operators and their rivals on one feed of anchors: hot in turns, and cold."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.pages import Cost, Pages, metered
from bench.rivals import DuckDb, Found, Numpy, Sqlite, fastest, ordered, same
from fmware.cmatch import ADMatch, Axis, CMatch
from fmware.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.rivals import Batch, Nodes
    from fmware.cmatch import Inputs, Operator

    Row = dict[str, Any]
    Maker = Callable[[Index], Operator]

__all__ = ["AT_ONCE", "STREAMED", "Feed", "cold", "cold_every_batch", "databases", "hot", "makers"]

AT_ONCE, STREAMED = "at once", "streamed"
ANCHORS = 100_000
SAMPLE = {"SQLite": 1000, "DuckDB": 40}
"""Batches that databases are asked, and anchors at once: they have no state, and all take long."""
ENOUGH_SECONDS = 1.0
"""A matcher that took so long in a case has had its rounds."""
_NOTHING = Found(*(np.empty(0, np.int64) for _ in range(4)))


@dataclass(slots=True)
class Feed:
    """The anchors of a query, cut into batches; by scheme, because labels come with them."""

    name: str
    nodes: int
    labelled: dict[str, list[Inputs]]
    plain: list[Batch]
    wanted: Found

    @classmethod
    def of(cls, name: str, labelled: Mapping[str, Inputs], size: int, join: Numpy) -> Feed:
        anchors = next(iter(labelled.values()))
        cuts = [slice(at, at + size) for at in range(0, len(anchors), size)]
        plain = [(anchors.id[cut], anchors.start[cut], anchors.end[cut]) for cut in cuts]
        batches = {scheme: [each.take(cut) for cut in cuts] for scheme, each in labelled.items()}
        whole = (anchors.id, anchors.start, anchors.end)
        return cls(name, len(anchors), batches, plain, ordered(join([whole])))

    def first(self, batches: int) -> Feed:
        """The same, without what comes behind so many batches."""
        plain = self.plain[:batches]
        ids = np.concatenate([batch[0] for batch in plain])
        own = np.isin(self.wanted.id, ids)
        labelled = {scheme: each[:batches] for scheme, each in self.labelled.items()}
        wanted = Found(*(column[own] for column in self.wanted))
        return Feed(self.name, len(ids), labelled, plain, wanted)

    def batches(self, matcher: str) -> list[Inputs]:
        """What a matcher is fed; ADMatch does not look at the SES labels."""
        scheme = matcher.split()[1] if matcher.startswith("CMatch") else next(iter(self.labelled))
        return self.labelled[scheme]

    def labels(self, matcher: str) -> int:
        """How many different SES labels a matcher is fed."""
        ranks = [each.rank for each in self.batches(matcher) if each.rank is not None]
        return len(np.unique(np.concatenate(ranks)))


def makers(tag: str, settings: Mapping[str, tuple[str, int, int]]) -> dict[str, Maker]:
    """ADMatch, and CMatch in each setting: the scheme, the budget, and how many threads probe."""
    found: dict[str, Maker] = {"ADMatch": lambda index: ADMatch(index, tag, Axis.DESCENDANT)}
    for name, (scheme, budget, threads) in settings.items():
        found[f"CMatch {name}"] = partial(_cmatch, tag, scheme, budget, threads)
    return found


def _cmatch(tag: str, scheme: str, budget: int, threads: int, index: Index) -> Operator:
    return CMatch(index, tag, Axis.DESCENDANT, scheme, budget=budget, threads=threads)


def _fed(operator: Operator, batches: Sequence[Inputs]) -> list[Found]:
    feed = operator.feed
    found = [feed(batch) for batch in batches]
    found.append(operator.drain())
    return [Found(part.id, part.start, part.end, part.level) for part in found if len(part)]


def _expect(name: str, found: Sequence[Found], wanted: Found) -> None:
    if not same(ordered([*found, _NOTHING]), wanted):
        raise AssertionError(f"{name} gives another answer than numpy")


# --- hot ------------------------------------------------------------------------------------


def hot(
    index: Index, matchers: Mapping[str, Maker], join: Numpy, feed: Feed, rounds: int
) -> dict[str, Row]:
    """All of them, and numpy, in turns. The first turn is checked in full.

    It is not timed, but for what takes so long that there is no second one.
    """
    # What is over too soon for the clock is done several times, each with an operator of its own.
    again = max(1, min(50, 1000 // feed.nodes))
    costs: dict[str, list[Cost]] = {name: [] for name in (*matchers, "numpy")}
    rows: dict[str, Row] = {}
    for turn in range(rounds + 1):
        for name, make in matchers.items():
            if sum(cost.wall for cost in costs[name]) > ENOUGH_SECONDS:
                continue
            made = [make(index) for _ in range(again)]
            with metered() as cost:
                found = [_fed(each, feed.batches(name)) for each in made]
            costs[name].append(cost)
            if turn == 0:
                _expect(name, found[0], feed.wanted)
                rows[name] = _counted(name, made[0], feed)
            for each in made:
                each.close()
        with metered() as cost:
            for _ in range(again):
                join(feed.plain)
        costs["numpy"].append(cost)
    nodes = feed.nodes * again
    return {name: _times(_best(each), nodes) | rows.get(name, {}) for name, each in costs.items()}


def _best(costs: Sequence[Cost]) -> Cost:
    # By the CPU: nothing waits for a disk here, and the wall clock tells more of other processes.
    return min(costs[1:] or costs, key=lambda cost: cost.cpu)


def _counted(name: str, operator: Operator, feed: Feed) -> Row:
    found = operator.counters
    row: Row = {"scans": found.index_scans or found.ad_probes, "pairs": found.pairs}
    if not isinstance(operator, CMatch):
        return row
    return row | {
        "labels": feed.labels(name),
        "candidates": found.candidates,
        "false_hits": found.false_hits,
        "spills": found.spills,
        "overflow_reads": found.overflow_reads,
        "peak_kb": round(found.peak_bytes / 1e3, 1),
    }


def _times(cost: Cost, nodes: int) -> Row:
    return {"us": cost.wall / nodes * 1e6, "cpu_us": cost.cpu / nodes * 1e6}


def databases(nodes: Nodes, feed: Feed) -> dict[str, Row]:
    """The fastest form of each database."""
    rows: dict[str, Row] = {}
    kinds: dict[str, type[Sqlite | DuckDb]] = {"SQLite": Sqlite, "DuckDB": DuckDb}
    for name, kind in kinds.items():
        batches = feed.plain[: SAMPLE[name]]
        if feed.name == AT_ONCE:
            ids, starts, ends = feed.plain[0]
            batches = [(ids[:ANCHORS], starts[:ANCHORS], ends[:ANCHORS])]
        with closing(kind(nodes)) as rival:
            forms = rival.at_once(batches[0]) if feed.name == AT_ONCE else rival.streamed()
            form, best = fastest(forms, batches, ordered([*Numpy(nodes)(batches)]))
            with metered() as cost:
                best(batches)
        number = sum(len(batch[0]) for batch in batches)
        rows[name] = _times(cost, number) | {"form": form}
    return rows


# --- cold -----------------------------------------------------------------------------------


def cold(
    path: Path, matchers: Mapping[str, Maker], feed: Feed, rounds: int, *, ahead: bool = False
) -> dict[str, Row]:
    """Each on an index that was just opened, of which no page is in memory; the best of rounds.

    ahead: the system reads ahead as of any file, as if the index did not know better.
    """
    return _cold(path, matchers, feed, rounds, _dropped_first, ahead=ahead)


def cold_every_batch(
    path: Path, matchers: Mapping[str, Maker], feed: Feed, batches: int
) -> dict[str, Row]:
    """The same, and pages are dropped again before each of so many batches."""
    return _cold(path, matchers, feed.first(batches), 1, _dropped_again)


def _cold(
    path: Path,
    matchers: Mapping[str, Maker],
    feed: Feed,
    rounds: int,
    run: Callable[[Pages, Operator, Sequence[Inputs]], tuple[Cost, list[Found]]],
    *,
    ahead: bool = False,
) -> dict[str, Row]:
    pages = Pages(path)
    taken: dict[str, list[Cost]] = {name: [] for name in matchers}
    for _ in range(rounds):
        for name, make in matchers.items():
            with Index.open(path) as index, closing(make(index)) as operator:
                if ahead:
                    pages.read_further()
                cost, found = run(pages, operator, feed.batches(name))
                _expect(name, found, feed.wanted)
                taken[name].append(cost)
    return {name: _least(costs, feed.nodes) for name, costs in taken.items()}


def _dropped_first(
    pages: Pages, operator: Operator, batches: Sequence[Inputs]
) -> tuple[Cost, list[Found]]:
    pages.drop()
    if pages.resident():
        raise AssertionError("pages of the index stayed in memory")
    with metered() as cost:
        found = _fed(operator, batches)
    return cost, found


def _dropped_again(
    pages: Pages, operator: Operator, batches: Sequence[Inputs]
) -> tuple[Cost, list[Found]]:
    total = Cost()
    found = []
    for batch in batches:
        pages.drop()
        with metered(collect=False) as cost:
            found += _fed(operator, [batch])
        total += cost
    return total, found


def _least(costs: Sequence[Cost], nodes: int) -> Row:
    # By the clock, as it is the disk that is waited for; what else the machine does only adds.
    least = min(costs, key=lambda cost: cost.wall)
    return _times(least, nodes) | {
        "major_faults": least.major,
        "read_mb": round(least.read / 1e6, 1),
        "nodes": nodes,
    }
