"""The regular expressions the parser reads with.

All quantifiers are possessive: a name that turns out to be a function or an axis must fail as a
whole, not match one letter short, and no input can make the matching go back and forth.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Match: TypeAlias = Callable[[str, int], re.Match[str] | None]

SPACES: Final = (" ", "\t", "\r", "\n")

_S: Final = "[ \t\r\n]*+"
_NUMBER: Final = r"[0-9]++(?:\.[0-9]*+)?+"
_COMPARISON: Final = "=|!=|<=?+|>=?+"
_ASCII_START: Final = "A-Z_a-z"
_ASCII_REST: Final = _ASCII_START + "\\-.0-9"
_OTHER_START: Final = (
    "\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_OTHER_REST: Final = _OTHER_START + "\xb7\u0300-\u036f\u203f\u2040"
NAME_START: Final = _ASCII_START, _ASCII_START + _OTHER_START
"""Characters a name begins with, as a class of a regular expression: in ASCII, and all of them."""
NAME_REST: Final = _ASCII_REST, _ASCII_REST + _OTHER_REST
"""The same of characters it goes on with."""

number: Final = re.compile(rf"{_NUMBER}|\.[0-9]++").match
exponent: Final = re.compile(r"[eE][+-]?+[0-9]").match


class Lexer:
    """The expressions that read names.

    - ``first`` and ``next`` read a step: a slash (``next`` only), ``@``, the parts of the name, and
      the bracket of its first predicate;
    - ``run`` reads steps that are no more than a slash and a name, ``plain`` takes them apart;
    - ``brief`` reads a whole predicate behind its bracket: ``n``, ``name``, ``name op literal``;
    - ``operator`` reads what may stand behind an operand, and nothing where nothing does.
    """

    __slots__ = (
        "axis", "brief", "call", "first", "name", "ncname", "next", "operator", "plain", "run",
    )  # fmt: skip

    def __init__(self, start: str, rest: str) -> None:
        nc = f"[{start}][{rest}]*+"
        either = rf"(?:{nc}|\*)"
        step = rf"(@)?+{_S}({nc}|\*)(?::({nc}|\*))?+{_S}(?![(:])(\[)?+"
        literal = rf"(?:({_NUMBER})|\"([^\"]*+)\"|'([^']*+)')"
        test = rf"(@)?+({nc}){_S}(?:({_COMPARISON}){_S}{literal}{_S})?+"
        words = rf"(?:and|or|div|mod)(?![{rest}])"
        self.first: Match = re.compile(step).match
        self.next: Match = re.compile(rf"(//?+){_S}{step}").match
        self.run: Match = re.compile(rf"(?://?+{either}(?=/|\Z))++").match
        self.plain: Callable[[str, int, int], list[Any]] = re.compile(rf"(//?+)({either})").findall
        self.brief: Match = re.compile(rf"{_S}(?:([0-9]++)|{test}){_S}\]{_S}(\[)?+").match
        self.ncname: Match = re.compile(nc).match
        self.name: Match = re.compile(rf"{either}(:{either})?+").match
        self.axis: Match = re.compile(rf"({nc}){_S}::{_S}").match
        self.call: Match = re.compile(rf"((?:{nc}:)?+{nc}){_S}\({_S}").match
        self.operator: Match = re.compile(rf"{_S}({_COMPARISON}|{words}|[-+*|/\[]|)").match


_ASCII: Final = Lexer(_ASCII_START, _ASCII_REST)


@cache
def _unicode() -> Lexer:
    """For all the names XML has; made when first needed, since the classes take long to compile."""
    return Lexer(NAME_START[1], NAME_REST[1])


def lexer_for(text: str) -> Lexer:
    """The lexer that knows every name which can be in the text."""
    return _ASCII if text.isascii() else _unicode()


def illegal(text: str) -> int | None:
    """Where a character stands that XML does not allow."""
    if text.isprintable():
        return None
    found = re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    return found.start() if found else None
