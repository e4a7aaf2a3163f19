"""Webhooks: requests come signed and in order, and no match is lost or skipped.

Receivers are real servers on this machine, and the log is the real one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fmware.service.database import Database
from fmware.service.log import MatchLog
from fmware.service.positions import SCHEMA, Positions
from fmware.service.sender import pause
from fmware.service.settings import SettingsError, Target, WebhookSettings
from fmware.service.shelf import Bound
from fmware.service.signature import SIGNATURE, verify
from fmware.service.webhooks import DELIVERY, Webhooks
from tests.service.receivers import (
    ENVIRON,
    SECRET,
    Receiver,
    answered,
    hit,
    receiver,
    run,
    running,
    until,
)
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def test_matches_come_signed_in_order_and_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            receiver(answered()) as server,
            running(tmp_path, server, batch=7, old=True) as (log, hooks),
        ):
            for begin in range(0, 40, 4):
                await log.write([hit(number) for number in range(begin, begin + 4)])
            await until(lambda: hooks.states["crm"].delivered == 40)
            got = [name for request in server.seen for name in request.messages]
            assert got == [str(number) for number in range(40)]
            for request in server.seen:
                assert len(request.messages) <= 7
                assert request.path == "/hook"
                assert request.headers["content-type"] == "application/json"
                header = request.headers[SIGNATURE.lower()]
                assert all(verify(each.encode(), header, request.body) for each in ENVIRON.values())
            deliveries = [request.headers[DELIVERY.lower()] for request in server.seen]
            assert len(set(deliveries)) == len(deliveries)
            first = json.loads(server.seen[0].body)
            assert (first["target"], first["tenant"]) == ("crm", "default")
            assert first["matches"][0] == {"position": 1} | hit(0).to_json()
            assert hooks.get("default", "crm").snapshot()["behind"] == 0

    run(check())


def test_a_target_gets_only_its_statements_and_its_tenants(tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            receiver(answered()) as server,
            running(tmp_path, server, statements=("bulk", "rare")) as (log, hooks),
        ):
            await log.write([hit(1, "bulk", "stranger"), hit(2, "other"), hit(3, "rare"), hit(4)])
            await until(lambda: hooks.states["crm"].delivered == 2)
            assert [each for request in server.seen for each in request.messages] == ["3", "4"]

    run(check())


def test_a_request_that_fails_is_sent_again_until_it_is_taken(tmp_path: Path) -> None:
    async def check() -> None:
        answers = iter([(500, {}), (503, {"Retry-After": "0"}), (429, {}), (404, {}), (200, {})])
        async with (
            receiver(lambda _: next(answers)) as server,
            running(tmp_path, server) as (log, hooks),
        ):
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].delivered == 1)
            assert [request.messages for request in server.seen] == [["1"]] * 5
            # Whoever got it already can tell.
            assert len({request.headers[DELIVERY.lower()] for request in server.seen}) == 1
            assert hooks.states["crm"].failures == 4

    run(check())


def test_what_nobody_takes_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        async with (
            receiver(lambda request: (500 if "1" in request.messages else 200, {})) as server,
            running(tmp_path, server, batch=1, tries=3, told=told) as (log, hooks),
        ):
            await log.write([hit(1), hit(2)])
            await until(lambda: hooks.states["crm"].delivered == 1)
            assert [request.messages for request in server.seen] == [["1"]] * 3 + [["2"]]
            (dead,) = hooks.positions.dead("crm")
            assert dead["tries"] == 3
            assert "500" in dead["reason"]
            assert json.loads(dead["body"])["matches"][0]["message"] == "1"
            assert hooks.states["crm"].dead == 1
        assert [event for event, _ in told] == ["webhook_failed", "webhook_dead"]

    run(check())


def test_what_was_given_up_stays_with_its_tenant(tmp_path: Path) -> None:
    """An operator may give a target another tenant: what it did not take was not that one's."""

    async def check(server: Receiver, number: int, tenant: str, found: int) -> None:
        async with running(tmp_path, server, tenant=tenant) as (log, hooks):
            await log.write([hit(number, tenant=tenant)])
            await until(lambda: hooks.states["crm"].dead == 1)
            dead = await hooks.dead(tenant, "crm", 0, 10)
            assert {json.loads(each["body"])["tenant"] for each in dead} == {tenant}
            assert len(dead) == found
            assert await hooks.dead(tenant, "crm", dead[-1]["number"] - 1, 10) == dead[-1:]

    async def changes() -> None:
        async with receiver(answered(410)) as server:
            await check(server, 1, "ann", 1)
            await check(server, 2, "bob", 1)
            await check(server, 3, "ann", 2)

    run(changes())


