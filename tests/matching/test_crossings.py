"""Crossings of a batch: what their columns hold, and that threads may share them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware import FilterEngine
from fmware.cmatch import Adaptive, CClean, Choice, Matches
from fmware.corpus import add, build_index
from fmware.index import Index
from fmware.matching import Evaluators, Resolver
from fmware.matching._kernel import Pairs
from fmware.matching.crossings import Crossings
from fmware.matching.joins import Joins
from fmware.matching.plan import Plan
from fmware.matching.registry import Registry
from fmware.statements import Statement
from tests.matching.test_local import hurried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from fmware.filtering import FilterBatch
    from fmware.matching._kernel import Batch
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


class House:
    """Statements, and what an index has to say to them."""

    def __init__(
        self,
        index: Index,
        operator: Chosen = "auto",
        returns: str = "name",
        statements: Sequence[str] = STATEMENTS,
    ) -> None:
        self.index = index
        self.joins = Joins(index, operator=operator, budget=1 << 20, threads=0)
        self.engine = FilterEngine()
        self.registry = Registry()
        evaluators = Evaluators()
        for text in statements:
            plan = Plan(Statement.parse(text, returns=[returns]), evaluators)
            number = self.engine.subscribe(plan.statement.filter, wants=plan.wants)
            self.registry = self.registry.put(number, plan, self.engine.version)
        self.plans = dict(self.registry.items())
        self.crossings = self.of(index)

    def of(self, index: Index, **options: int) -> Crossings:
        resolver = Resolver(index)
        resolver.prepare(self.engine.vocabulary)
        return Crossings(index, self.joins, resolver, **options)

    def batch(self, messages: list[bytes]) -> FilterBatch:
        """Messages, filtered."""
        return self.engine.filter_many(messages)

    def match(self, found: FilterBatch, *, crossings: Crossings | None = None) -> Batch:
        """What crosses in a batch."""
        crossings = crossings or self.crossings
        batch = crossings.begin(found, self.registry)
        crossings.end(batch)
        return batch

    def lines(self, found: FilterBatch) -> list[Line]:
        """The same, without failures, as matches."""
        return lines(found, self.match(found))


Line = tuple[int, str, tuple[int, ...], int]
"""The place of a message, the statement, a path tuple, and where the local node begins."""


def lines(found: FilterBatch, crossed: Batch) -> list[Line]:
    assert not crossed.failures
    places = np.repeat(np.arange(len(found)), np.diff([0, *crossed.hits.ends])).tolist()
    columns = crossed.hits.plan, crossed.hits.at, crossed.hits.start
    told = []
    for place, plan, at, start in zip(places, *(each.tolist() for each in columns), strict=True):
        rows = tuple(found.rows[at : at + crossed.widths[plan]].tolist())
        told.append((place, crossed.plans[plan].name, rows, start))
    return told


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
    batch = house.batch(messages)
    together = house.match(batch)
    missing, unmatched = house.crossings.missing(together), together.unmatched()
    found = lines(batch, together)
    assert len({*found}) == len(found)
    alone = []
    for place, text in enumerate(messages):
        own = house.batch([text])
        crossed = house.match(own)
        alone += [(place, *line[1:]) for line in lines(own, crossed)]
        assert crossed.unmatched().get(0, 0) == unmatched.get(place, 0)
        listed = [each for each in missing if each.message == place]
        told = house.crossings.missing(crossed)
        assert [each._replace(message=place) for each in told] == listed
    assert sorted(found) == sorted(alone)


def test_matches_come_in_the_order_of_messages(stock: Index) -> None:
    house = House(stock)
    found = house.lines(house.batch([message(seed) for seed in range(20)]))
    assert [place for place, *_ in found] == sorted(place for place, *_ in found)
    assert {name for _, name, *_ in found} == {*STATEMENTS}


def test_no_statement_no_match(stock: Index) -> None:
    house = House(stock)
    found = house.batch([b"<nothing/>"])
    crossed = house.match(found)
    assert (lines(found, crossed), crossed.unmatched(), crossed.troubled) == ([], {}, False)


@pytest.mark.parametrize("operator", ["auto", "cmatch"])
def test_threads_share_crossings(stock: Index, operator: Chosen) -> None:
    """Four threads match batches of their own; pairs of one never come to another."""
    house, alone = House(stock, operator), House(stock, operator)
    batches = [[message(100 * seed + at) for at in range(1 + seed % 9)] for seed in range(80)]
    wanted = [alone.lines(alone.batch(each)) for each in batches]
    ready = [house.batch(each) for each in batches]
    together = Barrier(4)

    def run(worker: int) -> list[list[Line]]:
        together.wait()
        return [house.lines(batch) for batch in ready[worker::4]]

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
    before = house.lines(batch)
    (tmp_path / "more.xml").write_text(
        "<stock>" + "".join(f"<item k='{i}'><city>N</city></item>" for i in range(220)) + "</stock>"
    )
    add(stock.path, tmp_path / "more.xml")
    with stock.refresh() as newer:
        house.joins.move(newer)
        assert house.lines(batch) == before
        after = house.match(batch, crossings=house.of(newer))
        assert len(lines(batch, after)) > len(before)
        house.joins.close()


# --- bounds -----------------------------------------------------------------------------------


def test_a_message_has_as_many_pairs_as_fit(stock: Index) -> None:
    """Messages with many anchors on one record are cut short; the others have all they had."""
    few, many = message(1), b"<s>" + b"<item k='7'/>" * 500 + b"</s>"
    house = House(stock, returns="message", statements=("//item//local:*", "//s/item/local:city"))
    batch = house.batch([few, many, few])
    whole = house.match(batch)
    assert not whole.truncated
    bounded = house.match(batch, crossings=house.of(stock, pairs=200))
    found, wanted = lines(batch, bounded), lines(batch, whole)
    assert {*found} < {*wanted}
    assert [line for line in found if line[0] != 1] == [line for line in wanted if line[0] != 1]
    kept = [line for line in found if line[0] == 1]
    # A piece is made of anchors that have, together, no more pairs than a message may have.
    assert 100 <= len(kept) <= 400
    assert {place for _, place in bounded.truncated} == {1}
    assert {bounded.plans[number].name for number, _ in bounded.truncated} <= {*house_names(house)}


def house_names(house: House) -> list[str]:
    return [plan.name for plan in house.plans.values()]


# --- operators that are fed natively ----------------------------------------------------------


def told(house: House) -> list[object]:
    """What operators, tallies and recordings say of what was done."""
    found: list[object] = []
    for join, operator in house.joins:
        done = operator.counters
        found += [join, done.inputs, done.pairs, done.unique_labels]
        found += [done.index_scans, done.deferred]
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
        expected = [slowly.lines(slowly.batch([each])) for each in messages]
        wanted = told(slowly)
    found = [natively.lines(natively.batch([each])) for each in messages]
    assert found == expected
    assert told(natively) == wanted
    assert any(made.feeder for _, made in natively.joins)


@pytest.mark.parametrize(
    "choice",
    [Choice("admatch"), Choice("cmatch", "vist"), Choice("cmatch", "path", rents=True)],
    ids=str,
)
def test_operators_switch_between_batches(stock: Index, choice: Choice) -> None:
    house = House(stock)
    batch = house.batch([message(seed) for seed in range(9)])
    before = house.lines(batch)
    for _, made in house.joins:
        assert isinstance(made, Adaptive)
        made.switch(choice)
    for _ in range(3):
        assert house.lines(batch) == before


@pytest.mark.parametrize("operator", ["auto", "cmatch"])
def test_an_operator_that_was_closed_is_made_anew(stock: Index, operator: Chosen) -> None:
    house = House(stock, operator)
    batch = house.batch([message(3)])
    before = house.lines(batch)
    old = [made for _, made in house.joins]
    for made in old:
        made.close()
    assert house.lines(batch) == before  # by AD label
    assert house.lines(batch) == before
    assert not any(made is each for _, made in house.joins for each in old)


def test_time_is_shared_by_joins(stock: Index) -> None:
    house = House(stock)
    for seed in range(5):
        house.match(house.batch([message(seed)]))
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
