"""The pipe of a process of the service: questions come in, answers go out."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from fmware.service.wire import answer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outbox", "run"]


class Outbox:
    """Answers, each written as a whole, whichever thread has one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def put(self, ticket: int, said: object, text: bytes = b"") -> None:
        data = answer(ticket, said, text)
        with self._lock:
            self._file.write(data)
            self._file.flush()

    def put_later(self, ticket: int, ask: Callable[[], object]) -> None:
        """Answer on a thread, which ends with the process."""

        def run() -> None:
            with suppress(BrokenPipeError, ValueError):  # The engine is gone, and the file closed.
                self.put(ticket, ask())

        threading.Thread(target=run, name="report", daemon=True).start()


def run(serve: Callable[[IO[bytes], IO[bytes]], None]) -> None:
    """Answer on what was standard output, and end; what prints goes to standard error.

    Signals that a terminal or a supervisor sends to all processes alike are ignored.
    """
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, outbox)
    # What is left to be undone is not worth the wait, nor an error from a half-closed pipe.
    sys.stderr.flush()
    os._exit(0)
