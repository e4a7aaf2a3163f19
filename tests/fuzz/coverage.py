"""Edges that were taken: of native code, by `edges.c`, and of the Python modules of a package."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Coverage"]

EDGES: Final = 1 << 18
"""As in `edges.c`."""


class Coverage:
    """Which edges a call takes; `native` is whether the build tells those of native code.

    `package` names Python modules whose lines count, too, by the start of their paths.
    """

    def __init__(self, package: str = "") -> None:
        try:
            found = (ctypes.c_ubyte * EDGES).in_dll(ctypes.CDLL(None), "fmware_edges")
        except ValueError:
            found = (ctypes.c_ubyte * EDGES)()
            self.native = False
        else:
            self.native = True
        self._taken = np.ctypeslib.as_array(found)
        self._seen = np.zeros(EDGES, bool)
        self._package = package
        self._line = 0

    def __len__(self) -> int:
        return int(self._seen.sum())

    def new(self, call: Callable[[], object]) -> bool:
        """Call; whether it took an edge that none before it had taken."""
        self._taken[:] = 0
        if self._package:
            sys.settrace(self._entered)
        try:
            call()
        finally:
            sys.settrace(None)
        taken = self._taken != 0
        more = bool((taken & ~self._seen).any())
        if more:
            self._seen |= taken
        return more

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._at if self._package in frame.f_code.co_filename else None

    def _at(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            here = hash((frame.f_code.co_name, frame.f_lineno))
            self._taken[(here ^ self._line) % EDGES] = 1
            self._line = here >> 1
        return self._at
