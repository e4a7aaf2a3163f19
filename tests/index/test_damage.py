"""Files that change under a reader, a scrub that finds it, and a repair that makes it good."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fmware.index import CorruptIndex, FileChanged, Index, Writer
from fmware.index import format as form
from fmware.index.files import FILES
from fmware.index.manifest import load_manifest, load_segment, save_manifest
from fmware.index.part import PIECE
from fmware.index.repair import repair
from fmware.index.scrub import Scrub, check_bytes
from fmware.index.verify import verify
from tests.damage import KINDS, damage
from tests.index.samples import RULES, SCHEMES, contents, sample

if TYPE_CHECKING:
    from pathlib import Path

FIRST = sample(11, 150, runs=3)
SECOND = sample(12, 30, low=FIRST.high)
REMOVED = [FIRST.records[0], FIRST.records[7]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, of which one has several files and removed records."""
    path = tmp_path_factory.mktemp("damage") / "index"
    with Writer.create(path, schemes=SCHEMES, identity=RULES) as writer:
        writer.append(FIRST.runs, high=FIRST.high, parts=2)
        writer.append(SECOND.runs, high=SECOND.high)
        writer.remove(REMOVED)
    return path


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return shutil.copytree(built, tmp_path / "index")


def whole(path: Path) -> dict[tuple[str, object], object]:
    """All that an index holds, but the names of files of which every record was removed."""
    with Writer.open(path) as writer:
        manifest = writer.compact()
    (entry,) = manifest.segments
    found = contents(path / form.SEGMENTS / entry.name)
    del found["sources", 0]
    return found


# --- under a reader -----------------------------------------------------------------------------


def test_what_is_written_to_a_file_is_noticed_at_the_next_check(index: Path) -> None:
    for file in sorted(index.glob("segments/*/*.mdb")):
        with Index.open(index) as reader:
            reader.check()
            before = file.read_bytes()
            with file.open("r+b") as opened:
                opened.write(before[:1])
            with pytest.raises(FileChanged, match=file.name):
                reader.check()
            # It cannot be known what was read in between: it stays so.
            with pytest.raises(FileChanged):
                reader.lease().check()
            # The bytes are as they were, so who opens it now may trust it.
            with Index.open(index) as other:
                other.check()


@pytest.mark.parametrize("way", ["truncate", "utime", "chmod"])
def test_other_changes_of_a_file_are_noticed(index: Path, way: str) -> None:
    file = min(index.rglob("records-*.mdb"))
    with Index.open(index) as reader:
        if way == "truncate":
            os.truncate(file, file.stat().st_size - 4096)
        elif way == "utime":
            # Times that are put back do not hide that something was written.
            at = file.stat()
            damage(file, "byte", random.Random(1))
            os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
        else:
            file.chmod(0o600)
        with pytest.raises(FileChanged):
            reader.check()


def test_names_of_files_are_not_their_bytes(index: Path, tmp_path: Path) -> None:
    with Index.open(index) as reader:
        for number, file in enumerate(sorted(index.glob("segments/*/*.mdb"))):
            os.link(file, tmp_path / str(number))
        reader.check()
        with Writer.open(index) as writer:
            writer.compact()
        assert not [*index.glob("segments/00000001/*")]
        reader.check()
        assert len(reader.descendants("b", [0], [FIRST.high]))


def test_a_file_that_was_damaged_while_it_was_open_is_not_opened_again(index: Path) -> None:
    file = min(index.rglob("nodes-*.mdb"))
    reader = Index.open(index)
    with file.open("r+b") as opened:
        opened.seek(2 * 4096)
        opened.write(b"\xff" * 4096)
    with pytest.raises(CorruptIndex):
        Index.open(index)
    reader.close()


# --- scrubbing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_scrub_finds_every_byte_that_is_wrong(index: Path, seed: int) -> None:
    randomly = random.Random(seed)
    assert check_bytes(index) == {}
    for file in sorted(each for each in index.glob("segments/*/*") if each.is_file()):
        good = file.read_bytes()
        damage(file, randomly.choice(KINDS), randomly)
        name = str(file.relative_to(index))
        assert set(check_bytes(index)) == {name}
        file.unlink()
        assert set(check_bytes(index)) == {name}
        file.write_bytes(good)
    tombstones = min((index / form.TOMBSTONES).iterdir())
    damage(tombstones, "byte", randomly)
    assert set(check_bytes(index)) == {str(tombstones.relative_to(index))}


def test_a_scrub_goes_on_for_ever_and_says_where_damage_is(tmp_path: Path) -> None:
    big = sample(3, 4000, schemes=SCHEMES[:1])
    with Writer.create(tmp_path / "big", schemes=SCHEMES[:1], identity=RULES) as writer:
        writer.append(big.runs, high=big.high, check="off")
    file = max((tmp_path / "big").rglob("nodes-*.mdb"), key=lambda each: each.stat().st_size)
    assert file.stat().st_size > 2 * PIECE
    scrub = Scrub(tmp_path / "big")
    before = 0
    while not scrub.step():
        assert scrub.read - before <= PIECE
        before = scrub.read
    assert (scrub.passes, scrub.problems) == (1, {})
    with file.open("r+b") as opened:
        opened.seek(PIECE + 17)
        opened.write(b"?")
    while not scrub.step():
        pass
    assert [*scrub.problems.values()] == ["bytes 1,048,576 to 2,097,151 are not what was written"]
    assert scrub.passes == 2


