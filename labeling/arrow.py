"""Arrow arrays over memory that is there already.

The first call of `pyarrow.array` imports pandas, whatever the call is given. Every worker process
of a labelling job would pay a third of a second for that import. The functions here avoid it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["binary_column", "column"]


def column(values: npt.NDArray[Any]) -> pa.Array:
    """An array of numbers, of the same type, that shares their memory if they lie in one piece."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def binary_column(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Byte strings as an array of `kind`, which is binary with offsets of 32 or 64 bits."""
    width = np.int64 if kind == pa.large_binary() else np.int32
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    if offsets[-1] > np.iinfo(width).max:
        raise OverflowError(f"{offsets[-1]:,} bytes do not fit into an array of type {kind}")
    buffers = [None, pa.py_buffer(offsets.astype(width)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)
