"""What a corpus may come from: names of files, documents in memory, open files, DataFrames.

`documents_of` turns what is in memory into Arrow batches, a column of XML and one of names; names
of files are left to `labeling`, which reads them itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from fmware.errors import FMwareError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Sources", "UnknownSource", "documents_of"]

Source: TypeAlias = "str | Path | bytes | bytearray | memoryview | IO[bytes]"
Sources: TypeAlias = "Source | Iterable[Source] | Any"
"""A file, directory or pattern; XML in bytes; an open binary file; several of one of these kinds;
or a DataFrame (of pandas, Spark, or anything that speaks Arrow) with a column of XML."""

BATCH = 1024
"""Documents of an Arrow batch."""
_BYTES = (bytes, bytearray, memoryview)
_SCHEMA = pa.schema([("xml", pa.large_binary()), ("name", pa.utf8())])


class UnknownSource(FMwareError, TypeError):
    """Something that no corpus can be read from; says what can."""


def documents_of(source: Any, column: str, name: str | None) -> list[pa.RecordBatch] | None:
    """The documents of a source that is in memory; None if it names files.

    Args:
        source: what the caller gave, other than a Spark DataFrame.
        column: of a DataFrame, the column of XML.
        name: of a DataFrame, the column of names, if there is one.

    Raises:
        UnknownSource: it is none of the kinds of `Sources`, or several of them at once.
    """
    if hasattr(source, "__arrow_c_stream__"):
        return _columns(pa.table(source), column, name)
    if isinstance(source, str | Path):
        _check_name(source)
        return None
    given = [source] if isinstance(source, _BYTES) or hasattr(source, "read") else _listed(source)
    named = [isinstance(each, str | Path) for each in given]
    if all(named):
        for each in given:
            _check_name(each)
        return None
    if any(named):
        raise UnknownSource("files by name and documents in memory: give them in two calls")
    read = [_document(each, number) for number, each in enumerate(given, 1)]
    batches = (read[at : at + BATCH] for at in range(0, len(read), BATCH))
    return [pa.RecordBatch.from_pylist(each, _SCHEMA) for each in batches]


def _listed(source: Any) -> list[Any]:
    try:
        return list(source)
    except TypeError:
        raise _unknown(source) from None


def _unknown(source: object) -> UnknownSource:
    kinds = "a path, bytes, a binary file, a DataFrame, or a list of one of the first three"
    return UnknownSource(f"a source is {kinds}, not {type(source).__name__}")


def _check_name(name: str | Path) -> None:
    if str(name).lstrip().startswith("<"):
        raise UnknownSource("this is XML, not the name of a file: give it as bytes, b'<...>'")


def _document(source: Any, number: int) -> dict[str, Any]:
    name = f"document {number}"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", name))
        source = source.read()
    if not isinstance(source, _BYTES):
        raise _unknown(source)
    return {"xml": bytes(source), "name": name}


def _columns(table: pa.Table, column: str, name: str | None) -> list[pa.RecordBatch]:
    wanted = [column, *([name] if name else [])]
    for each in wanted:
        if each not in table.column_names:
            there = ", ".join(table.column_names)
            raise UnknownSource(f"the DataFrame has no column {each!r}; it has {there}")
    batches: list[pa.RecordBatch] = table.select(wanted).to_batches(max_chunksize=BATCH)
    return batches
