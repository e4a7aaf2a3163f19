"""A service as a process of its own whose event loop is watched: how long were its turns?

A turn is what lies between two beats of the loop. It is as long as both of two measures say:

- the processor time that the process used meanwhile, so that other processes do not count;
- the time of the clock less the time for which the loop's thread was ready to run and had no
  processor, so that threads that work without the interpreter's lock do not count either.

A thread that keeps the interpreter to itself counts in both, and so does the collector.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.service.running import ROOT, WAIT

if TYPE_CHECKING:
    from fmware.service.service import Service

BEAT = 0.005
"""Seconds between two beats."""


class Watch:
    """The longest turn of the running loop since it was last asked for, and what it was."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._slowest = (0.0, "")
        self._used = self._awake = 0.0
        self._scheduler = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def _beat(self) -> None:
        """End a turn. The second figure of `schedstat`: nanoseconds without a processor."""
        waited = int(self._scheduler.read_text().split()[1])
        used, awake = time.process_time(), time.monotonic() - waited / 1e9
        if self._awake:
            self._longest = max(self._longest, min(used - self._used, awake - self._awake))
        self._used, self._awake = used, awake

    def begin(self) -> None:
        """Watch the loop that runs."""
        loop = asyncio.get_running_loop()
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            taken = time.thread_time() - began
            if taken > self._slowest[0]:
                self._slowest = taken, repr(handle)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

        def beat() -> None:
            self._beat()
            loop.call_later(BEAT, beat)

        beat()
        loop.add_signal_handler(signal.SIGUSR1, self._tell)

    def _tell(self) -> None:
        print(json.dumps({"longest": self._longest, "slowest": self._slowest}), flush=True)
        self._longest, self._slowest = 0.0, (0.0, "")


class Watched:
    """Starts such a service with settings as `--set` has them, and asks it."""

    def __init__(self, *overrides: str) -> None:
        environ = {key: value for key, value in os.environ.items() if "FMWARE" not in key}
        said = ("server.port=0", "engine.workers=1", "log.sync=false", *overrides)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.watched", *said],
            cwd=ROOT,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = str(self._line()["url"])

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def longest(self) -> tuple[float, str]:
        """The longest turn since this was called last, in seconds, and the slowest handler."""
        self.process.send_signal(signal.SIGUSR1)
        told = self._line()
        return told["longest"], "{:.3f} {}".format(*told["slowest"])

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(WAIT)


def main() -> None:
    from fmware.service.logging import configure
    from fmware.service.server import run
    from fmware.service.settings import load

    configure("error", "json")
    watch = Watch()

    def started(_: Service, url: str) -> None:
        watch.begin()
        print(json.dumps({"url": url}), flush=True)

    asyncio.run(run(load(None, {}, sys.argv[1:]), {}, started=started))


if __name__ == "__main__":
    main()
