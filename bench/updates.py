"""Subscribing and unsubscribing while documents are filtered; every answer is checked.

100,000 statements stay, a window of others moves: one comes at its end, one goes at its beginning,
10,000 calls a second. The same threads filter the same documents without updates before and after,
which gives `throughput_ratio`.

An answer is right if of those that stay it has exactly the ones computed beforehand, of those that
move all that match and were there from the call to the return, and none that does not match or was
not there in between. `wrong_answers` counts the documents of which that is not so.

The same is done with statements that branch (keys that begin with `branching_`) and with statements
that ask for the value of an attribute of the root (`keyed_`), some of them of values that occur.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.branching import branching_statements
from fmware import FilterEngine
from fmware.datasets import load_dtd, news_documents, queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["run"]

BATCH = 20
KINDS = ("plain", "branching", "keyed")


def run(argv: list[str]) -> dict[str, object]:
    """Updates and documents a second, side by side, and how many answers were wrong."""
    options = _options(argv)
    result: dict[str, object] = {"statements": options.statements, "threads": options.threads}
    for kind in options.kinds:
        begin = "" if kind == "plain" else f"{kind}_"
        result |= {begin + key: value for key, value in _figures(options, kind).items()}
    return result


def _figures(options: argparse.Namespace, kind: str) -> dict[str, object]:
    stage = _Stage(options, kind)
    quiet = [stage.filter_for(options.quiet)]
    updater = _Updater(stage.engine, stage.moving, options.rate, options.window)
    flushes = stage.engine.stats()["flushes"]
    busy = stage.filter_for(options.seconds, updater)
    flushes = stage.engine.stats()["flushes"] - flushes
    updater.clear()
    quiet.append(stage.filter_for(options.quiet))
    before = _rate(quiet)
    taken = np.array(updater.taken[BATCH:] or [0]) / 1e3
    return {
        "updates": updater.done,
        "updates_per_second": updater.done / busy.seconds,
        "documents_per_second": _rate([busy]),
        "documents_per_second_without_updates": before,
        "throughput_ratio": _rate([busy]) / before,
        "documents_checked": sum(len(each.answers) for each in (*quiet, busy)),
        "changed_answers": sum(len(answer.moving) for answer in busy.answers),
        "wrong_answers": sum(map(stage.wrong, quiet)) + stage.wrong(busy, updater),
        "update_us_p50": float(np.percentile(taken, 50)),
        "update_us_p99": float(np.percentile(taken, 99)),
        "dfa_flushes": flushes,
    }


def _statements(kind: str, count: int, seed: int) -> Iterator[str]:
    if kind == "branching":
        return islice(branching_statements(seed), count)
    if kind == "keyed":
        numbers = [*range(count)]
        Random(seed).shuffle(numbers)
        return (f"/news[@serial = 'news-{number}']" for number in numbers)
    return queries(load_dtd("news"), count, seed=seed)


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench updates", description=__doc__)
    parser.add_argument("--statements", type=int, default=100_000, help="how many stay")
    parser.add_argument("--moving", type=int, default=10_000, help="how many take turns")
    parser.add_argument("--window", type=int, default=1_000, help="how many of those are there")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="how many threads filter")
    parser.add_argument("--rate", type=int, default=10_500, help="updates a second to ask for")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long, with updates")
    parser.add_argument("--quiet", type=float, default=3.0, help="how long, twice, without")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    return parser.parse_args(argv)


@dataclass(slots=True)
class _Answer:
    """What one document was told, and when."""

    document: int
    called: int
    returned: int
    staying: tuple[int, int]
    moving: npt.NDArray[np.int32]


@dataclass
class _Phase:
    seconds: float = 0.0
    answers: list[_Answer] = field(default_factory=list)


def _rate(phases: Sequence[_Phase]) -> float:
    return sum(len(each.answers) for each in phases) / sum(each.seconds for each in phases)


class _Stage:
    """The statements that stay, the documents, and what they are to be answered."""

    def __init__(self, options: argparse.Namespace, kind: str) -> None:
        made = _statements(kind, options.statements + options.moving, options.seed)
        self.threads: int = options.threads
        drawn = news_documents(options.documents, seed=options.seed)
        # Each gets a key of its own, which some statements ask for.
        self.documents = [
            re.sub(rb' serial="[^"]*"', b' serial="news-%d"' % number, body, count=1)
            for number, body in enumerate(drawn)
        ]
        self.engine = FilterEngine()
        self.engine.subscribe_many(islice(made, options.statements))
        self.staying = len(self.engine)
        self.moving = list(made)
        # The sum of random weights stands for a set of ids, at the price of a look-up.
        random = np.random.default_rng(options.seed)
        self.weights = random.integers(0, 2**63, self.staying, dtype=np.uint64)
        self.expected = [self._told(index)[0] for index in range(len(self.documents))]
        self.matches = self._moving_matches()

    def _moving_matches(self) -> npt.NDArray[np.bool_]:
        engine = FilterEngine()
        engine.subscribe_many(self.moving)
        found = np.zeros((len(self.documents), len(self.moving)), np.bool_)
        for index, document in enumerate(self.documents):
            found[index, engine.filter(document).ids] = True
        return found

    def _told(self, index: int) -> tuple[tuple[int, int], npt.NDArray[np.int32]]:
        ids = self.engine.filter(self.documents[index]).ids
        stays = ids < self.staying
        staying = ids[stays]
        return (len(staying), int(self.weights[staying].sum())), ids[~stays]

    def filter_for(self, seconds: float, updater: _Updater | None = None) -> _Phase:
        """Filter in threads, and meanwhile let the updater work."""
        phase = _Phase()
        end = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=self._filter, args=[phase, first, end])
            for first in range(self.threads)
        ]
        if updater is not None:
            threads.append(threading.Thread(target=updater.work, args=[end]))
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        phase.seconds = time.perf_counter() - begin
        return phase

    def _filter(self, phase: _Phase, first: int, end: float) -> None:
        for turn in count(first):
            if time.perf_counter() >= end:
                return
            index = turn % len(self.documents)
            called = time.perf_counter_ns()
            staying, moving = self._told(index)
            phase.answers.append(_Answer(index, called, time.perf_counter_ns(), staying, moving))

    def wrong(self, phase: _Phase, updater: _Updater | None = None) -> int:
        """How many documents were answered wrongly."""
        history = updater.history() if updater is not None else None
        return sum(
            answer.staying != self.expected[answer.document] or not self._right(answer, history)
            for answer in phase.answers
        )

    def _right(self, answer: _Answer, history: dict[str, Ints] | None) -> bool:
        if history is None:
            return len(answer.moving) == 0
        matches = self.matches[answer.document]
        # Statements go in the order in which they came, so those of a moment are a slice.
        sure = slice(
            np.searchsorted(history["leaving"], answer.returned),
            np.searchsorted(history["came"], answer.called),
        )
        maybe = slice(
            np.searchsorted(history["left"], answer.called),
            np.searchsorted(history["coming"], answer.returned),
        )
        told = set(answer.moving.tolist())
        must = history["id"][sure][matches[history["statement"][sure]]]
        may = history["id"][maybe][matches[history["statement"][maybe]]]
        return len(told) == len(answer.moving) and set(must.tolist()) <= told <= set(may.tolist())


class _Updater:
    """Moves the window over the statements, call by call, and keeps a diary."""

    def __init__(
        self, engine: FilterEngine, statements: Sequence[str], rate: int, window: int
    ) -> None:
        self.engine = engine
        self.statements = statements
        self.rate = rate
        self.window = window
        self.done = 0
        self.taken: list[int] = []
        self._came: list[tuple[int, int, int, int]] = []
        self._left: list[tuple[int, int]] = []

    def work(self, end: float) -> None:
        """As many calls as the rate asks for, in small batches, until the end."""
        begin = time.perf_counter()
        while (now := time.perf_counter()) < end:
            due = int((now - begin) * self.rate)
            if self.done >= due:
                time.sleep(BATCH / self.rate)
                continue
            for _ in range(min(BATCH, due - self.done)):
                self._update()

    def _update(self) -> None:
        if len(self._came) - len(self._left) < self.window:
            self._subscribe()
        else:
            self._unsubscribe()
        self.done += 1

    def _subscribe(self) -> None:
        statement = len(self._came) % len(self.statements)
        begin = time.perf_counter_ns()
        number = self.engine.subscribe(self.statements[statement])
        end = time.perf_counter_ns()
        self.taken.append(end - begin)
        self._came.append((number, statement, begin, end))

    def _unsubscribe(self) -> None:
        number = self._came[len(self._left)][0]
        begin = time.perf_counter_ns()
        self.engine.unsubscribe(number)
        end = time.perf_counter_ns()
        self.taken.append(end - begin)
        self._left.append((begin, end))

    def clear(self) -> None:
        """Take the rest of the window out."""
        while len(self._left) < len(self._came):
            self._unsubscribe()

    def history(self) -> dict[str, Ints]:
        """Ids and statements with the times around their coming and their going."""
        came: Any = np.array(self._came, np.int64).reshape(-1, 4)
        left: Any = np.array(self._left, np.int64).reshape(-1, 2)
        return {
            "id": came[:, 0],
            "statement": came[:, 1],
            "coming": came[:, 2],
            "came": came[:, 3],
            "leaving": left[:, 0],
            "left": left[:, 1],
        }
