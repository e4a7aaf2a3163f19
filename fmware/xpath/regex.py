"""Regular expressions of XPath 2's ``matches``, compiled to a machine that runs in linear time.

The syntax is that of XML Schema with ``^`` and ``$``: alternatives, groups, classes with ranges,
negation and subtraction, ``\\d \\w \\s \\i \\c \\p{L}``, and all quantifiers. Back-references are
refused: nothing matches them in linear time. The machine (Thompson's) is run by
``fmware/filtering/xpath_regex.h``: each character of a string is looked at once, with all states at
a time.
"""

from __future__ import annotations

import sys
import unicodedata
from array import array
from bisect import bisect_right
from functools import cache
from typing import Any, Final, NoReturn, TypeAlias

__all__ = ["MOST", "RegexError", "compile_regex", "matches_empty"]

MOST: Final = 4096
"""Instructions that a machine may have; counted repetitions are written out."""
_MATCH, _SPLIT, _JUMP, _CLASS, _BEGIN, _END = range(6)
_LAST: Final = sys.maxunicode
_DEEPEST: Final = 64

Ranges: TypeAlias = list[tuple[int, int]]
Code: TypeAlias = list[tuple[Any, ...]]


class RegexError(ValueError):
    """A pattern that cannot be used; `at` is the character of it."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


@cache
def compile_regex(pattern: str, flags: str = "") -> bytes:
    """The machine of a pattern, packed; raises a RegexError.

    The first number says how many instructions there are, of three numbers each: an operation and
    two operands. Behind them are the ranges of characters of all classes.
    """
    for at, flag in enumerate(flags):
        if flag not in "ims":
            raise RegexError(f"the flag {flag!r}; there are i, m and s", at)
    code = _Parser(pattern, flags).whole()
    ranges = array("i")
    flat = array("i", [len(code)])
    for op, *operands in code:
        if op == _CLASS:
            own = operands[0]
            begin = len(ranges) // 2
            for low, high in own:
                ranges.extend((low, high))
            operands = [begin, len(own)]
        flat.extend((op, *(*operands, 0, 0)[:2]))
    flat.append(int("m" in flags))
    return flat.tobytes() + ranges.tobytes()


@cache
def matches_empty(pattern: str, flags: str = "") -> bool:
    """Whether the empty string matches."""
    code = _Parser(pattern, flags).whole()
    seen: set[int] = set()
    waiting = [0]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        op, *operands = code[at]
        if op == _MATCH:
            return True
        if op in (_SPLIT, _JUMP):
            waiting += operands
        elif op in (_BEGIN, _END):
            waiting.append(at + 1)
    return False


class _Parser:
    __slots__ = ("at", "depth", "flags", "text")

    def __init__(self, text: str, flags: str) -> None:
        self.text = text
        self.flags = flags
        self.at = 0
        self.depth = 0

    def whole(self) -> Code:
        code = self.alternatives()
        if self.at < len(self.text):
            self.refuse("a parenthesis that closes nothing")
        return [*code, (_MATCH,)]

    def refuse(self, reason: str) -> NoReturn:
        raise RegexError(reason, self.at)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def alternatives(self) -> Code:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse("groups are nested too deeply")
        code = self.sequence()
        while self.peek() == "|":
            self.at += 1
            other = self.sequence()
            first = _moved(code, 1)
            begin = len(first) + 2
            code = [
                (_SPLIT, 1, begin),
                *first,
                (_JUMP, begin + len(other)),
                *_moved(other, begin),
            ]
            self.check(code)
        self.depth -= 1
        return code

    def sequence(self) -> Code:
        code: Code = []
        while self.peek() not in ("", "|", ")"):
            piece = self.quantified(self.atom())
            code += _moved(piece, len(code))
            self.check(code)
        return code

    def check(self, code: Code) -> None:
        if len(code) > MOST:
            self.refuse(f"the pattern needs more than {MOST} states")

    def quantified(self, piece: Code) -> Code:
        least, most = 1, 1
        sign = self.peek()
        if sign in ("?", "*", "+"):
            self.at += 1
            least, most = {"?": (0, 1), "*": (0, -1), "+": (1, -1)}[sign]
        elif sign == "{":
            least, most = self.counts()
        else:
            return piece
        if self.peek() == "?":
            self.at += 1  # Reluctant or not: whether it matches is the same.
        if self.peek() in ("?", "*", "+", "{"):
            self.refuse("a quantifier of a quantifier")
        return self.repeated(piece, least, most)

    def counts(self) -> tuple[int, int]:
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()) or len(low + high) > 8:
            self.refuse("not a quantifier; write {2}, {2,} or {2,5}")
        least = int(low)
        most = int(high) if high else -1 if comma else least
        if 0 <= most < least:
            self.refuse("a quantifier whose maximum is below its minimum")
        self.at = end + 1
        return least, most

    def repeated(self, piece: Code, least: int, most: int) -> Code:
        copies = max(least, most, 1)
        if copies * (len(piece) + 1) > MOST:
            self.refuse(f"the pattern needs more than {MOST} states")
        code: Code = []
        for _ in range(least):
            code += _moved(piece, len(code))
        if most < 0:
            begin = len(code)
            end = begin + len(piece) + 2
            return [*code, (_SPLIT, begin + 1, end), *_moved(piece, begin + 1), (_JUMP, begin)]
        end = len(code) + (most - least) * (len(piece) + 1)
        for _ in range(most - least):
            begin = len(code)
            code += [(_SPLIT, begin + 1, end), *_moved(piece, begin + 1)]
        return code

    def atom(self) -> Code:
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return [self.kind(self.char_class())]
        if char == "\\":
            return [self.kind(self.escape())]
        self.at += 1
        if char == ".":
            line_ends = [] if "s" in self.flags else [(10, 10), (13, 13)]
            return [self.kind(_negated(line_ends))]
        if char in "^$":
            return [(_BEGIN,) if char == "^" else (_END,)]
        if char in "?*+{":
            self.at -= 1
            self.refuse("a quantifier of nothing")
        if char in "]}":
            self.at -= 1
            self.refuse(f"{char!r} must be written \\{char}")
        return [self.kind([(ord(char), ord(char))])]

    def kind(self, ranges: Ranges) -> tuple[Any, ...]:
        if "i" in self.flags:
            ranges = _without_case(ranges)
        return _CLASS, tuple(ranges)

    def group(self) -> Code:
        self.at += 1
        if self.text.startswith("?", self.at):
            if not self.text.startswith("?:", self.at):
                self.refuse("only (?:...) may follow a parenthesis with a question mark")
            self.at += 2
        code = self.alternatives()
        if self.peek() != ")":
            self.refuse("a group without its closing parenthesis")
        self.at += 1
        return code

    def char_class(self) -> Ranges:
        self.at += 1
        negative = self.peek() == "^"
        self.at += negative
        ranges: Ranges = []
        first = True
        while self.peek() != "]" or first:
            if self.peek() == "":
                self.refuse("a class without its closing bracket")
            if self.text.startswith("-[", self.at) and not first:
                self.at += 1
                without = self.char_class()
                if self.peek() != "]":
                    self.refuse("a class that goes on after a subtraction")
                self.at += 1
                own = _negated(ranges) if negative else _merged(ranges)
                return _negated(_merged(_negated(own) + without))
            ranges += self.class_item()
            first = False
        self.at += 1
        return _negated(ranges) if negative else _merged(ranges)

    def class_item(self) -> Ranges:
        low = self.class_char()
        if len(low) != 1 or low[0][0] != low[0][1]:
            return low
        after = self.text[self.at + 1 : self.at + 2]
        if self.peek() != "-" or after in ("]", "[", ""):
            return low
        self.at += 1
        high = self.class_char()
        if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
            self.refuse("a range that ends before it begins")
        return [(low[0][0], high[0][0])]

    def class_char(self) -> Ranges:
        if self.peek() == "\\":
            return self.escape()
        if self.peek() == "[":
            self.refuse("'[' in a class must be written \\[")
        self.at += 1
        code = ord(self.text[self.at - 1])
        return [(code, code)]

    def escape(self) -> Ranges:
        self.at += 1
        char = self.peek()
        if char in ("p", "P"):
            return self.category(negative=char == "P")
        self.at += 1
        if char and char in "nrt":
            code = ord({"n": "\n", "r": "\r", "t": "\t"}[char])
            return [(code, code)]
        if char and char in "\\|.?*+(){}-[]^$":
            return [(ord(char), ord(char))]
        if char and char.lower() in "dwsic":
            ranges = _shorthand(char.lower())
            return _negated(ranges) if char.isupper() else ranges
        self.at -= 1
        back = "back-references are not matched in linear time"
        raise RegexError(back if char.isdecimal() else f"the escape \\{char}", self.at)

    def category(self, *, negative: bool) -> Ranges:
        end = self.text.find("}", self.at)
        name = self.text[self.at + 2 : max(end, 0)]
        ranges = _categories().get(name) if self.text.startswith("{", self.at + 1) else None
        if ranges is None:
            self.refuse(f"no category of characters is called {name!r}")
        self.at = end + 1
        return _negated(ranges) if negative else ranges


def _moved(code: Code, by: int) -> Code:
    """Instructions at another place."""
    if not by:
        return code
    return [
        (op, *(each + by for each in rest)) if op in (_SPLIT, _JUMP) else (op, *rest)
        for op, *rest in code
    ]


def _merged(ranges: Ranges) -> Ranges:
    found: Ranges = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _negated(ranges: Ranges) -> Ranges:
    found: Ranges = []
    at = 0
    for low, high in _merged(ranges):
        if at < low:
            found.append((at, low - 1))
        at = high + 1
    return [*found, (at, _LAST)] if at <= _LAST else found


def _without_case(ranges: Ranges) -> Ranges:
    """The ranges with the other case of their letters, of characters that have one such."""
    more: Ranges = []
    lows = [low for low, _ in ranges]
    for first, other in _pairs():
        place = bisect_right(lows, first) - 1
        if place >= 0 and first <= ranges[place][1]:
            more.append((other, other))
    return _merged(ranges + more)


@cache
def _pairs() -> list[tuple[int, int]]:
    codes = range(0x1_E944)
    others = ((code, other) for code in codes for other in (chr(code).lower(), chr(code).upper()))
    return [(code, ord(other)) for code, other in others if len(other) == 1 and ord(other) != code]


@cache
def _categories() -> dict[str, Ranges]:
    """Ranges by category, as `Lu`, and by group of categories, as `L`."""
    found: dict[str, Ranges] = {}
    begin, before = 0, unicodedata.category("\0")
    for code in range(1, _LAST + 2):
        category = unicodedata.category(chr(code)) if code <= _LAST else ""
        if category != before:
            found.setdefault(before, []).append((begin, code - 1))
            begin, before = code, category
    for name in list(found):
        found.setdefault(name[0], []).extend(found[name])
    return {name: _merged(ranges) for name, ranges in found.items()}


@cache
def _shorthand(letter: str) -> Ranges:
    categories = _categories()
    if letter == "s":
        return [(9, 10), (13, 13), (32, 32)]
    if letter == "d":
        return categories["Nd"]
    if letter == "w":
        return _negated(categories["P"] + categories["Z"] + categories["C"])
    names: Ranges = [(58, 58), (65, 90), (95, 95), (97, 122), (0xC0, 0xD6), (0xD8, 0xF6)]
    names += [(0xF8, 0x2FF), (0x370, 0x37D), (0x37F, 0x1FFF), (0x200C, 0x200D), (0x2070, 0x218F)]
    names += [(0x2C00, 0x2FEF), (0x3001, 0xD7FF), (0xF900, 0xFDCF), (0xFDF0, 0xFFFD)]
    names += [(0x10000, 0xEFFFF)]
    if letter == "c":
        names += [(45, 46), (48, 57), (0xB7, 0xB7), (0x300, 0x36F), (0x203F, 0x2040)]
    return _merged(names)
