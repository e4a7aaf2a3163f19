"""The service as a process: restarts, ends, and clients that are slow."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.sync.client import connect

from fmware.service import server
from fmware.service.server import StateInUse
from fmware.service.webhooks import verify
from tests.service.running import CITY, WAIT, Served, Threaded, events_of, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

XML = {"content-type": "application/xml"}
SLOW, READERS = 60, 6


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


def test_a_restart_keeps_statements_and_positions(index: Path, tmp_path: Path) -> None:
    with Served(index, tmp_path) as first:
        httpx.put(f"{first.url}/v1/statements/city", json=CITY).raise_for_status()
        httpx.put(f"{first.url}/v1/statements/gone", json=CITY).raise_for_status()
        httpx.delete(f"{first.url}/v1/statements/gone").raise_for_status()
        with httpx.stream("GET", f"{first.url}/v1/matches/stream", timeout=WAIT) as stream:
            seen: list[str] = []
            reading = threading.Thread(target=lambda: seen.extend(stream.iter_lines()))
            reading.start()
            httpx.post(f"{first.url}/v1/messages", content=sale(1), headers=XML)
            # Told to stop, it finishes what is under way, and tells readers from where to go on.
            with dripping(httpx.URL(first.url), _posted(first.url, sale(2))[:-5]) as late:
                while _counted(first.url, "/healthz") < 1:
                    httpx.get(f"{first.url}/healthz")
                first.process.send_signal(signal.SIGTERM)
                _wait(lambda: _refused(first.url))
                late.sendall(sale(2)[-5:])
                answer = b"".join(iter(lambda: late.recv(4096), b""))
            assert first.end() == 0
            reading.join(WAIT)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"C2" in answer
    assert seen[-3:-1] == ["event: end", 'data: {"reason": "the service stops", "position": 1}']
    assert [line["event"] for line in first.lines[-2:]] == ["stopping", "stopped"]
    with Served(index, tmp_path, "server.log_level=debug") as second:
        named = {"message-id": "order-7", "x-request-id": "mine", **XML}
        httpx.post(f"{second.url}/v1/messages", content=sale(3), headers=named)
        httpx.post(f"{second.url}/v1/messages", content=b"<a>", headers={"message-id": "bad"})
        kept = httpx.get(f"{second.url}/v1/statements").json()["statements"]
        found = httpx.get(f"{second.url}/v1/matches", params={"after": 1}).json()["matches"]
        assert second.end() == 0
    assert [each["name"] for each in kept] == ["city"]
    assert [each["local"]["value"] for each in found] == ["C2", "C3"]
    assert [each["position"] for each in found] == [2, 3]
    _tells_ids(second.lines)


def _tells_ids(lines: list[dict[str, Any]]) -> None:
    """The log says which message and which statements it is about."""
    (matched,) = [line for line in lines if line["event"] == "message matched"]
    assert (matched["message"], matched["statements"]) == ("order-7", ["city"])
    assert (matched["tenant"], matched["request"]) == ("default", "mine")
    (rejected,) = [line for line in lines if line["event"] == "message rejected"]
    assert rejected["message"] == "bad"
    assert rejected["reason"]


def _posted(url: str, body: bytes) -> bytes:
    head = f"POST /v1/messages HTTP/1.1\r\nHost: {httpx.URL(url).host}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _counted(url: str, route: str) -> float:
    """Requests to a route so far: those before it have been read, too."""
    text = httpx.get(f"{url}/metrics").text
    found = [line for line in text.splitlines() if f'route="{route}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def _refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/healthz")
    except httpx.TransportError:
        return True
    return False


def test_matches_are_posted_to_webhooks(index: Path, tmp_path: Path) -> None:
    taken: list[tuple[str, bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append((self.headers["FMware-Signature"], body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        port = receiver.server_port
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        hooks = (
            f'webhooks={{https_only=false, ports=[{port}], allow=["127.0.0.1/32"], '
            f'targets=[{{name="t", url="http://127.0.0.1:{port}/", secret_env="SECRET"}}]}}'
        )
        secret = {"SECRET": "s3cret"}
        with (
            Threaded(f"index={index}", f"state={tmp_path}", hooks, environ=secret) as served,
            served.client() as client,
        ):
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            client.post("/v1/messages", content=sale(1), headers=XML).raise_for_status()
            _wait(lambda: bool(taken))
            _wait(lambda: client.get("/v1/stats").json()["webhooks"]["t"]["delivered"] == 1)
            assert "fmware_webhook_delivered" in client.get("/metrics").text
        receiver.shutdown()
    signature, body = taken[0]
    assert verify(b"s3cret", signature, body)
    assert json.loads(body)["matches"][0]["local"]["value"] == "C1"


def test_what_was_answered_outlives_a_kill(index: Path, tmp_path: Path) -> None:
    with Served(index, tmp_path) as first:
        httpx.put(f"{first.url}/v1/statements/city", json=CITY).raise_for_status()
        named = {"message-id": "order", **XML}
        httpx.post(f"{first.url}/v1/messages", content=sale(1), headers=named).raise_for_status()
        # Some are matched before the end, some after it, and some twice.
        taken = [
            httpx.post(f"{first.url}/v1/messages?wait=false", content=sale(n) * 20, headers=XML)
            for n in range(4)
        ]
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with Served(index, tmp_path) as second:
        with httpx.Client(base_url=second.url) as client:
            for each in taken:
                while (told := client.get(each.headers["location"]).json())["state"] == "waiting":
                    time.sleep(0.02)
                assert len(told["answer"]["messages"]) == 20
            # After a crash the same message gives the same hits, which are logged already.
            client.post("/v1/messages", content=sale(1), headers=named).raise_for_status()
            found = client.get("/v1/matches", params={"limit": 1000}).json()["matches"]
        assert second.end() == 0
    assert len(found) == 81
    assert len({each["id"] for each in found}) == 81
    assert [each["position"] for each in found] == list(range(1, 82))


def test_two_services_do_not_share_a_state(index: Path, tmp_path: Path) -> None:
    both = f"index={index}", f"state={tmp_path}"
    with (
        Threaded(*both),
        pytest.raises(StateInUse, match="another service uses"),
        Threaded(*both),
    ):
        pass


def test_what_cannot_be_started_says_why(index: Path, tmp_path: Path) -> None:
    with (
        Served(tmp_path / "none", tmp_path / "a") as no_index,
        Served(index, tmp_path / "b", "engine.workes=1") as no_key,
    ):
        codes = [each.process.wait(WAIT) for each in (no_index, no_key)]
        for each in (no_index, no_key):
            each.end()
    assert codes == [1, 2]
    assert "none" in no_index.lines[-1]["event"]
    assert "did you mean workers" in no_key.lines[-1]["event"]


# --- clients that are slow --------------------------------------------------------------------


def dripping(url: httpx.URL, text: bytes) -> socket.socket:
    """A connection that has said only the beginning, and takes little."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((url.host, url.port))
    made.sendall(text)
    return made


