"""What can be wrong with an XPath statement.

::

    FMwareError
    └── XPathError (also a ValueError)
        ├── XPathSyntaxError     FMX0xx  not XPath 1.0
        ├── UnsupportedXPath     FMX1xx  XPath 1.0, but outside the subset that can be filtered
        ├── XPathLimitExceeded   FMX2xx  larger than the limits in force
        └── UndeclaredPrefix     FMX3xx  a prefix that the namespace map does not have

:data:`CODES` is the one table of codes; :func:`error` makes the error of a code. Every error
carries the expression, the character it is about and, where there is one, what to write instead.
"""

from __future__ import annotations

from fmware.errors import FMwareError

_WINDOW = 72
"""Characters of a long expression shown around the caret."""


class XPathError(FMwareError, ValueError):
    """A statement that was refused.

    The fields are the exception's ``args`` too, so that errors travel between processes.
    """

    def __init__(
        self, code: str, expression: str, at: int, found: str = "", hint: str = ""
    ) -> None:
        super().__init__(code, expression, at, found, hint)
        self.code = code
        self.expression = expression
        self.at = at
        self.found = found
        self.hint = hint

    @property
    def summary(self) -> str:
        """What is wrong, on one line."""
        text = CODES[self.code][1]
        return f"{text}: {self.found}" if self.found else text

    def __str__(self) -> str:
        lines = [f"{self.code} at character {self.at + 1}: {self.summary}"]
        if self.expression:
            lines += _caret(self.expression, self.at)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class XPathSyntaxError(XPathError):
    """The expression is not XPath 1.0."""


class UnsupportedXPath(XPathError):
    """The expression is XPath 1.0, but cannot be filtered."""


class XPathLimitExceeded(XPathError):
    """The expression is larger than the limits in force."""


class UndeclaredPrefix(XPathError):
    """A name has a prefix that the namespace map does not have."""


CODES: dict[str, tuple[type[XPathError], str]] = {
    "FMX001": (XPathSyntaxError, "unexpected"),
    "FMX002": (XPathSyntaxError, "the expression ends too early"),
    "FMX003": (XPathSyntaxError, "the string has no closing quote"),
    "FMX004": (XPathSyntaxError, "the expression is empty"),
    "FMX005": (XPathSyntaxError, "a character that XML does not allow"),
    "FMX006": (XPathSyntaxError, "not an XPath 1.0 number"),
    "FMX101": (UnsupportedXPath, "a statement must be an absolute path"),
    "FMX102": (UnsupportedXPath, "a union of paths is not supported"),
    "FMX103": (UnsupportedXPath, "function not supported here"),
    "FMX104": (UnsupportedXPath, "axis not supported here"),
    "FMX105": (UnsupportedXPath, "arithmetic is not supported"),
    "FMX106": (UnsupportedXPath, "variables are not supported"),
    "FMX107": (UnsupportedXPath, "an absolute path in a predicate is not supported"),
    "FMX108": (UnsupportedXPath, "paths can be compared with literals only"),
    "FMX109": (UnsupportedXPath, "node test not supported"),
    "FMX110": (UnsupportedXPath, "nothing can follow an attribute or text() step"),
    "FMX111": (UnsupportedXPath, "a position on an explicit descendant:: step is not supported"),
    "FMX112": (UnsupportedXPath, "an attribute or text() can only be tested by its value"),
    "FMX113": (UnsupportedXPath, "a constant is not a condition"),
    "FMX114": (UnsupportedXPath, "comparison not supported"),
    "FMX115": (UnsupportedXPath, "a step or predicate after parentheses is not supported"),
    "FMX116": (UnsupportedXPath, "the document root alone cannot be filtered"),
    "FMX117": (UnsupportedXPath, "abbreviated step not supported here"),
    "FMX120": (UnsupportedXPath, "the first step is local: no message step to filter"),
    "FMX121": (UnsupportedXPath, "a message step after a local one"),
    "FMX122": (UnsupportedXPath, "an attribute cannot cross into the corpus"),
    "FMX123": (UnsupportedXPath, "a local branch under or / not()"),
    "FMX124": (UnsupportedXPath, "a local path inside contains() or starts-with()"),
    "FMX125": (UnsupportedXPath, "a position that depends on a local branch"),
    "FMX126": (UnsupportedXPath, "two local branches below one branch"),
    "FMX130": (UnsupportedXPath, "wrong number of arguments"),
    "FMX131": (UnsupportedXPath, "a node-set is needed here"),
    "FMX132": (UnsupportedXPath, "values of these types do not go together"),
    "FMX133": (UnsupportedXPath, "not a sequence that can be compared"),
    "FMX134": (UnsupportedXPath, "not a pattern that can be matched"),
    "FMX135": (UnsupportedXPath, "behind satisfies, the context is not that of the statement"),
    "FMX201": (XPathLimitExceeded, "the expression is too long"),
    "FMX202": (XPathLimitExceeded, "the expression has too many steps"),
    "FMX203": (XPathLimitExceeded, "predicates or parentheses are nested too deeply"),
    "FMX204": (XPathLimitExceeded, "the expression has too many predicates or terms"),
    "FMX301": (UndeclaredPrefix, "the prefix is not declared"),
}
"""Code to the class of its error and what it says."""


def error(code: str, expression: str, at: int, found: str = "", hint: str = "") -> XPathError:
    """The error of a code, to be raised."""
    return CODES[code][0](code, expression, at, found, hint)


def _caret(expression: str, at: int) -> list[str]:
    """The expression with a caret under the character, cut to a window when it is long."""
    start = max(0, min(at - _WINDOW // 2, len(expression) - _WINDOW))
    shown = expression[start : start + _WINDOW]
    # A tab or a line break would put the caret under another character.
    line = "".join(char if char.isprintable() else " " for char in shown)
    before, after = "…" if start else "", "…" if start + _WINDOW < len(expression) else ""
    return [f"  {before}{line}{after}", "  " + " " * (len(before) + at - start) + "^"]
