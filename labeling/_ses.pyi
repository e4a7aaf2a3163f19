import numpy as np
import numpy.typing as npt

NO_PARENT: int

Column = npt.NDArray[np.uint32]

class TrieMap:
    def __len__(self) -> int: ...
    def extend(
        self,
        tag: npt.NDArray[np.int32],
        before: npt.NDArray[np.int32],
        extra: npt.NDArray[np.uint32],
        order: npt.NDArray[np.int32] | None,
    ) -> Column: ...
    def columns(self) -> tuple[Column, Column, Column]: ...

def forest_of(
    kind: npt.NDArray[np.uint8],
    tag: npt.NDArray[np.int32],
    parent: npt.NDArray[np.int32],
    level: npt.NDArray[np.int16],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
) -> tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.intp],
]: ...
def numbered(parent: Column, tag: Column, extra: Column) -> tuple[Column, Column]: ...
def parents(size: Column) -> Column: ...
def merged(
    tries: list[tuple[Column, Column, Column]],
) -> tuple[tuple[Column, Column, Column], list[Column]]: ...
