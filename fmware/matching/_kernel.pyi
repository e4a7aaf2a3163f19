from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from fmware.cmatch import Inputs, Matches, Operator
from fmware.filtering import FilterBatch
from fmware.labeling import NodeTable
from fmware.matching.anchors import AnchorPart, Resolver
from fmware.matching.crossings import Crossings
from fmware.matching.joins import Join, Joins
from fmware.matching.local import LocalPart, Sought
from fmware.matching.plan import Plan
from fmware.matching.recording import Recording
from fmware.matching.registry import Registry

Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Found = tuple[Int64s, Int64s, Int64s, Int64s, Int16s]
Way = tuple[tuple[int, ...], int]

class Seek:
    anchor: str | None
    sought: Sought
    def __init__(self, anchor: str | None, sought: Sought) -> None: ...
    def __hash__(self) -> int: ...

class Crossing:
    anchor: AnchorPart
    part: LocalPart
    seek: Seek
    selects: bool
    def __init__(self, anchor: AnchorPart, part: LocalPart, selects: bool, seek: Seek) -> None: ...

class Tally:
    matches: int
    failed: int
    seconds: float
    shares: dict[JoinState, Share]
    @property
    def joins(self) -> dict[Join, Share]: ...

class Prepared:
    crossings: list[Crossing]
    apart: int
    tally: Tally
    def __init__(self, crossings: list[Crossing], apart: int) -> None: ...

class Asked:
    part: LocalPart
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
        self, tables: list[NodeTable | None], resolver: Resolver
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

class Clock:
    seconds: dict[str, float]
    def lap(self, stage: str) -> None: ...

class Ids: ...

class Batch:
    anchors: Anchors
    found: LocalNodes
    pairs: Pairs
    tables: list[NodeTable | None]
    plans: list[Plan]
    numbers: list[int]
    widths: list[int]
    asked: list[Asked]
    groups: list[tuple[Seek, list[Asked]]]
    done: bool
    hits: Hits
    failures: list[tuple[int, Exception, list[int]]]
    truncated: set[tuple[int, int]]
    troubled: bool
    def __init__(self, passed: FilterBatch, registry: Registry, most: int) -> None: ...
    def resolve(self, crossings: Crossings) -> None: ...
    def unmatched(self) -> dict[int, int]: ...
    def full(self) -> set[int]: ...
    def unmatched_by(self, owners: list[str]) -> dict[tuple[int, str], int]: ...
    def ask(self, crossings: Crossings) -> None: ...
    def feed(self, crossings: Crossings, state: JoinState, group: list[Asked]) -> None: ...
    @property
    def waiting(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    def settle(self, crossings: Crossings) -> list[tuple[list[Asked], Exception]]: ...
    def give_up(self, joins: Joins) -> None: ...
    def add(self, matches: Matches) -> None: ...
    def replace(self, pairs: Pairs) -> None: ...
    def end(self) -> None: ...
    def places_of(self, number: int) -> list[int]: ...

class Hits:
    ends: list[int]
    def __init__(
        self, ends: list[int], lines: list[tuple[int, int, int, int, int, int]] = ...
    ) -> None: ...
    def __len__(self) -> int: ...
    def count_of(self, place: int) -> int: ...
    def __getitem__(self, number: int) -> tuple[int, int, int, int]: ...
    @property
    def plan(self) -> Int32s: ...
    @property
    def at(self) -> Int64s: ...
    @property
    def segment(self) -> Int32s: ...
    @property
    def start(self) -> Int64s: ...
    @property
    def end(self) -> Int64s: ...
    @property
    def level(self) -> Int16s: ...

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
