"""Frames between the engine and a worker: a length, then so many bytes.

To a worker they are pickled, because whoever starts a process may tell it anything. What comes back
is JSON: a worker reads the messages of strangers, and must not be able to make the engine do more
than read an answer.
"""

from __future__ import annotations

import json
import pickle
import struct
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import StreamReader

__all__ = ["answer", "answered", "question", "questioned"]

_LENGTH: Final = struct.Struct("<Q")
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def question(kind: str, ticket: int, about: object) -> bytes:
    """What a worker is asked, as a frame."""
    return _framed(pickle.dumps((kind, ticket, about), protocol=5))


def questioned(file: IO[bytes]) -> tuple[str, int, Any] | None:
    """The next question; none when the engine is gone."""
    data = _whole(file, _LENGTH.size)
    data = None if data is None else _whole(file, _LENGTH.unpack(data)[0])
    return None if data is None else pickle.loads(data)


def answer(ticket: int, about: object) -> bytes:
    """What a worker says to a question, as a frame."""
    return _framed(_ENCODE([ticket, about]).encode(errors="backslashreplace"))


async def answered(reader: StreamReader) -> tuple[int, Any, int]:
    """The next answer and its bytes; an `IncompleteReadError` when the worker is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    ticket, about = json.loads(await reader.readexactly(length))
    return ticket, about, length


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _whole(file: IO[bytes], length: int) -> bytes | None:
    data = file.read(length)
    return data if len(data) == length else None
