"""What a stretch of code costs, waiting included, and how to make the files of an index cold."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cost", "Pages", "metered"]

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


@dataclass(slots=True)
class Cost:
    """Seconds by the clock and of the CPU, of all threads; page faults; bytes the disk gave.

    A major fault waits for the disk. What the kernel reads ahead is in the bytes, not in the
    faults.
    """

    wall: float = 0.0
    cpu: float = 0.0
    major: int = 0
    minor: int = 0
    read: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.wall + other.wall,
            self.cpu + other.cpu,
            self.major + other.major,
            self.minor + other.minor,
            self.read + other.read,
        )


@contextmanager
def metered(*, collect: bool = True) -> Iterator[Cost]:
    """Fills in the cost of the block; the garbage collector runs before it and not in it."""
    cost = Cost()
    collecting = gc.isenabled()
    if collect:
        gc.collect()
    gc.disable()
    try:
        read, usage = _bytes_read(), resource.getrusage(resource.RUSAGE_SELF)
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        yield cost
        cost.wall = (time.perf_counter_ns() - wall) / 1e9
        cost.cpu = (time.process_time_ns() - cpu) / 1e9
        after = resource.getrusage(resource.RUSAGE_SELF)
        cost.major = after.ru_majflt - usage.ru_majflt
        cost.minor = after.ru_minflt - usage.ru_minflt
        cost.read = _bytes_read() - read
    finally:
        if collecting:
            gc.enable()


def _bytes_read() -> int:
    """Bytes that the disk gave to this process so far, Linux's count; 0 where it is not told."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


class Pages:
    """The files of a folder, and which of their pages are in memory."""

    def __init__(self, folder: Path) -> None:
        self._root = os.path.realpath(folder)
        self._files = sorted(each for each in Path(self._root).rglob("*") if each.is_file())

    def drop(self) -> None:
        """Let the pages go, those that this process has mapped too: Linux keeps those otherwise."""
        for start, size in self._maps():
            _called("madvise", _POINTER(start), _SIZE(size), mmap.MADV_DONTNEED)
        for file in self._files:
            handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)

    def read_further(self) -> None:
        """From now on a fault brings what the kernel thinks comes next, too, as of any file."""
        for start, size in self._maps():
            _called("madvise", _POINTER(start), _SIZE(size), mmap.MADV_NORMAL)

    def _maps(self) -> Iterator[tuple[int, int]]:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            if self._root in line:
                low, high = (int(each, 16) for each in line.split(None, 1)[0].split("-"))
                yield low, high - low

    def resident(self) -> int:
        """How many pages of the files are in memory; asking brings none in."""
        return sum(_resident(file) for file in self._files)

    @property
    def total(self) -> int:
        """How many pages the files have."""
        return sum(-(-file.stat().st_size // _PAGE) for file in self._files)


def _resident(file: Path) -> int:
    size = file.stat().st_size
    if not size:
        return 0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as held:
        found = np.zeros(-(-size // _PAGE), np.uint8)
        view = np.frombuffer(held, np.uint8)
        pages = found.ctypes.data_as(_POINTER)
        _called("mincore", _POINTER(view.ctypes.data), _SIZE(size), pages)
        del view
        return int((found & 1).sum())


def _called(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
