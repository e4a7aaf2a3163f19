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
    - `version`: of the statements that answered; `mixed` if they changed within the batch.
    """

    __slots__ = (
        "_batch",
        "_bodies",
        "_reader",
        "_tables",
        "crossed",
        "ends",
        "errors",
        "ids",
        "rows",
        "told",
        "truncated",
        "undecided",
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

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        # A column becomes an array when it is first asked for: most batches need few of them.
        column = self._batch.column(name)
        setattr(self, name, column)
        return column

    def ends_of(self, column: int) -> list[int]:
        """Where the items of each message end in a column, by its place in a line of `ends`."""
        return self._batch.ends_of(column)

    def __len__(self) -> int:
        return len(self._bodies)

    @property
    def version(self) -> int:
        """The version of the statements that answered; -1 if no message was given to them."""
        return self._batch.version

    @property
    def mixed(self) -> bool:
        """Whether statements changed between two messages of the batch."""
        return self._batch.mixed

    def passed(self) -> list[tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int64]]]:
        """The statements with crossings that let messages pass: what is in `crossed`, put together.

        Of each its number, its tuples, a line each, and of each line the place of its message.
        """
        return self._batch.passed()

    def count(self, passed: npt.NDArray[np.int64], told: npt.NDArray[np.int64]) -> None:
        """Add to counts by statement: messages that passed it, and lines of `ids` and `told`.

        REQUIRES: both have room for the number of every statement.
        """
        self._batch.count(passed, told)

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
