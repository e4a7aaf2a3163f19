"""Messages as callers have them, turned into what the filter reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

from fmware.errors import FMwareError
from fmware.labeling import LimitExceeded, NodeTable

__all__ = ["Message", "MessageUnreadable", "UnknownMessage", "body_of"]

Message: TypeAlias = bytes | str | bytearray | memoryview | Path | NodeTable | Exception
"""XML as bytes, as text or in a file, or a table that the middleware's reader has read; or the
error that a source gives in place of a message that it could not read."""

_DECLARATION = re.compile(r"\A\ufeff?<\?xml\s[^>]*\?>")


class UnknownMessage(FMwareError, TypeError):
    """Something was published that is not a message; says what a message may be."""


class MessageUnreadable(FMwareError, OSError):
    """The file of a message cannot be read; `cause` says why."""

    def __init__(self, path: Path, cause: OSError | ValueError) -> None:
        self.path = path
        self.cause = cause
        super().__init__(f"{path}: {getattr(cause, 'strerror', None) or cause}")


def body_of(message: object, most: int) -> bytes | NodeTable:
    """A message as bytes, or the table that it is.

    Args:
        message: one of the types of `Message`.
        most: the bytes that a message may have; a longer file is not read.

    Raises:
        UnknownMessage: it has another type, or is a memoryview that was released.
        MessageUnreadable: the file is not there, or cannot be read.
        LimitExceeded: the file is longer than `most`.
    """
    if isinstance(message, NodeTable) or type(message) is bytes:
        return message
    if isinstance(message, str):
        # The declaration may name the encoding that the text once had.
        return _DECLARATION.sub("", message, count=1).encode(errors="surrogatepass")
    if isinstance(message, bytes | bytearray):
        return bytes(message)
    if isinstance(message, memoryview):
        return _copied(message)
    if isinstance(message, Path):
        return _read(message, most)
    kind = type(message).__name__
    raise UnknownMessage(
        f"a message is bytes, str, bytearray, memoryview, Path or NodeTable, not {kind}"
    )


def _copied(view: memoryview) -> bytes:
    try:
        return bytes(view)
    except ValueError as error:
        raise UnknownMessage(f"the memoryview cannot be read: {error}") from None


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise MessageUnreadable(path, error) from None
    if len(body) > most:
        raise LimitExceeded("bytes", most, source=str(path))
    return body
