"""Small ways to do harm that do none: tokens, echoes, links, brokers that are down, floods."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from fmware import build_index
from fmware.service import door
from fmware.service.brokers.files import FilesSource
from fmware.service.brokers.memory import MemorySink, MemorySource
from fmware.service.errors import BrokerDown, BrokerError
from fmware.service.flow import Flow, Outlet
from fmware.service.guard import FLOOD, FRAMES_AT_ONCE
from fmware.service.tenants import FLOODS_AT_ONCE
from tests.service.running import CITY, WAIT, Threaded, make_index, sale
from tests.service.shop import engine, message, shop, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from websockets.sync.client import ClientConnection

XML = {"content-type": "application/xml"}
ANN, BOB = "ann-token", "bob-token"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threaded]:
    place = tmp_path_factory.mktemp("stock")
    tenants = "tenants=[{name='ann', token_env='ANN'}, {name='bob', token_env='BOB'}]"
    said = (f"index={make_index(place)}", f"state={place / 'state'}", tenants)
    with Threaded(*said, environ={"ANN": ANN, "BOB": BOB}) as made:
        yield made


# --- tokens ---------------------------------------------------------------------------------


def test_two_tokens_are_refused_whichever_is_good(served: Threaded) -> None:
    ann, bob, wrong = (("Authorization", f"Bearer {each}") for each in (ANN, BOB, "wrong"))
    for headers in ([ann, bob], [wrong, ann], [ann, wrong], [ann, ann]):
        answer = httpx.get(f"{served.url}/v1/stats", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-authorization")
    assert httpx.get(f"{served.url}/v1/stats", headers=[ann]).json()["tenant"] == "ann"


def test_a_token_among_protocols_is_for_websockets_alone(served: Threaded) -> None:
    named = {"Sec-WebSocket-Protocol": f"fmware, bearer.{ANN}"}
    assert httpx.get(f"{served.url}/v1/stats", headers=named).status_code == 401
    answer = httpx.post(f"{served.url}/v1/messages", content=sale(), headers=named | XML)
    assert answer.status_code == 401
    url = served.url.replace("http", "ws")
    with connect(f"{url}/v1/matches/ws", subprotocols=["fmware", f"bearer.{ANN}"]) as made:  # type: ignore[list-item]
        assert made.subprotocol == "fmware"


# --- echoes ---------------------------------------------------------------------------------


def test_what_is_refused_is_repeated_in_short(served: Threaded) -> None:
    long = f"//a[b = '{'x' * 4000}'][" + "c" * 4000
    with served.client(ANN) as client:
        bodies = (
            ("PUT", "/v1/statements/long", {"json": {"expression": long}}),
            ("POST", "/v1/statements/validate", {"json": {"expression": long}}),
            ("POST", "/v1/try", {"json": {"statement": {"expression": long}, "message": "<a/>"}}),
            ("POST", "/v1/statements", {"json": {"name": "x" * 5000, "expression": "//a"}}),
            ("POST", "/v1/statements", {"json": {"name": "x", "y" * 5000: 1}}),
            ("POST", "/v1/statements", {"json": {"name": "x", "y" * 50_000: 1}}),
            (
                "POST",
                "/v1/statements/bulk",
                {"content": long, "headers": {"content-type": "text/plain"}},
            ),
            (
                "POST",
                "/v1/statements/bulk",
                {
                    "content": f'[[statement]]\nname = "{long}"\n',
                    "headers": {"content-type": "application/toml"},
                },
            ),
        )
        for method, path, more in bodies:
            answer = client.request(method, path, **more)
            assert answer.status_code == (200 if path.endswith("bulk") else 422)
            assert len(answer.content) < 2000


def test_the_place_of_an_error_is_within_what_is_repeated(served: Threaded) -> None:
    wrong = f"//a[b = '{'x' * 4000}'][c = ]/d"
    with served.client(ANN) as client:
        told = client.post("/v1/statements/validate", json={"expression": wrong}).json()
    assert told["expression"][told["at"] :].startswith("]/d")
    assert told["where"].endswith(f"character {wrong.index(']/d') + 1}")


# --- links ----------------------------------------------------------------------------------


def test_a_link_to_itself_is_a_dead_letter_and_the_others_go_on(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    (inbox / "a-loop.xml").symlink_to("a-loop.xml")
    (inbox / "b.xml").write_bytes(message(1))
    (inbox / "c-locked.xml").write_bytes(message(2))

    async def run() -> MemorySink:
        sink = MemorySink("out")
        async with engine(shop(tmp_path)) as at_work:
            source = FilesSource("in", path=inbox, poll_seconds=0.01)
            flow = Flow(source, at_work, Outlet([sink]))
            await flow.start()
            await until(lambda: sink.hits and sink.letters)
            await until(lambda: not (inbox / "a-loop.xml").is_symlink())
            await flow.stop()
        return sink

    sink = asyncio.run(run())
    assert ["a-loop.xml" in letter.reason for letter in sink.letters] == [True]
    assert not list(inbox.glob("[ab]*"))


def test_a_file_that_cannot_be_read_now_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        # Nothing is unreadable to root but what is no file: a link into a file is not.
        (tmp_path / "file").touch()
        bad = tmp_path / "a.xml"
        bad.symlink_to(tmp_path / "file" / "below")
    else:
        bad = tmp_path / "a.xml"
        bad.touch(mode=0)
    monkeypatch.setattr("fmware.service.brokers.files.AGAIN", 0.01)
    (tmp_path / "b.xml").write_bytes(message(1))

    async def run() -> None:
        source = FilesSource("in", path=tmp_path, poll_seconds=0.01)
        await source.open()
        found = source.deliveries()
        assert (await anext(found)).path.name == "b.xml"
        await found.aclose()

    asyncio.run(asyncio.wait_for(run(), WAIT))


@pytest.mark.parametrize("record", ["item", ()])
def test_a_link_to_itself_in_a_corpus_is_a_reject(
    tmp_path: Path, record: str | tuple[str, ...]
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("a", "z"):
        (corpus / f"{name}.xml").write_text(f"<stock><item sku='{name}'><city/></item></stock>")
    (corpus / "loop.xml").symlink_to("loop.xml")
    (corpus / "nowhere.xml").symlink_to("not there")
    summary = build_index(corpus, tmp_path / "index", record=record, calibrate=False)
    assert summary.rejected == 2
    assert summary.records == 2


# --- brokers that are down ------------------------------------------------------------------


class Late(MemorySource):
    """A source whose broker is down at first."""

    def __init__(self, name: str, down: int) -> None:
        super().__init__(name)
        self.down = down

    async def open(self) -> None:
        self.down -= 1
        if self.down >= 0:
            raise BrokerDown("no broker")


class LateSink(MemorySink):
    """A sink whose broker is down at first."""

    def __init__(self, name: str, down: int) -> None:
        super().__init__(name)
        self.down = down
        self.opened = False

    async def open(self) -> None:
        self.down -= 1
        if self.down >= 0:
            raise BrokerDown("no broker")
        assert not self.opened
        self.opened = True

    async def write(self, hits: Any) -> None:
        assert self.opened
        await super().write(hits)


def test_brokers_that_are_down_at_the_start_are_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        late, sink = Late("late", 2), LateSink("late", 2)
        there = MemorySource("there")
        async with engine(shop(tmp_path)) as at_work:
            outlet = Outlet([sink])
            await outlet.open()
            assert outlet.snapshot()["stuck"] == ["late"]
            flows = [Flow(each, at_work, outlet) for each in (late, there)]
            for flow in flows:
                await flow.start()
            await there.send(message(1), "there")
            await late.send(message(2), "late")
            await until(lambda: there.acknowledged and late.acknowledged)
            assert {hit.message for hit in sink.hits} == {"there", "late"}
            assert outlet.snapshot()["stuck"] == []
            for flow in flows:
                await flow.stop(1)
            await outlet.close()

    asyncio.run(run())


def test_a_source_that_must_be_mended_still_stops_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with engine(shop(tmp_path)) as at_work:
            flow = Flow(FilesSource("in", path=tmp_path / "no"), at_work, Outlet([]))
            with pytest.raises(BrokerError, match="make it"):
                await flow.start()

    asyncio.run(run())


def test_the_service_starts_while_a_broker_is_down(tmp_path: Path) -> None:
    down = "kind='nats', url='nats://127.0.0.1:1', stream='S', subject='s'"
    said = (
        f"index={make_index(tmp_path)}",
        f"state={tmp_path / 'state'}",
        f"sources=[{{name='gone', {down}}}]",
    )
    with Threaded(*said) as served, served.client() as client:
        client.put("/v1/statements/city", json=CITY).raise_for_status()
        answer = client.post("/v1/messages", content=sale(), headers=XML)
        assert len(answer.json()["matches"]) == 1
        assert client.get("/readyz").status_code == 200
        assert 'fmware_flow_failures{source="gone"}' in client.get("/metrics").text


# --- streams --------------------------------------------------------------------------------


def figure(served: Threaded, name: str) -> float:
    """A value of `/metrics`."""
    lines = served.service.metrics.text().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_how_long_a_reader_follows_is_no_latency_of_requests(served: Threaded) -> None:
    timed = 'fmware_stage_seconds_count{stage="request"}'
    followed = 'fmware_requests_total{method="GET",route="/v1/matches/stream"'
    with served.client(ANN) as client:
        client.get("/v1/stats").raise_for_status()
        before, readers = figure(served, timed), figure(served, followed)
        with client.stream("GET", "/v1/matches/stream") as events:
            next(events.iter_lines())
        end = time.monotonic() + WAIT
        while figure(served, followed) == readers:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert figure(served, timed) == before


def masked(opcode: int, data: bytes = b"", *, last: bool = True) -> bytes:
    """A frame as clients send it, masked with zeros."""
    return bytes([0x80 * last | opcode, 0x80 | len(data)]) + bytes(4) + data


FLOODS = {
    "pings": masked(9),
    "pongs": masked(10, b"x" * 20),
    "texts": masked(1, b"x"),
    "pieces": masked(0, last=False),
}
UPGRADE = (
    "GET /v1/matches/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nAuthorization: Bearer {ANN}\r\n\r\n"
)


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_frames_ends_its_own_connection(served: Threaded, kind: str) -> None:
    url = httpx.URL(served.url)
    flooded = figure(served, "fmware_connections_flooded_total")
    with socket.create_connection((url.host, url.port or 80), 10) as made:
        made.sendall(UPGRADE.encode())
        assert b" 101 " in made.recv(4096)
        with suppress(OSError):
            made.sendall(masked(1, b"x", last=False) if kind == "pieces" else b"")
            for _ in range(200):
                made.sendall(FLOODS[kind] * 1000)
        with suppress(OSError):
            while made.recv(1 << 16):
                pass  # Pongs, and the frame that says why; then it is closed, or reset.
    assert figure(served, "fmware_connections_flooded_total") == flooded + 1
    with served.client(BOB) as client:
        assert client.get("/v1/stats").status_code == 200


def test_frames_at_their_pace_are_welcome(served: Threaded) -> None:
    url = served.url.replace("http", "ws")
    token = {"Authorization": f"Bearer {ANN}"}
    with connect(f"{url}/v1/matches/ws", additional_headers=token) as made:
        for _ in range(FRAMES_AT_ONCE // 2):
            assert made.ping().wait(WAIT)
        with pytest.raises(ConnectionClosed):
            flood(made)
    assert made.close_code in (FLOOD, 1006)


def test_a_tenant_that_floods_again_and_again_is_refused(
    served: Threaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its WebSockets count together; another tenant's are opened as before."""
    monkeypatch.setattr(door, "TARRY", 0.01)
    url = httpx.URL(served.url)
    codes = []
    for _ in range(3 * FLOODS_AT_ONCE):
        with socket.create_connection((url.host, url.port or 80), 10) as made:
            made.sendall(UPGRADE.encode())
            codes.append(made.recv(4096)[9:12])
            with suppress(OSError):
                made.sendall(FLOODS["pings"] * 1000)
            with suppress(OSError):
                while made.recv(1 << 16):
                    pass
    assert {*codes[:5]} <= {b"101", b"429"}
    assert codes.count(b"429") > FLOODS_AT_ONCE
    token = {"Authorization": f"Bearer {BOB}"}
    with connect(f"{served.url.replace('http', 'ws')}/v1/matches/ws", additional_headers=token):
        pass


def flood(made: ClientConnection) -> None:
    for _ in range(50 * FRAMES_AT_ONCE):
        made.ping()
    made.recv(WAIT)
