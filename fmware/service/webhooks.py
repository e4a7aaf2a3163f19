"""Webhooks: matches posted to other people's servers, signed, until they are taken.

Each target reads the match log from a position of its own, which is on disk: what was not taken
before a restart is sent after it, and nothing waits in memory but the request that is under way. A
request that fails is sent again, after a pause that doubles and is half left to chance; after so
many tries it is given up and recorded, and the target goes on behind it. A receiver may get a match
twice (its answer may be lost), and tells it by the match's `id` or the request's
`FMware-Delivery`; it gets matches in their order. Requests are signed: see `signature`.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpx

from fmware import __version__
from fmware.service.addresses import AddressRefused, GuardedTransport, Policy
from fmware.service.layers import Problem
from fmware.service.positions import Positions
from fmware.service.settings import SettingsError
from fmware.service.signature import SIGNATURE, sign, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fmware.service.log import Page
    from fmware.service.segments import Entry
    from fmware.service.tables import Target, WebhookSettings

__all__ = ["DELIVERY", "SIGNATURE", "Feed", "Webhooks", "sign", "verify"]

DELIVERY: Final = "FMware-Delivery"
IDLE: Final = 60.0
"""Seconds after which a target looks into the log although nobody woke it."""
TAKEN: Final = range(200, 300)
GONE: Final = 410
FAR: Final = 1000
"""Positions of others that a target passes over before it keeps its own."""
ANSWER: Final = 4096
"""Bytes of an answer that are read; its status is what counts."""


class Feed(Protocol):
    """What is read of the match log."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    async def read(
        self, tenant: str, after: int, limit: int, statement: str | None = None
    ) -> Page: ...
    async def wait(self, after: int, timeout: float) -> bool: ...


# --- sending ------------------------------------------------------------------------------------


@dataclass(slots=True)
class State:
    """How a target is doing, for the page and for metrics."""

    position: int = 0
    kept: int = 0
    delivered: int = 0
    requests: int = 0
    failures: int = 0
    dead: int = 0
    lost: int = 0
    trouble: str = ""


