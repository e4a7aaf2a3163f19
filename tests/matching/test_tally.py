"""What a middleware counts is what a reader of all its results would count."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from fmware import Middleware
from fmware.corpus import build_index
from fmware.matching.tally import Totals
from tests.filtering.oracle import Document, Statement
from tests.filtering.workload import NAMESPACES, document, statement

if TYPE_CHECKING:
    from pathlib import Path

RETURNS = ("name", "message", "value", "fragment")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus")
    (place / "one.xml").write_text("<x><a x='1'><b/></a><a x='2'><b/><b/></a></x>")
    build_index(place / "one.xml", place / "index", record="a", identity=["a=@x"])
    return place / "index"


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_results(index: Path, seed: int) -> None:
    """Statements go, and others get their numbers: each counts from its own beginning."""
    random = Random(f"tally {seed}")
    with Middleware(index) as middleware:
        asked: dict[str, Statement] = {}
        passed: Counter[str] = Counter()
        told: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for turn in range(4):
            for name in random.sample(sorted(asked), len(asked) // 2):
                middleware.unsubscribe(name)
                del asked[name]
            while len(asked) < 30:
                one = Statement(statement(random))
                name = f"{turn} {len(asked)} {one.text}"
                wanted = random.choice(RETURNS)
                middleware.subscribe(one.text, name=name, namespaces=NAMESPACES, returns=wanted)
                asked[name] = one
            middleware.subscribe("//a/local:b", name="local", returns="message")
            messages = [document(random) for _ in range(random.choice((1, 9)))]
            bad = [b"<bad"] * random.randrange(3)
            results = middleware.publish_batch([*messages, *bad])
            for message, result in zip(messages, results, strict=False):
                one_told = Document(message)
                passed.update(name for name, one in asked.items() if one.rows(one_told))
                told.update(match.statement for match in result.matches if not match.local)
            counts = results.match_counts()
            sums.update(
                batches=1,
                messages=len(results),
                matches=sum(counts),
                matched=sum(map(bool, counts)),
                failed=len(bad),
                unmatched=sum(result.unmatched for result in results),
            )
            totals = middleware._totals
            numbers = middleware._engine.named
            assert {n: totals.passed(numbers[n]) for n in asked} == {n: passed[n] for n in asked}
            assert {n: totals.told(numbers[n]) for n in asked} == {n: told[n] for n in asked}
            assert totals.told(numbers["local"]) == 0
            middleware.unsubscribe("local")
            assert {name: getattr(totals, name) for name in sums} == sums
        assert totals.matches > 20


def test_a_statement_has_nothing_of_one_that_had_its_number(index: Path) -> None:
    """A batch may be counted when its statements have gone and others have come."""
    with Middleware(index) as middleware:
        for name in ("stays", "goes"):
            middleware.subscribe("//a", name=name)
        numbers, totals = middleware._engine.named, middleware._totals
        number = numbers["goes"]
        results = middleware.publish_batch([b"<a/>", b"<a/>"])
        middleware.unsubscribe("goes")
        totals.batch(results, middleware._registry)
        middleware.subscribe("//a", name="comes", returns="message")
        assert numbers["comes"] == number
        totals.batch(results, middleware._registry)
        assert (totals.passed(number), totals.told(number)) == (0, 0)
        assert (totals.passed(numbers["stays"]), totals.told(numbers["stays"])) == (6, 6)


def test_there_is_room_for_any_number() -> None:
    totals = Totals()
    for number in (0, 1023, 1024, 1025, 5000):
        totals.forget(number)
        totals._passed[number] = totals._told[number] = number + 1
    assert [totals.passed(number) for number in (0, 1023, 1024, 1025, 5000)] == [
        *(1, 1024, 1025, 1026, 5001)
    ]
    assert (totals.passed(1 << 20), totals.told(1 << 20)) == (0, 0)
    totals.forget(1024)
    assert (totals.passed(1024), totals.told(1024), totals.told(1023)) == (0, 0, 1024)
