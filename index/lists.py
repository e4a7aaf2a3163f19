"""Lists of blocks, opened for reading; `fmware.index._kernel` has what is done with them.

A list is opened by reading its directory. Its blocks are looked up, checked and, where LMDB did not
align them, copied when a probe first touches them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from fmware.index import format as form
from fmware.index._kernel import Blocks, Keys, LabelRows, Nodes, Postings, Values
from fmware.index.errors import CorruptIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fmware.index.environment import Environment

    List = TypeVar("List", bound=Blocks)

__all__ = [
    "Source",
    "nodes_in_memory",
    "open_keys",
    "open_lines",
    "open_nodes",
    "open_postings",
    "open_records",
    "open_values",
    "postings_in_memory",
]


SOME = 8
"""Blocks that are looked at to see whether a list is in memory."""


class Source:
    """Where the blocks of one list come from; holds their file open."""

    __slots__ = ("database", "environment", "number")

    def __init__(self, environment: Environment, database: str, number: int) -> None:
        self.environment = environment
        self.database = database
        self.number = number

    def directory(self) -> memoryview:
        value = self.environment.get(self.database, form.directory_key(self.number))
        if value is None:
            raise self.corrupt(None, "is missing")
        return value

    def block(self, number: int) -> memoryview:
        value = self.environment.get(self.database, form.block_key(self.number, number))
        if value is None:
            raise self.corrupt(number, "is missing")
        return value

    def in_memory(self, number: int | None) -> bool:
        """Whether a block, or the directory, is in memory; it is not touched."""
        key = form.directory_key(self.number)
        if number is not None:
            key = form.block_key(self.number, number)
        return self.environment.in_memory(self.database, key)

    def corrupt(self, number: int | None, what: str) -> CorruptIndex:
        """The error that says which block, or that the directory, is bad."""
        part = "the directory" if number is None else f"block {number}"
        where = f"{part} of list {self.number} in {self.database!r}"
        return CorruptIndex(self.environment.path, f"{where} {what}")


def _open(
    environment: Environment, database: str, number: int, make: Callable[..., List], *more: object
) -> List:
    source = Source(environment, database, number)
    return make(source, source.directory(), threading.Lock(), *more)


def open_nodes(environment: Environment, tag: int, schemes: int) -> Nodes:
    """The nodes of a tag by AD label."""
    return _open(environment, form.AD, tag, Nodes, schemes)


def open_postings(environment: Environment, tag: int, scheme: str) -> Postings:
    """The nodes of a tag by SES label, with the list of these labels."""
    labels = _open(environment, form.labels(scheme), tag, LabelRows)
    return _open(environment, form.ses(scheme), tag, Postings, labels)


def nodes_in_memory(environment: Environment, tag: int, rows: int) -> bool:
    """Whether the directory of the nodes of a tag, and a few blocks here and there, are."""
    source = Source(environment, form.AD, tag)
    blocks = -(-rows // form.AD_ROWS)
    some = {at * blocks // SOME for at in range(SOME)} if blocks else ()
    return source.in_memory(None) and all(source.in_memory(number) for number in some)


def postings_in_memory(environment: Environment, tag: int, scheme: str) -> bool:
    """Whether the directories of these two lists are in memory."""
    databases = form.labels(scheme), form.ses(scheme)
    return all(Source(environment, each, tag).in_memory(None) for each in databases)


def open_keys(environment: Environment, tag: int) -> Keys:
    """The identity keys of a tag."""
    return _open(environment, form.IDENTITY, tag, Keys)


def open_values(environment: Environment, tag: int) -> Values:
    """The values of a tag's nodes."""
    return _open(environment, form.VALUES, tag, Values)


def open_records(environment: Environment) -> Blocks:
    """The records of a part."""
    return _open(environment, form.RECORDS, 0, Blocks)


def open_lines(environment: Environment, database: str) -> Iterator[str]:
    """The lines of a list of text."""
    blocks = _open(environment, database, 0, Blocks)
    for number in range(blocks.count):
        block = form.LINES_SHAPE.unpack(memoryview(blocks.view(number)))
        lines = bytes(block.tail).decode().split("\n")
        if len(lines) != block.rows:
            raise blocks.source.corrupt(number, "does not have the lines it should have")
        yield from lines
