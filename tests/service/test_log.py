"""The match log: in order, once, bounded, and whole after any end."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.service.envelope import DeadLetter, Hit
from fmware.service.hits import HitBatch, Hits
from fmware.service.known import Known
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
        assert sum(file.stat().st_size for file in tmp_path.glob("*.hits")) == log.size
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


def raw(number: int, hits: int = 1) -> Hits:
    """Hits of a message, with lines of different lengths."""
    return Hits.of(
        Hit(
            f"{number}:{each}", f"m{number}", "t", "s", None, "", b"{" + b"x" * (number % 50) + b"}"
        )
        for each in range(hits)
    )


@given(
    counts=st.lists(st.integers(1, EVERY + 9), min_size=1, max_size=40),
    cut=st.integers(1, 400),
    flip=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_whatever_is_cut_off_the_rest_is_whole(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], cut: int, flip: bool
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    segment = Segment.create(folder, 11)
    made = [raw(*each) for each in enumerate(counts)]
    segment.append(made, sync=False)
    data = bytearray(segment.path.read_bytes())
    at = max(len(data) - cut, 0)
    if flip:
        data[at] ^= 0xFF
    else:
        del data[at:]
    segment.path.write_bytes(data)
    again = Segment.open(segment.path)
    ends = accumulate(len(packed(each)) for each in made)
    kept = sum(count for count, end in zip(counts, ends, strict=True) if end <= at)
    assert again.count == kept
    positions = list(range(11, 11 + kept))
    for after in (0, 11, 11 + kept // 2, 10 + kept):
        assert [each.position for each in again.after(after)] == [n for n in positions if n > after]
    again.append([raw(99)], sync=False)
    assert [each.body for each in Segment.open(segment.path).after(0)][-1] == raw(99).lines[0]


@given(st.lists(st.tuples(st.integers(0, 9), st.sets(st.integers(0, 9), min_size=1)), max_size=30))
@settings(max_examples=50, deadline=None)
def test_each_hit_is_logged_once_and_told_by_its_place(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, set[int]]]
) -> None:
    """Whatever hits of a message come again, alone, together or beside new ones."""
    folder = tmp_path_factory.mktemp("again")
    half = len(writes) // 2
    logged: dict[str, int] = {}

    async def check() -> None:
        for some in (writes[:half], writes[half:]):
            log = MatchLog(folder, sync=False)
            await log.open()
            made = [
                Hits.of(Hit(f"m{n}:{each}", f"m{n}", "t", f"s{each}", {}) for each in sorted(those))
                for n, those in some
            ]
            for at in range(0, len(made), 3):
                await log.write(HitBatch(made[at : at + 3]))
            for hits in made:
                for line in json.loads(b"[%b]" % log.told(hits)):
                    assert logged.setdefault(line["id"], line["position"]) == line["position"]
            page = await log.read("t", 0, 1000)
            assert [json.loads(each.body)["id"] for each in page.entries] == sorted(
                logged, key=lambda name: logged[name]
            )
            assert sorted(logged.values()) == list(range(1, log.last + 1))
            await log.close()

    asyncio.run(check())


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(1, 50))
def test_the_last_ids_are_known_and_not_many_more(counts: list[int], most: int) -> None:
    known = Known(most)
    position = 1
    for number, count in enumerate(counts):
        ids = b"\n".join(b"%d" % (position + each) for each in range(count))
        known.add(f"m{number % 7}", position, ids, count)
        position += count
    found: dict[bytes, int] = {}
    for number in range(7):
        found |= known.positions(f"m{number}")
        assert (f"m{number}" in known) == bool(known.positions(f"m{number}"))
    assert all(name == b"%d" % place for name, place in found.items())
    last = range(max(position - most, 1), position)
    assert set(last) <= set(found.values())
    assert len(found) <= most + most // 5 + 2 * 9


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
