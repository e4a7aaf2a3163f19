from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from cmatch import Inputs, Matches, Operator
from fmware.filtering import FilterBatch
from fmware.matching.anchors import Ways
from fmware.matching.crossings import Crossings
from fmware.matching.joins import Join, Joins
from fmware.matching.local import LocalPart, Sought
from fmware.matching.plan import Plan
from fmware.matching.recording import Recording
from fmware.matching.registry import Registry
from labeling import NodeTable, Vocabulary

Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Found = tuple[Int64s, Int64s, Int64s, Int64s, Int16s]
Way = tuple[tuple[int, ...], int]
Key = tuple[str | None, Sought]

class Asked:
    plan: Plan
    part: LocalPart
    selects: bool
    statement: int
    first: int
    last: int
    seconds: float
    failure: Exception | None

class Pairs:
    def __init__(self, parts: list[Matches]) -> None: ...
    def __len__(self) -> int: ...
    def between(self, first: int, last: int) -> Matches: ...

class LocalNodes:
    missing: list[int]
    def __len__(self) -> int: ...
    def inputs(self, first: int, last: int) -> Inputs: ...
    def nodes(self) -> tuple[Int64s, Int64s, Int64s]: ...

class Anchors:
    def __len__(self) -> int: ...
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
    def spread(self) -> LocalNodes: ...

def keys_at(table: NodeTable, row: int, ways: Iterable[Way]) -> list[bytes]: ...
def deliver(joins: Joins, matches: Matches) -> None: ...

class Batch:
    anchors: Anchors
    found: LocalNodes
    pairs: Pairs
    plans: list[Plan]
    asked: list[Asked]
    groups: list[tuple[Key, list[Asked]]]
    done: bool
    truncated: set[tuple[int, int]]
    def __init__(
        self,
        found: FilterBatch,
        ends: list[int],
        registry: Registry,
        tables: list[NodeTable | None],
        most: int,
    ) -> None: ...
    def resolve(self, crossings: Crossings, tables: list[NodeTable | None]) -> None: ...
    def unmatched(self) -> dict[int, int]: ...
    def feed(self, crossings: Crossings, state: JoinState, group: list[Asked]) -> None: ...
    @property
    def waiting(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    def settle(self, crossings: Crossings) -> list[tuple[list[Asked], Exception]]: ...
    def give_up(self, joins: Joins) -> None: ...
    def add(self, matches: Matches) -> None: ...
    def end(self) -> None: ...
    def replace(self, pairs: Pairs) -> None: ...
    def matches(self) -> tuple[Int32s, Int64s, Int32s, Int64s, Int64s, Int16s, list[int]]: ...
    def widths_of(self) -> list[int]: ...
    def places_of(self, number: int) -> list[int]: ...
    def failures(self) -> list[tuple[int, Exception]]: ...
    def tally(self) -> None: ...

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
    def __init__(self, scheme: str, tag: int, capsules: list[object | None]) -> None: ...
