"""Batches whose candidates are not in memory: others pass them by, and nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from bench.pages import Pages
from fmware import Middleware
from fmware.corpus import add, build_index
from fmware.index import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fmware.cmatch import Inputs
    from fmware.middleware import Result

SHELVES, ITEMS, PARTS = 60, 5, 30
STATEMENTS = ("//item/local:part", "//item[local:part]", "//order/item//local:*")


def corpus(shelves: Iterable[int]) -> str:
    """Items on shelves whose paths differ, so that each shelf has labels of its own."""
    parts = "".join(f"<part n='{number}'><w/></part>" for number in range(PARTS))
    items = {
        shelf: "".join(f"<item k='{shelf}-{at}'>{parts}</item>" for at in range(ITEMS))
        for shelf in shelves
    }
    return f"<all>{''.join(f'<s{shelf}>{own}</s{shelf}>' for shelf, own in items.items())}</all>"


def message(shelves: Iterable[int]) -> bytes:
    items = "".join(f"<item k='{shelf}-{shelf % ITEMS}'/>" for shelf in shelves)
    return f"<order>{items}</order>".encode()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cold")
    (folder / "stock.xml").write_text(corpus(range(SHELVES)))
    path = folder / "index"
    build_index(
        folder / "stock.xml",
        path,
        record=[f"s{number}" for number in range(SHELVES + 50)],
        identity=["item=@k"],
        schemes=("path",),
        calibrate=False,
    )
    pages = Pages(path)
    pages.drop()
    if pages.resident():
        pytest.skip("the system keeps pages of this file system in memory")
    return path


@pytest.fixture
def cold(built: Path) -> Iterator[Middleware]:
    with Middleware(built, operator="cmatch", threads=1) as middleware:
        for text in STATEMENTS:
            middleware.subscribe(text)
        yield middleware


def wanted(shelves: list[int]) -> Counter[str]:
    """How many matches each statement has for a message, by hand."""
    return Counter(
        {
            STATEMENTS[0]: len(shelves) * PARTS,
            STATEMENTS[1]: len(shelves),
            STATEMENTS[2]: len(shelves) * PARTS * 2,
        }
    )


def counted(result: Result) -> Counter[str]:
    assert not result.problems, result.problems
    return Counter(match.statement for match in result.matches)


def drawn(seed: int, count: int) -> list[list[int]]:
    """Shelves of messages, some of which were asked for before."""
    random = Random(seed)
    return [random.sample(range(SHELVES), random.choice((1, 2, 4))) for _ in range(count)]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_stream_over_cold_pages_has_all_matches(
    built: Path, cold: Middleware, *, ordered: bool, batch: int
) -> None:
    asked = drawn(batch, 60)
    random = Random(7)

    def messages() -> Iterator[bytes]:
        for shelves in asked:
            if random.random() < 0.3:
                Pages(built).drop()
            yield message(shelves)

    found = [*cold.stream(messages(), batch=batch, ordered=ordered)]
    places = [int(result.message) - 1 for result in found]
    assert sorted(places) == [*range(60)]
    assert not ordered or places == sorted(places)
    for place, result in zip(places, found, strict=True):
        assert counted(result) == wanted(asked[place])


class Held:
    """Has probe threads wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from fmware.cmatch import CMatch

        self.free = threading.Event()
        probe = CMatch._probe

        def held(operator: CMatch, *task: object) -> None:
            assert self.free.wait(30)
            probe(operator, *task)  # type: ignore[arg-type]

        monkeypatch.setattr(CMatch, "_probe", held)


@pytest.fixture
def held(built: Path, cold: Middleware, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A middleware that knows the labels of the first shelf, and whose probe threads are held."""
    assert counted(cold.publish(message([0]))) == wanted([0])
    Pages(built).drop()
    holds = Held(monkeypatch)
    yield holds
    holds.free.set()


def test_messages_whose_labels_are_known_pass_by(cold: Middleware, held: Held) -> None:
    stream = iter(cold.stream(map(message, ([9], [0], [0])), batch=1, ordered=False))
    first = [next(stream), next(stream)]
    assert [result.message for result in first] == ["3", "4"]
    held.free.set()
    assert counted(next(stream)) == wanted([9])
    assert not cold._joins.waiting


def test_other_threads_go_on_while_one_waits(cold: Middleware, held: Held) -> None:
    found: list[Result] = []
    waits = threading.Thread(target=lambda: found.append(cold.publish(message([9, 0]))))
    waits.start()
    for _ in range(3):
        assert counted(cold.publish(message([0]))) == wanted([0])
    assert not found
    held.free.set()
    waits.join(30)
    assert counted(found[0]) == wanted([9, 0])


def test_a_generation_that_comes_meanwhile_changes_nothing(
    cold: Middleware, held: Held, built: Path, tmp_path: Path
) -> None:
    stream = iter(cold.stream(map(message, ([9], [10], [100])), batch=1))
    threading.Timer(0.3, held.free.set).start()
    (tmp_path / "more.xml").write_text(corpus([100]))
    before = Index.open(built).generation
    assert counted(next(stream)) == wanted([9])
    add(built, tmp_path / "more.xml")
    assert counted(next(stream)) == wanted([10])
    assert counted(cold.publish(message([100]))) == wanted([100])
    assert cold.index.generation == before + 1
    assert sum(cold._lent.values()) == 0


def test_what_waits_is_answered_though_the_middleware_is_closed(
    cold: Middleware, held: Held
) -> None:
    flight = cold._begin([message([9])], None)
    assert not flight.ready
    held.free.set()
    cold.close()
    [result] = flight.finish()
    assert counted(result) == wanted([9])


def test_what_waits_can_be_given_up(cold: Middleware, held: Held) -> None:
    stream = cold.stream(map(message, ([9], [0])), batch=1, ordered=False).batches()
    assert next(stream)[0].message == "3"
    assert cold._joins.waiting
    stream.close()
    assert not cold._joins.waiting
    held.free.set()
    assert counted(cold.publish(message([9]))) == wanted([9])


def test_a_probe_that_fails_is_made_good_by_label(
    cold: Middleware, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fmware.cmatch import CMatch

    def broken(operator: CMatch, *task: object) -> None:
        raise OSError("the disk is gone")

    assert counted(cold.publish(message([0]))) == wanted([0])
    Pages(built).drop()
    monkeypatch.setattr(CMatch, "_probe", broken)
    assert counted(cold.publish(message([9]))) == wanted([9])


def test_a_batch_bounds_what_is_still_to_come(
    built: Path, cold: Middleware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs that are fetched later count by how many they can be at most."""
    monkeypatch.setattr(cold._crossings, "_pairs", PARTS)
    Pages(built).drop()
    fed: list[int] = []
    from fmware.cmatch import CMatch

    resume = CMatch.resume

    def counting(operator: CMatch, inputs: Inputs) -> object:
        fed.append(len(inputs))
        return resume(operator, inputs)

    monkeypatch.setattr(CMatch, "resume", counting)
    result = cold.publish(message(range(SHELVES)))
    assert result.truncated
    assert 0 < len(result.matches) < 20 * PARTS
