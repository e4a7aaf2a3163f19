"""An index as its readers see it: generations, threads, forks, records, damage."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fmware.index import format as form
from fmware.index import reader as reader_module
from fmware.index.environment import ForkedIndex, open_files
from fmware.index.errors import CorruptIndex, FormatMismatch, IndexClosed, IndexMissing, NoSuchNode
from fmware.index.manifest import load_manifest
from fmware.index.reader import Index
from fmware.index.writer import Writer
from fmware.labeling import CHARACTER_ENTITIES, Reader, Vocabulary
from fmware.labeling.labeller import Labeller
from fmware.labeling.runs import Context, Source, Tag
from tests.index import oracle
from tests.index.oracle import Corpus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS = [
    "<a key='k1'>one<b key='k2'><a flag='1'/>two</b><c>k1</c></a>",
    "<b key='k3'><a key='k1'/><c>deep <d/>text</c></b>",
    "<c>k1</c>",
]
A = Tag(0, "a")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def corpora(path: Path) -> list[Corpus]:
    corpora = oracle.corpora_of([RECORDS, RECORDS[::-1], RECORDS])
    with oracle.small_blocks():
        oracle.build(path, corpora)
    return corpora


def answers(index: Index) -> list[object]:
    """What an index has to say, in short."""
    found: list[object] = []
    for segment in index.segments:
        for scheme in segment.schemes:
            for tag in segment.tags:
                found.append(oracle.labels_of(segment.scan(scheme, tag, 0, 10**6, "descendant")))
                found.append(oracle.labels_of(segment.scan(scheme, tag, 3, 3, "ancestor")))
        starts, ends = [segment.low - 1], [segment.high]
        for tag in segment.tags:
            pairs = segment.descendants(tag, starts, ends)
            found.append(oracle.pairs_of(pairs))
            found.append(
                oracle.pairs_of(segment.ancestors(tag, pairs.right.start, pairs.right.end))
            )
            found.extend(index.fragment(start) for start in pairs.right.start.tolist())
    found.append(sorted(oracle.pairs_of(index.identify(A, [b"k1", b"k2"]))))
    return found


# --- what it is -----------------------------------------------------------------------------


def test_it_says_what_it_holds(path: Path, corpora: list[Corpus]) -> None:
    with Index.open(str(path)) as index:
        assert index.generation == 4
        assert index.schemes == oracle.DIRECTIONS
        assert index.identity == oracle.RULES
        assert index.tags == corpora[0].tags
        assert [segment.low for segment in index.segments] == [each.base for each in corpora]
        assert [segment.nodes for segment in index.segments] == [
            len(each.nodes) for each in corpora
        ]
        assert index.segments[0].count(A) == 3
        assert index.segments[0].count("nothing") == 0
        assert [source.name for source in index.segments[0].sources] == ["corpus.xml"]
        assert "generation 4: 3 segments" in repr(index)
        assert "Segment 00000001" in repr(index.segments[0])
    assert "closed" in repr(index)


def test_statistics_add_up(path: Path, corpora: list[Corpus]) -> None:
    with Index.open(path) as index:
        whole = index.statistics
        everything = [node for corpus in corpora for node in corpus.nodes]
        assert whole.nodes == len(everything)
        assert {tag: each.nodes for tag, each in whole.tags.items()} == {
            tag: sum(node.tag == tag for node in everything) for tag in index.tags
        }
        for name, scheme in whole.schemes.items():
            labels = [{each.ses(node, name) for node in each.nodes} for each in corpora]
            assert scheme.labels == sum(map(len, labels))
            assert scheme.nodes == len(everything)
            assert scheme.power == len(everything) / scheme.labels
            assert sum(nodes for _, nodes in scheme.histogram.values()) == len(everything)
            for each in whole.tags.values():
                assert each.schemes[name].nodes == each.nodes
                assert each.schemes[name].largest <= scheme.largest
        assert whole.fanout is not None
        pairs = oracle.descendants(
            everything, Tag(0, "c"), [n.label for n in everything if n.tag == A]
        )
        assert whole.fanout[A, Tag(0, "c")].pairs == len(pairs)
        assert whole.stores[form.AD] > 0


def test_an_index_without_segments_answers_with_nothing(path: Path) -> None:
    with Writer.create(path, schemes=oracle.SCHEMES):
        pass
    with Index.open(path) as index:
        assert index.tags == []
        assert len(index.descendants(A, [1], [5], [0])) == 0
        assert len(index.identify(A, [b"k1"])) == 0
        assert index.locate(A, [1]).row.tolist() == [-1]
        assert index.statistics.nodes == 0
        with pytest.raises(NoSuchNode):
            index.fragment(1)


# --- records --------------------------------------------------------------------------------


def test_records_come_back_as_they_were(path: Path, corpora: list[Corpus]) -> None:
    with Index.open(path) as index:
        for corpus in corpora:
            for table, record in zip(corpus.tables, corpus.records, strict=True):
                root = int(table.start[0])
                for row in range(len(table)):
                    start = int(table.start[row])
                    stored = index.record(start)
                    assert stored.data == record
                    assert (stored.start, stored.end, stored.level) == (root, table.end[0], 1)
                    assert stored.source == "corpus.xml"
                    assert index.table(start).start.tolist() == table.start.tolist()
                    assert index.fragment(start) == table.fragment(row)
                    assert index.value(start) == table.string_value(row)
                    assert index.path_of(start) == table.path(row)
                    above = [each.start for each in index.ancestors_of(start)]
                    wanted = (table.start < start) & (table.end > table.end[row])
                    assert above == table.start[wanted].tolist()
        node = index.node(corpora[0].nodes[2].start)
        assert node == (corpora[0].nodes[2].tag, *corpora[0].nodes[2].label)


def test_labels_that_no_record_has(path: Path, corpora: list[Corpus]) -> None:
    with Index.open(path) as index:
        gap = int(corpora[0].tables[0].end[0]) + 1
        for start in (-1, gap, corpora[-1].high, 2**60):
            with pytest.raises(NoSuchNode, match=f"starts at {start} "):
                index.record(start)
        inside = int(corpora[0].tables[0].end[0])
        assert index.record(inside).start == corpora[0].base
        for ask in (index.fragment, index.value, index.path_of, index.ancestors_of, index.node):
            with pytest.raises(NoSuchNode, match=f"no node starts at {inside}"):
                ask(inside)
        text = int(corpora[0].tables[0].start[2])
        assert index.value(text) == "one"
        with pytest.raises(NoSuchNode):
            index.node(text)


def test_records_that_were_removed_are_gone(path: Path, corpora: list[Corpus]) -> None:
    with Writer.open(path) as writer:
        writer.remove(corpora[1].ranges([1]))
    with Index.open(path) as index:
        gone = int(corpora[1].tables[1].start[0])
        for ask in (index.record, index.table, index.fragment):
            with pytest.raises(NoSuchNode):
                ask(gone)
        kept = int(corpora[1].tables[2].start[0])
        assert index.record(kept).data == corpora[1].records[2]


def test_records_keep_what_stood_around_them(path: Path) -> None:
    """Namespaces, encoding, entities of a DOCTYPE and of nobody, whole documents."""
    record = "<x:a>\xfc&uuml;&own;</x:a>".encode("latin-1")
    context = Context(
        b'<?xml version="1.0" encoding="ISO-8859-1"?>',
        b'<!DOCTYPE all [<!ENTITY own "O">]>',
        b'xmlns:x="urn:x"',
    )
    document = b'<?xml version="1.0"?>\n<a>whole</a>\n'
    reader = Reader(Vocabulary(), entities=CHARACTER_ENTITIES)
    labeller = Labeller(oracle.SCHEMES, reader.vocabulary)
    first = reader.read_record(
        record,
        declaration=context.declaration,
        doctype=context.doctype,
        namespaces=context.namespaces,
        base=100,
        level=3,
    )
    second = reader.read(document, base=500)
    zero = np.zeros(1, np.int64)
    source = Source("mixed.xml", 100, 900)
    labeller.add(first, zero, source, record, np.array([len(record)]), context)
    labeller.add(second, zero, source, document, np.array([len(document)]), Context(document=True))
    with Writer.create(path, schemes=oracle.SCHEMES) as writer:
        writer.append([labeller.finish()], check="off")
    with Index.open(path) as index:
        assert index.value(100) == "\xfc\xfcO"
        assert index.fragment(100).decode() == '<x:a xmlns:x="urn:x">\xfc\xfcO</x:a>'
        assert index.node(100) == (Tag(0, "{urn:x}a"), 100, int(first.end[0]), 3)
        assert index.fragment(500) == b"<a>whole</a>"
        assert index.record(500).context.document


# --- opening and closing --------------------------------------------------------------------


def test_a_closed_index_says_so(path: Path, corpora: list[Corpus]) -> None:
    index = Index.open(path)
    segment = index.segments[0]
    index.close()
    index.close()
    assert index.closed
    asks: list[Callable[[], object]] = [
        lambda: index.segments,
        lambda: index.tags,
        lambda: index.descendants(A, [1], [2]),
        lambda: index.identify(A, [b"k"]),
        lambda: index.record(0),
        lambda: index.newer(),
        lambda: index.refresh(),
        lambda: segment.descendants(A, [1], [2]),
        lambda: segment.scan("path", A, 0, 1, "self"),
        lambda: segment.fragment(0),
        lambda: segment.statistics,
    ]
    for ask in asks:
        with pytest.raises(IndexClosed, match="closed; open it again"):
            ask()


def test_files_are_open_once_and_closed_with_their_last_user(
    path: Path, corpora: list[Corpus]
) -> None:
    assert not mine(path)
    one, other = Index.open(path), Index.open(path)
    files = mine(path)
    assert len(files) == len(set(files)) == len(list(path.glob("segments/*/*.mdb")))
    refreshed = one.refresh()
    assert refreshed.segments[0].files is one.segments[0].files
    one.close()
    refreshed.close()
    assert mine(path) == files
    assert answers(other)
    held = other.segments[0].scan("path", A, 0, 10**6, "descendant")
    other.close()
    del one, refreshed
    gc.collect()
    assert len(mine(path)) <= 1
    assert len(held) == 3
    del held, other
    gc.collect()
    assert not mine(path)


def mine(path: Path) -> list[str]:
    return [file for file in open_files() if file.startswith(os.path.realpath(path))]


def test_another_index_under_an_old_name_is_another_index(
    path: Path, corpora: list[Corpus]
) -> None:
    old = Index.open(path)
    before = answers(old)
    path.rename(path.with_name("moved"))
    oracle.build(path, [Corpus(RECORDS[:1])])
    with Index.open(path) as new:
        assert len(new.segments) == 1
        assert answers(old) == before
        assert len(answers(new)) < len(before)
    old.close()


def test_no_index_no_format_no_manifest(path: Path, corpora: list[Corpus], tmp_path: Path) -> None:
    with pytest.raises(IndexMissing, match="no index here"):
        Index.open(tmp_path / "elsewhere")
    manifest = path / form.MANIFEST
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"generation":4', b'"generation":5'))
    with pytest.raises(CorruptIndex, match="checksum"):
        Index.open(path)
    manifest.write_bytes(_in_format(whole, 99))
    with pytest.raises(FormatMismatch, match="format 99"):
        Index.open(path)


def _in_format(manifest: bytes, version: int) -> bytes:
    fields = json.loads(manifest)
    del fields["sha256"]
    fields["format"] = version
    fields["sha256"] = hashlib.sha256(form.canonical(fields)).hexdigest()
    return form.canonical(fields) + b"\n"


# --- generations ----------------------------------------------------------------------------


def test_a_reader_keeps_its_answers_over_twenty_generations(path: Path) -> None:
    corpora = oracle.corpora_of([RECORDS] * 12)
    with oracle.small_blocks():
        oracle.build(path, corpora[:1])
    first = Index.open(path)
    before = answers(first)
    opened = [(first, before)]
    with Writer.open(path) as writer, oracle.small_blocks():
        for at in range(1, 11):
            writer.append([corpora[at].run()], high=corpora[at].high, check="off")
            opened.append((fresh := Index.open(path), answers(fresh)))
            writer.remove(corpora[at - 1].ranges([at % 3]))
            if at % 3 == 0:
                writer.compact(check="off")
    assert load_manifest(path).generation >= 22
    assert first.newer()
    for index, answer in opened:
        assert answers(index) == answer
    last = first.refresh()
    assert last.generation == load_manifest(path).generation
    assert not last.newer()
    left = [
        node
        for at, corpus in enumerate(corpora[:11])
        for node in corpus.nodes
        if at == 10 or node.record != corpus.ranges([(at + 1) % 3])[0][0]
    ]
    anchors = [node.label for node in left]
    starts, ends, _ = (np.array(column) for column in zip(*anchors, strict=True))
    assert oracle.pairs_of(last.descendants(A, starts, ends)) == oracle.descendants(
        left, A, anchors
    )
    for index, _ in opened:
        index.close()
    last.close()


def test_a_segment_that_vanishes_while_it_is_opened(
    path: Path, corpora: list[Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction publishes between the reading of the manifest and the opening of its files."""
    real = load_manifest
    calls: list[int] = []

    def load(index: Path) -> object:
        manifest = real(index)
        if not calls:
            with Writer.open(path) as writer:
                writer.compact(check="off")
        calls.append(manifest.generation)
        return manifest

    monkeypatch.setattr(reader_module, "load_manifest", load)
    with Index.open(path) as index:
        assert index.generation == 5
        assert len(index.segments) == 1
        assert answers(index)
    assert calls[0] == 4


