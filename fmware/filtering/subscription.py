"""What `subscribe` returns, of a `FilterEngine` and of a `Middleware` alike."""

from __future__ import annotations

from typing import Self

__all__ = ["Subscription"]


class Subscription(int):
    """A statement that is registered: its id, as a number, and its `name`.

    `unsubscribe` takes it, or the name. Ids are given again once a statement is taken out; a name
    belongs to one statement at a time.
    """

    name: str

    def __new__(cls, number: int, name: str) -> Self:
        made = super().__new__(cls, number)
        made.name = name
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[int, str]]:
        return type(self), (int(self), self.name)

    def __repr__(self) -> str:
        return f"Subscription({int(self)}, {self.name!r})"

    def __str__(self) -> str:
        return int.__repr__(self)
