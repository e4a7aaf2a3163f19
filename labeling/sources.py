"""What a corpus is made of: files, found by name, directory or pattern, each with its labels.

A file may be compressed (gzip, zstd, bzip2, xz), told by its first bytes, and may be a tar archive
of documents, told by its name. A plain file of records can be cut into stretches that are
labelled apart from each other; all others are read from end to end.

Each file gets a range of labels before anything is read. A node takes two ticks and has at least
as many bytes, so a plain file needs as many as it has bytes. How long a compressed file is shows
only at its end: gzip cannot blow up more than 1032 times, others, and archives, get 2^40.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import zstandard

from fmware.labeling.errors import SourceError
from fmware.labeling.runs import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Document", "File", "Reading", "Stretch", "files_of", "find", "stretches"]

CHUNK = 1 << 20
_PACKED_CHUNK = 1 << 17
UNKNOWN = 1 << 40
"""Labels of a file whose length is not known before it is read."""
_GZIP_MOST = 1032
NOWHERE = "nowhere"
"""How a symbolic link is packed that leads to no file."""
GAP = 16
"""Labels between two documents that nobody gets."""

_SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
_ARCHIVES = (".tar", ".tgz", *(f".tar{suffix}" for suffix in _SUFFIXES))
_DOCUMENTS = (".xml", *(f".xml{suffix}" for suffix in _SUFFIXES))
_DAMAGE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zstandard.ZstdError,
)
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the corpus: how it is packed, and where its labels begin."""

    path: str
    size: int
    packed: str
    archive: bool
    base: int
    span: int

    @property
    def source(self) -> Source:
        return Source(self.path, self.base, self.span)

    @property
    def plain(self) -> bool:
        """Whether it can be read from anywhere within it."""
        return not self.packed and not self.archive

    def chunks(self, offset: int) -> Iterator[bytes]:
        """The bytes of a plain file, from an offset on."""
        with Reading(self._open(offset)) as reading:
            yield from reading

    def _open(self, offset: int = 0) -> IO[bytes]:
        try:
            if self.packed:
                return _unpacked(self.path, self.packed)
            file = Path(self.path).open("rb")  # noqa: SIM115 - the caller's to close
            file.seek(offset)
            return file  # noqa: TRY300
        except OSError as error:
            raise SourceError(f"{self.path} cannot be opened: {error.strerror or error}") from None

    def documents(self, skipped: list[str]) -> Iterator[Document]:
        """What is inside: the file itself, or the documents of an archive, one after the other.

        Members of an archive that are no documents, by their names, are `skipped`.
        """
        if not self.archive:
            with Reading(self._open()) as reading:
                yield Document(self.path, self.base, reading)
            return
        try:
            yield from self._members(skipped)
        except SourceError:
            raise
        except _DAMAGE as error:
            raise SourceError(f"damaged or cut short: {error}") from None

    def _members(self, skipped: list[str]) -> Iterator[Document]:
        base = self.base
        with self._open() as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                name = f"{self.path}!{member.name}"
                inner = archive.extractfile(member) if member.isreg() else None
                if inner is None or not member.name.lower().endswith(_DOCUMENTS):
                    skipped.extend([name] if inner is not None else [])
                    continue
                packed = _SUFFIXES.get(Path(member.name).suffix.lower())
                reading = Reading(_unpacked(inner, packed) if packed else inner)
                yield Document(name, base, reading)
                base += reading.bytes + GAP


class Document(NamedTuple):
    """Bytes to read, with a name for errors and the label they begin at."""

    name: str
    base: int
    file: Reading


