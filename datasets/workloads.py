"""Streams of anchors that mix what costs a matcher little with what costs it much.

A `Stock` is a part of a corpus: records whose anchors are of several kinds, all of one tag, and
their matches, all of another. Kinds differ in how many anchors share a structure, which is what SES
schemes cluster by, and in how many matches such a cluster has. A `Stream` says in which order
anchors of a stock come, as messages bring them: a batch is a message. Most messages of a shop name
common articles, some a rare one of a large catalogue; what is common may change over time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from datasets.chance import check, ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]
    Draw = Callable[["Stock", Random, int], Iterator[Sequence[int]]]

__all__ = ["STOCKS", "STREAMS", "Kind", "Stock", "Stream", "corpus"]

_BASE = 64
_CHUNK = 1 << 17
_DEPTH = 9
INFINITE = float("inf")


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

    def smaller(self, by: int) -> Kind:
        """The same with fewer clusters, or with fewer anchors where there are few clusters."""
        if self.clusters >= 4 * by:
            return Kind(self.clusters // by, self.anchors, self.full, self.inside)
        anchors = max(self.anchors // by, 1)
        return Kind(self.clusters, anchors, min(self.full, anchors), self.inside)


@dataclass(frozen=True, slots=True)
class Stock:
    """Records with anchors of some kinds; none: parts within parts, `nested` records of them."""

    name: str
    kinds: tuple[Kind, ...] = ()
    nested: int = 0

    @property
    def record(self) -> str:
        return self.name

    @property
    def anchor(self) -> str:
        return f"{self.name}_anchor"

    @property
    def match(self) -> str:
        return f"{self.name}_match"

    def smaller(self, by: int) -> Stock:
        """The same with less of everything."""
        kinds = tuple(kind.smaller(by) for kind in self.kinds)
        return Stock(self.name, kinds, -(-self.nested // by))

    def rows(self, kind: int) -> range:
        """The anchors of a kind, by their place among all anchors; cluster by cluster."""
        before = sum(each.size for each in self.kinds[:kind])
        return range(before, before + self.kinds[kind].size)


@dataclass(frozen=True, slots=True)
class Stream:
    """Anchors of a stock in batches: `draw` gives the places of the anchors of each batch.

    `mixed`: no single operator is right for all of its batches.
    """

    name: str
    stock: str
    draw: Draw
    axis: str = "descendant"
    mixed: bool = False

    def batches(self, stock: Stock, number: int, size: int, anchors: int, seed: int) -> list[Rows]:
        """So many batches of a size, of the anchors that there are."""
        check("batches", number, 1, INFINITE)
        check("size", size, 1, INFINITE)
        if not stock.kinds:
            stock = replace(stock, kinds=(Kind(1, anchors, 0, 0),))
        drawn = self.draw(stock, Random(seed), size)
        return [np.array(next(drawn), np.int64) for _ in range(number)]


# --- corpora --------------------------------------------------------------------------------


def corpus(stocks: Iterable[Stock], *, seed: int = 0) -> Iterator[bytes]:
    """One document, a root `corpus` with the records of stocks, in chunks."""
    parts, held = ["<corpus>\n"], 0
    for stock in stocks:
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
                name = f"<name>{number}</name>"
                yield f"{before}<{stock.anchor}>{body}{name}</{stock.anchor}>{after}"
                number += 1
    for _ in range(stock.nested):
        yield _nested(stock, rng, _DEPTH)


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


def _nested(stock: Stock, rng: Random, depth: int) -> str:
    """A part with parts in it, some of them in boxes, most with a match or two."""
    inside = [f"<{stock.match}>{depth}</{stock.match}>"] * rng.randrange(3)
    for _ in range(rng.randrange(1, 4) if depth else 0):
        part = _nested(stock, rng, depth - rng.randrange(1, 4) if depth > 3 else 0)
        inside.append(f"<box>{part}</box>" if rng.random() < 0.3 else part)
    rng.shuffle(inside)
    return f"<{stock.anchor}>{''.join(inside)}<name>n</name></{stock.anchor}>"


# --- streams --------------------------------------------------------------------------------


def _once(rows: Sequence[int], rng: Random) -> Iterator[int]:
    """Each in random order, and again when all have come."""
    while True:
        yield from rng.sample(rows, len(rows))


def _of(kind: int) -> Draw:
    """Anchors of one kind, each once."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        rows = _once(stock.rows(kind), rng)
        while True:
            yield [next(rows) for _ in range(size)]

    return draw


