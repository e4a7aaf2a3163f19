"""The log of the service: its shape, its levels, and what must never be in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest
import structlog
from websockets.sync.client import connect

from fmware.service.logging import configure, logger
from fmware.service.webhooks import Webhooks
from tests.service.receivers import Receiver, answered, hit, receiver, run, running, until
from tests.service.running import CITY, ROOT, WAIT, Served, make_index, sale

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

HIDDEN = (
    "hidden-path",
    "hidden-query",
    "hidden-secret-of-a-webhook",
    "hidden-answer",
    "hidden-name",
)
XML = {"content-type": "application/xml"}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What `configure` does is done to the process: undo it."""
    names = ["", *logging.root.manager.loggerDict]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers, config = logging.root.handlers, structlog.get_config()
    yield
    logging.root.handlers = handlers
    structlog.configure(**config)
    for name in ["", *logging.root.manager.loggerDict]:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


# --- its shape ----------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], form: Literal["json", "text"]) -> list[str]:
    """Lines for what the service says, what a library says, and what goes wrong."""
    configure("info", form)
    with structlog.contextvars.bound_contextvars(request="r7"):
        logger("http").info("listening", url="http://here", workers=2)
        logger("http").debug("not at this level")
        logging.getLogger("fmware.service").info("sink %s fails: %s", "out", "no\n\x1b[2Jroom")
        logging.getLogger("uvicorn.error").info("a library, below a warning")
        try:
            raise OSError("no such thing")
        except OSError:
            logger("http").exception("request failed", path="/v1/x")
    return capsys.readouterr().err.splitlines()


def test_json_is_an_object_a_line_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    listens, fails, failed = map(json.loads, said(capsys, "json"))
    assert listens.pop("timestamp").endswith("Z")
    about = {"event": "listening", "level": "info", "part": "http", "request": "r7"}
    assert listens == about | {"url": "http://here", "workers": 2}
    assert fails["event"] == "sink out fails: no\n\x1b[2Jroom"
    assert (fails["level"], fails["logger"]) == ("info", "fmware.service")
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("OSError: no such thing")


def test_text_is_for_people_and_nothing_looks_like_a_line_that_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listens, fails, failed, *trace = said(capsys, "text")
    assert re.fullmatch(
        r"\S+Z \[info +\] listening +part=http request=r7 url=http://here workers=2", listens
    )
    assert r"sink out fails: no\n\x1b[2Jroom" in fails
    assert "\x1b" not in fails, "no colours, and none of others, where there is no terminal"
    assert "path=/v1/x" in failed
    assert (trace[0], trace[-1]) == (
        "Traceback (most recent call last):",
        "OSError: no such thing",
    )


@pytest.mark.parametrize("looks_on", [True, False])
def test_text_is_for_terminals_unless_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, looks_on: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: looks_on)
    configure()
    logger("http").info("listening")
    line = capsys.readouterr().err
    assert line.startswith("{") != looks_on
    assert "listening" in line


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_service_logs_as_it_is_told(tmp_path: Path, form: str) -> None:
    with Served(make_index(tmp_path), tmp_path / "state", f"server.log_format={form}") as served:
        until_now(lambda: any("listening" in each["event"] for each in served.lines))
        assert served.end() == 0
    names = [each["event"] for each in served.lines]
    if form == "json":
        assert [*names[:1], *names[-2:]] == ["listening", "stopping", "stopped"]
    else:
        assert re.search(r"^\S+Z \[info +\] listening +.*url=http://127", names[0])
        assert re.search(r"\] stopped +part=server\n$", names[-1])


def given_up(client: httpx.Client) -> int:
    """Matches that webhooks did not take."""
    hooks = client.get("/v1/webhooks").json()["webhooks"]
    return sum(each["state"]["dead"] for each in hooks)


