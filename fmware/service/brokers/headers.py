"""Text as brokers let it stand in a header."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["header", "short"]

LONGEST: Final = 1000
SHORTEST: Final = 255


def header(text: str) -> str:
    """One line of ASCII; what is not is escaped, and what is long is cut."""
    plain = text.encode("ascii", "backslashreplace").decode()
    return "".join(each if " " <= each <= "~" else " " for each in plain)[:LONGEST]


def short(text: str) -> str:
    """The text, or if it is longer than AMQP has room for, what stands for it."""
    data = text.encode()
    return text if len(data) <= SHORTEST else blake2b(data, digest_size=24).hexdigest()
