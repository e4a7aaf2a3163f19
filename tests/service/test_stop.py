"""`server.stop_seconds`: an end takes no longer, and what it could not finish comes again."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.service.running import CITY, WAIT, Served, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

XML = {"content-type": "application/xml"}
SLACK = 6.0
"""Seconds for what is not waiting: workers and the interpreter end, on a busy machine, too."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("stock"))


class Shop:
    """A service with two directories of messages, and a sink that waits for its door."""

    def __init__(self, index: Path, place: Path, seconds: float) -> None:
        self._index = index
        self._place = place
        self._seconds = seconds
        self.door = place / "door"

    def serve(self) -> Served:
        boxes = [self._place / name for name in ("one", "two")]
        for box in boxes:
            box.mkdir(exist_ok=True)
        about = ", ".join(
            f"{{name='{box.name}', kind='files', path='{box}', poll_seconds=0.05}}" for box in boxes
        )
        options = f"options={{door='{self.door}'}}"
        sink = f"{{name='held', kind='python', use='tests.service.holding:Holding', {options}}}"
        expression = CITY["expression"]
        return Served(
            self._index,
            self._place / "state",
            f"statements=[{{name='city', expression='{expression}', returns=['name']}}]",
            f"sources=[{about}]",
            f"sinks=[{sink}]",
            f"server.stop_seconds={self._seconds}",
        )

    def send(self, box: str, number: int) -> None:
        whole = self._place / f"{number}.part"
        whole.write_bytes(sale(number))
        whole.rename(self._place / box / f"{number}.xml")

    def left(self) -> list[str]:
        return sorted(path.name for box in ("one", "two") for path in (self._place / box).iterdir())

    def taken(self) -> int:
        return len(self.door.with_suffix(".taken").read_bytes().splitlines())


def ended(served: Served) -> float:
    """Tell a service to stop; the seconds it took."""
    began = time.monotonic()
    assert served.end(signal.SIGTERM) == 0
    return time.monotonic() - began


def wait(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/healthz")
    except httpx.ConnectError:
        return True
    return False


def under_way(served: Served) -> int:
    lines = httpx.get(f"{served.url}/metrics").text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if "flow_under_way{" in line)


def test_an_end_takes_no_longer_however_many_wait_and_nothing_is_lost(
    index: Path, tmp_path: Path
) -> None:
    shop = Shop(index, tmp_path, seconds=4)
    answers: list[int] = []

    def post(url: str) -> None:
        answers.append(httpx.post(url, content=sale(9), headers=XML, timeout=WAIT).status_code)

    with shop.serve() as served:
        shop.send("one", 1)
        shop.send("two", 2)
        wait(lambda: under_way(served) == 2)
        posting = threading.Thread(target=post, args=(f"{served.url}/v1/messages",))
        posting.start()
        wait(lambda: "fmware_engine_queue 3.0" in httpx.get(f"{served.url}/metrics").text)
        took = ended(served)
        posting.join(WAIT)
    assert 2.5 < took < 4 + SLACK
    assert answers == [503]
    assert shop.left() == ["1.xml", "2.xml"]
    assert shop.taken() == 0
    shop.door.touch()
    with shop.serve() as served:
        wait(lambda: not shop.left())
    assert shop.taken() == 2


def test_an_end_waits_for_what_can_be_finished(index: Path, tmp_path: Path) -> None:
    shop = Shop(index, tmp_path, seconds=30)
    with shop.serve() as served:
        shop.send("one", 1)
        wait(lambda: under_way(served) == 1)
        threading.Timer(1.0, shop.door.touch).start()
        took = ended(served)
    assert took < 1 + SLACK
    assert shop.left() == []
    assert shop.taken() == 1


def test_told_twice_it_ends_at_once_and_gives_back_what_is_not_done(
    index: Path, tmp_path: Path
) -> None:
    shop = Shop(index, tmp_path, seconds=600)
    with shop.serve() as served:
        shop.send("one", 1)
        wait(lambda: under_way(served) == 1)
        served.process.send_signal(signal.SIGTERM)
        wait(lambda: refused(served.url))
        assert ended(served) < SLACK
    assert shop.left() == ["1.xml"]
    assert shop.taken() == 0


