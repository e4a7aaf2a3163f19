"""Bodies of requests: read within limits of size and time, unpacked within limits, cut apart.

A body is one XML document or several, one after the other, packed with gzip or not; or JSON with a
list of them. What is not XML stays one message: the worker that reads it says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import zlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import ClientDisconnect

from fmware.service.problems import Problem
from labeling._kernel import Scanner
from labeling.stream import WIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive

__all__ = ["Incoming", "documents_of", "messages_of", "told_size", "too_large"]

LONGEST_ID: Final = 200
LARGE: Final = 1 << 18
"""Bytes from which on a body is worked on in a thread."""
DIGITS: Final = 19
"""Digits of a size that is read as a number."""
Answer = TypeVar("Answer")
_XML: Final = {
    "",
    "application/gzip",
    "application/octet-stream",
    "application/x-gzip",
    "application/xml",
    "text/plain",
    "text/xml",
}


class Incoming:
    """A body that is yet to be read, with the headers that say how."""

    __slots__ = ("_headers", "_receive")

    def __init__(self, headers: Mapping[bytes, bytes], receive: Receive) -> None:
        self._headers = headers
        self._receive = receive

    @classmethod
    def of(cls, request: Request) -> Incoming:
        """The body of a request of which nothing was read."""
        return cls(dict(request.scope["headers"]), request.receive)

    def header(self, name: bytes) -> str | None:
        """A header, by its name in small letters."""
        found = self._headers.get(name)
        return None if found is None else found.decode("latin-1")

    async def body(self, most: int) -> bytes:
        """The bytes of the body, unpacked; a `Problem` if there are more than may be."""
        if told_size(self.header(b"content-length") or "") > most:
            raise too_large(most)
        data = await self._raw(most)
        coding = (self.header(b"content-encoding") or "identity").strip().lower()
        return await _decoded(data, coding, most)

    async def _raw(self, most: int) -> bytes:
        held: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise too_large(most)
            held.append(chunk)
            more = message.get("more_body", False)
        return held[0] if len(held) == 1 else b"".join(held)


async def _decoded(data: bytes, coding: str, most: int) -> bytes:
    """The bytes of a body as they were before they were packed."""
    if coding == "gzip" or (coding == "identity" and data.startswith(b"\x1f\x8b")):
        return await _maybe_on_thread(len(data), lambda: _unpacked(data, most))
    if coding not in ("identity", ""):
        raise Problem(
            415,
            "unknown-encoding",
            f"a body cannot be packed with {coding!r}",
            where="header Content-Encoding",
            hint="gzip, or as it is",
        )
    return data


def told_size(told: str) -> float:
    """The bytes of a body by its header, 0 if that does not say; endless if too long."""
    if not (told.isascii() and told.isdecimal()):
        return 0
    return int(told) if len(told) <= DIGITS else math.inf


def _unpacked(data: bytes, most: int) -> bytes:
    """What gzip packed, all members of it; no more is unpacked than may be."""
    parts: list[bytes] = []
    left = most
    try:
        while data:
            member = zlib.decompressobj(wbits=31)
            part = member.decompress(data, left + 1)
            if len(part) > left:
                raise too_large(most, unpacked=True)
            if not member.eof:
                raise Problem(400, "bad-gzip", "the gzip data ends too early", where="body")
            parts.append(part)
            left -= len(part)
            data = member.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise Problem(400, "bad-gzip", f"not gzip data: {error}", where="body") from None
    return b"".join(parts)


def too_large(most: int, *, unpacked: bool = False) -> Problem:
    """The answer to a body of more than so many bytes."""
    when = " once it is unpacked" if unpacked else ""
    return Problem(
        413,
        "body-too-large",
        f"the body has more than {most:,} bytes{when}",
        where="body",
        hint="send fewer messages at once",
    )


async def messages_of(
    incoming: Incoming, *, most_bytes: int, most_messages: int
) -> tuple[list[tuple[str, bytes]], bool]:
    """The messages of a request with their ids, and whether it is a batch.

    The header `Message-Id` is what the sender calls the message, or the batch.
    """
    kind = (incoming.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind not in _XML and kind != "application/json" and not kind.endswith("+xml"):
        raise Problem(
            415,
            "unknown-media-type",
            f"messages cannot come as {kind!r}",
            where="header Content-Type",
            hint="say Content-Type: application/xml; or application/gzip, application/json",
        )
    data = await incoming.body(most_bytes)
    if kind == "application/json":
        found, batch = _listed(data), True
    else:
        cut = await _maybe_on_thread(len(data), lambda: documents_of(data, most_messages + 1))
        batch = len(cut) != 1
        found = _called(cut, incoming.header(b"message-id"), batch=batch)
    if not found:
        raise Problem(422, "no-message", "there is no message in the body", where="body")
    if len(found) > most_messages:
        raise Problem(
            413,
            "too-many-messages",
            f"there are more than {most_messages:,} messages in the body",
            where="body",
            hint="send fewer at once",
        )
    return found, batch


def documents_of(data: bytes, most: int) -> list[bytes]:
    """The documents that stand one after the other in some bytes; no more than `most`."""
    if data.startswith(WIDE):
        return [data]  # UTF-16 cannot be cut at its tags, so this is one.
    scanner = Scanner((), len(data) + 1)
    scanner.feed(data)
    scanner.finish()
    found: list[bytes] = []
    while len(found) < most and (piece := scanner.cut()) is not None:
        found.append(piece[0])
    return found


def _called(cut: list[bytes], name: str | None, *, batch: bool) -> list[tuple[str, bytes]]:
    """Documents with ids: the sender's, numbered in a batch, or made up."""
    if name is not None:
        _check_id(name, "header Message-Id")
    called = name or os.urandom(16).hex()
    if not batch:
        return [(called, cut[0])]
    return [(f"{called}#{number}", each) for number, each in enumerate(cut, 1)]


def _listed(data: bytes) -> list[tuple[str, bytes]]:
    """The messages of `{"messages": [{"id": ..., "xml": ...}, ...]}`."""
    try:
        about = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "bad-json", f"not JSON: {error}", where="body") from None
    listed = about.get("messages") if isinstance(about, dict) else None
    if not isinstance(listed, list):
        hint = 'write {"messages": [{"id": "...", "xml": "<...>"}]}'
        raise Problem(422, "bad-messages", "no list of messages", where="body.messages", hint=hint)
    return [_one(each, f"body.messages[{place}]") for place, each in enumerate(listed)]


def _one(about: Any, where: str) -> tuple[str, bytes]:
    if not isinstance(about, dict) or not isinstance(about.get("xml"), str):
        raise Problem(422, "bad-messages", "xml is missing, or not a string", where=where)
    if unknown := sorted(about.keys() - {"id", "xml"}):
        raise Problem(422, "bad-messages", f"unknown key {unknown[0]!r}", where=where)
    name = about.get("id")
    if name is None:
        name = os.urandom(16).hex()
    _check_id(name, f"{where}.id")
    try:
        return name, about["xml"].encode()
    except UnicodeEncodeError:
        raise Problem(422, "bad-messages", "half a character", where=f"{where}.xml") from None


def _check_id(name: Any, where: str) -> None:
    if isinstance(name, str) and 0 < len(name) <= LONGEST_ID and name.isprintable():
        return
    what = f"an id has 1 to {LONGEST_ID} printable characters"
    raise Problem(422, "bad-message-id", what, where=where)


async def _maybe_on_thread(size: int, call: Callable[[], Answer]) -> Answer:
    return call() if size < LARGE else await asyncio.to_thread(call)
