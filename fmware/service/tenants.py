"""Tenants: who a token belongs to, and how much its owner may take.

Tokens are known by their SHA-256 and compared in constant time, with all that are known, so that
the time of an answer tells nothing of them. A tenant without a token is whoever sends none.
"""

from __future__ import annotations

import hmac
import math
import time
from hashlib import sha256
from typing import TYPE_CHECKING

from fmware.service.envelope import DEFAULT
from fmware.service.layers import Problem as Wrong
from fmware.service.problems import Problem
from fmware.service.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fmware.service.settings import Settings, Tenant

__all__ = ["Account", "Bucket", "Tenants"]


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

    def take(self, count: float) -> float:
        """Take so much; 0 if there was enough, else the seconds until there will be.

        What is more than fits at once is let through when the bucket is full, and owed.
        """
        if not self._rate:
            return 0.0
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        wanted = min(count, self._burst)
        if self._left < wanted:
            return (wanted - self._left) / self._rate
        self._left -= count
        return 0.0


class Account:
    """A tenant at work: its limits, and what is left of them."""

    def __init__(self, tenant: Tenant, body_bytes: int) -> None:
        self.name = tenant.name
        self.statements = tenant.limits.statements
        self.body_bytes = tenant.limits.body_bytes or body_bytes
        self._messages = Bucket(tenant.limits.rate, tenant.limits.burst)

    def spend(self, messages: int) -> None:
        """Take messages out of the quota; a `Problem` if there are not enough left."""
        if wait := self._messages.take(messages):
            raise Problem(
                429,
                "too-many-messages",
                f"tenant {self.name} is over its messages a second",
                hint=f"try again in {wait:.1f} seconds, or send fewer at once",
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
            hashes = [bytes.fromhex(each) for each in tenant.token_sha256]
            if tenant.token_env is not None:
                hashes.append(sha256(_secret(tenant, tenant.token_env, environ)).digest())
            self._tokens += [(each, account) for each in hashes]
            # At most one can be without; if it is not the default one, whoever comes first.
            if not hashes and (self._open is None or tenant.name == DEFAULT):
                self._open = account

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


def _secret(tenant: Tenant, variable: str, environ: Mapping[str, str]) -> bytes:
    value = environ.get(variable)
    if not value:
        what = f"{variable} has no value: set it to the token of tenant {tenant.name}"
        raise SettingsError([Wrong("", f"tenants.{tenant.name}.token_env", what)])
    return value.encode()