def test_slow_clients_hurt_nobody_and_slow_readers_lose_nothing(
    index: Path, tmp_path: Path
) -> None:
    bounds = "server.header_seconds=3", "server.stall_seconds=1", "server.body_pause_seconds=60"
    with (
        ExitStack() as stack,
        Threaded(f"index={index}", f"state={tmp_path}", *bounds) as served,
        served.client() as client,
    ):
        client.put(
            "/v1/statements/all",
            json={"expression": "//sale/item/local:city", "returns": ["local", "fragment"]},
        ).raise_for_status()
        url = httpx.URL(served.url)
        host = f"Host: {url.host}\r\n".encode()
        slow = [
            stack.enter_context(dripping(url, text))
            for text in (
                b"",
                b"GET /healthz HTTP/1.1\r\nX-Slow: ",
                b"POST /v1/messages HTTP/1.1\r\n" + host + b"Content-Length: 1000\r\n\r\n<a>",
            )
            for _ in range(SLOW // 3)
        ]
        asked = b"GET /v1/matches/stream?after=0 HTTP/1.1\r\n" + host + b"\r\n"
        readers = [stack.enter_context(dripping(url, asked)) for _ in range(READERS)]
        follow = served.service.readers
        _wait(lambda: len(follow) == READERS)
        body = b"".join(sale(n % 50) for n in range(400))
        posted = 0
        while len(follow) and posted < 200_000:
            answer = client.post("/v1/messages", content=body, headers=XML)
            assert len(answer.json()["messages"]) == 400
            posted += 400
        assert measured(client, "fmware_connections_stalled_total") == READERS
        # Those without a whole request are let go of; those with one have their time.
        for each in slow[: 2 * SLOW // 3]:
            each.settimeout(WAIT)
            assert each.recv(100).startswith(b"HTTP/1.1 408")
        assert measured(client, "fmware_connections_too_slow_total") == 2 * SLOW // 3
        assert served.service.metrics.totals()["dropped"] >= READERS
        seen = _read_to_end(readers[0])
        missed = client.get("/v1/matches", params={"after": seen[-1], "limit": 1}).json()
        assert missed["matches"][0]["position"] == seen[-1] + 1
        assert seen == list(range(1, seen[-1] + 1))
        assert client.get("/v1/stats").json()["log"]["last"] == posted


def _wait(told: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _read_to_end(reader: socket.socket) -> list[int]:
    """The positions of the whole events that a reader has got until it was cut off."""
    reader.settimeout(WAIT)
    parts: list[bytes] = []
    try:
        while part := reader.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        pass
    lines = b"".join(parts).split(b"\n")
    return [int(line[4:]) for line in lines[:-4] if line.startswith(b"id: ")]


def measured(client: httpx.Client, name: str) -> float:
    """A metric without labels."""
    lines = client.get("/metrics").text.splitlines()
    (found,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(found.rpartition(" ")[2])


@pytest.mark.parametrize(
    "said",
    ["GET / HT", "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n<"],
)
def test_the_longest_waiting_makes_room(index: Path, tmp_path: Path, said: str) -> None:
    with (
        ExitStack() as stack,
        Threaded(f"index={index}", f"state={tmp_path}", "server.connections=20") as served,
    ):
        url = httpx.URL(served.url)
        slow = []
        with served.client() as client:
            for _ in range(30):
                slow.append(stack.enter_context(dripping(url, said.encode())))
                # One by one, so that it is known who came first; whoever asks is never one to go.
                client.get("/healthz")
        slow[0].settimeout(WAIT)
        with suppress(ConnectionResetError):
            assert slow[0].recv(100) == b""
        slow[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            slow[-1].recv(100)
        with served.client() as client:
            assert client.get("/healthz").status_code == 200
            assert measured(client, "fmware_connections_turned_away_total") >= 10
            assert measured(client, "fmware_connections") <= 20


UPGRADE = (
    "GET /v1/matches/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ("", b"HTTP/1.1 101"),
        ("Content-Length: 0\r\n", b"HTTP/1.1 101"),
        ("Content-Length: 5\r\n", b"HTTP/1.1 400"),
        ("Transfer-Encoding: chunked\r\n", b"HTTP/1.1 400"),
    ],
)
def test_an_upgrade_is_answered_and_waits_no_more(
    index: Path, tmp_path: Path, more: str, answer: bytes
) -> None:
    with (
        Threaded(f"index={index}", f"state={tmp_path}") as served,
        served.client() as client,
    ):
        url = httpx.URL(served.url)
        with ExitStack() as stack:
            for _ in range(5):
                made = stack.enter_context(dripping(url, f"{UPGRADE}{more}\r\n".encode()))
                made.settimeout(WAIT)
                assert made.recv(12) == answer
            # The client's own waits while it is idle, and not while it asks.
            assert measured(client, "fmware_connections_waiting") == 0
        _wait(lambda: measured(client, "fmware_connections") == 1)
        assert measured(client, "fmware_connections_waiting") == 0


def test_an_upgrade_that_comes_to_nothing_has_its_time(index: Path, tmp_path: Path) -> None:
    many = "".join(f"X-{number}: x\r\n" for number in range(200))
    with Threaded(f"index={index}", f"state={tmp_path}", "server.header_seconds=0.5") as served:
        url = httpx.URL(served.url)
        place = served.url.replace("http", "ws") + "/v1/matches/ws"
        with connect(place) as good, served.client() as client:
            with dripping(url, f"{UPGRADE}{many}\r\n".encode()) as made:
                made.settimeout(WAIT)
                assert made.recv(12) == b"HTTP/1.1 408"
            assert measured(client, "fmware_connections_too_slow_total") == 1
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            client.post("/v1/messages", content=sale(1)).raise_for_status()
            assert json.loads(good.recv(WAIT))["statement"] == "city"


def test_where_no_connection_waits_the_new_one_is_told(index: Path, tmp_path: Path) -> None:
    with (
        ExitStack() as stack,
        Threaded(f"index={index}", f"state={tmp_path}", "server.connections=8") as served,
    ):
        url = httpx.URL(served.url)
        ask = f"GET /v1/matches/stream HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode()
        for _ in range(8):
            stack.enter_context(dripping(url, ask))
        _wait(lambda: len(served.service.readers) == 8)
        late = stack.enter_context(dripping(url, b""))
        late.settimeout(WAIT)
        assert late.recv(1000).startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    ("bound", "path"),
    [
        ("server.body_pause_seconds=0.5", "/v1/messages"),
        ("server.request_seconds=0.5", "/v1/messages"),
        ("server.body_pause_seconds=0.5", "/v1/statements"),
    ],
)
def test_a_body_that_comes_too_slowly_is_told_so(
    index: Path, tmp_path: Path, bound: str, path: str
) -> None:
    with (
        Threaded(f"index={index}", f"state={tmp_path}", bound) as served,
        served.client() as client,
    ):
        url = httpx.URL(served.url)
        kind = "application/xml" if path.endswith("messages") else "application/json"
        head = f"POST {path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: {kind}\r\n"
        with dripping(url, f"{head}Content-Length: 1000\r\n\r\n<a>".encode()) as late:
            late.settimeout(WAIT)
            answer = b"".join(iter(lambda: late.recv(4096), b""))
        head, _, body = answer.decode().partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 408")
        assert "connection: close" in head
        assert json.loads(body)["code"] == "body-too-slow"
        assert 'fmware_rejects_total{code="body-too-slow"} 1.0' in client.get("/metrics").text


def test_a_body_may_take_longer_than_its_longest_pause(index: Path, tmp_path: Path) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}", "server.body_pause_seconds=1") as served:
        whole = _posted(served.url, sale(1))
        with dripping(httpx.URL(served.url), whole[:-5]) as slow:
            for byte in whole[-5:]:
                time.sleep(0.4)
                slow.sendall(bytes([byte]))
            slow.settimeout(WAIT)
            assert slow.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_reader_that_is_slow_but_reads_is_not_cut_off(index: Path, tmp_path: Path) -> None:
    with (
        Threaded(f"index={index}", f"state={tmp_path}", "server.stall_seconds=0.5") as served,
        served.client() as client,
    ):
        city = {"expression": "//sale/item/local:city", "returns": ["local", "fragment"]}
        client.put("/v1/statements/all", json=city).raise_for_status()
        body = b"".join(sale(n % 50) for n in range(1000))
        for _ in range(6):
            client.post("/v1/messages", content=body, headers=XML).raise_for_status()
        url = httpx.URL(served.url)
        ask = f"GET /v1/matches/stream?after=0 HTTP/1.1\r\nHost: {url.host}\r\n\r\n".encode()
        with dripping(url, ask) as slow:
            _wait(lambda: len(served.service.readers) == 1)
            # What it leaves unread is more than is ever held for it, and it reads on and on.
            slow.settimeout(WAIT)
            for _ in range(30):
                time.sleep(0.1)
                taken = 0
                while taken < 12_000:
                    taken += len(slow.recv(12_000 - taken))
            assert len(served.service.readers) == 1
            assert measured(client, "fmware_connections_stalled_total") == 0


def test_headers_have_a_size(index: Path, tmp_path: Path) -> None:
    with (
        Threaded(f"index={index}", f"state={tmp_path}", "server.header_bytes=2048") as served,
        served.client() as client,
    ):
        assert client.get("/healthz", headers={"x": "y" * 1000}).status_code == 200
        # Those that come at once are here before they can be refused.
        assert client.get("/healthz", headers={"x": "y" * 5000}).status_code == 431
        assert client.get("/healthz", params={"x": "y" * 5000}).status_code == 431
        with dripping(httpx.URL(served.url), b"GET / HTTP/1.1\r\nX: " + b"y" * 5000) as never:
            never.settimeout(WAIT)
            assert never.recv(100).startswith(b"HTTP/1.1 400")


def test_idle_connections_are_closed_in_time(index: Path, tmp_path: Path) -> None:
    with Threaded(f"index={index}", f"state={tmp_path}", "server.keep_alive_seconds=1") as served:
        ask = f"GET /healthz HTTP/1.1\r\nHost: {httpx.URL(served.url).host}\r\n\r\n".encode()
        with dripping(httpx.URL(served.url), ask) as idle:
            idle.settimeout(WAIT)
            said = b"".join(iter(lambda: idle.recv(4096), b""))
        assert said.startswith(b"HTTP/1.1 200")


def test_a_reader_that_the_log_has_left_behind_is_told(index: Path, tmp_path: Path) -> None:
    small = "log.bytes=1048576", "log.segment_bytes=65536"
    with (
        Threaded(f"index={index}", f"state={tmp_path}", *small) as served,
        served.client() as client,
    ):
        lines = "//sale/item/local:city\n" * 20
        client.post("/v1/statements/bulk", content=lines, headers={"content-type": "text/plain"})
        body = b"".join(sale(n % 50) for n in range(100))
        while (log := client.get("/v1/stats").json()["log"])["first"] == 1:
            client.post("/v1/messages", content=body, headers=XML).raise_for_status()
        with client.stream("GET", "/v1/matches/stream", params={"after": 1}) as stream:
            told: list[dict[str, Any]] = events_of(stream, 1)
        assert told == [{"reason": told[0]["reason"], "position": log["first"] - 1}]
        assert "too slow" in told[0]["reason"]
        place = served.url.replace("http", "ws") + "/v1/matches/ws?after=0"
        with connect(place, close_timeout=0.1) as ws:
            assert json.loads(ws.recv())["position"] >= log["first"]


def test_free_memory_is_given_back_as_long_as_the_door_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: list[float] = []
    monkeypatch.setattr(server, "give_back", lambda: times.append(time.monotonic()))

    async def tidied() -> int:
        with server._tidied(0.005):
            while len(times) < 3:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        known = len(times)
        await asyncio.sleep(0.05)
        return len(times) - known

    assert asyncio.run(tidied()) == 0
