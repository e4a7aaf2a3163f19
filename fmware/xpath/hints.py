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

ALL_AXES = (
    "the axes are child, descendant, descendant-or-self, attribute, self, parent, ancestor, "
    "ancestor-or-self, following-sibling, preceding-sibling, following, preceding and namespace"
)
NODES = "write a path, or parentheses around paths joined by |"
COMPARED = "it can only be compared, as in @country = ('DE', 'DK')"
PATTERN = "write the pattern and the flags as literals"
BOUND = "begin with ${0}, as in ${0}/@id, or with /"
LATER = "of XPath 2 and 3 there are only if, some, every and sequences of literals"
DATES = "compare xs:date with xs:date, xs:dateTime with xs:dateTime"
SEQUENCE = "a sequence has literals only, as in @country = ('DE', 'DK')"
CHOICE = "both branches must be of one type: wrap one in string(), number() or boolean()"
VARIABLE = "give a value for {0!r} with the statement; there are {1}"
CORE = (
    "the functions are those of XPath 1.0: count, contains, starts-with, normalize-space and so on"
)
OTHER_FUNCTIONS: Final = {
    "exists": "a path alone asks whether it selects anything: [b]",
    "empty": "write not(b)",
    "avg": "write sum(b) div count(b)",
    "current": "write the path from the document, as in /order/@id",
    "text": "write text() without arguments",
    "distinct-values": "XPath 1.0 has no sequences; write b[not(. = preceding::b)]",
    "abs": "compare both signs: [b > 3 or b < -3]",
    "max": "write b[not(../b > .)]",
    "min": "write b[not(../b < .)]",
    "string-to-codepoints": "compare the strings themselves",
    "replace": "write translate() for single characters",
    "tokenize": "write contains(concat(' ', @class, ' '), ' word ')",
    "doc": "a statement reads its message only",
    "document": "a statement reads its message only",
    "current-date": "give the date with the statement, as a variable",
    "current-dateTime": "give the time with the statement, as a variable",
}
FOR_SIGN: Final = {
    "||": "write concat(a, b)",
    "=>": "write the function around its argument",
    "!": "write not(...), or != to compare",
    "{": "XPath has no braces here; write the expression itself",
    ":=": "let is not XPath 1.0; write the value where it is used",
}

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