def test_a_segment_that_is_not_there_at_all(path: Path, corpora: list[Corpus]) -> None:
    shutil.rmtree(path / form.SEGMENTS / "00000002")
    with pytest.raises(CorruptIndex, match="00000002"):
        Index.open(path)


# --- threads and processes ------------------------------------------------------------------


def test_threads_probe_while_others_refresh_and_close(path: Path, corpora: list[Corpus]) -> None:
    shared = [Index.open(path)]
    wanted = answers(shared[0])
    stop, done = threading.Event(), threading.Semaphore(0)

    def probe(_: int) -> None:
        while not stop.is_set():
            try:
                assert answers(shared[0]) == wanted
            except IndexClosed:
                continue
            done.release()

    with ThreadPoolExecutor(8) as pool:
        probes = [pool.submit(probe, each) for each in range(8)]
        try:
            for turn in range(40):
                old = shared[0]
                shared[0] = old.refresh() if turn % 2 else Index.open(path)
                old.close()
                if turn % 5 == 0:
                    assert done.acquire(timeout=60)
        finally:
            stop.set()
        for each in probes:
            each.result()
    shared[0].close()
    with pytest.raises(IndexClosed):
        answers(shared[0])


def test_a_fork_has_to_open_its_own(path: Path, corpora: list[Corpus]) -> None:
    index = Index.open(path)
    wanted = answers(index)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _in_child(path, index, wanted)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert answers(index) == wanted
    index.close()


