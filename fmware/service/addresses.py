"""Which servers may be called: none inside the operator's own networks, however it is spelt.

A name is resolved once for each request, every address that it has is checked, and the connection
goes to a checked address itself: a name that points elsewhere a moment later changes nothing. TLS
still shows, and checks, the name. Redirects are not followed, proxies of the environment not used.

::

    FMwareError
    └── ServiceError
        └── AddressRefused         a URL that must not be called
            └── NoPublicAddress    what a name resolves to must not be called, or is not there
"""

from __future__ import annotations

import asyncio
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

import httpx

from fmware.service.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from ipaddress import IPv4Network, IPv6Network
    from ssl import SSLContext

    from fmware.service.tables import WebhookSettings

__all__ = [
    "AddressRefused",
    "GuardedTransport",
    "Lookup",
    "NoPublicAddress",
    "Policy",
    "Share",
    "host_of",
    "look_up",
    "look_up_for_tenants",
]

Address: TypeAlias = IPv4Address | IPv6Address
Lookup: TypeAlias = "Callable[[str, int], Awaitable[Sequence[str]]]"

PORTS: Final = {"http": 80, "https": 443}
CLOSED: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by customers of a carrier
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, with the metadata of clouds
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",  # documentation, as the next ones of three numbers
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # protocols of their own, Teredo among them
            "2001:db8::/32",
            "2002::/16",  # IPv4 within IPv6
            "3fff::/20",
        ),
    )
)
OPEN_IPV6: Final = ip_network("2000::/3")
"""All that is routed in the world; whatever lies outside is local or special."""
NAT64: Final = ip_network("64:ff9b::/96")
RESOLVERS: Final = {"operator": 8, "tenants": 32}
"""Names that are looked up at the same time, by who named them."""
SHARE: Final = 2
"""Those of one tenant."""
_HOST: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_NUMBER: Final = re.compile(r"(0[xX][0-9A-Fa-f]*|[0-9]+)")


class AddressRefused(ServiceError):
    """An address that must not be called; it says why, and what an operator may do."""


class NoPublicAddress(AddressRefused):
    """What a name resolves to must not be called, or it does not resolve.

    `told` is what may be told to whoever names it: not which addresses there are inside, and not
    even which names. Where others than that one may read it, not even `told` is said.
    """

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host}: {why}")
        self.told = f"{host} has no public address"


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be called: `allow` names networks that may be although they are private."""

    https_only: bool = True
    ports: frozenset[int] = frozenset({80, 443, 8080, 8443})
    allow: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, settings: WebhookSettings) -> Policy:
        """The policy of a configuration."""
        networks = tuple(map(ip_network, settings.allow))
        return cls(settings.https_only, frozenset(settings.ports), networks)

    @classmethod
    def of_tenants(cls, settings: WebhookSettings) -> Policy:
        """The policy for what is named over HTTP: what the operator's own may call, it may not."""
        networks = tuple(map(ip_network, settings.allow_tenants))
        return cls(settings.https_only, frozenset(settings.ports), networks)

    def check_url(self, text: str | httpx.URL) -> httpx.URL:
        """The URL, if one may look where it leads; what it resolves to is another matter."""
        try:
            url = httpx.URL(text)
        except httpx.InvalidURL as error:
            # Of what is wrong only the kind: it may quote a password, and this gets into logs.
            kind = re.split("[:,]", str(error))[0]
            raise AddressRefused(f"not a URL: {kind}") from None
        if url.scheme not in PORTS:
            raise _refused(url, f"{url.scheme or 'no scheme'}: use https")
        if url.scheme == "http" and self.https_only:
            raise _refused(url, "not encrypted: use https, or webhooks.https_only = false")
        if url.userinfo:
            raise _refused(url, "a name or password in the URL: leave it out")
        self._check_host(url)
        port = port_of(url)
        if port not in self.ports:
            raise _refused(url, f"port {port}: add it to webhooks.ports")
        return url

    def _check_host(self, url: httpx.URL) -> None:
        host = host_of(url)
        if _is_address(host):
            return
        if not _HOST.fullmatch(host):
            raise AddressRefused(f"{host!r} is not the name of a host")
        if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise _refused(url, "write addresses as four numbers, as 192.0.2.1")

    def check_address(self, text: str, host: str) -> Address:
        """The address, if it may be called."""
        address = ip_address(text.partition("%")[0])
        real = _real(address)
        if any(real in network for network in self.allow):
            return address
        closed = any(real in network for network in CLOSED)
        inside = isinstance(real, IPv6Address) and real not in OPEN_IPV6
        if closed or inside or not real.is_global:
            raise NoPublicAddress(host, f"{text} is not public; webhooks.allow may name it")
        return address

    async def resolve(self, url: httpx.URL, look_up: Lookup) -> list[Address]:
        """The addresses of a URL, in order; one that is refused refuses them all."""
        host = host_of(url).rstrip(".")
        if _is_address(host):
            return [self.check_address(host, host)]
        try:
            found = await look_up(host, port_of(url))
        except (OSError, UnicodeError) as error:
            raise NoPublicAddress(host, getattr(error, "strerror", None) or str(error)) from error
        if not found:
            raise NoPublicAddress(host, "it does not resolve")
        return [self.check_address(each, host) for each in found]


