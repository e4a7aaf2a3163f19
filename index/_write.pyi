import numpy as np
import numpy.typing as npt

def lengths(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    low: int,
    high: int,
    length: npt.NDArray[np.uint32],
) -> bool: ...
def enclosing(
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    base: int,
    up: npt.NDArray[np.uint32],
) -> int: ...
def translate(
    rank: npt.NDArray[np.uint32],
    table: npt.NDArray[np.uint32],
    label: npt.NDArray[np.uint32],
    count: npt.NDArray[np.uint64],
) -> None: ...
def scatter(
    label: npt.NDArray[np.uint32],
    low: int,
    high: int,
    cursor: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    length: npt.NDArray[np.uint32],
    level: npt.NDArray[np.int16],
    to_start: npt.NDArray[np.int64],
    to_length: npt.NDArray[np.uint32],
    to_level: npt.NDArray[np.uint16],
) -> None: ...
def gather_keys(
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    order: npt.NDArray[np.int64],
    to_offsets: npt.NDArray[np.int64],
    to_data: npt.NDArray[np.uint8],
) -> None: ...
def collides(
    hashes: npt.NDArray[np.uint64],
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
) -> bool: ...
