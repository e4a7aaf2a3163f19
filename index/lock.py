"""One writer an index: a file that is locked while its process lives."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import TYPE_CHECKING

from fmware.index import format as form
from fmware.index.errors import IndexLocked
from fmware.index.manifest import now

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Lock"]


class Lock:
    """Held from the beginning until `release`, or until the process ends in whatever way.

    The file stays when the lock goes: removing it would let two writers lock two files.
    """

    def __init__(self, index: Path) -> None:
        path = index / form.LOCK
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(os.pread(self._handle, 4096, 0))
            os.close(self._handle)
            raise IndexLocked(str(index), holder) from None
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": now()}
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, json.dumps(about).encode() + b"\n", 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _holder(text: bytes) -> str:
    try:
        about = json.loads(text)
        return f"process {about['pid']} on {about['host']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "which has not said yet who it is"