def until_now(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


class Leaking(io.StringIO):
    """A file on a disk that is full now and then."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError("no space left on device")
        return super().write(text)


def test_lines_that_cannot_be_written_stop_nothing_and_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = Leaking()
    monkeypatch.setattr(sys, "stderr", file)
    configure("info", "json")
    said = logger("http")
    said.info("one")
    file.full = True
    said.info("two")
    said.error("three")
    file.full = False
    said.info("four")
    said.info("five")
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    lost = "lines of the log were lost"
    assert [line["event"] for line in lines] == ["one", "four", lost, "five"]
    assert lines[2]["lines"] == 2


def test_a_service_goes_on_when_nobody_reads_its_log(tmp_path: Path) -> None:
    index, state = make_index(tmp_path), tmp_path / "state"
    said = ("server.port=0", "engine.workers=1", "server.log_level=debug", f"state={state}")
    options = [part for each in said for part in ("--set", each)]
    command = [sys.executable, "-m", "fmware", "serve", str(index), *options]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as serving:
        try:
            assert serving.stderr is not None
            lines = map(json.loads, serving.stderr)
            url = next(line["url"] for line in lines if line["event"] == "listening")
            serving.stderr.close()
            with httpx.Client(base_url=url, timeout=WAIT) as client:
                client.put("/v1/statements/city", json=CITY).raise_for_status()
                assert _posted(client, b"<bad")["status"] == 422
                for _ in range(3):
                    assert len(_posted(client, sale())["matches"]) == 1
        finally:
            serving.terminate()


def _posted(client: httpx.Client, body: bytes) -> dict[str, Any]:
    about: dict[str, Any] = client.post("/v1/messages", content=body, headers=XML).json()
    return about


# --- what must not be in it ---------------------------------------------------------------------


class Everything(logging.Handler):
    """All records that get anywhere, with whatever they hold."""

    def __init__(self) -> None:
        super().__init__(0)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.name} {record.getMessage()} {record.__dict__}")


@contextmanager
def listening() -> Iterator[Everything]:
    """Hear all loggers at the level DEBUG; those of the libraries, too."""
    configure("debug")
    heard = Everything()
    logging.root.addHandler(heard)
    logging.root.setLevel(logging.DEBUG)
    yield heard


@asynccontextmanager
async def answering(said: Callable[[bytes], bytes]) -> AsyncIterator[Receiver]:
    """A server that answers with any bytes, HTTP or not."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said(await reader.readuntil(b"\r\n\r\n")))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Receiver(server.sockets[0].getsockname()[1])
    finally:
        server.close()


def found_in(texts: list[str]) -> list[str]:
    return [text for text in texts if any(each in text for each in HIDDEN)]


REDIRECT = b"HTTP/1.1 302 hidden-answer\r\nLocation: /hidden-path/?key=hidden-query\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        lambda _: b"HTTP/1.1 204 hidden-answer\r\nX-Was: /hidden-path\r\n\r\n",
        lambda _: REDIRECT,
        lambda asked: asked,
        lambda asked: b"HTTP/1.1 200 OK\r\n" + asked.partition(b"\r\n")[0] + b"\r\n\r\n",
        lambda _: b"",
    ],
    ids=["taken", "redirected", "echoed", "echoed as a header", "hung up"],
)
def test_no_record_of_a_delivery_has_what_is_hidden_in_a_webhook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: Callable[[bytes], bytes]
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        async with (
            answering(said) as server,
            running(
                tmp_path,
                server,
                path="hidden-path?key=hidden-query",
                secret=HIDDEN[2],
                tries=2,
                told=told,
            ) as (log, hooks),
        ):
            await log.write([hit(1)])
            state = hooks.states["crm"]
            await until(lambda: state.delivered + state.dead == 1)
            await hooks.get("default", "crm").test()

    with listening() as heard:
        run(check())
        logger("webhooks").debug("this is heard")
    assert any("asyncio" in text for text in heard.texts)
    assert "this is heard" in (written := capsys.readouterr().err)
    assert found_in([*heard.texts, written, *map(str, told)]) == []


