"""Tries: numbering does not depend on how they grew, merging keeps the order."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.labeling.ses import PATH, PRIX, VIST, Chain, Forest
from fmware.labeling.trie import NO_PARENT, Trie, TrieColumns, merge_tries, renumbered
from tests.labeling.forests import SCHEMES, TAGS, Shape, forest_of, nodes_of, records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random

    import numpy.typing as npt

    from fmware.labeling.ses import Scheme

EVERY = settings(max_examples=80, deadline=None)
SOME = settings(max_examples=30, deadline=None)
SAME = np.arange(TAGS, dtype=np.int32)
DEEP = 200_000

every_scheme = pytest.mark.parametrize("way", SCHEMES, ids=lambda way: way.name)


def labelled(
    way: Scheme, shapes: Sequence[Shape], tags: npt.NDArray[np.int32] = SAME
) -> tuple[TrieColumns, npt.NDArray[np.uint32]]:
    forest, trie = forest_of(nodes_of(shapes)), Trie()
    ids = trie.extend(forest, way.chain(forest))
    columns, rank = trie.ordered(tags, way.extra_is_tag)
    assert len(trie) == len(columns) == len(rank)
    return columns, rank[ids]


def rows(trie: TrieColumns) -> list[tuple[int, int, int]]:
    columns = (trie.tag, trie.extra, trie.size)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def retagged(shapes: Sequence[Shape], tags: dict[int, int]) -> list[Shape]:
    return [[(depth, tags[tag]) for depth, tag in shape] for shape in shapes]


def random_trie(seed: int, nodes: int, fanout: int = 3) -> tuple[Forest, Chain]:
    """A trie of about so many nodes: the path summary of one random tree."""
    rng = np.random.default_rng(seed)
    parent = np.maximum(np.arange(nodes) - rng.integers(1, 50, nodes), -1).astype(np.int32)
    tag = rng.integers(0, fanout, nodes).astype(np.int32)
    nothing = np.zeros(nodes, np.int32)
    return Forest(tag, parent, nothing, nothing), Chain(parent, np.zeros(nodes, np.uint32))


# --- growing and numbering ------------------------------------------------------------------


@every_scheme
@EVERY
@given(records(), st.randoms(use_true_random=False))
def test_numbering_does_not_depend_on_the_order_of_records(
    way: Scheme, shapes: list[Shape], chance: Random
) -> None:
    shuffled = list(range(len(shapes)))
    chance.shuffle(shuffled)
    trie, rank = labelled(way, shapes)
    other, moved = labelled(way, [shapes[i] for i in shuffled])
    assert rows(trie) == rows(other)
    ends = np.cumsum([len(shape) for shape in shapes])
    pieces = [rank[end - len(shape) : end] for end, shape in zip(ends, shapes, strict=True)]
    assert np.array_equal(np.concatenate([moved[:0], *(pieces[i] for i in shuffled)]), moved)


@every_scheme
@EVERY
@given(records(), st.permutations(range(TAGS)))
def test_numbering_does_not_depend_on_the_numbers_of_tags(
    way: Scheme, shapes: list[Shape], numbers: list[int]
) -> None:
    trie, rank = labelled(way, shapes)
    canonical = np.empty(TAGS, np.int32)
    canonical[numbers] = np.arange(TAGS)
    other, moved = labelled(way, retagged(shapes, dict(enumerate(numbers))), canonical)
    assert rows(trie) == rows(other)
    assert np.array_equal(rank, moved)


@every_scheme
@SOME
@given(records())
def test_records_may_come_in_pieces(way: Scheme, shapes: list[Shape]) -> None:
    whole, rank = labelled(way, shapes)
    trie, ids = Trie(), []
    for shape in shapes:
        forest = forest_of(nodes_of([shape]))
        ids.append(trie.extend(forest, way.chain(forest)))
    columns, ranks = trie.ordered(SAME, way.extra_is_tag)
    assert rows(columns) == rows(whole)
    assert np.array_equal(ranks[np.concatenate([np.empty(0, np.uint32), *ids])], rank)


@SOME
@given(st.integers(0, 2**32), st.integers(1, 3000), st.integers(1, 3))
def test_ids_are_those_of_a_dictionary(seed: int, nodes: int, wide: int) -> None:
    """Against a dictionary, with wide fans of numbers that need all their digits."""
    rng = np.random.default_rng(seed)
    parent = np.maximum(np.arange(nodes) - rng.integers(1, 4 * nodes, nodes), -1).astype(np.int32)
    tag = rng.integers(0, 10**wide, nodes).astype(np.int32)
    extra = rng.choice(np.array([0, 1, 2**11, 2**22 + 1, 2**32 - 1], np.uint32), nodes)
    trie = Trie()
    nothing = np.zeros(nodes, np.int32)
    ids = trie.extend(Forest(tag, parent, nothing, nothing), Chain(parent, extra))
    known: dict[tuple[int, int, int], int] = {}
    mine: list[int] = []
    paths: list[tuple[tuple[int, int], ...]] = []
    columns = (column.tolist() for column in (parent, tag, extra))
    for up, name, more in zip(*columns, strict=True):
        key = (mine[up] if up >= 0 else -1, name, more)
        if key not in known:
            above = paths[key[0]] if up >= 0 else ()
            paths.append((*above, (name, more)))
        mine.append(known.setdefault(key, len(known)))
    assert ids.tolist() == mine
    columns_, rank = trie.ordered(np.arange(10**wide, dtype=np.int32), False)  # noqa: FBT003
    columns_.check()
    places = {path: i for i, path in enumerate(sorted(paths))}
    assert rank.tolist() == [places[path] for path in paths]


def test_an_empty_trie() -> None:
    trie = Trie()
    empty = forest_of([])
    for way in SCHEMES:
        assert len(trie.extend(empty, way.chain(empty))) == 0
    columns, rank = trie.ordered(SAME, extra_is_tag=False)
    columns.check()
    assert (len(columns), len(rank), len(columns.last), len(columns.parents())) == (0, 0, 0, 0)
    merged, ranks = merge_tries([columns, columns])
    assert (len(merged), [len(each) for each in ranks]) == (0, [0, 0])
    assert len(merge_tries([])[0]) == 0


@pytest.mark.parametrize("way", [PATH, VIST, PRIX], ids=lambda way: way.name)
def test_deep_chains(way: Scheme) -> None:
    rows_ = np.arange(DEEP, dtype=np.int32)
    forest = Forest(rows_ % 3, rows_ - 1, rows_, DEEP - rows_)
    chain = way.chain(forest)
    trie = Trie()
    ids = trie.extend(forest, chain)
    columns, rank = trie.ordered(SAME, way.extra_is_tag)
    columns.check()
    assert np.array_equal(columns.size, np.arange(DEEP, 0, -1))
    order = rows_ if chain.order is None else chain.order
    assert np.array_equal(rank[ids[order]], rows_)
    merged, ranks = merge_tries([columns, columns, columns])
    assert rows(merged) == rows(columns)
    assert all(np.array_equal(each, rows_) for each in ranks)


def test_threads_have_a_trie_each() -> None:
    forest, chain = random_trie(1, 2000)

    def grown(_: int) -> list[int]:
        trie = Trie()
        ids: list[int] = trie.extend(forest, chain).tolist()
        return ids

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(grown, range(1000)))
    assert all(each == found[0] for each in found)


def test_a_trie_turns_a_second_thread_away() -> None:
    forest, chain = random_trie(2, 400_000)
    trie = Trie()

    def extend(_: int) -> str:
        try:
            trie.extend(forest, chain)
        except RuntimeError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as pool:
        told = set(pool.map(extend, range(16)))
    assert told <= {"", "another thread is extending this trie; give each thread its own"}
    again = Trie()
    again.extend(forest, chain)
    assert len(trie) == len(again)


def test_tags_that_have_no_number() -> None:
    forest = forest_of(nodes_of([[(0, 5)]]))
    trie = Trie()
    trie.extend(forest, PATH.chain(forest))
    with pytest.raises(IndexError):
        trie.ordered(SAME[:3], extra_is_tag=False)


# --- merging --------------------------------------------------------------------------------


@every_scheme
@EVERY
@given(records(), st.data())
def test_merged_parts_are_the_whole(way: Scheme, shapes: list[Shape], data: st.DataObject) -> None:
    """Any partition of the records, each part with its own numbers of the tags it has."""
    parts = data.draw(st.integers(1, 5))
    of = data.draw(st.lists(st.integers(0, parts - 1), min_size=len(shapes), max_size=len(shapes)))
    whole, rank = labelled(way, shapes)
    tries, own = [], []
    for part in range(parts):
        mine = [shape for shape, at in zip(shapes, of, strict=True) if at == part]
        tags = sorted({tag for shape in mine for _, tag in shape})
        trie, ranks = labelled(way, retagged(mine, {tag: i for i, tag in enumerate(tags)}))
        tries.append(renumbered(trie, np.array(tags, np.uint32), way.extra_is_tag))
        own.append(ranks)
    merged, maps = merge_tries(tries)
    merged.check()
    assert rows(merged) == rows(whole)
    ends = np.cumsum([len(shape) for shape in shapes])
    for part in range(parts):
        assert maps[part].dtype == np.uint32
        assert (np.diff(maps[part].astype(np.int64)) > 0).all()
        expected = [
            rank[end - len(shape) : end]
            for end, shape, at in zip(ends, shapes, of, strict=True)
            if at == part
        ]
        assert np.array_equal(maps[part][own[part]], np.concatenate([rank[:0], *expected]))


@SOME
@given(st.lists(st.integers(0, 2**32), max_size=12), st.integers(1, 400), st.integers(1, 60))
def test_merging_many_tries_is_growing_one(seeds: list[int], nodes: int, fanout: int) -> None:
    one, tries = Trie(), []
    tags = np.arange(fanout, dtype=np.int32)
    for seed in seeds:
        forest, chain = random_trie(seed, nodes, fanout)
        one.extend(forest, chain)
        each = Trie()
        each.extend(forest, chain)
        tries.append(each.ordered(tags, extra_is_tag=False)[0])
    merged, maps = merge_tries(tries)
    assert rows(merged) == rows(one.ordered(tags, extra_is_tag=False)[0])
    for trie, ranks in zip(tries, maps, strict=True):
        assert np.array_equal(merged.tag[ranks], trie.tag)
        assert (merged.size[ranks] >= trie.size).all()
        assert (np.diff(ranks.astype(np.int64)) > 0).all()


def test_columns_may_be_views_of_files(tmp_path: Path) -> None:
    tries = []
    for seed in range(3):
        forest, chain = random_trie(seed, 500)
        grown = Trie()
        grown.extend(forest, chain)
        tries.append(grown.ordered(SAME, extra_is_tag=False)[0])
    expected = merge_tries(tries)
    mapped = []
    for i, trie in enumerate(tries):
        columns = []
        for name in ("tag", "extra", "size"):
            column = getattr(trie, name)
            # An odd place, as values have in the leaf pages of a database.
            (tmp_path / f"{name}{i}").write_bytes(b"x" * (i % 2) + column.tobytes())
            data = np.memmap(tmp_path / f"{name}{i}", np.uint8, "r")
            columns.append(data[i % 2 :].view(np.uint32))
        mapped.append(TrieColumns(*columns))
    merged, maps = merge_tries(mapped)
    assert rows(merged) == rows(expected[0])
    assert all(np.array_equal(a, b) for a, b in zip(maps, expected[1], strict=True))


def test_columns_of_other_types_are_refused() -> None:
    wide = np.zeros(1, np.int64)
    with pytest.raises(TypeError, match="uint32"):
        merge_tries([TrieColumns(wide, wide, wide)])  # type: ignore[arg-type]


def trie_of(*nodes: tuple[int, int, int]) -> TrieColumns:
    columns = np.array(nodes, np.uint32).reshape(-1, 3).T
    return TrieColumns(*(np.ascontiguousarray(column) for column in columns))


BROKEN = [
    trie_of((0, 0, 3), (1, 0, 1)),
    trie_of((0, 0, 0), (1, 0, 1)),
    trie_of((0, 0, 2), (1, 0, 2)),
    trie_of((0, 0, 2), (1, 0, 0), (2, 0, 1)),
    trie_of((1, 0, 1), (0, 0, 1)),
    trie_of((0, 1, 1), (0, 0, 1)),
    trie_of((0, 0, 1), (0, 0, 1)),
    trie_of((0, 0, 3), (2, 0, 1), (1, 0, 1)),
]


@pytest.mark.parametrize("broken", BROKEN, ids=rows)
def test_what_is_no_trie_is_found(broken: TrieColumns) -> None:
    with pytest.raises(ValueError, match=r"rank \d"):
        broken.check()
    # Twice the same: every part is merged, none merely copied.
    with pytest.raises(ValueError, match=r"trie \d is not in canonical preorder"):
        merge_tries([broken, broken])


@SOME
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 6)), max_size=12),
        max_size=4,
    )
)
def test_nonsense_breaks_nothing(tries: list[list[tuple[int, int, int]]]) -> None:
    inputs = [trie_of(*nodes) for nodes in tries]
    try:
        merged, maps = merge_tries(inputs)
    except ValueError:
        return
    assert len(merged) <= sum(map(len, inputs))
    assert all((ranks < len(merged)).all() for ranks in maps)


def test_parents() -> None:
    trie = trie_of((0, 0, 4), (0, 0, 2), (1, 0, 1), (2, 0, 1), (5, 0, 1))
    assert trie.parents().tolist() == [NO_PARENT, 0, 1, 0, NO_PARENT]
    assert trie.last.tolist() == [3, 2, 2, 3, 4]


def test_cost_of_a_merge_follows_the_nodes_that_come_in() -> None:
    """Sixty-four tries with nothing in common but the top cost no more by the node than two."""

    def fan(first: int, count: int) -> TrieColumns:
        tag = np.arange(first, first + count, dtype=np.uint32)
        return TrieColumns(tag, np.zeros(count, np.uint32), np.ones(count, np.uint32))

    def seconds(tries: list[TrieColumns]) -> float:
        best = 1e9
        for _ in range(5):
            begun = time.perf_counter()
            merge_tries(tries)
            best = min(best, time.perf_counter() - begun)
        return best / sum(map(len, tries))

    total = 640_000
    # Interleaved, so that every step has to look at the heap.
    many = [fan(0, total // 64) for _ in range(64)]
    for i, trie in enumerate(many):
        trie.tag[:] = trie.tag * 64 + i
    few = [fan(0, total // 2) for _ in range(2)]
    for i, trie in enumerate(few):
        trie.tag[:] = trie.tag * 2 + i
    assert seconds(many) < 16 * seconds(few)
