"""The memory of a worker: what messages and statements take, they give back."""

from __future__ import annotations

import ctypes
import gc
import sys
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from fmware.service.worker import Worker
from tests.service.shop import BAD, CITY, ITEMS, SALE, message, shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATEMENTS: list[dict[str, Any]] = [
    CITY,
    SALE,
    *(
        {"name": f"f{number}", "expression": f"//sale/item[units = {number}]", "returns": ["name"]}
        for number in range(400)
    ),
]


class Heap(ctypes.Structure):
    """What glibc says of its heap."""

    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(10)]


def in_use() -> int:
    """Bytes of the heap that are in use: numpy's columns, tables, the filter."""
    found = ctypes.CDLL(None)
    if not hasattr(found, "mallinfo2"):
        pytest.skip("glibc 2.33 or later says what is in use")
    found.mallinfo2.restype = Heap
    heap = found.mallinfo2()
    return int(heap.field4 + heap.field7)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker({"index": str(shop(tmp_path))})
    assert made.subscribe([("default", each) for each in STATEMENTS]) == []
    yield made
    made.close()


def test_a_bad_message_leaves_no_circle(worker: Worker) -> None:
    """With its batch in it, which only the collector could find."""
    batch = [("default", str(number), "", message(number)) for number in range(10)]
    worker.match([*batch, ("default", "bad", "", BAD)])
    gc.collect()
    gc.disable()
    try:
        found = worker.match([*batch, ("default", "bad", "", BAD)])
        assert [each.place for each in found.troubles if each.poison] == [10]
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_messages_and_replaced_statements_take_no_more_and_more(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is kept for reports is bounded; here it is full soon.
    monkeypatch.setattr("fmware.matching.joins.RECORDED", 100)
    replaced = cycle(STATEMENTS)
    names = count()

    def go(rounds: int) -> tuple[int, int]:
        for _ in range(rounds):
            numbers = range(next(names) % ITEMS, ITEMS, 7)
            batch = [("default", str(next(names)), "", message(number)) for number in numbers]
            worker.match([*batch, ("default", str(next(names)), "", BAD)])
            worker.match(batch[:1])
            worker.subscribe([("default", each) for each in islice(replaced, 2)])
        gc.collect()
        return sys.getallocatedblocks(), in_use()

    go(600)
    before = go(200)
    after = go(600)
    blocks, size = (now - then for now, then in zip(after, before, strict=True))
    assert blocks < 1_000
    assert size < 200_000
