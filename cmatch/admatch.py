"""AD-only match: every batch is a probe of the index by AD label.

There is no state but the index, and no cleaning: what a probe gives are pairs that hold. It costs
one descent into a list of the size of the tag for each input, however many of them are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.cmatch._kernel import Prober
from fmware.cmatch.axes import Axis
from fmware.cmatch.counters import Counters
from fmware.cmatch.errors import OperatorClosed
from fmware.cmatch.inputs import Matches
from fmware.cmatch.operator import named, tags_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from fmware.cmatch.operator import Tags
    from fmware.index import Index

__all__ = ["ADMatch"]


class ADMatch:
    """Matches anchors with the nodes of `tags` on an axis, by AD labels alone.

    Lists are opened when a batch first needs them. Several threads may feed it at once, also while
    another one calls `move`: a batch that has begun goes on with the index it began with. `feed`
    gives all pairs of a batch at once.
    """

    needs: str | None = None
    stored: int = 0

    def __init__(self, index: Index, tags: Tags, axis: Axis | str) -> None:
        self.index = index
        self.tags = tags_of(tags)
        self.axis = Axis(axis)
        self._prober = Prober(self.axis.number, repr(self))
        self._prober.aim(index.segments, self.tags)
        self.feeder: object | None = self._prober.feeder()
        # Nothing stands between a caller and the kernel.
        self.feed = self.resume = self._prober.feed

    @property
    def counters(self) -> Counters:
        prober = self._prober
        return Counters(
            inputs=prober.inputs,
            ad_probes=prober.inputs,
            pairs=prober.pairs,
            probe_seconds=prober.nanoseconds / 1e9,
        )

    def poll(self) -> Matches:
        if self._prober.closed:
            raise OperatorClosed(repr(self))
        return Matches.empty()

    def drain(self) -> Matches:
        return self.poll()

    @property
    def mark(self) -> int:
        """Nothing is ever fetched by others."""
        return 0

    def reached(self, mark: int) -> bool:  # noqa: ARG002
        return True

    def wait(self, mark: int, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True

    def move(self, index: Index) -> Matches:
        matches = self.poll()
        self._prober.aim(index.segments, self.tags)
        self.index = index
        return matches

    def close(self) -> None:
        self._prober.close()

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
        return f"<ADMatch {self.axis.value}::{named(self.tags)}>"
