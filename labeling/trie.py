"""Tries of SES labels: growing them, numbering them, merging them.

While records come in, a `Trie` grows and gives its nodes ids in the order they are met. At the end
`ordered` numbers them canonically: preorder, children sorted by (tag, extra). A node's number is
its rank, and its SES label the interval [rank, rank + size - 1]. Tries of parts of a corpus are
brought together by `merge_tries`, after `renumbered` where the parts number their tags otherwise:
more nodes do not change the order of those there are, so ranks only move up, and lists that are
sorted by rank stay sorted.

The top of a trie has no number: a trie is a forest of what stands at the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fmware.labeling import _ses
from fmware.labeling.errors import SchemeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fmware.labeling.ses import Chain, Forest

__all__ = ["NO_PARENT", "Trie", "TrieColumns", "merge_tries", "renumbered"]

NO_PARENT = _ses.NO_PARENT
"""In `TrieColumns.parents`: at the top."""


@dataclass(frozen=True, slots=True, eq=False)
class TrieColumns:
    """A trie in canonical preorder: a row is a trie node, its number the rank.

    `size` counts the nodes of the subtree, itself included.
    """

    tag: npt.NDArray[np.uint32]
    extra: npt.NDArray[np.uint32]
    size: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.tag)

    @property
    def last(self) -> npt.NDArray[np.uint32]:
        """The right end of each label, rank + size - 1."""
        return np.arange(len(self), dtype=np.uint32) + self.size - np.uint32(1)

    def parents(self) -> npt.NDArray[np.uint32]:
        """The rank of each parent, NO_PARENT at the top; ValueError if this is no trie."""
        return _ses.parents(_column(self.size))

    def check(self) -> None:
        """ValueError unless this is a trie in canonical preorder."""
        if not len(self.tag) == len(self.extra) == len(self.size):
            raise ValueError("the columns of a trie have one length")
        parents = self.parents()
        rank = np.flatnonzero(self.last < len(self) - 1)
        following = rank + self.size[rank]
        beside = parents[rank] == parents[following]
        rank, following = rank[beside], following[beside]
        key = self.tag.astype(np.uint64) << np.uint64(32) | self.extra
        wrong = rank[key[rank] >= key[following]]
        if len(wrong):
            raise ValueError(f"rank {wrong[0]} and the one beside it are not in order")


class Trie:
    """A trie that grows; its ids count from 0, parents before children.

    One thread at a time may extend it, and does so without the GIL.
    """

    __slots__ = ("_map",)

    def __init__(self) -> None:
        self._map = _ses.TrieMap()

    def __len__(self) -> int:
        return len(self._map)

    def extend(self, forest: Forest, chain: Chain) -> npt.NDArray[np.uint32]:
        """The id of each row's trie node; nodes that are not there yet are added.

        After a SchemeError rows before the bad one are in the trie.
        """
        tag = np.ascontiguousarray(forest.tag, np.int32)
        before = np.ascontiguousarray(chain.before, np.int32)
        extra = np.ascontiguousarray(chain.extra, np.uint32)
        order = None if chain.order is None else np.ascontiguousarray(chain.order, np.int32)
        try:
            return self._map.extend(tag, before, extra, order)
        except ValueError as error:
            raise SchemeError(f"a scheme made a chain that is none: {error}") from None

    def ordered(
        self, tags: npt.NDArray[np.int32], extra_is_tag: bool
    ) -> tuple[TrieColumns, npt.NDArray[np.uint32]]:
        """The trie in canonical preorder, and the rank of each id.

        `tags` gives each tag's canonical number.
        """
        parent, tag, extra = self._map.columns()
        tag, extra = _mapped(tag, extra, np.asarray(tags), extra_is_tag=extra_is_tag)
        rank, size = _ses.numbered(parent, tag, extra)
        columns = []
        for column in (tag, extra, size):
            placed = np.empty_like(column)
            placed[rank] = column
            columns.append(placed)
        return TrieColumns(*columns), rank


def merge_tries(
    tries: Sequence[TrieColumns],
) -> tuple[TrieColumns, list[npt.NDArray[np.uint32]]]:
    """The union of tries, and for each the merged rank of every rank, which ascends.

    The tries number tags and extras alike. Their columns may be read-only views of files.
    """
    inputs = [(_column(each.tag), _column(each.extra), _column(each.size)) for each in tries]
    columns, ranks = _ses.merged(inputs)
    return TrieColumns(*columns), ranks


def renumbered(trie: TrieColumns, tags: npt.NDArray[np.uint32], extra_is_tag: bool) -> TrieColumns:
    """The same trie by other numbers of tags; `tags` ascends, so the order stays."""
    tag, extra = _mapped(trie.tag, trie.extra, np.asarray(tags), extra_is_tag=extra_is_tag)
    return TrieColumns(tag, extra, trie.size)


def _mapped(
    tag: npt.NDArray[np.uint32],
    extra: npt.NDArray[np.uint32],
    tags: npt.NDArray[np.integer],
    *,
    extra_is_tag: bool,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    # A place in front for "no tag", so that extras find their new numbers in one look-up.
    number = np.zeros(len(tags) + 1, np.uint32)
    number[1:] = tags
    new = number[1:][tag]
    if extra_is_tag:
        number[1:] += np.uint32(1)
        extra = number[extra]
    return new, extra


def _column(column: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """As the kernel reads it; only what lies badly in a file is copied."""
    if column.dtype != np.uint32:
        raise TypeError(f"the columns of a trie are uint32, not {column.dtype}")
    return np.require(column, requirements=["C", "A"])
