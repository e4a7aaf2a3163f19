"""Which labels CMatch leaves to AD-only match: the seam for whoever knows what each way costs.

A scan pays if enough inputs of its label come. Who cannot know that rents before he buys: the first
inputs of a label go to AD-only match, and when these probes have cost as much as the scan would
have, the label is scanned for. Whatever comes, that costs at most twice what would have been best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

__all__ = ["ANY", "NEVER", "Policy"]

ANY = 1 << 40
"""Candidates, however many."""

NEVER = 2**31 - 1
"""So many inputs of a label mean all of them: it is never scanned for."""


class Policy(Protocol):
    """Says, for each label that is new, how many of its inputs go aside: to AD-only match.

    New labels of a batch that have no more than `cheap` candidates together are scanned for without
    asking; what that is may change with an answer. Batches of at most `together` inputs go aside as
    a whole, if any of their inputs does; those because of whom they go count for all, between them.
    """

    @property
    def cheap(self) -> int: ...

    @property
    def together(self) -> int: ...

    def aside(self, counts: Int64s, batch: int) -> Int64s:
        """For each new label of one segment, how many inputs go aside before it is scanned for.

        `counts` are the candidates that a scan of each would give, `batch` the inputs of the batch
        in which they are new. 0: scan now; `NEVER`: never. A label is asked about once. Inputs of
        one batch are not parted: where the batch in which a label is new has more inputs of it than
        are to go aside, it is scanned for at once, and none goes.
        """
        ...
