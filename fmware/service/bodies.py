"""Bodies of requests: read within limits of size and time, unpacked within limits, cut apart.

A body is one XML document or several, one after the other, packed with gzip or not; or JSON with a
list of them. What is not XML stays one message: the worker that reads it says what is wrong.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import zlib
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import ClientDisconnect

from fmware.labeling._kernel import Scanner
from fmware.labeling.stream import WIDE
from fmware.service.problems import Problem, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.requests import Request
    from starlette.types import Receive

    from fmware.service.held import Held

__all__ = ["Incoming", "documents_of", "messages_of", "told_size", "too_large"]

LONGEST_ID: Final = 200
LARGE: Final = 1 << 18
"""Bytes from which on a body is worked on in a thread, and so many of them in one call: a native
call keeps the interpreter to itself, and with it the loop."""
LARGE_JSON: Final = 1 << 16
"""The same of JSON, of which a byte may cost a hundred times as much."""
LARGE_PACKED: Final = 1 << 12
"""The same of what is packed: unpacked it may be a thousand times as large."""
FIRST: Final = 1 << 10
"""Bytes that are first looked at of a member of gzip data: what is behind it is copied."""
MEMBERS: Final = 10_000
"""Members that gzip data may have: each costs as much as some kilobytes."""
DIGITS: Final = 19
"""Digits of a size that is read as a number."""
Answer = TypeVar("Answer")
Text = TypeVar("Text", str, bytes)
_ZEROS: Final = re.compile(rb"\0{0,65536}+")
_BLANKS: Final = re.compile(r"[ \t\n\r]{0,65536}+")
_PIECE: Final = re.compile(
    r"""(?>[^"\\]{1,65536}|\\u[dD][89abAB]..\\u....|\\u....|\\[^u]){0,8192}+""", re.DOTALL
)
"""A part of a string in JSON that does not end within an escape, nor between two of a pair."""
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

    __slots__ = ("_headers", "_held", "_receive")

    def __init__(
        self, headers: Mapping[bytes, bytes], receive: Receive, held: Held | None = None
    ) -> None:
        self._headers = headers
        self._receive = receive
        self._held = held

    @classmethod
    def of(cls, request: Request) -> Incoming:
        """The body of a request of which nothing was read."""
        return cls(dict(request.scope["headers"]), request.receive, request.scope.get("held"))

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
        found = await _decoded(data, coding, most)
        if self._held is not None and found is not data:
            self._held.more(len(found))
        return found

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
        return await _maybe_on_thread(len(data), lambda: _unpacked(data, most), LARGE_PACKED)
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
    at, left = 0, most
    for _ in range(MEMBERS):
        at, left = _unpack_member(data, at, parts, left)
        if left < 0:
            raise too_large(most, unpacked=True)
        at = _behind(_ZEROS, data, at)
        if at == len(data):
            return b"".join(parts)
    what = f"the gzip data has more than {MEMBERS:,} members"
    raise Problem(400, "bad-gzip", what, where="body", hint="pack it as one")


def _behind(run: re.Pattern[Text], data: Text, at: int) -> int:
    """The place behind a run of characters, found in bounded pieces: one match over megabytes
    would keep the interpreter, and with it the loop, for a tenth of a second and more."""
    while (end := run.match(data, at).end()) > at:  # type: ignore[union-attr]
        at = end
    return at


def _unpack_member(data: bytes, at: int, parts: list[bytes], left: int) -> tuple[int, int]:
    """Unpack a member; where it ends, and what may be left of the rest, negative if too much."""
    member = zlib.decompressobj(wbits=31)
    size = FIRST
    try:
        while not member.eof and left >= 0:
            if at == len(data):
                raise Problem(400, "bad-gzip", "the gzip data ends too early", where="body")
            chunk = data[at : at + size]
            at += len(chunk)
            parts.append(member.decompress(chunk, left + 1))
            left -= len(parts[-1])
            size = min(2 * size, LARGE)
    except zlib.error as error:
        raise Problem(400, "bad-gzip", f"not gzip data: {error}", where="body") from None
    return at - len(member.unused_data), left


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
    most = most_messages + 1
    if kind == "application/json":
        found = await _maybe_on_thread(len(data), lambda: _listed(data, most), LARGE_JSON)
        batch = True
    else:
        cut = await _maybe_on_thread(len(data), lambda: documents_of(data, most))
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
    found: list[bytes] = []
    for begin in range(0, len(data) + 1, LARGE):
        scanner.feed(data[begin : begin + LARGE])
        if begin + LARGE > len(data):
            scanner.finish()
        while len(found) < most and (piece := scanner.cut()) is not None:
            found.append(piece[0])
        if len(found) == most:
            break
    return found


def _called(cut: list[bytes], name: str | None, *, batch: bool) -> list[tuple[str, bytes]]:
    """Documents with ids: the sender's, numbered in a batch, or made up."""
    if name is not None:
        _check_id(name, "header Message-Id")
    called = name or os.urandom(16).hex()
    if not batch:
        return [(called, cut[0])]
    return [(f"{called}#{number}", each) for number, each in enumerate(cut, 1)]


def _listed(data: bytes, most: int) -> list[tuple[str, bytes]]:
    """The messages of `{"messages": [{"id": ..., "xml": ...}, ...]}`; no more than `most`."""
    try:
        listed = list(_Pull(data).messages(most)) if len(data) >= LARGE_JSON else _loaded(data)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "bad-json", f"not JSON: {error}", where="body") from None
    return [_one(each, f"body.messages[{place}]") for place, each in enumerate(listed[:most])]


