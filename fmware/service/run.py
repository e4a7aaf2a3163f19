"""The parts of the service put together from the configuration; and a service without HTTP.

`python -m fmware.service.run [fmware.toml]` matches what its sources give and hands it to its
sinks, until they end or a SIGTERM or SIGINT comes. It then takes no more, finishes what is under
way, acknowledges it and ends with 0; with 1 if that took longer than `server.stop_seconds`, and
what was not done was given back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmware.errors import FMwareError
from fmware.filtering.statements import refusal
from fmware.service.brokers import sink_of, source_of
from fmware.service.engine import Engine
from fmware.service.entries import entries_of, statement_of
from fmware.service.envelope import ALL, DEFAULT
from fmware.service.errors import StatementRefused
from fmware.service.flow import Flow, Outlet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.service.flow import Sink, Told
    from fmware.service.settings import Settings

__all__ = [
    "engine_of",
    "engine_options",
    "flows_of",
    "main",
    "run",
    "sinks_of",
    "statements_of",
    "stop_flows",
]

log = logging.getLogger("fmware.service")


def engine_options(settings: Settings) -> dict[str, Any]:
    """What the configuration says of an engine, as its arguments."""
    wanted, limits = settings.engine, settings.limits
    return {
        "index": settings.index,
        "workers": wanted.workers,
        "queue": wanted.queue,
        "batch": wanted.batch,
        "dedupe_seconds": wanted.dedupe_seconds,
        "dedupe_messages": wanted.dedupe_messages,
        "patience": wanted.message_seconds,
        "tries": wanted.tries,
        "scrub": wanted.scrub_bytes,
        "own": len(settings.everyone()) > 1,
        "common": any(each.tenant == ALL for each in settings.sources),
        "options": {
            "operator": wanted.operator,
            "scheme": wanted.scheme,
            "budget": wanted.budget,
            "threads": wanted.threads,
            "memory": wanted.worker_bytes,
            "entities": limits.entities,
            "limits": limits.model_dump(exclude={"entities"}),
        },
    }


def engine_of(settings: Settings) -> Engine:
    """The engine that the configuration asks for, not started and without statements."""
    return Engine(**engine_options(settings))


def statements_of(settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """The statements of the configuration and of its files, with their tenants."""
    for each in settings.statements:
        yield each.tenant, each.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
    for path in settings.statements_files:
        entries, bad = entries_of(path.read_bytes(), str(path))
        if bad:
            raise StatementRefused(refusal(path, bad[0]))
        yield from ((DEFAULT, each) for each in entries)


def sinks_of(settings: Settings) -> list[Sink]:
    """The sinks that the configuration names, not open yet."""
    return [sink_of(each.model_dump()) for each in settings.sinks]


def flows_of(
    settings: Settings, engine: Engine, outlet: Outlet, told: Told | None = None
) -> list[Flow]:
    """A flow for each source that the configuration names, not started yet."""
    return [
        Flow(
            source_of(each.model_dump(), largest=settings.limits.bytes),
            engine,
            outlet,
            batch=settings.engine.batch,
            attempts=getattr(each, "deliveries", 0),
            told=told,
        )
        for each in settings.sources
    ]


async def stop_flows(flows: Sequence[Flow], outlet: Outlet, patience: float) -> bool:
    """Stop flows; whether all that they had taken could be finished."""
    stops = [asyncio.create_task(flow.stop(patience)) for flow in flows]
    if not stops:
        return True
    _, late = await asyncio.wait(stops, timeout=0.9 * patience)
    if late:
        outlet.give_up()
    await asyncio.gather(*stops)
    return not late


async def run(settings: Settings) -> bool:
    """Match until the sources end or a signal comes; whether everything could be finished."""
    engine = engine_of(settings)
    found = list(statements_of(settings))
    for tenant, about in found:
        try:
            statement_of(about)
        except FMwareError as error:
            said = f"statement {about['name']!r} of tenant {tenant!r}: {error}"
            raise StatementRefused(said) from error
    await engine.subscribe_all(found)
    outlet = Outlet(sinks_of(settings))
    flows = flows_of(settings, engine, outlet)
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, told.set)
    await engine.start()
    try:
        await outlet.open()
        for flow in flows:
            await flow.start()
        log.info("%d flows, %d sinks", len(flows), len(outlet.sinks))
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(told.wait())]
        if flows:
            waiting.append(asyncio.create_task(_ended(flows)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return await stop_flows(flows, outlet, settings.server.stop_seconds)
    finally:
        for flow in flows:
            await flow.stop(0)
        await engine.stop(drain=False)
        await outlet.close()


async def _ended(flows: Sequence[Flow]) -> None:
    await asyncio.gather(*(flow.wait() for flow in flows))


def main(arguments: Sequence[str]) -> int:
    """The service without HTTP; the exit code."""
    from fmware.service.settings import load

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    path = Path(arguments[0]) if arguments else None
    try:
        return 0 if asyncio.run(run(load(path, os.environ, list(arguments[1:])))) else 1
    except (FMwareError, OSError) as error:
        print(f"fmware: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