class Webhooks:
    """Sends what comes into the log to all targets, each at its own pace.

        webhooks = Webhooks(settings.webhooks, log, settings.state / "webhooks.db", os.environ)
        await webhooks.start()
        ...
        await webhooks.stop()

    `transport` makes the way to a target; `told` hears of what fails, to log it.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        feed: Feed,
        place: Path,
        environ: Mapping[str, str],
        *,
        transport: Callable[[Policy], httpx.AsyncBaseTransport] = GuardedTransport,
        told: Callable[[str, dict[str, Any]], None] = lambda _event, _about: None,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._place = place
        self._policy = Policy.of(settings)
        self._transport = transport
        self._told = told
        self._secrets = {each.name: _secrets(each, environ) for each in settings.targets}
        self._tasks: list[asyncio.Task[None]] = []
        self._random = random.SystemRandom()
        self.states = {each.name: State() for each in settings.targets}
        for each in settings.targets:
            try:
                self._policy.check_url(each.url)
            except AddressRefused as error:
                key = f"webhooks.targets.{each.name}.url"
                raise SettingsError([Problem("", key, str(error))]) from None

    async def start(self) -> None:
        """Go on where each target stopped; a new one begins with what comes from now on."""
        if not self._settings.targets:
            return
        self.positions = await asyncio.to_thread(Positions, self._place, self._settings.dead)
        for each in self._settings.targets:
            await self._place_of(each)
        self._tasks = [asyncio.create_task(self._run(each)) for each in self._settings.targets]

    async def stop(self) -> None:
        """Stop at once: what is not taken yet is sent after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._tasks:
            return
        self._tasks = []
        for target in self._settings.targets:
            state = self.states[target.name]
            if state.position > state.kept:
                await self._keep(target, state, state.position)
        await asyncio.to_thread(self.positions.close)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Each target: how far it is behind, what was sent and what was not."""
        return {
            name: {
                "position": state.position,
                "behind": max(self._feed.last - state.position, 0),
                "delivered": state.delivered,
                "requests": state.requests,
                "failures": state.failures,
                "dead": state.dead,
                "lost": state.lost,
                "trouble": state.trouble,
            }
            for name, state in self.states.items()
        }

    async def _place_of(self, target: Target) -> None:
        """Where a target goes on."""
        position = await asyncio.to_thread(self.positions.get, target.name)
        if position is None or position > self._feed.last:
            # It is new, or the log was thrown away and counts from the beginning again.
            position = self._feed.last if position is None else 0
            await asyncio.to_thread(self.positions.move, target.name, position)
        state = self.states[target.name]
        state.position = state.kept = position

    async def _run(self, target: Target) -> None:
        state = self.states[target.name]
        async with httpx.AsyncClient(
            transport=self._transport(self._policy),
            timeout=self._settings.timeout_seconds,
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": f"fmware/{__version__}", "Content-Type": "application/json"},
        ) as client:
            while True:
                try:
                    await self._step(target, state, client)
                except Exception as error:  # A full disk, say: it is told, and tried again.
                    self._trouble(target, state, f"{type(error).__name__}: {error}")
                    await asyncio.sleep(self._settings.first_seconds)

    async def _keep(self, target: Target, state: State, position: int) -> None:
        await asyncio.to_thread(self.positions.move, target.name, position)
        state.position = state.kept = position

    async def _step(self, target: Target, state: State, client: httpx.AsyncClient) -> None:
        """Send what comes next; wait for something if there is nothing."""
        if state.position + 1 < self._feed.first:
            lost = self._feed.first - 1 - state.position
            state.lost += lost
            state.position += lost
            self._told("webhook_lost", {"target": target.name, "positions": lost})
        only = target.statements[0] if len(target.statements) == 1 else None
        page = await self._feed.read(target.tenant, state.position, self._settings.batch, only)
        wanted = [each for each in page.entries if _wants(target, each)]
        if wanted:
            await self._deliver(target, state, client, wanted, page.position)
        elif page.position > state.position:
            # What others get is passed over, and only now and then is the disk told.
            state.position = page.position
            if state.position - state.kept >= FAR:
                await self._keep(target, state, state.position)
        else:
            await self._feed.wait(state.position, IDLE)

    async def _deliver(
        self,
        target: Target,
        state: State,
        client: httpx.AsyncClient,
        entries: Sequence[Entry],
        position: int,
    ) -> None:
        """Send some matches until they are taken or given up; then the position moves."""
        delivery = f"{target.name}:{entries[0].position}-{entries[-1].position}"
        body = _body(target, entries)
        tries, reason, wait = 0, "", 0.0
        while tries < self._settings.tries:
            tries += 1
            state.requests += 1
            reason, wait = await self._post(target, client, delivery, body)
            if not reason:
                await self._keep(target, state, position)
                state.delivered += len(entries)
                state.trouble = ""
                return
            state.failures += 1
            self._trouble(target, state, reason)
            if wait < 0 or tries == self._settings.tries:
                break
            await asyncio.sleep(max(self.pause(tries), min(wait, self._settings.longest_seconds)))
        await asyncio.to_thread(
            self.positions.give_up, target.name, position, delivery, tries, reason, body
        )
        state.dead += len(entries)
        state.position = state.kept = position
        about = {"target": target.name, "delivery": delivery, "tries": tries, "reason": reason}
        self._told("webhook_dead", about)

    def pause(self, tries: int) -> float:
        """Seconds to wait after so many failures: doubling, half of it left to chance."""
        settings = self._settings
        whole = min(settings.longest_seconds, settings.first_seconds * 2.0 ** min(tries - 1, 60))
        return whole * (0.5 + self._random.random() / 2)

    async def _post(
        self, target: Target, client: httpx.AsyncClient, delivery: str, body: bytes
    ) -> tuple[str, float]:
        """Why a request was not taken, and the seconds the receiver asks for; negative: never."""
        at = int(time.time())
        headers = {DELIVERY: delivery, SIGNATURE: sign(self._secrets[target.name], body, at)}
        try:
            async with (
                asyncio.timeout(self._settings.timeout_seconds),
                client.stream("POST", target.url, content=body, headers=headers) as answer,
            ):
                if answer.status_code in TAKEN:
                    await _drain(answer)
                    return "", 0.0
                return _refusal(answer), _wanted_pause(answer)
        except AddressRefused as error:
            return str(error), 0.0
        except TimeoutError:
            return f"no answer within {self._settings.timeout_seconds:g} seconds", 0.0
        except httpx.HTTPError as error:
            return str(error) or type(error).__name__, 0.0

    def _trouble(self, target: Target, state: State, reason: str) -> None:
        if state.trouble != reason:
            self._told("webhook_failed", {"target": target.name, "reason": reason})
        state.trouble = reason


# --- requests and answers -----------------------------------------------------------------------


def _secrets(target: Target, environ: Mapping[str, str]) -> list[bytes]:
    """The secrets that sign, the newest first."""
    found = []
    for key in ("secret_env", "old_secret_env"):
        variable = getattr(target, key)
        if variable is None:
            continue
        if not (value := environ.get(variable)):
            where = f"webhooks.targets.{target.name}.{key}"
            what = f"{variable} has no value: set it to a long random secret"
            raise SettingsError([Problem("", where, what)])
        found.append(value.encode())
    return found


def _wants(target: Target, entry: Entry) -> bool:
    return not target.statements or entry.statement in target.statements


def _body(target: Target, entries: Sequence[Entry]) -> bytes:
    about = json.dumps({"target": target.name, "tenant": target.tenant}).encode()
    return about[:-1] + b', "matches": [' + b",".join(each.line for each in entries) + b"]}"


async def _drain(answer: httpx.Response) -> None:
    """Read a short answer, so that its connection can be used again; leave a long one."""
    size = 0
    with suppress(httpx.HTTPError):
        async for chunk in answer.aiter_raw():
            size += len(chunk)
            if size > ANSWER:
                return


def _refusal(answer: httpx.Response) -> str:
    status = answer.status_code
    if answer.is_redirect:
        return f"answered {status}: redirects are not followed, name the last URL"
    return f"answered {status} {answer.reason_phrase}".rstrip()


def _wanted_pause(answer: httpx.Response) -> float:
    if answer.status_code == GONE:
        return -1.0
    said = answer.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else 0.0
