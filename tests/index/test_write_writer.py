"""The writer: generations, its lock, what it refuses, what it leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest

from fmware.index import errors
from fmware.index import format as form
from fmware.index.__main__ import main
from fmware.index.errors import (
    BadRun,
    CorruptIndex,
    FormatMismatch,
    IndexClosed,
    IndexExists,
    IndexLocked,
    IndexMissing,
    NoSuchNode,
    StoreError,
)
from fmware.index.files import Files
from fmware.index.manifest import Manifest, load_manifest
from fmware.index.verify import verify
from fmware.index.writer import Writer
from fmware.labeling.runs import store
from fmware.labeling.ses import Direction
from tests.index.samples import RULES, SCHEMES, Sample, contents, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")
R = TypeVar("R")


@pytest.fixture
def made() -> Sample:
    return sample(5, 6, runs=2)


@pytest.fixture
def index(tmp_path: Path, made: Sample) -> Path:
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs, high=made.high)
    return tmp_path / "index"


def test_a_new_index_is_empty_and_remembers_how_it_was_made(tmp_path: Path) -> None:
    options = {"tags": ["a"]}
    with Writer.create(
        tmp_path / "new/index", schemes=["path", SCHEMES[2]], identity=RULES, options=options
    ) as writer:
        manifest = writer.manifest
    assert manifest == load_manifest(tmp_path / "new/index")
    assert (manifest.generation, manifest.segments, manifest.next_label) == (1, (), 0)
    assert {name: each.direction for name, each in manifest.schemes.items()} == {
        "path": Direction.ANCESTOR,
        "prix": Direction.DESCENDANT,
    }
    assert manifest.schemes["prix"].extra_is_tag
    assert (manifest.identity, manifest.options) == (RULES, options)
    assert manifest.created == manifest.changed != ""
    assert verify(tmp_path / "new/index").generation == 1


def test_an_index_is_made_only_where_there_is_none(index: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexExists, match="holds an index already"):
        Writer.create(index, schemes=["path"])
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexExists, match="a file"):
        Writer.create(tmp_path / "file", schemes=["path"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("")
    with pytest.raises(IndexExists, match=r"letter\.txt"):
        Writer.create(tmp_path / "other", schemes=["path"])
    with pytest.raises(IndexMissing, match="build one first"):
        Writer.open(tmp_path / "other")
    assert not (tmp_path / "other" / form.LOCK).exists()
    (tmp_path / "half/segments").mkdir(parents=True)
    Writer.create(tmp_path / "half", schemes=["path"]).close()
    assert verify(tmp_path / "half").ok


def test_each_change_is_a_generation(index: Path, made: Sample) -> None:
    with Writer.open(index) as writer:
        assert (writer.manifest.generation, writer.next_label) == (2, made.high)
        more = sample(6, 3, low=writer.next_label + 100)
        writer.append(more.runs, high=more.high + 50)
        assert (writer.manifest.generation, writer.next_label) == (3, more.high + 50)
        first, second = writer.manifest.segments
        assert (first.records, second.records) == (6, 3)
        assert second.nodes == len(more.nodes)
        writer.remove([made.records[1], more.records[0]])
        assert [
            each.tombstones.removed for each in writer.manifest.segments if each.tombstones
        ] == [
            1,
            1,
        ]
        kept = writer.remove([made.records[1]])
        assert kept.generation == 4
        writer.remove(np.array(made.records[:3]))
        assert sorted(each.name for each in (index / "tombstones").iterdir()) == [
            "00000004-00000002.bin",
            "00000005-00000001.bin",
        ]
        writer.compact()
        assert writer.manifest.generation == 6
        assert writer.compact().generation == 6
        (only,) = writer.manifest.segments
        assert (only.name, only.records, only.tombstones) == ("00000003", 5, None)
        assert writer.next_label == more.high + 50
        assert [each.name for each in (index / "segments").iterdir()] == ["00000003"]
        assert list((index / "tombstones").iterdir()) == []
    assert verify(index).problems == []


def test_a_segment_without_records_goes_at_once(index: Path, made: Sample) -> None:
    with Writer.open(index) as writer:
        assert writer.remove(made.records).segments == ()
        assert list((index / "segments").iterdir()) == []
        assert writer.next_label == made.high


def test_adding_nothing_takes_labels_all_the_same(index: Path, made: Sample) -> None:
    with Writer.open(index) as writer:
        manifest = writer.append([], high=made.high + 10)
        assert (len(manifest.segments), manifest.next_label) == (1, made.high + 10)
        assert list((index / "building").iterdir()) == []


def test_only_records_are_removed(index: Path, made: Sample) -> None:
    start, end = made.records[2]
    wrong = [(start + 1, end), (start, end + 1), (made.high + 5, made.high + 9), (-3, -1)]
    with Writer.open(index) as writer:
        for each in wrong:
            with pytest.raises(NoSuchNode, match="no record starts at"):
                writer.remove([made.records[0], each])
        assert writer.manifest == load_manifest(index)
        assert writer.manifest.generation == 2
    assert verify(index).leftovers == []


def test_runs_must_fit_the_index_and_each_other(index: Path, made: Sample) -> None:
    with Writer.open(index) as writer:
        with pytest.raises(BadRun, match=f"do not lie in \\[{made.high}"):
            writer.append(sample(1, 2, low=made.high - 1).runs)
        more = sample(1, 2, low=made.high)
        with pytest.raises(BadRun, match="do not lie in"):
            writer.append(more.runs, high=more.runs[-1].high - 1)
        with pytest.raises(BadRun, match="share labels"):
            writer.append([*more.runs, *sample(2, 1, low=made.high + 3).runs])
        with pytest.raises(BadRun, match="schemes path, vist; this index has path, vist, prix"):
            writer.append(sample(1, 2, low=made.high, schemes=SCHEMES[:2]).runs)
        assert writer.append(more.runs).generation == 3
    assert verify(index).ok


def test_there_is_one_writer(index: Path) -> None:
    with Writer.open(index):
        for open_again in (Writer.open, Writer):
            with pytest.raises(IndexLocked, match=f"process {os.getpid()} on .*, since 20"):
                open_again(index)
        code = f"from fmware.index.writer import Writer; Writer({str(index)!r})"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert "IndexLocked" in done.stderr
        assert f"process {os.getpid()}" in done.stderr
    Writer.open(index).close()


def test_a_closed_writer_writes_nothing(index: Path) -> None:
    writer = Writer.open(index)
    writer.close()
    writer.close()
    with pytest.raises(IndexClosed):
        writer.append([])
    with pytest.raises(IndexClosed):
        writer.remove([])
    with pytest.raises(IndexClosed):
        writer.compact()


def test_the_next_writer_removes_what_a_dead_one_left(index: Path) -> None:
    (index / "building/00000002").mkdir(parents=True)
    (index / "building/00000002/nodes-000.mdb").write_bytes(b"x")
    (index / "segments/00000009").mkdir()
    (index / "tombstones/00000009-00000001.bin").write_bytes(b"x")
    (index / "manifest.json.new").write_bytes(b"{")
    (index / "rejects").mkdir()
    report = verify(index)
    assert report.ok
    assert len(report.leftovers) == 3
    Writer.open(index).close()
    assert verify(index).leftovers == []
    assert not (index / "manifest.json.new").exists()
    assert (index / "rejects").exists()


def test_another_format_is_named_and_damage_is_not_taken_for_one(index: Path) -> None:
    file = index / form.MANIFEST
    fields = json.loads(file.read_bytes())
    fields["format"] = 9
    file.write_bytes(form.canonical(fields) + b"\n")
    with pytest.raises(CorruptIndex, match="checksum"):
        load_manifest(index)
    del fields["sha256"]
    fields["sha256"] = hashlib.sha256(form.canonical(fields)).hexdigest()
    file.write_bytes(form.canonical(fields) + b"\n")
    with pytest.raises(FormatMismatch, match="format 9, and this version reads format 2; use"):
        Writer.open(index)
    assert "format 9" in verify(index).problems[0]
    for text in (b"", b"{", b"[]", b'{"sha256": 1}', b"\xff"):
        file.write_bytes(text)
        with pytest.raises(CorruptIndex, match="is not a manifest"):
            load_manifest(index)


def test_a_manifest_comes_back_as_it_was(index: Path) -> None:
    manifest = load_manifest(index)
    assert Manifest.unpack(manifest.pack(), "here") == manifest


class Pickling:
    """A mapper that, like one that goes to other processes, hands over copies."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        called: Callable[[T], R] = pickle.loads(pickle.dumps(function))
        copies = [pickle.loads(pickle.dumps(item)) for item in items]
        # Twice, as a task may be repeated after its answer was lost.
        return [pickle.loads(pickle.dumps([called(item), called(item)][1])) for item in copies]


