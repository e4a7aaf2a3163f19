"""Open LMDB files: one of each in a process, shared by all who read it.

LMDB must not have a file open twice in one process, and must not be used across a fork. So what is
open is kept here, by the file itself and not by its name: an index that is built anew under an old
name is another file. An `Environment` is one user's hold on an open file. The last to be let go
closes it, and arrays that look into it hold it too: no memory is unmapped while anyone can see it.

A probe touches a few pages of a file, and the next one others. So the system is told to read no
page that was not asked for: what it would read ahead else is megabytes on some disks. Blocks of
several pages are announced instead, and who takes block after block is read ahead of.

A process that was forked begins with nothing open, and never touches what it inherited. LMDB would
not open these files once more in such a process, so there they are read by `fmware.index.pages`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

from fmware.index._kernel import is_in_memory
from fmware.index._stamp import Stamp
from fmware.index.errors import CorruptIndex, FileChanged, IndexClosed
from fmware.index.pages import Pages
from fmware.index.part import MAX_DATABASES

if TYPE_CHECKING:
    from fmware.index.part import PartFile

__all__ = ["Environment", "ForkedIndex", "open_files", "process"]

_CHUNK = 1 << 22
_MOST_AHEAD = 1 << 22
_OVERFLOW = 16
_BLOCK_KEY = 8
_libc = ctypes.CDLL(None)


def _will_need(start: int, end: int) -> None:
    """Have pages brought into memory, without waiting; it is only advice, so nobody checks."""
    start -= start % mmap.PAGESIZE
    _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_WILLNEED)


class ForkedIndex(IndexClosed):
    """An index was opened before a fork and used after it."""

    def __str__(self) -> str:
        return f"{self.path}: was opened before this process was forked; open it again here"


class _Open:
    """An open file and how many use it; `handle` is there to ask whether it has changed."""

    __slots__ = ("handle", "key", "path", "stamp", "users")

    def __init__(self, path: str, key: tuple[int, int], handle: int) -> None:
        self.path = path
        self.key = key
        self.handle = handle
        # Before any page is checked: what changes from here on is noticed.
        self.stamp = Stamp(path, handle)
        self.users = 0

    def get(self, database: str, key: bytes) -> memoryview | None:
        raise NotImplementedError

    def peek(self, database: str, key: bytes) -> memoryview | None:
        """`get`, but no page of the value is touched; None also if that cannot be done."""
        raise NotImplementedError

    def close(self) -> None:
        os.close(self.handle)


class _Announcer:
    """Tells the system which pages of a map will be read, before they are.

    LMDB's binding touches every page of a value when it is looked up. So where a value lies is
    guessed: blocks of a list are of one size and lie side by side. A wrong guess costs one read.
    """

    __slots__ = ("_ahead", "_seen")

    def __init__(self) -> None:
        # Of each list, the block that was read last: its number, where it lay, its size.
        self._seen: dict[tuple[str, bytes], tuple[int, int, int]] = {}
        self._ahead = 0

    def expect(self, database: str, key: bytes) -> None:
        """A block is looked up next; those behind it will be, too, if the one before it was."""
        seen = self._seen.get((database, key[:4]))
        if seen is None or len(key) != _BLOCK_KEY:
            return
        before, start, size = seen
        number = int.from_bytes(key[4:], "big")
        self._ahead = min(2 * self._ahead + size, _MOST_AHEAD) if number == before + 1 else 0
        stride = -(-(size + _OVERFLOW) // mmap.PAGESIZE) * mmap.PAGESIZE
        start += (number - before) * stride
        _will_need(start, start + size + self._ahead)

    def met(self, database: str, key: bytes, value: memoryview) -> None:
        """A block was found."""
        if len(value) <= mmap.PAGESIZE or len(key) != _BLOCK_KEY:
            return
        start = np.frombuffer(value, np.uint8).__array_interface__["data"][0]
        self._seen[database, key[:4]] = int.from_bytes(key[4:], "big"), start, len(value)


class _Mapped(_Open):
    """A file that LMDB has open, with one transaction that reads it as long as it is."""

    __slots__ = (
        "_announcer",
        "_databases",
        "_environment",
        "_lock",
        "_map",
        "_pages",
        "_transaction",
    )

    def __init__(self, path: str, key: tuple[int, int], handle: int, about: PartFile) -> None:
        super().__init__(path, key, handle)
        check_pages(path, handle, about)
        # LMDB looks up the root of a named database on first use, and writes it down: that is the
        # one thing that threads which share a transaction for reading must not do at once.
        self._lock = threading.Lock()
        self._databases: dict[str, Any] = {}
        self._announcer = _Announcer()
        # LMDB's binding touches all of a value that it finds; `peek` reads the tree here instead.
        self._map = _map_of(handle)
        self._pages: Pages | None = None
        try:
            self._environment = lmdb.open(
                path,
                subdir=False,
                readonly=True,
                lock=False,
                create=False,
                map_size=about.bytes,
                max_dbs=MAX_DATABASES,
                readahead=False,
            )
            for name in about.stores:
                self._databases[name] = self._environment.open_db(name.encode(), create=False)
            self._transaction = self._environment.begin(buffers=True)
        except lmdb.Error as error:
            raise CorruptIndex(path, str(error)) from error
        # LMDB opens by name: it must be the file whose pages were checked.
        if _key_of(os.stat(path)) != key or not self.stamp.unchanged:  # noqa: PTH116
            self._transaction.abort()
            self._environment.close()
            raise FileChanged(path, "was replaced or written to while it was opened")

    def get(self, database: str, key: bytes) -> memoryview | None:
        handle = self._databases.get(database)
        if handle is None:
            return None
        try:
            with self._lock:
                self._announcer.expect(database, key)
                value: memoryview | None = self._transaction.get(key, db=handle)
                if value is not None:
                    self._announcer.met(database, key, value)
        except lmdb.Error as error:
            raise CorruptIndex(self.path, str(error)) from error
        return value

    def peek(self, database: str, key: bytes) -> memoryview | None:
        with self._lock:
            if self._pages is None:
                if self._map is None:
                    return None
                self._pages = _pages(self._map, self.path)
            pages = self._pages
        return _walked(pages, self.path, database, key)

    def close(self) -> None:
        if self._pages is not None:
            self._pages.close()
        elif self._map is not None:
            self._map.close()
        self._transaction.abort()
        self._environment.close()
        super().close()


class _Walked(_Open):
    """A file that this process inherited open: it is mapped anew, and read without LMDB."""

    __slots__ = ("_pages",)

    def __init__(self, path: str, key: tuple[int, int], handle: int, about: PartFile) -> None:
        super().__init__(path, key, handle)
        check_pages(path, handle, about)
        self._pages = _pages(Path(path), path)

    def get(self, database: str, key: bytes) -> memoryview | None:
        return _walked(self._pages, self.path, database, key)

    peek = get

    def close(self) -> None:
        self._pages.close()
        super().close()


def _map_of(handle: int) -> mmap.mmap | None:
    """A map of an open file, to see where values lie; None if there is no room for another one.

    LMDB does not say where its own map is, and to read that from the system takes milliseconds.
    """
    try:
        made = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    # Pages that were not asked for must not be read ahead: they would seem to be in memory.
    made.madvise(mmap.MADV_RANDOM)
    return made


def _pages(file: Path | mmap.mmap, path: str) -> Pages:
    try:
        return Pages(file)
    except ValueError as error:
        raise CorruptIndex(path, str(error)) from error


def _walked(pages: Pages, path: str, database: str, key: bytes) -> memoryview | None:
    try:
        return pages.get(database, key)
    except ValueError as error:
        raise CorruptIndex(path, str(error)) from error


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
    """A hold on an open LMDB file; it lets go when it is itself let go.

    `stamp` tells whether the file was written to since this was made.
    """

    __slots__ = ("__weakref__", "_open", "_process", "path", "stamp")

    def __init__(self, path: Path, about: PartFile) -> None:
        self.path = os.path.realpath(path)
        self._process = _process
        with self._process.lock:
            self._open, self.stamp = _opened(self._process, self.path, about)

    def get(self, database: str, key: bytes) -> memoryview | None:
        """A value, in the memory of the file; it must not outlive this."""
        if self._process is not _process:
            raise ForkedIndex(self.path)
        return self._open.get(database, key)

    def in_memory(self, database: str, key: bytes) -> bool:
        """Whether all pages of a value are in memory; none is touched but those that lead to it.

        If that cannot be known, they are taken to be.
        """
        if self._process is not _process:
            raise ForkedIndex(self.path)
        value = self._open.peek(database, key)
        return value is None or is_in_memory(value)

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


def _opened(process: _Process, path: str, about: PartFile) -> tuple[_Open, Stamp]:
    """The open file of a path, with one user more, and how it is now.

    It is checked if it was not open, and again if it has changed since: who had it before must not
    trust it any more, and a new user begins with what is there.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        key = _key_of(os.fstat(handle))
        held = process.open.get(key)
        if held is None:
            inherited = any(key in each.open for each in _inherited)
            held = (_Walked if inherited else _Mapped)(path, key, handle, about)
            process.open[key] = held
            handle, stamp = -1, held.stamp
        elif held.stamp.unchanged:
            stamp = held.stamp
        else:
            stamp = Stamp(path, held.handle)
            check_pages(path, held.handle, about)
    finally:
        if handle >= 0:
            os.close(handle)
    held.users += 1
    return held, stamp


def _key_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def check_pages(path: str, handle: int, about: PartFile) -> None:
    """Check all pages that LMDB would follow pointers in; blocks have checksums of their own.

    The size is checked too, because a map of a file that is too short ends in a bus error.
    """
    size = os.fstat(handle).st_size
    if size != about.bytes:
        raise CorruptIndex(path, f"has {size:,} bytes where {about.bytes:,} were written")
    if _tree_checksum(handle, about) != about.tree_crc:
        raise CorruptIndex(path, "the checksum of its tree does not hold")


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
