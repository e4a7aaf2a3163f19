"""Webhooks: who may be called, how requests are signed, and that no match is lost or skipped.

Receivers are real servers on this machine, and the log is the real one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service.addresses import AddressRefused, GuardedTransport, Policy, look_up
from fmware.service.envelope import Hit
from fmware.service.log import MatchLog
from fmware.service.positions import Positions
from fmware.service.settings import SettingsError, Target, WebhookSettings
from fmware.service.signature import SIGNATURE, sign, verify
from fmware.service.webhooks import DELIVERY, Webhooks
from tests.service.running import CITY, Threaded, make_index, sale

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

ANYTHING = Policy(https_only=False, ports=frozenset(range(1, 65_536)))
LOCAL = replace(ANYTHING, allow=(ip_network("127.0.0.0/8"),))
SECRET = "a long random secret"
ENVIRON = {"SECRET": SECRET, "OLD": "the one before"}


# --- who may be called ----------------------------------------------------------------------

HOSTILE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8400/v1/statements",
    "http://127.8.8.8/",
    "http://localhost/",
    "http://localhost./",
    "http://LOCALHOST:80/",
    "http://0.0.0.0/",
    "http://0/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.0.0.1./",
    "http://①②⑦.⓪.⓪.①/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://[2001:db8::1]/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1:80@example.com/",
    "http://user:password@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1#@example.com/",
    "http://127.0.0.1?@example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "ftp://example.com/",
    "//example.com/",
    "http:///etc/passwd",
    "http://exa mple.com/",
    "http://example.com\r\nHost: localhost/",
    "example.com",
    "",
]
"""URLs that must not be called; where a name is resolved, it is as the system does it."""


def answered(status: int = 204) -> Callable[[Request], tuple[int, dict[str, str]]]:
    return lambda _: (status, {})


def called(url: str, policy: Policy, names: dict[str, list[str]] | None = None) -> httpx.Response:
    """Call a URL through the guard; names resolve as they are told."""

    async def look_up(host: str, port: int) -> Sequence[str]:
        if names is not None:
            return names.get(host, [])
        found = await asyncio.get_running_loop().getaddrinfo(host, port)
        return [str(each[4][0]) for each in found]

    async def run() -> httpx.Response:
        transport = GuardedTransport(policy, look_up=look_up)
        async with httpx.AsyncClient(transport=transport, trust_env=False) as client:
            return await client.get(url)

    return asyncio.run(run())


@pytest.mark.parametrize("url", HOSTILE)
def test_hostile_addresses_are_refused(url: str) -> None:
    with pytest.raises((AddressRefused, httpx.InvalidURL, httpx.UnsupportedProtocol)):
        called(url, ANYTHING)


def test_a_name_is_judged_by_all_its_addresses() -> None:
    for found in (["93.184.215.14", "10.0.0.1"], ["10.0.0.1", "93.184.215.14"], ["::1"]):
        with pytest.raises(AddressRefused, match=r"example\.com is .* not a public address"):
            called("http://example.com/", ANYTHING, {"example.com": found})


def test_ports_and_schemes_are_those_of_the_policy() -> None:
    policy = Policy()
    assert policy.check_url("https://example.com/x").port is None
    assert policy.check_url("https://example.com:8443/x").port == 8443
    for url in ("http://example.com/", "https://example.com:22/", "https://example.com:6379/"):
        with pytest.raises(AddressRefused, match=r"webhooks\."):
            policy.check_url(url)


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "64:ff9b::808:808"]
)
def test_public_addresses_pass(text: str) -> None:
    assert Policy().check_address(text, "example.com") == ip_address(text)


def test_what_is_allowed_passes_and_nothing_beside_it() -> None:
    policy = Policy(allow=(ip_network("10.1.0.0/16"),))
    for text in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"):
        assert policy.check_address(text, "inside") == ip_address(text)
    for text in ("10.2.0.1", "127.0.0.1", "::ffff:10.2.0.1"):
        with pytest.raises(AddressRefused):
            policy.check_address(text, "inside")


@given(st.ip_addresses())
def test_what_passes_is_public_as_the_standard_library_sees_it(address: Any) -> None:
    try:
        passed = Policy().check_address(str(address), "example.com")
    except AddressRefused:
        return
    assert passed == address
    assert address.is_global or address in ip_network("64:ff9b::/96")
    assert not address.is_multicast


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A name that is public when it is checked and private a moment later changes nothing."""

    async def run() -> list[str]:
        seen: list[str] = []

        async def look_up(host: str, port: int) -> Sequence[str]:
            seen.append(host)
            return ["127.0.0.1"] if len(seen) == 1 else ["10.0.0.1"]

        async with receiver(answered()) as server:
            transport = GuardedTransport(LOCAL, look_up=look_up)
            async with httpx.AsyncClient(transport=transport) as client:
                first = await client.get(f"http://rebind.example.com:{server.port}/")
                assert first.status_code == 204
                with pytest.raises(AddressRefused):
                    await client.get(f"http://rebind.example.com:{server.port}/")
            assert server.seen[0].headers["host"] == f"rebind.example.com:{server.port}"
        return seen

    # Once for each request: nobody asks again between the check and the connection.
    assert asyncio.run(run()) == ["rebind.example.com"] * 2


