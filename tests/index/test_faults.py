"""Whatever fails, whenever: an index is at the old generation or at the new one, and sound."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import time
import warnings
from typing import TYPE_CHECKING, NamedTuple

import pytest

from fmware.index import format as form
from fmware.index.errors import IndexLocked, IndexMissing, WriteFailed
from fmware.index.files import Files
from fmware.index.manifest import load_manifest
from fmware.index.part import page_size, tree_pages
from fmware.index.verify import verify
from fmware.index.writer import Writer
from fmware.labeling.ses import PATH, PRIX
from tests.index.samples import RULES, Sample, contents, sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fmware.index.manifest import Manifest

SCHEMES = (PATH, PRIX)
FIRST = sample(1, 5, runs=2, schemes=SCHEMES)
SECOND = sample(2, 3, low=FIRST.high, schemes=SCHEMES)
THIRD = sample(3, 2, low=SECOND.high, schemes=SCHEMES)


# Operations, each on the index that `prepared` leaves


def build(path: Path, files: Files) -> None:
    with Writer.create(path, schemes=SCHEMES, identity=RULES, files=files) as writer:
        writer.append(FIRST.runs, high=FIRST.high, parts=2)


def add(path: Path, files: Files) -> None:
    with Writer.open(path, files=files) as writer:
        writer.append(THIRD.runs, high=THIRD.high)


def remove(path: Path, files: Files) -> None:
    with Writer.open(path, files=files) as writer:
        writer.remove([*FIRST.records[3:], SECOND.records[1]])


def compact(path: Path, files: Files) -> None:
    with Writer.open(path, files=files) as writer:
        writer.compact(parts=2)


OPERATIONS = {each.__name__: each for each in (build, add, remove, compact)}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power is cut here: what is handed to the operating system stays."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, one with a removed record."""
    path = tmp_path_factory.mktemp("prepared") / "index"
    build(path, Files())
    with Writer.open(path) as writer:
        writer.append(SECOND.runs, high=SECOND.high)
        writer.remove([FIRST.records[0]])
    assert verify(path).ok
    return path


class Case:
    """An operation, a place to do it again and again, and the index before and after it."""

    def __init__(self, name: str, prepared: Path, folder: Path) -> None:
        self.name = name
        self.operation = OPERATIONS[name]
        self._prepared = None if name == "build" else prepared
        self.path = folder / "index"
        self.before = self._state(self.fresh())
        counting = Counting()
        self.operation(self.path, counting)
        self.log = counting.log
        self.after = self._state(self.path)

    def fresh(self) -> Path:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._prepared is not None:
            shutil.copytree(self._prepared, self.path)
        return self.path

    def _state(self, path: Path) -> object:
        """What an index holds, apart from times."""
        try:
            manifest = load_manifest(path)
        except IndexMissing:
            return None
        return state(path, manifest)

    def check(self) -> bool:
        """That the index is the old or the new one, and works; whether it is the new one."""
        report = verify(self.path)
        if not (self.path / form.MANIFEST).exists():
            # It was never made; then it can be made now.
            assert self.before is None
            build(self.path, Files())
            assert self._state(self.path) == self.after
            return False
        assert report.problems == []
        found = self._state(self.path)
        manifest = load_manifest(self.path)
        assert report.generation == manifest.generation
        # An index that was made and not yet filled is between the two.
        assert found in (self.before, self.after) or (
            self.name == "build" and manifest.generation == 1 and not manifest.segments
        )
        add_more(self.path)
        return bool(found == self.after)


def add_more(path: Path) -> None:
    """The next writer tidies up, and works."""
    with Writer.open(path) as writer:
        assert verify(path).leftovers == []
        before = writer.manifest.generation
        more = sample(9, 1, low=writer.next_label, schemes=SCHEMES)
        writer.append(more.runs, high=more.high)
        assert writer.manifest.generation == before + 1
    assert verify(path).problems == []


def state(path: Path, manifest: Manifest) -> object:
    segments = [
        (entry.name, entry.nodes, entry.tombstones and entry.tombstones.removed)
        for entry in manifest.segments
    ]
    lists = [contents(path / form.SEGMENTS / entry.name) for entry in manifest.segments]
    return manifest.generation, manifest.next_label, segments, lists


@pytest.fixture(params=list(OPERATIONS))
def case(request: pytest.FixtureRequest, prepared: Path, tmp_path: Path) -> Case:
    return Case(request.param, prepared, tmp_path)


