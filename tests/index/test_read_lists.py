"""Lists of blocks as the kernel reads them: cold and warm, large and small, whole and damaged."""

from __future__ import annotations

import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.index import format as form
from fmware.index._kernel import (
    Blocks,
    Keys,
    LabelRows,
    Nodes,
    Postings,
    Removed,
    hash_key,
    hash_keys,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

WITHIN, AROUND, EXACT = range(3)


class Held:
    """A list in memory; `shift` moves its blocks off the alignment of columns."""

    def __init__(
        self,
        firsts: Sequence[int],
        begins: Sequence[int],
        blocks: Sequence[bytes | bytearray],
        shift: int = 0,
    ) -> None:
        self.blocks = [memoryview(bytes(shift) + bytes(block))[shift:] for block in blocks]
        self.asked: list[int] = []
        self.directory = form.Directory(
            np.array(firsts, np.uint64),
            np.array(begins, np.uint64),
            np.array([zlib.crc32(block) for block in blocks], np.uint32),
        ).pack()

    def block(self, number: int) -> memoryview:
        self.asked.append(number)
        return self.blocks[number]

    def in_memory(self, number: int) -> bool:
        return 0 <= number < len(self.blocks)

    def corrupt(self, number: int | None, what: str) -> Exception:
        return RuntimeError(f"block {number} {what}")


def cut(count: int, rows: int) -> list[tuple[int, int]]:
    return [(at, min(at + rows, count)) for at in range(0, count, rows)]


def nodes_of(
    start: Int64s,
    end: Int64s,
    level: Int64s,
    *,
    rows: int = 4096,
    up: Int64s | None = None,
    shift: int = 0,
) -> tuple[Nodes, Held]:
    shape = form.ad_shape(0, up=up is not None)
    flags = form.HAS_UP if up is not None else 0
    spans = cut(len(start), rows)
    blocks = []
    for a, b in spans:
        columns: list[Any] = [start[a:b] - start[a], end[a:b] - start[a:b], level[a:b]]
        if up is not None:
            columns.append(up[a:b])
        blocks.append(shape.pack(columns, rows=b - a, head=(int(start[a]), 0, flags)))
    held = Held([int(start[a]) for a, _ in spans], [0, *(b for _, b in spans)], blocks, shift)
    return Nodes(held, held.directory, threading.Lock(), 0), held


def flat(count: int, seed: int = 1) -> tuple[Int64s, Int64s, Int64s]:
    random = np.random.default_rng(seed)
    start = np.cumsum(random.integers(2, 12, count))
    return start, start + 1, random.integers(2, 9, count)


def by_numpy(
    start: Int64s, end: Int64s, level: Int64s, starts: Int64s, ends: Int64s
) -> list[npt.NDArray[Any]]:
    low = np.searchsorted(start, starts, "right")
    count = np.maximum(np.searchsorted(start, ends, "left") - low, 0)
    left = np.repeat(np.arange(len(starts)), count)
    row = np.arange(count.sum()) + np.repeat(low - np.cumsum(count) + count, count)
    return [left, start[row], end[row], level[row]]


def same(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all((a == b).all() and len(a) == len(b) for a, b in zip(found, wanted, strict=True))


# --- large lists ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["sorted", "mixed", "backwards"])
@pytest.mark.parametrize("width", [1, 40, 30_000])
def test_many_anchors_on_a_large_list(order: str, width: int) -> None:
    start, end, level = flat(50_000)
    random = np.random.default_rng(2)
    starts = np.sort(random.integers(-10, int(start[-1]) + 10, 3000))
    starts = {"sorted": starts, "backwards": starts[::-1].copy()}.get(
        order, random.permutation(starts)
    )
    ends = starts + random.integers(0, 2 * width, len(starts))
    for shift in (0, 4):
        cold, _ = nodes_of(start, end, level, rows=512, shift=shift)
        wanted = by_numpy(start, end, level, starts, ends)
        assert same(cold.descendants(starts, ends, None, None), wanted)
        assert same(cold.descendants(starts, ends, None, None), wanted)


def test_only_blocks_that_are_touched_are_fetched_and_only_once() -> None:
    start, end, level = flat(10_000)
    nodes, held = nodes_of(start, end, level, rows=100)
    assert held.asked == []
    inside = np.array([int(start[250])])
    nodes.descendants(inside, inside + 5, None, None)
    nodes.descendants(inside, inside + 5, None, None)
    assert held.asked == [2]
    nodes.descendants(inside, np.array([int(start[450])]), None, None)
    assert held.asked == [2, 3, 4]
    nodes.locate(np.array([int(start[9_999]), -5, 10**12]))
    assert held.asked == [2, 3, 4, 99]


def test_labels_far_apart_lie_in_blocks_of_their_own() -> None:
    start = np.array([5, 10, 2**40, 2**40 + 4, 2**41], np.int64)
    end = start + np.array([1, 2**32 - 1, 1, 1, 2**32 - 1])
    level = np.ones(5, np.int64)
    nodes, _ = nodes_of(start, end, level, rows=2)
    starts = np.array([0, 5, 10, 2**40 - 1, 2**40, 2**62], np.int64)
    ends = np.array([2**62, 11, 2**40 + 1, 2**40 + 4, 2**42, 2**63 - 1], np.int64)
    wanted = by_numpy(start, end, level, starts, ends)
    assert same(nodes.descendants(starts, ends, None, None), wanted)
    assert nodes.locate(starts).tolist() == [-1, 0, 1, -1, 2, -1]
    found = nodes.ancestors(np.array([2**41 + 7]), np.array([2**41 + 8]), None, None)
    assert found[1].tolist() == [2**41]


def nested(depth: int, width: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Chains of nodes in each other, one chain after the other."""
    start: list[int] = []
    end: list[int] = []
    level: list[int] = []
    up: list[int] = []
    base = 0
    for _ in range(width):
        for at in range(depth):
            up.append(len(up) - 1 if at else form.NONE)
            start.append(base + at)
            end.append(base + 2 * depth - at)
            level.append(at)
        base += 2 * depth + 5
    return tuple(np.array(column, np.int64) for column in (start, end, level, up))  # type: ignore[return-value]


def test_ancestors_are_found_up_a_long_way_through_many_blocks() -> None:
    start, end, level, up = nested(200, 20)
    nodes, _ = nodes_of(start, end, level, rows=7, up=up)
    rows = np.random.default_rng(3).permutation(len(start))[:300]
    left, starts, _, levels = nodes.ancestors(start[rows], end[rows], None, None)
    for at, row in enumerate(rows.tolist()):
        assert levels[left == at].tolist() == list(range(row % 200))
        assert (starts[left == at] == start[row - row % 200 : row]).all()
    parents = nodes.ancestors(start[rows], end[rows], level[rows].astype(np.int16), None)
    assert (parents[3] == level[rows[parents[0]]] - 1).all()
    assert len(parents[0]) == np.count_nonzero(rows % 200)


def test_an_up_that_does_not_lead_up_is_said_to_be_damage() -> None:
    start, end, level, up = nested(3, 2)
    up[2] = 4
    nodes, _ = nodes_of(start, end, level, rows=2, up=up)
    with pytest.raises(RuntimeError, match="block 1 refers to rows that are not there"):
        nodes.ancestors(np.array([3]), np.array([4]), None, None)


def test_threads_share_a_cold_list() -> None:
    start, end, level = flat(60_000)
    starts = np.sort(np.random.default_rng(5).integers(0, int(start[-1]), 5000))
    wanted = by_numpy(start, end, level, starts, starts + 50)
    for shift in (0, 2):
        nodes, held = nodes_of(start, end, level, rows=256, shift=shift)

        def probe(part: int, nodes: Nodes = nodes) -> bool:
            order = np.random.default_rng(part).permutation(len(starts))
            found = nodes.descendants(starts[order], starts[order] + 50, None, None)
            back = np.argsort(order[found[0]], kind="stable")
            return same([column[back] for column in found[1:]], wanted[1:])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(probe, range(16)))
        assert sorted(held.asked) == sorted(set(held.asked))


# --- removed records ------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 60), max_size=8, unique=True).map(sorted),
    st.lists(st.integers(-3, 70)),
)
def test_removed_ranges(cuts: list[int], starts: list[int]) -> None:
    cuts = cuts[: len(cuts) // 2 * 2]
    removed = Removed(cuts[::2], cuts[1::2])
    wanted = [
        any(a <= start <= b for a, b in zip(cuts[::2], cuts[1::2], strict=True)) for start in starts
    ]
    assert removed.holds(starts).tolist() == wanted
    assert len(removed) == len(cuts) // 2


def test_nothing_of_a_removed_record_is_found() -> None:
    start, end, level = flat(1000)
    nodes, _ = nodes_of(start, end, level, rows=64)
    removed = Removed([int(start[10]), int(start[500])], [int(start[20]), int(start[900])])
    low, high = np.array([0]), np.array([int(start[-1]) + 1])
    found = nodes.descendants(low, high, None, removed)
    kept = [row for row in range(1000) if not (10 <= row <= 20 or 500 <= row <= 900)]
    assert found[1].tolist() == start[kept].tolist()


# --- SES lists ------------------------------------------------------------------------------


def postings_of(
    labels: Sequence[tuple[int, int, int]], rows: int = 4
) -> tuple[Postings, list[int], Held, Held]:
    """Of labels (rank, last, count); the i-th posting begins at 10 * i."""
    rank, last, count = (np.array(column, np.int64) for column in zip(*labels, strict=True))
    begin = np.cumsum(count) - count
    up = [
        max((i for i in range(j) if last[i] >= rank[j]), default=form.NONE)
        for j in range(len(labels))
    ]
    columns = [rank, last, np.array(up), count, begin]
    spans = cut(len(labels), rows)
    blocks = [form.LABEL_SHAPE.pack([c[a:b] for c in columns], rows=b - a) for a, b in spans]
    held = Held([int(rank[a]) for a, _ in spans], [0, *(b for _, b in spans)], blocks)
    total = int(count.sum())
    start = 10 * np.arange(total)
    spans = cut(total, rows)
    blocks = [
        form.SES_SHAPE.pack([start[a:b], start[a:b] * 0 + 3, start[a:b] % 7], rows=b - a)
        for a, b in spans
    ]
    of_rows = Held([a for a, _ in spans], [0, *(b for _, b in spans)], blocks)
    rows_of_labels = LabelRows(held, held.directory, threading.Lock())
    postings = Postings(of_rows, of_rows.directory, threading.Lock(), rows_of_labels)
    return postings, np.repeat(np.arange(len(labels)), count).tolist(), held, of_rows


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=20),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_scans_of_random_tries(shape: list[tuple[int, int]], rows: int, random: Any) -> None:
    depths = [0]
    for less, _ in shape[1:]:
        depths.append(max(0, depths[-1] + 1 - less))
    lasts = [
        next((j for j in range(i + 1, len(depths)) if depths[j] <= depths[i]), len(depths)) - 1
        for i in range(len(depths))
    ]
    # Ranks of other tags lie between: every label takes three.
    labels = [(3 * i + 1, 3 * lasts[i] + 2, shape[i][1]) for i in range(len(depths))]
    postings, owner, _, _ = postings_of(labels, rows)
    asked = [(rank, rank + random.randrange(9)) for rank in range(3 * len(labels) + 3)]
    random.shuffle(asked)
    for side in (WITHIN, AROUND, EXACT):
        wanted = []
        for rank, last in asked:
            chosen = {
                WITHIN: [i for i, each in enumerate(labels) if rank <= each[0] <= last],
                AROUND: [i for i, each in enumerate(labels) if each[0] <= rank <= each[1]],
                EXACT: [i for i, each in enumerate(labels) if each[0] == rank],
            }[side]
            wanted.append([10 * at for at, label in enumerate(owner) if label in chosen])
            _, start, end, level = postings.scan(rank, last, side, None)
            assert sorted(start.tolist()) == wanted[-1]
            assert (end == start + 3).all()
            assert (level == start % 7).all()
        ranks, lasts_asked = (np.array(column) for column in zip(*asked, strict=True))
        left, start, _, _ = postings.scans(ranks, lasts_asked, side, None)
        assert (np.diff(left) >= 0).all()
        for at, each in enumerate(wanted):
            assert sorted(start[left == at].tolist()) == each
        assert postings.counts(ranks, lasts_asked, side).tolist() == [len(w) for w in wanted]
        # Of blocks that nobody has touched, with some among them that are no labels.
        untouched, *_ = postings_of(labels, rows)
        ranks[::5], lasts_asked[1::7] = -1, -2
        wanted = [
            w if 0 <= a <= b else [] for w, a, b in zip(wanted, ranks, lasts_asked, strict=True)
        ]
        assert untouched.counts(ranks, lasts_asked, side).tolist() == [len(w) for w in wanted]
        ranks, lasts_asked = (np.array(column) for column in zip(*asked, strict=True))
        climbs = [sum(low <= rank <= high for low, high, _ in labels) for rank, _ in asked]
        if side != AROUND:
            climbs = [0] * len(asked)
        assert postings.sizes(ranks, lasts_asked, side)[1].tolist() == climbs


def test_counting_touches_no_posting() -> None:
    postings, _, labels, rows = postings_of([(1, 9, 5), (3, 4, 6), (8, 8, 1)])
    ranks = np.array([1, 3])
    assert postings.counts(ranks, np.array([9, 4]), WITHIN).tolist() == [12, 6]
    assert labels.asked == [0]
    assert rows.asked == []


# --- keys -----------------------------------------------------------------------------------


def keys_list(keys: Sequence[bytes], rows: int = 3) -> Keys:
    entries = sorted((hash_key(key), key, row) for row, key in enumerate(keys))
    spans = cut(len(entries), rows)
    blocks = []
    for a, b in spans:
        some = entries[a:b]
        offsets = np.cumsum([0, *(len(key) for _, key, _ in some)])
        columns: list[Any] = [
            np.array([value for value, _, _ in some], np.uint64),
            np.array([row for _, _, row in some]),
            offsets,
        ]
        tail = b"".join(key for _, key, _ in some)
        blocks.append(form.IDENTITY_SHAPE.pack(columns, rows=b - a, tail=tail))
    held = Held([entries[a][0] for a, _ in spans], [0, *(b for _, b in spans)], blocks)
    return Keys(held, held.directory, threading.Lock())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=3), min_size=1, max_size=40), st.integers(1, 6))
def test_keys_are_found_with_all_their_rows(keys: list[bytes], rows: int) -> None:
    held = keys_list(keys, rows)
    asked = [*keys, b"nowhere", b"\0\0\0\0"]
    start, end, level = flat(len(keys))
    nodes, _ = nodes_of(start, end, level, rows=3)
    left, starts, ends, levels, found = held.find(asked, nodes)
    assert same([starts, ends, levels], [start[found], end[found], level[found]])
    wanted = [
        (at, row) for at, key in enumerate(asked) for row, other in enumerate(keys) if key == other
    ]
    assert list(zip(left.tolist(), found.tolist(), strict=True)) == wanted


def test_a_key_of_very_many_rows() -> None:
    keys = [b"x"] * 500 + [b"y"]
    nodes, _ = nodes_of(*flat(501))
    left, _, _, _, rows = keys_list(keys, 16).find([b"y", b"x", b"z"], nodes)
    assert rows.tolist() == [500, *range(500)]
    assert left.tolist() == [0] + [1] * 500


def test_keys_of_rows_that_are_not_there_are_damage() -> None:
    nodes, _ = nodes_of(*flat(2))
    with pytest.raises(RuntimeError, match="keys of row 2, which is not there"):
        keys_list([b"x", b"y", b"z"]).find([b"x", b"z"], nodes)


def test_the_hash_is_the_one_of_the_format() -> None:
    def plain(key: bytes) -> int:
        value = 0xCBF29CE484222325
        for byte in key:
            value = (value ^ byte) * 0x100000001B3 % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    keys = [b"", b"a", "conf/ü".encode(), bytes(range(256))]
    offsets = np.cumsum([0, *map(len, keys)])
    hashes = hash_keys(offsets, np.frombuffer(b"".join(keys), np.uint8))
    assert hashes.tolist() == [plain(key) for key in keys] == [hash_key(key) for key in keys]
    with pytest.raises(ValueError, match="offsets"):
        hash_keys([0, 9], np.zeros(3, np.uint8))
    assert len(hash_keys([], np.zeros(0, np.uint8))) == 0


# --- damage ---------------------------------------------------------------------------------


def test_a_changed_byte_of_a_block_is_never_served() -> None:
    start, end, level = flat(50)
    for at in range(0, 50, 7):
        nodes, held = nodes_of(start, end, level, rows=50)
        bad = bytearray(held.blocks[0])
        bad[at * 10 % len(bad)] ^= 1
        held.blocks[0] = memoryview(bytes(bad))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="block 0 does not have its checksum"):
                nodes.locate(start[:1])


def test_every_changed_byte_of_a_directory_is_found() -> None:
    start, end, level = flat(30)
    _, held = nodes_of(start, end, level, rows=10)
    for at in range(len(held.directory)):
        bad = bytearray(held.directory)
        bad[at] ^= 0x10
        with pytest.raises(RuntimeError, match="block None"):
            Blocks(held, bytes(bad), threading.Lock())
    with pytest.raises(RuntimeError, match="block None"):
        Blocks(held, held.directory[:20], threading.Lock())


def test_blocks_that_do_not_fit_their_directory_are_refused() -> None:
    start, end, level = flat(30)
    nodes, held = nodes_of(start, end, level, rows=10)
    other, _ = nodes_of(start[:10], end[:10], level[:10], rows=4)
    short = form.ad_shape(0, up=False).pack(
        [start[:4], end[:4], level[:4]], rows=4, head=(int(start[0]), 0, 0)
    )
    directory = form.Directory(
        np.array([int(start[0])], np.uint64),
        np.array([0, 10], np.uint64),
        np.array([zlib.crc32(short)], np.uint32),
    ).pack()
    held.blocks[0] = memoryview(bytes(short))
    bad = Nodes(held, directory, threading.Lock(), 0)
    with pytest.raises(RuntimeError, match="rows it should have"):
        bad.locate(start[:1])
    assert nodes.rows == 30
    assert other.count == 3
    with pytest.raises(IndexError):
        nodes.view(3)
