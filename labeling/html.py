"""Small HTML tables, for objects that a notebook shows.

A table has at most `ROWS` rows and cells of at most `CELL` characters, whatever the object holds.
All text is escaped: names and values come from strangers' documents.
"""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["CELL", "ROWS", "html_table"]

ROWS = 20
"""As many rows as fit on a screen."""
CELL = 80
"""Characters of a cell; a longer text is cut."""


def html_table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], total: int
) -> str:
    """A table of the first rows of `total`; a line below says how many are left out.

    Only as many rows as are shown are taken from `rows`.
    """
    shown = [_row("td", row) for row in islice(rows, ROWS)]
    left = total - len(shown)
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    head = f"<thead>{_row('th', header)}</thead><tbody>{''.join(shown)}</tbody>"
    return f"<table><caption>{escape(caption)}</caption>{head}</table>{more}"


def _row(element: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{element}>{_cell(cell)}</{element}>' for cell in cells)}</tr>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return escape(text if len(text) <= CELL else f"{text[: CELL - 1]}…")
