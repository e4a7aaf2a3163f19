"""The root of every error FMware raises on purpose, and what to do with those that are kept."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class FMwareError(Exception):
    """Something a caller of FMware may want to catch; each package derives its own tree."""


def kept(error: E) -> E:
    """An error as it is kept in a result: without the frames that it came through.

    Frames hold on to all that was at hand, so to the results that have the error in them. Such a
    circle, with every table of its batch, stays until the collector looks at what is old, which in
    a process with many statements is seldom.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