def test_work_goes_to_other_processes(tmp_path: Path) -> None:
    made = sample(9, 30, runs=4)
    found = []
    for name, mapper in (("here", None), ("there", Pickling())):
        options: dict[str, Any] = {"mapper": mapper} if mapper else {}
        runs = []
        for number, run in enumerate(made.runs):
            store(run, tmp_path / f"{name}{number}")
            runs.append(tmp_path / f"{name}{number}")
        with Writer.create(tmp_path / name, schemes=SCHEMES, identity=RULES) as writer:
            writer.append(runs[:3], parts=3, **options)
            writer.append(runs[3:], **options)
            writer.remove(made.records[::4])
            writer.compact(parts=2, **options)
        assert verify(tmp_path / name).problems == []
        found.append(contents(tmp_path / name / "segments/00000003"))
    assert found[0] == found[1]


def test_progress_and_checking_in_another_process(tmp_path: Path, made: Sample) -> None:
    steps: list[str] = []
    with Writer.create(tmp_path / "index", schemes=SCHEMES) as writer:
        writer.append(made.runs, progress=steps.append, check="process")
    assert steps == ["merge", "build", "meta", "verify", "publish"]


class Damaging(Files):
    """Flips a byte of a file of nodes when its segment is being described."""

    def write(self, path: Path, data: bytes) -> None:
        super().write(path, data)
        if path.name == form.SEGMENT:
            file = path.parent / "nodes-000.mdb"
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 4
            file.write_bytes(content)