# --- with every route busy ------------------------------------------------------------------

LATE = 2.0
"""Seconds by which a busy machine may notice late that a process has ended."""


def wide(size: int) -> bytes:
    return b"<r>" + b"<a>x</a>" * (size // 8) + b"</r>"


def pending(url: str, head: str, body: bytes = b"") -> socket.socket:
    """Ask for something, and never read the answer."""
    where = httpx.URL(url)
    made = socket.create_connection((where.host, where.port or 80), WAIT)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.sendall(f"{head} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode() + body)
    return made


def sized(kind: str, data: bytes) -> bytes:
    return f"Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def busy_requests() -> dict[str, tuple[str, bytes]]:
    """Requests that keep each route busy, or that wait for a reader that does not read."""
    toml = b".".join([b"a"] * 60_000) + b"=1\n"
    many = b"".join(b"//sale/item[units = %d]\n" % n for n in range(60_000))
    tried = json.dumps({"statement": {"expression": "//a//a//a//a//a"}, "message": "<a>" * 200})
    keys = b"{" + b",".join(b'"%x":0' % n for n in range(100_000)) + b"}"
    members = gzip.compress(b"") * 9_000
    return {
        "bulk toml": ("POST /v1/statements/bulk", sized("application/toml", toml)),
        "bulk text": ("POST /v1/statements/bulk", sized("text/plain", many)),
        "create": ("POST /v1/statements", sized("application/json", keys)),
        "try": ("POST /v1/try", sized("application/json", tried.encode())),
        "explain": ("POST /v1/statements/city/explain", sized("application/xml", wide(1 << 20))),
        "messages": ("POST /v1/messages", sized("application/xml", wide(8 << 20))),
        "later": ("POST /v1/messages?wait=false", sized("application/xml", wide(8 << 20))),
        "gzip": ("POST /v1/messages", sized("application/gzip", members)),
        "half a body": ("POST /v1/messages", sized("application/xml", wide(1 << 16))[:-9]),
        "half a head": ("GET /v1/matches", b"X: y"),
        "stream": ("GET /v1/matches/stream?after=0", b"\r\n"),
        "report": ("GET /v1/report", b"\r\n"),
        "letters": ("GET /v1/dead-letters", b"\r\n"),
        "matches": ("GET /v1/matches?limit=1000", b"\r\n"),
    }


def test_an_end_takes_no_longer_with_every_route_busy(index: Path, tmp_path: Path) -> None:
    statements = "statements=[{name='city', expression='//r/a', returns=['message']}]"
    with Served(index, tmp_path / "state", statements, "server.stop_seconds=4") as served:
        url = served.url
        for _ in range(20):
            answer = httpx.post(f"{url}/v1/messages", content=wide(50_000), headers=XML)
            assert answer.status_code == 200
        asked = [pending(url, *each) for each in busy_requests().values() for _ in range(3)]
        time.sleep(0.5)
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(WAIT)
        took = time.monotonic() - began
        served.end()
        for each in asked:
            each.close()
    assert took < 4 + LATE


def test_what_keeps_the_interpreter_does_not_keep_the_process(index: Path, tmp_path: Path) -> None:
    """The end is not the interpreter's: a native call that never returns is ended with it."""
    sink = "{name='held', kind='python', use='tests.service.holding:Endless', options={}}"
    statements = "statements=[{name='city', expression='//sale', returns=['name']}]"
    said = (statements, f"sinks=[{sink}]", "server.stop_seconds=2")
    with Served(index, tmp_path / "state", *said) as served:
        asked = pending(served.url, "POST /v1/messages", sized("application/xml", sale(1)))
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(WAIT) == 1
        took = time.monotonic() - began
        served.end()
        asked.close()
    assert took < 2 + LATE
    assert any("Endless" in str(line) or "holding.py" in str(line) for line in served.lines)
