"""A statement: what is asked of messages and of the corpus, and what to give back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fmware.statements.errors import StatementError
from fmware.statements.parts import join, match_text
from fmware.statements.returns import Returns, returns_of
from fmware.xpath import (
    Crossing,
    Kind,
    Path,
    Plan,
    Split,
    XPathError,
    XPathLimits,
    check_expression,
    check_prefixes,
    parse,
    plan,
    split,
    to_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.statements.returns import Wanted

__all__ = ["Statement"]

_LIMITS: Final = XPathLimits()
_ROOT: Final = parse("/*")


@dataclass(frozen=True, slots=True)
class Statement:
    """A filter on messages and, where it has crossings, what must match in the corpus.

        Statement.parse("//sale/product[units > 3]//local:warehouse/local:city")
        Statement.two_part(filter="//sale/product[units > 3]", match="//warehouse/city")

    are the same statement. `name` is its text unless another is given.
    """

    name: str
    text: str
    split: Split
    namespaces: Mapping[str, str] = field(default_factory=dict, hash=False)
    returns: frozenset[Returns] = frozenset({Returns.NAME})
    planned: Plan | None = field(default=None, hash=False)
    """How it is decided, if it is more than a path of the native subset."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        returns: Wanted | None = None,
        variables: Mapping[str, str | float | bool] | None = None,
        limits: XPathLimits = _LIMITS,
    ) -> Statement:
        """A statement in one expression; its steps in `local:` cross into the corpus.

        `variables` are the values of its `$names`. Raises an `XPathError` that points at what is
        wrong.
        """
        spaces = _spaces(namespaces)
        planned = plan(text, limits=limits, variables=variables)
        if planned.native is not None:
            check_prefixes(planned.native, spaces, text)
            parts = split(planned.native, text)
            return cls(name or text, text, parts, spaces, returns_of(returns, parts))
        assert planned.expression is not None
        check_expression(planned.expression, spaces, text)
        parts = Split(planned.guard if isinstance(planned.guard, Path) else _ROOT)
        return cls(name or text, text, parts, spaces, returns_of(returns, parts), planned)

    @classmethod
    def two_part(
        cls,
        *,
        filter: str,  # noqa: A002
        match: str,
        anchor: int | str | None = None,
        axis: str | None = None,
        name: str | None = None,
        namespaces: Mapping[str, str] | None = None,
        returns: Wanted | None = None,
        limits: XPathLimits = _LIMITS,
    ) -> Statement:
        """A statement in two: an XPath on messages, and a path from an anchor's local node.

        The anchor is a step of the filter, by its number from 1 or by its name; the last one
        unless said. `axis` is how the match part begins, if it does not say that itself: child,
        descendant, self, parent or ancestor. Raises an `XPathError`, which is of the filter or of
        the match part; its `expression` tells which.
        """
        spaces = _spaces(namespaces)
        path, parts = join(filter, match, anchor, axis, limits)
        check_prefixes(path, spaces, filter)
        crossing = parts.crossings[-1]
        check_prefixes(crossing.match, spaces, match)
        text = _one_text(path, parts, crossing)
        return cls(name or text, text, parts, spaces, returns_of(returns, parts))

    @property
    def filter(self) -> Path:
        """What runs on messages; of a statement that is `planned`, a path that it implies."""
        return self.split.filter

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        """What the corpus is asked; all of them must match."""
        return self.split.crossings

    @property
    def selects(self) -> Crossing | None:
        """The crossing whose match part gives local nodes; the others are conditions."""
        return next((each for each in self.split.crossings if each.selects), None)

    @property
    def plain(self) -> bool:
        """Whether messages alone decide."""
        return not self.split.crossings


def _spaces(namespaces: Mapping[str, str] | None) -> dict[str, str]:
    spaces = dict(namespaces or {})
    if "local" in spaces:
        raise StatementError("FMS010", f"local={spaces['local']}", 0, "", "use another prefix")
    return spaces


def _one_text(path: Path, parts: Split, crossing: Crossing) -> str:
    """The statement as one expression; as two with an arrow, if one cannot say it."""
    last = len(path.steps) - 1
    if crossing.anchor.step == last and crossing.match.steps[0].kind is Kind.ELEMENT:
        text = to_text(Path((*path.steps, *crossing.match.steps), absolute=True))
        try:
            if split(parse(text)) == parts:
                return text
        except XPathError:
            pass  # A name that has a prefix of its own, beside local:.
    at = "" if crossing.anchor.step == last else f" at step {crossing.anchor.step + 1}"
    return f"{to_text(path)}{at} -> {match_text(crossing.match)}"