def older(index: Path) -> None:
    """Make it an index that was written before pieces had checksums."""
    manifest = load_manifest(index)
    entries = []
    for entry in manifest.segments:
        folder = index / form.SEGMENTS / entry.name
        about = load_segment(folder, entry.sha256)
        files = {name: replace(each, pieces=()) for name, each in about.files.items()}
        fields = json.loads(replace(about, files=files).pack())
        for each in fields["files"].values():
            del each["pieces"]
        data = form.canonical(fields) + b"\n"
        (folder / form.SEGMENT).write_bytes(data)
        entries.append(replace(entry, sha256=hashlib.sha256(data).hexdigest()))
    save_manifest(index, manifest.next(segments=tuple(entries)), FILES)


def test_an_older_index_is_read_with_the_weaker_check_and_said_to_be(index: Path) -> None:
    older(index)
    report = verify(index)
    assert report.ok
    assert len(report.weak) == len([*index.glob("segments/*/*.mdb")])
    assert check_bytes(index) == {}
    with Index.open(index) as reader:
        reader.check()
    file = min(index.rglob("nodes-*.mdb"))
    damage(file, "byte", random.Random(3))
    assert [*check_bytes(index).values()] == ["its checksum does not hold (sha256)"]
    assert repair(index).whole
    assert verify(index).ok


def test_a_scrub_does_not_mind_a_writer(index: Path) -> None:
    scrub = Scrub(index)
    scrub.step()
    with Writer.open(index) as writer:
        writer.compact()
    while not scrub.step():
        pass
    assert scrub.problems == {}


# --- repair -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_a_repaired_index_holds_what_it_held_or_says_what_is_lost(
    index: Path, built: Path, tmp_path: Path, seed: int
) -> None:
    randomly = random.Random(seed)
    files = sorted(each for each in index.glob("segments/*/*") if each.is_file())
    file = files[seed % len(files)]
    if seed % 5 == 4:
        file.unlink()
    else:
        damage(file, randomly.choice(KINDS), randomly)
    assert not verify(index).ok
    steps: list[str] = []
    done = repair(index, progress=steps.append)
    assert steps
    if done.left:
        # Only a segment without any record that is whole cannot be made again.
        assert "records-" in file.name
        assert "no record is left" in done.left[0]
        return
    assert verify(index).ok
    assert [*done.segments] == [file.parent.name]
    want = whole(shutil.copytree(built, tmp_path / "before"))
    if not done.lost:
        assert whole(index) == want
        return
    assert "records-" in file.name
    lost = want["records", 0].keys() - whole(index)["records", 0].keys()  # type: ignore[attr-defined]
    assert sum(each.records for each in done.lost) == len(lost)
    assert all(any(each.low <= start < each.high for each in done.lost) for start in lost)
    assert all(each.source and each.source in str(each) for each in done.lost)
    assert done.kept
    assert [*(index / "damaged").iterdir()]


def test_lost_records_are_named_by_their_keys(index: Path) -> None:
    """One block of several is damaged: its records are lost, and no others."""
    with Index.open(index) as reader:
        segment = reader.segments[0]
        start = FIRST.records[60][0]
        source = segment.record(start).source
        key = next(n for n in FIRST.nodes if n.record == start and n.name == "d").start
        blocks = segment.files.records._lists
        which = max(i for i, each in enumerate(segment.files.records._lows) if each <= start)
        view = bytes(blocks[which].view(blocks[which].block_at(start)))
        value = segment.value(key)
    file = next(each for each in sorted(index.rglob("records-*.mdb")) if view in each.read_bytes())
    data = file.read_bytes()
    at = data.index(view) + len(view) // 2
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([data[at] ^ 0xFF]))
    done = repair(index)
    (lost,) = done.lost
    assert lost.low <= start < lost.high
    assert lost.source is not None
    assert source is not None
    assert f"d={value.strip()}" in lost.keys or not value.strip()
    assert verify(index).ok
    with Index.open(index) as reader:
        assert reader.record(SECOND.records[0][0]).data == SECOND.sources[SECOND.records[0][0]]
        with pytest.raises(LookupError):
            reader.record(start)


def test_removed_records_do_not_come_back(index: Path) -> None:
    damage(min(index.rglob("nodes-*.mdb")), "page", random.Random(5))
    assert repair(index).whole
    with Index.open(index) as reader:
        for start, _ in REMOVED:
            with pytest.raises(LookupError):
                reader.record(start)
        assert reader.record(FIRST.records[1][0]).data == FIRST.sources[FIRST.records[1][0]]


def test_what_was_removed_cannot_be_made_again(index: Path) -> None:
    file = min((index / form.TOMBSTONES).iterdir())
    damage(file, "byte", random.Random(6))
    before = load_manifest(index)
    done = repair(index)
    assert "restore it from a copy" in done.left[0]
    assert load_manifest(index) == before


def test_a_damaged_manifest_is_not_repaired(index: Path) -> None:
    damage(index / form.MANIFEST, "byte", random.Random(7))
    with pytest.raises(CorruptIndex, match=r"manifest\.json"):
        repair(index)


def test_nothing_is_done_where_nothing_is_wrong(index: Path) -> None:
    before = load_manifest(index)
    done = repair(index)
    assert (done.problems, done.segments, done.whole) == ([], [], True)
    assert load_manifest(index) == before


def test_labels_stay_what_they_were(index: Path) -> None:
    """A message may carry a label: it means the same node in the repaired index."""
    with Index.open(index) as reader:
        before = reader.descendants("b", [0], [SECOND.high]).right.start.tolist()
    damage(max(index.rglob("nodes-*.mdb")), "zeros", random.Random(8), pages=5)
    assert repair(index).whole
    with Index.open(index) as reader:
        assert reader.descendants("b", [0], [SECOND.high]).right.start.tolist() == before
