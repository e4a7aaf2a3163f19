"""The match log: in order, once, bounded, and whole after any end."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.service.envelope import DeadLetter, Hit
from fmware.service.log import MatchLog
from fmware.service.segments import EVERY, Segment, packed
from fmware.service.shelf import Bound

if TYPE_CHECKING:
    from pathlib import Path


def hit(number: int, statement: str = "s", tenant: str = "t", size: int = 10) -> Hit:
    return Hit(f"m{number}:{statement}", f"m{number}", tenant, statement, {"local": "x" * size})


async def all_of(log: MatchLog, tenant: str = "t", after: int = 0, **asked: str) -> list[int]:
    """Positions that a reader finds, page by page."""
    found: list[int] = []
    while after < log.last:
        page = await log.read(tenant, after, 7, **asked)
        found += [entry.position for entry in page.entries]
        assert page.position > after
        after = page.position
    return found


def test_hits_are_found_again_by_position_and_by_statement(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path)
        await log.open()
        for number in range(0, 300, 3):
            some = [hit(number), hit(number + 1, "other"), hit(number + 2, tenant="u")]
            await log.write(some)
        assert (log.first, log.last) == (1, 300)
        whole = await all_of(log)
        assert len(whole) == 200
        assert await all_of(log, after=150) == [each for each in whole if each > 150]
        assert await all_of(log, statement="other") == list(range(2, 301, 3))
        assert await all_of(log, "u") == list(range(3, 301, 3))
        page = await log.read("t", 297, 10)
        assert json.loads(page.entries[0].line) == {"position": 298, **hit(297).to_json()}
        await log.close()

    asyncio.run(check())


def test_the_disk_and_memory_tell_the_same(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path, segment=1 << 16)
        await log.open()
        await log.write([hit(n, f"s{n % 3}", size=500) for n in range(1000)])
        recent = [await all_of(log, after=after, statement="s1") for after in (0, 1, 499, 998)]
        await log.close()
        again = MatchLog(tmp_path)
        await again.open()
        stored = [await all_of(again, after=after, statement="s1") for after in (0, 1, 499, 998)]
        await again.close()
        assert recent == stored

    asyncio.run(check())


def test_what_comes_again_is_logged_once_also_after_a_restart(tmp_path: Path) -> None:
    async def check() -> None:
        for _ in range(2):
            log = MatchLog(tmp_path)
            await log.open()
            await log.write([hit(1), hit(2), hit(1)])
            await asyncio.gather(log.write([hit(2), hit(3)]), log.write([hit(3)]))
            assert log.last == 3
            await log.close()

    asyncio.run(check())


def test_the_oldest_go_and_the_rest_stays_in_place(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path, size=200_000, segment=20_000, sync=False)
        await log.open()
        for number in range(0, 5000, 50):
            await log.write([hit(number + at, size=100) for at in range(50)])
        assert log.first > 1
        assert log.size <= 220_000
        assert sum(file.stat().st_size for file in tmp_path.glob("*.log")) == log.size
        assert await all_of(log) == list(range(log.first, 5001))
        first, last = log.first, log.last
        await log.close()
        again = MatchLog(tmp_path)
        await again.open()
        assert (again.first, again.last) == (first, last)
        await again.close()

    asyncio.run(check())


def test_a_reader_waits_and_is_woken(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path)
        await log.open()
        assert not await log.wait(0, 0.01)
        waiting = asyncio.create_task(log.wait(0, 30))
        await asyncio.sleep(0)
        await log.write([hit(1)])
        assert await waiting
        await log.close()

    asyncio.run(check())


def test_a_full_disk_fails_the_write_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path)
        await log.open()
        await log.write([hit(1)])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", _half_written)
            with pytest.raises(OSError, match="full"):
                await log.write([hit(2)])
        await log.write([hit(3), hit(2)])
        await log.close()
        again = MatchLog(tmp_path)
        await again.open()
        assert await all_of(again) == [1, 2, 3]
        await again.close()

    asyncio.run(check())


def _half_written(file: int, data: memoryview, at: int) -> int:
    os.lseek(file, at, os.SEEK_SET)
    os.write(file, data[: len(data) // 2])
    raise OSError("the disk is full")


def raw(statement: str, line: bytes) -> Hit:
    return Hit("id", "m", "t", statement, None, "", line)


@given(records=st.integers(1, 3 * EVERY), cut=st.integers(1, 400), flip=st.booleans())
@settings(max_examples=30, deadline=None)
def test_whatever_is_cut_off_the_rest_is_whole(
    tmp_path_factory: pytest.TempPathFactory, records: int, cut: int, flip: bool
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    segment = Segment.create(folder, 11)
    made = packed(raw(f"s{n}", b"{" + b"x" * (n % 50) + b"}") for n in range(records))
    segment.append(made, sync=False)
    data = bytearray(segment.path.read_bytes())
    at = max(len(data) - cut, 0)
    if flip:
        data[at] ^= 0xFF
    else:
        del data[at:]
    segment.path.write_bytes(data)
    again = Segment.open(segment.path)
    whole = [len(b"".join(made[:n])) for n in range(records + 1)]
    assert again.count == sum(end <= at for end in whole[1:])
    entries = list(again.after(0))
    assert [entry.position for entry in entries] == list(range(11, 11 + again.count))
    again.append(packed([raw("new", b"{}")]), sync=False)
    assert [entry.statement for entry in Segment.open(segment.path).after(0)][-1] == "new"


def test_dead_letters_are_kept_and_bounded(tmp_path: Path) -> None:
    async def check() -> None:
        log = MatchLog(tmp_path, letters=Bound(3, 1 << 20))
        await log.open()
        for number in (1, 2, 3, 4, 4):
            await log.dead(DeadLetter(f"m{number}", b"\xff<", "bad", "t", "here"))
        found = log.letters.after("t", 0, 10)
        assert [each["id"] for each in found] == ["m2", "m3", "m4"]
        assert log.letters.after("u", 0, 10) == []
        await log.close()

    asyncio.run(check())