class Counting(Files):
    """Writes down what was done."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def step(self, what: str, path: Path) -> None:
        self.log.append((what, path.name))


class Failing(Files):
    """Fails once, at the n-th step; a write may have begun by then."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at = at
        self.action = action

    def step(self, what: str, path: Path) -> None:
        self.at -= 1
        if self.at == 0:
            if what == "write":
                path.write_bytes(b"half")
            self.action()


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def raised(action: Callable[[], None]) -> WriteFailed | None:
    """The error of an action; one that only could not tidy up after itself has none."""
    try:
        action()
    except WriteFailed as error:
        return error
    return None


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def apart(action: Callable[[], None]) -> int:
    """Do something in a process of its own; answers with how that ended, as wait(2) has it.

    Forked, because starting an interpreter takes longer than all the rest.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 70
    try:
        action()
        code = 0
    except WriteFailed:
        code = 3
    finally:
        os._exit(code)


# Tests


@pytest.mark.slow
def test_every_failing_step_leaves_the_old_or_the_new_generation(case: Case) -> None:
    new = 0
    for at in range(1, len(case.log) + 1):
        case.fresh()
        error = raised(lambda: case.operation(case.path, Failing(at, full)))  # noqa: B023
        if error is not None:
            assert "No space left on device" in str(error)
            assert "make room and try again" in str(error)
            if (case.path / form.MANIFEST).exists():
                assert error.generation == load_manifest(case.path).generation
        new += case.check()
    # After the rename of the manifest comes its fsync, and removing what is old.
    assert 1 <= new <= len(case.log) // 2


@pytest.mark.parametrize("case", ["add", "remove", "compact"], indirect=True)
def test_a_writer_goes_on_after_a_failure(case: Case) -> None:
    for at in range(1, len(case.log), 5):
        with Writer.open(case.fresh()) as writer:
            writer._files = Failing(at, full)
            before = writer.manifest.generation
            try:
                _again(writer, case.name)
            except WriteFailed:
                assert writer.manifest == load_manifest(case.path)
            if writer.manifest.generation == before:
                _again(writer, case.name)
        assert verify(case.path).problems == []
        assert case._state(case.path) == case.after


def _again(writer: Writer, name: str) -> None:
    if name == "add":
        writer.append(THIRD.runs, high=THIRD.high)
    elif name == "remove":
        writer.remove([*FIRST.records[3:], SECOND.records[1]])
    else:
        writer.compact(parts=2)


@pytest.mark.slow
def test_killed_at_any_step_leaves_the_old_or_the_new_generation(case: Case) -> None:
    randomly = random.Random(case.name)
    steps = sorted(randomly.sample(range(1, len(case.log) + 1), min(10, len(case.log))))
    last = {len(case.log) - 1, len(case.log)}
    for at in sorted({*steps, *last}):
        case.fresh()
        status = apart(lambda: case.operation(case.path, Failing(at, die)))  # noqa: B023
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        case.check()


@pytest.mark.slow
def test_killed_at_any_time_while_all_goes_on(prepared: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(prepared, path)
    randomly = random.Random(5)
    generations = [load_manifest(path).generation]
    for _ in range(12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            _change_for_ever(path)
        time.sleep(randomly.uniform(0.01, 0.25))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        report = verify(path)
        assert report.problems == []
        assert report.generation is not None
        generations.append(report.generation)
    assert generations == sorted(generations)
    assert generations[-1] > generations[0] + 5
    with Writer.open(path) as writer:
        writer.compact()
    report = verify(path)
    assert (report.problems, report.leftovers) == ([], [])


def _change_for_ever(path: Path) -> None:
    try:
        with Writer.open(path) as writer:
            for turn in range(10**6):
                more = sample(turn, 2, low=writer.next_label, schemes=SCHEMES)
                writer.append(more.runs, high=more.high)
                writer.remove(more.records[:1])
                if turn % 3 == 2:
                    writer.compact()
    finally:
        os._exit(1)


class Size(NamedTuple):
    """How long a file may be at most, and whether an addition fits."""

    bytes: int
    fits: bool


@pytest.mark.parametrize(
    "size",
    [
        Size(0, fits=False),
        Size(100, fits=False),
        Size(5000, fits=False),
        Size(10_000, fits=False),
        Size(1 << 24, fits=True),
    ],
)
def test_a_full_disk_leaves_the_old_generation(prepared: Path, tmp_path: Path, size: Size) -> None:
    case = Case("add", prepared, tmp_path)
    for operation in (add, compact):
        case.fresh()

        def limited() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size.bytes, size.bytes))
            operation(case.path, Files())  # noqa: B023

        status = apart(limited)
        assert os.WIFEXITED(status)
        assert os.WEXITSTATUS(status) == (0 if size.fits else 3)
        report = verify(case.path)
        assert report.problems == []
        assert report.generation == (5 if size.fits else 4)
        add_more(case.path)


def test_a_disk_that_fills_up_at_any_size_leaves_the_old_or_the_new_generation(
    prepared: Path, tmp_path: Path
) -> None:
    case = Case("add", prepared, tmp_path)
    largest = max(each.stat().st_size for each in case.path.rglob("*.mdb"))
    for size in range(6000, largest, largest // 8):
        case.fresh()

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: B023
            add(case.path, Files())

        status = apart(limited)
        assert os.WIFEXITED(status)
        assert os.WEXITSTATUS(status) in (0, 3)
        case.check()


def test_the_manifest_is_durable_before_anything_is_removed(case: Case) -> None:
    log = case.log
    publish = max(at for at, step in enumerate(log) if step == ("rename", form.MANIFEST))
    assert log[publish + 1] == ("fsync", "index")
    removed = [at for at, (what, name) in enumerate(log) if what == "remove"]
    assert all(at > publish + 1 for at in removed)
    assert bool(removed) == (case.name in ("remove", "compact"))
    # All that is written is synced, and what has a new name has its directory synced after it.
    for at, (what, name) in enumerate(log):
        if what == "write":
            assert log[at + 1] == ("fsync", name)
        if what == "commit":
            assert ("sync", name) in log[at + 1 : publish]
        if what == "rename" and name != form.MANIFEST:
            assert log[at - 1] == ("fsync", name) or log[at - 2] == ("fsync", name)
            assert log[at + 1] == ("fsync", form.SEGMENTS)
        if what == "write" and name.endswith(".bin"):
            assert ("fsync", form.TOMBSTONES) in log[at:publish]


def test_a_flipped_byte_is_found_in_every_file(prepared: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(prepared, path)
    randomly = random.Random(11)
    files = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name != form.LOCK]
    assert len(files) == 12
    for file in files:
        good = file.read_bytes()
        name = str(file.relative_to(path))
        for at in _places(good, file.suffix == ".mdb", randomly):
            damaged = bytearray(good)
            damaged[at] ^= 1 << randomly.randrange(8)
            file.write_bytes(damaged)
            report = verify(path)
            assert not report.ok, (name, at)
            assert all(problem.startswith(name) for problem in report.problems[:1])
            assert report.files[name] != "ok"
        file.write_bytes(good)
    assert verify(path).ok


def _places(data: bytes, is_lmdb: bool, randomly: random.Random) -> list[int]:
    """Both ends, the middle, anywhere; in a file of LMDB, pages of every kind."""
    found = [0, len(data) - 1, len(data) // 2]
    found += [randomly.randrange(len(data)) for _ in range(4)]
    if is_lmdb:
        page = page_size(memoryview(data))
        tree = tree_pages(memoryview(data), page)
        own = {n for a, b in zip(tree[::2], tree[1::2], strict=True) for n in range(a, a + b)}
        runs = sorted(set(range(len(data) // page)) - own)
        some = [0, 1, *randomly.sample(sorted(own), min(3, len(own))), *runs[:1], *runs[-1:]]
        # A page's number, its flags, its bounds, its first pointers, its end.
        places = (0, 10, 12, 14, 17, 40, page - 1)
        found += [number * page + randomly.choice(places) for number in some]
    return found


def test_damage_is_told_by_list_and_block(prepared: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(prepared, path)
    file = path / "segments/00000001/records-000.mdb"
    data = bytearray(file.read_bytes())
    zstd = data.find(b"\x28\xb5\x2f\xfd")
    data[zstd + 20] ^= 1
    file.write_bytes(data)
    problems = verify(path).problems
    assert any("sha256" in each for each in problems)
    assert any("records 0, block 0: its checksum" in e or "tree" in e for e in problems)


def test_short_missing_and_swapped_files_are_found(prepared: Path, tmp_path: Path) -> None:
    path = tmp_path / "index"
    shutil.copytree(prepared, path)
    for file in sorted(path.rglob("*")):
        if not file.is_file() or file.name == form.LOCK:
            continue
        good = file.read_bytes()
        for bad in (b"", good[: len(good) // 2], good[:-1], good + b"\0", b"\xff" * len(good)):
            file.write_bytes(bad)
            assert not verify(path).ok
        file.unlink()
        assert not verify(path).ok
        file.write_bytes(good)
    assert verify(path).ok
    one, two = (path / f"segments/0000000{n}/meta.mdb" for n in (1, 2))
    held = one.read_bytes()
    one.write_bytes(two.read_bytes())
    assert not verify(path).ok
    one.write_bytes(held)
    shutil.rmtree(path / "segments/00000002")
    assert not verify(path).ok


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "index"
    Writer.create(path, schemes=SCHEMES, identity=RULES).close()
    children = []
    for number in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            _append_in_turn(path, number)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    manifest = load_manifest(path)
    assert manifest.generation == 1 + 3 * 3
    assert verify(path).problems == []
    with Writer.open(path) as writer:
        (only,) = writer.compact().segments
    assert only.records == 9


def _append_in_turn(path: Path, number: int) -> None:
    code = 1
    try:
        done = 0
        while done < 3:
            try:
                with Writer.open(path) as writer:
                    made: Sample = sample(number, 1, low=writer.next_label, schemes=SCHEMES)
                    writer.append(made.runs, high=made.high)
                done += 1
            except IndexLocked:
                time.sleep(0.002)
        code = 0
    finally:
        os._exit(code)
