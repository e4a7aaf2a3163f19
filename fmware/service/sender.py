"""One webhook at work: matches of the log posted to a server, signed, until they are taken.

It reads the log from a position of its own, which is on disk: what was not taken before a restart
is sent after it, and nothing waits in memory but the request that is under way. A request that
fails is sent again, after a pause that doubles and is half left to chance; after so many tries it
is given up and recorded, and the webhook goes on behind it.

Of an answer only the status is told, and of a failure no more than its kind: a tenant may name any
server, and must not learn through this one what is in the operator's networks. The log has the
rest.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from uuid import uuid4

import httpx

from fmware import __version__
from fmware.service.addresses import AddressRefused, NoPublicAddress
from fmware.service.shelf import Held
from fmware.service.signature import SIGNATURE, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fmware.service.hooks import Hook
    from fmware.service.log import Page
    from fmware.service.positions import Positions
    from fmware.service.segments import Entry
    from fmware.service.settings import WebhookSettings

__all__ = ["DELIVERY", "Answer", "Feed", "Sender", "State", "pause"]

DELIVERY: Final = "FMware-Delivery"
IDLE: Final = 60.0
"""Seconds after which a target looks into the log although nobody woke it."""
TAKEN: Final = range(200, 300)
GONE: Final = 410
FAR: Final = 1000
"""Positions of others that a target passes over before it keeps its own."""
ANSWER: Final = 4096
"""Bytes of an answer that are read, and dropped; its status is what counts."""
DRAIN: Final = 1.0
"""Seconds that the rest of an answer is waited for."""
LONGEST_WAIT: Final = 7
"""Digits of a `Retry-After` that are believed."""
Answered = TypeVar("Answered")
_CHANCE: Final = random.SystemRandom()


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


@dataclass(slots=True)
class State:
    """How a webhook is doing, for its tenant and for metrics."""

    position: int = 0
    kept: int = 0
    delivered: int = 0
    requests: int = 0
    failures: int = 0
    tries: int = 0
    dead: int = 0
    lost: int = 0
    trouble: str = ""
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request: `reason` is why it was not taken, `detail` the same for operators."""

    status: int | None = None
    reason: str = ""
    detail: str = ""
    wait: float = 0.0
    """Seconds that the receiver asks for; negative: for ever."""


def pause(settings: WebhookSettings, tries: int) -> float:
    """Seconds to wait after so many failures: doubling, half of it left to chance."""
    whole = min(settings.longest_seconds, settings.first_seconds * 2.0 ** min(tries - 1, 60))
    return whole * (0.5 + _CHANCE.random() / 2)


