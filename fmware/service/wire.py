"""Frames between the engine and a worker: two lengths, a head, and bytes that stay as they are.

A head to a worker is pickled, because the one that starts a process may tell it anything; behind
it are the bodies of messages. What comes back is data and nothing else: a head of JSON, and the
columns of what was found. A worker reads the messages of strangers, and must not be able to make
the engine do more than read them.
"""

from __future__ import annotations

import json
import pickle
import struct
from itertools import accumulate, pairwise
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Answers", "answer", "question", "questioned"]

_LENGTHS: Final = struct.Struct("<QQ")
"""Of the head, and of what is behind it."""
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def question(kind: str, ticket: int, about: object, bodies: Sequence[bytes] = ()) -> bytes:
    """What a worker is asked, as a frame."""
    sizes = [len(body) for body in bodies]
    head = pickle.dumps((kind, ticket, about, sizes), protocol=5)
    return b"".join((_LENGTHS.pack(len(head), sum(sizes)), head, *bodies))


def questioned(file: IO[bytes]) -> tuple[str, int, Any, list[bytes]] | None:
    """The next question and the bodies behind it; none when the engine is gone."""
    lengths = file.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    length, rest = _LENGTHS.unpack(lengths)
    data = file.read(length + rest)
    if len(data) < length + rest:
        return None
    kind, ticket, about, sizes = pickle.loads(data)  # It stops where the head does.
    ends = list(accumulate(sizes, initial=length))
    return kind, ticket, about, [data[begin:end] for begin, end in pairwise(ends)]


def answer(ticket: int, about: object, text: bytes = b"") -> bytes:
    """What a worker says to a question, as a frame."""
    head = _ENCODE([ticket, about]).encode(errors="backslashreplace")
    return b"".join((_LENGTHS.pack(len(head), len(text)), head, text))


class Answers:
    """Takes bytes from a worker as they come, and gives the answers that are whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, Any, memoryview, int]]:
        """Tickets, what was said, the bytes behind it, and how long both are.

        A `ValueError` if it is no answer.
        """
        self._held += data
        while len(held := self._held) >= _LENGTHS.size:
            length, rest = _LENGTHS.unpack_from(held)
            begin = _LENGTHS.size + length
            if len(held) < begin + rest:
                return
            ticket, about = json.loads(held[_LENGTHS.size : begin])
            # What is held goes on with the rest: the answer may be large, and is not copied.
            self._held = held[begin + rest :]
            yield ticket, about, memoryview(held)[begin : begin + rest], length + rest