def test_redirects_are_not_followed(tmp_path: Path) -> None:
    async def run() -> None:
        async with receiver(answered()) as inner:
            away = f"http://127.0.0.1:{inner.port}/"
            async with (
                receiver(lambda _: (302, {"Location": away})) as outer,
                running(tmp_path, outer, tries=1) as (log, hooks),
            ):
                await log.write([hit(1)])
                await until(lambda: hooks.states["crm"].dead == 1)
                assert "redirects are not followed" in hooks.states["crm"].trouble
            assert not inner.seen

    asyncio.run(run())


def test_tls_shows_and_checks_the_name_not_the_address(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not there")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    asked = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    name = ["-subj", "/CN=hooks", "-addext", "subjectAltName=DNS:hooks.example.com"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *asked.split(), *name, *files], check=True, capture_output=True)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate, key)
    shown: list[str | None] = []
    served.sni_callback = lambda _socket, name, _context: shown.append(name)
    trusted = ssl.create_default_context(cafile=str(certificate))

    async def look_up(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def run() -> None:
        async with receiver(answered(), served) as server:
            transport = GuardedTransport(LOCAL, look_up=look_up, verify=trusted)
            async with httpx.AsyncClient(transport=transport) as client:
                answer = await client.get(f"https://hooks.example.com:{server.port}/")
                assert answer.status_code == 204
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
                    await client.get(f"https://other.example.com:{server.port}/")

    asyncio.run(run())
    assert shown == ["hooks.example.com", "other.example.com"]


# --- signatures -----------------------------------------------------------------------------


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=40), st.binary(min_size=1))
def test_a_signature_holds_for_its_secret_body_and_time(
    body: bytes, secret: bytes, other: bytes
) -> None:
    header = sign([secret], body, 1000)
    assert verify(secret, header, body, now=1000 + 299)
    assert not verify(secret, header, body, now=1000 + 301)
    assert not verify(secret, header, body, now=1000 - 301)
    assert not verify(secret, header, body + b" ", now=1000)
    assert not verify(secret, header.replace("t=1000", "t=1001"), body, now=1000)
    # HMAC fills short keys up with zeros: such keys are the same one.
    if other.rstrip(b"\0") != secret.rstrip(b"\0"):
        assert not verify(other, header, body, now=1000)


def test_while_a_secret_is_replaced_both_are_good() -> None:
    header = sign([b"new", b"old"], b"body", 1000)
    assert header.count("v1=") == 2
    assert all(verify(secret, header, b"body", now=1000) for secret in (b"new", b"old"))
    assert not verify(b"older", header, b"body", now=1000)


@pytest.mark.parametrize(
    "header", ["", "t=", "v1=00", "t=x,v1=00", "t=1,t=1000,v1=00", "t=1000", "é"]
)
def test_odd_headers_are_no_signatures(header: str) -> None:
    assert not verify(b"secret", header, b"body", now=1000)


# --- sending --------------------------------------------------------------------------------


