"""The seam of all operators: anchors in, pairs out, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cmatch.counters import Counters
    from cmatch.inputs import Inputs, Matches
    from index import Index

__all__ = ["Operator"]


@runtime_checkable
class Operator(Protocol):
    """Matches a stream of anchors with the nodes of one tag of an index, on one axis.

    Every pair that holds comes once, in any order, in the answer of some call; after `drain`, all
    pairs of all inputs have come. One thread at a time may call.

    - `needs`: the scheme whose SES labels inputs are to carry now, or None.
    - `feeder`: a capsule by which another kernel may feed it (`cmatch/feed.pxd`); None if there is
      no such way now. Both may be others after every batch.
    """

    needs: str | None
    feeder: object | None

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        ...

    def feed(self, inputs: Inputs) -> Matches:
        """Take a batch; give the pairs that are ready, also those of earlier batches."""
        ...

    def resume(self, inputs: Inputs) -> Matches:
        """The rest of a batch that came by `feeder`, if that could not finish it."""
        ...

    def poll(self) -> Matches:
        """The pairs that have become ready since the last call."""
        ...

    def drain(self) -> Matches:
        """Wait for all that is under way, and give its pairs."""
        ...

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        ...

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        ...
