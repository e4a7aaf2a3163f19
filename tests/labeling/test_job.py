"""Labelling a corpus: nothing lost, nothing twice, whatever the files, the cuts and the order."""

from __future__ import annotations

import gzip
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware import labeling
from fmware.labeling.errors import SourceError
from fmware.labeling.job import label_here
from tests.labeling.corpora import Layout, expected, found, layouts, records, runs_of
from tests.labeling.test_sources import tar

if TYPE_CHECKING:
    from collections.abc import Callable

    from fmware.labeling.job import Corpus
    from fmware.labeling.runs import Run

ADVERSARIAL = [
    "<r><!-- <r/> --><r><r>x</r></r></r>",
    "<s k='1'><![CDATA[<r></r>]]></s>",
    "<r><?pi <r></r> ?>ü</r>",
    "<r/>",
    "<s><a r='&lt;r&gt;'/></s>",
] * 6
COMMENT = "<!--" + "\n<r>no</r><s>record</s>" * 40 + "-->"


def check_runs(runs: list[Run]) -> None:
    """Runs are disjoint and in order; postings are sorted; ranks lie in their tries."""
    for run, after in pairwise(runs):
        assert run.high <= after.low
    for run in runs:
        assert list(run.tags) == sorted(run.tags)
        for number in range(len(run.tags)):
            listed = run.nodes(number)
            assert len(listed) == run.counts[number]
            assert (np.diff(listed.start) > 0).all()
            assert (listed.start >= run.low).all()
            assert (listed.end < run.high).all()
            for name, ranks in listed.ranks.items():
                trie = run.trie(name)
                assert (trie.tag[ranks] == number).all()


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(records(), layouts(), st.integers(1, 64), st.sampled_from(["held", "stored"]))
@example(ADVERSARIAL, Layout("one", between=[COMMENT]), 64, "stored")
@example(ADVERSARIAL, Layout("one", between=["", COMMENT, ""], groups=True), 17, "held")
@example(ADVERSARIAL, Layout("one", encoding="iso-8859-1", newline="\r\n"), 33, "held")
def test_every_node_is_found_once(
    made: list[str], layout: Layout, partitions: int, runs_are: str
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "corpus"
        place.mkdir()
        layout.write(made, place)
        corpus = label_here(
            place,
            record=layout.record,
            schemes=("path", "vist", "prix"),
            partitions=partitions,
            work=Path(scratch) / "work" if runs_are == "stored" else None,
        )
        runs = runs_of(corpus)
        check_runs(runs)
        assert corpus.rejected == 0
        assert corpus.records == len(made)
        assert found(runs) == expected(made)
        assert corpus.high >= max(run.high for run in runs)


@pytest.mark.parametrize("ways", range(2, 65))
def test_one_file_cut_in_any_number_of_ways(ways: int, tmp_path: Path) -> None:
    layout = Layout("one", between=["", COMMENT, "<?pi <r></r> ?>"], groups=True)
    layout.write(ADVERSARIAL, tmp_path)
    corpus = label_here(tmp_path, record=("r", "s"), partitions=ways)
    assert corpus.rejected == 0
    assert found(runs_of(corpus)) == expected(ADVERSARIAL)


def test_a_false_cut_is_noticed_and_mended(tmp_path: Path) -> None:
    Layout("one", between=[COMMENT]).write(ADVERSARIAL, tmp_path)
    corpus = label_here(tmp_path, record=("r", "s"), partitions=40)
    assert [Path(name).name for name in corpus.recut] == ["all.xml"]


def test_labels_do_not_depend_on_the_cuts(tmp_path: Path) -> None:
    Layout("one").write(ADVERSARIAL, tmp_path)

    def labels(partitions: int) -> list[tuple[object, ...]]:
        corpus = label_here(tmp_path, record=("r", "s"), partitions=partitions, base=77)
        return sorted(
            (tag, start, end, level)
            for run in runs_of(corpus)
            for number, tag in enumerate(run.tags)
            for start, end, level in zip(*_columns(run, number), strict=True)
        )

    whole = labels(1)
    assert all(labels(ways) == whole for ways in (2, 3, 7, 20))


def _columns(run: Run, number: int) -> tuple[list[int], list[int], list[int]]:
    listed = run.nodes(number)
    return listed.start.tolist(), listed.end.tolist(), listed.level.tolist()


def bad(write: Callable[[Path], object], tmp_path: Path, **options: object) -> Corpus:
    place = tmp_path / "corpus"
    place.mkdir()
    write(place)
    return label_here(place, work=tmp_path / "work", **options)  # type: ignore[arg-type]


def test_a_bad_record_is_kept_with_its_reason_and_the_rest_is_labelled(tmp_path: Path) -> None:
    text = b"<all><r>1</r><r><a></r><r>2</r><r>&nix;</r><r>3</r></all>"
    corpus = bad(lambda place: (place / "x.xml").write_bytes(text), tmp_path, record="r")
    assert (corpus.records, corpus.rejected) == (3, 2)
    (file,) = corpus.rejects_files
    rejects = pq.read_table(file).to_pylist()
    assert [row["offset"] for row in rejects] == [text.index(b"<r><a>"), text.index(b"<r>&nix;")]
    assert [row["data"] for row in rejects] == [b"<r><a></r>", b"<r>&nix;</r>"]
    assert [row["kind"] for row in rejects] == ["MalformedXML", "EntityRefused"]
    assert all(row["file"].endswith("x.xml") and row["reason"] for row in rejects)


def test_bad_documents_do_not_take_good_ones_with_them(tmp_path: Path) -> None:
    def write(place: Path) -> None:
        (place / "a.xml").write_bytes(b"<a><b/></a>")
        (place / "b.xml").write_bytes(b"<a><b></a>")
        (place / "c.xml").write_bytes(b"\xff\xfe<\0a\0/\0>\0")
        (place / "d.xml").write_bytes(b"")
        (place / "e.xml.gz").write_bytes(b"\x1f\x8bnot gzip at all")

    corpus = bad(write, tmp_path)
    assert (corpus.records, corpus.rejected) == (2, 3)
    rejects = pq.read_table(corpus.rejects_files[0]).to_pylist()
    assert sorted(Path(row["file"]).name for row in rejects) == ["b.xml", "d.xml", "e.xml.gz"]
    assert "no document in it" in {row["reason"] for row in rejects}


def test_damaged_archives_do_not_take_good_files_with_them(tmp_path: Path) -> None:
    def write(place: Path) -> None:
        whole = tar({f"{number}.xml": b"<a>%d</a>" % number for number in range(5)})
        (place / "cut.tar").write_bytes(whole[: 3 * 1024 + 600])
        (place / "empty.tar").write_bytes(b"")
        (place / "none.tar").write_bytes(b"not an archive" * 100)
        (place / "packed.tar.gz").write_bytes(gzip.compress(whole)[:-20])
        (place / "z.xml").write_bytes(b"<a/>")

    corpus = bad(write, tmp_path)
    assert corpus.rejected == 4
    rejects = pq.read_table(corpus.rejects_files[0]).to_pylist()
    assert all("damaged or cut short" in row["reason"] for row in rejects)
    assert {Path(row["file"].partition("!")[0]).name for row in rejects} == {
        "cut.tar",
        "empty.tar",
        "none.tar",
        "packed.tar.gz",
    }
    assert corpus.records >= 1 + 3


def test_a_record_over_the_limit_is_rejected_with_its_head(tmp_path: Path) -> None:
    text = b"<all><r>1</r><r>" + b"x" * 5000 + b"</r><r>2</r></all>"
    limits = labeling.Limits(bytes=1000)
    corpus = bad(
        lambda place: (place / "x.xml").write_bytes(text), tmp_path, record="r", limits=limits
    )
    assert (corpus.records, corpus.rejected) == (2, 1)


def test_utf_16_cannot_be_cut_and_says_so_once(tmp_path: Path) -> None:
    text = ("<all>" + "<r>x</r>" * 100 + "</all>").encode("utf-16")
    corpus = bad(
        lambda place: (place / "x.xml").write_bytes(text), tmp_path, record="r", partitions=9
    )
    assert (corpus.records, corpus.rejected) == (0, 1)
    assert "UTF-8" in pq.read_table(corpus.rejects_files[0]).to_pylist()[0]["reason"]


def test_keys_belong_to_their_nodes(tmp_path: Path) -> None:
    text = b"<all>" + b"".join(
        b'<r k="k%d"><a k="inner%d"/><n> name %d </n></r>' % (i, i, i % 7) for i in range(50)
    )
    (tmp_path / "x.xml").write_bytes(text + b"</all>")
    corpus = label_here(tmp_path, record="r", identity=["r=@k", "a=@k", "r=n"], partitions=6)
    got: dict[tuple[str, bytes], list[int]] = {}
    for run in runs_of(corpus):
        for number, tag in enumerate(run.tags):
            keys = run.keys(number)
            if keys is None:
                continue
            listed = run.nodes(number)
            for i, row in enumerate(keys.row.tolist()):
                key = keys.data[keys.offsets[i] : keys.offsets[i + 1]].tobytes()
                got.setdefault((str(tag), key), []).append(int(listed.start[row]))
    assert len(got) == 50 + 50 + 7
    assert all(len(starts) == 1 for (tag, _), starts in got.items() if tag == "a")
    for i in range(50):
        (start,) = got["r", b"k%d" % i]
        assert text[start:].startswith(b'<r k="k%d"' % i)
        assert start in got["r", b"name %d" % (i % 7)]


def test_the_source_of_every_record_is_kept(tmp_path: Path) -> None:
    import zstandard

    layout = Layout("one", encoding="iso-8859-1", newline="\r\n", groups=True)
    layout.write(ADVERSARIAL, tmp_path)
    source = (tmp_path / "all.xml").read_bytes()
    reader = labeling.Reader(entities=labeling.CHARACTER_ENTITIES)
    seen = []
    for run in runs_of(label_here(tmp_path, record=("r", "s"), partitions=5)):
        for block in run.records():
            data = zstandard.ZstdDecompressor().decompress(block.data)
            for i, start in enumerate(block.starts.tolist()):
                piece = data[block.offsets[i] : block.offsets[i + 1]]
                assert source[start : start + len(piece)] == piece
                table = reader.read_record(
                    piece,
                    declaration=block.context.declaration,
                    namespaces=block.context.namespaces,
                )
                seen.append(etree.canonicalize(table.fragment(0).decode()))
    assert sorted(seen) == sorted(etree.canonicalize(record) for record in ADVERSARIAL)


def test_what_is_not_there_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file"):
        label_here(tmp_path / "gone.xml")


def test_progress_is_told(tmp_path: Path) -> None:
    Layout("one").write(ADVERSARIAL, tmp_path)
    told: list[tuple[int, int]] = []
    label_here(tmp_path, record="r", progress=lambda done, total: told.append((done, total)))
    size = (tmp_path / "all.xml").stat().st_size
    assert told[-1] == (size, size)
