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
    start = json.dumps(head)[1:-1].encode()
    told = b",".join(map(_item, items))
    return b'{"%s":[%s]%s%s}' % (key.encode(), told, b"," if start else b"", start)


def _item(about: Mapping[str, Any]) -> bytes:
    parts = [_encoded(quoted(k)) + b":" + _value(v) for k, v in about.items() if v is not None]
    return b"{%s}" % b",".join(parts)


def _value(value: Any) -> bytes:
    """A value, encoded in pieces: the interpreter serves the loop between them."""
    if not isinstance(value, str):
        return _encoded(json.dumps(value, ensure_ascii=False))
    pieces = (value[at : at + PIECE] for at in range(0, len(value), PIECE))
    return b'"%s"' % b"".join(_encoded(quoted(each)[1:-1]) for each in pieces)


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
