"""Messages as commands get them: files, directories, archives of one document, pipes.

`messages_of` gives the documents of an input with their names; what cannot be read comes as its
error, in its place, and the rest goes on.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from fmware.cli.output import STDIN, binary_stdin, expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fmware.labeling import NodeTable, Reader

__all__ = ["CHUNK", "UNREADABLE", "inputs_of", "is_small", "is_stream", "messages_of", "opened"]

CHUNK = 1 << 18
SMALL = 1 << 20
"""Bytes up to which a file is read in one go."""
WIDE = (b"\xff\xfe", b"\xfe\xff", b"<\0", b"\0<")
UNREADABLE = (OSError, EOFError, zlib.error)


def inputs_of(messages: Iterable[str]) -> Iterator[str]:
    """The inputs that names stand for: a directory for every document below it."""
    for message in messages:
        for name in expand([message], (".xml", ".gz")):
            if name == message or name.endswith((".xml", ".xml.gz")):
                yield name


def is_stream(name: str) -> bool:
    """Whether messages come as they are made: then none waits for the one behind it."""
    path = Path(name)
    return name == STDIN or (path.exists() and not path.is_file())


def is_small(name: str) -> bool:
    """Whether a file may be read in one go."""
    path = Path(name)
    try:
        return path.suffix != ".gz" and path.is_file() and path.stat().st_size <= SMALL
    except OSError:
        return False


def messages_of(
    name: str, reader: Reader, records: Sequence[str]
) -> Iterator[tuple[str, NodeTable | Exception]]:
    """The messages of one input with their names: numbered where there may be several."""
    from fmware.labeling import ReadError

    found = _documents(name, reader, records)
    first = next(found, None)
    if first is None:
        if name != STDIN:
            what = " or ".join(f"<{record}>" for record in records) or "document"
            yield name, ReadError(f"no {what} in it", source=name)
        return
    ahead = [first]
    if not records and not is_stream(name):
        ahead += [second] if (second := next(found, None)) is not None else []
        if len(ahead) == 1:
            yield name, first
            return
    for number, each in enumerate(chain(ahead, found), 1):
        yield f"{name}#{number}", each


def _documents(
    name: str, reader: Reader, records: Sequence[str]
) -> Iterator[NodeTable | Exception]:
    """The documents of one input; what cannot be read comes as its error, in its place."""
    from fmware.labeling import ReadError

    try:
        with ExitStack() as stack:
            stream = _stream(opened(name, stack), reader, records)
            while True:
                try:
                    yield next(stream)
                except StopIteration:
                    return
                except ReadError as error:
                    yield error
    except UNREADABLE as error:
        yield error


def opened(name: str, stack: ExitStack) -> IO[bytes]:
    """The bytes of an input; `stack` closes it."""
    if name == STDIN:
        file = binary_stdin()
        # Without its buffer, whose lock a thread would hold while it waits, also at the very end.
        raw: IO[bytes] = getattr(file, "raw", file)
        return raw
    if name.endswith(".gz"):
        return cast("IO[bytes]", stack.enter_context(gzip.open(name, "rb")))
    return stack.enter_context(Path(name).open("rb"))


def _stream(file: IO[bytes], reader: Reader, records: Sequence[str]) -> Iterator[NodeTable]:
    from fmware.labeling import read_stream

    take = getattr(file, "read1", file.read)
    head: bytes = take(CHUNK)
    chunks = chain([head], iter(partial(take, CHUNK), b""))
    if head.startswith(WIDE) and not records:
        # UTF-16 cannot be cut at its tags, so this is one document.
        return (reader.read(data) for data in [_joined(chunks, reader.limits.bytes)])
    return read_stream(chunks, record=records, reader=reader)


def _joined(chunks: Iterable[bytes], most: int) -> bytes:
    """All bytes; if there are more than `most`, enough for the reader to refuse them."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > most:
            break
    return bytes(data)
