"""The C library's heap: memory that is free in it, given back to the system."""

from __future__ import annotations

import ctypes

__all__ = ["give_back"]

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only some C libraries have it."""


def give_back() -> None:
    """Give free memory back to the system, also what lies between things in use."""
    if _TRIM is not None:
        _TRIM(0)
