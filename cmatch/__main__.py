"""`python -m fmware.cmatch` shows a small join step by step, in the words of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fmware.cmatch import CClean, Inputs
from fmware.cmatch.trace import tell

if TYPE_CHECKING:
    from collections.abc import Iterator

# Two records, <a><b/><b/><c><b/></c></a> and <a><b/></a>; all `a` have the same SES label.
INPUTS = [(7, 0, 9, 1), (8, 33, 36, 1)]
VECTORS = [[(1, 2, 2), (3, 4, 2)], [(6, 7, 3), (34, 35, 2)]]


def example() -> Iterator[str]:
    """a/b, with memory for one partition of two rows."""
    id_, start, end, level = np.array(INPUTS, np.int64).T
    none = np.zeros(len(id_), np.int64)
    inputs = Inputs(id_, none.astype(np.int32), start, end, level.astype(np.int16), none, none)
    with CClean("child", budget=250, partition=2, trace=True) as clean:
        clean.left(inputs)
        for vector in VECTORS:
            start, end, level = np.array(vector, np.int64).T
            clean.right(0, 0, start, end, level, last=vector is VECTORS[-1])
        yield from tell(clean.steps())
        yield "\nThe same inputs once more:"
        clean.left(inputs)
        yield from tell(clean.steps())


if __name__ == "__main__":
    print(*example(), sep="\n")
