"""The operator that chooses: it runs ADMatch or CMatch, whichever is expected to cost less.

1. ADMatch begins: it needs nothing but the index. To choose takes as long as ten thousand inputs,
   so the choice is made when ADMatch has cost ten times as much, or before the first batch if that
   alone will; at once, if the caller says what will come. It is made from the statistics of the
   index, a sample of its labels and the unit costs of the machine.
2. It is looked at again when the number of inputs has doubled since the last look. What was counted
   meanwhile takes the place of what was assumed, and as many inputs are expected as have come.
3. A way that is clearly better is switched to between two batches: the old operator is drained and
   its pairs come with the batch, so that none is lost and none comes twice.
4. Under CMatch, new labels may be rented first, input by input (`fmware.cmatch.rent`).
5. ADMatch waits for the disk in the caller. Where there are threads that could do that, and lists
   that it would read are not in memory, CMatch runs.

Nothing stands between an operator and its batches: it counts down the inputs until the next look,
and hands that batch back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from fmware.cmatch.admatch import ADMatch
from fmware.cmatch.axes import Axis
from fmware.cmatch.cclean import BUDGET
from fmware.cmatch.choice import ADMATCH, Choice, CostModel, Counts, Workload
from fmware.cmatch.cmatch import CMatch
from fmware.cmatch.counters import Counters
from fmware.cmatch.errors import MissingLabels, OperatorClosed
from fmware.cmatch.figures import Figures, fewest_labels
from fmware.cmatch.inputs import Inputs, Matches
from fmware.cmatch.operator import FOREVER, named, tags_of
from fmware.cmatch.rent import FETCH_ALL
from fmware.cmatch.units import units_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from fmware.cmatch.choice import Cost
    from fmware.cmatch.operator import Tags
    from fmware.cmatch.units import UnitCosts
    from fmware.index import Index
    from fmware.labeling.runs import Tag

__all__ = ["Adaptive", "Look", "relabelled"]

CHOOSING, SHARE = 1e-3, 0.1
"""Seconds that it takes to choose, most of them to open lists and to read a sample of them; and as
which share of the time that was spent before it may be."""
LONG = 20
"""Steps of a search in a list of a million nodes: what ADMatch is taken to need at first."""
CLEARLY = 0.8
"""Another way must cost at most this share of the current one: estimates are no better."""


_NONE = Matches.empty()
_COLD = "lists that ADMatch would read are not in memory"


ASKED = 4
"""Tags that are looked at to see whether lists are in memory: asking takes as long as a probe."""


class Look(NamedTuple):
    """A look at the choice: after how many inputs, what ran before and after it, and why."""

    inputs: int
    seconds: float
    before: Choice
    after: Choice
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "seconds": self.seconds,
            "from": str(self.before),
            "to": str(self.after),
            "why": self.why,
        }


class Feed(Protocol):
    """Takes a batch; gives the pairs that are ready, also those of earlier batches."""

    def __call__(self, inputs: Inputs) -> Matches: ...


class _ADMatch(ADMatch):
    """ADMatch that hands a batch to `look` when it is time.

    Threads may share its feeder, which has such a batch resumed. `feed` and `resume`, which look,
    are for one thread at a time.
    """

    def __init__(
        self, index: Index, tags: Tags, axis: Axis, look: Callable[[Inputs], Matches]
    ) -> None:
        super().__init__(index, tags, axis)
        self._prober.look = look

    @property
    def ahead(self) -> int:
        """Inputs that are taken before a batch is handed back."""
        return self._prober.ahead

    @ahead.setter
    def ahead(self, inputs: int) -> None:
        self._prober.ahead = inputs


class _CMatch(CMatch):
    """CMatch that hands a batch to `look` when it is time, and labels what has other labels."""

    look: Callable[[Inputs], Matches]
    labelled: Callable[[Inputs], Inputs]

    def _handed_back(self, inputs: Inputs) -> Matches:
        return self.look(inputs)

    def _unlabelled(self, inputs: Inputs) -> Matches:
        return self.feed(self.labelled(inputs))


class Adaptive:
    """Matches anchors with the nodes of one tag, or of several, in the way that costs least.

    `anchors` are the tags that anchors may have; None: any. `workload` says what will come, if that
    is known. With a `choice` that way runs and is not reconsidered.

    - `choice`: what runs now, and `why` it does, in one sentence. `needs`: the scheme whose labels
      inputs are to carry now, or None. It changes only in `feed`, `resume`, `move` and `switch`.
      Inputs that carry other labels are labelled anew, which costs more than a match.
    - `estimates`: seconds an input of every way, for the workload that is `expected`; `preferred`:
      the way that costs least then.
    - `looks`: when the choice was looked at; `switches`: those looks that changed it.
    - `ran`: the inputs that each way took.
    - `feed`, `feeder`, `resume`, `drain`: those of the operator that runs. Take them from here for
      every batch: after a switch they are others.
    """

    __slots__ = (
        "_batch",
        "_budget",
        "_choosing",
        "_closed",
        "_done",
        "_estimates",
        "_looked_at",
        "_marks",
        "_model",
        "_operator",
        "_place",
        "_ran",
        "_stored",
        "_threads",
        "_units",
        "_why",
        "_workload",
        "anchors",
        "axis",
        "choice",
        "drain",
        "feed",
        "feeder",
        "index",
        "looks",
        "needs",
        "resume",
        "tags",
    )

    def __init__(
        self,
        index: Index,
        tags: Tags,
        axis: Axis | str,
        *,
        anchors: Tags | None = None,
        budget: int = BUDGET,
        threads: int = 0,
        units: UnitCosts | None = None,
        place: str | Path | None = None,
        workload: Workload | None = None,
        choice: Choice | None = None,
    ) -> None:
        self.index = index
        self.tags = tags_of(tags)
        self.axis = Axis(axis)
        self.anchors = None if anchors is None else tags_of(anchors)
        self.looks: list[Look] = []
        self._budget, self._threads, self._place = budget, threads, place
        self._units = units or units_of(index)
        self._choosing = choice is None
        self._closed = False
        self._done = Counters()
        self._ran: dict[Choice, int] = {}
        self._model: CostModel | None = None
        self._estimates: dict[Choice, Cost] | None = None
        self._workload = workload
        self._batch = 1.0 if workload is None else workload.batch
        self._marks = self._stored = 0
        self.choice, self._why = self._begin() if choice is None else (choice, "asked for")
        self._operator: _ADMatch | _CMatch = self._make(self.choice)
        self.needs: str | None
        self.feed: Feed
        self.feeder: object | None
        self.resume: Feed
        self.drain: Callable[[], Matches]
        self._start()
        if self._choosing:
            self._operator.ahead = self._until_next(0)

    def _begin(self) -> tuple[Choice, str]:
        """What runs first, and why."""
        if self._workload is not None:
            return self.preferred, ""
        if self._threads and self.index.schemes and self._cold():
            return Choice("cmatch", fewest_labels(self.index, self.anchors)), _COLD
        return ADMATCH, "ADMatch begins; it has not cost enough yet for a choice to pay"

    def _cold(self) -> bool:
        """Whether ADMatch would wait for the disk; of many tags, some are looked at."""
        some = self.tags[:: -(-len(self.tags) // ASKED) or 1]
        return not all(each.in_memory(tag) for each in self.index.segments for tag in some)

    # --- what callers do --------------------------------------------------------------------

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        return self._operator.poll()

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one.

        What that generation says of the join is asked for at the next look.
        """
        scheme = self.choice.scheme
        matches = _NONE
        if scheme is not None and scheme not in index.schemes:
            matches = self.switch(ADMATCH, f"the index has no scheme {scheme} any more")
        matches = Matches.joined([matches, self._operator.move(index)])
        self.index, self._model, self._estimates = index, None, None
        return matches

    def switch(self, choice: Choice, why: str = "asked for") -> Matches:
        """Drain, and go on with another way; gives the pairs of what was under way."""
        if self._closed:
            raise OperatorClosed(repr(self))
        old, before = self._operator, self.choice
        matches = old.drain()
        # Made first: if that fails, the old one goes on.
        self._operator = self._make(choice)
        self._noted(choice, why)
        counters = old.counters
        self._ran[before] = self._ran.get(before, 0) + counters.inputs
        counters.bytes_held = counters.table_bytes = 0
        self._done += counters
        self._marks += old.mark
        self._stored += old.stored
        self._leave(old)
        self.choice, self._why = choice, why
        self._start()
        if self._choosing:
            self._operator.ahead = self._until_next(self._done.inputs)
        return matches

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        if not self._closed:
            self._closed = True
            self._leave(self._operator)
            self.feed = self.resume = partial(_refused, repr(self))
            self.feeder = None

    @property
    def why(self) -> str:
        """Why the way that runs was chosen, in one sentence."""
        return self._why or self.model.why(self.choice, self.estimates)

    @property
    def model(self) -> CostModel:
        """What the index says of the join, and what that costs here."""
        if self._model is None:
            figures = Figures.of(self.index, self.anchors, self.tags, self.axis)
            self._model = CostModel(figures, self._units, self._budget)
        return self._model

    @property
    def expected(self) -> Workload:
        """What is expected to come: what the caller said, or each anchor of the corpus once."""
        return self._workload or self.model.expected

    @property
    def estimates(self) -> dict[Choice, Cost]:
        """Seconds an input of every way, if that comes."""
        if self._estimates is None:
            self._estimates = self.model.costs(self.expected)
        return self._estimates

    @property
    def preferred(self) -> Choice:
        """The way that costs least, if that comes."""
        return self.model.best(self.estimates)

    @property
    def stored(self) -> int:
        """Inputs that were stored so far, because candidates of their label were still to come."""
        return self._stored + self._operator.stored

    @property
    def mark(self) -> int:
        """The number of the last fetch that other threads were asked for; see `Operator`."""
        return self._marks + self._operator.mark

    def reached(self, mark: int) -> bool:
        """Whether all fetches up to one are done; those of operators that ran before are."""
        return mark <= self._marks or self._operator.reached(mark - self._marks)

    def wait(self, mark: int, timeout: float | None = None) -> bool:
        """Wait until `reached` holds, `timeout` seconds at most; return whether it holds."""
        return mark <= self._marks or self._operator.wait(mark - self._marks, timeout)

    @property
    def switches(self) -> list[Look]:
        """The looks that changed the choice."""
        return [look for look in self.looks if look.before != look.after]

    @property
    def counters(self) -> Counters:
        """What all operators that ran have done so far."""
        found = self._operator.counters
        return self._done + found if self._ran else found

    @property
    def ran(self) -> dict[Choice, int]:
        """The inputs that each way took."""
        now = self._ran.get(self.choice, 0) + self._operator.counters.inputs
        return {**self._ran, self.choice: now}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Adaptive {self.axis.value}::{named(self.tags)} by {self.choice}>"

    # --- operators --------------------------------------------------------------------------

    def _make(self, choice: Choice) -> _ADMatch | _CMatch:
        if choice.scheme is None:
            return _ADMatch(self.index, self.tags, self.axis, self._looked)
        rent = FETCH_ALL
        if choice.rents:
            rent = self.model.rent(choice, self.expected._replace(batch=self._batch))
        made = _CMatch(
            self.index,
            self.tags,
            self.axis,
            choice.scheme,
            budget=self._budget,
            threads=self._threads,
            place=self._place,
            rent=rent,
        )
        made.look, made.labelled = self._looked, self._labelled
        return made

    def _start(self) -> None:
        """An operator begins."""
        operator = self._operator
        self.needs = self.choice.scheme
        self.feed, self.resume, self.drain = operator.feed, operator.resume, operator.drain
        self.feeder = operator.feeder
        self._looked_at = Counters()

    def _leave(self, operator: _ADMatch | _CMatch) -> None:
        """Close an operator, and have it hold nothing that leads back to here."""
        operator.close()
        if isinstance(operator, _CMatch):
            operator.look = operator.labelled = partial(_refused, repr(self))

    def _labelled(self, inputs: Inputs) -> Inputs:
        """Inputs with the labels that are needed now."""
        assert self.needs is not None
        return relabelled(self.index, self.anchors, self.needs, inputs)

    # --- looking ----------------------------------------------------------------------------

    def _looked(self, inputs: Inputs) -> Matches:
        """A batch that the operator hands back, because it is time to look."""
        operator, number = self._operator, len(inputs.id)
        operator.ahead = FOREVER
        self._batch = float(max(number, 1))
        counters = operator.counters
        so_far = self._done.inputs + counters.inputs
        matches = _NONE
        # To switch would wait for what other threads fetch.
        if operator.reached(operator.mark):
            matches = self._reconsidered(counters, max(so_far, number))
        self._operator.ahead = self._until_next(so_far) + number
        found = self.feed(inputs)
        return Matches.joined([matches, found]) if len(matches.id) else found

    def _reconsidered(self, counters: Counters, expected: int) -> Matches:
        """Stay, or switch to a way that is clearly better by what was counted."""
        if self._threads and self.choice.scheme is not None and self._cold():
            self._noted(self.choice, _COLD)
            return _NONE
        load, model, choice = Workload(expected, self._batch), self.model, self.choice
        skew, now = 1.0, None
        if choice.scheme is not None:
            now, skew = self._observed(counters, expected), self._skew(counters)
        pairs = counters.pairs / counters.inputs if counters.inputs else None
        costs = model.costs(load, skew=skew, pairs=pairs)
        if now is not None:
            costs[choice] = model.by_label(now, self._batch)
        self._looked_at = counters
        best, stay = model.best(costs), costs[choice].total
        why, saved = model.why(best, costs), stay - costs[best].total
        if saved < (1 - CLEARLY) * stay or saved * expected < CHOOSING:
            best, why = choice, model.why(choice, costs)
        if best.scheme != choice.scheme:
            return self.switch(best, why)
        self._noted(best, why)
        self.choice, self._why = best, why
        if best.scheme is not None:
            self._rent(load, now if best.rents else None)
        return _NONE

    def _rent(self, load: Workload, now: Counts | None = None) -> None:
        """Say how long new labels are rented from now on, by what was counted if that is known."""
        assert isinstance(self._operator, _CMatch)
        if now is not None and now.deferred:
            self._operator.rent = self.model.observed_rent(now, load.batch)
        else:
            self._operator.rent = self.model.rent(self.choice, load)

    def _observed(self, counters: Counters, expected: int) -> Counts:
        """What was counted for each input since the last look."""
        since = self._looked_at
        inputs = max(counters.inputs - since.inputs, 1)
        figures = self.model.figures.schemes[self.choice.scheme or ""]
        left = max(figures.total - counters.unique_labels, 0) / expected
        labels = (counters.unique_labels - since.unique_labels) / inputs
        # No more labels can be new than there are.
        fewer = min(left / labels, 1.0) if labels else 1.0
        steps = np.log2(2.0 + counters.candidates / max(counters.unique_labels, 1))
        return Counts(
            labels * fewer,
            (counters.index_scans - since.index_scans) / inputs * fewer,
            (counters.candidates - since.candidates) / inputs * fewer,
            (counters.deferred - since.deferred) / inputs,
            float(steps),
            (counters.pairs - since.pairs) / inputs,
            (counters.overflow_reads - since.overflow_reads) / inputs,
        )

    def _skew(self, counters: Counters) -> float:
        """How many labels have come, as a share of those that were to be expected."""
        load = Workload(counters.inputs, self._batch)
        assumed = self.model.labels(self.choice.scheme or "", load)
        return min(max(counters.unique_labels / max(assumed, 1.0), 1e-6), 1.0)

    def _until_next(self, so_far: int) -> int:
        """Inputs until the next look: as many as have come, and enough for it to cost little."""
        units = self._units
        each = units.ad_input + LONG * units.ad_step
        return max(so_far, int(CHOOSING / SHARE / max(each, 1e-9)))

    def _noted(self, after: Choice, why: str) -> None:
        counters = self.counters
        seconds = counters.probe_seconds + counters.insert_seconds + counters.query_seconds
        self.looks.append(Look(counters.inputs, seconds, self.choice, after, why))


def relabelled(index: Index, anchors: Sequence[Tag] | None, scheme: str, inputs: Inputs) -> Inputs:
    """The same inputs with the labels of a scheme; they may have any of some tags.

    Raises:
        MissingLabels: some of them are none of these nodes.
    """
    parts: list[Inputs] = []
    left = inputs
    for tag in index.tags if anchors is None else anchors:
        if not len(left):
            break
        places = np.arange(len(left))
        found = Inputs.of(index, tag, scheme, places, left.start)
        if len(found):
            # Ids are the caller's, and need not be unique.
            own = left.take(found.id)
            parts.append(
                Inputs(
                    own.id,
                    own.segment,
                    own.start,
                    own.end,
                    own.level,
                    found.rank,
                    found.last,
                    scheme,
                )
            )
            left = left.take(np.delete(places, found.id))
    if len(left):
        raise MissingLabels(scheme)
    return Inputs.joined(parts) if parts else inputs.take(slice(0))


def _refused(name: str, inputs: Inputs) -> NoReturn:  # noqa: ARG001
    raise OperatorClosed(name)
