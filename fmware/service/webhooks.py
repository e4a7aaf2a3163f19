"""Webhooks: matches posted to other people's servers, signed, until they are taken.

There are those of the configuration, which only an operator changes, and those that tenants make
over HTTP. Each has a `Sender`, with its own pace and its own position in the log. A receiver may
get a match twice (its answer may be lost), and tells it by the match's `id` or the request's
`FMware-Delivery`; it gets matches in their order. Requests are signed: see `signature`.

What a tenant names is judged by a policy of its own: networks that the operator's webhooks may
reach are closed to it, unless `webhooks.allow_tenants` names them, too.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import httpx

from fmware.service.addresses import (
    AddressRefused,
    GuardedTransport,
    Lookup,
    NoPublicAddress,
    Policy,
    Share,
    host_of,
    look_up,
    look_up_for_tenants,
)
from fmware.service.changes import Changes
from fmware.service.database import Database
from fmware.service.hooks import SCHEMA as HOOKS
from fmware.service.hooks import Hook, Hooks, Secret, fixed_hook
from fmware.service.layers import Problem as Wrong
from fmware.service.logging import logger
from fmware.service.positions import SCHEMA as POSITIONS
from fmware.service.positions import Positions
from fmware.service.problems import Problem
from fmware.service.sender import DELIVERY, Answer, Feed, Sender, State
from fmware.service.settings import SettingsError
from fmware.service.shelf import Bound
from fmware.service.signature import SIGNATURE, sign, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from fmware.service.settings import WebhookSettings
    from fmware.service.tenants import Account

__all__ = ["DELIVERY", "SIGNATURE", "Feed", "Webhooks", "sign", "verify"]

SECRET_BYTES: Final = 32
CHANGED: Final = 10.0
"""Seconds that changes may take at the end, unless it is said."""

log = logger("webhooks")


class Webhooks:
    """Sends what comes into the log to all webhooks, and changes those that tenants have made.

        webhooks = Webhooks(settings.webhooks, log, settings.state / "webhooks.db", os.environ)
        await webhooks.start()
        ...
        await webhooks.stop()

    `tenants` are those that there are, all if not said; `look_up` finds the addresses of a name,
    as the system does if not said; `told` hears of what fails, to log it.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        feed: Feed,
        place: Path,
        environ: Mapping[str, str],
        *,
        tenants: Collection[str] | None = None,
        look_up: Lookup | None = None,
        told: Callable[[str, dict[str, Any]], None] = lambda _event, _about: None,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._place = place
        self._own = Policy.of(settings)
        self._tenants = Policy.of_tenants(settings)
        self._whose = tenants
        self._look_up = look_up
        self._shares: dict[str, Share] = {}
        self._told = told
        self._fixed = [fixed_hook(each, environ) for each in settings.targets]
        self._senders: dict[tuple[str, str], Sender] = {}
        self._changes = Changes()
        self._lock = asyncio.Lock()
        for each in self._fixed:
            try:
                self._own.check_url(each.url)
            except AddressRefused as error:
                key = f"webhooks.targets.{each.name}.url"
                raise SettingsError([Wrong("", key, str(error))]) from None

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Go on where each stopped."""
        self._database = await asyncio.to_thread(Database, self._place, POSITIONS + HOOKS)
        bound = Bound(self._settings.dead, self._settings.dead_bytes)
        self.positions = await asyncio.to_thread(Positions, self._database, bound)
        self._kept = Hooks(self._database)
        hooks = {(each.tenant, each.name): each for each in await asyncio.to_thread(self._kept.all)}
        # One of the configuration is in force where both have a name; those of a tenant that is
        # there no more are left alone.
        hooks |= {(each.tenant, each.name): each for each in self._fixed}
        for each in hooks.values():
            if self._whose is None or each.tenant in self._whose:
                await self._sent(each).start()

    async def stop(self, seconds: float = CHANGED) -> None:
        """Stop: what is not taken yet is sent after the next start.

        Changes that are under way have so many seconds.
        """
        await self._changes.end(seconds)
        await asyncio.gather(*(each.stop() for each in self._senders.values()))
        await asyncio.to_thread(self._database.close)

    def _sent(self, hook: Hook) -> Sender:
        policy, names = self._own, self._look_up or look_up
        if not hook.fixed:
            policy, names = self._tenants, self._share(hook.tenant)
        made = Sender(
            hook,
            settings=self._settings,
            feed=self._feed,
            positions=self.positions,
            transport=partial(GuardedTransport, policy, look_up=names),
            told=self._told,
        )
        self._senders[hook.tenant, hook.name] = made
        return made

    def _share(self, tenant: str) -> Share:
        """What looks up the names that a tenant says: slow ones hold up no one else's."""
        if tenant not in self._shares:
            self._shares[tenant] = Share(self._look_up or look_up_for_tenants)
        return self._shares[tenant]

    # --- who there is -----------------------------------------------------------------------

    @property
    def senders(self) -> Sequence[Sender]:
        """All of them."""
        return list(self._senders.values())

    @property
    def states(self) -> dict[str, State]:
        """How each does, by what its position is kept under."""
        return {each.hook.key: each.state for each in self._senders.values()}

    def of(self, tenant: str) -> list[Sender]:
        """Those of a tenant, by name."""
        found = [each for (whose, _), each in self._senders.items() if whose == tenant]
        return sorted(found, key=lambda each: each.hook.name)

    def get(self, tenant: str, name: str) -> Sender:
        """One of a tenant's; a `Problem` if there is none."""
        found = self._senders.get((tenant, name))
        if found is None:
            raise Problem(404, "no-webhook", f"there is no webhook {name!r}")
        return found

    async def dead(self, tenant: str, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """What one of a tenant's did not take."""
        hook = self.get(tenant, name).hook
        # A target of the configuration may have had another tenant before.
        return await asyncio.to_thread(self.positions.dead, hook.key, after, limit, hook.head)

    def _changeable(self, tenant: str, name: str) -> Sender:
        found = self.get(tenant, name)
        if found.hook.fixed:
            raise _fixed(name)
        return found

    # --- what tenants change ----------------------------------------------------------------

    async def put(
        self,
        account: Account,
        name: str,
        *,
        url: str,
        statements: Sequence[str] = (),
        secret: str | None = None,
        paused: bool = False,
        replaces: bool = True,
    ) -> tuple[Sender, str | None]:
        """Make a webhook, or replace one; a secret that was made up is told, this once.

        One that is replaced keeps its position, and its secret unless another is given.
        """
        self._free(account, name, replaces=replaces)
        await self._check(account.name, url)
        wanted = Hook(account.name, name, url, (), tuple(dict.fromkeys(statements)), paused)
        return await self._changes.whole(self._put(account, wanted, secret, replaces=replaces))

    async def _put(
        self, account: Account, wanted: Hook, secret: str | None, *, replaces: bool
    ) -> tuple[Sender, str | None]:
        async with self._lock:
            # Again: somebody may have been quicker while the name was looked up.
            self._free(account, wanted.name, replaces=replaces)
            there = self._senders.get((wanted.tenant, wanted.name))
            if there is not None:
                return await self._replace(account, there, wanted, secret), None
            now = time.time()
            made = None if secret is not None else secrets.token_urlsafe(SECRET_BYTES)
            signs = (Secret(secret or made or ""),)
            hook = replace(wanted, secrets=signs, created=now, updated=now)
            await asyncio.to_thread(self._kept.put, hook, self._feed.last)
            sender = self._sent(hook)
            try:
                await sender.start()
            except Exception:
                del self._senders[hook.tenant, hook.name]
                raise
        _note("webhook made", hook)
        return sender, made

    async def _replace(
        self, account: Account, there: Sender, wanted: Hook, secret: str | None
    ) -> Sender:
        now, before = time.time(), there.hook
        hook = replace(wanted, secrets=before.secrets, created=before.created, updated=now)
        if secret is not None and not hmac.compare_digest(
            secret.encode(), before.secrets[0].value.encode()
        ):
            hook = hook.rotated(secret, now, self._settings.overlap_seconds)
        await self._become(account, there, hook)
        _note("webhook replaced", hook)
        return there

    async def _become(self, account: Account, sender: Sender, hook: Hook) -> None:
        """Have one be another, on disk first; what it sends at once counts as a test does."""
        again = sender.sends_again(hook)
        if again:
            account.test()
        await asyncio.to_thread(self._kept.put, hook)
        if again or hook.paused:
            await sender.change(hook)
        else:
            sender.resign(hook)

    async def delete(self, tenant: str, name: str) -> None:
        """Take one away, with all that is kept of it."""
        await self._changes.whole(self._delete(tenant, name))

    async def _delete(self, tenant: str, name: str) -> None:
        async with self._lock:
            sender = self._changeable(tenant, name)
            try:
                await sender.stop()
                await asyncio.to_thread(self._kept.delete, sender.hook)
                self.positions.forget(sender.hook.key)
            except Exception:
                sender.begin()
                raise
            del self._senders[tenant, name]
        _note("webhook deleted", sender.hook)

    async def pause(self, account: Account, name: str, *, paused: bool) -> Sender:
        """Hold one up, or have it go on: at once, with what waits."""
        return await self._changes.whole(self._pause(account, name, paused=paused))

    async def _pause(self, account: Account, name: str, *, paused: bool) -> Sender:
        async with self._lock:
            sender = self._changeable(account.name, name)
            hook = replace(sender.hook, paused=paused, updated=time.time())
            await self._become(account, sender, hook)
        _note("webhook paused" if paused else "webhook resumed", hook)
        return sender

    async def rotate(
        self, tenant: str, name: str, secret: str | None = None, overlap: float | None = None
    ) -> tuple[Sender, str | None]:
        """Another secret, told if it was made up; the one before signs, too, for a while."""
        return await self._changes.whole(self._rotate(tenant, name, secret, overlap))

    async def _rotate(
        self, tenant: str, name: str, secret: str | None, overlap: float | None
    ) -> tuple[Sender, str | None]:
        made = None if secret is not None else secrets.token_urlsafe(SECRET_BYTES)
        seconds = self._settings.overlap_seconds if overlap is None else overlap
        async with self._lock:
            sender = self._changeable(tenant, name)
            hook = sender.hook.rotated(secret or made or "", time.time(), seconds)
            await asyncio.to_thread(self._kept.put, hook)
            sender.resign(hook)
        _note("webhook has a new secret", hook)
        return sender, made

    async def test(self, account: Account, name: str) -> Answer:
        """Send a signed request without matches, and say what came of it: its status, no more."""
        sender = self._changeable(account.name, name)
        account.test()
        return await sender.test()

    # --- what is refused --------------------------------------------------------------------

    def _free(self, account: Account, name: str, *, replaces: bool) -> None:
        """A `Problem` if there can be no webhook of this name."""
        there = self._senders.get((account.name, name))
        if there is not None and there.hook.fixed:
            raise _fixed(name)
        if there is not None and not replaces:
            what = f"there is a webhook {name!r} already"
            raise Problem(409, "webhook-exists", what, hint="replace it with PUT")
        made = [each for each in self.of(account.name) if not each.hook.fixed]
        if there is None and len(made) >= account.webhooks:
            what = f"tenant {account.name} has all its {account.webhooks:,} webhooks"
            raise Problem(429, "too-many-webhooks", what, hint="delete some first")

    async def _check(self, tenant: str, url: str) -> None:
        """A `Problem` if a tenant's webhook must not call a URL; it is asked again at each call."""
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._tenants.resolve(self._tenants.check_url(url), self._share(tenant))
        except NoPublicAddress as error:
            raise _refused(error.told) from None
        except AddressRefused as error:
            raise _refused(str(error)) from None
        except TimeoutError:
            raise _refused(f"{host_of(httpx.URL(url))} has no public address") from None


def _refused(what: str) -> Problem:
    return Problem(422, "webhook-refused", what, where="body.url")


def _fixed(name: str) -> Problem:
    what = f"webhook {name!r} is one of the configuration"
    return Problem(409, "webhook-fixed", what, hint="an operator changes it there")


def _note(event: str, hook: Hook) -> None:
    # The host alone: a path may be a secret of its own.
    log.info(event, tenant=hook.tenant, webhook=hook.name, host=host_of(httpx.URL(hook.url)))
