"""What goes wrong below the middleware is said of the statement it concerns, and of no other."""

from __future__ import annotations

import gc
import shutil
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fmware.cmatch import Adaptive, ProbeFailed
from fmware.corpus import add, build_index
from fmware.index import CorruptIndex, FileChanged, IndexMissing
from fmware.index.repair import repair
from fmware.index.segment import Segment
from fmware.matching.crossings import Crossings
from fmware.middleware import Middleware, StatementFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fmware.cmatch import Inputs, Matches
    from fmware.matching.joins import Join
    from fmware.matching.results import Result

STOCK = "".join(
    f"<item k='{i}'><city>C{i}</city><shelf><box>{i % 7}</box></shelf></item>" for i in range(3000)
)
CITY = "//item/local:city"
BOX = "//item//local:box"
MESSAGE = b"<s>" + b"".join(b"<item k='%d'/>" % i for i in range(0, 3000, 50)) + b"</s>"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stock")
    (place / "stock.xml").write_text(f"<stock>{STOCK}</stock>")
    build_index(
        place / "stock.xml",
        place / "index",
        record="item",
        identity=["item=@k"],
        schemes=("path", "vist"),
    )
    return place / "index"


@pytest.fixture
def index(stock: Path, tmp_path: Path) -> Path:
    """A copy to do harm to."""
    return shutil.copytree(stock, tmp_path / "index")


def values(result: Result, statement: str) -> int:
    return sum(match.statement == statement for match in result.matches)


def failures(result: Result) -> dict[str, type[Exception]]:
    assert all(isinstance(error, StatementFailed) for error in result.errors)
    return {error.statement: type(error.cause) for error in result.errors}  # type: ignore[attr-defined]


def subscribed(index: Path, **options: Any) -> Middleware:
    middleware = Middleware(index, **options)
    for text in (CITY, BOX, "//s"):
        middleware.subscribe(text)
    return middleware


def open_files() -> set[str]:
    gc.collect()
    # Of deleted files the links lead nowhere, and those are the ones that matter.
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return {name for name in found if not name.startswith("/proc/")}


def no_labels(crossings: Crossings, join: Join, inputs: Inputs) -> Matches:
    """In place of `Crossings.by_label`, where that fails, too."""
    raise ProbeFailed(join.name, f"{len(inputs)} inputs cannot be had by label either")


@pytest.mark.parametrize("threads", [0, 2])
def test_a_probe_that_raises_is_made_good_by_label(
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    threads: int,
) -> None:
    prepare = Segment.prepare

    def broken(self: Segment, scheme: str, tag: Any, *rest: Any) -> Any:
        if getattr(tag, "name", tag) == "city":
            raise RuntimeError("the disk is on fire")
        return prepare(self, scheme, tag, *rest)

    monkeypatch.setattr(Segment, "prepare", broken)
    before = threading.active_count()
    with subscribed(index, operator="cmatch", threads=threads) as middleware:
        result = middleware.publish(MESSAGE)
        assert (result.errors, values(result, BOX), values(result, CITY)) == ([], 60, 60)
        assert "the disk is on fire" in caplog.text
        with monkeypatch.context() as worse:
            worse.setattr(Crossings, "by_label", no_labels)
            result = middleware.publish(MESSAGE)
        assert failures(result) == {CITY: ProbeFailed}
        assert (values(result, BOX), values(result, "//s"), values(result, CITY)) == (60, 1, 0)
        monkeypatch.setattr(Segment, "prepare", prepare)
        again = middleware.publish(MESSAGE)
        assert (again.errors, values(again, CITY)) == ([], 60)
    assert threading.active_count() == before


