from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]

def in_order(
    ends: Int64s,
    ids: npt.NDArray[np.int32],
    told: Int64s,
    local_ends: Int64s,
    plan: npt.NDArray[np.int32],
    at: Int64s,
    numbers: Int64s,
    widths: Int64s,
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]: ...

class Texts:
    count: int
    def __init__(self, texts: Sequence[str | None]) -> None: ...
    @staticmethod
    def of(offsets: Int64s, data: npt.NDArray[np.uint8]) -> Texts: ...
    @staticmethod
    def joined(parts: list[Texts]) -> Texts: ...
    def __len__(self) -> int: ...
    def sizes(self, numbers: Int64s) -> Int64s: ...
    def take(self, numbers: Int64s) -> pa.StringArray: ...
