"""What is written is what was labelled: every list against plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest

from fmware.index import _write, postings, statistics
from fmware.index import format as form
from fmware.index._kernel import hash_key
from fmware.index.blocks import AdWriter, ListWriter
from fmware.index.errors import BadRun
from fmware.index.manifest import load_segment
from fmware.index.pages import Pages
from fmware.index.part import PartWriter, page_size, tree_pages
from fmware.index.stored import StoredLists
from fmware.index.verify import verify
from fmware.index.writer import Writer
from fmware.labeling.runs import MemoryRun, Nodes, Tag, store
from fmware.labeling.ses import PATH
from fmware.labeling.trie import TrieColumns
from tests.index.samples import RULES, SCHEMES, Node, Sample, contents, sample

if TYPE_CHECKING:
    from pathlib import Path

    Contents = dict[tuple[str, object], Any]


def built(path: Path, made: Sample, **options: Any) -> Contents:
    """The contents of an index of one segment, which is sound."""
    with Writer.create(path, schemes=SCHEMES, identity=RULES) as writer:
        manifest = writer.append(made.runs, high=made.high, **options)
    assert verify(path).problems == []
    (entry,) = manifest.segments
    return contents(path / form.SEGMENTS / entry.name)


class Oracle:
    """What a segment of some nodes must hold, by looking at each of them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.tags = sorted({Tag(node.kind, node.name) for node in nodes})
        self.number = {tag: place for place, tag in enumerate(self.tags)}
        self.nodes = sorted(nodes, key=lambda node: node.start)
        self.parent: dict[int, Node | None] = {}
        open_nodes: list[Node] = []
        for node in self.nodes:
            while open_nodes and open_nodes[-1].end < node.start:
                open_nodes.pop()
            self.parent[node.start] = open_nodes[-1] if open_nodes else None
            open_nodes.append(node)
        self.symbols = {"path": self._path(), "vist": self._vist(), "prix": self._prix()}

    def tag(self, node: Node) -> int:
        return self.number[Tag(node.kind, node.name)]

    def of(self, tag: Tag) -> list[Node]:
        return [node for node in self.nodes if (node.kind, node.name) == tag]

    def above(self, node: Node) -> list[Node]:
        found, up = [], self.parent[node.start]
        while up is not None:
            found.append(up)
            up = self.parent[up.start]
        return found

    def _path(self) -> dict[int, tuple[tuple[int, int], ...]]:
        return {
            node.start: tuple((self.tag(each), 0) for each in [*self.above(node)[::-1], node])
            for node in self.nodes
        }

    def _records(self) -> list[list[Node]]:
        found: dict[int, list[Node]] = defaultdict(list)
        for node in self.nodes:
            found[node.record].append(node)
        return list(found.values())

    def _vist(self) -> dict[int, tuple[tuple[int, int], ...]]:
        made = {}
        for record in self._records():
            so_far: list[tuple[int, int]] = []
            for node in record:
                so_far.append((self.tag(node), len(self.above(node))))
                made[node.start] = tuple(so_far)
        return made

    def _prix(self) -> dict[int, tuple[tuple[int, int], ...]]:
        made = {}
        for record in self._records():
            so_far: list[tuple[int, int]] = []
            for node in sorted(record, key=lambda node: node.end):
                up = self.parent[node.start]
                so_far.append((self.tag(node), 0 if up is None else self.tag(up) + 1))
                made[node.start] = tuple(so_far)
        return made

    def ranks(self, scheme: str) -> dict[tuple[tuple[int, int], ...], int]:
        """Preorder with sorted children is the order of the sequences themselves."""
        return {
            symbols: rank for rank, symbols in enumerate(sorted(set(self.symbols[scheme].values())))
        }


@pytest.fixture(scope="module")
def made() -> Sample:
    return sample(7, 60, runs=4)


@pytest.fixture(scope="module")
def oracle(made: Sample) -> Oracle:
    return Oracle(made.nodes)


