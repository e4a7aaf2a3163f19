"""A bound, in bytes, on what a process may take beyond what it begins with.

What is counted is memory of the process's own that it may write to (`RLIMIT_DATA`): the heap and
other private pages. The files of an index, which are mapped and shared, are not.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["bound_memory", "private_bytes"]

STATUS: Final = Path("/proc/self/status")


def bound_memory(size: int) -> None:
    """Let this process take so many bytes more than it has now; 0 is without bound.

    An allocation beyond that fails, in Python with a `MemoryError`. Where the system does not say
    what a process has, or does not hold it to a limit, there is no bound.
    """
    if not size:
        return
    with suppress(OSError, ValueError):
        most = _bytes_of("VmData:") + size
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def private_bytes() -> int:
    """Bytes of memory that are this process's own; 0 where the system does not say."""
    with suppress(OSError, ValueError):
        return _bytes_of("RssAnon:")
    return 0


def _bytes_of(name: str) -> int:
    """A line of what the system says of this process."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise OSError("the system does not say how much memory a process has")
