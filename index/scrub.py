"""The bytes of an index held against their checksums, piece by piece, for as long as it lives.

Readers check a block when they first touch it and then rely on it, and `Index.check` sees what was
written to a file, but not what became of it on its disk. A `Scrub` reads all files again and again,
a piece of a megabyte at a time; its caller decides how fast. It never maps a file, so nothing that
is wrong with one can crash it.

    scrub = Scrub("corpus.fm")
    while not scrub.step(): ...           # one pass
    print(scrub.problems)                 # {} if all is as it was written
"""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from fmware.index import format as form
from fmware.index.checks import reason
from fmware.index.errors import StoreError
from fmware.index.manifest import load_manifest, load_segment, load_tombstones
from fmware.index.part import PIECE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fmware.index.manifest import Manifest, SegmentEntry
    from fmware.index.part import PartFile

__all__ = ["Scrub", "check_bytes", "files_of"]

TURNS = 5
"""How often a pass begins again because a writer has removed what it was reading."""


class Scrub:
    """Verifies the checksums of the current generation, over and over.

    - `problems`: by file, what is wrong with it, as the pass under way has found it so far; a new
      pass begins without any.
    - `read`: bytes that were read in all; `passes`: how often all files were.
    - `weak`: files without checksums of their pieces, written by an older version: damage in them
      is found when they were read to their ends.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: dict[str, str] = {}
        self.weak: list[str] = []
        self.read = 0
        self.passes = 0
        self._pass: Iterator[int] | None = None

    def step(self) -> bool:
        """Read and check the next piece; whether that was the last of a pass."""
        if self._pass is None:
            self._pass = self._run()
        size = next(self._pass, None)
        if size is not None:
            self.read += size
            return False
        self._pass = None
        self.passes += 1
        return True

    def _run(self) -> Iterator[int]:
        for _ in range(TURNS):
            self.problems, self.weak = {}, []
            try:
                manifest = load_manifest(self.path)
            except (StoreError, OSError) as error:
                self.problems[form.MANIFEST] = reason(error)
                return
            for entry in manifest.segments:
                yield from self._segment(entry)
                if self.problems and self._is_old(manifest):
                    break
            else:
                return

    def _is_old(self, manifest: Manifest) -> bool:
        """Whether a writer has gone on, and removed what this generation needed."""
        try:
            return load_manifest(self.path).generation != manifest.generation
        except (StoreError, OSError):
            return False

    def _segment(self, entry: SegmentEntry) -> Iterator[int]:
        folder = self.path / form.SEGMENTS / entry.name
        try:
            about = load_segment(folder, entry.sha256)
        except (StoreError, OSError) as error:
            self.problems[f"{form.SEGMENTS}/{entry.name}/{form.SEGMENT}"] = reason(error)
            return
        if entry.tombstones is not None:
            try:
                load_tombstones(self.path, entry.tombstones)
            except (StoreError, OSError) as error:
                self.problems[f"{form.TOMBSTONES}/{entry.tombstones.file}"] = reason(error)
        for name, file in about.files.items():
            yield from self._file(folder / name, f"{form.SEGMENTS}/{entry.name}/{name}", file)

    def _file(self, path: Path, name: str, about: PartFile) -> Iterator[int]:
        if not about.pieces:
            self.weak.append(name)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.problems[name] = error.strerror or str(error)
            return
        try:
            if hasattr(os, "POSIX_FADV_NOREUSE"):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_NOREUSE)
            yield from self._pieces(handle, name, about)
        except OSError as error:
            self.problems[name] = error.strerror or str(error)
        finally:
            os.close(handle)

    def _pieces(self, handle: int, name: str, about: PartFile) -> Iterator[int]:
        size = os.fstat(handle).st_size
        if size != about.bytes:
            self.problems[name] = f"is {size:,} bytes long, and was {about.bytes:,}"
            return
        whole = None if about.pieces else hashlib.sha256()
        for number, at in enumerate(range(0, size, PIECE)):
            data = _read(handle, at, min(PIECE, size - at))
            if whole is not None:
                whole.update(data)
            elif zlib.crc32(data) != about.pieces[number]:
                said = f"bytes {at:,} to {at + len(data) - 1:,} are not what was written"
                before = self.problems.get(name)
                self.problems[name] = said if before is None else f"{before}; {said}"
            yield len(data)
        if whole is not None and whole.hexdigest() != about.sha256:
            self.problems[name] = "its checksum does not hold (sha256)"


def check_bytes(path: str | Path) -> dict[str, str]:
    """One pass, as fast as it goes: by file, what is wrong with its bytes."""
    scrub = Scrub(path)
    while not scrub.step():
        pass
    return scrub.problems


def files_of(path: Path, manifest: Manifest) -> Iterator[Path]:
    """The files of a generation, apart from the manifest, as far as they are known."""
    for entry in manifest.segments:
        folder = path / form.SEGMENTS / entry.name
        yield folder / form.SEGMENT
        if entry.tombstones is not None:
            yield path / form.TOMBSTONES / entry.tombstones.file
        try:
            about = load_segment(folder, entry.sha256)
        except (StoreError, OSError):
            continue
        yield from (folder / name for name in about.files)


def _read(handle: int, at: int, size: int) -> bytes:
    """The bytes that are there; fewer if the file has become shorter."""
    parts: list[bytes] = []
    while size:
        data = os.pread(handle, size, at)
        if not data:
            break
        parts.append(data)
        at += len(data)
        size -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)
