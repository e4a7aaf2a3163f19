"""What can be wrong with a statement beyond its expressions.

::

    FMwareError
    └── XPathError (also a ValueError)    what `fmware.xpath` refuses, FMX...
        └── StatementError                FMS...  parts that do not fit together

A `StatementError` looks as the others do: a code, the text it is about, a caret, what to do. Its
text is the part that is wrong: the filter, the match part, or the value of an option.
"""

from __future__ import annotations

from typing import Final

from fmware.xpath import XPathError

__all__ = ["CODES", "StatementError"]

CODES: Final = {
    "FMS001": "the filter goes on in the corpus",
    "FMS002": "the filter has no such step",
    "FMS003": "several steps of the filter have this name",
    "FMS004": "an attribute or text() cannot be an anchor",
    "FMS005": "the match part has another axis already",
    "FMS006": "not an axis that crosses into the corpus",
    "FMS007": "this axis leads to elements only",
    "FMS008": "not something a statement can return",
    "FMS009": "the statement selects nothing in the corpus",
    "FMS010": "the prefix local means the corpus",
}
"""Code to what it says."""


class StatementError(XPathError):
    """A statement whose parts do not fit together."""

    @property
    def summary(self) -> str:
        text = CODES[self.code]
        return f"{text}: {self.found}" if self.found else text
