"""CClean: the symmetric, non-blocking join that cleans candidates of false hits.

Left come inputs, right come the candidates that the index gave for their SES labels, in any order
and from any thread. A pair comes out when its two have the same key, (segment, rank), and their AD
labels are on the axis. `fmware.cmatch._kernel` tells how, and where this goes beyond the paper.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from fmware.cmatch._kernel import Cleaner
from fmware.cmatch.axes import Axis
from fmware.cmatch.counters import Counters
from fmware.cmatch.trace import steps_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from fmware.cmatch.trace import Step

__all__ = ["BUDGET", "PARTITION", "CClean"]

BUDGET = 64 << 20
PARTITION = 64


class CClean(Cleaner):
    """Joins inputs with candidates of the same label, for one axis.

    `budget` are the bytes of memory for inputs and candidates; what is more lies in a temporary
    file in `place`, which has no name and leaves nothing behind. A partition has `partition` rows.
    With `trace`, every step is recorded. Safe to share between threads.

    - `left(inputs)` inserts a batch and gives all pairs that are ready, and which inputs have a
      label that is new: the caller gets its candidates.
    - `right(segment, rank, start, end, level, last)` inserts a vector of candidates of one label.
      `last` says that it has no more. `bring` gets the candidates of labels from a segment that
      was introduced, and does the same with them.
    - `ask(inputs)` is `left` for a caller that gets candidates first: it takes a batch without new
      labels, and of others tells what is new before it takes anything. `settle` brings all
      candidates of new labels, `fetch` gets them from a segment, `wait` has their inputs stored as
      `left` does, `defer` leaves them to ADMatch where `rent` says so. A label of which none of
      this was said has no candidates. `answer` then takes the batch.
    - `aim(segments, tags)` says what will be asked, `introduce(place, probes)` how: with a probe of
      a segment for each tag, `ask` gets candidates itself, as many as `most` and `each` allow. If
      it is `wary`, labels whose candidates are not in memory wait; `cold` then says which.
    - `feeder()` is `ask` for another kernel, which has inputs in C memory (`cmatch/feed.pxd`). Of a
      batch that needs more than that, `rest(inputs)` gives what `ask` would have said.
    - `ahead`: inputs that are taken before `ask` hands a batch back as it is.
    - `take()` gives the pairs that are ready.
    - `renumber(places)` follows the index to another generation.
    """

    def __init__(
        self,
        axis: Axis | str,
        *,
        budget: int = BUDGET,
        partition: int = PARTITION,
        place: str | Path | None = None,
        scheme: str = "path",
        trace: bool = False,
        jitter: int = 0,
    ) -> None:
        folder = os.fsencode(tempfile.gettempdir() if place is None else place)
        super().__init__(Axis(axis).number, budget, partition, folder, scheme, trace, jitter)

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        (
            inputs,
            deferred,
            unique,
            candidates,
            false_hits,
            pairs,
            spills,
            spilled_bytes,
            overflow_reads,
            held,
            peak,
            table,
            insert,
            query,
            scans,
            probe,
        ) = self.tallies()
        return Counters(
            inputs=inputs,
            deferred=deferred,
            unique_labels=unique,
            candidates=candidates,
            false_hits=false_hits,
            pairs=pairs,
            spills=spills,
            spilled_bytes=spilled_bytes,
            overflow_reads=overflow_reads,
            bytes_held=held,
            peak_bytes=peak,
            table_bytes=table,
            insert_seconds=insert,
            query_seconds=query,
            index_scans=scans,
            probe_seconds=probe,
        )

    def steps(self) -> list[Step]:
        """What it has done since the last call, if it traces."""
        return [*steps_of(self.events())]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
