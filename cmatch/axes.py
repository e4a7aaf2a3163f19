"""The axes on which a local node may stand, seen from an anchor: the paper's Theta."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmware.index import Axis as Side

__all__ = ["Axis"]


class Axis(enum.Enum):
    """Where matches stand, seen from the anchor."""

    CHILD = "child"
    DESCENDANT = "descendant"
    SELF = "self"
    PARENT = "parent"
    ANCESTOR = "ancestor"

    # Members are what they are and equal nothing else. Joins are looked up by them all the time.
    __hash__ = object.__hash__

    @property
    def side(self) -> Side:
        """The axis by which SES labels are scanned: they do not know of single levels."""
        return _SIDES[self]

    @property
    def number(self) -> int:
        """By what kernels know it: see `index/probe.pxd`."""
        return _NUMBERS[self]

    @property
    def downwards(self) -> bool:
        """Whether matches stand below the anchor."""
        return self in (Axis.CHILD, Axis.DESCENDANT)

    @property
    def one_level(self) -> bool:
        """Whether matches stand just one level away."""
        return self in (Axis.CHILD, Axis.PARENT)


_SIDES: dict[Axis, Side] = {
    Axis.CHILD: "descendant",
    Axis.DESCENDANT: "descendant",
    Axis.SELF: "self",
    Axis.PARENT: "ancestor",
    Axis.ANCESTOR: "ancestor",
}
_NUMBERS = {axis: number for number, axis in enumerate(Axis)}