@pytest.fixture(scope="module")
def found(made: Sample, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return built(tmp_path_factory.mktemp("index"), made, parts=2)


def test_ad_holds_every_node_in_order_with_the_nearest_of_its_tag_around_it(
    oracle: Oracle, found: Contents
) -> None:
    for tag in oracle.tags:
        nodes = oracle.of(tag)
        place = {node.start: row for row, node in enumerate(nodes)}
        nests = any(set(oracle.above(node)) & set(nodes) for node in nodes)
        rows = found["ad", tag]
        assert [row[:3] for row in rows] == [(n.start, n.end - n.start, n.level) for n in nodes]
        for node, row in zip(nodes, rows, strict=True):
            assert len(row) == 3 + len(SCHEMES) + nests
            if nests:
                up = next((a for a in oracle.above(node) if a in nodes), None)
                assert row[-1] == (form.NONE if up is None else place[up.start])


@pytest.mark.parametrize("number", range(3))
def test_postings_are_by_rank_and_start_and_labels_say_where(
    oracle: Oracle, found: Contents, number: int
) -> None:
    scheme = SCHEMES[number].name
    ranks, symbols = oracle.ranks(scheme), oracle.symbols[scheme]
    ordered = list(ranks)
    for tag in oracle.tags:
        nodes = oracle.of(tag)
        by_rank = sorted(nodes, key=lambda n: (ranks[symbols[n.start]], n.start))
        wanted = [(n.start, n.end - n.start, n.level) for n in by_rank]
        assert found[form.ses(scheme), tag] == wanted
        labels = found[form.labels(scheme), tag]
        counts = Counter(ranks[symbols[node.start]] for node in nodes)
        assert [(rank, count) for rank, _, _, count, _ in labels] == sorted(counts.items())
        begin = 0
        for rank, last, up, count, first in labels:
            own = ordered[rank]
            assert all(each[: len(own)] == own for each in ordered[rank : last + 1])
            assert last + 1 == len(ordered) or ordered[last + 1][: len(own)] != own
            assert first == begin
            around = [row for row, each in enumerate(labels) if each[0] < rank <= each[1]]
            assert up == (around[-1] if around else form.NONE)
            begin += count
        rows = found["ad", tag]
        assert [labels[row[3 + number]][0] for row in rows] == [
            ranks[symbols[n.start]] for n in nodes
        ]


def test_tries_are_in_canonical_preorder(oracle: Oracle, found: Contents) -> None:
    for scheme in SCHEMES:
        ranks = oracle.ranks(scheme.name)
        wanted = [(*symbols[-1],) for symbols in sorted(ranks)]
        assert [row[:2] for row in found[form.trie(scheme.name), 0]] == wanted


def test_keys_are_by_hash_key_and_row(made: Sample, oracle: Oracle, found: Contents) -> None:
    keyed = 0
    for tag in oracle.tags:
        wanted = []
        base = 0
        for run in made.runs:
            if tag not in run.tags:
                continue
            number = list(run.tags).index(tag)
            keys = run.keys(number)
            for at in range(len(keys) if keys else 0):
                assert keys is not None
                key = keys.data[keys.offsets[at] : keys.offsets[at + 1]].tobytes()
                wanted.append((hash_key(key), key, int(keys.row[at]) + base))
            base += run.counts[number]
        assert found["identity", tag] == sorted(wanted)
        keyed += len(wanted)
    assert keyed > 50


def test_records_are_the_bytes_that_were_read(made: Sample, found: Contents) -> None:
    records = found["records", 0]
    assert {start: record[2] for start, record in records.items()} == made.sources
    assert sorted((start, record[0]) for start, record in records.items()) == made.records
    assert [each.base for each in found["sources", 0]] == sorted(made.sources)


def test_statistics_are_counted_right(oracle: Oracle, found: Contents) -> None:
    whole = found["statistics", 0]
    assert whole["nodes"] == len(oracle.nodes)
    pairs: Counter[tuple[int, int]] = Counter()
    direct: Counter[tuple[int, int]] = Counter()
    for node in oracle.nodes:
        for distance, up in enumerate(oracle.above(node)):
            pairs[oracle.tag(up), oracle.tag(node)] += 1
            direct[oracle.tag(up), oracle.tag(node)] += distance == 0
    assert whole["fanout"]["pairs"] == [
        [*key, total, direct[key]] for key, total in sorted(pairs.items())
    ]
    for scheme in SCHEMES:
        figures = whole["schemes"][scheme.name]
        cps = Counter(oracle.symbols[scheme.name].values())
        assert figures["labels"] == len(cps)
        assert figures["nodes"] == len(oracle.nodes)
        assert figures["cps"] == pytest.approx(len(oracle.nodes) / len(cps))
        assert sum(row[1] for row in figures["histogram"]) == len(cps)
        assert sum(row[2] for row in figures["histogram"]) == len(oracle.nodes)
        for power, labels, _ in figures["histogram"]:
            assert labels == sum(power <= each < 2 * power for each in cps.values())
        assert figures["quantiles"][0][1] == min(cps.values())
        assert figures["quantiles"][-1][1] == max(cps.values())
        for number in range(len(oracle.tags)):
            of_tag = [each for symbols, each in cps.items() if symbols[-1][0] == number]
            assert figures["tags"][number] == {
                "labels": len(of_tag),
                "nodes": sum(of_tag),
                "cpt": sum(of_tag) / len(of_tag),
                "cps": max(of_tag),
            }


def test_fan_out_is_left_out_with_a_reason_where_paths_are_not_there(tmp_path: Path) -> None:
    made = sample(3, 5, schemes=SCHEMES[1:])
    with Writer.create(tmp_path / "index", schemes=SCHEMES[1:]) as writer:
        writer.append(made.runs, high=made.high)
    figures = contents(tmp_path / "index/segments/00000001")["statistics", 0]
    assert isinstance(figures, dict)
    assert "path" in figures["fanout"]["missing"]


@pytest.mark.parametrize(("runs", "parts"), [(1, 1), (3, 1), (1, 4), (7, 50)])
def test_lists_do_not_depend_on_runs_and_parts(
    tmp_path: Path, found: Contents, runs: int, parts: int
) -> None:
    again = sample(7, 60, runs=runs)
    assert built(tmp_path / "index", again, parts=parts) == found


def test_runs_are_read_from_files_in_any_order(
    tmp_path: Path, made: Sample, found: Contents
) -> None:
    paths = []
    for number, run in enumerate(made.runs):
        store(run, tmp_path / f"run{number}")
        paths.append(tmp_path / f"run{number}")
    stored = made._replace(runs=paths[::-1])  # type: ignore[arg-type]
    assert built(tmp_path / "index", stored) == found


def test_large_tags_are_written_piece_by_piece_to_the_same_lists(
    tmp_path: Path, made: Sample, found: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings, "BULK", 5)
    monkeypatch.setattr(postings, "KEY_BYTES", 64)
    monkeypatch.setattr(statistics, "_DENSE", 0)
    assert built(tmp_path / "index", made) == found


def test_compacting_leaves_what_building_without_the_removed_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, kept = sample(7, 60, runs=3), sample(7, 60, runs=2)
    second = sample(8, 20, low=first.high)
    monkeypatch.setattr("fmware.index.writer.RUN_NODES", 200)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(first.runs, high=first.high, parts=2)
        writer.append(second.runs, high=second.high)
        writer.remove([*first.records[::2], *second.records[5:9]])
        writer.remove(first.records[:3])
        (entry,) = writer.compact(parts=2).segments
    assert verify(tmp_path / "index").problems == []
    compacted = contents(tmp_path / "index/segments" / entry.name)
    gone = {start for start, _ in [*first.records[::2], *first.records[:3], *second.records[5:9]]}
    nodes = [n for n in [*kept.nodes, *second.nodes] if n.record not in gone]
    oracle = Oracle(nodes)
    sources = first.sources | second.sources
    records = compacted["records", 0]
    assert isinstance(records, dict)
    assert {s: r[2] for s, r in records.items()} == {
        start: data for start, data in sources.items() if start not in gone
    }
    assert [key[1] for key in compacted if key[0] == "ad"] == oracle.tags
    for tag in oracle.tags:
        rows: Any = compacted["ad", tag]
        assert [(r[0], r[0] + r[1], r[2]) for r in rows] == [
            (n.start, n.end, n.level) for n in oracle.of(tag)
        ]
    for scheme in SCHEMES:
        ranks = oracle.ranks(scheme.name)
        trie: Any = compacted[form.trie(scheme.name), 0]
        assert [row[:2] for row in trie] == [(*symbols[-1],) for symbols in sorted(ranks)]


def test_compacting_all_away_leaves_an_empty_index(tmp_path: Path) -> None:
    made = sample(1, 4)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs, high=made.high)
        writer.remove(made.records)
        manifest = writer.compact()
        assert manifest.segments == ()
        assert manifest.next_label == made.high
    assert list((tmp_path / "index/segments").iterdir()) == []
    assert verify(tmp_path / "index").ok


