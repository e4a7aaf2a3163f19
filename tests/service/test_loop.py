"""The event loop: no body, of whatever route and media type, keeps it for more than a tenth of a
second.
"""

from __future__ import annotations

import gzip
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.service.running import CITY, WAIT, make_index
from tests.service.watched import Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGEST = 16 << 20
"""Bytes: `server.body_bytes`."""
LONGEST = 0.1
"""Seconds of processor time that a turn may take."""
TRIES = 3
"""A turn is too long if it is every time: a machine that does much else adds to some of them."""
JSON, XML, TOML, TEXT = "application/json", "application/xml", "application/toml", "text/plain"
GZIP = "application/gzip"


def filled(piece: bytes, head: bytes = b"", tail: bytes = b"", size: int = LARGEST) -> bytes:
    """A body of a size, of one piece again and again."""
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


def keys(size: int) -> bytes:
    return b"{" + b",".join(b'"%07x":0' % n for n in range((size - 16) // 12)) + b"}"


def statements(count: int) -> bytes:
    entry = b'[[statement]]\nname = "s%d"\nexpression = "//a/b%d[c = 1]"\n'
    return b"".join(entry % (n, n) for n in range(count))


WRONG = {
    "numbers": filled(b"0,", b"[", b"0]"),
    "lists": filled(b"[],", b"[", b"[]]"),
    "deep": b"[" * LARGEST,
    "keys": keys(LARGEST),
    "a string": filled(b"\\u00e4", b'{"expression": "', b'"}'),
    "blanks": b" " * LARGEST,
}
"""JSON that is no statement, webhook or list of anything."""
MESSAGES = {
    "one": (XML, filled(b"<a>x</a>", b"<r>", b"</r>")),
    "many": (XML, filled(b"<a/>")),
    "a thousand": (XML, filled(b"x", b"<a>", b"</a>", 16_000) * 1000),
    "open": (XML, filled(b"<a>")),
    "marks": (XML, b"<" * LARGEST),
    "comments": (XML, filled(b"<!---->")),
    "wide": (XML, ("<r>" + "ä" * (7 << 20) + "</r>").encode("utf-16")),
    "packed": (GZIP, gzip.compress(filled(b"<a>x</a>", b"<r>", b"</r>"))),
    "members": (GZIP, filled(gzip.compress(b""))),
    "zeros": (GZIP, gzip.compress(b"<a/>") + bytes(LARGEST - 100)),
    "listed": (
        JSON,
        filled(b'{"xml": "' + b"<a/>" * 4000 + b'"},', b'{"messages": [', b'{"xml": "<a/>"}]}'),
    ),
    "listed one": (JSON, filled(b"\\n", b'{"messages": [{"xml": "<a>', b'</a>"}]}')),
    "listed many": (JSON, filled(b'{"xml":""},', b'{"messages": [', b'{"xml": ""}]}')),
    "hits": (XML, (b"<r>" + b"<a/>" * 5000 + b"</r>") * 30),
    "many hits": (XML, b"<r>" + b"<a/>" * 60_000 + b"</r>"),
}
BULK = {
    "toml": (TOML, statements(3500)),
    "toml, long key": (TOML, b".".join([b"a"] * 8000) + b" = 1\n"),
    "toml, deep": (TOML, filled(b"[", b"a = ")),
    "lines": (TEXT, b"".join(b"//a/b[c = %d]\n" % n for n in range(15_000))),
    "bad lines": (TEXT, b"//a[\n" * 10_000),
    "json": (
        JSON,
        json.dumps(
            {"statements": [{"name": f"s{n}", "expression": "//a"} for n in range(15_000)]}
        ).encode(),
    ),
    "large": (
        JSON,
        json.dumps(
            {
                "statements": [
                    {
                        "name": f"l{n}",
                        "expression": "//a",
                        "namespaces": {f"p{m}": "urn:" + "x" * 1000 for m in range(64)},
                    }
                    for n in range(200)
                ]
            }
        ).encode(),
    ),
}
TRIED = {"statement": CITY, "message": "<r>" + "<a>x</a>" * 100_000 + "</r>"}
REQUESTS = {
    **{f"messages: {name}": ("POST", "/v1/messages", *each) for name, each in MESSAGES.items()},
    "later": ("POST", "/v1/messages?wait=false", *MESSAGES["a thousand"]),
    **{f"bulk: {name}": ("POST", "/v1/statements/bulk", *each) for name, each in BULK.items()},
    **{
        f"{method} {path}: {name}, {size}": (method, path, JSON, body[:size])
        for name, body in WRONG.items()
        for method, path, size in (
            ("POST", "/v1/statements", 1 << 20),
            ("POST", "/v1/statements", LARGEST),
            ("PUT", "/v1/webhooks/x", 1 << 20),
            ("POST", "/v1/messages", LARGEST),
            ("POST", "/v1/statements/bulk", 1 << 20),
            ("POST", "/v1/try", 1 << 20),
        )
    },
    "PUT": ("PUT", "/v1/statements/x", JSON, WRONG["keys"]),
    "validate": ("POST", "/v1/statements/validate", JSON, WRONG["keys"]),
    "rotate": ("POST", "/v1/webhooks/x/rotate", JSON, WRONG["keys"]),
    "explain": ("POST", "/v1/statements/city/explain", XML, b"<a>" * 300_000),
    "try": ("POST", "/v1/try", JSON, json.dumps(TRIED).encode()),
    "list": ("GET", "/v1/statements?limit=1000", TEXT, b""),
    "letters": ("GET", "/v1/dead-letters?limit=100", TEXT, b""),
    "matches": ("GET", "/v1/matches?limit=1000", TEXT, b""),
    "report": ("GET", "/v1/report", TEXT, b""),
    "stats": ("GET", "/v1/stats", TEXT, b""),
    "metrics": ("GET", "/metrics", TEXT, b""),
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    place: Path = tmp_path_factory.mktemp("loop")
    tenant = "tenants=[{name='default', limits={statements=20000}}]"
    with Watched(f"index={make_index(place)}", f"state={place / 'state'}", tenant) as made:
        with httpx.Client(base_url=made.url, timeout=WAIT) as client:
            client.put("/v1/statements/city", json=CITY)
            client.put("/v1/statements/a", json={"expression": "//r/a", "returns": ["message"]})
            client.post("/v1/statements/validate", json=CITY)
        yield made


@pytest.mark.parametrize("name", REQUESTS)
def test_no_body_keeps_the_loop(watched: Watched, name: str) -> None:
    method, path, kind, body = REQUESTS[name]
    turns = []
    for _ in range(TRIES):
        watched.longest()
        with httpx.Client(base_url=watched.url, timeout=WAIT) as client:
            answer = client.request(method, path, content=body, headers={"content-type": kind})
        assert answer.status_code != 500
        turns.append(watched.longest())
        if turns[-1][0] < LONGEST:
            return
    pytest.fail(f"{name}: {turns}")


def _sent(url: httpx.URL, data: bytes) -> bytes:
    """Send bytes as far as they are taken; what is answered."""
    with socket.create_connection((url.host, url.port or 80), WAIT) as made:
        with suppress(OSError):
            made.sendall(data)
        with suppress(OSError):
            return made.recv(1000)
    return b" 400 "  # It was closed with what was sent unread, and the answer went with it.


def test_a_body_in_chunks_of_one_byte_keeps_nothing(watched: Watched) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b"<"

    url = httpx.URL(watched.url)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: {url.host}\r\nTransfer-Encoding: chunked\r\n"
    whole = f"{head}Content-Type: {XML}\r\n\r\n".encode() + b"1\r\n<\r\n" * 500_000
    turns = []
    for _ in range(TRIES):
        watched.longest()
        assert b" 400 " in _sent(url, whole)
        turns.append(watched.longest())
        if turns[-1][0] < LONGEST:
            break
    else:
        pytest.fail(f"{turns}")
    # Small chunks as such are fine.
    few = httpx.post(f"{watched.url}/v1/messages", content=chunks(), headers={"content-type": XML})
    assert few.json()["code"] == "unreadable-message"
