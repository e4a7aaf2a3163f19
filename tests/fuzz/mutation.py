"""New inputs of old ones: bytes changed, tokens put in, pieces doubled, dropped and exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["mutated"]

LONGEST: Final = 4096
"""Bytes of an input: what is longer is slower and seldom takes another way."""
CHANGES: Final = 4
"""At most so many at once."""


def mutated(random: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """An input like another one, with pieces of others and tokens of the language."""
    for _ in range(random.randrange(1, CHANGES + 1)):
        data = _changed(random, data, others, tokens)
    return data[:LONGEST]


def _changed(
    random: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]
) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(at + _length(random), len(data))
    what = random.randrange(7)
    if what == 0:  # A bit.
        return (
            data[:at]
            + bytes([byte ^ 1 << random.randrange(8) for byte in data[at : at + 1]])
            + data[at + 1 :]
        )
    if what == 1:  # Any bytes.
        return data[:at] + random.randbytes(end - at) + data[end:]
    if what == 2:  # Less.
        return data[:at] + data[end:]
    if what == 3:  # The same again.
        return data[:at] + data[at:end] * random.randrange(2, 5) + data[end:]
    if what == 4:  # A piece from elsewhere.
        other = random.choice(others)
        first = random.randrange(len(other) + 1)
        return data[:at] + other[first : first + _length(random)] + data[end:]
    token = random.choice(tokens)
    if what == 5:
        return data[:at] + token + data[at:]
    return data[:at] + token + data[end:]


def _length(random: Random) -> int:
    """Short mostly."""
    return random.choice((1, 1, 2, 4, 8, 16, 64))
