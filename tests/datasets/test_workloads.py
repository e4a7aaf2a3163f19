"""Streams of anchors: corpora are what they say, and streams are deterministic."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from lxml import etree

from datasets.errors import ParameterError
from datasets.workloads import STOCKS, STREAMS, Kind, Stock, Stream, corpus

SMALL = {stock.name: stock.smaller(50) for stock in STOCKS}


def tree(stock: Stock) -> etree._Element:
    return etree.fromstring(b"".join(corpus([stock])))


def path_of(node: etree._Element) -> str:
    return "/".join(str(each.tag) for each in [*reversed([*node.iterancestors()]), node])


@pytest.mark.parametrize("stock", SMALL.values(), ids=SMALL)
def test_kinds_have_the_clusters_and_matches_they_say(stock: Stock) -> None:
    anchors = [*tree(stock).iter(stock.anchor)]
    assert b"".join(corpus([stock])) == b"".join(corpus([stock]))
    for place, kind in enumerate(stock.kinds):
        own = [anchors[row] for row in stock.rows(place)]
        clusters = Counter(map(path_of, own))
        assert set(clusters.values()) == {kind.anchors}
        assert len(clusters) == kind.clusters
        inside = Counter(len([*anchor.iter(stock.match)]) for anchor in own)
        assert inside[kind.inside] == kind.full * kind.clusters
    if not stock.kinds:
        assert max(path_of(anchor).count(stock.anchor) for anchor in anchors) > 3
    else:
        assert len(anchors) == sum(kind.size for kind in stock.kinds)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda each: each.name)
def test_streams_are_batches_of_anchors_that_are_there(stream: Stream) -> None:
    stock = SMALL[stream.stock]
    anchors = sum(kind.size for kind in stock.kinds) or 100
    found = stream.batches(stock, 30, 16, anchors, seed=3)
    again = stream.batches(stock, 30, 16, anchors, seed=3)
    assert all((one == other).all() for one, other in zip(found, again, strict=True))
    rows = np.concatenate(found)
    assert len(rows) == 30 * 16
    assert rows.min() >= 0
    assert rows.max() < anchors


def test_there_are_streams_of_every_sort() -> None:
    assert len(STREAMS) >= 12
    assert len({stream.name for stream in STREAMS}) == len(STREAMS)
    assert sum(stream.mixed for stream in STREAMS) >= 3
    assert {stream.stock for stream in STREAMS} == {stock.name for stock in STOCKS}


def test_mixed_streams_come_batch_by_batch() -> None:
    stock = Stock("shop", (Kind(1, 100, 1, 1), Kind(20, 5, 5, 10)))
    (stream,) = [each for each in STREAMS if each.name == "mixed, rare 25%"]
    kinds = [set((batch >= 100).tolist()) for batch in stream.batches(stock, 200, 8, 200, seed=1)]
    assert all(len(each) == 1 for each in kinds)
    assert 25 < sum(each == {True} for each in kinds) < 80


def test_nonsense_is_refused() -> None:
    with pytest.raises(ParameterError, match="batches is 0"):
        STREAMS[0].batches(STOCKS[0], 0, 16, 100, seed=0)