def _in_child(path: Path, index: Index, wanted: list[object]) -> int:
    with pytest.raises(ForkedIndex, match="open it again here"):
        answers(index)
    with pytest.raises(ForkedIndex):
        index.segments[0].descendants(A, [0], [9])
    if open_files():
        return 4
    with Index.open(path) as own:
        if answers(own) != wanted:
            return 5
    del own, index
    gc.collect()
    return 0


# --- damage ---------------------------------------------------------------------------------


def test_no_changed_byte_is_ever_served(path: Path) -> None:
    """A byte is changed here and there; the answer is the right one, or an error with the file."""
    records = [f"<a key='k{at}'>{'<c/>' * 40}<b>some text</b></a>" for at in range(60)]
    corpus = Corpus(records)
    oracle.build(path, [corpus])
    with Index.open(path) as index:
        wanted = answers(index)
    random = np.random.default_rng(11)
    found = 0
    for file in sorted(path.glob("segments/*/*.mdb")):
        whole = file.read_bytes()
        for at in random.integers(0, len(whole), 12).tolist():
            data = bytearray(whole)
            data[at] ^= 1 << int(random.integers(8))
            # Another file: the map of a reader that is still held must not see the change.
            file.unlink()
            file.write_bytes(data)
            error = damage(path, wanted)
            if error is not None:
                assert file.name in str(error)
                assert "verify" in str(error)
                found += 1
        file.unlink()
        file.write_bytes(whole)
    assert found > 10
    with Index.open(path) as index:
        assert answers(index) == wanted


def damage(path: Path, wanted: list[object]) -> CorruptIndex | None:
    """The error that an index gives instead of the answers that are wanted."""
    try:
        with Index.open(path) as index:
            assert answers(index) == wanted
    except CorruptIndex as error:
        return error
    return None


def test_a_file_that_is_too_short_or_gone(path: Path, corpora: list[Corpus]) -> None:
    file = next(iter(sorted(path.glob("segments/00000001/nodes-*.mdb"))))
    whole = file.read_bytes()
    file.write_bytes(whole[:-4096])
    with pytest.raises(CorruptIndex, match="bytes where"):
        Index.open(path)
    file.unlink()
    with pytest.raises(CorruptIndex, match=r"nodes-000\.mdb: is missing"):
        Index.open(path)
    file.write_bytes(whole)
    Index.open(path).close()


def test_damaged_tombstones_are_found(path: Path, corpora: list[Corpus]) -> None:
    with Writer.open(path) as writer:
        writer.remove(corpora[0].ranges([0]))
    file = next(iter((path / form.TOMBSTONES).iterdir()))
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptIndex, match=file.name):
        Index.open(path)