def test_what_fails_together_is_tried_alone(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two statements share a join; only the anchors of one of them are in trouble."""

    def broken(feed: Callable[[Inputs], Matches], inputs: Inputs) -> Matches:
        if len(inputs) >= 60:
            raise ProbeFailed("a probe", "too much at once")
        return feed(inputs)

    class Fragile(Adaptive):
        def _start(self) -> None:
            super()._start()
            self.feed, self.feeder = partial(broken, self.feed), None

    monkeypatch.setattr("fmware.matching.joins.Adaptive", Fragile)
    monkeypatch.setattr(Crossings, "by_label", no_labels)
    few = "//item[@k = '50']/local:city"
    with subscribed(index) as middleware:
        middleware.subscribe(few)
        result = middleware.publish(MESSAGE)
        assert failures(result) == {CITY: ProbeFailed, BOX: ProbeFailed}
        assert (values(result, few), values(result, CITY)) == (1, 0)
        about = {each.name: each for each in middleware.report(seconds=0.0).statements}
        assert (about[few].failed, about[few].matches, about[CITY].failed) == (0, 1, 1)


def test_a_corrupt_posting(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every block of the postings of one tag is damaged; other lists of the tag are not."""
    with Middleware(index) as middleware:
        segment = middleware.index.segments[0]
        rows = segment.scan("path", "city", 0, 1 << 31, "descendant")
        assert len(rows) == 3000
    damaged = damage(index, rows.start.tobytes()[:64])
    assert damaged
    with subscribed(index, scheme="path") as middleware:
        result = middleware.publish(MESSAGE)
        assert (result.errors, values(result, CITY), values(result, BOX)) == ([], 60, 60)
        # The answer is right, and it is said that it may not be for ever.
        assert "does not have its checksum" in str(middleware.damage)
        with pytest.raises(CorruptIndex):
            middleware.check()
    assert "does not have its checksum" in caplog.text


def test_an_index_that_is_written_to(index: Path, tmp_path: Path) -> None:
    """Statements that ask the corpus fail from then on, others do not; a new generation is good."""
    with subscribed(index) as middleware:
        middleware.check()
        assert (middleware.damage, values(middleware.publish(MESSAGE), CITY)) == (None, 60)
        file = next(index.rglob("nodes-*.mdb"))
        with file.open("r+b") as opened:
            opened.write(opened.read(1))
        result = middleware.publish(MESSAGE)
        assert failures(result) == {CITY: FileChanged, BOX: FileChanged}
        assert (values(result, "//s"), len(result.matches)) == (1, 1)
        with pytest.raises(FileChanged):
            middleware.check()
        damage(index, file.read_bytes()[8192:8256])
        assert repair(index).whole
        result = middleware.publish(MESSAGE)
        assert (result.errors, values(result, CITY), values(result, BOX)) == ([], 60, 60)
        middleware.check()


def test_values_are_not_read_from_files_that_were_written_to(index: Path) -> None:
    """Results read them when they are asked for, which may be long after the batch."""
    with Middleware(index) as middleware:
        middleware.subscribe(CITY, returns="value")
        results = middleware.publish_batch([MESSAGE])
        with next(index.rglob("nodes-*.mdb")).open("r+b") as opened:
            opened.write(opened.read(1))
        with pytest.raises(FileChanged):
            results.to_json_lines()
        with pytest.raises(FileChanged):
            results.to_arrow()


def damage(index: Path, pattern: bytes) -> bool:
    """Flip a bit where these bytes lie in a file of the index."""
    for file in sorted(index.rglob("nodes-*.mdb")):
        data = bytearray(file.read_bytes())
        at = data.find(pattern)
        if at >= 0:
            data[at + 5] ^= 4
            file.write_bytes(data)
            return True
    return False


def test_an_index_that_vanishes(index: Path) -> None:
    with subscribed(index) as middleware:
        assert values(middleware.publish(MESSAGE), CITY) == 60
        shutil.rmtree(index)
        result = middleware.publish(MESSAGE)
        assert [type(error) for error in result.errors] == [IndexMissing]
        assert (values(result, CITY), values(result, BOX)) == (60, 60)


def test_generations_that_come_while_messages_do(index: Path, tmp_path: Path) -> None:
    with subscribed(index, threads=2) as middleware:
        for number in range(5):
            (tmp_path / "more.xml").write_text(
                f"<x><item k='new{number}'><city>N</city></item></x>"
            )
            add(index, tmp_path / "more.xml")
            keys = "".join(f"<item k='new{i}'/>" for i in range(number + 1))
            result = middleware.publish(f"<s>{keys}<item k='50'/></s>".encode())
            assert (result.errors, values(result, CITY)) == ([], number + 2)


def test_nothing_is_left_open(index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = open_files()
    with subscribed(index, budget=400, threads=2, scheme="vist") as middleware:
        result = middleware.publish(MESSAGE)
        assert (result.errors, values(result, CITY)) == ([], 60)
        assert middleware.counters()["child::city"].spills > 0
    # Results keep what their local nodes are in.
    del result
    assert open_files() <= before
