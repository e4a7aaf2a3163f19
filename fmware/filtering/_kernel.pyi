from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fmware.xpath import Expr, Path, Step
from labeling import NodeTable, Vocabulary
from labeling._kernel import Columns, Consumer, ThreadParser, Walker

Test = tuple[Expr, tuple[Expr, ...]]
Segment = list[tuple[int, int, list[Test]]]

class Resolve(Protocol):
    def __call__(self, step: Step) -> int: ...
    def key(self, subject: Any) -> object: ...

class Outcome(IntEnum):
    DONE = 0
    NO_MEMORY = 1
    STALE_NAMES = 2
    TOO_ACTIVE = 3
    NO_VALUES = 4
    NO_TREE = 5

class Want(IntEnum):
    NAME = 0
    TUPLES = 1
    SELECTED = 2
    CROSSING = 3

class Automaton:
    vocabulary: Vocabulary
    live_states: int
    sub_count: int
    version: int
    def __init__(self, vocabulary: Vocabulary) -> None: ...
    def add_plain(self, subscriber: int, axes: Sequence[int], tags: Sequence[int]) -> None: ...
    def add_dead(self, subscriber: int) -> None: ...
    def add_to_pattern(self, subscriber: int, pattern: int, wants: int) -> None: ...
    def remove(self, subscriber: int) -> int: ...
    def add_pattern(self, segments: list[Segment], plan: Path | None, resolve: Resolve) -> int: ...
    def add_plan(self, pattern: int, plan: Path, resolve: Resolve) -> None: ...
    def begin_change(self) -> None: ...
    def end_change(self) -> None: ...
    def space(self, uri: str) -> int: ...
    def way(self, axes: list[int], tags: list[int]) -> list[tuple[int, int]]: ...
    def stats(self) -> dict[str, int]: ...

class Runner(Consumer):
    consumed: bool
    version: int
    documents: int
    elements: int
    steps: int
    flushes: int
    def __init__(self, automaton: Automaton, cache: int, max_active: int) -> None: ...
    def begin(self, budget: int, most_tuples: int) -> None: ...
    def run(self, table: NodeTable) -> None: ...
    def take(
        self,
    ) -> tuple[
        int,
        npt.NDArray[np.int32],
        list[tuple[list[int], npt.NDArray[np.int32], bool]] | None,
        npt.NDArray[np.int32] | None,
    ]: ...
    def stats(self) -> dict[str, int]: ...

class Batch:
    outcome: int
    version: int
    mixed: bool
    def __init__(self, bodies: list[Any]) -> None: ...
    def __len__(self) -> int: ...
    def run(self, runner: Runner, walker: Walker, parser: ThreadParser, most: int) -> None: ...
    def add(self, runner: Runner, table: Columns | None) -> int: ...
    def table(self, place: int) -> Any: ...
    def passed(self) -> list[tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int64]]]: ...
    def count(self, passed: npt.NDArray[np.int64], told: npt.NDArray[np.int64]) -> None: ...
    def columns(
        self,
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
    ]: ...

def expand_rows(
    begins: npt.NDArray[np.int64], widths: npt.NDArray[np.int64], rows: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