def _mixed(share: float, *, run: int = 1) -> Draw:
    """Batches of the first kind, and a share of batches of the second, `run` of a kind in a row."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        kinds = [_once(stock.rows(kind), rng) for kind in (0, 1)]
        while True:
            rows = kinds[rng.random() < share]
            for _ in range(run):
                yield [next(rows) for _ in range(size)]

    return draw


def _within(each: int) -> Draw:
    """In every batch a few anchors of the second kind."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        common, rare = (_once(stock.rows(kind), rng) for kind in (0, 1))
        few = min(each, size)
        while True:
            batch = [next(rare) for _ in range(few)] + [next(common) for _ in range(size - few)]
            rng.shuffle(batch)
            yield batch

    return draw


def _phases(length: int, *kinds: int) -> Draw:
    """First one kind, then another, so many batches of each."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        rows = {kind: _once(stock.rows(kind), rng) for kind in kinds}
        while True:
            for kind in kinds:
                for _ in range(length):
                    yield [next(rows[kind]) for _ in range(size)]

    return draw


def _zipf(skew: float, *, clusters: int | None = None) -> Draw:
    """Some clusters come often, most rarely; of each, any anchor. `clusters`: only so many come."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        (kind,) = stock.kinds
        some = min(clusters or kind.clusters, kind.clusters)
        order = rng.sample(range(kind.clusters), some)
        rank = ranks(rng, some, skew)
        while True:
            chosen = [order[rank()] for _ in range(size)]
            yield [each * kind.anchors + rng.randrange(kind.anchors) for each in chosen]

    return draw


def _drifting(width: int, speed: float) -> Draw:
    """A window of clusters moves on: those that came often give way to others."""

    def draw(stock: Stock, rng: Random, size: int) -> Iterator[Sequence[int]]:
        (kind,) = stock.kinds
        at = 0.0
        while True:
            chosen = [(int(at) + rng.randrange(width)) % kind.clusters for _ in range(size)]
            yield [each * kind.anchors + rng.randrange(kind.anchors) for each in chosen]
            at += speed

    return draw


STOCKS = (
    Stock("alike", (Kind(1, 20_000, 8, 1),)),
    Stock("forms", (Kind(200, 60, 4, 1),)),
    Stock("wild", (Kind(12_000, 1, 1, 1),)),
    Stock("lists", (Kind(400, 30, 30, 8),)),
    Stock("shop", (Kind(2, 10_000, 8, 1), Kind(384, 480, 480, 16))),
    Stock("nested", nested=1200),
)

STREAMS = (
    Stream("clustered", "alike", _of(0)),
    Stream("clustered in 200 forms", "forms", _of(0)),
    Stream("clustered, parents", "lists", _of(0), axis="parent"),
    Stream("unclustered", "wild", _of(0)),
    Stream("unclustered, large clusters", "shop", _of(1)),
    Stream("recursive", "nested", _of(0)),
    Stream("recursive, ancestors", "nested", _of(0), axis="ancestor"),
    Stream("recursive, children", "nested", _of(0), axis="child"),
    Stream("skewed", "lists", _zipf(1.1)),
    Stream("skewed, few of many", "wild", _zipf(1.0, clusters=40)),
    Stream("drifting", "forms", _drifting(12, 0.05)),
    Stream("drifting, unclustered", "wild", _drifting(40, 1.0)),
    Stream("drifting in phases", "shop", _phases(400, 0, 1)),
    Stream("mixed, rare 5%", "shop", _mixed(0.05), mixed=True),
    Stream("mixed, rare 15%", "shop", _mixed(0.15), mixed=True),
    Stream("mixed, rare 25%", "shop", _mixed(0.25), mixed=True),
    Stream("mixed, rare 15%, in runs", "shop", _mixed(0.15, run=8), mixed=True),
    Stream("mixed within batches", "shop", _within(3)),
)
