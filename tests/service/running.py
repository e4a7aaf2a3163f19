"""A service that really runs: in a thread of the tests, or as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import structlog

from fmware.corpus import build_index
from fmware.service.server import run
from fmware.service.settings import load

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from fmware.service.service import Service

# What a request does is not worth a line of a test's output; what is, without all locals.
structlog.configure(
    processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
    wrapper_class=structlog.make_filtering_bound_logger(30),
)

ROOT = Path(__file__).parents[2]
WAIT = 60.0
"""Seconds that anything may take before a test gives up; none comes near it."""
ITEMS = 50


def make_index(place: Path) -> Path:
    """Fifty items, each with a city and a price."""
    items = (
        f"<item sku='p{n}'><city>C{n % 7}</city><price>{n}</price></item>" for n in range(ITEMS)
    )
    source = place / "stock.xml"
    source.write_text(f"<stock>{''.join(items)}</stock>")
    build_index(source, place / "index", record="item", identity=["item=@sku"], calibrate=False)
    return place / "index"


def sale(number: int = 7, units: int = 7) -> bytes:
    """A message that sells one item."""
    return f"<sale><item sku='p{number}'><units>{units}</units></item></sale>".encode()


CITY = {"expression": "//sale/item[units > 3]/local:city", "returns": ["local", "value"]}
"""Where an item lies that sells well."""


class Threaded:
    """A service in a thread; `url` is where it listens."""

    def __init__(self, *overrides: str, environ: Mapping[str, str] | None = None) -> None:
        said = ("server.port=0", "engine.workers=1", "log.sync=false", *overrides)
        self._settings = load(None, {}, said)
        self._environ = environ or {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main)
        self._error: BaseException | None = None
        self.url = ""
        self.service: Service

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # The test raises it.
            self._error = error
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await run(self._settings, self._environ, started=self._started, stop=self._stop)

    def _started(self, service: Service, url: str) -> None:
        self.service, self.url = service, url
        self._ready.set()

    def __enter__(self) -> Threaded:
        self._thread.start()
        assert self._ready.wait(WAIT)
        if self._error is not None:
            raise self._error
        return self

    def do(self, asked: Coroutine[Any, Any, None]) -> None:
        """Have something done in the loop of the service."""
        asyncio.run_coroutine_threadsafe(asked, self._loop).result(WAIT)

    def stop(self) -> None:
        """Tell it to stop, and wait."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(WAIT)
        assert not self._thread.is_alive()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._error is not None:
            raise self._error

    @contextmanager
    def client(self, token: str | None = None) -> Iterator[httpx.Client]:
        """Somebody who asks."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=self.url, headers=headers, timeout=WAIT) as client:
            yield client


class Served:
    """`fmware serve` as a process."""

    def __init__(self, index: Path, state: Path, *overrides: str) -> None:
        said = ("server.port=0", "engine.workers=1", f"state={state}", *overrides)
        options = [part for each in said for part in ("--set", each)]
        environ = {key: value for key, value in os.environ.items() if "FMWARE" not in key}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fmware", "serve", str(index), *options],
            cwd=ROOT,
            env=environ,
            stderr=subprocess.PIPE,
        )
        self.lines: list[dict[str, Any]] = []
        self._listening = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": line.decode()})
            if self.lines[-1].get("event") == "listening":
                self._listening.set()
        self._listening.set()

    @property
    def url(self) -> str:
        assert self._listening.wait(WAIT)
        found = [line["url"] for line in self.lines if line.get("event") == "listening"]
        assert found, self.lines
        return str(found[0])

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the process; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(WAIT)
        self._reading.join(WAIT)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)


def events_of(response: httpx.Response, count: int) -> list[dict[str, Any]]:
    """The first so many matches of an event stream."""
    found: list[dict[str, Any]] = []
    for line in response.iter_lines():
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == count:
                break
    return found
