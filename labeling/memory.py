"""Memory of work that goes on in batches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fmware.labeling._kernel import hold_memory, release_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["held_memory"]


@contextmanager
def held_memory() -> Iterator[None]:
    """Keep memory that a batch frees for the next batch; all of it is given back at the end.

    It is the whole process that keeps it, so this is for tasks with a process of their own, and for
    those that take seconds.
    """
    hold_memory()
    try:
        yield
    finally:
        release_memory()
