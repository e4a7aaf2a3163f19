"""SES schemes against brute force, the same suite for all of them; clustering power."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import labeling
from fmware.labeling import ses
from fmware.labeling.errors import LabelingError, SchemeError
from fmware.labeling.ses import (
    PATH,
    PRIX,
    VIST,
    Chain,
    Clustering,
    Direction,
    Forest,
    clustering_power_of_labels,
    clustering_power_of_tags,
    register,
    scheme,
    schemes,
)
from fmware.labeling.trie import Trie
from tests.labeling.documents import xml_documents
from tests.labeling.forests import (
    ORACLES,
    SCHEMES,
    TAGS,
    Node,
    Positions,
    Shape,
    Squeezed,
    forest_of,
    nodes_of,
    records,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from fmware.labeling.ses import Scheme
    from fmware.labeling.trie import TrieColumns

EVERY = settings(max_examples=80, deadline=None)
SOME = settings(max_examples=30, deadline=None)
SAME = np.arange(TAGS, dtype=np.int32)

every_scheme = pytest.mark.parametrize("way", SCHEMES, ids=lambda way: way.name)


def labelled(way: Scheme, nodes: list[Node]) -> tuple[TrieColumns, npt.NDArray[np.uint32]]:
    """The trie of some nodes and the rank of each."""
    forest, trie = forest_of(nodes), Trie()
    ids = trie.extend(forest, way.chain(forest))
    columns, rank = trie.ordered(SAME, way.extra_is_tag)
    columns.check()
    return columns, rank[ids]


def test_the_suite_knows_every_registered_scheme() -> None:
    assert set(schemes()) <= {way.name for way in SCHEMES} == set(ORACLES)


@every_scheme
@EVERY
@given(records())
def test_an_ancestor_means_containment_in_the_direction(way: Scheme, shapes: list[Shape]) -> None:
    nodes = nodes_of(shapes)
    trie, rank = labelled(way, nodes)
    for lower in nodes:
        for upper in lower.ancestors():
            outer, inner = rank[upper.row], rank[lower.row]
            if way.direction is Direction.DESCENDANT:
                outer, inner = inner, outer
            assert outer <= inner <= trie.last[outer]
            assert trie.last[inner] <= trie.last[outer]


@every_scheme
@EVERY
@given(records())
def test_labels_are_those_of_brute_force(way: Scheme, shapes: list[Shape]) -> None:
    nodes = nodes_of(shapes)
    trie, rank = labelled(way, nodes)
    symbols = [ORACLES[way.name](node) for node in nodes]
    places = sorted(set(symbols))
    assert rank.tolist() == [places.index(each) for each in symbols]
    assert list(zip(trie.tag.tolist(), trie.extra.tolist(), strict=True)) == [
        place[-1] for place in places
    ]
    assert trie.size.tolist() == [
        sum(other[: len(place)] == place for other in places) for place in places
    ]


@every_scheme
@EVERY
@given(records())
def test_a_label_has_one_tag(way: Scheme, shapes: list[Shape]) -> None:
    nodes = nodes_of(shapes)
    trie, rank = labelled(way, nodes)
    assert trie.tag[rank].tolist() == [node.tag for node in nodes]


@EVERY
@given(records())
def test_nodes_share_a_label_as_the_design_defines_it(shapes: list[Shape]) -> None:
    """In the words of the definitions, without symbols or tries."""
    nodes = nodes_of(shapes)

    def tags(node: Node) -> tuple[int, ...]:
        return tuple(above.tag for above in (*node.ancestors(), node))

    def begun(node: Node) -> tuple[tuple[int, ...], ...]:
        # A node's path says its tag and its parent's path.
        root = [*node.ancestors(), node][0]
        return tuple(tags(each) for each in root.preorder()[: root.preorder().index(node) + 1])

    def parents(node: Node) -> tuple[tuple[int, int | None], ...]:
        root = [*node.ancestors(), node][0]
        ended = root.postorder()[: root.postorder().index(node) + 1]
        return tuple((each.tag, each.parent.tag if each.parent else None) for each in ended)

    for way, meant in (
        (PATH, [tags(node) for node in nodes]),
        (VIST, [begun(node) for node in nodes]),
        (PRIX, [parents(node) for node in nodes]),
    ):
        rank = labelled(way, nodes)[1].tolist()
        assert [a == b for a in rank for b in rank] == [a == b for a in meant for b in meant]


@every_scheme
@EVERY
@given(records())
def test_two_labels_are_nested_or_disjoint(way: Scheme, shapes: list[Shape]) -> None:
    trie, _ = labelled(way, nodes_of(shapes))
    labels = list(enumerate(trie.last.tolist()))
    for a, last_a in labels:
        for b, last_b in labels:
            apart = b > last_a or a > last_b
            assert apart or a <= b <= last_b <= last_a or b <= a <= last_a <= last_b


@every_scheme
@SOME
@given(records())
def test_chains_put_first_what_is_followed(way: Scheme, shapes: list[Shape]) -> None:
    forest = forest_of(nodes_of(shapes))
    chain = way.chain(forest)
    order = range(len(forest)) if chain.order is None else chain.order.tolist()
    place = {row: i for i, row in enumerate(order)}
    assert sorted(place) == list(range(len(forest)))
    for row, before in enumerate(chain.before.tolist()):
        assert before == -1 or place[before] < place[row]


# --- schemes by name ------------------------------------------------------------------------


def test_schemes_are_found_by_name() -> None:
    assert [scheme(name) for name in ("path", "vist", "prix")] == [PATH, VIST, PRIX]
    assert scheme(PRIX) is PRIX
    mine = Squeezed()
    assert scheme(mine) is mine


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(SchemeError, match=r"no SES scheme 'dewey'.*path, vist, prix") as caught:
        scheme("dewey")
    assert isinstance(caught.value, LabelingError)


def test_a_scheme_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ses, "_known", dict(ses._known))
    mine = register(Positions())
    assert scheme("positions") is mine
    assert schemes() == ("path", "vist", "prix", "positions")
    assert register(mine) is mine


def test_a_name_stays_with_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ses, "_known", dict(ses._known))

    class Other(Squeezed):
        name = "path"

    with pytest.raises(SchemeError, match="another SES scheme 'path'"):
        register(Other())
    assert scheme("path") is PATH


@pytest.mark.parametrize("bad", ["", "Path", "a b", "a/b", "1st", "x" * 33])
def test_names_that_a_database_could_not_have(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ses, "_known", dict(ses._known))
    monkeypatch.setattr(Squeezed, "name", bad)
    with pytest.raises(SchemeError, match="cannot name a scheme"):
        register(Squeezed())


def test_schemes_go_to_other_processes() -> None:
    for way in (PATH, VIST, PRIX):
        assert pickle.loads(pickle.dumps(way)) == way
        assert register(pickle.loads(pickle.dumps(way))) == way


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (Chain(np.array([-1, 7], np.int32), np.zeros(2, np.uint32)), "no such row"),
        (Chain(np.array([-1, -2], np.int32), np.zeros(2, np.uint32)), "no such row"),
        (Chain(np.array([1, -1], np.int32), np.zeros(2, np.uint32)), "comes before the row"),
        (Chain(np.array([-1, 1], np.int32), np.zeros(2, np.uint32)), "comes before the row"),
        (Chain(np.array([-1], np.int32), np.zeros(2, np.uint32)), "for 2 rows"),
        (Chain(np.array([-1, 0], np.int32), np.zeros(1, np.uint32)), "for 2 rows"),
        (
            Chain(np.array([-1, 0], np.int32), np.zeros(2, np.uint32), np.array([0], np.int32)),
            "an order of 1 rows for 2",
        ),
        (
            Chain(np.array([-1, 0], np.int32), np.zeros(2, np.uint32), np.array([0, 0], np.int32)),
            "a row comes twice",
        ),
        (
            Chain(np.array([-1, 0], np.int32), np.zeros(2, np.uint32), np.array([0, 2], np.int32)),
            "no such row",
        ),
    ],
)
def test_a_bad_scheme_is_told(chain: Chain, message: str) -> None:
    forest = forest_of(nodes_of([[(0, 0), (1, 1)]]))
    trie = Trie()
    with pytest.raises(SchemeError, match=message):
        trie.extend(forest, chain)
    assert len(trie.extend(forest, PATH.chain(forest))) == 2


# --- forests of tables ----------------------------------------------------------------------


@EVERY
@given(xml_documents())
def test_a_forest_holds_elements_and_attributes(document: bytes) -> None:
    table = labeling.read(document)
    forest = Forest.of(table)
    assert forest.rows is not None
    rows = forest.rows.tolist()
    assert rows == [row for row in range(len(table)) if table.kind[row] != labeling.TEXT]
    for i, row in enumerate(rows):
        up = int(table.parent[row])
        assert forest.parent[i] == (rows.index(up) if up >= 0 else -1)
        assert forest.depth[i] == table.level[row]
        below = range(row, row + table.size(row))
        assert forest.size[i] == sum(other in below for other in rows)
        assert divmod(int(forest.tag[i]), 2) == (table.tag[row], table.kind[row])


@SOME
@given(xml_documents())
def test_labels_of_a_document_are_those_of_its_tree(document: bytes) -> None:
    table = labeling.read(document)
    forest = Forest.of(table)
    assert forest.rows is not None
    trie = Trie()
    ids = trie.extend(forest, PATH.chain(forest))
    # Two elements have one label if lxml gives them one path without positions.
    elements = list(etree.fromstring(document).iter("*"))
    paths = [
        tuple(up.tag for up in (*reversed(list(each.iterancestors())), each)) for each in elements
    ]
    found = ids[table.kind[forest.rows] == labeling.ELEMENT].tolist()
    assert len(set(zip(found, paths, strict=True))) == len(set(found)) == len(set(paths))


def test_a_record_counts_its_depth_from_its_own_root() -> None:
    stream = labeling.read_stream(b"<r><a b='1'><c/></a><a/></r>", record="a")
    assert [Forest.of(table).depth.tolist() for table in stream] == [[0, 1, 1], [0]]


def test_a_part_of_a_record_has_no_labels() -> None:
    reader = labeling.Reader()
    batches = list(reader.read_batches([b"<a>" + b"<b/>" * 100 + b"</a>"], nodes=10))
    with pytest.raises(ValueError, match="open elements"):
        Forest.of(batches[0])


# --- clustering power -----------------------------------------------------------------------


@every_scheme
@EVERY
@given(records())
def test_clustering_power_counts_nodes(way: Scheme, shapes: list[Shape]) -> None:
    nodes = nodes_of(shapes)
    trie, rank = labelled(way, nodes)
    shared = Counter(ORACLES[way.name](node) for node in nodes)
    labels, cps = clustering_power_of_labels(rank)
    assert dict(zip(labels.tolist(), cps.tolist(), strict=True)) == Counter(rank.tolist())
    assert cps.tolist() == [shared[place] for place in sorted(shared)]
    by_tag: dict[int, list[int]] = {}
    for place, count in shared.items():
        by_tag.setdefault(place[-1][0], []).append(count)
    assert clustering_power_of_tags(trie, rank) == {
        tag: sum(counts) / len(counts) for tag, counts in by_tag.items()
    }


def test_few_nodes_of_a_large_trie() -> None:
    ranks = np.array([4_000_000_000, 7, 4_000_000_000], np.uint32)
    labels, cps = clustering_power_of_labels(ranks)
    assert (labels.tolist(), cps.tolist()) == ([7, 4_000_000_000], [1, 2])


@EVERY
@given(st.lists(st.integers(1, 2000), max_size=50))
def test_a_summary_tells_how_clustering_is_spread(powers: list[int]) -> None:
    cps = np.array(powers, np.int64)
    found = Clustering.of(cps)
    assert (found.nodes, found.labels) == (sum(powers), len(powers))
    assert found.squares == sum(power * power for power in powers)
    assert tuple(map(sum, zip(*found.histogram, strict=True))) in ((len(powers), sum(powers)), ())
    for i, (labels, nodes) in enumerate(found.histogram):
        between = [power for power in powers if 2**i <= power < 2 ** (i + 1)]
        assert (labels, nodes) == (len(between), sum(between))
    if powers:
        ordered = sorted(powers)
        shares = (0, 25, 50, 75, 90, 99, 100)
        last = len(powers) - 1
        assert found.quantiles == tuple(ordered[last * share // 100] for share in shares)
        assert found.mean == sum(powers) / len(powers)
        drawn = [power for power in powers for _ in range(power)]
        assert found.mean_of_nodes == pytest.approx(sum(drawn) / len(drawn))
    else:
        assert (found.mean, found.mean_of_nodes) == (0.0, 0.0)
