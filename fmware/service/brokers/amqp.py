"""RabbitMQ: a queue in, an exchange out.

In: no more than `prefetch` messages are under way; each is acknowledged by itself. The id of a
message is its `message_id`; one that has none gets one that is new at every delivery, so that a
repeat is not known for one.

Out: hits are persistent, must be routed to a queue, and are confirmed by the broker before their
message is acknowledged. RabbitMQ drops no repeats: after a crash, or when the connection is lost
before a confirmation, hits may be there twice, with the same `message_id`, which is the hit's id.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import aio_pika
from aio_pika import RobustConnection
from aio_pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    DeliveryError,
    ProbableAuthenticationError,
)

from fmware.service.brokers.headers import header, short
from fmware.service.envelope import DEFAULT, Envelope
from fmware.service.errors import BrokerDown, BrokerError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from aio_pika.abc import (
        AbstractExchange,
        AbstractIncomingMessage,
        AbstractQueue,
    )

    from fmware.service.envelope import DeadLetter, Hit

__all__ = ["AmqpDelivery", "AmqpSink", "AmqpSource"]

FAULTS = (AMQPError, DeliveryError, ConnectionError, OSError, TimeoutError, RuntimeError)
"""What a connection that is lost, or a broker that refuses, raises."""
FAREWELL = 5.0
"""Seconds that a broker has to say that a connection is closed."""


class Connection(RobustConnection):
    """A connection that comes back by itself, and goes when nobody waits for it any more.

    The task that connects takes it for a lost connection when it is cancelled, and goes on: an
    event loop that ends would wait for it for ever, if it were not told to close.
    """

    async def connect(self, timeout: float | None = None) -> None:
        try:
            await super().connect(timeout)
        except BaseException:
            await self.close()
            raise


async def connected(url: str, name: str) -> RobustConnection:
    """A connection that comes back by itself.

    Raises `BrokerDown` if there is no broker, and a plain `BrokerError` if it refuses the user: the
    settings must be mended then.
    """
    where = url.rpartition("@")[2]
    try:
        return await aio_pika.connect_robust(
            url,
            connection_class=Connection,
            timeout=10,
            reconnect_interval=0.5,
            client_properties={"connection_name": f"fmware {name}"},
        )
    except (AuthenticationError, ProbableAuthenticationError) as error:
        said = f"{name}: RabbitMQ at {where} refuses the user or the password: {_said(error)}"
        raise BrokerError(said) from error
    except FAULTS as error:
        raise BrokerDown(f"{name}: no RabbitMQ at {where}: {_said(error)}") from error


async def ended(connection: RobustConnection) -> None:
    """Close a connection; a broker that does not answer is not waited for."""
    with suppress(*FAULTS):
        async with asyncio.timeout(FAREWELL):
            await connection.close()


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


# --- in -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class AmqpDelivery:
    """A message of a queue."""

    envelope: Envelope
    attempts: int
    message: AbstractIncomingMessage
    source: AmqpSource

    async def ack(self) -> None:
        await self.message.ack()

    async def nack(self, delay: float) -> None:
        """RabbitMQ knows no delay: for so long the message stays here, as one under way."""
        if delay:
            self.source.later(self.message, delay)
        else:
            await self.message.nack(requeue=True)


class AmqpSource:
    """The messages of a queue."""

    def __init__(
        self,
        name: str,
        *,
        queue: str,
        url: str = "amqp://guest:guest@127.0.0.1:5672/",
        tenant: str = DEFAULT,
        prefetch: int = 256,
        create: bool = False,
    ) -> None:
        self.name = name
        self._called = queue
        self._url = url
        self._tenant = tenant
        self._prefetch = prefetch
        self._create = create
        self._connection: RobustConnection | None = None
        self._queue: AbstractQueue | None = None
        self._later: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._connection = await connected(self._url, self.name)
        try:
            self._queue = await self._declared(self._connection)
        except BaseException:
            await self.close()
            raise

    async def _declared(self, connection: RobustConnection) -> AbstractQueue:
        try:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=self._prefetch)
            return await channel.declare_queue(self._called, durable=True, passive=not self._create)
        except ChannelNotFoundEntity:
            said = f"{self.name}: RabbitMQ has no queue {self._called!r}"
            raise BrokerError(f"{said}: make it, or say create = true") from None
        except FAULTS as error:
            raise BrokerError(f"{self.name}: queue {self._called!r}: {_said(error)}") from error

    async def deliveries(self) -> AsyncGenerator[AmqpDelivery, None]:
        assert self._queue is not None
        # When the iterator is closed it gives back what has come and was not taken.
        async with self._queue.iterator() as messages:
            async for message in messages:
                yield self._delivery(message)
        raise BrokerError(f"{self.name}: the connection to queue {self._called!r} is lost")

    def _delivery(self, message: AbstractIncomingMessage) -> AmqpDelivery:
        counted = message.headers.get("x-delivery-count")
        before = counted if isinstance(counted, int) else int(bool(message.redelivered))
        name = message.message_id or uuid4().hex
        envelope = Envelope(name, message.body, self._tenant, self.name)
        return AmqpDelivery(envelope, before + 1, message, self)

    def later(self, message: AbstractIncomingMessage, delay: float) -> None:
        """Give a message back in a while."""
        task = asyncio.create_task(self._nack(message, delay))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _nack(self, message: AbstractIncomingMessage, delay: float) -> None:
        await asyncio.sleep(delay)
        with suppress(*FAULTS):
            await message.nack(requeue=True)

    async def close(self) -> None:
        """What is not acknowledged goes back to the queue with the connection."""
        for task in list(self._later):
            task.cancel()
        if self._connection is not None:
            await ended(self._connection)
        self._connection = self._queue = None


# --- out ----------------------------------------------------------------------------------------


class AmqpSink:
    """An exchange, with a routing key for hits and one for dead letters.

    A hit is JSON. A dead letter is the message's bytes, with `reason`, `id`, `tenant` and `source`
    as headers.
    """

    def __init__(
        self,
        name: str,
        *,
        exchange: str = "",
        routing_key: str = "fmware.matches",
        dead_routing_key: str = "fmware.dead",
        url: str = "amqp://guest:guest@127.0.0.1:5672/",
        create: bool = False,
    ) -> None:
        self.name = name
        self._called = exchange
        self._key = routing_key
        self._dead_key = dead_routing_key
        self._url = url
        self._create = create
        self._connection: RobustConnection | None = None
        self._exchange: AbstractExchange | None = None

    async def open(self) -> None:
        self._connection = await connected(self._url, self.name)
        try:
            self._exchange = await self._declared(self._connection)
        except BaseException:
            await self.close()
            raise

    async def _declared(self, connection: RobustConnection) -> AbstractExchange:
        wanted = not self._create
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            if self._called:
                return await channel.declare_exchange(
                    self._called, aio_pika.ExchangeType.TOPIC, durable=True, passive=wanted
                )
            for key in dict.fromkeys((self._key, self._dead_key)):
                await channel.declare_queue(key, durable=True, passive=wanted)
        except ChannelNotFoundEntity as error:
            said = f"{self.name}: RabbitMQ has not all it is to write to: {_said(error)}"
            raise BrokerError(f"{said}; make it, or say create = true") from None
        except FAULTS as error:
            raise BrokerError(f"{self.name}: {_said(error)}") from error
        return channel.default_exchange

    async def write(self, hits: Sequence[Hit]) -> None:
        made = [
            aio_pika.Message(
                hit.line(),
                message_id=hit.id,
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            for hit in hits
        ]
        await self._publish(made, self._key)

    async def dead(self, letter: DeadLetter) -> None:
        made = aio_pika.Message(
            letter.body,
            message_id=short(f"dead:{letter.tenant}:{letter.id}"),
            content_type="application/xml",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            headers={
                "reason": header(letter.reason),
                "id": header(letter.id),
                "tenant": header(letter.tenant),
                "source": header(letter.source),
            },
        )
        await self._publish([made], self._dead_key)

    async def _publish(self, messages: list[aio_pika.Message], key: str) -> None:
        if self._exchange is None:
            raise BrokerError(f"{self.name} is not open")
        publish = self._exchange.publish
        sent = [asyncio.ensure_future(publish(each, key, timeout=30)) for each in messages]
        said = await asyncio.gather(*sent, return_exceptions=True)
        for error in said:
            if isinstance(error, BaseException):
                what = f"RabbitMQ does not confirm {key!r}: {_said(error)}"
                raise BrokerError(f"{self.name}: {what}") from error

    async def close(self) -> None:
        if self._connection is not None:
            await ended(self._connection)
        self._connection = self._exchange = None
