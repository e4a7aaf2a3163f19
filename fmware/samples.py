"""Samples of messages for routing: the words of their nodes, read as all messages are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.labeling import ATTRIBUTE, TEXT, NodeTable, Reader
from fmware.routing import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["read_sample", "words_of"]


def read_sample(messages: Iterable[bytes | NodeTable]) -> Sample:
    """What messages tell of their kind: a schema, and how often statements match.

    Raises a `ReadError` for bytes that are no document, and `SchemaError` if there is no message.
    """
    reader = Reader()
    tables = (m if isinstance(m, NodeTable) else reader.read(m) for m in messages)
    return Sample(words_of(table) for table in tables)


def words_of(table: NodeTable) -> set[tuple[str, ...]]:
    """The different words of a document: names from the root to each of its nodes."""
    words: list[tuple[str, ...]] = []
    kinds, parents = table.kind.tolist(), table.parent.tolist()
    for row, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
        above = words[parent] if parent >= 0 else ()
        name = "text()" if kind == TEXT else table.name(row)
        words.append((*above, f"@{name}" if kind == ATTRIBUTE else name))
    return set(words)
