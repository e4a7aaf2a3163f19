"""Large answers, encoded a piece at a time: on a thread, so that the loop goes on beside it.

A native call keeps the interpreter to itself; so no call encodes more than `PIECE` characters.
"""

from __future__ import annotations

import codecs
import json
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["PAGE", "decoded", "listed", "one_page"]

PIECE: Final = 1 << 16
PAGE: Final = 8 << 20
"""Bytes of a page, unless its first item is larger."""


def one_page(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows that end with bytes, as many as make a page; at least one."""
    size = 0
    for row in rows:
        size += len(row[-1])
        if size > PAGE and size > len(row[-1]):
            return
        yield row


def decoded(data: bytes) -> str:
    """UTF-8; what is none of it is shown as such."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = [decoder.decode(data[at : at + PIECE]) for at in range(0, len(data), PIECE)]
    return "".join([*parts, decoder.decode(b"", final=True)])


def listed(head: Mapping[str, Any], key: str, items: Iterable[Mapping[str, Any]]) -> bytes:
    """A JSON object with a list in it; values that are None are left out."""
    start = json.dumps(head)[1:-1]
    told = ",".join(map(_item, items))
    found = f'{{"{key}":[{told}]{"," if start else ""}{start}}}'
    return found.encode(errors="backslashreplace")


def _item(about: Mapping[str, Any]) -> str:
    parts = [f"{quoted(key)}:{_value(each)}" for key, each in about.items() if each is not None]
    return f"{{{','.join(parts)}}}"


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    pieces = (value[at : at + PIECE] for at in range(0, len(value), PIECE))
    return f'"{"".join(quoted(each)[1:-1] for each in pieces)}"'
