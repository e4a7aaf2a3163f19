"""Spark as a place to work: a mapper whose calls are tasks of a job, and the session's options.

The session is always passed in; nothing here makes one. Work is handed over through files in a
scratch directory that all machines see, because a closure with a million file names would go to
every task. Each task reads its item, calls the function, and gives the answer back through Arrow.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from fmware.labeling.arrow import binary_column, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["SparkMapper", "answers"]

_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.binary())])


class SparkMapper:
    """Calls of a function as the tasks of one Spark job, one item each."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark = spark
        self._scratch = scratch

    def __call__(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if not items:
            return []
        place = self._scratch / f"items-{uuid4().hex}"
        place.mkdir(parents=True)
        for number, item in enumerate(items):
            (place / str(number)).write_bytes(pickle.dumps(item))
        frame = self._spark.range(0, len(items), 1, len(items)).toDF("number")
        called = frame.mapInArrow(_caller(function, str(place)), "number long, answer binary")
        return answers(called.collect(), len(items))


def _caller(
    function: Callable[[Any], Any], place: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                item = pickle.loads((Path(place) / str(number)).read_bytes())
                answer = pickle.dumps(function(item))
                yield pa.RecordBatch.from_arrays(
                    [column(np.array([number])), binary_column([answer], pa.binary())],
                    schema=_SCHEMA,
                )

    return call


def answers(rows: Sequence[Any], count: int) -> list[Any]:
    """The answers by the numbers of their items."""
    found = {row["number"]: pickle.loads(row["answer"]) for row in rows}
    return [found[number] for number in range(count)]
