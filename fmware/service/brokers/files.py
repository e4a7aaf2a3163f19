"""Files: a directory of messages in, a directory of JSON lines out.

In: a file is a message. When it is done it is moved away or removed, so that what is there is what
is left to do; a crash leaves it there. Its id is its name and a digest of its bytes. Write files
elsewhere and move them in: what begins with a dot or ends in `.tmp` or `.part` is not looked at. A
symbolic link that leads in a circle is a dead letter; a file that cannot be read is looked at again
later, and the others go on.

Out: `matches-000001.jsonl`, and `dead-000001.jsonl` for dead letters; a new file is begun when one
is large enough. Lines are on the disk when a message is acknowledged. A line that a crash left half
written is cut off when the sink is opened. The ids of the last lines are known, over a restart,
too: what is there already is not written again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import ELOOP
from fnmatch import fnmatch
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fmware.service.brokers.cut import digest
from fmware.service.envelope import DEFAULT, Envelope, now, rfc3339
from fmware.service.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from fmware.service.envelope import DeadLetter, Hit

__all__ = ["FileDelivery", "FilesSink", "FilesSource", "Lines"]

LOOK: Final = 1000
"""Files that are taken from one look at the directory."""
AHEAD, AHEAD_BYTES = 64, 1 << 20
"""Files that are read at once, and bytes of them."""
KNOWN: Final = 100_000
"""Lines whose ids are known."""
UNFINISHED: Final = (".tmp", ".part")
AGAIN: Final = 10.0
"""Seconds after which a file that could not be read is looked at again."""

log = logging.getLogger("fmware.service")


# --- in -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class FileDelivery:
    """A file of the directory."""

    envelope: Envelope
    path: Path
    source: FilesSource
    attempts: int = 1
    unreadable: str = ""
    """Why there is nothing to match, ever."""

    async def ack(self) -> None:
        self.source.finish(self.path)

    async def nack(self, delay: float) -> None:
        self.source.back(self.path, delay)


class FilesSource:
    """The files of a directory, by name, and those that come later."""

    def __init__(
        self,
        name: str,
        *,
        path: str | Path,
        pattern: str = "*.xml",
        done: str | Path | None = None,
        tenant: str = DEFAULT,
        poll_seconds: float = 1.0,
        largest: int = 64 << 20,
    ) -> None:
        self.name = name
        self._path = Path(path)
        self._pattern = pattern
        self._moved = None if done is None else Path(done)
        self._tenant = tenant
        self._poll = poll_seconds
        self._largest = largest
        self._taken: set[str] = set()

    async def open(self) -> None:
        if not self._path.is_dir():
            raise BrokerError(f"{self.name}: {self._path} is not a directory: make it")
        if self._moved is not None:
            self._moved.mkdir(parents=True, exist_ok=True)
        self._taken.clear()

    async def deliveries(self) -> AsyncGenerator[FileDelivery, None]:
        while True:
            names = await asyncio.to_thread(self._names)
            left = deque(names)
            while left:
                for name, body, time, error in await asyncio.to_thread(self._read, left):
                    self._taken.add(name)
                    path = self._path / name
                    if error is not None and error.errno != ELOOP:
                        log.warning("source %s: %s: %s", self.name, path, error.strerror)
                        self.back(path, AGAIN)
                        continue
                    known_by = f"{name}:{digest(body)}"
                    envelope = Envelope(known_by, body, self._tenant, self.name, time)
                    why = "" if error is None else f"{path}: {error.strerror}"
                    yield FileDelivery(envelope, path, self, unreadable=why)
            if len(names) < LOOK:
                await asyncio.sleep(self._poll)

    def _names(self) -> list[str]:
        with os.scandir(self._path) as found:
            names = (each.name for each in found if self._is_message(each))
            return nsmallest(LOOK, names)

    def _is_message(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        if name in self._taken or name.startswith(".") or name.endswith(UNFINISHED):
            return False
        if not fnmatch(name, self._pattern):
            return False
        try:
            return entry.is_file()
        except OSError:
            return True  # It is there, and cannot be read: `_read` says why.

    def _read(self, left: deque[str]) -> list[tuple[str, bytes, str, OSError | None]]:
        """The next files with their times, a few at a time; of a huge one enough to be refused.

        Of one that cannot be read the error is told.
        """
        found: list[tuple[str, bytes, str, OSError | None]] = []
        size = 0
        while left and len(found) < AHEAD and size < AHEAD_BYTES:
            name = left.popleft()
            try:
                with (self._path / name).open("rb") as file:
                    written = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
                    body = file.read(self._largest + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                found.append((name, b"", now(), error))
                continue
            found.append((name, body, rfc3339(written), None))
            size += len(body)
        return found

    def finish(self, path: Path) -> None:
        """Move a file away, or remove it."""
        if self._moved is None:
            path.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):
                path.replace(self._moved / path.name)
        self._taken.discard(path.name)

    def back(self, path: Path, delay: float) -> None:
        """Have a file be seen again."""
        asyncio.get_running_loop().call_later(delay, self._taken.discard, path.name)

    async def close(self) -> None:
        """What is not done is still there."""


# --- out ----------------------------------------------------------------------------------------


class Lines:
    """Files of lines in a directory, numbered, no longer than so many bytes and a batch.

    Each line has an id, and one whose id is among the last is not written again.
    """

    def __init__(self, folder: Path, stem: str, rotate: int) -> None:
        self._folder = folder
        self._stem = stem
        self._rotate = rotate
        self._file = -1
        self._size = 0
        self._known: dict[str, None] = {}

    def paths(self) -> list[Path]:
        """The files there are, the oldest first."""
        return sorted(self._folder.glob(f"{self._stem}-*.jsonl"))

    def open(self) -> None:
        """Go on with the last file, without what is half written in it."""
        paths = self.paths()
        path = paths[-1] if paths else self._folder / f"{self._stem}-000001.jsonl"
        self._begin(path)
        whole = _whole(self._file, self._size)
        if whole < self._size:
            log.warning("%s: %d bytes of an unfinished line cut off", path, self._size - whole)
            os.ftruncate(self._file, whole)
            self._size = whole
        self._known = dict.fromkeys(_last_ids(self.paths()))

    def _begin(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        self._size = os.fstat(self._file).st_size

    def add(self, lines: Mapping[str, bytes]) -> None:
        """Write lines, by id, and have them on the disk."""
        new = {name: line for name, line in lines.items() if name not in self._known}
        if not new:
            return
        if self._size >= self._rotate:
            number = int(self.paths()[-1].stem.rpartition("-")[2]) + 1
            os.close(self._file)
            self._begin(self._folder / f"{self._stem}-{number:06}.jsonl")
        self._append(b"".join(line + b"\n" for line in new.values()))
        self._known.update(dict.fromkeys(new))
        while len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    def _append(self, data: bytes) -> None:
        begin = self._size
        try:
            view = memoryview(data)
            while view:
                written = os.write(self._file, view)
                self._size += written
                view = view[written:]
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, begin)
                self._size = begin
            raise

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


class FilesSink:
    """JSON lines in a directory: hits, and dead letters beside them."""

    def __init__(self, name: str, *, path: str | Path, rotate_bytes: int = 64 << 20) -> None:
        self.name = name
        self._path = Path(path)
        self._matches = Lines(self._path, "matches", rotate_bytes)
        self._dead = Lines(self._path, "dead", rotate_bytes)
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        try:
            await asyncio.to_thread(self._open)
        except OSError as error:
            raise BrokerError(f"{self.name}: {self._path}: {error.strerror}") from error

    def _open(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        self._matches.open()
        self._dead.open()

    async def write(self, hits: Sequence[Hit]) -> None:
        await self._add(self._matches, {hit.id: hit.line() for hit in hits})

    async def dead(self, letter: DeadLetter) -> None:
        await self._add(self._dead, {letter.id: letter.line()})

    async def _add(self, lines: Lines, data: Mapping[str, bytes]) -> None:
        async with self._lock:
            writing = asyncio.ensure_future(asyncio.to_thread(lines.add, data))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])  # The thread goes on, and the file is its till then.
                raise
            except OSError as error:
                raise BrokerError(f"{self.name}: {self._path}: {error.strerror}") from error

    async def close(self) -> None:
        async with self._lock:
            self._matches.close()
            self._dead.close()


def _whole(file: int, size: int) -> int:
    """How many bytes of a file are whole lines."""
    end = size
    while end > 0:
        begin = max(0, end - 65_536)
        at = os.pread(file, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _last_ids(paths: Sequence[Path]) -> list[str]:
    """The ids of the last lines, the newest last; no more files are read than are needed."""
    ids: list[str] = []
    for path in reversed(paths):
        with path.open("rb") as file:
            ids = [json.loads(line)["id"] for line in file] + ids
        if len(ids) >= KNOWN:
            break
    return ids[-KNOWN:]
