"""Prefixes to namespaces. A name without a prefix is in no namespace, as XPath 1.0 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmware.xpath.errors import error
from fmware.xpath.expression import steps_of
from fmware.xpath.tree import Path, paths_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fmware.xpath.expression import Expression

XML = "http://www.w3.org/XML/1998/namespace"
"""What the prefix ``xml`` always means."""


def clark(
    prefix: str | None,
    name: str,
    namespaces: Mapping[str, str],
    *,
    at: int = 0,
    expression: str = "",
) -> str:
    """``{uri}name``, or the bare name when there is no prefix; ``name`` may be ``*``.

    ``at`` and ``expression`` say where the name stood, should its prefix be undeclared.
    """
    if prefix is None:
        return name
    uri = namespaces.get(prefix, XML if prefix == "xml" else None)
    if uri is None:
        known = ", ".join(sorted(namespaces)) or "none"
        hint = f"declare a namespace for {prefix!r}; known prefixes: {known}"
        raise error("FMX301", expression, at, repr(prefix), hint)
    return f"{{{uri}}}{name}"


def check_prefixes(path: Path, namespaces: Mapping[str, str], expression: str = "") -> None:
    """Raise :class:`~fmware.xpath.errors.UndeclaredPrefix` for the first prefix not in the map."""
    for step in path.steps:
        clark(step.prefix, step.name, namespaces, at=step.at, expression=expression)
        for test in step.predicates:
            for inner in paths_of(test):
                check_prefixes(inner, namespaces, expression)


def check_expression(expr: Expression, namespaces: Mapping[str, str], expression: str = "") -> None:
    """The same of any expression."""
    for step in steps_of(expr):
        test = step.test
        if test.prefix is not None:
            clark(test.prefix, test.name, namespaces, at=step.at, expression=expression)