@dataclass
class Request:
    """What a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def messages(self) -> list[str]:
        return [each["message"] for each in json.loads(self.body)["matches"]]


@dataclass
class Receiver:
    """A server of somebody else."""

    port: int = 0
    seen: list[Request] = field(default_factory=list)


@asynccontextmanager
async def receiver(
    answer: Callable[[Request], tuple[int, dict[str, str]]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    made = Receiver()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {
                    key.lower(): value for key, _, value in (line.partition(": ") for line in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                made.seen.append(Request(first.split()[1], headers, body))
                status, more = answer(made.seen[-1])
                said = "".join(f"{key}: {value}\r\n" for key, value in more.items())
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{said}\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def hit(number: int, statement: str = "bulk", tenant: str = "default") -> Hit:
    return Hit(f"{tenant}:{number}:{statement}", str(number), tenant, statement, {"n": number})


@asynccontextmanager
async def running(
    place: Path,
    server: Receiver,
    *,
    statements: tuple[str, ...] = (),
    old: bool = False,
    told: list[tuple[str, dict[str, Any]]] | None = None,
    host: str = "127.0.0.1",
    names: Callable[[str, int], Coroutine[Any, Any, Sequence[str]]] = look_up,
    **more: Any,
) -> AsyncIterator[tuple[MatchLog, Webhooks]]:
    """A log, and webhooks that send from it to a receiver."""
    target = Target(
        name="crm",
        url=f"http://{host}:{server.port}/hook",
        statements=statements,
        secret_env="SECRET",
        old_secret_env="OLD" if old else None,
    )
    about = {"first_seconds": 0.001, "longest_seconds": 0.01, "timeout_seconds": 5.0} | more
    settings = WebhookSettings(
        https_only=False,
        ports=(server.port,),
        allow=("127.0.0.0/8",),
        targets=(target,),
        **about,
    )
    log = MatchLog(place / "log", sync=False)
    await log.open()
    events = [] if told is None else told
    hooks = Webhooks(
        settings,
        log,
        place / "webhooks.db",
        ENVIRON,
        told=lambda event, what: events.append((event, what)),
        transport=lambda policy: GuardedTransport(policy, look_up=names),
    )
    await hooks.start()
    try:
        yield log, hooks
    finally:
        await hooks.stop()
        await log.close()


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.002)


def run(made: Coroutine[Any, Any, None]) -> None:
    asyncio.run(made)


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
            assert hooks.snapshot()["crm"]["behind"] == 0

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
            assert hooks.snapshot()["crm"]["dead"] == 1
        assert [event for event, _ in told] == ["webhook_failed", "webhook_dead"]

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

    async def check() -> None:
        address = "127.0.0.1"

        async def moving(host: str, port: int) -> Sequence[str]:
            return [address]

        async with (
            receiver(answered()) as server,
            running(tmp_path, server, tries=2, host="crm.example.com", names=moving) as made,
        ):
            log, hooks = made
            await log.write([hit(1)])
            await until(lambda: hooks.states["crm"].delivered == 1)
            address = "169.254.169.254"
            await log.write([hit(2)])
            await until(lambda: hooks.states["crm"].dead == 1)
            assert "crm.example.com is 169.254.169.254" in hooks.states["crm"].trouble
            assert len(server.seen) == 1

    run(check())


def test_pauses_double_and_are_half_left_to_chance(tmp_path: Path) -> None:
    settings = WebhookSettings(first_seconds=1.0, longest_seconds=60.0)
    hooks = Webhooks(settings, MatchLog(tmp_path), tmp_path, {})
    for tries in range(1, 200):
        whole = min(60.0, 2.0 ** (tries - 1))
        assert whole / 2 <= hooks.pause(tries) <= whole
    assert len({hooks.pause(3) for _ in range(20)}) > 1


def test_what_the_log_has_dropped_is_counted(tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    async def check() -> None:
        kept = Positions(tmp_path / "webhooks.db")
        kept.move("crm", 0)
        kept.close()
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
        assert told == [("webhook_lost", {"target": "crm", "positions": gone})]

    run(check())


def test_what_was_given_up_is_bounded(tmp_path: Path) -> None:
    kept = Positions(tmp_path / "w.db", most=3)
    for number in range(10):
        kept.give_up("crm", number, f"crm:{number}", 1, "no", b"{}")
    assert [each["delivery"] for each in kept.dead()] == ["crm:7", "crm:8", "crm:9"]
    assert kept.dead("other") == []
    assert kept.get("crm") == 9
    kept.close()


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
