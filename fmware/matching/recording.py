"""The first batches of a join, kept so that other ways can be tried on them.

A batch is small, and its columns are pieces of larger ones: kept as they came, each would cost
a thousand bytes, and hold on to all that was looked up with it. So they are copied as bytes, which
is quickly done, and many are put together into one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fmware.cmatch import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Recording"]

PACK = 64
"""Batches that are put together."""


_TYPES = (np.int64, np.int32, np.int64, np.int64, np.int16, np.int64, np.int64)
"""Of the columns, in the order `Inputs` has them."""


class Recording:
    """Batches of inputs, in their order."""

    __slots__ = ("_lengths", "_loose", "_packs", "_scheme")

    def __init__(self) -> None:
        self._packs: list[tuple[Inputs, list[int]]] = []
        self._loose: list[tuple[bytes, ...]] = []
        self._lengths: list[int] = []
        self._scheme: str | None = None

    def add(self, inputs: Inputs) -> None:
        """Keep a copy of a batch; labels of different schemes stay apart."""
        columns = inputs.id, inputs.segment, inputs.start, inputs.end, inputs.level
        labels = (inputs.rank, inputs.last) if inputs.scheme is not None else ()
        copied = (
            *[each.tobytes() for each in columns],
            *[each.tobytes() for each in labels if each is not None],
        )
        self.add_bytes(copied, len(inputs.id), inputs.scheme)

    def add_bytes(self, columns: tuple[bytes, ...], length: int, scheme: str | None) -> None:
        """The same for columns that are bytes already, in the order `Inputs` has them."""
        if (self._loose and self._scheme != scheme) or len(self._loose) >= PACK:
            self._pack()
        self._scheme = scheme
        self._loose.append(columns)
        self._lengths.append(length)

    def copy(self) -> Recording:
        """What there is now; batches themselves never change."""
        made = Recording()
        made._packs, made._loose = [*self._packs], [*self._loose]
        made._lengths, made._scheme = [*self._lengths], self._scheme
        return made

    def _packed(self) -> Inputs:
        """The loose batches as one."""
        columns = [
            np.frombuffer(b"".join(parts), kind)
            for parts, kind in zip(zip(*self._loose, strict=True), _TYPES, strict=False)
        ]
        id_, segment, start, end, level, *labels = columns
        rank, last = labels or (None, None)
        return Inputs(id_, segment, start, end, level, rank, last, self._scheme)

    def _pack(self) -> None:
        self._packs.append((self._packed(), self._lengths))
        self._loose, self._lengths = [], []

    def __iter__(self) -> Iterator[Inputs]:
        loose = [(self._packed(), self._lengths)] if self._loose else []
        for pack, lengths in [*self._packs, *loose]:
            low = 0
            for length in lengths:
                yield pack.take(slice(low, low + length))
                low += length
