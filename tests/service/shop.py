"""A small shop: a corpus of items, numbered messages about them, and what must be found."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fmware.corpus import build_index
from fmware.service.brokers.memory import MemorySink
from fmware.service.engine import Engine
from fmware.service.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from fmware.service.envelope import Hit

ITEMS = 50
BAD = b"<sale><item"
CITY: dict[str, Any] = {
    "name": "city",
    "expression": "//sale/item[units > 3]/local:city",
    "returns": ["message", "local", "value"],
}
SALE: dict[str, Any] = {"name": "sale", "expression": "//sale", "returns": ["name"]}


def stock(first: int = 0, last: int = ITEMS) -> str:
    items = (f"<item sku='p{i}'><city>Ulm {i}</city></item>" for i in range(first, last))
    return f"<stock>{''.join(items)}</stock>"


def shop(folder: Path) -> Path:
    """The index of the shop."""
    (folder / "stock.xml").write_text(stock())
    build_index(
        folder / "stock.xml",
        folder / "index",
        record="item",
        identity=["item=@sku"],
        calibrate=False,
    )
    return folder / "index"


def message(number: int) -> bytes:
    """A sale, of more than three units unless its number is a multiple of five."""
    units = 7 if number % 5 else 2
    return b"<sale n='%d'><item sku='p%d'><units>%d</units></item></sale>" % (
        number,
        number % ITEMS,
        units,
    )


def envelope(number: int, tenant: str = "default") -> Envelope:
    return Envelope(f"m{number}", message(number), tenant)


def expected(numbers: Iterable[int]) -> Counter[tuple[str, str]]:
    """What the statement `city` finds: the message, and the city's name."""
    return Counter((f"m{i}", f"Ulm {i % ITEMS}") for i in numbers if i % 5)


def found(hits: Iterable[Hit | dict[str, Any]]) -> Counter[tuple[str, str]]:
    """The same of hits, or of what was written of them."""
    told = (hit if isinstance(hit, dict) else hit.to_json() for hit in hits)
    return Counter((hit["message"], hit["local"]["value"]) for hit in told)


def engine(index: Path, *statements: dict[str, Any], **options: Any) -> Engine:
    """An engine that has the statements, of the tenant `default`, when it starts."""
    made = Engine(index, **{"workers": 1, **options})
    kept = statements or (CITY,)
    made._pool.statements.update({("default", each["name"]): each for each in kept})
    return made


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something holds; fail if it does not."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not holds():
        assert loop.time() < end, "waited in vain"
        await asyncio.sleep(0.005)


class Stubborn(MemorySink):
    """A sink that fails where it is told to, having taken nothing or all; or that waits."""

    def __init__(self, name: str = "stubborn", fails: Iterable[str] = ()) -> None:
        super().__init__(name)
        self.fails = iter(fails)
        self.open_door = asyncio.Event()
        self.open_door.set()
        self.calls = 0

    async def write(self, hits: Any) -> None:
        self.calls += 1
        await self.open_door.wait()
        how = next(self.fails, "")
        if how == "before":
            raise OSError("no")
        await super().write(hits)
        if how == "after":
            raise OSError("took it, and did not say so")


def listens(port: int) -> bool:
    """Whether somebody does, on loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def need_nats() -> None:
    if not listens(4222):
        pytest.skip("no NATS on 127.0.0.1:4222: nats-server -js")


def need_rabbitmq() -> None:
    if not listens(5672):
        pytest.skip("no RabbitMQ on 127.0.0.1:5672")
