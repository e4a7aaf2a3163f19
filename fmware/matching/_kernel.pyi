from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from cmatch import Inputs, Matches, Operator
from fmware.matching.anchors import AnchorPart, Resolver, Ways
from fmware.matching.crossings import Passed
from fmware.matching.joins import Join, Joins
from fmware.matching.local import LocalPart, Sought
from fmware.matching.plan import Plan
from fmware.matching.recording import Recording
from index import Index
from labeling import NodeTable, Vocabulary

Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Found = tuple[Int64s, Int64s, Int64s, Int64s, Int16s]
Cut = tuple[int, int, int]
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
    cuts: list[list[Cut]]
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
    ) -> tuple[list[int], list[int]]: ...
    def identify(
        self,
        known: dict[int, list[object | None]],
        finders: Callable[[int], list[object | None]],
        identify: Callable[[int, int, list[bytes]], Found],
    ) -> None: ...
    def locate(
        self,
        nodes: list[int],
        tag: int,
        segment: int,
        lefts: Int64s,
        rows: Int64s,
        starts: Int64s,
        ends: Int64s,
        levels: Int16s,
    ) -> None: ...
    def spread(self, bounds: list[int], tags: int, by_tag: bool) -> LocalNodes: ...
    def matches(
        self, pairs: Pairs, statements: Iterable[tuple[Int64s, bool, Sequence[Asked]]]
    ) -> tuple[tuple[Int64s, Int64s, Int64s, Int32s, Int64s], list[int]]: ...

def keys_at(table: NodeTable, row: int, ways: Iterable[Way]) -> list[bytes]: ...

class Batch:
    anchors: Anchors
    asked: list[Asked]
    groups: list[list[Asked]]
    bounds: list[int]
    done: bool
    def __init__(
        self,
        passed: Sequence[Passed],
        branched: Callable[[AnchorPart, Passed], tuple[Int64s, Int64s, Int64s]],
    ) -> None: ...
    def matches(self, pairs: Pairs) -> tuple[Int64s, Int64s, Int64s, Int32s, Int64s]: ...
    def tally(self) -> None: ...
    def failures(self) -> list[tuple[int, Exception]]: ...

class JoinState:
    join: Join
    operator: Operator | None
    recording: Recording | None
    room: int
    def __init__(self, join: Join) -> None: ...

class Share:
    batches: float
    inputs: int
    pairs: int
    seconds: float

class LabelLists:
    scheme: str
    def __init__(self, scheme: str, capsules: list[object | None]) -> None: ...

class Route:
    state: JoinState
    tag: int
    def __init__(self, state: JoinState, tag: int) -> None: ...

class Joining:
    pairs: Pairs
    def __init__(
        self,
        joins: Joins,
        index: Index,
        resolver: Resolver,
        found: LocalNodes,
        known: dict[tuple[Sought, int], list[Route]],
        routes: Callable[[LocalPart, int], list[Route]],
        otherwise: Callable[[Join, Inputs], Matches],
    ) -> None: ...
    def feed(self, group: list[Asked], cuts: list[Cut]) -> None: ...
    def end(self) -> None: ...
    def tally(self) -> None: ...
