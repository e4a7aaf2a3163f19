"""`fmware`, with a watchdog in its event loop: `python -m bench.watched FILE serve ...`.

FILE is the number of a pipe that the caller has opened. Lines go into it, with the time of
`time.monotonic`, which all processes of a machine share:

- `beat TIME MS`: the loop came round, so many milliseconds late. One that is late is told at once,
  others a few times a second, so that a loop that never comes round again is noticed.
- `signal TIME PID NUMBER`: a process that this one had started was ended by a signal.

A beat is late by all that happens in between: callbacks, waiting for a thread that has the GIL,
waiting for a disk. Time for which the system had no core for the loop's thread is taken off, by
the system's own account: it says how busy the machine is, not what the service does.

Worker processes start as they do without this, and nothing of the service is replaced.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

# Before `subprocess` is loaded, which keeps what it finds.
_waitpid = os.waitpid

BEAT = 0.005
LATE = 0.010
"""Seconds by which a beat is late that is told at once."""
SILENCE = 0.25
"""Seconds after which one is told that is not."""


def _tell(file: int, line: str) -> None:
    with suppress(OSError):  # If the caller reads no more, the service goes on as it would.
        os.write(file, line.encode())


def _watch_children(file: int) -> None:
    """Tell of processes that a signal ends, when they are waited for."""

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        found, status = _waitpid(pid, options)
        if found and os.WIFSIGNALED(status):
            _tell(file, f"signal {time.monotonic()} {found} {os.WTERMSIG(status)}\n")
        return found, status

    os.waitpid = waitpid


def main(argv: list[str]) -> None:
    """Run a command of `fmware` and tell how its loop does."""
    file = int(argv[0])
    os.set_inheritable(file, False)  # noqa: FBT003
    os.set_blocking(file, False)
    _watch_children(file)

    import asyncio
    import sys
    import threading

    class Watched(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = super().new_event_loop()
            loop.call_soon(lambda: Watchdog(loop).beat())
            return loop

    class Watchdog:
        """What beats in a loop."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self._loop = loop
            place = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._account = os.open(place, os.O_RDONLY) if Path(place).exists() else -1
            self._before, self._waited = time.monotonic(), self._waiting()
            self._told = 0.0

        def _waiting(self) -> float:
            """Seconds that this thread could have run and had no core."""
            if self._account < 0:
                return 0.0
            return int(os.pread(self._account, 100, 0).split()[1]) / 1e9

        def beat(self) -> None:
            now, waited = time.monotonic(), self._waiting()
            late = now - self._before - BEAT - (waited - self._waited)
            if late > LATE or now - self._told > SILENCE:
                _tell(file, f"beat {now} {max(late, 0.0) * 1e3}\n")
                self._told = now
            self._before, self._waited = now, waited
            self._loop.call_later(BEAT, self.beat)

    asyncio.set_event_loop_policy(Watched())
    sys.argv = ["fmware", *argv[1:]]
    from fmware.cli import main as run

    run()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
