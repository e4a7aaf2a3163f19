"""Texts as Arrow has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["texts"]


def texts(values: Sequence[str | None]) -> pa.StringArray:
    """Texts of any kind, such as names of files, which need not be UTF-8.

    A character that UTF-8 does not have is written as its escape, as in JSON.
    """
    try:
        return pa.array(values, pa.utf8())
    except UnicodeEncodeError:
        return pa.array([each and _escaped(each) for each in values], pa.utf8())


def _escaped(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