def flat(tag: Tag, start: list[int], end: list[int], *, high: int) -> MemoryRun:
    """A run of nodes of one tag that are all roots."""
    rank = np.zeros(len(start), np.uint32)
    nodes = Nodes(np.array(start), np.array(end), np.zeros(len(start), np.int16), {"path": rank})
    trie = TrieColumns(*(np.array([value], np.uint32) for value in (0, 0, 1)))
    return MemoryRun(
        {"path": PATH.direction}, {"path": False}, [tag], 0, high, [nodes], {"path": trie}
    )


def test_labels_far_apart_get_blocks_of_their_own(tmp_path: Path) -> None:
    start = [5, 6 + (1 << 32), 20 + (1 << 32), 1 << 60]
    run = flat(Tag(0, "a"), start, [each + 1 for each in start], high=1 << 61)
    with Writer.create(tmp_path / "index", schemes=["path"]) as writer:
        writer.append([run])
    folder = tmp_path / "index/segments/00000001"
    lists = StoredLists(folder / "nodes-000.mdb", load_segment(folder, None).files["nodes-000.mdb"])
    directory = lists.directory(form.AD, 0)
    assert directory is not None
    assert directory.first.tolist() == [5, 6 + (1 << 32), 1 << 60]
    assert [row[0] for row in contents(folder)["ad", Tag(0, "a")]] == start  # type: ignore[attr-defined]
    lists.close()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ([0], [1 << 32]),
        ([4, 2], [5, 3]),
        ([0, 2], [3, 4]),
        ([3], [2]),
        ([0], [100]),
    ],
)
def test_labels_that_cannot_be_are_refused(
    tmp_path: Path, start: list[int], end: list[int]
) -> None:
    high = 100 if max(end) < 200 else 1 << 40
    with Writer.create(tmp_path / "index", schemes=["path"]) as writer:
        with pytest.raises(BadRun, match="the run at 0, a: row"):
            writer.append([flat(Tag(0, "a"), start, end, high=high)])
        assert writer.manifest.generation == 1
    assert verify(tmp_path / "index").ok


