"""NATS JetStream, the real one: from stream to stream."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from fmware.service.brokers.nats import NatsSink, NatsSource, _about
from fmware.service.envelope import DeadLetter, Hit, rfc3339
from fmware.service.errors import BrokerDown, BrokerError
from fmware.service.flow import Flow, Outlet
from tests.service.shop import (
    BAD,
    Stubborn,
    engine,
    expected,
    found,
    listens,
    message,
    need_nats,
    shop,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.js import JetStreamContext

pytestmark = pytest.mark.nats


@pytest.fixture(autouse=True)
def there() -> None:
    need_nats()


class Broker:
    """Two streams that are gone afterwards."""

    def __init__(self, context: JetStreamContext) -> None:
        self.context = context
        self.mark = uuid4().hex[:10]
        self.name_in, self.name_out = f"IN{self.mark}", f"OUT{self.mark}"

    def source(self, **options: Any) -> NatsSource:
        common = {"stream": self.name_in, "subject": f"in.{self.mark}", "create": True}
        return NatsSource("in", **{**common, **options})

    def sink(self, **options: Any) -> NatsSink:
        common = {"stream": self.name_out, "create": True}
        subjects = {"subject": f"out.{self.mark}", "dead_subject": f"dead.{self.mark}"}
        return NatsSink("out", **{**common, **subjects, **options})

    async def send(self, numbers: Any, body: bytes | None = None) -> None:
        for number in numbers:
            await self.context.publish_async(
                f"in.{self.mark}",
                message(number) if body is None else body,
                headers={"Nats-Msg-Id": f"m{number}"},
            )
        await self.context.publish_async_completed()

    async def count(self) -> int:
        return (await self.context.stream_info(self.name_out)).state.messages

    async def read(self, kind: str = "out") -> list[Any]:
        """All messages of a subject of the second stream."""
        read: list[Any] = []

        async def take(message: Any) -> None:
            read.append(message)

        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subject = f"{kind}.{self.mark}"
        inbox = await self.context.subscribe(subject, stream=self.name_out, cb=take, config=config)
        about = await inbox.consumer_info()
        assert about.delivered is not None
        count = (about.num_pending or 0) + about.delivered.consumer_seq
        await until(lambda: len(read) == count)
        await inbox.unsubscribe()
        return read


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    client = await nats.connect("nats://127.0.0.1:4222")
    made = Broker(client.jetstream())
    try:
        yield made
    finally:
        for name in (made.name_in, made.name_out):
            with suppress(NotFoundError):
                await made.context.delete_stream(name)
        await client.close()


def hits(read: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in read]


def test_from_stream_to_stream(tmp_path: Path) -> None:
    index = shop(tmp_path)

    async def run() -> None:
        async with broker() as there, engine(index) as at_work:
            sink = there.sink()
            outlet = Outlet([sink])
            await outlet.open()
            made = Flow(there.source(batch=100), at_work, outlet)
            await made.start()
            await there.send(range(1000))
            await there.send(range(2000, 2010), BAD)
            await until(lambda: made.snapshot()["acknowledged"] == 1010)
            await made.stop()
            await outlet.close()
            read = await there.read()
            assert found(hits(read)) == expected(range(1000))
            assert all(
                each.headers["Nats-Msg-Id"] == each_id["id"]
                for each, each_id in zip(read, hits(read), strict=True)
            )
            dead = await there.read("dead")
            assert {each.headers["Fmware-Id"] for each in dead} == {
                f"m{number}" for number in range(2000, 2010)
            }
            assert {each.data for each in dead} == {BAD}
            assert all("line 1" in each.headers["Fmware-Reason"] for each in dead)
            left = await there.context.consumer_info(there.name_in, "fmware")
            assert (left.num_pending, left.num_ack_pending) == (0, 0)

    asyncio.run(run())


def test_what_is_not_acknowledged_is_given_again_and_what_is_under_way_is_bounded() -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source(batch=10, ack_seconds=1.0)
            await source.open()
            await there.send(range(30))
            stream = source.deliveries()
            first = [await asyncio.wait_for(anext(stream), 10) for _ in range(10)]
            assert [each.envelope.id for each in first] == [f"m{i}" for i in range(10)]
            assert {each.attempts for each in first} == {1}
            waiting = asyncio.ensure_future(anext(stream))
            # Longer than the broker waits: it is told that they are not lost.
            await asyncio.sleep(1.6)
            assert not waiting.done()
            await first[3].nack(0)
            again = await asyncio.wait_for(waiting, 10)
            assert (again.envelope.id, again.attempts) == ("m3", 2)
            for each in (*first[:3], *first[4:], again):
                await each.ack()
            second = [await asyncio.wait_for(anext(stream), 10) for _ in range(3)]
            assert [each.envelope.id for each in second] == ["m10", "m11", "m12"]
            await stream.aclose()
            await source.close()
            # What had come, and nobody took, is there at once for whoever is next.
            other = there.source(batch=10, ack_seconds=60.0)
            await other.open()
            stream = other.deliveries()
            got = {(await asyncio.wait_for(anext(stream), 10)).envelope.id for _ in range(7)}
            assert got <= {f"m{i}" for i in range(10, 30)}
            await stream.aclose()
            await other.close()

    asyncio.run(run())


def test_the_stream_drops_hits_that_it_has() -> None:
    async def run() -> None:
        async with broker() as there:
            one = Hit("m1:s:0", "m1", "default", "s", {})
            letter = DeadLetter("m\n2", b"\x00<", "line 1:\r\nno ü", "default", "in")
            for _ in range(2):
                sink = there.sink()
                await sink.open()
                await sink.write([one, Hit("m1:s:1", "m1", "default", "s", {})])
                await sink.dead(letter)
                await sink.close()
            assert await there.count() == 3
            (dead,) = await there.read("dead")
            assert dead.data == b"\x00<"
            assert dead.headers["Fmware-Reason"] == "line 1:  no \\xfc"

    asyncio.run(run())


def test_a_hit_comes_again_once_the_window_of_a_stream_that_was_made_here_is_over() -> None:
    async def run() -> None:
        async with broker() as there:
            one = Hit("m1:s:0", "m1", "default", "s", {})
            sink = there.sink(duplicate_seconds=1.0)
            await sink.open()
            about = await there.context.stream_info(there.name_out)
            assert about.config.duplicate_window == 1.0
            await sink.write([one])
            await sink.write([one])
            assert await there.count() == 1
            await asyncio.sleep(2.5)
            await sink.write([one])
            assert await there.count() == 2
            await sink.close()
            # One that is there is its owner's: it stays as it is.
            other = there.sink(duplicate_seconds=300.0)
            await other.open()
            about = await there.context.stream_info(there.name_out)
            assert about.config.duplicate_window == 1.0
            await other.close()

    asyncio.run(run())


async def taken(source: NatsSource, count: int) -> list[str]:
    """The ids of the next messages, acknowledged."""
    await source.open()
    stream = source.deliveries()
    got = []
    for _ in range(count):
        delivery = await asyncio.wait_for(anext(stream), 10)
        await delivery.ack()
        got.append(delivery.envelope.id)
    await stream.aclose()
    await source.close()
    return got


def test_a_durable_goes_on_where_it_was_and_another_one_begins_anew() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.context.add_stream(
                StreamConfig(name=there.name_in, subjects=[f"in.{there.mark}"])
            )
            await there.send(range(8))
            assert await taken(there.source(durable="one", batch=1), 5) == [
                f"m{number}" for number in range(5)
            ]
            # Its other settings may change meanwhile.
            again = there.source(durable="one", batch=2, ack_seconds=7.0)
            assert await taken(again, 3) == ["m5", "m6", "m7"]
            about = await there.context.consumer_info(there.name_in, "one")
            assert (about.config.ack_wait, about.config.max_ack_pending) == (7.0, 2)
            assert (about.num_pending, about.num_ack_pending) == (0, 0)
            assert await taken(there.source(durable="two"), 8) == [f"m{n}" for n in range(8)]
            names = {each.name for each in await there.context.consumers_info(there.name_in)}
            assert names == {"one", "two"}

    asyncio.run(run())


def test_two_services_with_one_durable_share_the_messages() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.context.add_stream(
                StreamConfig(name=there.name_in, subjects=[f"in.{there.mark}"])
            )
            # All that are asked for at once are one's: the others come while both ask.
            sources = [there.source(durable="shared", batch=1) for _ in range(2)]
            halves = [asyncio.create_task(taken(each, 10)) for each in sources]
            await there.send(range(20))
            first, second = await asyncio.gather(*halves)
            assert sorted([*first, *second]) == sorted(f"m{number}" for number in range(20))

    asyncio.run(run())


@pytest.mark.parametrize("name", ["a.b", "a b", "*"])
def test_a_name_that_nats_does_not_take_is_said(name: str) -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source(durable=name)
            with pytest.raises(BrokerError, match="refuses consumer"):
                await source.open()
            await source.close()

    asyncio.run(run())


def test_ids_are_the_senders_or_the_numbers_of_the_stream() -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source(tenant="t")
            await source.open()
            await there.context.publish(f"in.{there.mark}", b"<a/>")
            stream = source.deliveries()
            delivery = await asyncio.wait_for(anext(stream), 10)
            assert delivery.envelope.id == f"{there.name_in}:1"
            assert (delivery.envelope.tenant, delivery.envelope.source) == ("t", "in")
            assert delivery.envelope.time == rfc3339(delivery.message.metadata.timestamp)
            await stream.aclose()
            await source.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("where", "wanted"),
    [("in.c", (1, 7)), ("domain.account.in.c", (2, 8)), ("_.account.in.c", (3, 9))],
)
def test_what_a_stream_says_of_a_message_is_read_in_both_forms(
    where: str, wanted: tuple[int, int]
) -> None:
    given, number = wanted
    rest = ".token" if where != "in.c" else ""
    reply = f"$JS.ACK.{where}.{given}.{number}.5.1700000000123456789.0{rest}"
    assert _about(reply) == (given, number, "2023-11-14T22:13:20.123Z")
    with pytest.raises(BrokerError):
        _about("_INBOX.x.y")


def test_a_stream_that_is_not_there_is_said() -> None:
    async def run() -> None:
        async with broker() as there:
            for each in (there.source(create=False), there.sink(create=False)):
                with pytest.raises(BrokerError, match="has no stream"):
                    await each.open()
                await each.close()
            nobody = "nats://user:secret@127.0.0.1:1"
            with pytest.raises(BrokerError, match=r"no NATS at 127\.0\.0\.1:1") as raised:
                await there.sink(url=nobody).open()
            assert "secret" not in str(raised.value)

    asyncio.run(run())


def test_a_subject_that_the_stream_does_not_have_is_an_error() -> None:
    async def run() -> None:
        async with broker() as there:
            config = StreamConfig(name=there.name_out, subjects=[f"out.{there.mark}"])
            await there.context.add_stream(config)
            sink = there.sink()
            await sink.open()
            with pytest.raises(BrokerError, match="does not confirm: no stream"):
                await sink.dead(DeadLetter("m", b"", "bad"))
            await sink.close()

    asyncio.run(run())


def test_a_consumer_that_is_gone_ends_the_deliveries() -> None:
    async def run() -> None:
        async with broker() as there:
            source = there.source()
            await source.open()
            waiting = asyncio.ensure_future(anext(source.deliveries()))
            await asyncio.sleep(0.1)
            await there.context.delete_consumer(there.name_in, "fmware")
            with pytest.raises(BrokerError, match="NATS says"):
                await asyncio.wait_for(waiting, 20)
            await source.close()

    asyncio.run(run())


def test_a_server_that_dies_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("no nats-server to kill")
    index = shop(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    asked = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path / "store")]

    running: list[subprocess.Popen[bytes]] = []

    async def start() -> None:
        running.append(subprocess.Popen(asked, stderr=subprocess.DEVNULL))
        await until(lambda: listens(port))

    def kill() -> None:
        running[-1].kill()
        running[-1].wait()

    async def run() -> None:
        url = f"nats://127.0.0.1:{port}"
        await start()
        client = await nats.connect(url, reconnect_time_wait=0.1, max_reconnect_attempts=-1)
        there = Broker(client.jetstream())
        async with engine(index) as at_work:
            sink = Stubborn()
            outlet = Outlet([there.sink(url=url), sink])
            await outlet.open()
            made = Flow(there.source(url=url, ack_seconds=1.0, batch=32), at_work, outlet)
            await made.start()
            await there.send(range(2000))
            for _ in range(2):
                before = len(sink.hits)
                await until(partial(lambda before: len(sink.hits) > before, before))
                kill()
                await asyncio.sleep(0.1)
                await start()
            await until(lambda: len({hit.id for hit in sink.hits}) == 1600)
            consumer = (there.name_in, "fmware")
            while (left := await there.context.consumer_info(*consumer)).num_ack_pending:
                await asyncio.sleep(0.05)
            assert left.num_pending == 0
            await made.stop()
            await outlet.close()
        assert found(hits(await there.read())) == expected(range(2000))
        await client.close()

    try:
        asyncio.run(run())
    finally:
        kill()


def test_a_wrong_password_is_no_broker_that_is_down(tmp_path: Path) -> None:
    program = shutil.which("nats-server")
    if program is None:
        pytest.skip("no nats-server to refuse a password")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    asked = [program, "-a", "127.0.0.1", "-p", str(port), "--user", "u", "--pass", "right"]
    running = subprocess.Popen(asked, stderr=subprocess.DEVNULL)

    async def run() -> None:
        await until(lambda: listens(port))
        url = f"nats://u:wrong@127.0.0.1:{port}"
        with pytest.raises(BrokerError, match="refuses the user or the password") as refused:
            await NatsSource("n", stream="S", subject="s", url=url).open()
        assert not isinstance(refused.value, BrokerDown)
        assert "wrong" not in str(refused.value)

    try:
        asyncio.run(run())
    finally:
        running.kill()
        running.wait()
