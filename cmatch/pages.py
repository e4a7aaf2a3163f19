"""What pages that are not in memory cost: measured on a file whose pages were dropped."""

from __future__ import annotations

import mmap
import os
import time
import zlib
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["pages"]

SCRATCH = 24 << 20
CHECKED = 4 << 20
ROUNDS = 3


def pages(folder: Path) -> dict[str, float]:
    """Seconds: a page that is waited for, a byte that is read behind it, one that is checked."""
    path = folder / "pages"
    path.write_bytes(os.urandom(1 << 16) * (SCRATCH >> 16))
    found = {
        "fault": median(_fault(path) for _ in range(ROUNDS)),
        "read_byte": median(_stretch(path) for _ in range(ROUNDS)),
        "checked_byte": min(_check(path) for _ in range(ROUNDS)),
    }
    path.unlink()
    return found


def _check(path: Path) -> float:
    """Seconds of the CPU for one byte of which the checksum is computed."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        some = memoryview(held)[:CHECKED]
        began = time.process_time_ns()
        zlib.crc32(some)
        taken = time.process_time_ns() - began
        some.release()
        return taken / 1e9 / CHECKED


@contextmanager
def _cold(path: Path) -> Iterator[mmap.mmap]:
    """A file of which no page is in memory; only those that are asked for will be read."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as held:
            held.madvise(mmap.MADV_RANDOM)
            yield held
    finally:
        os.close(handle)


def _fault(path: Path) -> float:
    """Seconds by the clock for one page."""
    with _cold(path) as held:
        places = range(0, len(held), len(held) // 16)
        began = time.perf_counter_ns()
        for place in places:
            _ = held[place]
        return (time.perf_counter_ns() - began) / 1e9 / len(places)


def _stretch(path: Path) -> float:
    """Seconds by the clock for one byte of a stretch that was announced."""
    size = 4 << 20
    with _cold(path) as held:
        began = time.perf_counter_ns()
        held.madvise(mmap.MADV_WILLNEED, 0, size)
        for place in range(0, size, mmap.PAGESIZE):
            _ = held[place]
        return (time.perf_counter_ns() - began) / 1e9 / size