def test_ranks_that_are_not_in_the_trie_are_refused(tmp_path: Path) -> None:
    run = flat(Tag(0, "a"), [0], [1], high=2)
    run.postings[0].ranks["path"][0] = 9
    with Writer.create(tmp_path / "index", schemes=["path"]) as writer, pytest.raises(BadRun):
        writer.append([run])


def test_lists_grow_past_a_transaction_and_read_alike_with_and_without_lmdb(tmp_path: Path) -> None:
    path = tmp_path / "part.mdb"
    generator = np.random.default_rng(1)
    with PartWriter(path) as part:
        for number in range(3):
            writer = ListWriter(part, "large", number)
            for size in (40 << 20, 3, 2037, 2038, 5000, 9 << 20):
                writer.add(size, 1, generator.bytes(size))
            writer.close()
        for number in range(3000):
            writer = ListWriter(part, "small", number)
            writer.add(number, 1, generator.bytes(number % 70 + 8))
            writer.close()
        about = part.close()
    environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=4)
    with environment.begin(buffers=True) as transaction, Pages(path) as pages:
        assert set(pages.databases) == {"large", "small"}
        for name in pages.databases:
            database = environment.open_db(name.encode(), txn=transaction, create=False)
            with transaction.cursor(database) as cursor:
                both = zip(cursor, pages.items(name), strict=True)
                for (key, value), (same_key, same_value) in both:
                    assert bytes(key) == same_key
                    assert value == same_value
            for number in range(0, 3, 2):
                for block in (0, 4, 5, 6):
                    place = form.block_key(number, block)
                    assert transaction.get(place, db=database) == pages.get(name, place)
        assert pages.get("small", form.directory_key(3000)) is None
        assert list(pages.items("none")) == []
        assert tree_pages(pages.data, page_size(pages.data)) == list(about.tree)
    environment.close()


