"""Budgets by tenant: another tenant's statements never change an answer."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fmware.filtering import engine as filtering
from fmware.labeling import Vocabulary
from fmware.matching.limits import MatchLimits
from fmware.service.answer import Answer
from fmware.service.envelope import ALL, Envelope
from fmware.service.found import outcomes_of
from fmware.service.host import NAMES as ANEW
from fmware.service.tenancy import RETURN
from fmware.service.worker import COMMON, Worker
from tests.service.drawn import corpus, message, statements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fmware.service.envelope import Outcome
    from fmware.service.found import Found

TIME = "2026-11-18T00:00:00.000Z"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus"))


# --- what is said -------------------------------------------------------------------------------


def open_worker(index: Path, budget: dict[str, int], **options: bool) -> Worker:
    limits = {key: budget[key] for key in ("work", "tuples", "active")}
    pairs = MatchLimits(pairs=budget["pairs"], bytes=budget["bytes"])
    return Worker({"index": str(index), "limits": limits, "match_limits": pairs, **options})


def told(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[Outcome]:
    asked = [(tenant, f"m{place}", TIME, body) for place, body in enumerate(bodies)]
    return outcomes(tenant, worker.match(asked))


def outcomes(tenant: str, found: Found, first: int = 0) -> list[Outcome]:
    """What the engine makes of it."""
    places = range(first, first + len(found))
    envelopes = [Envelope(f"m{place}", b"", tenant) for place in places]
    return outcomes_of(envelopes, json.loads(json.dumps(found.numbers())), found.text)[0]


def plain(each: Outcome) -> Any:
    """All that a tenant is told of a message."""
    return (
        sorted(hit.line() for hit in each.hits),
        each.unmatched,
        sorted(each.errors),
        sorted(each.undecided),
        each.poison,
        each.failed,
    )


def answers(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[Any]:
    return [plain(each) for each in told(worker, tenant, bodies)]


def hits_of(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[list[bytes]]:
    """A tenant's hits in messages for everyone."""
    return [
        sorted(hit.line() for hit in each.hits if hit.tenant == tenant)
        for each in told(worker, ALL, bodies)
    ]


