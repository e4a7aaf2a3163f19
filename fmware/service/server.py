"""The service as a process: everything put together, started, and stopped without loss.

It starts from the inside out: sinks, the engine with all statements, webhooks, flows, and at last
the door is opened. It stops the other way round: no more connections, readers are told where to
resume, what is under way is finished, flows acknowledge what they took, and then the engine ends.
All of that together has `server.stop_seconds`; what is not done then is not acknowledged. If
anything keeps the process from ending by then, it is ended all the same: what is on disk is whole
at any time.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
from contextlib import AsyncExitStack, contextmanager, suppress
from subprocess import DEVNULL
from typing import IO, TYPE_CHECKING, Any, Final

import uvicorn

from fmware.cmatch.heap import give_back
from fmware.cmatch.units import load_units
from fmware.index import Index
from fmware.index.errors import IndexMissing
from fmware.service.app import make_app
from fmware.service.brokers import sink_of, source_of
from fmware.service.dry_run import no_index
from fmware.service.errors import ServiceError
from fmware.service.flow import Flow, Outlet
from fmware.service.guard import Guard
from fmware.service.log import MatchLog
from fmware.service.logging import configure, logger
from fmware.service.metered import MeteredEngine
from fmware.service.metrics import Metrics
from fmware.service.service import Service, settle
from fmware.service.shelf import Bound
from fmware.service.tenants import Tenants
from fmware.service.webhooks import Webhooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from fmware.service.patience import Patience
    from fmware.service.settings import Settings

__all__ = ["StateInUse", "assembled", "run", "serve"]

FILES: Final = 65_536
"""Open files that are asked for: a connection is one."""
RESERVED: Final = 256
"""Files that are not for connections: the log, the index, workers, brokers."""
FRAME: Final = 64 << 10
"""Bytes of a WebSocket's message; readers have nothing to say."""
YOUNG: Final = 5000
"""Objects that are made before the collector looks: each connection is a hundred, which it would
walk every few seconds, for 20 milliseconds at 500 of them."""
TIDY: Final = 60.0
"""Seconds after which free memory is given back to the system. Bodies and answers of all sizes come
and go between things that stay; the gaps they leave would grow for hours."""
BACKLOG: Final = 1024
"""Connections that wait in the system until they are taken."""
LEAST: Final = 0.2
"""Seconds that the engine has to end, also if nothing is left of those for all."""
HURRIED: Final = 5.0
"""Seconds that an end may take that was asked for twice."""
ENOUGH: Final = 0.9
"""The part of the time for an end after which a sink that fails is not tried again."""
SETTLED: Final = 60.0
"""Seconds after which costs are measured: while a service takes up its work, it needs all cores."""
AT_ONCE: Final = 16
"""Connections that are taken in one turn of the loop: hundreds would hold up all others."""

SWITCH: Final = 0.0005
"""Seconds after which a thread that works lets the loop have the interpreter: a request has some
ten turns of the loop, and would wait for the usual five milliseconds at each."""

log = logger("server")


class StateInUse(ServiceError):
    """Another service has the same state directory."""


