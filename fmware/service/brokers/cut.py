"""A stream of bytes, cut into the documents that follow each other in it."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from fmware.labeling._kernel import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Cutter", "digest"]


def digest(body: bytes) -> str:
    """A few letters that stand for the bytes."""
    return blake2b(body, digest_size=8).hexdigest()


class Cutter:
    """Takes bytes as they come and gives documents, each with its offset.

    No more than `largest` bytes of one are kept: it is given with as many, and one more, so that
    whoever reads it refuses it for its size.
    """

    def __init__(self, largest: int) -> None:
        self._scanner = Scanner([], largest)
        self._largest = largest

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The documents that are whole now; no bytes are the end of the stream."""
        if chunk:
            self._scanner.feed(chunk)
        else:
            self._scanner.finish()
        while (piece := self._scanner.cut()) is not None:
            data, offset, _, _, _, over = piece
            yield offset, data.ljust(self._largest + 1) if over else data
