import numpy as np
import numpy.typing as npt

def gathered(
    data: npt.NDArray[np.uint8], begin: npt.NDArray[np.int64], size: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]: ...
def values_of(
    kind: npt.NDArray[np.uint8],
    parent: npt.NDArray[np.int32],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int32],
    data: npt.NDArray[np.uint8],
    longest: int,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8]]: ...
