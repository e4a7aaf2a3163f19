from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from cmatch import Inputs, Matches
from fmware.matching.anchors import Ways
from fmware.matching.joins import Join, Joins
from fmware.matching.local import LocalPart
from fmware.matching.plan import Plan
from index import Index
from labeling import NodeTable, Vocabulary

Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Part = tuple[list[int], int, int, Int64s, Int64s, Int64s, Int64s, Int16s]
Cut = tuple[int, int, int, int]
Way = tuple[tuple[int, ...], int]

class Asked:
    plan: Plan
    part: LocalPart
    selects: bool
    first: int
    last: int
    seconds: float
    failure: Exception | None
    def __init__(self, plan: Plan, part: LocalPart, selects: bool) -> None: ...

class Pairs:
    def __init__(self, parts: list[Matches]) -> None: ...
    def __len__(self) -> int: ...
    def between(self, first: int, last: int) -> Matches: ...

class LocalNodes:
    cuts: list[Cut]
    missing: list[int]
    def __len__(self) -> int: ...
    def inputs(
        self,
        low: int,
        high: int,
        rank: Int64s | None = None,
        last: Int64s | None = None,
        scheme: str | None = None,
    ) -> Inputs: ...
    def listed(self, low: int, high: int) -> Int64s: ...
    def tags(self, low: int, high: int) -> Int64s: ...
    def narrowed(self, cuts: Iterable[Cut], first: int, last: int) -> list[Cut]: ...

class Anchors:
    def __len__(self) -> int: ...
    def add(self, tuples: Int32s, place: Int64s, step: int) -> int: ...
    def add_rows(self, line: Int64s, place: Int64s, row: Int64s) -> int: ...
    def at(self, number: int) -> tuple[int, int]: ...
    def read(
        self, tables: Sequence[NodeTable | None], ways_of: Callable[[Vocabulary], Ways]
    ) -> tuple[tuple[list[int], list[int]], dict[int, tuple[list[int], list[bytes]]]]: ...
    def spread(
        self, parts: Iterable[Part], bounds: list[int], tags: int, by_tag: bool
    ) -> LocalNodes: ...
    def matches(
        self, pairs: Pairs, statements: Iterable[tuple[Int64s, bool, Sequence[Asked]]]
    ) -> tuple[tuple[Int64s, Int64s, Int64s, Int32s, Int64s], list[int]]: ...

def keys_at(table: NodeTable, row: int, ways: Iterable[Way]) -> list[bytes]: ...
def fed(
    joins: Joins,
    index: Index,
    join: Join,
    inputs: Inputs,
    group: list[Asked],
    otherwise: Callable[[Join, Inputs], Matches],
) -> Matches: ...
