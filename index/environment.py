"""Open LMDB files: one of each in a process, shared by all who read it.

LMDB must not have a file open twice in one process, and must not be used across a fork. So what is
open is kept here, by the file itself and not by its name: an index that is built anew under an old
name is another file. An `Environment` is one user's hold on an open file. The last to be let go
closes it, and arrays that look into it hold it too: no memory is unmapped while anyone can see it.

A process that was forked begins with nothing open, and never touches what it inherited. LMDB would
not open these files once more in such a process, so there they are read by `index.pages`.
"""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb

from index.errors import CorruptIndex, IndexClosed
from index.pages import Pages
from index.part import MAX_DATABASES

if TYPE_CHECKING:
    from index.part import PartFile

__all__ = ["Environment", "ForkedIndex", "open_files", "process"]

_CHUNK = 1 << 22


class ForkedIndex(IndexClosed):
    """An index was opened before a fork and used after it."""

    def __str__(self) -> str:
        return f"{self.path}: was opened before this process was forked; open it again here"


class _Open:
    """An open file and how many use it."""

    __slots__ = ("key", "path", "users")

    def __init__(self, path: str, key: tuple[int, int]) -> None:
        self.path = path
        self.key = key
        self.users = 0

    def get(self, database: str, key: bytes) -> memoryview | None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Mapped(_Open):
    """A file that LMDB has open, with one transaction that reads it as long as it is."""

    __slots__ = ("_databases", "_environment", "_lock", "_transaction")

    def __init__(self, path: str, key: tuple[int, int], about: PartFile) -> None:
        super().__init__(path, key)
        # LMDB looks up the root of a named database on first use, and writes it down: that is the
        # one thing that threads which share a transaction for reading must not do at once.
        self._lock = threading.Lock()
        self._databases: dict[str, Any] = {}
        try:
            self._environment = lmdb.open(
                path,
                subdir=False,
                readonly=True,
                lock=False,
                create=False,
                map_size=about.bytes,
                max_dbs=MAX_DATABASES,
            )
            for name in about.stores:
                self._databases[name] = self._environment.open_db(name.encode(), create=False)
            self._transaction = self._environment.begin(buffers=True)
        except lmdb.Error as error:
            raise CorruptIndex(path, str(error)) from error

    def get(self, database: str, key: bytes) -> memoryview | None:
        handle = self._databases.get(database)
        if handle is None:
            return None
        try:
            with self._lock:
                value: memoryview | None = self._transaction.get(key, db=handle)
        except lmdb.Error as error:
            raise CorruptIndex(self.path, str(error)) from error
        return value

    def close(self) -> None:
        self._transaction.abort()
        self._environment.close()


class _Walked(_Open):
    """A file that this process inherited open: it is mapped anew, and read without LMDB."""

    __slots__ = ("_pages",)

    def __init__(self, path: str, key: tuple[int, int]) -> None:
        super().__init__(path, key)
        try:
            self._pages = Pages(Path(path))
        except ValueError as error:
            raise CorruptIndex(path, str(error)) from error

    def get(self, database: str, key: bytes) -> memoryview | None:
        try:
            return self._pages.get(database, key)
        except ValueError as error:
            raise CorruptIndex(self.path, str(error)) from error

    def close(self) -> None:
        self._pages.close()


class _Process:
    """What this process has open. A fork gets another one of these."""

    __slots__ = ("lock", "open")

    def __init__(self) -> None:
        # Re-entrant, because a user may be let go by the garbage collector at any point.
        self.lock = threading.RLock()
        self.open: dict[tuple[int, int], _Open] = {}


_process = _Process()
_inherited: list[_Process] = []


def _after_fork() -> None:
    global _process
    # Kept for ever, because closing them is not for this process to do.
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)


def process() -> object:
    """Stands for this process; after a fork, another object does."""
    return _process


def open_files() -> list[str]:
    """The paths of the files that are open in this process, each once."""
    with _process.lock:
        return sorted(each.path for each in _process.open.values())


class Environment:
    """A hold on an open LMDB file; it lets go when it is itself let go."""

    __slots__ = ("__weakref__", "_open", "_process", "path")

    def __init__(self, path: Path, about: PartFile) -> None:
        self.path = os.path.realpath(path)
        self._process = _process
        with self._process.lock:
            self._open = _opened(self._process, self.path, about)

    def get(self, database: str, key: bytes) -> memoryview | None:
        """A value, in the memory of the file; it must not outlive this."""
        if self._process is not _process:
            raise ForkedIndex(self.path)
        return self._open.get(database, key)

    def __del__(self) -> None:
        mine: _Process | None = getattr(self, "_process", None)
        held: _Open | None = getattr(self, "_open", None)
        if mine is None or held is None or mine is not _process:
            return
        with mine.lock:
            held.users -= 1
            if not held.users:
                del mine.open[held.key]
                held.close()


def _opened(process: _Process, path: str, about: PartFile) -> _Open:
    """The open file of a path, with one user more; opened and checked if it was not open."""
    status = os.stat(path)  # noqa: PTH116
    key = (status.st_dev, status.st_ino)
    held = process.open.get(key)
    if held is None:
        check_pages(path, about)
        inherited = any(key in each.open for each in _inherited)
        held = _Walked(path, key) if inherited else _Mapped(path, key, about)
        process.open[key] = held
    held.users += 1
    return held


def check_pages(path: str, about: PartFile) -> None:
    """Check all pages that LMDB would follow pointers in; blocks have checksums of their own.

    The size is checked too, because a map of a file that is too short ends in a bus error.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(handle).st_size
        if size != about.bytes:
            raise CorruptIndex(path, f"has {size:,} bytes where {about.bytes:,} were written")
        if _tree_checksum(handle, about) != about.tree_crc:
            raise CorruptIndex(path, "the checksum of its tree does not hold")
    finally:
        os.close(handle)


def _tree_checksum(handle: int, about: PartFile) -> int:
    crc = 0
    for first, count in zip(about.tree[::2], about.tree[1::2], strict=True):
        at, left = first * about.page, count * about.page
        while left:
            data = os.pread(handle, min(left, _CHUNK), at)
            if not data:
                break
            crc = zlib.crc32(data, crc)
            at += len(data)
            left -= len(data)
    return crc
