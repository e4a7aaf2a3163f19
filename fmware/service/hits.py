"""The hits of a message, as the columns in which they come from a worker and lie in the match log.

    names   "tenant","statement"        one line of JSON for each hit
    lines   {"id":"...","tenant":...}   the same, and what sinks, readers and answers get

Both are one piece of bytes, the `body` of a record of the log (see `segments`). A worker writes it,
the log appends it, an HTTP answer cuts it into lines. A `Hit` is made when a sink looks at one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, groupby
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Final, overload

from fmware.service.envelope import Hit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["END", "SEPARATOR", "HitBatch", "Hits", "Name", "as_hits", "label_of", "name_of"]

END: Final = b"\n"
"""Between ids, names and lines."""
SEPARATOR: Final = "\x1f"
"""Between a tenant and the name of its statement, in the names that a worker's middleware has."""
KEPT: Final = 100_000
"""Names of statements that are kept decoded."""

Name = tuple[str, str]
"""A tenant, and one of its statements."""


def label_of(tenant: str, statement: str) -> str:
    """The name of a statement as a column holds it."""
    return f"{quoted(tenant)},{quoted(statement)}"


@lru_cache(KEPT)
def name_of(label: bytes) -> Name:
    """A tenant and a statement from a column; a `ValueError` if it is no such thing."""
    tenant, statement = json.loads(b"[%b]" % label)
    if not (isinstance(tenant, str) and isinstance(statement, str)):
        raise ValueError("not the name of a statement")  # noqa: TRY004 - the worker's, not a caller's
    return tenant, statement


class Hits(Sequence[Hit]):
    """The hits of one message: `ids`, one line each, and `body`, whose first `cut` bytes are names.

    The log gives them places: `position` is that of the first, and the others follow. Where some
    were in the log before, `places` has the position of each.
    """

    __slots__ = ("body", "cut", "ids", "message", "names", "places", "position", "time")

    def __init__(self, message: str, time: str, ids: bytes, body: bytes, cut: int) -> None:
        self.message = message
        self.time = time
        self.ids = ids
        self.body = body
        self.cut = cut
        self.names: list[Name] = [*map(name_of, body[:cut].split(END))]
        self.position = 0
        self.places: list[int] | None = None

    @classmethod
    def of(cls, hits: Iterable[Hit]) -> Hits:
        """Hits of one message, at least one; of those with the same id, the last."""
        each = {hit.id: hit for hit in hits}
        first = next(iter(each.values()))
        ids = "\n".join(each).encode(errors="backslashreplace")
        labels = "\n".join(label_of(hit.tenant, hit.statement) for hit in each.values())
        names = labels.encode(errors="backslashreplace")
        lines = END.join(hit.line() for hit in each.values())
        return cls(first.message, first.time, ids, names + lines, len(names))

    def check(self) -> None:
        """Raise a `ValueError` unless there are as many ids and lines as names."""
        count = len(self.names) - 1
        if self.ids.count(END) != count or self.body.count(END, self.cut) != count:
            raise ValueError("not as many lines as hits")

    @property
    def lines(self) -> list[bytes]:
        """The JSON of each hit."""
        return self.body[self.cut :].split(END)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Hit]:
        message, time = self.message, self.time
        each = zip(self.ids.decode().split("\n"), self.names, self.lines, strict=True)
        for name, (tenant, statement), line in each:
            yield Hit(name, message, tenant, statement, None, time, line)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> list[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | list[Hit]:
        return list(self)[place]


class HitBatch(Sequence[Hit]):
    """The hits of several messages, as one sequence for sinks; `parts` are those of each."""

    __slots__ = ("_made", "parts")

    def __init__(self, parts: list[Hits]) -> None:
        self.parts = parts
        self._made: list[Hit] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Hit]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> list[Hit]: ...
    def __getitem__(self, place: int | slice) -> Hit | list[Hit]:
        return self._all()[place]

    def pieces(self, most: int) -> list[HitBatch]:
        """Parts of it with no more than so many hits, unless one message has more."""
        found: list[list[Hits]] = []
        size = most
        for part in self.parts:
            if size + len(part) > most:
                found.append([])
                size = 0
            found[-1].append(part)
            size += len(part)
        return [HitBatch(each) for each in found]

    def _all(self) -> list[Hit]:
        """All of them as objects, made once for however many sinks."""
        if self._made is None:
            self._made = list(chain.from_iterable(self.parts))
        return self._made


def as_hits(hits: Sequence[Hit]) -> list[Hits]:
    """Any hits as columns, in their order."""
    if isinstance(hits, HitBatch):
        return hits.parts
    return [Hits.of(some) for _, some in groupby(hits, key=lambda hit: hit.message)]
