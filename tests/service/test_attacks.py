"""Hostile messages against the middleware, and against the service from outside."""

from __future__ import annotations

import socket
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fmware.corpus import build_index
from fmware.filtering import FilterLimits
from fmware.middleware import Middleware
from labeling import CHARACTER_ENTITIES, Limits
from tests.service.attacks import CANARY, Attack, attacks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 1 << 20
NODES = 50_000
CORPUS = "<stock><book key='b1'><publisher>Weber</publisher></book></stock>"
GOOD = b"<order><book key='b1'><quantity>7</quantity></book></order>"


@contextmanager
def listening() -> Iterator[tuple[str, socket.socket]]:
    """A server that nobody may call, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        yield f"http://127.0.0.1:{server.getsockname()[1]}/evil", server


def called(server: socket.socket) -> bool:
    try:
        server.accept()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stock")
    (place / "stock.xml").write_text(CORPUS)
    build_index(place / "stock.xml", place / "index", record="book", identity=["book=@key"])
    return place / "index"


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("secret") / "canary.txt"
    path.write_text(CANARY)
    return str(path)


def middleware_of(index: Path, *, entities: bool) -> Middleware:
    made = Middleware(
        index,
        limits=FilterLimits(work=1_000_000, tuples=1000),
        read_limits=Limits(bytes=LIMIT, nodes=NODES),
        entities=CHARACTER_ENTITIES if entities else None,
    )
    made.subscribe("//a[contains(., 'canary')]", name="seen")
    made.subscribe("//*[@k]//*", name="all")
    made.subscribe("//order/book[quantity > 5]/local:publisher", name="bulk", returns="value")
    made.subscribe("//order/book//local:publisher", name="by label")
    return made


@pytest.mark.parametrize("entities", [False, True])
def test_every_attack_is_refused_or_harmless(index: Path, canary: str, *, entities: bool) -> None:
    wrong: list[str] = []
    with listening() as (url, server), middleware_of(index, entities=entities) as middleware:
        for attack in attacks(canary, url, limit=LIMIT):
            result = middleware.publish(attack.body, name=attack.name)
            refused = result.table is None
            if refused and not (result.errors and str(result.errors[0])):
                wrong.append(f"{attack.name}: refused without a word")
            # With character entities a DOCTYPE may be there, and a DTD be named; none is fetched.
            named = "DOCTYPE" in attack.name or "DTD" in attack.name
            wanted = "either" if entities and named else attack.wanted
            if wanted != "either" and refused != (wanted == "refused"):
                wrong.append(f"{attack.name}: {'refused' if refused else 'read'}: {result.errors}")
            if result.table is not None and len(result.table) > NODES:
                wrong.append(f"{attack.name}: {len(result.table)} nodes")
            if CANARY in repr(result.errors) or "seen" in result.statements:
                wrong.append(f"{attack.name}: shows what lies outside")
        assert not called(server), "a server was called"
        # Whoever sends good messages notices nothing.
        found = [
            each.local for each in middleware.publish(GOOD).matches if each.statement == "bulk"
        ]
        assert [each.value for each in found if each] == ["Weber"]
    assert not wrong, "\n".join(wrong)


def test_reasons_do_not_repeat_what_was_sent_at_length(index: Path, canary: str) -> None:
    with listening() as (url, _), middleware_of(index, entities=False) as middleware:
        for attack in attacks(canary, url, limit=LIMIT):
            for error in middleware.publish(attack.body).errors:
                assert len(str(error)) < 1000, attack.name


def test_bombs_take_no_more_memory_than_their_size_accounts_for(index: Path, canary: str) -> None:
    """What libxml2 takes is bounded by its own limits; this is what the project adds."""
    with listening() as (url, _), middleware_of(index, entities=True) as middleware:
        chosen = [each for each in attacks(canary, url, limit=LIMIT) if _is_bomb(each)]
        assert len(chosen) >= 6
        for attack in chosen:
            tracemalloc.start()
            middleware.publish(attack.body)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 8 * LIMIT, f"{attack.name} took {peak:,} bytes"


def _is_bomb(attack: Attack) -> bool:
    return any(word in attack.name for word in ("laughs", "blow-up", "bomb"))


def test_there_are_enough_of_them() -> None:
    made = list(attacks("/nowhere", "http://127.0.0.1/"))
    assert len({attack.name for attack in made}) == len(made) >= 80
    assert sum(len(attack.body) for attack in made) < 20 << 20
