"""Corpora and streams of anchors, drawn from a seed, on which operators are compared.

A `Stock` is a corpus: records whose anchors are of several kinds, all of one tag, and their
matches, all of another. Kinds differ in how many anchors share a structure, which is what SES
schemes cluster by, and in how many matches such a cluster has. `drawn` makes a stock, `arrivals`
the order in which its anchors come, as messages bring them: some come often, most rarely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from fmware.datasets.chance import check, ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]

__all__ = ["Kind", "Stock", "arrivals", "corpus", "drawn"]

_BASE = 64
_CHUNK = 1 << 17
_DEPTH = 9
MOST_ANCHORS, MOST_MATCHES = 20_000, 60_000
"""Nodes of a kind at most."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Anchors in clusters of one structure; the `full` ones of a cluster hold `inside` matches."""

    clusters: int
    anchors: int
    full: int
    inside: int

    @property
    def size(self) -> int:
        return self.clusters * self.anchors


@dataclass(frozen=True, slots=True)
class Stock:
    """Records with anchors of some kinds; none: parts within parts, `nested` records of them.

    Every anchor has a key of its own, its number, in the attribute `k`.
    """

    kinds: tuple[Kind, ...] = ()
    nested: int = 0

    record = "entry"
    anchor = "thing"
    match = "part"


def logarithmic(rng: Random, low: int, high: int) -> int:
    """A number whose logarithm is uniform: as many of tens as of thousands."""
    return min(int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))), high)


def drawn(rng: Random) -> Stock:
    """A stock of one to three kinds, or, one time in five, of nested records."""
    if rng.random() < 0.2:
        return Stock(nested=logarithmic(rng, 50, 500))
    return Stock(tuple(_kind(rng) for _ in range(rng.randint(1, 3))))


def _kind(rng: Random) -> Kind:
    number = logarithmic(rng, 200, MOST_ANCHORS)
    clusters = logarithmic(rng, 1, number)
    anchors = max(number // clusters, 1)
    full = rng.randint(1, anchors)
    most = max(MOST_MATCHES // (clusters * full), 1)
    return Kind(clusters, anchors, full, logarithmic(rng, 1, min(most, 64)))


def arrivals(rng: Random, anchors: int, inputs: int) -> Rows:
    """The anchors of a stream, by number: each once, again and again, or some far more often.

    Only some of them come at all; which ones is drawn, too.
    """
    check("anchors", anchors, 1, math.inf)
    check("inputs", inputs, 1, math.inf)
    some = rng.sample(range(anchors), logarithmic(rng, min(anchors, 10), anchors))
    if rng.random() < 0.3:
        found = [each for _ in range(-(-inputs // len(some))) for each in some][:inputs]
    else:
        rank = ranks(rng, len(some), rng.uniform(0.0, 1.5))
        found = [some[rank()] for _ in range(inputs)]
    return np.array(found, np.int64)


# --- corpora --------------------------------------------------------------------------------


def corpus(stock: Stock, *, seed: int = 0) -> Iterator[bytes]:
    """One document, a root `corpus` with the records of a stock, in chunks."""
    parts, held = ["<corpus>\n"], 0
    for inside in _insides(stock, Random(seed)):
        parts.append(f"<{stock.record}>{inside}</{stock.record}>\n")
        held += len(inside)
        if held >= _CHUNK:
            yield "".join(parts).encode()
            parts, held = [], 0
    yield "".join([*parts, "</corpus>\n"]).encode()


def _insides(stock: Stock, rng: Random) -> Iterator[str]:
    number = 0
    for place, kind in enumerate(stock.kinds):
        for cluster in range(kind.clusters):
            before, after = _code(place, cluster)
            for at in range(kind.anchors):
                body = _matches(stock, kind.inside) if at < kind.full else ""
                yield f"{before}{_anchor(stock, number, body)}{after}"
                number += 1
    for _ in range(stock.nested):
        inside, number = _nested(stock, rng, _DEPTH, number)
        yield inside


def _anchor(stock: Stock, number: int, body: str) -> str:
    return f'<{stock.anchor} k="{number}">{body}<name>{number}</name></{stock.anchor}>'


def _code(kind: int, cluster: int) -> tuple[str, str]:
    """What tells a structure from others: elements around the anchor, and such before it."""
    digits = [f"k{kind}"]
    for _ in range(3):
        cluster, digit = divmod(cluster, _BASE)
        digits.append(f"d{digit}")
    opened = "".join(f"<{digit}>" for digit in digits)
    marks = "".join(f"<{digit}/>" for digit in digits)
    return opened + marks, "".join(f"</{digit}>" for digit in reversed(digits))


def _matches(stock: Stock, number: int) -> str:
    return "".join(f"<{stock.match}>{i}</{stock.match}>" for i in range(number))


def _nested(stock: Stock, rng: Random, depth: int, number: int) -> tuple[str, int]:
    """An anchor with anchors in it, some of them in boxes, most with a match or two."""
    own, number = number, number + 1
    inside = [f"<{stock.match}>{depth}</{stock.match}>"] * rng.randrange(3)
    for _ in range(rng.randrange(1, 4) if depth else 0):
        deeper = depth - rng.randrange(1, 4) if depth > 3 else 0
        part, number = _nested(stock, rng, deeper, number)
        inside.append(f"<box>{part}</box>" if rng.random() < 0.3 else part)
    rng.shuffle(inside)
    return _anchor(stock, own, "".join(inside)), number
