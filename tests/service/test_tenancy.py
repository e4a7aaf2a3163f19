"""Budgets by tenant: another tenant's statements never change an answer."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from fmware.corpus import build_index
from fmware.matching.limits import MatchLimits
from fmware.service.envelope import ALL, Envelope
from fmware.service.found import outcomes_of
from fmware.service.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fmware.service.envelope import Outcome

ITEMS, LEAVES = 6, 8
NAMES = ("a", "b", "c", "d", "item")
TIME = "2026-11-18T00:00:00.000Z"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items of the same names as messages have, each with many leaves."""
    folder = tmp_path_factory.mktemp("corpus")
    leaves = "".join(f"<leaf n='{n}'><x>{n % 3}</x></leaf>" for n in range(LEAVES))
    items = (f"<item sku='p{n}'><box>{leaves}</box></item>" for n in range(ITEMS))
    (folder / "stock.xml").write_text(f"<stock>{''.join(items)}</stock>")
    build_index(
        folder / "stock.xml",
        folder / "index",
        record="item",
        identity=["item=@sku"],
        calibrate=False,
    )
    return folder / "index"


# --- what is drawn ------------------------------------------------------------------------------


def element(draw: random.Random, depth: int) -> str:
    name = draw.choice(NAMES)
    key = f" sku='p{draw.randrange(ITEMS + 2)}'" if name == "item" else ""
    count = draw.randrange(4) if depth else 0
    inside = "".join(element(draw, depth - 1) for _ in range(count))
    text = "x" * draw.randrange(6) + draw.choice(("y", ""))
    return f"<{name}{key}>{text}{inside}</{name}>"


def message(draw: random.Random) -> bytes:
    inside = "".join(element(draw, draw.randrange(1, 6)) for _ in range(draw.randrange(1, 5)))
    deep = draw.choice((0, 0, 12))
    return f"<m>{'<a>' * deep}{inside}{'</a>' * deep}</m>".encode()


def predicate(draw: random.Random, depth: int = 2) -> str:
    inner = f"[{predicate(draw, depth - 1)}]" if depth and draw.random() < 0.5 else ""
    path = draw.choice((".//", "", ".//")) + draw.choice((*NAMES, "*")) + inner
    return draw.choice(
        (
            path,
            f"not({path})",
            f"contains({path}, 'xxy')",
            f"contains(., '{'x' * draw.randrange(1, 5)}')",
            f"{path} = 'xx'",
            f"{path} or not(.//{draw.choice(NAMES)})",
        )
    )


def expression(draw: random.Random, cost: int) -> str:
    """A statement; the more it may cost, the longer its chains and predicates."""
    kind = draw.randrange(5)
    if kind == 0:
        return "".join(f"//{draw.choice((*NAMES, '*'))}" for _ in range(1 + draw.randrange(cost)))
    if kind == 1:
        return f"//item{draw.choice(('/', '//'))}local:{draw.choice(('leaf', 'box', '*', 'x'))}"
    if kind == 2:
        return f"//item[{predicate(draw, 1)}]//local:{draw.choice(('leaf', '*'))}"
    steps = 1 + draw.randrange(max(cost // 2, 1))
    return "".join(
        f"//{draw.choice((*NAMES, '*'))}[{predicate(draw, min(cost, 4) - 1)}]" for _ in range(steps)
    )


def statements(draw: random.Random, tenant: str, count: int, cost: int) -> list[Any]:
    found = []
    for number in range(count):
        text = expression(draw, cost)
        returns = ["name"] if draw.random() < 0.5 else ["message"]
        if "local:" in text:
            returns = draw.choice((["local"], ["local", "message"], ["name"]))
        about = {"name": f"{tenant}{number}", "expression": text, "returns": returns}
        found.append((tenant, about))
    return found


# --- what is said -------------------------------------------------------------------------------


def open_worker(index: Path, budget: dict[str, int]) -> Worker:
    limits = {key: budget[key] for key in ("work", "tuples", "active")}
    pairs = MatchLimits(pairs=budget["pairs"], bytes=budget["bytes"])
    return Worker({"index": str(index), "limits": limits, "match_limits": pairs})


def told(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[Outcome]:
    asked = [(tenant, f"m{place}", TIME, body) for place, body in enumerate(bodies)]
    found = worker.match(asked)
    envelopes = [Envelope(name, body, tenant) for _, name, _, body in asked]
    return outcomes_of(envelopes, json.loads(json.dumps(found.numbers())), found.text)[0]


def answers(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[Any]:
    """All that a tenant is told of its messages."""
    return [
        (
            sorted(hit.line() for hit in each.hits),
            each.unmatched,
            sorted(each.errors),
            sorted(each.undecided),
            each.poison,
            each.failed,
        )
        for each in told(worker, tenant, bodies)
    ]


def hits_of(worker: Worker, tenant: str, bodies: Sequence[bytes]) -> list[list[bytes]]:
    """A tenant's hits in messages for everyone."""
    return [
        sorted(hit.line() for hit in each.hits if hit.tenant == tenant)
        for each in told(worker, ALL, bodies)
    ]


BUDGETS = (
    {"work": 200, "tuples": 5, "active": 1000, "pairs": 20, "bytes": 2000},
    {"work": 1000, "tuples": 50, "active": 40, "pairs": 60, "bytes": 1 << 20},
    {"work": 3000, "tuples": 1000, "active": 1000, "pairs": 200, "bytes": 1 << 20},
    {"work": 50, "tuples": 1000, "active": 12, "pairs": 10, "bytes": 400},
)


@pytest.mark.parametrize("seed", range(24))
def test_answers_of_a_tenant_are_the_same_with_and_without_another(index: Path, seed: int) -> None:
    """Also while the other changes its statements, and for both of them."""
    draw = random.Random(seed)
    budget = BUDGETS[seed % len(BUDGETS)]
    cheap = statements(draw, "b", draw.randrange(1, 12), draw.choice((1, 2, 4)))
    dear = statements(draw, "a", draw.randrange(5, 40), draw.choice((4, 8)))
    both, only = open_worker(index, budget), {}
    assert both.subscribe([*dear, *cheap]) == []
    for tenant, own in (("a", dear), ("b", cheap)):
        only[tenant] = open_worker(index, budget)
        assert only[tenant].subscribe(own) == []
    for turn in range(3):
        bodies = [message(draw) for _ in range(6)]
        for tenant, worker in only.items():
            assert answers(both, tenant, bodies) == answers(worker, tenant, bodies)
            assert hits_of(both, tenant, bodies) == hits_of(worker, tenant, bodies)
        if turn == 0:
            changed = statements(draw, "a", 10, 8)
            for worker in (both, only["a"]):
                assert worker.subscribe(changed) == []
    for worker in (both, *only.values()):
        worker.close()
