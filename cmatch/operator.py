"""The seam of all operators: anchors in, pairs out, without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from fmware.labeling.runs import Tag

if TYPE_CHECKING:
    from fmware.cmatch.counters import Counters
    from fmware.cmatch.inputs import Inputs, Matches
    from fmware.index import Index

__all__ = ["FOREVER", "Operator", "Tags", "named", "tags_of"]

Tags: TypeAlias = Tag | str | Sequence[Tag | str]
"""The tags of matches: one, or several, as a wildcard has them. A name is that of elements."""

FOREVER = 1 << 60
"""Inputs that never come."""
_TOLD = 3
"""Tags that a name tells; of more, it says how many there are."""


def tags_of(tags: Tags) -> tuple[Tag, ...]:
    """The tags, each once, in the order in which they were given."""
    several = [tags] if isinstance(tags, (str, Tag)) else tags
    return tuple(dict.fromkeys(Tag(0, tag) if isinstance(tag, str) else tag for tag in several))


def named(tags: Sequence[Tag]) -> str:
    """Tags as a step writes them: `author`, or `author|editor`."""
    told = "|".join(map(str, tags[:_TOLD]))
    return told if len(tags) <= _TOLD else f"{told}|... ({len(tags)} tags)"


@runtime_checkable
class Operator(Protocol):
    """Matches a stream of anchors with the nodes of some tags of an index, on one axis.

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

    @property
    def stored(self) -> int:
        """Inputs that were stored so far, because candidates of their label were still to come.

        If a batch adds none, all its pairs have come with it, whatever other batches wait for.
        """
        ...

    @property
    def mark(self) -> int:
        """The number of the last fetch that other threads were asked for; 0 if there was none.

        Read after a batch was fed: once `reached` says so of it, all pairs of that batch have come,
        or come with the next `poll` or `feed`.
        """
        ...

    def reached(self, mark: int) -> bool:
        """Whether all fetches up to one are done, or the operator has failed."""
        ...

    def wait(self, mark: int, timeout: float | None = None) -> bool:
        """Wait until `reached` holds, `timeout` seconds at most; return whether it holds."""
        ...

    def move(self, index: Index) -> Matches:
        """Drain, and go on with another generation of the index; inputs are then of that one."""
        ...

    def close(self) -> None:
        """Give up what is under way; threads end, temporary files are gone."""
        ...
