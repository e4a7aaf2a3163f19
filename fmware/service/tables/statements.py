"""Statements of the configuration, and tests of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fmware.service.envelope import DEFAULT
from fmware.service.tables.base import Name, Table, several

if TYPE_CHECKING:
    from fmware.statements import Statement

__all__ = ["Expected", "StatementSettings", "Test"]


class StatementSettings(Table):
    """A statement, in one expression or in two parts, as in a file of statements."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    """The name, by which matches tell where they come from."""
    tenant: Name = DEFAULT
    """Whose statement it is."""
    expression: str | None = None
    """An XPath; its steps in `local:` cross into the corpus."""
    filter: str | None = None
    """In two parts: the XPath on messages."""
    match: str | None = None
    """In two parts: the path in the corpus, from the anchor's local node."""
    anchor: int | str | None = None
    """In two parts: the step that is the anchor, by name or number; the last one unless said."""
    axis: Literal["child", "descendant", "self", "parent", "ancestor"] | None = None
    """In two parts: how `match` begins, if it does not say that itself."""
    returns: tuple[Literal["name", "message", "local", "value", "fragment"], ...] | None = None
    """What a match holds; unless said, a plain statement's name, else message and local nodes."""
    namespaces: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    """Prefixes of the expression."""

    @field_validator("returns", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return several(value)

    @model_validator(mode="after")
    def _one_way(self) -> StatementSettings:
        parts = [key for key in ("filter", "match", "anchor", "axis") if getattr(self, key)]
        if self.expression and parts:
            raise ValueError(f"{parts[0]} beside expression: say it in one of the two ways")
        if not self.expression and not (self.filter and self.match):
            raise ValueError("write an expression, or filter and match")
        return self

    def statement(self, *, name: str | None = None) -> Statement:
        """The statement; raises an `XPathError` that points at what is wrong."""
        from fmware.statements import Statement

        called = name or self.name
        spaces, returns = self.namespaces, self.returns
        if self.expression:
            return Statement.parse(self.expression, name=called, namespaces=spaces, returns=returns)
        return Statement.two_part(
            filter=self.filter or "",
            match=self.match or "",
            anchor=self.anchor,
            axis=self.axis,
            name=called,
            namespaces=spaces,
            returns=returns,
        )


class Expected(Table):
    """A match that a test expects; what is not said may be anything."""

    statement: str
    """The statement that matches."""
    value: str | None = None
    """The string-value of the node that the statement selects."""
    tag: str | None = None
    """The tag of the local node."""
    path: str | None = None
    """The path of the local node, from its record."""
    fragment: str | None = None
    """The XML of the node that the statement selects."""
    nodes: tuple[str, ...] | None = None
    """The paths of the message's nodes, one a step."""


class Test(Table):
    """A message, and the matches that it must have: no fewer and no more."""

    __test__ = False

    name: str
    """What the test shows."""
    tenant: Name = DEFAULT
    """Whose statements are asked."""
    message: str | None = None
    """The message, as text."""
    file: Path | None = None
    """The message, as a file."""
    matches: tuple[Expected, ...] = ()
    """All matches, in any order; none by default."""
    error: str | None = None
    """The message must be refused, and these words be in the reason."""

    @model_validator(mode="after")
    def _one_message(self) -> Test:
        if (self.message is None) == (self.file is None):
            raise ValueError("write either message or file")
        if self.error is not None and self.matches:
            raise ValueError("a message that is refused has no matches: drop error or matches")
        return self
