"""What a batch costs apart from its messages: a message that is published alone pays all of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from fmware.corpus import build_index
from fmware.middleware import Middleware

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MESSAGE = b"<s><a x='1'/><a x='2'/></s>"
MOST = 40
"""Functions of Python that a batch may call; there were 47 before the fixed part was native."""


@pytest.fixture
def middleware(tmp_path: Path) -> Iterator[Middleware]:
    (tmp_path / "one.xml").write_text("<x><a x='1'><b/></a><a x='2'><b/><b/></a></x>")
    build_index(tmp_path / "one.xml", tmp_path / "index", record="a", identity=["a=@x"])
    with Middleware(tmp_path / "index") as made:
        made.subscribe("//a/local:b", name="joined")
        made.subscribe("//s", name="plain")
        yield made


def called(middleware: Middleware, messages: Sequence[bytes]) -> list[str]:
    """The functions of Python that a batch calls when nothing is new to the middleware."""
    names: list[str] = []

    def note(frame: object, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)  # type: ignore[attr-defined]

    for _ in range(3):
        middleware.publish_batch(messages)
    for state in middleware._joins._recorded:
        state.room = 0  # The first inputs of a join are recorded, and then no more.
    sys.setprofile(note)
    try:
        results = middleware.publish_batch(messages)
    finally:
        sys.setprofile(None)
    assert results.match_count == 4 * len(messages)
    return names


def test_a_batch_of_one_calls_few_functions(middleware: Middleware) -> None:
    names = called(middleware, [MESSAGE])
    assert len(names) <= MOST, names


def test_functions_are_called_for_a_batch_and_not_for_its_messages(middleware: Middleware) -> None:
    assert called(middleware, [MESSAGE] * 50) == called(middleware, [MESSAGE])