def serve(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Run the service until it is told to stop (SIGTERM, SIGINT)."""
    configure(settings.server.log_level, settings.server.log_format)
    sys.setswitchinterval(SWITCH)
    runner = asyncio.Runner()
    try:
        runner.run(run(settings, os.environ if environ is None else environ))
    except BaseException:
        runner.close()
        raise
    # Everything is safe. Threads may still wait for a name server, or read what nobody wants.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def run(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    started: Callable[[Service, str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """The same in a loop that runs; `started` hears the address, `stop` ends it."""
    most = _connections(settings.server.connections)
    # Before anything is started: an address that is taken is known at once.
    with _bound(settings.server.host, settings.server.port) as listener:
        await asyncio.to_thread(_check_index, settings.index)
        async with AsyncExitStack() as stack:
            service = await assembled(settings, environ, stack)
            settle()
            gc.set_threshold(YOUNG, 10, 10)
            guard = Guard(settings.server, most)
            service.metrics.ask(guard.readings)
            server = Http(service, listener, guard, started)
            with _signals(server, stop), _tidied(TIDY), _calibrated(settings):
                await server.serve(sockets=[listener])
            log.info("stopping")
    log.info("stopped")


async def assembled(
    settings: Settings, environ: Mapping[str, str], stack: AsyncExitStack
) -> Service:
    """A service that works, without its HTTP side; `stack` ends it."""
    stack.enter_context(_alone(settings.state))
    metrics = Metrics()
    tenants = Tenants(settings, environ)
    kept = settings.log
    matches = MatchLog(
        settings.state / "log",
        size=kept.bytes,
        segment=kept.segment_bytes,
        sync=kept.sync,
        letters=Bound(kept.letters, kept.letter_bytes),
    )
    outlet = Outlet([matches, *(sink_of(each.model_dump()) for each in settings.sinks)])
    await outlet.open()
    stack.push_async_callback(outlet.close)
    engine = MeteredEngine(settings, metrics)
    service = Service(
        settings,
        engine=engine,
        tenants=tenants,
        matches=matches,
        outlet=outlet,
        metrics=metrics,
    )
    await service.open()
    stack.push_async_callback(service.close)
    await engine.start()
    stack.push_async_callback(_drained, engine, service.patience)
    await _connected(service, environ, stack)
    return service


async def _connected(service: Service, environ: Mapping[str, str], stack: AsyncExitStack) -> None:
    """Webhooks, flows and what was left to do."""
    settings = service.settings
    await _check_targets(service)
    service.webhooks = Webhooks(
        settings.webhooks,
        service.log,
        settings.state / "webhooks.db",
        environ,
        tenants=[each.name for each in service.tenants],
        told=lambda event, about: log.warning(event, **about),
    )
    await service.webhooks.start()
    stack.push_async_callback(_webhooks_stopped, service.webhooks, service.patience)
    service.begin()
    stack.push_async_callback(service.end)
    stack.callback(service.outlet.give_up)
    for each in settings.sources:
        about: dict[str, Any] = each.model_dump()
        source = source_of(about, largest=settings.limits.bytes)
        attempts = int(about.get("deliveries", 0))
        flow = Flow(
            source,
            service.engine,
            service.outlet,
            batch=settings.engine.batch,
            attempts=attempts,
        )
        await flow.start()
        stack.push_async_callback(_stopped, flow, service.patience)
        service.flows.append(flow)


async def _check_targets(service: Service) -> None:
    """Refuse a configuration whose webhooks are for statements that are not there."""
    for each in service.settings.webhooks.targets:
        if unknown := await service.unknown(each.tenant, each.statements):
            said = f"webhook {each.name}: tenant {each.tenant} has no statement {unknown[0]!r}"
            raise ServiceError(f"{said}: it would never be called")


async def _stopped(flow: Flow, patience: Patience) -> None:
    """End a flow that has not ended with the door."""
    await flow.stop(patience.left)


async def _webhooks_stopped(webhooks: Webhooks, patience: Patience) -> None:
    await webhooks.stop(patience.left)


async def _drained(engine: MeteredEngine, patience: Patience) -> None:
    """End the engine when it is done, or when that takes too long."""
    try:
        async with asyncio.timeout(max(patience.left, LEAST)):
            await engine.stop()
    except TimeoutError:
        log.warning("not all messages were done in time", seconds=patience.seconds)
        await engine.stop(drain=False)


class Http(uvicorn.Server):
    """uvicorn, with connections under guard, and an end that readers are told of."""

    def __init__(
        self,
        service: Service,
        listener: socket.socket,
        guard: Guard,
        started: Callable[[Service, str], None] | None,
    ) -> None:
        settings = service.settings.server
        self._service = service
        self._listener = listener
        self._told = started
        self._flows: list[asyncio.Task[None]] = []
        self.seconds_to_stop = settings.stop_seconds
        super().__init__(
            uvicorn.Config(
                make_app(service),
                http=guard.http,
                ws=guard.websocket,
                ws_max_size=FRAME,
                ws_per_message_deflate=False,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                # asyncio takes as many connections in one turn; `startup` has more of them wait.
                backlog=AT_ONCE,
                timeout_keep_alive=settings.keep_alive_seconds,
                h11_max_incomplete_event_size=settings.header_bytes,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `run`: uvicorn would raise them again when it is done."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the door, and say where it is."""
        await super().startup(sockets)
        self._listener.listen(BACKLOG)
        host, port = self._listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        snapshot = self._service.engine.snapshot()
        log.info(
            "listening", url=url, workers=snapshot["workers"], statements=snapshot["statements"]
        )
        if self._told is not None:
            self._told(self._service, url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the door; readers go first, since they would never leave by themselves.

        Flows end at the same time: they need not wait for a client that is slow.
        """
        service, patience = self._service, self._service.patience
        service.ready = False
        patience.begin()
        service.readers.close()
        late = asyncio.get_running_loop().call_later(ENOUGH * patience.left, service.outlet.give_up)
        self._flows = [asyncio.create_task(flow.stop(patience.left)) for flow in service.flows]
        # It is waited for so long: parts of a second are as good as whole ones.
        self.config.timeout_graceful_shutdown = patience.left  # type: ignore[assignment]
        await super().shutdown(sockets)
        await asyncio.gather(*self._flows, return_exceptions=True)
        late.cancel()

    def hurry(self) -> None:
        """Wait for nothing any more: what is not done is given back."""
        self.force_exit = True
        self._service.patience.lose()
        for task in self._flows:
            task.cancel()


@contextmanager
def _tidied(seconds: float) -> Iterator[None]:
    """Give free memory back every so often, beside the loop."""

    async def often() -> None:
        while True:
            await asyncio.sleep(seconds)
            await asyncio.to_thread(give_back)

    task = asyncio.get_running_loop().create_task(often())
    try:
        yield
    finally:
        task.cancel()


@contextmanager
def _calibrated(settings: Settings) -> Iterator[None]:
    """Measure what matching costs here, beside the service, if its index does not know it.

    In a process of its own, which has the lowest priority; operators that are made later use it.
    """
    wanted = settings.engine.operator == "auto" and load_units(settings.index) is None
    task = asyncio.get_running_loop().create_task(_calibrate(settings.index)) if wanted else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _calibrate(index: Path) -> None:
    await asyncio.sleep(SETTLED)
    log.info("measuring what matching costs on this machine", index=str(index))
    code = "import os, sys; os.nice(19); from fmware.cmatch.calibration import calibrated; "
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"{code} calibrated(sys.argv[1])",
        str(index),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        done = await child.wait() == 0
    except asyncio.CancelledError:
        child.send_signal(signal.SIGINT)
        await child.wait()
        raise
    log.info("measured" if done else "could not measure: a usual machine is assumed")


@contextmanager
def _signals(server: Http, stop: asyncio.Event | None) -> Iterator[None]:
    """Have the server end when it is told to; told twice, at once."""

    def told() -> None:
        if server.should_exit:
            server.hurry()
            seconds = min(seconds_to_stop, HURRIED)
        else:
            seconds = seconds_to_stop
        server.should_exit = True
        if stop is None:
            # Without the interpreter, and so whatever keeps it: the log has what that was.
            faulthandler.dump_traceback_later(seconds, exit=True)

    seconds_to_stop = server.seconds_to_stop
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(_told_by(stop, told)) if stop is not None else None
    caught = (signal.SIGTERM, signal.SIGINT) if stop is None else ()
    for each in caught:
        loop.add_signal_handler(each, told)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)
        if waiting is not None:
            waiting.cancel()


async def _told_by(stop: asyncio.Event, told: Callable[[], None]) -> None:
    await stop.wait()
    told()


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By the name of its protocol: else asyncio leaves Nagle's algorithm on, which costs 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            said = f"cannot listen on {host}:{port}: {error.strerror}; see server.host, server.port"
            raise ServiceError(said) from error
        yield listener


def _check_index(path: Path) -> None:
    """See that there is an index, before a state is made for a service that cannot be."""
    try:
        Index.open(path).close()
    except IndexMissing:
        raise ServiceError(no_index(path)) from None


@contextmanager
def _alone(state: Path) -> Iterator[IO[bytes]]:
    """Hold the state directory: two services in one would write over each other."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = f"another service uses {state}: stop it, or set another state directory"
            raise StateInUse(said) from None
        yield file


def _connections(wanted: int) -> int:
    """How many connections there may be: what is wanted, or what the system has files for."""
    files = _raise_files(wanted + RESERVED)
    if wanted <= files - RESERVED:
        return wanted
    most = max(files - RESERVED, files // 2)
    log.warning("fewer connections than server.connections", wanted=wanted, most=most, files=files)
    return most


def _raise_files(least: int) -> int:
    """Ask for many open files; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(FILES, least)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
