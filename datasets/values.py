"""The values that attributes and texts take, the same for documents and for queries.

Every attribute and every text-only element has a `Domain`: a small set of numbers or of words that
depends on its name alone, never on a seed. So a predicate drawn for `@width` compares with what
some document really holds, and the size of the domain sets how selective it is (YFilter's number
of values per element or attribute).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from zlib import crc32

_ONSETS = ("b", "br", "c", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pl", "r", "s", "st")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou", "é", "ü")
_CODAS = ("", "", "l", "n", "r", "s", "t", "nd", "rk")

# Names that speak of a number. For the others, a third are numbers all the same.
_NUMERIC = (
    "age amount at bits columns count distance employees fee goals height level lines minutes "
    "number page pages percent pieces population price quantity rank rate rating score seats "
    "seconds share size span stars total volume weight width words year"
).split()


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
    if name in _NUMERIC or (mark >> 8) % 3 == 0:
        return Domain(True, tuple(map(str, range(1, size + 1))))  # noqa: FBT003
    return Domain(False, tuple(dict.fromkeys(_phrases(mark, size, attribute is None))))  # noqa: FBT003


def _phrases(mark: int, size: int, several: bool) -> list[str]:
    rng = Random(mark)
    lengths = (1, 2, 2, 3, 4) if several else (1,)
    return [
        " ".join(word(rng.randrange(2_000)) for _ in range(rng.choice(lengths)))
        for _ in range(size)
    ]


def prose(rng: Random, words: list[str], count: int) -> list[str]:
    """A pool of running text, escaped: sentences of 3 to 24 words, now and then an ampersand."""
    return [_sentence(rng, words) for _ in range(count)]


def _sentence(rng: Random, words: list[str]) -> str:
    length = rng.choice((3, 5, 8, 11, 14, 18, 24))
    # Squaring leans towards the front of the vocabulary, as in natural text.
    drawn = [words[int(len(words) * rng.random() ** 2)] for _ in range(length)]
    if rng.random() < 0.05:
        drawn.insert(length // 2, "&amp;")
    return " ".join(drawn).capitalize() + rng.choice((". ", ". ", ". ", "; ", "? "))
