"""How much one document may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DEFAULT_LIMITS", "Limits"]

# libxml2 itself refuses more than these, whatever is set here.
_MOST = {
    "bytes": 2**31 - 16,
    "depth": 2048,
    "nodes": 2**30,
    "attribute": 10_000_000,
    "text": 2**30,
    "names": 2**22,
    "name_bytes": 2**30,
}
PLAIN_DEPTH = 256
PLAIN_TEXT = 10_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Safe for messages from strangers; raise them for a corpus of one's own.

    `attribute` and `text` count bytes of UTF-8 in one value. `names` is how many different names
    of elements and attributes a document may have, and `name_bytes` how long they may be all
    together: the bytes of each local part, and of each namespace once.
    """

    bytes: int = 64 * 2**20
    depth: int = PLAIN_DEPTH
    nodes: int = 10_000_000
    attribute: int = 1_000_000
    text: int = PLAIN_TEXT
    names: int = 100_000
    name_bytes: int = 4 * 2**20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= _MOST[field.name]:
                raise ValueError(
                    f"Limits.{field.name} lies between 1 and {_MOST[field.name]:,}, not {value:,}"
                )

    @property
    def huge(self) -> bool:
        """Whether libxml2 has to be told to go beyond its own cautious bounds."""
        return self.depth > PLAIN_DEPTH or self.text > PLAIN_TEXT


DEFAULT_LIMITS = Limits()