class Sender:
    """Sends what comes into the log to one webhook, at its own pace."""

    def __init__(
        self,
        hook: Hook,
        *,
        settings: WebhookSettings,
        feed: Feed,
        positions: Positions,
        transport: Callable[[], httpx.AsyncBaseTransport],
        told: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.hook = hook
        self.state = State()
        self._settings = settings
        self._feed = feed
        self._positions = positions
        self._transport = transport
        self._told = told
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[Any] | None = None

    # --- life -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Go on where it stopped; a new one begins with what comes from now on."""
        position = await asyncio.to_thread(self._positions.get, self.hook.key)
        if position is None or position > self._feed.last:
            # It is new, or the log was thrown away and counts from the beginning again.
            position = self._feed.last if position is None else 0
            await asyncio.to_thread(self._positions.move, self.hook.key, position)
        self.state.position = self.state.kept = position
        self.begin()

    async def stop(self) -> None:
        """Stop at once: what is not taken yet is sent after the next start."""
        await self._halt()
        if self.state.position > self.state.kept:
            await self._keep(self.state.position)

    async def change(self, hook: Hook) -> None:
        """Be another from now on; what was under way is sent again, at once."""
        await self._halt()
        self.hook = hook
        self.state.trouble = ""
        try:
            # Something may have been kept just before the end, and nobody heard of it.
            kept = await asyncio.to_thread(self._positions.get, hook.key) or 0
        except Exception:
            # Something may be sent twice, but all is.
            self.begin()
            raise
        self.state.position = max(self.state.position, kept)
        self.begin()

    def resign(self, hook: Hook) -> None:
        """Sign with other secrets from the next request on."""
        self.hook = hook

    def sends_again(self, hook: Hook) -> bool:
        """Whether it would send something at once if it became another."""
        before = self.hook
        other = (hook.url, hook.statements) != (before.url, before.statements)
        return not hook.paused and (before.paused or other or self.state.retry_at is not None)

    def begin(self) -> None:
        """Send from where it is, unless it is held up."""
        if not self.hook.paused:
            self._task = asyncio.create_task(self._run())

    async def _halt(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self.state.tries, self.state.retry_at = 0, None

    # --- how it does ------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """In a word."""
        if self.hook.paused:
            return "paused"
        return "failing" if self.state.trouble else "ok"

    @property
    def kept_dead(self) -> Held:
        """What is kept of what was given up."""
        return self._positions.shelf.held.get(self.hook.key, Held())

    def snapshot(self) -> dict[str, Any]:
        """How far it is behind, what was sent and what was not."""
        state = self.state
        return {
            "status": self.status,
            "position": state.position,
            "behind": max(self._feed.last - state.position, 0),
            "delivered": state.delivered,
            "requests": state.requests,
            "failures": state.failures,
            "tries": state.tries,
            "dead": state.dead,
            "dropped": self._positions.shelf.dropped[self.hook.key],
            "lost": state.lost,
            "trouble": state.trouble,
            "retry_at": state.retry_at,
        }

    # --- sending ----------------------------------------------------------------------------

    async def test(self) -> Answer:
        """Send a request without matches, once, and say what came of it."""
        async with self._client() as client:
            return await self._post(client, f"{self.hook.name}:test-{uuid4().hex}", self._body(()))

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self._transport(),
            timeout=self._settings.timeout_seconds,
            # It keeps nothing: what receivers set would grow until no request is taken any more.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": f"fmware/{__version__}", "Content-Type": "application/json"},
        )

    async def _run(self) -> None:
        async with self._client() as client:
            while True:
                try:
                    await self._step(client)
                except Exception as error:  # A full disk, say: it is told, and tried again.
                    self._trouble("something went wrong here", f"{type(error).__name__}: {error}")
                    await asyncio.sleep(self._settings.first_seconds)

    async def _keep(self, position: int) -> None:
        await self._write(self._positions.move, position)

    async def _write(self, call: Callable[..., Answered], position: int, *about: Any) -> Answered:
        """Have the disk told; it is waited for also if this ends, so that no write comes late."""
        written = asyncio.to_thread(call, self.hook.key, position, *about)
        self._writing = writing = asyncio.ensure_future(written)
        said = await asyncio.shield(writing)
        self.state.position = self.state.kept = position
        return said

    async def _step(self, client: httpx.AsyncClient) -> None:
        """Send what comes next; wait for something if there is nothing."""
        state, hook = self.state, self.hook
        if state.position + 1 < self._feed.first:
            lost = self._feed.first - 1 - state.position
            state.lost += lost
            state.position += lost
            self._tell("webhook_lost", positions=lost)
        only = hook.statements[0] if len(hook.statements) == 1 else None
        page = await self._feed.read(hook.tenant, state.position, self._settings.batch, only)
        wanted = [each for each in page.entries if hook.wants(each)]
        if wanted:
            await self._deliver(client, wanted, page.position)
        elif page.position > state.position:
            # What others get is passed over, and only now and then is the disk told.
            state.position = page.position
            if state.position - state.kept >= FAR:
                await self._keep(state.position)
        else:
            await self._feed.wait(state.position, IDLE)

    async def _deliver(
        self, client: httpx.AsyncClient, entries: Sequence[Entry], position: int
    ) -> None:
        """Send some matches until they are taken or given up; then the position moves."""
        state, most = self.state, self._settings.tries
        delivery = f"{self.hook.name}:{entries[0].position}-{entries[-1].position}"
        body = self._body(entries)
        answer = Answer()
        for tries in range(1, most + 1):
            state.requests += 1
            state.tries, state.retry_at = tries, None
            answer = await self._post(client, delivery, body)
            if not answer.reason:
                await self._keep(position)
                state.delivered += len(entries)
                state.trouble, state.tries = "", 0
                return
            state.failures += 1
            self._trouble(answer.reason, answer.detail)
            if answer.wait < 0 or tries == most:
                break
            await self._rest(max(pause(self._settings, tries), answer.wait))
        await self._give_up(delivery, position, body, answer)
        state.dead += len(entries)
        state.tries = 0

    async def _rest(self, seconds: float) -> None:
        # A receiver may ask for more than it is given: it gets a longest pause, and no more.
        seconds = min(seconds, self._settings.longest_seconds)
        self.state.retry_at = time.time() + seconds
        await asyncio.sleep(seconds)

    async def _give_up(self, delivery: str, position: int, body: bytes, answer: Answer) -> None:
        tries, reason = self.state.tries, answer.reason
        about = (delivery, tries, reason, body, self.hook.head + b"}")
        gone = await self._write(self._positions.give_up, position, *about)
        self._tell("webhook_dead", delivery=delivery, tries=tries, reason=answer.detail)
        if gone:
            # Not of this webhook alone: those of whoever has most go.
            self._tell("webhook_dead_dropped", deliveries=gone.total(), of=sorted(gone))

    async def _post(self, client: httpx.AsyncClient, delivery: str, body: bytes) -> Answer:
        now = time.time()
        headers = {DELIVERY: delivery, SIGNATURE: sign(self.hook.signing(now), body, int(now))}
        said: Answer | None = None
        try:
            async with (
                asyncio.timeout(self._settings.timeout_seconds),
                client.stream("POST", self.hook.url, content=body, headers=headers) as answer,
            ):
                said = _said(answer)
                if answer.status_code in TAKEN:
                    await _drain(answer)
        # Whatever happens to the rest of an answer, its status was said.
        except TimeoutError:
            return said or _failed(f"no answer within {self._settings.timeout_seconds:g} seconds")
        except (AddressRefused, httpx.HTTPError) as error:
            return said or _failed(_kind(error), _detail(error))
        return said

    def _body(self, entries: Sequence[Entry]) -> bytes:
        head = self.hook.head + (b"" if entries else b', "test": true')
        return head + b', "matches": [' + b",".join(each.line for each in entries) + b"]}"

    def _trouble(self, reason: str, detail: str) -> None:
        if self.state.trouble != reason:
            self._tell("webhook_failed", reason=detail or reason)
        self.state.trouble = reason

    def _tell(self, event: str, **about: Any) -> None:
        self._told(event, {"target": self.hook.name, "tenant": self.hook.tenant, **about})


# --- answers ------------------------------------------------------------------------------------


async def _drain(answer: httpx.Response) -> None:
    """Read a short answer, so that its connection can be used again; leave a long or slow one."""
    size = 0
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(DRAIN):
            async for chunk in answer.aiter_raw():
                size += len(chunk)
                if size > ANSWER:
                    return


def _said(answer: httpx.Response) -> Answer:
    status = answer.status_code
    if status in TAKEN:
        return Answer(status)
    reason = f"answered {status}"
    if answer.is_redirect:
        reason += ": redirects are not followed, name the last URL"
    wait = -1.0 if status == GONE else _wait(answer.headers.get("Retry-After", ""))
    return Answer(status, reason, reason, wait)


def _wait(said: str) -> float:
    """Seconds that a receiver asks for, in a number or by a date; what is neither asks for none."""
    if said.isdecimal():
        return float(said[:LONGEST_WAIT])
    try:
        return max(parsedate_to_datetime(said).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _failed(reason: str, detail: str = "") -> Answer:
    return Answer(None, reason, detail or reason)


def _kind(error: AddressRefused | httpx.HTTPError) -> str:
    """What a tenant is told of a failure."""
    if isinstance(error, NoPublicAddress):
        # Not its host: the operator's webhooks are not said where they go.
        return "no public address"
    if isinstance(error, AddressRefused):
        return str(error)
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return "no TLS: see its certificate" if _of_tls(error) else "cannot connect"
    return "the connection broke, or it does not speak HTTP"


def _detail(error: AddressRefused | httpx.HTTPError) -> str:
    """What the log is told of a failure."""
    name = type(error).__name__
    if isinstance(error, AddressRefused | httpx.ConnectError):
        return f"{name}: {error}"
    # Others may repeat what the receiver sent, and that what it was sent: the path, and more.
    return f"{name}: {_kind(error)}"


def _of_tls(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
