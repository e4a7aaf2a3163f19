"""Sources and sinks that need no server: files, pipes, one's own."""

from __future__ import annotations

import asyncio
import json
import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fmware.service.brokers import files as module
from fmware.service.brokers import sink_of, source_of
from fmware.service.brokers.files import FilesSink, FilesSource
from fmware.service.brokers.stdio import StdioSink, StdioSource
from fmware.service.envelope import DeadLetter, Envelope, Hit
from fmware.service.errors import BrokerError
from tests.service.shop import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from fmware.service.flow import Delivery


def hit(number: int) -> Hit:
    return Hit(f"m{number}:s:", f"m{number}", "default", "s", {"local": {"value": f"ü{number}"}})


def letter(number: int, body: bytes = b"<a") -> DeadLetter:
    return DeadLetter(f"m{number}", body, "cannot be read", "default", "in")


def lines(folder: Path, stem: str = "matches") -> list[dict[str, Any]]:
    paths = sorted(folder.glob(f"{stem}-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


async def taken(source: Any, number: int) -> list[Any]:
    """The first deliveries of a source."""
    found: list[Any] = []
    stream = source.deliveries()
    while len(found) < number:
        found.append(await asyncio.wait_for(anext(stream), 10))
    await stream.aclose()
    return found


# --- files in ---------------------------------------------------------------------------------


def test_files_are_given_by_name_and_are_gone_when_done(tmp_path: Path) -> None:
    inbox, done = tmp_path / "in", tmp_path / "done"
    inbox.mkdir()
    for name in ("b.xml", "a.xml", ".c.xml", "d.xml.tmp", "e.txt"):
        (inbox / name).write_text(f"<{name[0]}/>")
    (inbox / "f.xml").mkdir()

    async def run() -> None:
        source = FilesSource("in", path=inbox, done=done, tenant="t", poll_seconds=0.01)
        await source.open()
        first, second = await taken(source, 2)
        assert [first.envelope.body, second.envelope.body] == [b"<a/>", b"<b/>"]
        assert (first.envelope.tenant, first.envelope.source) == ("t", "in")
        await first.ack()
        await second.nack(0)
        await asyncio.sleep(0)
        (again,) = await taken(source, 1)
        assert again.envelope == second.envelope
        (inbox / "late.xml").write_text("<late/>")
        (late,) = await taken(source, 1)
        assert late.envelope.body == b"<late/>"
        await again.ack()
        await source.close()

    asyncio.run(run())
    assert sorted(each.name for each in done.iterdir()) == ["a.xml", "b.xml"]
    assert "late.xml" in {each.name for each in inbox.iterdir()}


def test_a_file_is_known_by_its_name_and_its_bytes(tmp_path: Path) -> None:
    async def ids(body: str) -> str:
        (tmp_path / "a.xml").write_text(body)
        source = FilesSource("in", path=tmp_path)
        await source.open()
        (delivery,) = await taken(source, 1)
        await delivery.ack()
        return str(delivery.envelope.id)

    first, other, again = (asyncio.run(ids(body)) for body in ("<a/>", "<b/>", "<a/>"))
    assert first == again != other
    assert not (tmp_path / "a.xml").exists()


def test_no_more_of_a_file_is_read_than_is_needed_to_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(b"x" * 5000)

    async def run() -> int:
        source = FilesSource("in", path=tmp_path, largest=100)
        await source.open()
        return len((await taken(source, 1))[0].envelope.body)

    assert asyncio.run(run()) == 101


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"in: .*nowhere is not a directory"):
        asyncio.run(FilesSource("in", path=tmp_path / "nowhere").open())


# --- files out --------------------------------------------------------------------------------


def test_files_hold_every_hit_once_over_restarts_and_crashes(tmp_path: Path) -> None:
    rng = random.Random(5)

    async def run() -> None:
        written: list[int] = []
        for _ in range(12):
            sink = FilesSink("out", path=tmp_path, rotate_bytes=500)
            await sink.open()
            for _ in range(rng.randrange(6)):
                some = [rng.randrange(60) for _ in range(rng.randrange(1, 5))]
                await sink.write([hit(number) for number in some])
                written += some
            await sink.dead(letter(3))
            await sink.close()
            last = sorted(tmp_path.glob("matches-*.jsonl"))[-1]
            with last.open("ab") as file:
                file.write(hit(99).line()[: rng.randrange(30)])
        sink = FilesSink("out", path=tmp_path)
        await sink.open()
        await sink.close()
        assert [each["id"] for each in lines(tmp_path)] == [
            hit(number).id for number in dict.fromkeys(written)
        ]

    asyncio.run(run())
    assert len(list(tmp_path.glob("matches-*.jsonl"))) > 3
    (dead,) = lines(tmp_path, "dead")
    assert dead == {"id": "m3", "body": "<a", "reason": "cannot be read", "tenant": "default"} | {
        "source": "in"
    }


def test_so_many_ids_are_known_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN", 3)

    async def run() -> None:
        sink = FilesSink("out", path=tmp_path)
        await sink.open()
        for number in (1, 2, 3, 1, 4, 1):
            await sink.write([hit(number)])
        await sink.close()

    asyncio.run(run())
    assert [each["message"] for each in lines(tmp_path)] == ["m1", "m2", "m3", "m4", "m1"]


def test_a_disk_that_is_full_is_an_error_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        sink = FilesSink("out", path=tmp_path)
        await sink.open()
        await sink.write([hit(1)])
        write = os.write

        def full(file: int, data: Any) -> int:
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return write(file, bytes(data)[:15])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(BrokerError, match="No space left"):
                await sink.write([hit(2)])
        assert [each["message"] for each in lines(tmp_path)] == ["m1"]
        await sink.write([hit(2)])
        await sink.close()

    asyncio.run(run())
    assert [each["message"] for each in lines(tmp_path)] == ["m1", "m2"]


def test_bytes_that_are_no_text_survive_in_a_dead_letter(tmp_path: Path) -> None:
    assert letter(1, b"\xff\xfe").to_json()["base64"] == "//4="
    assert "body" not in json.loads(letter(1, b"\xff\xfe").line())


# --- pipes ------------------------------------------------------------------------------------


def test_documents_of_a_pipe_are_cut_and_the_end_waits_for_all() -> None:
    async def run() -> None:
        read, write = os.pipe()
        source = StdioSource("in", file=read, largest=100)
        await source.open()
        os.write(write, b"<?xml version='1.0'?><a/>\n<b>x</b><c")
        stream = source.deliveries()
        first, second = await anext(stream), await anext(stream)
        assert (first.envelope.body.strip(), second.envelope.body) == (
            b"<?xml version='1.0'?><a/>",
            b"<b>x</b>",
        )
        os.write(write, b">" + b" " * 200 + b"</c><d/>")
        os.close(write)
        huge, last = await anext(stream), await anext(stream)
        assert len(huge.envelope.body) > 100
        assert last.envelope.body == b"<d/>"
        for each in (first, second, huge):
            await each.ack()
        await last.nack(0.01)
        again = await anext(stream)
        assert (again.envelope, again.attempts) == (last.envelope, 2)
        await again.ack()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        ids = {each.envelope.id for each in (first, second, huge, last)}
        assert len(ids) == 4
        await source.close()
        os.close(read)

    asyncio.run(run())


def test_a_file_as_standard_input(tmp_path: Path) -> None:
    (tmp_path / "in.xml").write_text("<a/><b/>")

    async def run() -> list[bytes]:
        with (tmp_path / "in.xml").open("rb") as file:
            source = StdioSource("in", file=file.fileno())
            await source.open()
            found = await taken(source, 2)
            await source.close()
        return [each.envelope.body for each in found]

    assert asyncio.run(run()) == [b"<a/>", b"<b/>"]


def test_a_reader_that_stops_holds_up_standard_output() -> None:
    async def run() -> None:
        read, write = os.pipe()
        sink = StdioSink("out", file=write)
        await sink.open()
        numbers = range(5000)
        writing = asyncio.create_task(sink.write([hit(number) for number in numbers]))
        await asyncio.sleep(0.05)
        assert not writing.done()
        data = b""
        while data.count(b"\n") < 5000:
            data += await asyncio.to_thread(os.read, read, 1 << 16)
        await writing
        await sink.dead(letter(1))
        data += os.read(read, 1 << 16)
        told = [json.loads(line) for line in data.splitlines()]
        assert [each["message"] for each in told[:-1]] == [f"m{number}" for number in numbers]
        assert told[-1]["dead"]["reason"] == "cannot be read"
        await sink.close()
        os.close(read)
        os.close(write)

    asyncio.run(run())


def test_a_reader_that_is_gone_is_an_error() -> None:
    async def run() -> None:
        read, write = os.pipe()
        sink = StdioSink("out", file=write)
        await sink.open()
        os.close(read)
        with pytest.raises(BrokerError, match="standard output"):
            await sink.write([hit(1)])
        await sink.close()
        os.close(write)

    asyncio.run(run())


# --- one's own --------------------------------------------------------------------------------


class Tail:
    """A source in a few lines, as the documentation has it."""

    def __init__(self, name: str, path: str, tenant: str = "default") -> None:
        self.name, self._path, self._tenant = name, path, tenant

    async def open(self) -> None:
        self._file = open(self._path, "rb")  # noqa: SIM115, PTH123

    async def deliveries(self) -> AsyncIterator[Delivery]:
        for number, line in enumerate(self._file):
            yield Line(Envelope(f"{self._path}:{number}", line, self._tenant, self.name))

    async def close(self) -> None:
        self._file.close()


@dataclass
class Line:
    envelope: Envelope

    async def ack(self) -> None: ...

    async def nack(self, delay: float) -> None: ...


class Half:
    """No sink: it cannot take dead letters."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def open(self) -> None: ...

    async def write(self, hits: Sequence[Hit]) -> None: ...

    async def close(self) -> None: ...


def test_a_class_of_ones_own_is_loaded_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("<a/>\n<b/>\n")
    about = {
        "kind": "python",
        "name": "journal",
        "use": f"{__name__}:Tail",
        "options": {"path": str(tmp_path / "journal")},
        "tenant": "t",
    }

    async def run() -> list[bytes]:
        source = source_of(about)
        await source.open()
        found = [delivery.envelope async for delivery in source.deliveries()]
        await source.close()
        assert {(each.tenant, each.source) for each in found} == {("t", "journal")}
        return [each.body.strip() for each in found]

    assert asyncio.run(run()) == [b"<a/>", b"<b/>"]


@pytest.mark.parametrize(
    ("use", "options", "said"),
    [
        ("nothing.of.the:Kind", {}, "source s: cannot load 'nothing.of.the:Kind'.*No module"),
        (f"{__name__}:Nobody", {}, "cannot load.*Nobody"),
        ("no colon", {}, "cannot load 'no colon': it is not module:Class"),
        (f"{__name__}:Tail", {"other": 1}, "source s: .*other"),
        (f"{__name__}:Line", {}, "source s: .*"),
    ],
)
def test_a_class_that_cannot_be_used_says_why(use: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BrokerError, match=said):
        source_of({"kind": "python", "name": "s", "use": use, "options": options})


def test_a_class_that_lacks_a_method_says_which() -> None:
    with pytest.raises(BrokerError, match="sink s: Half has no dead"):
        sink_of({"kind": "python", "name": "s", "use": f"{__name__}:Half"})


def test_kinds_are_made_from_their_options(tmp_path: Path) -> None:
    async def run() -> None:
        source = source_of({"kind": "files", "name": "in", "path": tmp_path}, largest=7)
        sink = sink_of({"kind": "files", "name": "out", "path": tmp_path / "out"})
        assert (source.name, sink.name) == ("in", "out")
        (tmp_path / "a.xml").write_bytes(b"<a></a>   ")
        await source.open()
        assert len((await taken(source, 1))[0].envelope.body) == 8
        await sink.open()
        await sink.write([hit(1)])
        await sink.close()
        await until(lambda: lines(tmp_path / "out"))

    asyncio.run(run())