def test_columns_come_in_chunks_of_any_size(tmp_path: Path) -> None:
    size = 3 * form.AD_ROWS + 17
    start = np.arange(size, dtype=np.int64) * 3
    columns = (start, np.ones(size), np.zeros(size), np.arange(size))
    directories = []
    for number, chunk in enumerate((size, 1000, form.AD_ROWS, form.AD_ROWS + 1)):
        with PartWriter(tmp_path / f"{number}.mdb") as part:
            writer = AdWriter(part, 0, schemes=1, up=False)
            for at in range(0, size, chunk):
                writer.write(*(column[at : at + chunk] for column in columns))
            assert writer.close() == size
            about = part.close()
        lists = StoredLists(tmp_path / f"{number}.mdb", about)
        directory = lists.directory(form.AD, 0)
        assert directory is not None
        assert np.diff(directory.begin.astype(int)).tolist() == [4080, 4080, 4080, 17]
        directories.append(directory.pack())
        lists.close()
    assert len(set(directories)) == 1


def test_keys_of_one_hash_are_sorted_by_key() -> None:
    hashes = np.array([5, 5, 5, 1], np.uint64)
    rows = np.array([0, 1, 2, 3], np.uint32)
    text = np.frombuffer(b"zzab", np.uint8)
    sizes = np.array([1, 1, 1, 1])
    hashed, row, offsets, data = postings._in_order(hashes, rows, sizes, text)
    assert (hashed.tolist(), row.tolist()) == ([1, 5, 5, 5], [3, 2, 0, 1])
    assert (offsets.tolist(), data.tobytes()) == ([0, 1, 2, 3, 4], b"bazz")


def test_the_kernel_refuses_columns_that_do_not_fit() -> None:
    longs, ints = np.zeros(2, np.int64), np.zeros(1, np.uint32)
    with pytest.raises(ValueError, match="different lengths"):
        _write.lengths(longs, longs, 0, 10, ints)
    with pytest.raises(ValueError, match="different lengths"):
        _write.enclosing(longs, longs, 0, ints)
    with pytest.raises(ValueError, match="not one of its tag's"):
        _write.translate(ints + np.uint32(1), ints, ints.copy(), np.zeros(1, np.uint64))
    with pytest.raises(ValueError, match="do not lie in their data"):
        _write.gather_keys(
            longs, np.zeros(0, np.uint8), longs + 5, np.zeros(3, np.int64), np.zeros(0, np.uint8)
        )
    deep = np.arange(100)
    up = np.empty(100, np.uint32)
    assert _write.enclosing(deep, 300 - deep, 7, up) == 100
    assert up.tolist() == [form.NONE, *range(7, 106)]
