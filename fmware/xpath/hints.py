"""What to write instead: the hints that errors carry."""

from __future__ import annotations

from typing import Final

FUNCTIONS = "supported are position(), not(), contains(path, 'text') and starts-with(path, 'text')"
AXES = "supported are / (child), // (descendant) and @ (attribute)"
CROSSING = "self::, parent:: and ancestor:: only cross into the corpus, as in /parent::local:name"
ARITHMETIC = "compute the number and write it as a literal"
STEP = "a step is a name, *, @name or text()"
DOTS = "state the condition from above: write //a[b]/c in place of //a/b/../c"
DOT = "'.' stands at the beginning of a path in a predicate, as in [.//b] or [. = 'x']"
SELF_TEXT = "write [. = 'x'], [contains(., 'x')] or a combination of such tests"
POSITION = "compare it with a number: position() = 2, or [2] for short"
CONSTANT = "a condition needs a path, as in [@a = 3]; a number alone, as in [3], is a position"
ABSOLUTE = "begin with / or //"

LOCAL_FIRST = "say which messages first, as in //a//local:b"
UNION = "register each path as a statement of its own; in a predicate write or"
PARENTHESES = "put the path and its predicates inside the parentheses, or drop them"

FOR_FUNCTION: Final = {
    "last": "positions count from the front: [1], [position() <= 3]",
    "count": "[b] asks whether there is one; [b[2]] asks for a second",
    "true": "leave the condition out",
    "false": "no statement can match it",
    "string": "compare the path itself: [@a = 'x']",
    "number": "compare the path itself: [@a > 3]",
    "boolean": "a path alone asks whether it selects anything: [b]",
    "name": "write the name as a step",
    "local-name": "write the name as a step, with a prefix for its namespace",
}
FOR_OPERATOR: Final = {
    **dict.fromkeys(("+", "-", "*", "div", "mod"), ("FMX105", ARITHMETIC)),
    **dict.fromkeys(("/", "["), ("FMX115", PARENTHESES)),
    "|": ("FMX102", UNION),
}
"""The operators of XPath 1.0 that are not supported: the code of the error and its hint."""