def host_of(url: httpx.URL) -> str:
    """The host of a URL as it is looked up and shown in TLS: names in ASCII."""
    return url.raw_host.decode("ascii")


def port_of(url: httpx.URL) -> int:
    """The port of a URL; 0 is one, and not the usual one."""
    return PORTS[url.scheme] if url.port is None else url.port


def _refused(url: httpx.URL, why: str) -> AddressRefused:
    # The host alone: a path may be a secret of its own, and this gets into logs.
    return AddressRefused(": ".join(filter(None, (host_of(url), why))))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return "%" not in host


def _real(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if it does: that is where packets go."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def look_up(host: str, port: int) -> Sequence[str]:
    """All addresses of a name, as the system knows it."""
    return await _look_up("operator", host, port)


async def look_up_for_tenants(host: str, port: int) -> Sequence[str]:
    """The same for a name that a tenant said; it keeps no thread from the operator's."""
    return await _look_up("tenants", host, port)


async def _look_up(whose: str, host: str, port: int) -> Sequence[str]:
    asked = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_resolvers(whose), asked)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


@cache
def _resolvers(whose: str) -> ThreadPoolExecutor:
    """Threads of their own: a name server that is slow on purpose holds up no other work."""
    return ThreadPoolExecutor(RESOLVERS[whose], f"resolver-{whose}")


class Share:
    """Look-ups of one tenant: so many at once, and the others wait."""

    def __init__(self, look_up: Lookup, most: int = SHARE) -> None:
        self._look_up = look_up
        self._gate = asyncio.Semaphore(most)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await self._gate.acquire()
        asked = asyncio.ensure_future(self._look_up(host, port))
        # A thread is busy until the name server answers, also if the caller has long gone.
        asked.add_done_callback(lambda _: self._gate.release())
        return await asyncio.shield(asked)


@cache
def _tls() -> SSLContext:
    """One for all: it holds all certificates that are trusted."""
    return httpx.create_ssl_context(trust_env=False)


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects to addresses that a policy has let pass, and to those alone."""

    def __init__(
        self, policy: Policy, *, look_up: Lookup = look_up, verify: SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._look_up = look_up
        self._verify = verify
        # Connections are kept by address: two names that share one must not share them, for a
        # certificate was checked for one of the two.
        self._ways: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = self._policy.check_url(request.url)
        host = host_of(url).rstrip(".")
        addresses = await self._policy.resolve(url, self._look_up)
        more = {} if _is_address(host) else {"sni_hostname": host}
        failure: httpx.ConnectError | httpx.ConnectTimeout | None = None
        for address in addresses:
            # The Host header is in place; only the way to it is replaced.
            asked = httpx.Request(
                request.method,
                url.copy_with(host=str(address)),
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions | more,
            )
            try:
                return await self._way(host).handle_async_request(asked)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        assert failure is not None, "there is an address, or it was refused"
        raise failure

    def _way(self, host: str) -> httpx.AsyncHTTPTransport:
        if host not in self._ways:
            limits = httpx.Limits(max_connections=4)
            self._ways[host] = httpx.AsyncHTTPTransport(
                verify=self._verify or _tls(), trust_env=False, limits=limits
            )
        return self._ways[host]

    async def aclose(self) -> None:
        for way in self._ways.values():
            await way.aclose()
