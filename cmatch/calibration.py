"""Unit costs, measured on this machine with the operators as they are.

A small index is built in a temporary folder (`cmatch.specimen`). Operators are fed from it in
batches of several sizes, and the unit costs are those that explain best, relative to its size, what
each of them took. What a cold page costs is found out in `cmatch.pages`.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cmatch.admatch import ADMatch
from cmatch.cclean import BUDGET
from cmatch.cmatch import CMatch
from cmatch.heap import give_back
from cmatch.inputs import Inputs
from cmatch.model import (
    LABEL_ROW,
    LIST_HEAD,
    LIST_ROW,
    POSTING,
    ad_doublings,
    far_labels,
    list_doublings,
    remote_rows,
)
from cmatch.pages import pages
from cmatch.policy import NEVER
from cmatch.specimen import (
    ALIKE,
    DEEP,
    EACH_ONE,
    FEW_HITS,
    MANY_CANDIDATES,
    MANY_LABELS,
    MANY_LISTS,
    MANY_PAIRS,
    SCATTERED,
    SCHEME,
    UNORDERED,
    VERY_MANY_LABELS,
    build,
)
from cmatch.units import FILE, UnitCosts, fingerprint, load_units
from index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from cmatch.operator import Operator
    from cmatch.specimen import Kind

    Int64s = npt.NDArray[np.int64]

__all__ = ["calibrate", "calibrated"]

ROUNDS = 9
SEGMENTS = 4
AGAIN = 4
STREAM, FAR_STREAM = 64, 1024
"""Batches of which a stream consists; and one that goes all over a list that caches do not hold."""
SEED = 1
OF_ADMATCH = ("ad_call", "ad_input", "ad_step", "ad_far", "ad_hit", "ad_pair")
OF_CMATCH = (
    "start",
    "call",
    "input",
    "step",
    "hit",
    "visit",
    "pair",
    "answer",
    "fresh_call",
    "scan",
    "label",
    "label_step",
    "label_far",
    "list",
    "candidate",
    "climb",
    "candidate_step",
)
"""Unit costs that are found out together."""


def calibrated(folder: str | Path, *, again: bool = False) -> UnitCosts:
    """The unit costs of an index: those it keeps if they are of this machine, or new ones.

    With `again`, new ones in any case; what it keeps stays until they are there.
    """
    path = Path(folder)
    found = None if again else load_units(path)
    if found is None:
        found = calibrate(path)
        _keep(path, found)
    return found


def _keep(folder: Path, units: UnitCosts) -> None:
    text = json.dumps(units.to_json(), indent=1) + "\n"
    handle, name = tempfile.mkstemp(prefix=FILE, dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(folder / FILE)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def calibrate(place: str | Path | None = None) -> UnitCosts:
    """Measure; takes some seconds. `place` is a folder on the disk that matters."""
    with tempfile.TemporaryDirectory(prefix="fmware-units-", dir=place) as scratch:
        folder = Path(scratch)
        found = pages(folder)
        build(folder / "index")
        build(folder / "segments", [[ALIKE]] * SEGMENTS)
        with (
            Index.open(folder / "index") as index,
            Index.open(folder / "segments") as segments,
            _quiet(),
        ):
            questions = [
                _ad_match(index),
                _cmatch(index),
                _spilling(index, folder),
                _setting_aside(index),
                _further_segment(segments),
            ]
            # All in turns: what one costs beside another is what choices hang on, and a machine
            # that is busy while all of one is measured would make it look dear.
            taken = iter(_seconds([trial for each in questions for trial in each.trials]))
            for each in questions:
                found |= each.answer([next(taken) for _ in each.trials], found)
    return UnitCosts(**found, machine=fingerprint())


# --- what is measured -----------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _batches(index: Index, kind: Kind, rows: Int64s, size: int) -> list[Inputs]:
    """Anchors of a kind by their rows, in batches."""
    whole = Inputs.at(index, kind.name, SCHEME, 0, np.arange(len(rows)), rows)
    return [whole.take(slice(at, at + size)) for at in range(0, len(rows), size)]


def _random(kind: Kind, number: int) -> Int64s:
    """Rows of anchors, in random order."""
    randomly = np.random.default_rng(SEED)
    found: Int64s = randomly.permutation(kind.labels * kind.anchors)[:number]
    return found


_OTHER_WORK = np.ones(1 << 21)


@dataclass(frozen=True, slots=True)
class Trial:
    """Batches for an operator that has had them before, or for a new one each time."""

    make: Callable[[], Operator]
    batches: Sequence[Inputs]
    known: bool

    def seconds(self) -> float:
        """What the batches take now; a few take several operators, or the clock would not tell."""
        again = 1 if self.known or len(self.batches) > 2 else AGAIN
        operators = [self.make() for _ in range(again)]
        if self.known:
            for batch in self.batches:
                operators[0].feed(batch)
        # Between two messages other work is done, and has the caches; and what is held for long
        # lies in memory that nothing has lain in before.
        _OTHER_WORK.sum()
        if not self.known:
            give_back()
        began = time.process_time_ns()
        for operator in operators:
            feed = operator.feed
            for batch in self.batches:
                feed(batch)
        taken = (time.process_time_ns() - began) / 1e9
        for operator in operators:
            operator.close()
        return taken / again


@dataclass(frozen=True, slots=True)
class Question:
    """What is tried to find out some unit costs.

    `answer` gives them, of the seconds that each trial took and of the unit costs before them.
    """

    trials: Sequence[Trial]
    answer: Callable[[list[float], dict[str, float]], dict[str, float]]


def _seconds(trials: Sequence[Trial], rounds: int = ROUNDS) -> list[float]:
    """The best of several turns, so that a time in which the machine was busy spoils none."""
    best = [float("inf")] * len(trials)
    for _ in range(rounds):
        best = [min(least, trial.seconds()) for least, trial in zip(best, trials, strict=True)]
    return best


def _ad_match(index: Index) -> Question:
    rows, trials = [], []
    kinds = (ALIKE, EACH_ONE, MANY_CANDIDATES, MANY_PAIRS, FEW_HITS)
    cases = [
        (kind, _random(kind, size * STREAM), size) for kind in kinds for size in (1, 16, 128, 4096)
    ]
    cases += [(MANY_LISTS, _random(MANY_LISTS, 16 * FAR_STREAM), size) for size in (16, 4096)]
    cases += [
        (ALIKE, _random(ALIKE, 1 << 14), 1 << 14),
        (EACH_ONE, _random(EACH_ONE, 1 << 16), 1 << 16),
    ]
    for kind, rows_of, size in cases:
        batches = _batches(index, kind, rows_of, size)
        inputs = sum(map(len, batches))
        trials.append(Trial(partial(ADMatch, index, kind.match, "descendant"), batches, known=True))
        hits, pairs = _found(index, kind, batches)
        steps = float(np.log2(2 + kind.matches))
        far = ad_doublings(kind.matches, kind.labels * kind.anchors)
        rows.append([len(batches), inputs, inputs * steps, inputs * far, hits, pairs])
    return Question(trials, lambda taken, _: _explained(OF_ADMATCH, rows, taken))


def _further_segment(index: Index) -> Question:
    """What a segment adds to a call of ADMatch whose inputs are of several."""
    rows = _random(ALIKE, 4 * STREAM)
    parts = [Inputs.at(index, ALIKE.name, None, place, rows, rows) for place in range(SEGMENTS)]
    cuts = [slice(at, at + 16 // SEGMENTS) for at in range(0, len(rows), 16 // SEGMENTS)]
    batches = [Inputs.joined([part.take(cut) for part in parts]) for cut in cuts]
    make = partial(ADMatch, index, ALIKE.match, "descendant")

    def answer(taken: list[float], found: dict[str, float]) -> dict[str, float]:
        more = taken[0] / len(batches) - found["ad_call"]
        return {"ad_segment": max(more, 0.0) / (SEGMENTS - 1)}

    return Question([Trial(make, batches, known=True)], answer)


def _found(index: Index, kind: Kind, batches: Sequence[Inputs]) -> tuple[int, int]:
    """How many of the inputs have any pair, and how many pairs there are."""
    with ADMatch(index, kind.match, kind.axis) as operator:
        ids = np.concatenate([operator.feed(batch).id for batch in batches])
    return len(np.unique(ids)), len(ids)


def _cmatch(index: Index) -> Question:
    rows, trials = [], []
    lonely = _random(SCATTERED, SCATTERED.labels)
    lonely = lonely[lonely % SCATTERED.every != 0]
    cases = [
        (ALIKE, _random(ALIKE, 16 * STREAM), 16, True),
        (ALIKE, _random(ALIKE, 1 << 14), 4096, True),
        (ALIKE.without, _random(ALIKE, 16 * STREAM), 16, True),
        (ALIKE.without, _random(ALIKE, 1 << 14), 4096, True),
        (MANY_LABELS.without, _random(MANY_LABELS, 16 * STREAM), 16, True),
        (MANY_LABELS.without, np.arange(16 * STREAM), 16, False),
        (MANY_LABELS.without, np.arange(4096), 4096, False),
        (MANY_LABELS.without, np.arange(STREAM), 1, False),
        (SCATTERED.among, lonely[: 16 * STREAM], 16, False),
        (SCATTERED.among, lonely[:2048], 2048, False),
        (SCATTERED.among, lonely[: 1 << 14], 1 << 14, False),
        (VERY_MANY_LABELS.without, _random(VERY_MANY_LABELS, 1 << 14), 1 << 14, False),
        (VERY_MANY_LABELS.without, _random(VERY_MANY_LABELS, 1 << 16), 1 << 16, False),
        (VERY_MANY_LABELS, _random(VERY_MANY_LABELS, 16 * STREAM), 16, False),
        (VERY_MANY_LABELS, _random(VERY_MANY_LABELS, 1 << 14), 1 << 14, False),
        (EACH_ONE, _random(EACH_ONE, 16 * STREAM), 16, True),
        (EACH_ONE, _random(EACH_ONE, 1 << 16), 4096, True),
        (MANY_LABELS, _random(MANY_LABELS, 16 * STREAM), 16, True),
        (MANY_LABELS, _random(MANY_LABELS, 1 << 13), 4096, True),
        (MANY_CANDIDATES, _random(MANY_CANDIDATES, 192), 16, True),
        (MANY_PAIRS, _random(MANY_PAIRS, 128), 16, True),
        (FEW_HITS, _random(FEW_HITS, 16 * STREAM), 16, True),
        (FEW_HITS, _random(FEW_HITS, 1 << 15), 4096, True),
        (MANY_LISTS, _random(MANY_LISTS, 16 * FAR_STREAM), 16, True),
        (MANY_LISTS, _random(MANY_LISTS, 16 * FAR_STREAM), 4096, True),
        (ALIKE, _random(ALIKE, 1), 1, False),
        (ALIKE, _random(ALIKE, 16), 16, False),
        (MANY_LABELS, np.arange(STREAM), 1, False),
        (MANY_LABELS, np.arange(16 * STREAM), 16, False),
        (MANY_LABELS, np.arange(4096), 4096, False),
        (MANY_LABELS, _random(MANY_LABELS, 1 << 13), 1 << 13, False),
        (MANY_CANDIDATES, 48 + np.arange(1), 1, False),
        (MANY_CANDIDATES, 48 + np.arange(32), 16, False),
        (UNORDERED, np.arange(1), 1, False),
        (UNORDERED, np.arange(16), 16, False),
        (DEEP, np.arange(1), 1, False),
        (DEEP, np.arange(16), 16, False),
        (DEEP, np.arange(64), 64, False),
        (EACH_ONE, _random(EACH_ONE, 1), 1, False),
        (EACH_ONE, _random(EACH_ONE, 1 << 16), 1 << 16, False),
        (MANY_PAIRS, _random(MANY_PAIRS, 16), 16, False),
    ]
    for kind, chosen, size, known in cases:
        batches = _batches(index, kind, chosen, size)
        make = partial(CMatch, index, kind.match, kind.axis, SCHEME, threads=0)
        trials.append(Trial(make, batches, known=known))
        rows.append(_counted(index, make, batches, kind, known=known))
    return Question(trials, lambda taken, _: _explained(OF_CMATCH, rows, taken))


def _counted(
    index: Index,
    make: Callable[[], CMatch],
    batches: Sequence[Inputs],
    kind: Kind,
    *,
    known: bool,
) -> list[float]:
    """How much of everything CMatch had to do for the batches."""
    fresh = answers = 0
    with make() as operator:
        before = 0
        for batch in batches:
            answers += len(operator.feed(batch)) > 0
            labels = operator.counters.unique_labels
            fresh += labels > before
            before = labels
        found = operator.counters
    depth = float(np.log2(2 + kind.candidates)) if kind.candidates else 0.0
    lists = found.unique_labels if kind.candidates else 0
    size = kind.candidates * LIST_ROW + LIST_HEAD
    first = 0 if known else 1
    remote = remote_rows(
        found.unique_labels * (1 + kind.climbs),
        kind.match_labels * LABEL_ROW,
        lists,
        kind.matches * POSTING,
    )
    return [
        first,
        len(batches),
        found.inputs,
        found.inputs * depth,
        _found(index, kind, batches)[0] * depth,
        found.inputs * list_doublings(lists, lists * size) + first * remote,
        found.pairs,
        answers,
        first * fresh,
        first * fresh if kind.candidates else 0,
        first * found.unique_labels,
        first * found.unique_labels * float(np.log2(2 + kind.match_labels)),
        first * far_labels(found.unique_labels),
        first * found.unique_labels if kind.candidates else 0,
        first * found.candidates,
        first * found.unique_labels * kind.climbs,
        first * found.candidates * depth if kind.spread > 1 or kind.around else 0,
    ]


def _explained(
    names: Sequence[str], rows: Sequence[Sequence[float]], taken: Sequence[float]
) -> dict[str, float]:
    """The costs, none below 0, that explain what was taken, each by about the same share."""
    left = np.array(rows, np.float64) / np.array(taken)[:, None]
    found = np.zeros(left.shape[1])
    used = left.any(axis=0)
    while used.any():
        part, *_ = np.linalg.lstsq(left[:, used], np.ones(len(left)), rcond=None)
        if (part >= 0).all():
            found[used] = part
            break
        # The most negative one, by what it contributes, explains nothing.
        places = np.flatnonzero(used)
        used[places[np.argmin(part * left[:, used].sum(axis=0))]] = False
    return dict(zip(names, found.tolist(), strict=True))


class _Every:
    """A policy that sets aside every so many-th new label for ever; 0: none."""

    cheap = -1
    together = 0

    def __init__(self, each: int) -> None:
        self.each = each

    def aside(self, counts: Int64s, batch: int) -> Int64s:  # noqa: ARG002
        found = np.zeros(len(counts), np.int64)
        if self.each:
            found[:: self.each] = NEVER
        return found


def _setting_aside(index: Index) -> Question:
    """To be asked about new labels; and what a call takes more if some rows go aside."""
    make = partial(CMatch, index, MANY_LABELS.match, "descendant", SCHEME, threads=0)
    fresh = _batches(index, MANY_LABELS, np.arange(16 * STREAM), 16)
    known = _batches(index, MANY_LABELS, _random(MANY_LABELS, 16 * STREAM), 16)
    trials = [
        Trial(partial(make, policy=_Every(0)), fresh, known=False),
        Trial(make, fresh, known=False),
        Trial(partial(make, policy=_Every(2)), known, known=True),
        Trial(make, known, known=True),
    ]

    def answer(taken: list[float], found: dict[str, float]) -> dict[str, float]:
        asked, alone, parted, whole = taken
        # Half of the rows are probed.
        probes = 8 * (found["ad_input"] + found["ad_hit"])
        more = (parted - whole) / len(known) - probes
        return {
            "policy": max(asked - alone, 0.0) / len(fresh),
            "aside_call": max(more, 0.0),
        }

    return Question(trials, answer)


def _spilling(index: Index, place: Path) -> Question:
    """A byte that is spilled, and an input that looks there; against the same with memory."""
    kind = MANY_CANDIDATES
    first = _batches(index, kind, np.arange(48) + 48, 1)
    again = _batches(index, kind, np.random.default_rng(SEED).permutation(144) + 48, 16)
    short = kind.candidates * LIST_ROW // 4

    make = partial(CMatch, index, kind.match, "descendant", SCHEME, threads=0, place=place)
    makers = [partial(make, budget=budget) for budget in (short, BUDGET)]
    trials = [Trial(each, first, known=False) for each in makers]
    trials += [Trial(each, again, known=True) for each in makers]
    size = kind.candidates * len(first) * LIST_ROW - short

    def answer(taken: list[float], _: dict[str, float]) -> dict[str, float]:
        return {
            "spilled_byte": max(taken[0] - taken[1], 0.0) / size,
            "overflow_read": max(taken[2] - taken[3], 0.0) / sum(map(len, again)),
        }

    return Question(trials, answer)
