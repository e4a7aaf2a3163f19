"""Receipts: what waits and what is answered is bounded, and is right after a restart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from fmware.service import receipts as module
from fmware.service.problems import Problem
from fmware.service.receipts import Receipts

if TYPE_CHECKING:
    from pathlib import Path


def answered(kept: Receipts, size: int) -> str:
    name = kept.take("t", [("m", b"<a/>")])
    kept.answer(name, b"x" * size)
    return name


def test_the_oldest_answers_go_when_all_have_too_many_bytes(tmp_path: Path) -> None:
    kept = Receipts(tmp_path / "r.db", answers=1000)
    open_one = kept.take("t", [("m", b"<waits/>")])
    names = [answered(kept, 300) for _ in range(5)]
    there = [name for name in names if kept.find("t", name) is not None]
    assert there == names[-3:]
    assert kept.answered == 900
    assert kept.find("t", open_one) is not None, "what waits is never dropped"
    kept.close()
    again = Receipts(tmp_path / "r.db", answers=1000)
    assert (again.answered, again.waiting, again.bytes) == (900, 1, len(b"<waits/>"))
    last = answered(again, 5000)
    assert again.find("t", last) is not None, "whoever asked for it last can have it"
    assert [name for name in names if again.find("t", name) is not None] == []
    assert again.answered == 5000
    again.close()


def test_the_oldest_go_when_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    kept = Receipts(tmp_path / "r.db")
    names = [answered(kept, 10) for _ in range(8)]
    assert [name for name in names if kept.find("t", name) is not None] == names[-3:]
    assert kept.answered == 30
    kept.close()


def test_what_waits_is_counted_right_by_many_at_once(tmp_path: Path) -> None:
    kept = Receipts(tmp_path / "r.db", waiting=500)
    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda _: kept.take("t", [("m", b"<a/>")] * 5), range(100)))
        assert (kept.waiting, kept.bytes) == (500, 2000)
        with pytest.raises(Problem, match="500 messages wait"):
            kept.take("t", [("m", b"<a/>")])
        list(threads.map(lambda name: kept.answer(name, b"x"), names))
    assert (kept.waiting, kept.bytes, kept.answered) == (0, 0, 100)
    kept.close()