def test_no_record_of_one_that_cannot_be_reached_has_it(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            nobody = Receiver(taken.getsockname()[1])
        async with running(
            tmp_path, nobody, path="hidden-path?key=hidden-query", tries=1, told=told
        ) as (log, hooks):
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].dead == 1)

    with listening() as heard:
        run(check())
    assert "ConnectError" in told[0][1]["reason"]
    assert found_in([*heard.texts, *map(str, told)]) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://hidden-name:hidden-query@example.com/hidden-path",
        "https://example.com:hidden-query/hidden-path",
        "https://hidden-name:hidden-query",
        "https://example.com/hidden-path?\n",
        "ftp://example.com/hidden-path?hidden-query",
        "https://example.com:7/hidden-path?hidden-query",
        "http://example.com/hidden-path?hidden-query",
    ],
)
def test_a_url_that_is_refused_is_not_repeated(tmp_path: Path, url: str) -> None:
    from fmware.service.settings import SettingsError, Target, WebhookSettings

    settings = WebhookSettings(targets=(Target(name="crm", url=url, secret_env="S"),))
    with pytest.raises(SettingsError) as refused:
        Webhooks(settings, None, tmp_path / "w.db", {"S": HIDDEN[2]})  # type: ignore[arg-type]
    assert "webhooks.targets.crm.url" in str(refused.value)
    assert found_in([str(refused.value)]) == []


def test_a_service_at_debug_writes_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process itself: all that it writes, with tenants, WebSockets and webhooks of both."""
    monkeypatch.setenv("HIDDEN", HIDDEN[2])
    monkeypatch.setenv("TOKEN", "hidden-name-of-a-tenant")
    seen: list[str] = []

    async def receive(port: asyncio.Future[int], over: asyncio.Event) -> None:
        async with receiver(answered(302, {"Location": "/hidden-path"})) as server:
            port.set_result(server.port)
            await over.wait()
            seen.extend(each.path for each in server.seen)

    loop = asyncio.new_event_loop()
    over, port = asyncio.Event(), loop.create_future()
    thread = threading.Thread(target=lambda: loop.run_until_complete(receive(port, over)))
    thread.start()
    until_now(port.done)
    url = f"http://127.0.0.1:{port.result()}/hidden-path?key=hidden-query"
    own = f"{{name='own', url='{url}', secret_env='HIDDEN'}}"
    allow = "allow=['127.0.0.0/8'], allow_tenants=['127.0.0.0/8'], https_only=false"
    hooks = f"webhooks={{targets=[{own}], {allow}, ports=[{port.result()}], tries=1}}"
    tenants = "tenants=[{name='default', token_env='TOKEN'}]"
    said = ("server.log_level=debug", hooks, tenants)
    bearer = {"Authorization": "Bearer hidden-name-of-a-tenant"}
    with Served(make_index(tmp_path), tmp_path / "state", *said) as served:
        with httpx.Client(base_url=served.url, headers=bearer, timeout=WAIT) as client:
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            made = {"url": url + "&of=hidden-name", "secret": HIDDEN[2]}
            client.put("/v1/webhooks/theirs", json=made).raise_for_status()
            where = served.url.replace("http", "ws") + "/v1/matches/ws"
            with connect(where, additional_headers=bearer) as socket:
                client.post("/v1/messages", content=sale(), headers=XML).raise_for_status()
                assert json.loads(socket.recv(WAIT))["statement"] == "city"
            until_now(lambda: given_up(client) == 2)
        assert served.end() == 0
    loop.call_soon_threadsafe(over.set)
    thread.join(WAIT)
    loop.close()
    assert len(seen) == 2
    assert {"webhook_dead", "message matched", "request"} <= {
        each["event"] for each in served.lines
    }
    assert found_in([json.dumps(each) for each in served.lines]) == []
