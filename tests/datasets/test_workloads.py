"""Corpora and streams of anchors: they are what they say, and a seed decides them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from lxml import etree

from fmware.datasets.errors import ParameterError
from fmware.datasets.workloads import Kind, Stock, arrivals, corpus, drawn, logarithmic

STOCKS = {
    "two kinds": Stock((Kind(3, 5, 2, 4), Kind(70, 1, 1, 1))),
    "nested": Stock(nested=12),
}


def tree(stock: Stock) -> etree._Element:
    return etree.fromstring(b"".join(corpus(stock)))


def path_of(node: etree._Element) -> str:
    return "/".join(str(each.tag) for each in [*reversed([*node.iterancestors()]), node])


@pytest.mark.parametrize("stock", STOCKS.values(), ids=STOCKS)
def test_kinds_have_the_clusters_and_matches_they_say(stock: Stock) -> None:
    anchors = [*tree(stock).iter(stock.anchor)]
    assert sorted(int(each.get("k") or -1) for each in anchors) == [*range(len(anchors))]
    assert b"".join(corpus(stock)) == b"".join(corpus(stock))
    before = 0
    for kind in stock.kinds:
        own = anchors[before : before + kind.size]
        before += kind.size
        clusters = Counter(map(path_of, own))
        assert [*clusters.values()] == [kind.anchors] * kind.clusters
        inside = Counter(len([*anchor.iter(stock.match)]) for anchor in own)
        assert inside[kind.inside] == kind.full * kind.clusters
    if stock.nested:
        assert max(path_of(anchor).count(stock.anchor) for anchor in anchors) > 3


def test_stocks_are_drawn_from_a_seed() -> None:
    found = [drawn(Random(seed)) for seed in range(60)]
    assert found == [drawn(Random(seed)) for seed in range(60)]
    assert len({*found}) > 50
    assert {bool(stock.nested) for stock in found} == {True, False}
    kinds = [kind for stock in found for kind in stock.kinds]
    assert all(1 <= kind.full <= kind.anchors and kind.inside >= 1 for kind in kinds)
    assert min(kind.clusters for kind in kinds) < 5
    assert max(kind.clusters for kind in kinds) > 1000


def test_anchors_come_from_those_that_are_there() -> None:
    for seed in range(50):
        rows = arrivals(Random(seed), 200, 500)
        assert (rows == arrivals(Random(seed), 200, 500)).all()
        assert len(rows) == 500
        assert 0 <= rows.min() <= rows.max() < 200
    assert arrivals(Random(1), 1, 3).tolist() == [0, 0, 0]


def test_numbers_are_spread_by_their_logarithm() -> None:
    found = [logarithmic(Random(seed), 1, 1000) for seed in range(2000)]
    assert 1 <= min(found) <= max(found) <= 1000
    assert 0.2 < sum(each < 10 for each in found) / len(found) < 0.45


def test_nonsense_is_refused() -> None:
    with pytest.raises(ParameterError, match="inputs is 0"):
        arrivals(Random(1), 10, 0)
