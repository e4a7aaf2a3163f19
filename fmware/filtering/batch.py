"""What the filter says of many messages, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from fmware.filtering._kernel import Batch
    from labeling import NodeTable, Reader

__all__ = ["FilterBatch"]


class FilterBatch:
    """The statements that match each message of a batch, and the rows of tuples.

    Items of messages follow each other in the columns. Line `place` of `ends` says where those of
    a message end in `ids`, `told`, `crossed`, `rows`, `undecided` and `truncated`; they begin where
    those of the message before end.

    - `ids`: statements that asked for their name.
    - `told`: of each tuple of the others the statement, where its rows begin in `rows`, and how
      many they are. `crossed`: of statements with crossings the statement, where the rows begin,
      how many tuples there are, and how many rows one has.
    - `undecided`, `truncated`: statements, as in `FilterResult`.
    - `errors`: by place, why a message could not be read or filtered.
    - `version`: of the statements that answered, -1 if no message was given to them; `mixed` if
      they changed within the batch.

    `span(place, column)` says where the items of one message begin and end, and `ends_of(column)`
    where those of each end; columns are numbered as in a line of `ends`. `passed()` puts together
    what is in `crossed`: of each statement its number, its tuples, a line each, and of each line
    the place of its message. `raw(name)` gives the bytes of `crossed` or `rows`, for kernels.
    `match_counts(ends)` counts the lines of `ids` and `told` of each message, and those of another
    column that ends there. `count(passed, told)` adds to counts by statement: messages that
    passed it, and lines of `ids` and `told`.
    """

    __slots__ = (
        "_batch",
        "_bodies",
        "_reader",
        "_tables",
        "count",
        "crossed",
        "ends",
        "ends_of",
        "errors",
        "ids",
        "match_counts",
        "mixed",
        "passed",
        "raw",
        "rows",
        "span",
        "told",
        "truncated",
        "undecided",
        "version",
    )

    ends: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    told: npt.NDArray[np.int64]
    crossed: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    undecided: npt.NDArray[np.int32]
    truncated: npt.NDArray[np.int32]

    def __init__(
        self,
        batch: Batch,
        bodies: Sequence[bytes | NodeTable | None],
        tables: dict[int, NodeTable],
        errors: dict[int, Exception],
        reader: Reader,
    ) -> None:
        self._batch = batch
        self._bodies = bodies
        self._tables = tables
        self._reader = reader
        self.errors = errors
        self.version = batch.version
        self.mixed = batch.mixed
        # Straight from the native batch: these are asked for message by message.
        self.ends_of = batch.ends_of
        self.span = batch.span
        self.passed = batch.passed
        self.count = batch.count
        self.raw = batch.raw
        self.match_counts = batch.match_counts

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        # A column becomes an array when it is first asked for: most batches need few of them.
        column = self._batch.column(name)
        setattr(self, name, column)
        return column

    def __len__(self) -> int:
        return len(self._bodies)

    def answered(self, place: int) -> bool:
        """Whether a message was read and filtered."""
        return place not in self.errors and self._bodies[place] is not None

    def table(self, place: int) -> NodeTable | None:
        """The nodes of a message; None if it could not be read.

        The table of a message without tuples was not kept: it is read again when asked for.
        """
        table = self._tables.get(place)
        if table is None:
            table = self._batch.table(place)
            body = self._bodies[place]
            if table is None and place not in self.errors and isinstance(body, bytes):
                table = self._reader.read(body)
            if table is not None:
                table = self._tables.setdefault(place, table)
        return table
