"""A middleware that is made anew beside the old one, a few statements at a time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from fmware.middleware import Middleware
from fmware.service import host as hosts
from fmware.service.host import Host
from fmware.statements import Statement
from tests.service.drawn import corpus

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from fmware.index import Index


def test_answers_are_right_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "NAMES", 8)
    index = str(corpus(tmp_path))
    made: list[Middleware] = []

    def make(where: str | Index) -> Middleware:
        made.append(Middleware(where))
        return made[-1]

    draw = random.Random(5)
    host = Host(make, index)
    now: dict[str, str] = {}
    half = 0
    for turn in range(600):
        name = f"s{draw.randrange(30)}"
        if name in now:
            host.remove(name)
            del now[name]
        if draw.random() < 0.8:
            now[name] = f"n{turn}"
            host.add(Statement.parse(f"//n{turn}", name=name))
        half += host._next is not None
        body = "".join(f"<{each}/>" for each in (*now.values(), f"n{draw.randrange(turn + 1)}"))
        result = host.publish(f"<r>{body}</r>".encode(), "m")[0]
        assert {match.statement for match in result.matches} == {*now}
    host.close()
    assert half > 50
    assert len(made) > 5
    assert len(host.middleware.reader.vocabulary) < 200
