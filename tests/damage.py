"""Ways to damage a file, drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from pathlib import Path

__all__ = ["KINDS", "OVERWRITING", "damage", "files_of"]

PAGE: Final = 4096
OVERWRITING: Final = ("page", "zeros", "byte", "swap")
"""Ways that leave the size of the file."""
KINDS: Final = (*OVERWRITING, "cut")


def files_of(index: Path) -> list[str]:
    """The files of the segments of an index, by kind: each kind once."""
    kinds = ("nodes-*.mdb", "records-*.mdb", "meta.mdb")
    return [str(min(index.rglob(kind)).relative_to(index)) for kind in kinds]


def damage(file: Path, kind: str, randomly: random.Random, pages: int = 1) -> None:
    """Write something else into a file, in place, where it differs for certain."""
    data = bytearray(file.read_bytes())
    before = bytes(data)
    while data == before:
        for _ in range(pages):
            at = randomly.randrange(len(data))
            page = at - at % PAGE
            size = min(PAGE, len(data) - page)
            if kind == "page":
                data[page : page + size] = randomly.randbytes(size)
            elif kind == "zeros":
                data[page : page + size] = bytes(size)
            elif kind == "swap":
                other = randomly.randrange(0, len(data), PAGE)
                data[page : page + size] = before[other : other + PAGE][:size].ljust(size, b"\0")
            else:
                data[at] ^= 1 << randomly.randrange(8)
    with file.open("r+b") as opened:
        if kind == "cut":
            opened.truncate(randomly.randrange(len(before)))
            return
        opened.write(data)
