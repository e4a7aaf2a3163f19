"""XPath statements: from text to what runs on messages and what runs in the corpus.

The way a statement goes:

1. :func:`plan` reads the text. A path of the native subset, which the filter decides by itself,
   becomes a :class:`Path`, a small typed tree in which every node knows its character
   (:func:`parse` reads nothing else). Any other XPath 1.0 expression becomes a tree of the whole
   grammar (:func:`parse_expression`), and its plan has a guard of native paths. What is wrong, or
   over the :class:`XPathLimits`, is an :class:`XPathError` with a caret and a hint.
2. :func:`check_prefixes` holds the prefixes against a namespace map, and :func:`clark` turns a
   step's name into the ``{uri}name`` that the vocabulary knows.
3. :func:`canonical` gives equal queries equal trees, so that they share one place in the filter.
4. :func:`split` takes the local parts out: a filter part for messages, and
   :class:`Crossing` by crossing what the corpus must be asked, from which anchor.

:func:`to_text` prints any tree back; parsing its text gives the tree again.
"""

from __future__ import annotations

from fmware.xpath.canonical import canonical
from fmware.xpath.errors import (
    CODES,
    UndeclaredPrefix,
    UnsupportedXPath,
    XPathError,
    XPathLimitExceeded,
    XPathSyntaxError,
)
from fmware.xpath.grammar import parse_expression
from fmware.xpath.limits import XPathLimits
from fmware.xpath.names import check_expression, check_prefixes, clark
from fmware.xpath.parser import parse
from fmware.xpath.planner import Plan, guard_text, plan, plan_of
from fmware.xpath.printer import to_text
from fmware.xpath.split import Anchor, Crossing, Split, split
from fmware.xpath.tree import (
    And,
    Axis,
    Compare,
    Contains,
    Exists,
    Expr,
    Kind,
    Not,
    Op,
    Or,
    Path,
    Position,
    StartsWith,
    Step,
)

__all__ = [
    "CODES",
    "Anchor",
    "And",
    "Axis",
    "Compare",
    "Contains",
    "Crossing",
    "Exists",
    "Expr",
    "Kind",
    "Not",
    "Op",
    "Or",
    "Path",
    "Plan",
    "Position",
    "Split",
    "StartsWith",
    "Step",
    "UndeclaredPrefix",
    "UnsupportedXPath",
    "XPathError",
    "XPathLimitExceeded",
    "XPathLimits",
    "XPathSyntaxError",
    "canonical",
    "check_expression",
    "check_prefixes",
    "clark",
    "guard_text",
    "parse",
    "parse_expression",
    "plan",
    "plan_of",
    "split",
    "to_text",
]
