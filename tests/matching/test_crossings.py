"""Crossings of a batch: what their columns hold, and that threads may share them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmatch import Adaptive, CClean, Choice, Matches, OperatorClosed
from fmware import FilterEngine
from fmware.corpus import add, build_index
from fmware.matching import Evaluators, Resolver
from fmware.matching._kernel import Anchors, Asked, Pairs
from fmware.matching.crossings import Crossed, Crossings, Passed
from fmware.matching.joins import Joins
from fmware.matching.plan import Plan
from fmware.statements import Statement
from index import Index
from labeling import NodeTable
from tests.matching.test_local import hurried

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fmware.matching.joins import Chosen

STATEMENTS = (
    "//item/local:city",
    "//item//local:box",
    "//item[@k > 3]/local:city",
    "//s[item/local:city = 'C4']",
    "//item[local:shelf]/local:city",
    "//item[.//local:box = 3]",
    "//item/parent::local:stock/local:item[@k = '7']/local:city",
    "//item/self::local:item//local:box[. > 4]",
)
Batch = tuple[list[Passed], list[NodeTable]]


class House:
    """Statements, and what an index has to say to them."""

    def __init__(self, index: Index, operator: Chosen = "auto", returns: str = "name") -> None:
        self.index = index
        self.joins = Joins(index, operator=operator, budget=1 << 20, threads=0)
        self.engine = FilterEngine()
        evaluators = Evaluators()
        self.plans = {}
        for text in STATEMENTS:
            parsed = Statement.parse(text, returns=[returns])
            number = self.engine.subscribe(parsed.filter, tuples=True)
            self.plans[number] = Plan(parsed, evaluators)
        self.crossings = self.of(index)

    def of(self, index: Index) -> Crossings:
        resolver = Resolver(index)
        resolver.prepare(self.engine.vocabulary)
        return Crossings(index, self.joins, resolver)

    def batch(self, messages: list[bytes]) -> Batch:
        """Messages, filtered."""
        results = [self.engine.filter(message) for message in messages]
        passed = []
        for number, plan in self.plans.items():
            own = [
                (at, result.tuples[number])
                for at, result in enumerate(results)
                if number in result.ids
            ]
            if own:
                places = np.repeat([at for at, _ in own], [len(tuples) for _, tuples in own])
                passed.append(Passed(plan, np.concatenate([tuples for _, tuples in own]), places))
        return passed, [result.table for result in results]


def plain(found: Crossed) -> list[tuple[int, ...]]:
    assert not found.failures
    columns = found.passed, found.line, found.place, found.segment, found.start
    return [*zip(*(column.tolist() for column in columns), strict=True)]


def message(seed: int) -> bytes:
    keys = np.random.default_rng(seed).integers(0, 220, 5).tolist()
    return b"<s>" + b"".join(b"<item k='%d'/>" % key for key in keys) + b"</s>"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    place = tmp_path_factory.mktemp("stock")
    items = "".join(
        f"<item k='{i}'><city>C{i % 9}</city><shelf><box>{i % 7}</box></shelf></item>"
        for i in range(200)
    )
    (place / "stock.xml").write_text(f"<stock>{items}</stock>")
    build_index(
        place / "stock.xml",
        place / "index",
        record="stock",
        identity=["item=@k"],
        schemes=("path", "vist"),
    )
    with Index.open(place / "index") as index:
        yield index


@pytest.mark.parametrize("operator", ["auto", "cmatch", "admatch"])
@pytest.mark.parametrize("returns", ["name", "message"])
def test_a_batch_is_its_messages_one_by_one(stock: Index, operator: Chosen, returns: str) -> None:
    house = House(stock, operator, returns)
    messages = [message(seed) for seed in range(20)]
    passed, tables = house.batch(messages)
    together = house.crossings.match(passed, tables, missing=True)
    found = {
        (passed[number].plan, place, *passed[number].tuples[line].tolist(), start)
        for number, line, place, _, start in plain(together)
    }
    assert len(found) == len(plain(together))
    alone = set()
    for place, text in enumerate(messages):
        own, table = house.batch([text])
        crossed = house.crossings.match(own, table, missing=True)
        alone |= {
            (own[number].plan, place, *own[number].tuples[line].tolist(), start)
            for number, line, _, _, start in plain(crossed)
        }
        assert crossed.unmatched.get(0, 0) == together.unmatched.get(place, 0)
        listed = [each for each in together.missing if each.message == place]
        assert [each._replace(message=place) for each in crossed.missing] == listed
    assert found == alone


def test_matches_come_by_statement_and_by_place(stock: Index) -> None:
    house = House(stock)
    passed, tables = house.batch([message(seed) for seed in range(20)])
    found = house.crossings.match(passed, tables)
    order = [(number, place) for number, _, place, _, _ in plain(found)]
    assert order == sorted(order)
    assert {number for number, _ in order} == {*range(len(passed))}


def test_no_statement_no_match(stock: Index) -> None:
    found = House(stock).crossings.match([], [None])
    assert (plain(found), found.unmatched, found.missing) == ([], {}, [])


@pytest.mark.parametrize("operator", ["auto", "cmatch"])
def test_threads_share_crossings(stock: Index, operator: Chosen) -> None:
    """Four threads match batches of their own; pairs of one never come to another."""
    house, alone = House(stock, operator), House(stock, operator)
    batches = [[message(100 * seed + at) for at in range(1 + seed % 9)] for seed in range(80)]
    wanted = [plain(alone.crossings.match(*alone.batch(each))) for each in batches]
    ready = [house.batch(each) for each in batches]
    together = Barrier(4)

    def run(worker: int) -> list[list[tuple[int, ...]]]:
        together.wait()
        return [plain(house.crossings.match(*batch)) for batch in ready[worker::4]]

    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(run, range(4))]
    assert answers == [wanted[worker::4] for worker in range(4)]
    for one, other in zip(house.plans.values(), alone.plans.values(), strict=True):
        assert one.tally.matches == other.tally.matches
        counted = [(share.inputs, share.pairs) for share in one.tally.joins.values()]
        expected = [(share.inputs, share.pairs) for share in other.tally.joins.values()]
        assert sorted(counted) == sorted(expected)


@pytest.mark.parametrize("operator", ["auto", "cmatch", "admatch"])
def test_a_batch_is_of_one_generation(stock: Index, tmp_path: Path, operator: Chosen) -> None:
    """Operators move on while a batch is still matched against the generation before."""
    house = House(stock, operator)
    batch = house.batch([message(seed) for seed in range(9)])
    before = plain(house.crossings.match(*batch))
    (tmp_path / "more.xml").write_text(
        "<stock>" + "".join(f"<item k='{i}'><city>N</city></item>" for i in range(220)) + "</stock>"
    )
    add(stock.path, tmp_path / "more.xml")
    with stock.refresh() as newer:
        house.joins.move(newer)
        assert plain(house.crossings.match(*batch)) == before
        after = plain(house.of(newer).match(*batch))
        assert len(after) > len(before)
        house.joins.close()


# --- operators that are fed natively ----------------------------------------------------------


def told(house: House) -> list[object]:
    """What operators, tallies and recordings say of what was done."""
    found: list[object] = []
    for join, operator in house.joins:
        done = operator.counters
        found += [join, done.inputs, done.pairs, done.unique_labels, done.index_scans, done.aside]
        kept = house.joins.recording(join)
        for each in kept or ():
            columns = each.id, each.segment, each.start, each.end, each.level, each.rank, each.last
            found.append([None if column is None else column.tolist() for column in columns])
    for plan in house.plans.values():
        found += [(join, share.inputs, share.pairs) for join, share in plan.tally.joins.items()]
    return found


@pytest.mark.parametrize("operator", ["auto", "cmatch"])
def test_native_batches_are_those_of_python(
    stock: Index, monkeypatch: pytest.MonkeyPatch, operator: Chosen
) -> None:
    """Many batches, so that operators learn labels, look at what comes, and trust it."""
    messages = [message(seed) for seed in range(150)]
    natively = House(stock, operator)
    with monkeypatch.context() as patched:
        patched.setattr(CClean, "feeder", lambda _: None)
        slowly = House(stock, operator)
        expected = [plain(slowly.crossings.match(*slowly.batch([each]))) for each in messages]
        wanted = told(slowly)
    found = [plain(natively.crossings.match(*natively.batch([each]))) for each in messages]
    assert found == expected
    assert told(natively) == wanted
    assert any(made.feeder for _, made in natively.joins)


@pytest.mark.parametrize(
    "choice",
    [Choice("admatch"), Choice("cmatch", "vist"), Choice("cmatch", "path", split=True)],
    ids=str,
)
def test_operators_switch_between_batches(stock: Index, choice: Choice) -> None:
    house = House(stock)
    batch = house.batch([message(seed) for seed in range(9)])
    before = plain(house.crossings.match(*batch))
    for _, made in house.joins:
        assert isinstance(made, Adaptive)
        made.switch(choice)
    for _ in range(3):
        assert plain(house.crossings.match(*batch)) == before


@pytest.mark.parametrize("operator", ["auto", "cmatch"])
def test_an_operator_that_was_closed_is_made_anew(stock: Index, operator: Chosen) -> None:
    house = House(stock, operator)
    batch = house.batch([message(3)])
    before = plain(house.crossings.match(*batch))
    old = [made for _, made in house.joins]
    for made in old:
        made.close()
    failed = house.crossings.match(*batch)
    assert {type(error) for _, error in failed.failures} == {OperatorClosed}
    assert plain(house.crossings.match(*batch)) == before
    assert not any(made is each for _, made in house.joins for each in old)


def test_time_is_shared_by_joins(stock: Index) -> None:
    house = House(stock)
    for seed in range(5):
        house.crossings.match(*house.batch([message(seed)]))
    for plan in house.plans.values():
        shares = [*plan.tally.joins.values()]
        assert all(share.seconds >= 0 and 0 < share.batches <= 5 for share in shares)
        # Sums of floats, and clocks have grains.
        assert plan.tally.seconds >= sum(share.seconds for share in shares) * 0.999
    assert sum(plan.tally.seconds for plan in house.plans.values()) > 0


# --- the kernel against plain Python ----------------------------------------------------------

numbers = st.integers(0, 6)


def matches(pairs: list[tuple[int, int]]) -> Matches:
    ids, starts = np.array(pairs, np.int64).reshape(-1, 2).T
    level = starts.astype(np.int16)
    return Matches(ids.copy(), level.astype(np.int32), starts.copy(), starts + 1, level)


@given(st.lists(st.lists(st.tuples(numbers, numbers)), max_size=4))
@settings(hurried, max_examples=100)
def test_pairs_are_put_into_order_each_once(parts: list[list[tuple[int, int]]]) -> None:
    found = Pairs([matches(part) for part in parts]).between(0, 9)
    expected = sorted({pair for part in parts for pair in part})
    assert [*zip(found.id.tolist(), found.start.tolist(), strict=True)] == expected
    assert (found.end - found.start == 1).all()
    assert (found.segment == found.level).all()


@given(
    st.lists(st.tuples(numbers, st.integers(0, 2))),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3))),
    st.booleans(),
    st.booleans(),
)
@settings(hurried, max_examples=200)
def test_a_line_holds_if_all_crossings_do(
    lines: list[tuple[int, int]], pairs: list[tuple[int, int]], told: bool, selects: bool
) -> None:
    """Two crossings, with an anchor on each line: the first is a condition."""
    tuples = np.array([[row] for row, _ in lines], np.int32).reshape(-1, 1)
    places = np.sort(np.array([place for _, place in lines], np.int64))
    count = len(lines)
    anchors = Anchors()
    assert [anchors.add(tuples, places, 0), anchors.add(tuples, places, 0)] == [count, 2 * count]
    held = Pairs([matches([pair for pair in pairs if pair[0] < 2 * count])])
    statement = Statement.parse("//a[local:b]/local:c")
    plan = Plan(statement, Evaluators())
    crossings = [
        Asked(plan, part, bool(at) and selects) for at, (_, part, _) in enumerate(plan.crossings)
    ]
    for at, crossing in enumerate(crossings):
        crossing.first, crossing.last = at * count, (at + 1) * count
    columns, [number] = anchors.matches(held, [(places, told, crossings)])
    pairs = sorted({pair for pair in pairs if pair[0] < 2 * count})
    good = {anchor for anchor, _ in pairs if anchor < count}
    expected = []
    for line, place in enumerate(places.tolist()):
        own = [start for anchor, start in pairs if anchor == line + count]
        if line in good and own:
            expected += [(line, place, start) for start in (own if selects else [-1])]
    if not told:
        first = {(place, start): line for line, place, start in reversed(expected)}
        expected = [each for each in expected if first[each[1], each[2]] == each[0]]
    _, line_, place_, _, start_ = columns
    assert [*zip(line_.tolist(), place_.tolist(), start_.tolist(), strict=True)] == expected
    assert number == len(expected)
