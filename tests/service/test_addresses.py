"""Which servers may be called: hostile addresses, names that move, redirects, certificates."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service.addresses import AddressRefused, GuardedTransport, Policy, Share, look_up
from tests.service.receivers import answered, hit, receiver, running, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ANYTHING = Policy(https_only=False, ports=frozenset(range(1, 65_536)))
LOCAL = replace(ANYTHING, allow=(ip_network("127.0.0.0/8"),))

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


def test_names_in_other_letters_are_looked_up_in_ascii() -> None:
    asked = {"xn--bcher-kva.example": ["10.0.0.1"]}
    for url in ("http://b\u00fccher.example/", "http://xn--bcher-kva.example/"):
        with pytest.raises(AddressRefused, match=r"xn--bcher-kva\.example: 10\.0\.0\.1"):
            called(url, ANYTHING, asked)


def test_a_name_is_judged_by_all_its_addresses() -> None:
    for found in (["93.184.215.14", "10.0.0.1"], ["10.0.0.1", "93.184.215.14"], ["::1"]):
        with pytest.raises(AddressRefused, match=r"example\.com: .* is not public"):
            called("http://example.com/", ANYTHING, {"example.com": found})


def test_ports_and_schemes_are_those_of_the_policy() -> None:
    policy = Policy()
    assert policy.check_url("https://example.com/x").port is None
    assert policy.check_url("https://example.com:8443/x").port == 8443
    closed = ("http://example.com/", *(f"https://example.com:{port}/" for port in (0, 22, 6379)))
    for url in closed:
        with pytest.raises(AddressRefused, match=r"webhooks\."):
            policy.check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hush",
        "gopher://example.com/hush",
        "gopher:hush",
        "example.com/hush",
        "https://example.com:22/hush",
        "https://me:hush@example.com/hush",
        "https://exam!ple.com/hush",
        "https://0x7f000001/hush",
    ],
)
def test_a_refusal_names_the_host_and_not_the_path(url: str) -> None:
    """A path may be a secret of its own, and what is refused gets into logs."""
    with pytest.raises(AddressRefused) as refused:
        Policy().check_url(url)
    assert "hush" not in str(refused.value)
    assert not str(refused.value).startswith(":")


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


def test_name_servers_that_are_slow_hold_up_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may name a server whose name server never answers: threads must not run out."""
    answered = threading.Event()

    def slow(*_: Any, **__: Any) -> list[Any]:
        answered.wait(60)
        return []

    async def run() -> None:
        asked = [asyncio.ensure_future(look_up(f"slow{n}.example", 443)) for n in range(100)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(lambda: "done") == "done"
        answered.set()
        assert await asyncio.gather(*asked) == [[]] * 100

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    asyncio.run(run())


def test_nobody_has_more_than_a_share_of_the_look_ups() -> None:
    """A look-up has its thread until it ends, also if nobody waits for it any more."""

    async def run() -> None:
        begun: list[str] = []
        ended = asyncio.Event()

        async def slow(host: str, port: int) -> Sequence[str]:
            begun.append(host)
            await ended.wait()
            if host == "b":
                raise OSError("no such name")
            return [host]

        share = Share(slow, 2)
        for host in "abcd":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await share(host, 443)
        assert begun == ["a", "b"]
        ended.set()
        assert await share("e", 443) == ["e"]
        with pytest.raises(OSError, match="no such name"):
            await share("b", 443)

    asyncio.run(run())


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
