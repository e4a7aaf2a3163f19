"""Verifying looks at what lists say, not only at their checksums."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fmware.index import format as form
from fmware.index.verify import verify
from fmware.index.writer import Writer
from tests.index.samples import RULES, SCHEMES, contents, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fmware.index.manifest import Manifest

    Column = npt.NDArray[Any]


def more(column: Column) -> Column:
    """The first value is one too large."""
    changed = column.copy()
    changed[0] += 1
    return changed


def huge(column: Column) -> Column:
    changed = column.copy()
    changed[-1] = 4_000_000_000
    return changed


def turned(column: Column) -> Column:
    return column[::-1].copy()


LISTS: dict[str, form.Shape | None] = {
    "ad": None,
    "ses": form.SES_SHAPE,
    "labels": form.LABEL_SHAPE,
    "identity": form.IDENTITY_SHAPE,
    "trie": form.TRIE_SHAPE,
    "records": form.RECORDS_SHAPE,
}


@pytest.mark.parametrize(
    ("kind", "column", "change", "problem"),
    [
        ("ad", 0, turned, "begins elsewhere|ad is not sorted"),
        ("ad", 0, more, "begins elsewhere|other nodes than ad|in no record"),
        ("ad", 1, more, "other nodes than ad|in no record|does not nest"),
        ("ad", 2, more, r"ses\.path has other nodes than ad"),
        ("ad", 3, huge, "labels that are not there"),
        ("ad", 4, turned, r"labels\.vist count|ses\.vist has other"),
        ("ad", -1, more, "does not nest|labels that are not there|other nodes"),
        ("ses", 0, turned, "is not sorted|has other nodes"),
        ("ses", 2, more, "has other nodes than ad"),
        ("labels", 0, more, "not those of the trie|begins elsewhere"),
        ("labels", 1, more, "do not span"),
        ("labels", 2, more, "do not span"),
        ("labels", 3, more, "count other nodes"),
        ("labels", 4, more, "begin elsewhere"),
        ("identity", 0, more, "hashes of others|begins elsewhere"),
        ("identity", 1, huge, "keys of nodes that are not there"),
        ("identity", 2, more, "do not lie in their block"),
        ("trie", 0, huge, "tags that are not there|not in order|is no trie"),
        ("trie", 2, more, "does not nest|do not span"),
        ("records", 0, more, "begins elsewhere|in no record"),
        ("records", 1, lambda column: column - 1, "in no record"),
        ("records", 1, huge, "overlap|outside the labels"),
        ("records", 3, huge, "a record block"),
        ("records", 3, more, "do not follow"),
    ],
)
def test_a_wrong_value_under_a_right_checksum_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    column: int,
    change: Callable[[Column], Column],
    problem: str,
) -> None:
    pack = form.Shape.pack

    def changed(shape: form.Shape, columns: Sequence[Column], **options: Any) -> bytearray:
        own = shape == LISTS[kind] or (kind == "ad" and shape.head == "<QHH")
        if own and len(columns[0]) > 3:
            columns = list(columns)
            columns[column] = change(np.asarray(columns[column]).astype(np.int64))
        return pack(shape, columns, **options)

    monkeypatch.setattr(form.Shape, "pack", changed)
    made = sample(4, 30)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs, check="off")
    problems = verify(tmp_path / "index").problems
    assert any(re.search(problem, each) for each in problems), problems


def test_tombstones_must_be_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sample(4, 10)
    monkeypatch.setattr(Writer, "_expect_records", lambda *arguments: None)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs)
        writer.remove([(made.records[0][0] + 1, made.records[0][1])])
    (problem,) = verify(tmp_path / "index").problems
    assert problem == (
        "tombstones/00000003-00000001.bin: a removed record is not one of the segment's"
    )


def test_a_report_reads_well(tmp_path: Path) -> None:
    made = sample(4, 10)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs)
    report = verify(tmp_path / "index")
    assert str(report) == f"{tmp_path}/index: generation 2, 5 files, sound"
    assert set(report.files.values()) == {"ok"}
    assert contents(tmp_path / "index/segments/00000001")
    (tmp_path / "index/segments/00000001/nodes-000.mdb").write_bytes(b"short")
    report = verify(tmp_path / "index")
    assert "problems" in str(report)
    assert "nodes-000.mdb: is 5 bytes long" in str(report)


def test_a_writer_may_overtake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compaction removes while an index is looked at is no damage."""
    made = sample(4, 10)
    with Writer.create(tmp_path / "index", schemes=SCHEMES, identity=RULES) as writer:
        writer.append(made.runs)
        writer.remove(made.records[:1])
        module = importlib.import_module("fmware.index.verify")
        looked = module.load_manifest
        turns: list[Manifest] = []

        def overtaken(index: Path) -> Manifest:
            manifest: Manifest = looked(index)
            if not turns:
                turns.append(writer.compact())
            return manifest

        monkeypatch.setattr(module, "load_manifest", overtaken)
        report = verify(tmp_path / "index")
    assert (report.problems, report.generation) == ([], 4)