def test_a_receiver_says_when_to_come_again(tmp_path: Path) -> None:
    """In seconds or by a date; never later than the longest pause."""
    later = formatdate(time.time() + 5000, usegmt=True)

    async def check() -> None:
        for number, said in enumerate(("4000", later, "9" * 5000, "soon", "-5")):
            async with (
                receiver(answered(503, {"Retry-After": said})) as server,
                running(tmp_path / str(number), server, longest_seconds=3000.0) as (log, hooks),
            ):
                await log.write([hit(1)])
                await until(lambda: hooks.states["crm"].retry_at is not None)
                wait = (hooks.states["crm"].retry_at or 0.0) - time.time()
                if said in ("soon", "-5"):
                    assert wait < 1
                else:
                    assert 2900 < wait <= 3000

    run(check())


def test_gone_is_taken_at_its_word(tmp_path: Path) -> None:
    async def check() -> None:
        async with (
            receiver(answered(410)) as server,
            running(tmp_path, server) as (log, hooks),
        ):
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].dead == 1)
            assert len(server.seen) == 1

    run(check())


def test_nothing_is_lost_over_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        working = False
        async with receiver(lambda _: (200 if working else 503, {})) as server:
            async with running(tmp_path, server, tries=1000, batch=3) as (log, hooks):
                await log.write([hit(number) for number in range(5)])
                await until(lambda: hooks.states["crm"].failures > 2)
            working = True
            failed = len(server.seen)
            async with running(tmp_path, server, batch=3) as (log, hooks):
                await log.write([hit(number) for number in range(5, 8)])
                await until(lambda: hooks.states["crm"].delivered == 8)
            got = [each for request in server.seen[failed:] for each in request.messages]
            assert got == [str(number) for number in range(8)]

    run(check())


def test_a_receiver_that_never_answers_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    async def check() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with running(tmp_path, Receiver(port), timeout_seconds=0.05) as (log, hooks):
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].failures > 1)
            assert "no answer" in hooks.states["crm"].trouble
        server.close()

    run(check())


