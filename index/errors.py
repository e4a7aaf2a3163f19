"""What can go wrong with an index on disk.

StoreError
├── IndexMissing (FileNotFoundError)  there is no index at that path
├── IndexExists (FileExistsError)     there is something at that path already
├── IndexLocked (BlockingIOError)     another writer is at work
├── IndexClosed (ValueError)          used after it was closed
├── FormatMismatch (ValueError)       written in a format that this version does not read
├── CorruptIndex (ValueError)         bytes that are not the ones that were written
│   └── FileChanged                   a file was written to while it was open
├── WriteFailed (OSError)             the disk did not take it; the index is as it was
├── BadRun (ValueError)               labelled nodes that do not fit the index or each other
├── BadRule (ValueError)              an identity rule that says nothing sensible
└── NotFound (LookupError)
    ├── UnknownScheme                 no such SES scheme in this index
    ├── UnknownTag                    no node of that name in this index
    └── NoSuchNode                    no node or record with that label

All of them can be pickled: they cross process borders inside Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BadRule",
    "BadRun",
    "CorruptIndex",
    "FileChanged",
    "FormatMismatch",
    "IndexClosed",
    "IndexExists",
    "IndexLocked",
    "IndexMissing",
    "NoSuchNode",
    "NotFound",
    "StoreError",
    "UnknownScheme",
    "UnknownTag",
    "WriteFailed",
]


class StoreError(Exception):
    """Everything that `index` raises on purpose."""


class IndexMissing(StoreError, FileNotFoundError):
    """There is no index at that path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: no index here (no manifest.json); build one first"


class IndexExists(StoreError, FileExistsError):
    """A new index was asked for where something is already."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found)
        self.path = path
        self.found = found

    def __str__(self) -> str:
        return f"{self.path}: holds {self.found} already; add to it, or choose another directory"


class IndexLocked(StoreError, BlockingIOError):
    """Another writer holds the index; `holder` says which process, and since when."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        return f"{self.path}: another writer is at work ({self.holder}); wait until it is done"


class IndexClosed(StoreError, ValueError):
    """An index, a segment or a writer was used after it was closed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: closed; open it again"


class FormatMismatch(StoreError, ValueError):
    """Written in another version of the format than the one that is read here."""

    def __init__(self, file: str, found: object, supported: int) -> None:
        super().__init__(file, found, supported)
        self.file = file
        self.found = found
        self.supported = supported

    def __str__(self) -> str:
        return (
            f"{self.file}: written in format {self.found}, and this version reads format "
            f"{self.supported}; use the version that wrote it, or build the index again"
        )


class CorruptIndex(StoreError, ValueError):
    """Bytes that are not the ones that were written; `file` and `reason` say which."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(file, reason)
        self.file = file
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.file}: {self.reason}; `fmware index verify` lists all damage: restore the file "
            f"from a copy, repair the index with `fmware index verify --repair`, or build it again"
        )


class FileChanged(CorruptIndex):
    """A file of an open index was written to: what was read since cannot be trusted.

    Nothing writes to the files of an index once they are published. An `Index` that has found one
    changed stays in error; open another one.
    """

    def __init__(self, file: str, reason: str = "was written to while it was open") -> None:
        super().__init__(file, reason)


class WriteFailed(StoreError, OSError):
    """The disk did not take what was written; `generation` is the one the index is at."""

    def __init__(self, path: str, reason: str, generation: int | None = None) -> None:
        super().__init__(path, reason, generation)
        self.path = path
        self.reason = reason
        self.generation = generation

    def __str__(self) -> str:
        state = "" if self.generation is None else f"; the index is at generation {self.generation}"
        return f"{self.path}: could not be written: {self.reason}{state}; make room and try again"


class BadRun(StoreError, ValueError):
    """Labelled nodes that do not fit the index, or do not fit each other."""


class BadRule(StoreError, ValueError):
    """An identity rule that cannot be read; `rule` is its text."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(rule, reason)
        self.rule = rule
        self.reason = reason

    def __str__(self) -> str:
        return f"identity rule {self.rule!r}: {self.reason}"


class NotFound(StoreError, LookupError):
    """Something was asked for that the index does not hold."""


class UnknownScheme(NotFound):
    """No such SES scheme in this index."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(name, self.known)

    def __str__(self) -> str:
        return f"no scheme {self.name!r} in this index; it has {', '.join(self.known) or 'none'}"


class UnknownTag(NotFound):
    """No node of that name in this index."""

    def __init__(self, kind: int, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"no {'attribute' if self.kind else 'element'} {self.name!r} in this index"


class NoSuchNode(NotFound):
    """No node, or no record, has that label (any more)."""

    def __init__(self, start: int, what: str = "node") -> None:
        super().__init__(start, what)
        self.start = start
        self.what = what

    def __str__(self) -> str:
        return f"no {self.what} starts at {self.start} in this index, or it was removed"
