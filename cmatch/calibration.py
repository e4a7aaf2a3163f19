"""Unit costs, measured on this machine with the operators as they are.

A small index is built in a temporary folder (`calibration_index`). Operators are fed from it
in batches of several sizes, and the unit costs are those that explain best, relative to its size,
what each of them took.
"""

from __future__ import annotations

import gc
import json
import math
import os
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fmware.cmatch.admatch import ADMatch
from fmware.cmatch.calibration_index import (
    ALIKE,
    EACH_ONE,
    MANY_CANDIDATES,
    MANY_LABELS,
    MANY_PAIRS,
    SCHEME,
    build,
)
from fmware.cmatch.choice import LIST_ROW
from fmware.cmatch.cmatch import CMatch
from fmware.cmatch.heap import give_back
from fmware.cmatch.inputs import Inputs
from fmware.cmatch.rent import Rent
from fmware.cmatch.units import FILE, UnitCosts, fingerprint, load_units
from fmware.index import Index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from fmware.cmatch.calibration_index import Kind
    from fmware.cmatch.operator import Operator

    Int64s = npt.NDArray[np.int64]

__all__ = ["calibrate", "calibrated"]

ROUNDS = 9
STREAM = 64
"""Batches of which a stream consists."""
SEED = 1
AD_NAMES = ("ad_call", "ad_input", "ad_step", "pair")
NAMES = ("call", "input", "step", "label", "list", "candidate", "pair")
"""Unit costs that are found together: those of ADMatch, and those of CMatch."""


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
    """Measure; takes a few seconds. `place` is a folder on the disk that matters."""
    with tempfile.TemporaryDirectory(prefix="fmware-units-", dir=place) as scratch:
        folder = Path(scratch)
        build(folder / "index")
        with Index.open(folder / "index") as index, _quiet():
            fitted = [*_ad_trials(index), *_trials(index)]
            rented, spilling = _rented(index), _spilling(index, folder)
            # All in turns: choices depend on what one costs beside another, and a machine that is
            # busy while all of one is measured would make it look dear.
            taken = iter(_seconds([*fitted, *rented, *spilling]))
            found = _explained(fitted, [next(taken) for _ in fitted])
            found["deferral"] = _deferral(found, rented[0], *(next(taken) for _ in rented))
            short, ample = (next(taken) for _ in spilling)
            found["spilled"] = max(short - ample, 0.0) / spilling[0].inputs
    return UnitCosts(**found, machine=fingerprint())


# --- trials ---------------------------------------------------------------------------------


@contextmanager
def _quiet() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


_OTHER_WORK = np.ones(1 << 21)


class Trial(NamedTuple):
    """Batches for an operator that has had them before, or for a new one each time.

    `counts` says how much of everything it has to do for them, by the name of its unit cost.
    """

    make: Callable[[], Operator]
    batches: Sequence[Inputs]
    known: bool
    counts: dict[str, float]

    @property
    def inputs(self) -> int:
        return sum(map(len, self.batches))

    def seconds(self) -> float:
        """What the batches take now."""
        # What is over too soon for the clock is done several times.
        again = 1 if self.known or len(self.batches) > 2 else 4
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


def _seconds(trials: Sequence[Trial]) -> list[float]:
    """The best of several turns, so that a time in which the machine was busy spoils none."""
    best = [float("inf")] * len(trials)
    for _ in range(ROUNDS):
        best = [min(least, trial.seconds()) for least, trial in zip(best, trials, strict=True)]
    return best


def _explained(trials: Sequence[Trial], taken: Sequence[float]) -> dict[str, float]:
    """The costs, none below 0, that explain what was taken, each by about the same share."""
    names = [*dict.fromkeys([*AD_NAMES, *NAMES])]
    rows = [[trial.counts.get(name, 0.0) for name in names] for trial in trials]
    left = np.array(rows, np.float64) / np.array(taken)[:, None]
    found = np.zeros(len(names))
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


# --- what is tried --------------------------------------------------------------------------


def _batches(index: Index, kind: Kind, rows: Int64s, size: int) -> list[Inputs]:
    """Anchors of a kind by their rows, in batches."""
    whole = Inputs.at(index, kind.name, SCHEME, 0, np.arange(len(rows)), rows)
    return [whole.take(slice(at, at + size)) for at in range(0, len(rows), size)]


def _random(kind: Kind, number: int) -> Int64s:
    """Rows of anchors, in random order."""
    found: Int64s = np.random.default_rng(SEED).permutation(kind.labels * kind.anchors)[:number]
    return found


def _pairs(index: Index, kind: Kind, batches: Sequence[Inputs]) -> int:
    with ADMatch(index, kind.match, "descendant") as operator:
        return sum(len(operator.feed(batch)) for batch in batches)