@pytest.mark.parametrize("check", ["process", "here", "auto", "off"])
def test_a_segment_that_was_written_wrong_is_not_published(
    index: Path, made: Sample, check: Any
) -> None:
    with Writer.open(index, files=Damaging()) as writer:
        more = sample(6, 3, low=made.high)
        if check == "off":
            writer.append(more.runs, check=check)
            assert not verify(index).ok
            return
        with pytest.raises(CorruptIndex, match="sha256"):
            writer.append(more.runs, check=check)
        assert writer.manifest.generation == 2
    assert verify(index).ok
    assert verify(index).leftovers == []


def test_verify_from_a_shell(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(index)]) == 0
    assert "generation 2" in capsys.readouterr().out
    (index / "segments/00000001/meta.mdb").unlink()
    assert main([str(index)]) == 1
    assert "meta.mdb: is missing" in capsys.readouterr().out
    assert main([]) == 2
    assert main([str(index / "none")]) == 1


def test_errors_say_what_to_do_and_survive_pickling() -> None:
    every: list[StoreError] = [
        errors.IndexMissing("i"),
        errors.IndexExists("i", "a file"),
        errors.IndexLocked("i", "process 1"),
        errors.IndexClosed("i"),
        errors.FormatMismatch("i", 2, 1),
        errors.CorruptIndex("i", "is short"),
        errors.WriteFailed("i", "disk full", 3),
        errors.WriteFailed("i", "disk full"),
        errors.BadRun("x"),
        errors.BadRule("a=", "no key"),
        errors.UnknownScheme("x", ["path"]),
        errors.UnknownTag(1, "x"),
        errors.NoSuchNode(3, "record"),
    ]
    for error in every:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error) != ""
        assert copy.args == error.args
