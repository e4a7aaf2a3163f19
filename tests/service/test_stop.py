"""`server.stop_seconds`: an end takes no longer, and what it could not finish comes again."""

from __future__ import annotations

import signal
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
    assert 3.5 < took < 4 + SLACK
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
