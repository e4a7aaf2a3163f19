"""Labelled nodes to a durable index on disk and back.

The way the data goes:

1. `Writer` takes runs, as `labeling` makes them, merges their tags and tries, and builds a segment:
   lists of blocks in LMDB files, each block with its checksum. Publishing it is one rename of the
   manifest. Removing records writes tombstones; `compact` makes one segment of all.
2. `Index` opens a generation and keeps it, whatever is published later. Probes run natively, many
   inputs at once, over blocks in the memory of the files, each checked on first touch:
   `descendants` and `ancestors` by AD label, `identify` by key, `scan` by SES label. Since each
   segment has SES labels of its own, scans are those of a `Segment`.
3. What they give are columns: `Labels`, or `Pairs` of an input's place and a label. `record`,
   `fragment` and `ancestors_of` go from a label back to the source.
4. `Statistics` tells what was counted at building: how nodes cluster, and how tags stand in each
   other.

FORMAT.md gives every byte; `fmware.index.errors` draws the tree of errors.
"""

from fmware.index.environment import ForkedIndex
from fmware.index.errors import (
    BadRule,
    BadRun,
    CorruptIndex,
    FileChanged,
    FormatMismatch,
    IndexClosed,
    IndexExists,
    IndexLocked,
    IndexMissing,
    NoSuchNode,
    NotFound,
    StoreError,
    UnknownScheme,
    UnknownTag,
    WriteFailed,
)
from fmware.index.labels import Labels, Located, Node, Pairs
from fmware.index.reader import Index
from fmware.index.records import StoredRecord
from fmware.index.segment import Axis, Segment
from fmware.index.summary import Statistics
from fmware.index.writer import Writer

__all__ = [
    "Axis",
    "BadRule",
    "BadRun",
    "CorruptIndex",
    "FileChanged",
    "ForkedIndex",
    "FormatMismatch",
    "Index",
    "IndexClosed",
    "IndexExists",
    "IndexLocked",
    "IndexMissing",
    "Labels",
    "Located",
    "NoSuchNode",
    "Node",
    "NotFound",
    "Pairs",
    "Segment",
    "Statistics",
    "StoreError",
    "StoredRecord",
    "UnknownScheme",
    "UnknownTag",
    "WriteFailed",
    "Writer",
]