def canonical(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[Any]:
    """What a filter says that has only the statements of the tenant, and has seen no message."""
    found = []
    for place, body in enumerate(bodies):
        message = (tenant, f"m{place}", TIME, body)
        answer = Answer(message, worker._writings, worker._tenancy.names)
        answer.add(worker._tenancy.canonical(tenant, body, message[1]), 0, tenant, last=True)
        found += outcomes(tenant, answer.found(), place)
    return [plain(each) for each in found]


WITHOUT = {
    "work": 1 << 40,
    "tuples": 1 << 20,
    "active": 1 << 20,
    "pairs": 1 << 20,
    "bytes": 1 << 30,
}
BUDGETS = (
    {"work": 200, "tuples": 5, "active": 1000, "pairs": 20, "bytes": 2000},
    {"work": 1000, "tuples": 50, "active": 40, "pairs": 60, "bytes": 1 << 20},
    {"work": 3000, "tuples": 1000, "active": 1000, "pairs": 200, "bytes": 1 << 20},
    {"work": 50, "tuples": 1000, "active": 12, "pairs": 10, "bytes": 400},
    {"work": 10_000, "tuples": 50, "active": 1000, "pairs": 100, "bytes": 20_000},
    {"work": 40_000, "tuples": 1000, "active": 60, "pairs": 1000, "bytes": 1 << 20},
)


class Pair:
    """A tenant in company and alone, and what it must be told."""

    def __init__(self, index: Path, budget: dict[str, int], tenant: str, own: list[Any]) -> None:
        self.tenant = tenant
        self._workers = [open_worker(index, each) for each in (budget, budget, WITHOUT)]
        self._alone, self._judge, self._unbounded = self._workers
        self.subscribe(own)

    def subscribe(self, own: list[Any]) -> None:
        for each in self._workers:
            assert each.subscribe(own) == []

    def check(self, among: Worker, bodies: list[bytes]) -> tuple[int, int]:
        """How many messages the tenant can afford, and how many not.

        Of those that it can, all is told. Of the others as much as its own statements in a filter
        that has seen nothing, or all of it: what was learnt of other messages may have helped.
        """
        tenant = self.tenant
        exact = answers(self._unbounded, tenant, bodies)
        least = canonical(self._judge, tenant, bodies)
        affords = [not errors for _, _, errors, *_ in least]
        for worker in (among, self._alone):
            hits = hits_of(worker, tenant, bodies)
            found = zip(answers(worker, tenant, bodies), hits, exact, least, affords, strict=True)
            for each, all_hits, whole, part, affordable in found:
                assert each == whole or (each == part and not affordable)
                assert all_hits == whole[0] or (all_hits == part[0] and not affordable)
        return sum(affords), len(affords) - sum(affords)

    def check_quick(self, quick: Worker, bodies: list[bytes]) -> int:
        """How many messages a worker answers that must be quick: those in full, and no others."""
        exact = answers(self._unbounded, self.tenant, bodies)
        asked = [(self.tenant, f"m{place}", TIME, body) for place, body in enumerate(bodies)]
        found = quick.match(asked)
        told = [plain(each) for each in outcomes(self.tenant, found)]
        pairs = [*zip(told, exact, strict=True)]
        kept = [pair for place, pair in enumerate(pairs) if place not in found.deferred]
        assert all(each == whole for each, whole in kept)
        return len(kept)

    def close(self) -> None:
        for each in self._workers:
            each.close()


def test_another_tenant_never_changes_an_answer(index: Path) -> None:
    """Nor while it changes its statements, and whether or not the first can afford its own."""
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in range(24):
        draw = random.Random(seed)
        budget = BUDGETS[seed % len(BUDGETS)]
        cheap = statements(draw, "b", draw.randrange(1, 12), draw.choice((1, 2, 4)))
        dear = statements(draw, "a", draw.randrange(5, 40), draw.choice((4, 8)))
        among = open_worker(index, budget)
        own = open_worker(index, budget, own=True)
        quick = open_worker(index, budget, own=True, common=False, quick=True)
        workers = (among, own, quick)
        assert not any(each.subscribe([*dear, *cheap]) for each in workers)
        pairs = [Pair(index, budget, "a", dear), Pair(index, budget, "b", cheap)]
        for turn in range(3):
            bodies = [message(draw) for _ in range(6)]
            for pair in pairs:
                affords, lacks = pair.check(among, bodies)
                seen[pair.tenant, True] += affords
                seen[pair.tenant, False] += lacks
                assert pair.check(own, bodies) == (affords, lacks)
                seen["quick", True] += pair.check_quick(quick, bodies)
            if turn == 0:
                changed = statements(draw, "a", 10, 8)
                assert not any(each.subscribe(changed) for each in workers)
                pairs[0].subscribe(changed)
        for worker in workers:
            worker.close()
        for pair in pairs:
            pair.close()
    assert seen["quick", True] > 50, seen
    assert min(seen[key] for key in (("a", False), ("b", True), ("b", False))) > 50, seen


# --- who pays for it ----------------------------------------------------------------------------

DEAR = "//m[not(.//a[.//*[contains(., 'never')]])]"
"""A statement that looks at all of a message."""
LONG = b"<m>" + b"<a><b>text</b></a>" * 400 + b"</m>"


def dear(tenant: str, count: int) -> list[Any]:
    return [
        (tenant, {"name": f"s{n}", "expression": DEAR.replace("never", f"{tenant}{n}")})
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def budget(index: Path) -> dict[str, int]:
    """What one such statement needs alone, or up to twice as much."""
    found = {"work": 500, "tuples": 100, "active": 1000, "pairs": 100, "bytes": 1 << 20}
    while True:
        worker = open_worker(index, found)
        worker.subscribe(dear("x", 1))
        (each,) = told(worker, "x", [LONG])
        worker.close()
        if not each.errors:
            return found
        found["work"] *= 2


def test_who_uses_up_the_budget_is_set_apart_and_costs_others_one_message(
    index: Path, budget: dict[str, int]
) -> None:
    worker = open_worker(index, budget)
    assert worker.subscribe([("b", {"name": "b", "expression": "//m[a]"}), *dear("a", 20)]) == []
    assert worker.stats()["apart"] == 0
    (first,) = told(worker, "b", [LONG])
    assert [hit.statement for hit in first.hits] == ["b"]
    assert not first.errors
    assert worker.stats()["apart"] == 1
    assert worker._tenancy.apart == {"a"}
    assert [*worker._tenancy.shared.statements] == ["b\x1fb"]
    shared = worker._tenancy.shared.middleware
    asked = shared.filter_stats().get("documents", 0)
    told(worker, "b", [LONG] * 5)
    assert shared.filter_stats()["documents"] == asked + 5, "nothing is matched twice any more"
    (own,) = told(worker, "a", [LONG])
    assert 0 < len(own.undecided) <= 20
    worker.close()


def test_who_was_set_apart_comes_back_more_and_more_rarely(
    index: Path, budget: dict[str, int]
) -> None:
    worker = open_worker(index, budget)
    many = dear("a", 20)
    assert worker.subscribe([("b", {"name": "b", "expression": "//m[a]"}), *many]) == []
    for turn in range(3):
        told(worker, "b", [LONG])
        assert worker._tenancy.apart == {"a"}
        needs = RETURN << turn
        told(worker, "a", [b"<m/>"] * (needs - 1))
        # To replace all statements, or to have none for a moment, does not bring it back.
        worker.unsubscribe([("a", about["name"]) for _, about in many])
        assert worker.subscribe(many) == []
        assert worker._tenancy.apart == {"a"}
        told(worker, "a", [b"<m/>"])
        assert worker._tenancy.apart == set()
    worker.close()


def test_tenants_that_are_too_dear_together_are_parted(index: Path, budget: dict[str, int]) -> None:
    """None is over the budget alone: the dearest go, one by one, and nobody loses an answer."""
    worker = open_worker(index, {**budget, "work": budget["work"] * COMMON})
    names = [f"t{n}" for n in range(12)]
    for name in names:
        assert worker.subscribe(dear(name, 1)) == []
    for _ in range(6):
        for name in names:
            (each,) = told(worker, name, [LONG])
            assert [hit.tenant for hit in each.hits] == [name]
            assert not each.errors
    assert 0 < len(worker._tenancy.apart) < len(names)
    worker.close()


# --- names --------------------------------------------------------------------------------------


def test_fresh_names_of_replaced_statements_take_no_room_for_good(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant replaces statements 100,000 times, with more names than a vocabulary holds."""
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=50_000))
    worker = Worker({"index": str(index)})
    names, memory = 0, []
    for turn in range(1000):
        many = [("a", {"name": f"s{n}", "expression": f"/n{turn}_{n}"}) for n in range(100)]
        assert worker.subscribe(many) == []
        vocabulary = worker._tenancy.shared.middleware.reader.vocabulary
        names = max(names, len(vocabulary))
        if turn % 200 == 100:
            memory.append(worker.stats()["memory"])
            fresh = {"name": f"b{turn}", "expression": f"//b{turn}"}
            assert worker.subscribe([("b", fresh)]) == []
            assert hits_of(worker, "b", [f"<x><b{turn}/></x>".encode()])[0]
            (found,) = told(worker, "a", [f"<n{turn}_7/>".encode()])
            assert [hit.statement for hit in found.hits] == ["s7"]
    assert names < ANEW + 10_000
    assert memory[-1] - memory[1] < 32 << 20
    worker.close()


def test_a_tenant_cannot_take_the_room_of_another(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "Vocabulary", partial(Vocabulary, limit=400))
    worker = Worker({"index": str(index)})
    many = [("a", {"name": f"s{n}", "expression": f"//n{n}"}) for n in range(350)]
    assert worker.subscribe(many) == []
    for n in range(100):
        assert worker.subscribe([("b", {"name": f"b{n}", "expression": f"//b{n}"})]) == []
    assert worker._tenancy.apart == {"a"}
    assert hits_of(worker, "a", [b"<n349/>"])[0]
    assert hits_of(worker, "b", [b"<b99/>"])[0]
    refused = worker.subscribe(
        [("a", {"name": f"t{n}", "expression": f"//t{n}"}) for n in range(99)]
    )
    assert 0 < len(refused) < 99
    worker.close()