def test_a_status_counts_also_if_the_answer_never_ends(tmp_path: Path) -> None:
    """Neither with a body without end, nor with one that breaks off."""

    async def check(said: bytes, *, ends: bool) -> None:
        asked = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            while await reader.read(65536):
                asked += 1
                writer.write(said)
                if ends:
                    break
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        place = tmp_path / str(len(said))
        async with running(place, Receiver(port), timeout_seconds=0.3, tries=3) as (log, hooks):
            await log.write([hit(1)])
            state = hooks.states["crm"]
            await until(lambda: state.delivered + state.dead > 0)
            assert (state.delivered, state.requests, state.trouble) == (1, 1, "")
            assert asked == 1
        server.close()

    run(check(b"HTTP/1.1 200 OK\r\n\r\n", ends=False))
    run(check(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", ends=False))
    run(check(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nabc", ends=True))


def test_cookies_of_a_receiver_are_not_kept(tmp_path: Path) -> None:
    """They would be sent with every request, until a request is too large for anybody."""

    async def check() -> None:
        cookie = {"Set-Cookie": "a=1; Max-Age=9999; Path=/"}
        async with (
            receiver(answered(200, cookie)) as server,
            running(tmp_path, server, batch=1) as (log, hooks),
        ):
            await log.write([hit(number) for number in range(3)])
            await until(lambda: hooks.states["crm"].delivered == 3)
            assert len(server.seen) == 3
            assert not any("cookie" in request.headers for request in server.seen)

    run(check())


def test_one_slow_target_holds_up_no_other(tmp_path: Path) -> None:
    async def check() -> None:
        async with receiver(answered(500)) as bad, receiver(answered()) as good:
            targets = tuple(
                Target(name=name, url=f"http://127.0.0.1:{server.port}/", secret_env="SECRET")
                for name, server in (("bad", bad), ("good", good))
            )
            settings = WebhookSettings(
                https_only=False,
                ports=(bad.port, good.port),
                allow=("127.0.0.1/32",),
                first_seconds=60.0,
                targets=targets,
            )
            log = MatchLog(tmp_path / "log", sync=False)
            await log.open()
            hooks = Webhooks(settings, log, tmp_path / "w.db", ENVIRON)
            await hooks.start()
            for number in range(5):
                await log.write([hit(number)])
                await until(lambda: hooks.states["good"].position == log.last)
            assert hooks.states["good"].delivered == 5
            assert hooks.states["bad"].delivered == 0
            assert len(bad.seen) == 1
            await hooks.stop()
            await log.close()

    run(check())


def test_a_private_address_is_refused_while_sending_too(tmp_path: Path) -> None:
    """What a name resolves to may change long after the configuration was read."""
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        address = "127.0.0.1"

        async def moving(host: str, port: int) -> Sequence[str]:
            return [address]

        async with (
            receiver(answered()) as server,
            running(tmp_path, server, tries=2, host="crm.example.com", names=moving, told=told) as (
                log,
                hooks,
            ),
        ):
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].delivered == 1)
            address = "169.254.169.254"
            await log.write([hit(2)])
            await until(lambda: hooks.states["crm"].dead == 1)
            # A tenant learns neither which addresses there are inside nor where the operator's
            # own webhooks go; the log says both.
            assert hooks.states["crm"].trouble == "no public address"
            (dead,) = await hooks.dead("default", "crm", 0, 10)
            assert dead["reason"] == "no public address"
            assert "crm.example.com" in told[0][1]["reason"]
            assert "169.254.169.254" in told[0][1]["reason"]
            assert len(server.seen) == 1

    run(check())


def test_pauses_double_and_are_half_left_to_chance() -> None:
    settings = WebhookSettings(first_seconds=1.0, longest_seconds=60.0)
    for tries in range(1, 200):
        whole = min(60.0, 2.0 ** (tries - 1))
        assert whole / 2 <= pause(settings, tries) <= whole
    assert len({pause(settings, 3) for _ in range(20)}) > 1


def test_what_the_log_has_dropped_is_counted(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        database = Database(tmp_path / "webhooks.db", SCHEMA)
        Positions(database).move("crm", 0)
        database.close()
        log = MatchLog(tmp_path / "log", sync=False, size=2000, segment=500)
        await log.open()
        for number in range(100):
            await log.write([hit(number)])
        gone = log.first - 1
        assert gone > 0
        await log.close()
        async with (
            receiver(answered()) as server,
            running(tmp_path, server, told=told) as (log, hooks),
        ):
            await until(lambda: hooks.states["crm"].position == log.last)
            assert hooks.states["crm"].lost == gone
            assert hooks.states["crm"].delivered == 100 - gone
        about = {"target": "crm", "tenant": "default", "positions": gone}
        assert told == [("webhook_lost", about)]

    run(check())


def test_what_was_given_up_is_bounded(tmp_path: Path) -> None:
    database = Database(tmp_path / "w.db", SCHEMA)
    kept = Positions(database, Bound(3, 1 << 20))
    for number in range(10):
        kept.give_up("crm", number, f"crm:{number}", 1, "no", b"{}")
    assert [each["delivery"] for each in kept.dead()] == ["crm:7", "crm:8", "crm:9"]
    assert kept.dead("other") == []
    assert kept.get("crm") == 9
    # Whoever has the most makes room: one that always fails pushes nobody else out.
    kept.give_up("quiet", 1, "quiet:1", 1, "no", b"{}")
    for number in range(10, 20):
        kept.give_up("crm", number, f"crm:{number}", 1, "no", b"{}")
    assert [each["delivery"] for each in kept.dead()] == ["quiet:1", "crm:18", "crm:19"]
    database.close()


@pytest.mark.parametrize(
    ("url", "environ", "words"),
    [
        ("https://example.com/", {}, "SECRET has no value"),
        ("http://example.com/", ENVIRON, "https"),
        ("https://me:pw@example.com/", ENVIRON, "password in the URL"),
    ],
)
def test_a_target_that_cannot_work_is_told_at_the_start(
    tmp_path: Path, url: str, environ: dict[str, str], words: str
) -> None:
    target = Target(name="crm", url=url, secret_env="SECRET")
    with pytest.raises(SettingsError, match=words) as caught:
        Webhooks(WebhookSettings(targets=(target,)), MatchLog(tmp_path), tmp_path, environ)
    assert "webhooks.targets.crm" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_service_tells_a_receiver_of_its_matches(tmp_path: Path) -> None:
    """From a message over HTTP to a signed request, with everything between as it is."""
    index = make_index(tmp_path)
    held: list[tuple[str, bytes]] = []
    got = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            held.append((self.headers[SIGNATURE], body))
            self.send_response(204)
            self.end_headers()
            got.set()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_port
        hooks = (
            f"webhooks={{https_only=false, ports=[{port}], allow=['127.0.0.0/8'], targets="
            f"[{{name='crm', url='http://localhost:{port}/', secret_env='SECRET'}}]}}"
        )
        said = (f"index={index}", f"state={tmp_path}/state", hooks)
        with Threaded(*said, environ=ENVIRON) as service, service.client() as client:
            client.put("/v1/statements/city", json=CITY).raise_for_status()
            client.post("/v1/messages", content=sale(8))
            assert got.wait(20)
            for _ in range(1200):
                told = client.get("/v1/stats").json()["webhooks"]["crm"]
                if told["delivered"]:
                    break
                time.sleep(0.05)
            assert (told["delivered"], told["behind"]) == (1, 0)
        server.shutdown()
    (signature, body) = held[0]
    assert verify(SECRET.encode(), signature, body)
    assert json.loads(body)["matches"][0]["local"]["value"] == "C1"
