from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Part = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8]]

class Sorter:
    def __init__(self, number: npt.NDArray[np.int32], count: int) -> None: ...
    @property
    def bounds(self) -> npt.NDArray[np.int64]: ...
    def column(
        self, parts: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]: ...
    def values(self, parts: list[Part]) -> Part: ...

def taken(parts: list[Part], order: npt.NDArray[np.intp]) -> Part: ...
def values_of(
    kind: npt.NDArray[np.uint8],
    parent: npt.NDArray[np.int32],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
    longest: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8]]: ...