def _loaded(data: bytes) -> list[Any]:
    about = json.loads(data)
    if isinstance(about, dict) and about.keys() == {"messages"}:
        listed = about["messages"]
        if isinstance(listed, list):
            return listed
    raise _not_messages("no list of messages", "body.messages")


def _not_messages(what: str, where: str) -> Problem:
    hint = 'write {"messages": [{"id": "...", "xml": "<...>"}]}'
    return Problem(422, "bad-messages", what, where=where, hint=hint)


class _Pull:
    """Reads large JSON as far as it is messages: nothing is made of what is not, and a native call
    reads no more than a part of a string.
    """

    def __init__(self, data: bytes) -> None:
        self._text = data.decode(json.detect_encoding(data), "surrogatepass")
        self._at = 0

    def messages(self, most: int) -> Iterator[dict[str, str | None]]:
        """The messages, no more than `most`; a `Problem` or a `ValueError` if there are none."""
        self._need("{")
        if self._string() != "messages":
            raise _not_messages("no list of messages", "body.messages")
        self._need(":")
        self._need("[")
        count = 0
        while not self._has("]"):
            if count:
                self._need(",")
            if count == most:
                return
            yield self._message(f"body.messages[{count}]")
            count += 1
        self._need("}")
        if not self._has("") or self._at < len(self._text):
            raise _not_messages("something behind the list of messages", "body")

    def _message(self, where: str) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        self._need("{")
        while not self._has("}"):
            if found:
                self._need(",")
            key = self._string()
            if key in found or key not in ("id", "xml"):
                raise _not_messages(f"unknown or repeated key {shortened(key)!r}", where)
            self._need(":")
            found[key] = None if self._has("null") else self._string()
        return found

    def _has(self, mark: str) -> bool:
        """Whether this comes next, behind blanks; it is passed then."""
        self._at = _behind(_BLANKS, self._text, self._at)
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _need(self, mark: str) -> None:
        if not self._has(mark):
            raise _not_messages(f"no {mark} at character {self._at + 1}", "body.messages")

    def _string(self) -> str:
        self._need('"')
        parts: list[str] = []
        while (end := _PIECE.match(self._text, self._at).end()) > self._at:  # type: ignore[union-attr]
            part = self._text[self._at : end]
            value, length = scanstring(f'{part}"', 0)
            if length <= len(part):
                raise ValueError(f"a bad escape in the string at character {self._at + 1}")
            parts.append(value)
            self._at = end
        # The quotation mark; or an error, which says what there is in its place.
        value, at = scanstring(self._text[self._at : self._at + 12], 0)
        self._at += at
        return "".join([*parts, value])


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


async def _maybe_on_thread(size: int, call: Callable[[], Answer], large: int = LARGE) -> Answer:
    return call() if size < large else await asyncio.to_thread(call)
