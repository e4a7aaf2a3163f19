"""The first batches of a join, kept so that other ways can be tried on them.

A batch is small, and its columns are pieces of larger ones: kept as they came, each would cost
a thousand bytes, and hold on to all that was looked up with it. So they are copied, many into one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmatch import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Recording"]

PACK = 64
"""Batches that are put together."""


class Recording:
    """Batches of inputs, in their order."""

    __slots__ = ("_lengths", "_loose", "_packs")

    def __init__(self) -> None:
        self._packs: list[tuple[Inputs, list[int]]] = []
        self._loose: list[Inputs] = []
        self._lengths: list[int] = []

    def add(self, inputs: Inputs) -> None:
        """Keep a copy of a batch; labels of different schemes stay apart."""
        if self._loose and self._loose[0].scheme != inputs.scheme:
            self._pack()
        self._loose.append(inputs.take(np.arange(len(inputs))))
        self._lengths.append(len(inputs))
        if len(self._loose) >= PACK:
            self._pack()

    def copy(self) -> Recording:
        """What there is now; batches themselves never change."""
        made = Recording()
        made._packs, made._loose = [*self._packs], [*self._loose]
        made._lengths = [*self._lengths]
        return made

    def _pack(self) -> None:
        self._packs.append((Inputs.joined(self._loose), self._lengths))
        self._loose, self._lengths = [], []

    def __iter__(self) -> Iterator[Inputs]:
        for pack, lengths in self._packs:
            low = 0
            for length in lengths:
                yield pack.take(slice(low, low + length))
                low += length
        yield from self._loose
