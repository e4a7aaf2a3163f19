"""NATS JetStream: a durable pull consumer in, publishing with ids out.

In: what is under way is bounded by the consumer itself. A message that takes long is told to the
server to be so, and what is not acknowledged within `ack_seconds` is given again. Its id is its
`Nats-Msg-Id`, or its number in the stream.

Out: every hit is confirmed by the stream before its message is acknowledged. The id of a hit is its
`Nats-Msg-Id`, so that the stream drops repeats within its duplicate window. So from stream to
stream, a hit is there exactly once, whatever is killed, as long as the window is longer than
`ack_seconds` and the time that the service is away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import nats
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from fmware.service.brokers.headers import header
from fmware.service.envelope import DEFAULT, Envelope, rfc3339
from fmware.service.errors import BrokerDown, BrokerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext

    from fmware.service.envelope import DeadLetter, Hit

__all__ = ["NatsDelivery", "NatsSink", "NatsSource"]

LINGER: Final = 5.0
"""Seconds that a request for messages stays with the server."""
PULL_BYTES: Final = 32 << 20
CONFIRM: Final = 10.0
"""Seconds in which a stream must confirm."""
ID: Final = "Nats-Msg-Id"
REFUSED: Final = "authorization violation"
"""What a server says to a user or a password that it does not know."""
KEPT: Final = 8
"""Errors of a connection that are kept."""

log = logging.getLogger("fmware.service")


async def connected(url: str, name: str, lost: Callable[[], Awaitable[None]]) -> Client:
    """A connection that comes back by itself, once it has been there; `lost` hears when it goes.

    Raises `BrokerDown` if there is no server, and a plain `BrokerError` if it refuses the user: the
    settings must be mended then.
    """
    heard: list[str] = []

    async def hear(error: Exception) -> None:
        heard[:] = [*heard, _said(error)][-KEPT:]
        await _told(error)

    try:
        client = await nats.connect(
            servers=url.split(","),
            name=f"fmware {name}",
            max_reconnect_attempts=1,
            reconnect_time_wait=0.2,
            connect_timeout=5,
            allow_reconnect=True,
            error_cb=hear,
            disconnected_cb=lost,
        )
    except (NatsError, OSError, TimeoutError) as error:
        if any(REFUSED in each.lower() for each in heard):
            said = f"{name}: NATS at {_bare(url)} refuses the user or the password"
            raise BrokerError(said) from error
        raise BrokerDown(f"{name}: no NATS at {_bare(url)}: {_said(error)}") from error
    client.options["max_reconnect_attempts"] = -1
    return client


async def _told(error: Exception) -> None:
    log.warning("nats: %s", _said(error))


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _bare(url: str) -> str:
    """Where it is, without the password."""
    return ",".join(each.rpartition("@")[2] for each in url.split(","))


async def has_stream(
    stream: JetStreamContext, name: str, subjects: list[str], create: bool, **options: Any
) -> None:
    """Check that there is a stream, or make it."""
    try:
        await stream.stream_info(name)
    except NotFoundError:
        if not create:
            said = f"NATS has no stream {name!r}: make it, or say create = true"
            raise BrokerError(said) from None
        try:
            await stream.add_stream(StreamConfig(name=name, subjects=subjects, **options))
        except (NatsError, ValueError) as error:
            raise BrokerError(f"NATS does not make stream {name!r}: {error}") from error


# --- in -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class NatsDelivery:
    """A message of a stream."""

    envelope: Envelope
    attempts: int
    message: Msg
    source: NatsSource
    since: float = field(default_factory=time.monotonic)

    async def ack(self) -> None:
        self.source.under_way.discard(self)
        await self.message.ack()

    async def nack(self, delay: float) -> None:
        self.source.under_way.discard(self)
        await self.message.nak(delay or None)


class NatsSource:
    """The messages of a stream on a subject, through a durable pull consumer."""

    def __init__(
        self,
        name: str,
        *,
        stream: str,
        subject: str,
        url: str = "nats://127.0.0.1:4222",
        tenant: str = DEFAULT,
        durable: str = "fmware",
        batch: int = 256,
        ack_seconds: float = 60.0,
        create: bool = False,
    ) -> None:
        self.name = name
        self.under_way: set[NatsDelivery] = set()
        self._stream = stream
        self._subject = subject
        self._url = url
        self._tenant = tenant
        self._durable = durable
        self._batch = batch
        self._ack_seconds = ack_seconds
        self._create = create
        self._client: Client | None = None
        self._inbox: Subscription | None = None
        self._come: asyncio.Queue[Msg | None] = asyncio.Queue()
        """Bounded by what was asked for."""
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._client = await connected(self._url, self.name, self._lost)
        context = self._client.jetstream()
        await has_stream(context, self._stream, [self._subject], self._create)
        wanted = ConsumerConfig(
            durable_name=self._durable,
            filter_subject=self._subject,
            ack_wait=self._ack_seconds,
            max_ack_pending=self._batch,
        )
        try:
            await context.add_consumer(self._stream, wanted)
        except (NatsError, ValueError) as error:
            said = f"{self.name}: NATS refuses consumer {self._durable!r} of {self._stream!r}"
            raise BrokerError(f"{said}: {error}") from error
        self._come = asyncio.Queue()
        self._inbox = await self._client.subscribe(self._client.new_inbox(), cb=self._came)
        self._beating = asyncio.create_task(self._beat(), name=f"beat {self.name}")

    async def deliveries(self) -> AsyncGenerator[NatsDelivery, None]:
        while True:
            await self._request()
            until = time.monotonic() + LINGER + 1.0
            for _ in range(self._batch):
                message = await self._next(until)
                if message is None:
                    break  # Not even that there is nothing: what was asked for was lost.
                if message.headers is not None and "Status" in message.headers:
                    self._check_status(message.headers)
                    break
                yield self._delivery(message)

    async def _next(self, until: float) -> Msg | None:
        """What has come; there is no waiting, which is dear, where it need not be."""
        if self._come.empty():
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    return await self._come.get()
            except TimeoutError:
                return None
        return self._come.get_nowait()

    async def _came(self, message: Msg) -> None:
        self._come.put_nowait(message)

    async def _lost(self) -> None:
        """What was asked for is lost with the connection: have it be asked for again."""
        self._come.put_nowait(None)

    def _check_status(self, headers: dict[str, str]) -> None:
        """That there is nothing now is no news; that there is no consumer any more is."""
        said = headers.get("Description", "")
        if headers["Status"] not in ("100", "404", "408") and "Size" not in said:
            raise BrokerError(f"{self.name}: NATS says {headers['Status']} {said}")

    async def _request(self) -> None:
        """Ask for a batch: messages come as they are there, then a word that there are no more."""
        assert self._client is not None
        assert self._inbox is not None
        wanted = {
            "batch": self._batch,
            "expires": int(LINGER * 1e9),
            "max_bytes": max(PULL_BYTES, 2 * self._client.max_payload),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        await self._client.publish(subject, json.dumps(wanted).encode(), self._inbox.subject)

    def _delivery(self, message: Msg) -> NatsDelivery:
        delivered, sequence, time = _about(message.reply)
        given = (message.headers or {}).get(ID)
        name = given or f"{self._stream}:{sequence}"
        envelope = Envelope(name, message.data, self._tenant, self.name, time)
        delivery = NatsDelivery(envelope, delivered or 1, message, self)
        self.under_way.add(delivery)
        return delivery

    async def _beat(self) -> None:
        """Say of messages that take long that they are not lost."""
        while True:
            await asyncio.sleep(self._ack_seconds / 4)
            old = time.monotonic() - self._ack_seconds / 4
            for delivery in list(self.under_way):
                if delivery.since < old:
                    with suppress(NatsError):
                        await delivery.message.in_progress()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self.under_way.clear()
        if self._inbox is not None:
            with suppress(NatsError):
                await self._inbox.unsubscribe()
            await self._give_back()
        self._inbox = None
        if self._client is not None:
            with suppress(NatsError, TimeoutError, OSError):
                await self._client.flush(5)
            await self._client.close()
        self._client = None

    async def _give_back(self) -> None:
        """What has come, and nobody took: others need not wait for it.

        What has come again may be done already; of that nothing is said.
        """
        with suppress(NatsError):
            while not self._come.empty():
                message = self._come.get_nowait()
                if message and message.reply and message.metadata.num_delivered == 1:
                    await message.nak()


def _about(reply: str) -> tuple[int, int, str]:
    """How often a message was given, its number in the stream, and when the stream got it.

    It is in the subject to acknowledge it to: `$JS.ACK`, in newer forms a domain and an account,
    the stream, the consumer, then these three with the consumer's own number before the time.
    `Msg.metadata` reads the same, and makes six objects of it.
    """
    words = reply.split(".")
    first = 4 if len(words) < 11 else 6
    if words[:2] != ["$JS", "ACK"] or len(words) < 9:
        raise BrokerError(f"not a message of a stream: {reply!r}")
    delivered, sequence, _, stamp = map(int, words[first : first + 4])
    return delivered, sequence, rfc3339(datetime.fromtimestamp(stamp // 10**6 / 1000, UTC))


# --- out ----------------------------------------------------------------------------------------


class Sent:
    """Messages that were published together; `done` when the stream has confirmed all of them."""

    __slots__ = ("done", "numbers")

    def __init__(self, numbers: set[str]) -> None:
        self.numbers = numbers
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirmed(self, number: str) -> None:
        self.numbers.discard(number)
        if not self.numbers and not self.done.done():
            self.done.set_result(None)

    def failed(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(BrokerError(why))


class Confirming:
    """Publishes to a stream, and waits for the stream to confirm.

    Every message has a number, by which its confirmation is known, but all of a call share one
    future: `publish_async` of the client makes a task for every message.
    """

    def __init__(self, client: Client, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._inbox = client.new_inbox()
        self._numbers = count()
        self._waited: dict[str, Sent] = {}

    async def open(self) -> None:
        await self._client.subscribe(f"{self._inbox}.*", cb=self._heard)

    async def publish(self, messages: Sequence[tuple[str, bytes, dict[str, str]]]) -> None:
        """Returns when all of them are confirmed; a `BrokerError` if one is not."""
        numbers = [str(next(self._numbers)) for _ in messages]
        sent = Sent(set(numbers))
        self._waited.update(dict.fromkeys(numbers, sent))
        try:
            for number, (subject, body, headers) in zip(numbers, messages, strict=True):
                headers["Nats-Expected-Stream"] = self._stream
                await self._client.publish(subject, body, f"{self._inbox}.{number}", headers)
            await sent.done
        finally:
            for number in sent.numbers:
                self._waited.pop(number, None)
            if not sent.done.cancel() and not sent.done.cancelled():
                sent.done.exception()  # It was raised, or what was raised came before it.

    def give_up(self) -> None:
        """The connection is lost, and whatever the stream may have said with it."""
        for sent in {*self._waited.values()}:
            sent.failed("the connection is lost")

    async def _heard(self, message: Msg) -> None:
        number = message.subject.rpartition(".")[2]
        sent = self._waited.pop(number, None)
        if sent is None:
            return
        if not message.data:
            sent.failed("no stream has this subject")
        # Read only where there may be something wrong: most of what comes here is not.
        elif b'"error"' in message.data and "error" in (said := json.loads(message.data)):
            sent.failed(str(said["error"].get("description", said)))
        else:
            sent.confirmed(number)


class NatsSink:
    """A subject for hits and one for dead letters, both of a stream.

    A hit is JSON. A dead letter is the message's bytes, with `Fmware-Reason`, `Fmware-Id`,
    `Fmware-Tenant` and `Fmware-Source` as headers.
    """

    def __init__(
        self,
        name: str,
        *,
        stream: str,
        subject: str = "fmware.matches",
        dead_subject: str = "fmware.dead",
        url: str = "nats://127.0.0.1:4222",
        duplicate_seconds: float = 600.0,
        create: bool = False,
    ) -> None:
        self.name = name
        self._stream = stream
        self._subject = subject
        self._dead_subject = dead_subject
        self._url = url
        self._duplicate_seconds = duplicate_seconds
        self._create = create
        self._client: Client | None = None
        self._confirming: Confirming | None = None

    async def open(self) -> None:
        self._client = await connected(self._url, self.name, self._lost)
        context = self._client.jetstream()
        subjects = list(dict.fromkeys([self._subject, self._dead_subject]))
        window = {"duplicate_window": self._duplicate_seconds}
        await has_stream(context, self._stream, subjects, self._create, **window)
        self._confirming = Confirming(self._client, self._stream)
        await self._confirming.open()

    async def _lost(self) -> None:
        if self._confirming is not None:
            self._confirming.give_up()

    async def write(self, hits: Sequence[Hit]) -> None:
        await self._publish([(self._subject, hit.line(), {ID: hit.id}) for hit in hits])

    async def dead(self, letter: DeadLetter) -> None:
        headers = {
            ID: header(f"dead:{letter.tenant}:{letter.id}"),
            "Fmware-Id": header(letter.id),
            "Fmware-Tenant": header(letter.tenant),
            "Fmware-Source": header(letter.source),
            "Fmware-Reason": header(letter.reason),
        }
        await self._publish([(self._dead_subject, letter.body, headers)])

    async def _publish(self, messages: list[tuple[str, bytes, dict[str, str]]]) -> None:
        if self._confirming is None:
            raise BrokerError(f"{self.name} is not open")
        try:
            async with asyncio.timeout(CONFIRM):
                await self._confirming.publish(messages)
        except (BrokerError, NatsError, TimeoutError, OSError) as error:
            said = f"{self.name}: stream {self._stream!r} does not confirm"
            raise BrokerError(f"{said}: {_said(error)}") from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
        self._client = self._confirming = None
