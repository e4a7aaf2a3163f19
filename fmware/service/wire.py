"""Frames between the engine and a worker: a length, then as many bytes.

To a worker they are pickled, because the one that starts a process may tell it anything. What comes
back is data and nothing else: JSON, and behind it bytes that are handed on as they are. A worker
reads the messages of strangers, and must not be able to make the engine do more than read them.
"""

from __future__ import annotations

import json
import pickle
import struct
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Answers", "answer", "question", "questioned"]

_LENGTH: Final = struct.Struct("<Q")
_LENGTHS: Final = struct.Struct("<QQ")
"""Of an answer: all of it behind the first number, and its JSON."""
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def question(kind: str, ticket: int, about: object) -> bytes:
    """What a worker is asked, as a frame."""
    data = pickle.dumps((kind, ticket, about), protocol=5)
    return _LENGTH.pack(len(data)) + data


def questioned(file: IO[bytes]) -> tuple[str, int, Any] | None:
    """The next question; none when the engine is gone."""
    data = _whole(file, _LENGTH.size)
    data = None if data is None else _whole(file, _LENGTH.unpack(data)[0])
    return None if data is None else pickle.loads(data)


def answer(ticket: int, about: object, text: bytes = b"") -> bytes:
    """What a worker says to a question, as a frame."""
    head = _ENCODE([ticket, about]).encode(errors="backslashreplace")
    return b"".join((_LENGTHS.pack(8 + len(head) + len(text), len(head)), head, text))


class Answers:
    """Takes bytes from a worker as they come, and gives the answers that are whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, Any, bytes, int]]:
        """Tickets, what was said, the bytes behind it, and how long both are.

        A `ValueError` if it is no answer.
        """
        held = self._held
        held += data
        while len(held) >= _LENGTHS.size:
            whole, head = _LENGTHS.unpack_from(held)
            if len(held) < _LENGTH.size + whole:
                return
            begin, end = _LENGTHS.size, _LENGTH.size + whole
            ticket, about = json.loads(held[begin : begin + head])
            text = bytes(memoryview(held)[begin + head : end])
            del held[:end]
            yield ticket, about, text, whole


def _whole(file: IO[bytes], length: int) -> bytes | None:
    data = file.read(length)
    return data if len(data) == length else None