def _ad_trials(index: Index) -> Iterator[Trial]:
    """ADMatch in short lists and in long ones, with few pairs and with many."""
    for kind in (ALIKE, EACH_ONE, MANY_CANDIDATES, MANY_PAIRS):
        for size in (1, 16, 128, 4096):
            batches = _batches(index, kind, _random(kind, size * STREAM), size)
            inputs = sum(map(len, batches))
            counts = (
                len(batches),
                inputs,
                inputs * math.log2(2 + kind.matches),
                _pairs(index, kind, batches),
            )
            make = partial(ADMatch, index, kind.match, "descendant")
            yield Trial(make, batches, known=True, counts=dict(zip(AD_NAMES, counts, strict=True)))


def _trials(index: Index) -> Iterator[Trial]:
    """CMatch with labels that are known and that are new, with and without candidates."""
    for kind, number, size, known in (
        (ALIKE, STREAM, 1, True),
        (ALIKE, 16 * STREAM, 16, True),
        (ALIKE, 1 << 14, 4096, True),
        (EACH_ONE, 16 * STREAM, 16, True),
        (EACH_ONE, 1 << 16, 4096, True),
        (MANY_LABELS, 16 * STREAM, 16, True),
        (MANY_LABELS, 1 << 13, 4096, True),
        (MANY_LABELS.without, 16 * STREAM, 16, True),
        (MANY_CANDIDATES, 192, 16, True),
        (MANY_PAIRS, 128, 16, True),
        (MANY_LABELS, STREAM, 1, False),
        (MANY_LABELS, 16 * STREAM, 16, False),
        (MANY_LABELS, 4096, 4096, False),
        (MANY_LABELS.without, STREAM, 1, False),
        (MANY_LABELS.without, 16 * STREAM, 16, False),
        (MANY_LABELS.without, 4096, 4096, False),
        (MANY_CANDIDATES, 1, 1, False),
        (MANY_CANDIDATES, 48, 16, False),
        (EACH_ONE, 1 << 16, 1 << 16, False),
        (MANY_PAIRS, 16, 16, False),
    ):
        rows = _random(kind, number) if known or kind.labels == 1 else np.arange(number)
        batches = _batches(index, kind, rows, size)
        make = partial(CMatch, index, kind.match, "descendant", SCHEME, threads=0)
        yield Trial(make, batches, known, _counted(make, batches, kind, known=known))


def _counted(
    make: Callable[[], CMatch], batches: Sequence[Inputs], kind: Kind, *, known: bool
) -> dict[str, float]:
    """How much of everything CMatch has to do for the batches."""
    with make() as operator:
        for batch in batches:
            operator.feed(batch)
        found = operator.counters
    new = 0 if known else 1
    steps = math.log2(2 + kind.candidates) if kind.candidates else 0.0
    counts = (
        len(batches),
        found.inputs,
        found.inputs * steps,
        new * found.unique_labels,
        new * found.unique_labels if kind.candidates else 0,
        new * found.candidates,
        found.pairs,
    )
    return dict(zip(NAMES, counts, strict=True))


def _rented(index: Index) -> list[Trial]:
    """The same batches, once with every second label rented, and once with all fetched."""
    kind = MANY_LABELS
    rows = _random(kind, 16 * STREAM)
    batches = _batches(index, kind, rows, 16)
    fetched = _batches(index, kind, rows[rows % 2 == 0], 16)
    whole = partial(CMatch, index, kind.match, "descendant", SCHEME, threads=0)

    def parted() -> CMatch:
        operator = whole()
        for batch in fetched:
            operator.feed(batch)
        operator.rent = Rent(math.inf, 0.0)
        return operator

    with parted() as operator:
        for batch in batches:
            operator.feed(batch)
        counts = {"deferred": float(operator.counters.deferred)}
    return [Trial(make, batches, known=True, counts=counts) for make in (parted, whole)]


def _deferral(units: dict[str, float], trial: Trial, parted: float, whole: float) -> float:
    """What a call takes more because ADMatch takes some of its inputs, its searches apart."""
    search = units["ad_input"] + units["ad_step"] * math.log2(2 + MANY_LABELS.matches)
    known = units["input"] + units["step"] * math.log2(2 + MANY_LABELS.candidates)
    more = parted - whole - trial.counts["deferred"] * (search - known)
    return max(more, 0.0) / len(trial.batches)


def _spilling(index: Index, place: Path) -> list[Trial]:
    """Labels whose candidates are on disk, and the same in memory."""
    kind = MANY_CANDIDATES
    batches = _batches(index, kind, np.random.default_rng(SEED).permutation(144) + 48, 16)
    make = partial(CMatch, index, kind.match, "descendant", SCHEME, threads=0, place=place)
    short = kind.candidates * LIST_ROW // 4
    return [
        Trial(partial(make, budget=budget), batches, known=True, counts={})
        for budget in (short, 1 << 28)
    ]
