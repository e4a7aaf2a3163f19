"""Is an index what was written? Every checksum, count, order and cross-reference of a generation.

Damage is reported, not raised, and nothing damaged is followed: files are read page by page, with
every pointer checked (`pages`), never through LMDB. `python -m fmware.index DIRECTORY` does the
same from a shell.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fmware.index import format as form
from fmware.index.checks import Noting, Report, SegmentCheck, reason
from fmware.index.errors import CorruptIndex, StoreError, WriteFailed
from fmware.index.manifest import load_manifest, load_segment, load_tombstones

if TYPE_CHECKING:
    from fmware.index.checks import Progress
    from fmware.index.manifest import Manifest, SegmentEntry

__all__ = ["Report", "check_segment", "expect_sound", "verify"]

TURNS = 5
"""How often to begin again where a writer overtakes."""


def verify(path: str | Path, *, progress: Progress | None = None) -> Report:
    """Check the current generation of an index against everything it says of itself.

    `progress` is called with the name of each file that is about to be read.
    """
    report = _verify(Path(path), progress)
    for _ in range(TURNS):
        if report.ok or report.generation in (None, _generation(Path(path))):
            break
        # A writer went on meanwhile, and removed what the generation before needed.
        report = _verify(Path(path), progress)
    return report


def _verify(index: Path, progress: Progress | None) -> Report:
    report = Report(str(index))
    try:
        manifest = load_manifest(index)
    except (StoreError, OSError) as error:
        report.note(form.MANIFEST, reason(error))
        return report
    report.generation = manifest.generation
    report.note(form.MANIFEST)
    _check_manifest(report, manifest)
    for entry in manifest.segments:
        _check_entry(report, index, entry, progress)
    report.leftovers = _leftovers(index, manifest)
    return report


def _check_entry(
    report: Report, index: Path, entry: SegmentEntry, progress: Progress | None
) -> None:
    folder = index / form.SEGMENTS / entry.name
    with Noting(report, f"{form.SEGMENTS}/{entry.name}/{form.SEGMENT}"):
        about = load_segment(folder, entry.sha256)
        found = (about.nodes, about.records, about.low, about.high)
        if found != (entry.nodes, entry.records, entry.low, entry.high):
            raise ValueError("does not hold what the manifest says")
        segment = SegmentCheck(report, folder, about, deep=True, progress=progress)
        segment.check()
        if entry.tombstones is not None:
            with Noting(report, f"{form.TOMBSTONES}/{entry.tombstones.file}"):
                segment.check_removed(load_tombstones(index, entry.tombstones))


def _generation(index: Path) -> int | None:
    try:
        return load_manifest(index).generation
    except (StoreError, OSError):
        return None


def expect_sound(folder: Path, sha256: str, *, apart: bool | None) -> None:
    """CorruptIndex unless a segment that was just built is what it should be.

    Checksums and counts are checked `apart`, in another process, which has nothing of this one's
    memory; False: here; None: not at all.
    """
    if apart is None:
        return
    if apart:
        command = [sys.executable, "-m", "fmware.index", "--segment", str(folder), sha256]
        path = os.pathsep.join(each for each in sys.path if each)
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        if done.returncode not in (0, 1):
            raise WriteFailed(str(folder), f"it could not be checked: {done.stderr[-500:]}")
        problems = done.stdout.splitlines()
    else:
        problems = check_segment(folder, sha256)
    if problems:
        raise CorruptIndex(str(folder), f"was not written as it was meant: {problems[0]}")


def check_segment(folder: Path, sha256: str) -> list[str]:
    """What is wrong with the checksums and counts of a segment."""
    report = Report(str(folder))
    with Noting(report, form.SEGMENT):
        SegmentCheck(report, folder, load_segment(folder, sha256), deep=False).check()
    return report.problems


def _check_manifest(report: Report, manifest: Manifest) -> None:
    with Noting(report, form.MANIFEST):
        before = 0
        for entry in sorted(manifest.segments, key=lambda each: each.low):
            if entry.low < before or entry.high < entry.low or entry.high > manifest.next_label:
                raise ValueError(f"segment {entry.name} shares labels with another, or new ones")
            if int(entry.name) >= manifest.next_segment:
                raise ValueError(f"segment {entry.name} has a name that is still to be given")
            before = entry.high


def _leftovers(index: Path, manifest: Manifest) -> list[str]:
    named = {entry.name for entry in manifest.segments}
    named |= {entry.tombstones.file for entry in manifest.segments if entry.tombstones}
    folders = [index / name for name in (form.SEGMENTS, form.TOMBSTONES, form.BUILDING)]
    found = [each for folder in folders if folder.is_dir() for each in folder.iterdir()]
    return sorted(str(each.relative_to(index)) for each in found if each.name not in named)
