"""Random documents and statements over a small alphabet, by the thousand.

Drawing them piece by piece with Hypothesis is too slow for hundreds of thousands of pairs, so
Hypothesis draws a seed and `random` does the rest. Statements are lists of steps as written, so
that an oracle can take them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

NAMESPACES = {"p": "urn:p", "q": "urn:q"}
NAMES = ("a", "b", "c", "body.content")
ATTRIBUTES = ("x", "y", "p:x")
# No exponents and no plus signs: libxml2 reads them as numbers, XPath 1.0 does not.
VALUES = (
    *("1", "2", "3", "10", "1.5", "-2", "0", "-0", ".5", "5.", "007", "1.50"),
    *(" 2 ", "\t3\n", "", " ", "ab", "b", "a b", "1 2", "-", ".", "1.2.3", "é", "NaN"),
)
NUMBERS = ("0", "1", "2", "3", "10", "1.5", "-2", "-0", ".5", "5.", "7", "1000000000000")
STRINGS = ("", "1", "2", "a", "ab", "b", " 2 ", " ", "10", "1.5", "é", "NaN", "a b")
SIGNS = ("=", "!=", "<", "<=", ">", ">=")


def document(random: Random, depth: int = 6) -> bytes:
    """A document with repeated and recursive tags, mixed content and namespaces."""
    body = _element(random, depth)
    at = min(body.index(">"), body.index("/>") if "/>" in body else len(body))
    declared = ' xmlns:p="urn:p" xmlns:q="urn:q"'
    return f"{body[:at]}{declared}{body[at:]}".encode()


def _element(random: Random, depth: int) -> str:
    name = random.choice(NAMES)
    draw = random.random()
    space = ""
    if draw < 0.15:
        name = random.choice(("p:", "q:")) + name
    elif draw < 0.22:
        space = random.choice((' xmlns="urn:p"', ' xmlns=""', ' xmlns="urn:other"'))
    given = "".join(
        f' {key}="{_escaped(random.choice(VALUES))}"' for key in ATTRIBUTES if random.random() < 0.3
    )
    inside = _content(random, depth)
    return f"<{name}{space}{given}>{inside}</{name}>" if inside else f"<{name}{space}{given}/>"


def _content(random: Random, depth: int) -> str:
    parts = [_text(random) if random.random() < 0.45 else ""]
    for _ in range(random.choice((0, 0, 1, 1, 2, 3)) if depth > 1 else 0):
        parts.append(_element(random, depth - 1))
        if random.random() < 0.3:
            parts.append(_text(random))
    return "".join(parts)


def _text(random: Random) -> str:
    text = _escaped(random.choice(VALUES))
    draw = random.random()
    if draw < 0.1:
        return f"{text}<!--split-->{_escaped(random.choice(VALUES))}"
    if draw < 0.15:
        return f"{text}<?split here?>"
    if draw < 0.25:
        # Never empty: lxml makes an empty text node of that, which XPath 1.0 does not know.
        return f"{text}<![CDATA[{random.choice(VALUES) or '<'}]]>"
    return text


def _escaped(text: str) -> str:
    return text.replace("\t", "&#9;").replace("\n", "&#10;")


def statement(random: Random) -> list[str]:
    """The steps of a statement, each with the slashes before it."""
    steps = [
        _slashes(random) + _element_test(random) + _predicates(random, 0.22, 2)
        for _ in range(random.choice((1, 1, 2, 2, 3, 3, 4, 5)))
    ]
    draw = random.random()
    if draw < 0.2:
        steps.append(_slashes(random) + _leaf(random))
    elif draw < 0.22:
        return [_slashes(random) + _leaf(random)]
    return steps


def _slashes(random: Random) -> str:
    return "//" if random.random() < 0.35 else "/"


def _element_test(random: Random) -> str:
    draw = random.random()
    if draw < 0.18:
        return "*"
    if draw < 0.24:
        return random.choice(("p:*", "q:*"))
    return random.choice(("p:", "q:", "", "", "", "", "")) + random.choice(NAMES)


def _leaf(random: Random) -> str:
    """An attribute or text() step; all that may be asked of it is its value."""
    leaf = random.choice(("@x", "@y", "@p:x", "@*", "@p:*", "text()", "text()", "text()"))
    if random.random() < 0.3:
        return f"{leaf}[{_value_test(random)}]"
    return leaf


def _value_test(random: Random) -> str:
    draw = random.random()
    if draw < 0.2:
        return f"not({_value_test(random)})"
    if draw < 0.35:
        return f"{_value_test(random)} or {_value_test(random)}"
    return _test(random, ".")


def _predicates(random: Random, chance: float, depth: int) -> str:
    found = ""
    while random.random() < chance:
        draw = random.random()
        found += f"[{random.choice('123') if draw < 0.1 else condition(random, depth)}]"
    return found


def condition(random: Random, depth: int) -> str:
    """A condition as it stands in a predicate."""
    draw = random.random()
    if depth and draw < 0.1:
        return f"not({condition(random, depth - 1)})"
    if depth and draw < 0.25:
        word = random.choice((" and ", " or "))
        return f"({condition(random, depth - 1)}{word}{condition(random, depth - 1)})"
    if draw < 0.33:
        return f"position() {random.choice(SIGNS)} {random.choice(NUMBERS)}"
    return _test(random, _relative(random, depth))


def _test(random: Random, path: str) -> str:
    draw = random.random()
    if draw < 0.25 and path != ".":
        return path
    if draw < 0.4:
        return f"{random.choice(('contains', 'starts-with'))}({path}, {_string(random)})"
    literal = random.choice(NUMBERS) if random.random() < 0.6 else _string(random)
    sign = random.choice(SIGNS)
    return f"{literal} {sign} {path}" if random.random() < 0.1 else f"{path} {sign} {literal}"


def _string(random: Random) -> str:
    return f"'{random.choice(STRINGS)}'"


def _relative(random: Random, depth: int) -> str:
    draw = random.random()
    if draw < 0.3:
        return _leaf(random)
    if draw < 0.4:
        return "."
    path = random.choice(("", "", ".//"))
    for index in range(random.choice((1, 1, 2))):
        path += _slashes(random) if index else ""
        path += _element_test(random)
        path += _predicates(random, 0.12, depth - 1) if depth else ""
    return path + _slashes(random) + _leaf(random) if random.random() < 0.3 else path
