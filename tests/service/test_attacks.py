"""Hostile messages against the middleware, and against the service from outside."""

from __future__ import annotations

import gzip
import json
import socket
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fmware.corpus import build_index
from fmware.filtering import FilterLimits
from fmware.labeling import CHARACTER_ENTITIES, Limits
from fmware.middleware import Middleware
from tests.service.attacks import CANARY, Attack, attacks, bomb, statements
from tests.service.running import Threaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

XML = {"content-type": "application/xml"}
LIMIT = 1 << 20
NODES = 50_000
CORPUS = "<stock><book key='b1'><publisher>Weber</publisher></book></stock>"
GOOD = b"<order><book key='b1'><quantity>7</quantity></book></order>"


@contextmanager
def listening() -> Iterator[tuple[str, socket.socket]]:
    """A server that nobody may call, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/evil", server


def called(server: socket.socket) -> bool:
    try:
        server.accept()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stock")
    (place / "stock.xml").write_text(CORPUS)
    build_index(place / "stock.xml", place / "index", record="book", identity=["book=@key"])
    return place / "index"


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("secret") / "canary.txt"
    path.write_text(CANARY)
    return str(path)


def middleware_of(index: Path, *, entities: bool) -> Middleware:
    made = Middleware(
        index,
        limits=FilterLimits(work=1_000_000, tuples=1000),
        read_limits=Limits(bytes=LIMIT, nodes=NODES),
        entities=CHARACTER_ENTITIES if entities else None,
    )
    made.subscribe("//a[contains(., 'canary')]", name="seen")
    made.subscribe("//*[@k]//*", name="all")
    made.subscribe("//order/book[quantity > 5]/local:publisher", name="bulk", returns="value")
    made.subscribe("//order/book//local:publisher", name="by label")
    return made


@pytest.mark.parametrize("entities", [False, True])
def test_every_attack_is_refused_or_harmless(index: Path, canary: str, *, entities: bool) -> None:
    wrong: list[str] = []
    with listening() as (url, server), middleware_of(index, entities=entities) as middleware:
        for attack in attacks(canary, url, limit=LIMIT):
            result = middleware.publish(attack.body, name=attack.name)
            refused = result.table is None
            if refused and not (result.errors and str(result.errors[0])):
                wrong.append(f"{attack.name}: refused without a word")
            # With character entities a DOCTYPE may be there, and a DTD be named; none is fetched.
            named = "DOCTYPE" in attack.name or "DTD" in attack.name
            wanted = "either" if entities and named else attack.wanted
            if wanted != "either" and refused != (wanted == "refused"):
                wrong.append(f"{attack.name}: {'refused' if refused else 'read'}: {result.errors}")
            if result.table is not None and len(result.table) > NODES:
                wrong.append(f"{attack.name}: {len(result.table)} nodes")
            if CANARY in repr(result.errors) or "seen" in result.statements:
                wrong.append(f"{attack.name}: shows what lies outside")
        assert not called(server), "a server was called"
        # Whoever sends good messages notices nothing.
        found = [
            each.local for each in middleware.publish(GOOD).matches if each.statement == "bulk"
        ]
        assert [each.value for each in found if each] == ["Weber"]
    assert not wrong, "\n".join(wrong)


def test_reasons_do_not_repeat_what_was_sent_at_length(index: Path, canary: str) -> None:
    with listening() as (url, _), middleware_of(index, entities=False) as middleware:
        for attack in attacks(canary, url, limit=LIMIT):
            for error in middleware.publish(attack.body).errors:
                assert len(str(error)) < 1000, attack.name


def test_bombs_take_no_more_memory_than_their_size_accounts_for(index: Path, canary: str) -> None:
    """What libxml2 takes is bounded by its own limits; this is what the project adds."""
    with listening() as (url, _), middleware_of(index, entities=True) as middleware:
        chosen = [each for each in attacks(canary, url, limit=LIMIT) if _is_bomb(each)]
        assert len(chosen) >= 6
        for attack in chosen:
            tracemalloc.start()
            middleware.publish(attack.body)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 * LIMIT, f"{attack.name} took {peak:,} bytes"


def _is_bomb(attack: Attack) -> bool:
    return any(word in attack.name for word in ("laughs", "blow-up", "bomb"))


def test_there_are_enough_of_them() -> None:
    made = list(attacks("/nowhere", "http://127.0.0.1/"))
    assert len({attack.name for attack in made}) == len(made) >= 80
    assert sum(len(attack.body) for attack in made) < 20 << 20


# --- from outside ---------------------------------------------------------------------------

# Over HTTP, documents that stand one after the other are a batch, with any blanks between them.
BATCHES = {"two roots", "a declaration behind a space"}


@pytest.fixture(scope="module")
def served(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    state = tmp_path_factory.mktemp("state")
    limits = f"limits={{ bytes = {LIMIT}, nodes = {NODES}, work = 1000000, tuples = 1000 }}"
    bulk = (
        "statements=[{name='bulk', expression='//order/book[quantity > 5]/local:publisher',"
        "returns='value'}, {name='all', expression='//*[@k]//*'}]"
    )
    body = f"server.body_bytes={2 * LIMIT}"
    hosts = "server.hosts=['fmware.test']"
    with Threaded(f"index={index}", f"state={state}", limits, bulk, body, hosts) as service:
        yield service


def alive(client: httpx.Client) -> bool:
    """Whether somebody who sends good messages notices nothing."""
    answer = client.post("/v1/messages", content=GOOD, headers=XML)
    found = answer.json().get("matches", [])
    return [each["local"]["value"] for each in found if each["statement"] == "bulk"] == ["Weber"]


def test_the_service_refuses_them_too_and_goes_on(served: Threaded, canary: str) -> None:
    wrong: list[str] = []
    with listening() as (url, server), served.client() as client:
        for attack in attacks(canary, url, limit=LIMIT):
            answer = client.post("/v1/messages", content=attack.body, headers=XML)
            if CANARY in answer.text:
                wrong.append(f"{attack.name}: shows what lies outside")
            if answer.status_code >= 500:
                wrong.append(f"{attack.name}: answered {answer.status_code}")
            if attack.wanted == "either" or attack.name in BATCHES:
                continue
            if _refused(answer) != (attack.wanted == "refused"):
                wrong.append(f"{attack.name}: answered {answer.status_code} {answer.text[:200]}")
        assert not called(server), "a server was called"
        assert alive(client)
        letters = client.get("/v1/dead-letters", params={"limit": 100}).json()["letters"]
        assert len(letters) > 20
        assert all(CANARY not in letter["reason"] for letter in letters)
        stats = client.get("/v1/stats").json()
    assert stats["engine"]["counts"]["restarts"] == 0, "a worker was brought down"
    assert not wrong, "\n".join(wrong)


def _refused(answer: httpx.Response) -> bool:
    if answer.status_code in range(400, 500):
        about = answer.json()
        assert about["code"]
        assert about["detail"]
        return True
    return any(each.get("rejected") for each in answer.json().get("messages", ()))


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
def test_packed_bodies_are_unpacked_within_limits_or_refused(served: Threaded, coding: str) -> None:
    with served.client() as client:
        headers = {**XML, "content-encoding": coding}
        answer = client.post("/v1/messages", content=bomb(), headers=headers)
        assert answer.status_code == (413 if coding == "gzip" else 415)
        if coding == "gzip":
            packed = client.post("/v1/messages", content=gzip.compress(GOOD), headers=headers)
            assert packed.json()["matches"]
        assert alive(client)


def test_hostile_statements_are_refused_or_bounded(served: Threaded) -> None:
    wrong: list[str] = []
    with served.client() as client:
        for name, text in statements():
            for path, body in (
                ("/v1/statements/validate", {"expression": text}),
                ("/v1/try", {"statement": {"expression": text}, "message": "<a><b/></a>"}),
                ("/v1/statements", {"name": "hostile", "expression": text}),
            ):
                data = json.dumps(body).encode()
                headers = {"content-type": "application/json"}
                answer = client.post(path, content=data, headers=headers)
                if answer.status_code >= 500:
                    wrong.append(f"{name}, {path}: {answer.status_code} {answer.text[:200]}")
                if len(answer.content) > 100_000:
                    wrong.append(f"{name}, {path}: answered {len(answer.content):,} bytes")
            client.delete("/v1/statements/hostile")
        assert alive(client)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fetc/passwd",
        "/../../../../etc/passwd",
        "/%2e%2e/app.py",
        "//etc/passwd",
        "/app.py",
    ],
)
def test_the_page_shows_no_other_file(served: Threaded, path: str) -> None:
    host, _, port = served.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"root:" not in answer


def test_another_page_of_the_same_browser_gets_nothing(served: Threaded) -> None:
    """A service without tokens, on this machine: other origins and other names are refused."""
    with served.client() as client:
        body = {"name": "theirs", "expression": "//a"}
        there = client.post("/v1/statements", json=body, headers={"origin": "https://evil.example"})
        assert there.status_code == 403
        named = client.get("/v1/statements", headers={"host": "evil.example"})
        assert named.status_code == 421
        known = client.get("/v1/statements", headers={"host": "fmware.test:8400"})
        assert known.status_code == 200
        assert "access-control-allow-origin" not in client.get("/v1/stats").headers