class Reading:
    """A file that counts what was read, and says of damage what it is."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except _DAMAGE as error:
            # What was read before the damage is good and has been given away.
            raise SourceError(f"damaged or cut short: {error}") from None
        self.bytes += len(data)
        return data

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read(CHUNK):
            yield chunk

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Stretch(NamedTuple):
    """A part of a file: records that begin in [begin, end). All of it, unless it is plain."""

    file: File
    begin: int
    end: int


def find(names: Iterable[str | Path]) -> list[Path]:
    """The files that names, patterns and directories stand for, each once, in order.

    A directory stands for the documents and archives below it, by their suffixes; a file that is
    named is taken whatever it is called.
    """
    found: dict[Path, None] = {}
    for name in names:
        text = str(name).removeprefix("file://")
        before = len(found)
        for path in _named(text):
            found[path] = None
        if len(found) == before and not any(Path(each) in found for each in _named(text)):
            raise SourceError(_nothing(text))
    return list(found)


def _nothing(name: str) -> str:
    if Path(name).is_dir():
        return f"{name} holds no document: files that end in .xml, packed or not, or tar archives"
    return f"there is no file {name}"


def _named(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        suffixes = (*_DOCUMENTS, *_ARCHIVES)
        yield from sorted(p for p in path.rglob("*") if p.name.lower().endswith(suffixes))
    elif path.exists():
        yield path
    else:
        yield from (Path(each) for each in sorted(glob.glob(name, recursive=True)))  # noqa: PTH207 - may be absolute


def files_of(paths: Iterable[Path], base: int = 0) -> list[File]:
    """The files, with labels from `base` on."""
    files = []
    for path in paths:
        file = _file(path, base)
        base += file.span + GAP
        files.append(file)
    return files


def _file(path: Path, base: int) -> File:
    try:
        size = path.stat().st_size
        with path.open("rb") as opened:
            head = opened.read(8)
    except OSError as error:
        if path.is_symlink():
            # It leads nowhere, or in a circle: whoever opens it rejects it, and the others go on.
            return File(str(path), 0, NOWHERE, archive=False, base=base, span=0)
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    packed = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
    archive = path.name.lower().endswith(_ARCHIVES)
    span = size
    if packed or archive:
        span = size * _GZIP_MOST + CHUNK if packed == "gzip" and not archive else UNKNOWN
    return File(str(path), size, packed, archive, base, span)


def stretches(files: Iterable[File], size: int, *, cut: bool) -> Iterator[list[Stretch]]:
    """Work of about `size` bytes each: large files in parts where they may be cut, small ones
    together."""
    batch: list[Stretch] = []
    held = 0
    for file in files:
        if cut and file.plain and file.size > size:
            if batch:
                yield batch
                batch, held = [], 0
            count = -(-file.size // size)
            bounds = [file.size * i // count for i in range(count + 1)]
            for begin, end in pairwise(bounds):
                yield [Stretch(file, begin, end)]
            continue
        if batch and held + file.size > size:
            yield batch
            batch, held = [], 0
        batch.append(Stretch(file, 0, file.size))
        held += file.size
    if batch:
        yield batch


def _unpacked(file: str | IO[bytes], packed: str) -> IO[bytes]:
    """A reader of a packed file; it closes what it has opened by name."""
    if packed == "gzip":
        return cast("IO[bytes]", gzip.open(file, "rb"))
    if packed == "bzip2":
        return bz2.open(file, "rb")
    if packed == "xz":
        return lzma.open(file, "rb")
    opened = Path(file).open("rb") if isinstance(file, str) else file  # noqa: SIM115
    return io.BufferedReader(_Zstd(opened), CHUNK)


class _Zstd(io.RawIOBase):
    """The bytes of zstd frames. The package's own reader takes a frame that breaks off for its
    end, and what is missing would be lost without a word."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while not self._ready:
            if self._frame.eof:
                self._packed = self._frame.unused_data
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._begun = False
            packed = self._packed or self._file.read(_PACKED_CHUNK)
            self._packed = b""
            if not packed:
                if self._begun:
                    raise EOFError("a zstd frame breaks off")
                return 0
            self._begun = True
            self._ready = memoryview(self._frame.decompress(packed))
        count = min(len(room), len(self._ready))
        room[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
