"""The root of every error FMware raises on purpose."""

from __future__ import annotations


class FMwareError(Exception):
    """Something a caller of FMware may want to catch; each package derives its own tree."""
