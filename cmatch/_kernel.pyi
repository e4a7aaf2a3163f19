import numpy as np
import numpy.typing as npt

from cmatch.inputs import Inputs, Matches

Int64s = npt.NDArray[np.int64]
Tallies = tuple[
    int, int, int, int, int, int, int, int, int, int, int, int, float, float, int, float
]
Event = tuple[int, int, int, int, int, int, int, int]
Group = tuple[int, int, Int64s, Int64s, int]

class Cleaner:
    @property
    def watched(self) -> bool: ...
    scheme: str
    most: int
    each: int
    noted: Tallies | None
    together: int
    def __init__(
        self,
        axis: int,
        budget: int,
        partition: int,
        place: bytes,
        scheme: str,
        tracing: bool = False,
        jitter: int = 0,
    ) -> None: ...
    def left(self, inputs: Inputs) -> tuple[Matches, Int64s | None]: ...
    def ask(self, inputs: Inputs) -> tuple[Matches, list[Group] | None, Int64s | None]: ...
    def feeder(self) -> object: ...
    def rest(self, inputs: Inputs) -> tuple[Matches, list[Group] | None, Int64s | None]: ...
    def watch(self, ahead: int, least: int = 0, largest: int = ...) -> None: ...
    def trust(self, batches: int, more: int = 0) -> None: ...
    def probe(self, place: int, capsule: object | None) -> None: ...
    def knows(self, place: int) -> bool: ...
    def fetch(
        self,
        place: int,
        first: int,
        rows: npt.ArrayLike | None,
        ranks: npt.ArrayLike,
        lasts: npt.ArrayLike,
    ) -> bool: ...
    def set_aside(self, first: int, wanted: npt.ArrayLike) -> Int64s | None: ...
    def wait(self, first: int, rows: npt.ArrayLike) -> None: ...
    def settle(
        self,
        first: int,
        rows: npt.ArrayLike | None,
        left: npt.ArrayLike | None,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        level: npt.ArrayLike,
    ) -> None: ...
    def answer(self, inputs: Inputs) -> tuple[Matches, Int64s | None]: ...
    def take(self) -> Matches: ...
    def right(
        self,
        segment: int,
        rank: int,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        level: npt.ArrayLike,
        last: bool,
    ) -> None: ...
    def right_all(
        self,
        segment: int,
        ranks: npt.ArrayLike,
        left: npt.ArrayLike,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        level: npt.ArrayLike,
    ) -> None: ...
    def renumber(self, places: npt.ArrayLike) -> None: ...
    def tallies(self) -> Tallies: ...
    def events(self) -> list[Event]: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...

def matched(
    ids: Int64s,
    left: Int64s,
    segment: int,
    start: Int64s,
    end: Int64s,
    level: npt.NDArray[np.int16],
) -> Matches: ...
def both(one: Matches, other: Matches) -> Matches: ...
def chosen(inputs: Inputs, rows: Int64s) -> Inputs: ...
def total(counts: npt.ArrayLike) -> int: ...
def look_directly(wanted: bool) -> bool: ...
