"""The values that attributes and texts take, the same for documents and for queries.

Every attribute and every text-only element has a `Domain`: a small set of numbers or of words that
depends on its name alone, never on a seed. So a predicate drawn for `@width` compares with what
some document really holds, and the size of the domain sets how selective it is (YFilter's number
of values per element or attribute).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from fmware.datasets.dtd import Attribute

_ONSETS = ("b", "br", "c", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "st")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou", "é", "ü")
_CODAS = ("", "", "l", "n", "r", "s", "t", "nd", "rk")

# Names that speak of a number. Of the other attributes, a third are numbers all the same.
_NUMERIC = re.compile(
    "age|amount|at|bits|columns|count|date|distance|employees|expires|fee|filed|goals|height|issued|"
    "level|lines|minutes|month|sent|time|when|"
    "number|pages?|percent|pieces|population|price|quantity|rank|rate|rating|score|seats|seconds|"
    "share|size|span|stars|total|volume|weight|width|words|year"
)


@dataclass(frozen=True, slots=True)
class Domain:
    """The values one attribute or text can take; numbers stand in ascending order."""

    numeric: bool
    values: tuple[str, ...]


def word(number: int) -> str:
    """The number-th word of an endless made-up language; equal numbers, equal words."""
    parts = []
    while True:
        number, onset = divmod(number, len(_ONSETS))
        number, vowel = divmod(number, len(_VOWELS))
        number, coda = divmod(number, len(_CODAS))
        parts.append(_ONSETS[onset] + _VOWELS[vowel] + _CODAS[coda])
        if number == 0:
            return "".join(parts)


def vocabulary(size: int) -> list[str]:
    """The first `size` words, spread so that neighbours differ; duplicates do not occur."""
    # The stride is a prime, hence a permutation for every size below it.
    return list(dict.fromkeys(word(i * 7_919 % 1_000_003) for i in range(size)))


def domain(element: str, attribute: str | None, limit: int) -> Domain:
    """The domain of an attribute, or of the element's text, of at most `limit` values."""
    label = element if attribute is None else f"{element}@{attribute}"
    mark = crc32(label.encode())
    size = limit - mark % (limit // 2 + 1)
    name = (attribute or element).rpartition(".")[2]
    if _NUMERIC.fullmatch(name) or (attribute and (mark >> 8) % 3 == 0):
        return Domain(numeric=True, values=tuple(map(str, range(1, size + 1))))
    phrases = _phrases(mark, size, several=attribute is None)
    return Domain(numeric=False, values=tuple(dict.fromkeys(phrases)))


def attribute_domain(element: str, attribute: Attribute, limit: int) -> Domain:
    """The domain of a declared attribute: what the DTD lists, or else one made for its name."""
    values = attribute.values
    if attribute.presence == "fixed" and attribute.default is not None:
        values = (attribute.default,)
    if values:
        return Domain(all(value.isdigit() for value in values), values)
    return domain(element, attribute.name, limit)


def _phrases(mark: int, size: int, *, several: bool) -> list[str]:
    rng = Random(mark)
    lengths = (1, 2, 2, 3, 4) if several else (1,)
    return [
        " ".join(word(rng.randrange(2_000)) for _ in range(rng.choice(lengths)))
        for _ in range(size)
    ]


def prose(rng: Random, words: list[str], count: int) -> list[str]:
    """A pool of running text, escaped: sentences of 2 to 20 words, now and then an ampersand."""
    return [_sentence(rng, words) for _ in range(count)]


def _sentence(rng: Random, words: list[str]) -> str:
    length = rng.choice((2, 3, 4, 6, 9, 13, 20))
    # Squaring leans towards the front of the vocabulary, as in natural text.
    drawn = [words[int(len(words) * rng.random() ** 2)] for _ in range(length)]
    if rng.random() < 0.05:
        drawn.insert(length // 2, "&amp;")
    return " ".join(drawn).capitalize() + rng.choice((". ", ". ", ". ", "; ", "? "))
