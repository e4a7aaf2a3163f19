"""RabbitMQ, the real one: from queue to queue."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aio_pika
import pytest

from fmware.service.brokers.amqp import AmqpSink, AmqpSource
from fmware.service.envelope import DeadLetter, Hit
from fmware.service.errors import BrokerDown, BrokerError
from fmware.service.flow import Flow, Outlet
from tests.service.shop import (
    BAD,
    Stubborn,
    engine,
    expected,
    found,
    message,
    need_rabbitmq,
    shop,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aio_pika.abc import AbstractChannel

URL = "amqp://guest:guest@127.0.0.1:5672/"

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(autouse=True)
def there() -> None:
    need_rabbitmq()


class Broker:
    """Three queues that are gone afterwards."""

    def __init__(self, channel: AbstractChannel) -> None:
        self.channel = channel
        self.mark = uuid4().hex[:10]
        self.queues = [f"{name}.{self.mark}" for name in ("in", "out", "dead")]

    def source(self, **options: Any) -> AmqpSource:
        return AmqpSource("in", **{"queue": self.queues[0], "create": True, **options})

    def sink(self, **options: Any) -> AmqpSink:
        keys = {"routing_key": self.queues[1], "dead_routing_key": self.queues[2]}
        return AmqpSink("out", **{**keys, "create": True, **options})

    async def send(self, numbers: Any, body: bytes | None = None) -> None:
        for number in numbers:
            made = aio_pika.Message(
                message(number) if body is None else body, message_id=f"m{number}"
            )
            await self.channel.default_exchange.publish(made, self.queues[0])

    async def read(self, name: str) -> list[Any]:
        queue = await self.channel.get_queue(name)
        read = []
        while (each := await queue.get(fail=False, no_ack=True)) is not None:
            read.append(each)
        return read


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    connection = await aio_pika.connect(URL)
    made = Broker(await connection.channel())
    try:
        yield made
    finally:
        for name in made.queues:
            await made.channel.queue_delete(name)
        await connection.close()


def test_from_queue_to_queue(tmp_path: Path) -> None:
    index = shop(tmp_path)

    async def run() -> None:
        async with broker() as there, engine(index) as at_work:
            outlet = Outlet([there.sink()])
            await outlet.open()
            made = Flow(there.source(prefetch=50), at_work, outlet)
            await made.start()
            await there.send(range(300))
            await there.send(range(1000, 1005), BAD)
            await until(lambda: made.snapshot()["acknowledged"] == 305)
            await made.stop()
            await outlet.close()
            read = await there.read(there.queues[1])
            told = [json.loads(each.body) for each in read]
            assert found(told) == expected(range(300))
            assert [each.message_id for each in read] == [each["id"] for each in told]
            assert {each.delivery_mode for each in read} == {2}
            dead = await there.read(there.queues[2])
            assert {each.headers["id"] for each in dead} == {f"m{i}" for i in range(1000, 1005)}
            assert {each.body for each in dead} == {BAD}
            assert all("line 1" in each.headers["reason"] for each in dead)
            assert await there.read(there.queues[0]) == []

    asyncio.run(run())


def test_what_is_not_acknowledged_is_given_again_and_what_is_under_way_is_bounded() -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source(prefetch=5)
            await source.open()
            await there.send(range(10))
            stream = source.deliveries()
            first = [await asyncio.wait_for(anext(stream), 10) for _ in range(5)]
            assert [each.envelope.id for each in first] == [f"m{i}" for i in range(5)]
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await first[0].nack(0.0)
            again = await asyncio.wait_for(waiting, 10)
            assert (again.envelope.id, again.attempts) == ("m0", 2)
            await first[1].nack(0.05)
            again = await asyncio.wait_for(anext(stream), 10)
            assert again.envelope.id == "m1"
            await first[2].ack()
            assert (await asyncio.wait_for(anext(stream), 10)).envelope.id == "m5"
            await stream.aclose()
            await source.close()
            left = {each.message_id for each in await there.read(there.queues[0])}
            assert left == {f"m{i}" for i in range(10)} - {"m2"}

    asyncio.run(run())


def test_a_message_without_an_id_gets_one() -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source(tenant="t")
            await source.open()
            for _ in range(2):
                exchange = there.channel.default_exchange
                await exchange.publish(aio_pika.Message(b"<a/>"), there.queues[0])
            stream = source.deliveries()
            one, two = [(await asyncio.wait_for(anext(stream), 10)).envelope for _ in range(2)]
            assert one.id
            assert one.id != two.id
            assert (one.tenant, one.source, one.body) == ("t", "in", b"<a/>")
            await stream.aclose()
            await source.close()

    asyncio.run(run())


def test_what_is_not_there_is_said() -> None:
    async def run() -> None:
        async with broker() as there:
            with pytest.raises(BrokerError, match="in: RabbitMQ has no queue"):
                await there.source(create=False).open()
            with pytest.raises(BrokerError, match="say create = true"):
                await there.sink(create=False).open()
            with pytest.raises(BrokerError, match=r"no RabbitMQ at 127\.0\.0\.1:1/") as raised:
                await there.sink(url="amqp://guest:secret@127.0.0.1:1/").open()
            assert "secret" not in str(raised.value)

    asyncio.run(run())


def test_what_no_queue_takes_is_not_handed_over() -> None:
    async def run() -> None:
        async with broker() as there:
            sink = there.sink()
            await sink.open()
            one = Hit("m1:s:0", "m1", "default", "s", {})
            await sink.write([one])
            await there.channel.queue_delete(there.queues[1])
            with pytest.raises(BrokerError, match="does not confirm"):
                await sink.write([one])
            await sink.dead(DeadLetter("m" * 400, b"\x00<", "line 1:\r\nno ü"))
            await sink.close()
            (dead,) = await there.read(there.queues[2])
            assert (dead.body, dead.headers["reason"]) == (b"\x00<", "line 1:  no \\xfc")

    asyncio.run(run())


class Line:
    """A line to the broker that can be cut."""

    def __init__(self) -> None:
        self._open: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"amqp://guest:guest@127.0.0.1:{port}/"

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", 5672)
        self._open += [writer, back]
        for ends in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._copy(*ends))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def test_a_line_that_is_cut_loses_nothing(tmp_path: Path) -> None:
    index = shop(tmp_path)

    async def run() -> None:
        async with broker() as there, engine(index) as at_work, AsyncExitStack() as after:
            line = Line()
            url = await line.start()
            after.push_async_callback(line.close)
            sink = Stubborn()
            outlet = Outlet([there.sink(url=url), sink])
            await outlet.open()
            after.push_async_callback(outlet.close)
            made = Flow(there.source(url=url, prefetch=20), at_work, outlet)
            await made.start()
            after.push_async_callback(made.stop)
            for part in (range(300), range(300, 600)):
                # Each part brings more, however soon the one before was done.
                before = len({hit.id for hit in sink.hits})
                await there.send(part)
                await until(partial(lambda n: len({hit.id for hit in sink.hits}) > n, before))
                line.cut()
            await until(lambda: len({hit.id for hit in sink.hits}) == 480)
            while (
                await there.channel.declare_queue(there.queues[0], passive=True)
            ).declaration_result.message_count or made.snapshot()["under_way"]:
                await asyncio.sleep(0.02)
            await after.aclose()
            told = [json.loads(each.body) for each in await there.read(there.queues[1])]
            # RabbitMQ drops no repeats: there are the same ids twice, but no id is missing.
            assert {each["id"]: each for each in told}.keys() == {hit.id for hit in sink.hits}
            assert set(found(told)) == set(expected(range(600)))

    asyncio.run(run())


class Silent:
    """Takes connections, and says nothing, ever."""

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"amqp://guest:guest@127.0.0.1:{port}/"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


@pytest.mark.parametrize("made", [AmqpSource("in", queue="q"), AmqpSink("out")])
def test_a_connection_that_nobody_waits_for_does_not_keep_a_loop_from_ending(
    made: AmqpSource | AmqpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with Silent() as url:
            monkeypatch.setattr(made, "_url", url)
            opening = asyncio.create_task(made.open())
            await asyncio.sleep(0.2)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            assert opening.cancelled()

    # On a thread, so that a loop that does not end is seen, and not waited for.
    ending = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    ending.start()
    ending.join(20)
    assert not ending.is_alive()


def test_a_wrong_password_is_no_broker_that_is_down() -> None:
    async def run() -> None:
        url = "amqp://guest:wrong@127.0.0.1:5672/"
        with pytest.raises(BrokerError, match="refuses the user or the password") as refused:
            await AmqpSource("a", queue="q", url=url).open()
        assert not isinstance(refused.value, BrokerDown)
        assert "wrong" not in str(refused.value)

    asyncio.run(run())
