"""Sources: what names stand for, how files are unpacked, and the labels they get."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import zstandard

from fmware.labeling.errors import SourceError
from fmware.labeling.sources import GAP, files_of, find, stretches

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = b"<a><b>" + b"x" * 3000 + b"</b></a>"
PACKERS = {
    "a.xml": lambda data: data,
    "a.xml.gz": gzip.compress,
    "a.xml.bz2": bz2.compress,
    "a.xml.xz": lzma.compress,
    "a.xml.zst": zstandard.ZstdCompressor().compress,
}


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("name", PACKERS)
def test_a_file_is_unpacked_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    for called in (name, "odd-name"):
        (tmp_path / called).write_bytes(PACKERS[name](DOCUMENT))
        (file,) = files_of(find([tmp_path / called]))
        assert [document.file.read() for document in file.documents([])] == [DOCUMENT]
        assert file.span >= len(DOCUMENT)


def test_a_directory_stands_for_its_documents(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    wanted = ["a.xml", "deep/b.xml.gz", "deep/er/c.tar", "deep/er/d.XML"]
    for name in [*wanted, "README.md", "deep/b.json"]:
        (tmp_path / name).write_bytes(b"<a/>")
    assert [str(path.relative_to(tmp_path)) for path in find([tmp_path])] == sorted(wanted)


def test_patterns_names_and_repetitions(tmp_path: Path) -> None:
    for name in ("a1.xml", "a2.xml", "b.xml"):
        (tmp_path / name).write_bytes(b"<a/>")
    found = find([tmp_path / "b.xml", tmp_path / "a?.xml", tmp_path, f"file://{tmp_path}/b.xml"])
    assert [path.name for path in found] == ["b.xml", "a1.xml", "a2.xml"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no file .*gone\.xml"):
        find([tmp_path / "gone.xml"])
    with pytest.raises(SourceError, match="holds no document"):
        find([tmp_path])


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_documents_of_an_archive(pack: object, tmp_path: Path) -> None:
    members = {"x/a.xml": DOCUMENT, "x/b.xml.gz": gzip.compress(DOCUMENT * 9), "x/c.xml": b"<c/>"}
    data = tar({**members, "README": b"no document"})
    (tmp_path / "all.tar.zst").write_bytes(pack(data))  # type: ignore[operator]
    (file,) = files_of(find([tmp_path]), base=1000)
    skipped: list[str] = []
    documents = [(each.name, each.base, each.file.read()) for each in file.documents(skipped)]
    assert [data for _, _, data in documents] == [DOCUMENT, DOCUMENT * 9, b"<c/>"]
    assert documents[0][0].endswith("all.tar.zst!x/a.xml")
    assert [name.rpartition("!")[2] for name in skipped] == ["README"]
    for (_, base, inner), (_, after, _) in pairwise(documents):
        assert base + len(inner) < after
    assert documents[-1][1] < file.base + file.span


def test_labels_of_files_are_disjoint(tmp_path: Path) -> None:
    for name, pack in PACKERS.items():
        (tmp_path / name).write_bytes(pack(DOCUMENT))
    files = files_of(find([tmp_path]), base=77)
    assert files[0].base == 77
    for one, other in pairwise(files):
        assert one.base + one.span + GAP == other.base


@pytest.mark.parametrize("name", ["a.xml.gz", "a.xml.bz2", "a.xml.xz", "a.xml.zst"])
def test_a_damaged_file_gives_what_is_good_and_then_says_so(name: str, tmp_path: Path) -> None:
    packed = PACKERS[name](DOCUMENT * 2000)
    (tmp_path / name).write_bytes(packed[: len(packed) // 2])
    (file,) = files_of(find([tmp_path]))
    with pytest.raises(SourceError, match="damaged or cut short"):
        [list(document.file) for document in file.documents([])]


def test_work_is_cut_by_size(tmp_path: Path) -> None:
    for name, size in {"a": 10, "b": 10, "c": 100, "d": 5, "e": 30}.items():
        (tmp_path / f"{name}.xml").write_bytes(b"x" * size)
    files = files_of(find([tmp_path]))
    cut = [
        [(s.file.path[-5], s.begin, s.end) for s in part] for part in stretches(files, 25, cut=True)
    ]
    assert cut == [
        [("a", 0, 10), ("b", 0, 10)],
        [("c", 0, 25)],
        [("c", 25, 50)],
        [("c", 50, 75)],
        [("c", 75, 100)],
        [("d", 0, 5)],
        [("e", 0, 15)],
        [("e", 15, 30)],
    ]
    whole = list(stretches(files, 25, cut=False))
    assert [len(part) for part in whole] == [2, 1, 1, 1]


def test_zstd_frames_may_follow_each_other(tmp_path: Path) -> None:
    pack = zstandard.ZstdCompressor().compress
    (tmp_path / "a.xml.zst").write_bytes(pack(DOCUMENT) + pack(b"") + pack(b"<c/>"))
    (file,) = files_of(find([tmp_path]))
    assert [b"".join(each.file) for each in file.documents([])] == [DOCUMENT + b"<c/>"]
