"""Tenants: who a token belongs to, and how much its owner may take.

Tokens are known by their SHA-256 and compared in constant time, with all that are known, so that
the time of an answer tells nothing of them. A tenant without a token is whoever sends none.
"""

from __future__ import annotations

import hmac
import math
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from fmware.service.envelope import DEFAULT
from fmware.service.layers import Problem as Wrong
from fmware.service.problems import Problem
from fmware.service.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fmware.service.settings import Settings, Tenant

__all__ = ["Account", "Bucket", "Tenants"]

TESTS: Final = 0.5
TESTS_AT_ONCE: Final = 10
"""Tests of webhooks a second, and at once."""

FRAMES: Final = 200.0
FRAMES_AT_ONCE: Final = 500
"""Frames that all WebSockets of a tenant may send in a second, and at once."""
FLOODS: Final = 1.0
FLOODS_AT_ONCE: Final = 10
"""WebSockets of a tenant a second, and at once, that may be closed for too many frames; with more
of them, others are not opened."""

STATEMENT: Final = 4096
"""Bytes of a statement, on average, that a tenant may have unless its quota says otherwise."""


class Bucket:
    """So much a second on average, and so much at once."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst or max(rate, 1.0)
        self._clock = clock
        self._left = self._burst
        self._at = clock()

    @property
    def bounded(self) -> bool:
        """Whether there is a bound at all."""
        return self._rate > 0

    def left(self) -> float:
        """What may be taken now; less than nothing if something is owed."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left

    def wait(self, count: float) -> float:
        """Seconds until so much may be taken; 0 if it may be now.

        What is more than fits at once is let through when the bucket is full, and owed.
        """
        if not self._rate:
            return 0.0
        return max(min(count, self._burst) - self.left(), 0.0) / self._rate

    def take(self, count: float) -> float:
        """Take so much; 0 if there was enough, else the seconds until there will be."""
        wait = self.wait(count)
        if self._rate and not wait:
            self._left -= count
        return wait


class Account:
    """A tenant at work: its limits, and what is left of them."""

    def __init__(self, tenant: Tenant, body_bytes: int) -> None:
        self.name = tenant.name
        self.statements = tenant.limits.statements
        self.statement_bytes = tenant.limits.statement_bytes or self.statements * STATEMENT
        self.webhooks = tenant.limits.webhooks
        self.streams = tenant.limits.streams
        self.body_bytes = tenant.limits.body_bytes or body_bytes
        self._tests = Bucket(TESTS, TESTS_AT_ONCE)
        self._frames = Bucket(FRAMES, FRAMES_AT_ONCE)
        self._floods = Bucket(FLOODS, FLOODS_AT_ONCE)
        limits = tenant.limits
        self._buckets = {
            "messages": Bucket(limits.rate, limits.burst),
            "bytes": Bucket(limits.byte_rate, limits.byte_burst),
        }
        self._bounded = any(each.bounded for each in self._buckets.values())

    def spend(self, messages: int, size: int) -> None:
        """Take messages, of so many bytes, out of the quota: all of it, or a `Problem`."""
        self._afford(messages=messages, bytes=size)
        self._buckets["messages"].take(messages)
        self._buckets["bytes"].take(size)

    def admit(self) -> None:
        """A `Problem` if not even the least can be taken: its body need not be read."""
        self._afford(messages=1, bytes=1)

    def test(self) -> None:
        """Take a test of a webhook out of the quota: each is a request to anybody's server."""
        if wait := self._tests.take(1):
            raise Problem(
                429,
                "too-many-tests",
                f"tenant {self.name} tests its webhooks too often",
                hint=f"try again in {wait:.1f} seconds",
                headers={"Retry-After": str(math.ceil(wait))},
            )

    def sends(self, frames: int) -> bool:
        """Take frames of a WebSocket out of the quota; whether there were enough."""
        return not self._frames.take(frames)

    def flooded(self) -> None:
        """Note that a WebSocket was closed for too many frames."""
        self._floods.take(1)

    def connects(self) -> None:
        """A `Problem` if too many WebSockets were closed lately for another one to be opened."""
        if wait := self._floods.wait(1):
            raise Problem(
                429,
                "too-many-frames",
                f"tenant {self.name} sends too many frames, and opens WebSockets again and again",
                hint="a reader of matches has nothing to send but pongs",
                headers={"Retry-After": str(math.ceil(wait))},
            )

    def left(self) -> dict[str, float]:
        """What is left of each quota that there is."""
        return {what: each.left() for what, each in self._buckets.items() if each.bounded}

    def _afford(self, **asked: int) -> None:
        if not self._bounded:
            return
        waits = {what: self._buckets[what].wait(count) for what, count in asked.items()}
        what = max(waits, key=waits.__getitem__)
        if wait := waits[what]:
            raise Problem(
                429,
                f"too-many-{what}",
                f"tenant {self.name} is over its {what} a second",
                hint=f"try again in {wait:.1f} seconds, or send less at once",
                headers={"Retry-After": str(math.ceil(wait))},
            )


class Tenants:
    """All tenants, by token."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._accounts: dict[str, Account] = {}
        self._tokens: list[tuple[bytes, Account]] = []
        self._open: Account | None = None
        for tenant in settings.everyone():
            account = Account(tenant, settings.server.body_bytes)
            self._accounts[tenant.name] = account
            where = f"tenants.{tenant.name}.token_env"
            hashes = _hashes(tenant.token_sha256, tenant.token_env, where, environ)
            self._tokens += [(each, account) for each in hashes]
            # At most one can be without; if it is not the default one, whoever comes first.
            if not hashes and (self._open is None or tenant.name == DEFAULT):
                self._open = account
        server = settings.server
        self._metrics = _hashes(
            server.metrics_token_sha256,
            server.metrics_token_env,
            "server.metrics_token_env",
            environ,
        )

    @property
    def guarded(self) -> bool:
        """Whether nobody is let in without a token."""
        return self._open is None

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def __getitem__(self, name: str) -> Account:
        return self._accounts[name]

    def of(self, token: bytes | None) -> Account | None:
        """Whose token it is; None if nobody's."""
        if token is None:
            return self._open
        digest = sha256(token).digest()
        found = None
        for known, account in self._tokens:
            if hmac.compare_digest(known, digest):
                found = account
        return found

    def measures(self, token: bytes | None) -> bool:
        """Whether it is a token that reads all metrics, which is nobody's tenant."""
        if not token:
            return False
        digest = sha256(token).digest()
        return sum(hmac.compare_digest(known, digest) for known in self._metrics) > 0

    def alone(self) -> bool:
        """Whether there is one tenant, who is the operator, too: no other token reads metrics."""
        return not self._metrics and len(self._accounts) == 1


def _hashes(
    known: Iterable[str], variable: str | None, where: str, environ: Mapping[str, str]
) -> list[bytes]:
    """The tokens that are good, by hash; one may be in the environment itself."""
    hashes = [bytes.fromhex(each) for each in known]
    if variable is not None:
        if not (value := environ.get(variable)):
            what = f"{variable} has no value: set it to the token"
            raise SettingsError([Wrong("", where, what)])
        hashes.append(sha256(value.encode()).digest())
    return hashes
