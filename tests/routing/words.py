"""Linear paths by brute force: all short words over a small alphabet, and which a path accepts."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

LEAVES = ("@x", "@y", "text()")


@cache
def words(longest: int, letters: tuple[str, ...] = ("a", "b", "z")) -> tuple[str, ...]:
    """Every word of elements up to a length, alone and with each leaf, as `/a/b/@x`."""
    found = []
    for length in range(1, longest + 1):
        for word in product(letters, repeat=length):
            text = "".join(f"/{letter}" for letter in word)
            found.append(text)
            found += [f"{text}/{leaf}" for leaf in LEAVES]
    return tuple(found)


def accepted(path: str, longest: int) -> int:
    """The words that have a prefix in a path's language, as the bits of a number."""
    pattern = re.compile(_expression(path))
    bits = 0
    for place, word in enumerate(words(longest)):
        if pattern.match(word):
            bits |= 1 << place
    return bits


def _expression(path: str) -> str:
    text = ""
    for gap, test in re.findall(r"(//?)([^/]+)", path):
        text += "(?:/[a-z])*" if gap == "//" else ""
        name = {"*": "[a-z]", "@*": "@[a-z]", "text()": r"text\(\)"}.get(test, test)
        text += f"/{name}(?=/|$)"
    return text
