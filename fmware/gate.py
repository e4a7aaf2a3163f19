"""A gate that many may be inside of at once, or one alone."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Gate"]


class Gate:
    """A readers-writer lock; a thread that wants to be alone goes before those that come later.

    `with gate:` is for many at once, `with gate.alone():` for one. A thread that is inside may not
    ask to be alone, unless it steps `outside` for that time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self._alone: int | None = None
        """The thread that is alone, or waits to be."""

    def __enter__(self) -> None:
        with self._lock:
            while self._alone is not None:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._alone is not None:
                self._changed.notify_all()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Step outside for a while; REQUIRES: the thread is inside."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no thread is inside, and let none in meanwhile; may be nested."""
        own = threading.get_ident()
        if self._alone == own:
            yield
            return
        with self._lock:
            while self._alone is not None:
                self._changed.wait()
            self._alone = own
        try:
            with self._changed:
                while self._inside:
                    self._changed.wait()
            yield
        finally:
            with self._lock:
                self._alone = None
                self._changed.notify_all()
