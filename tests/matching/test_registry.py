"""A registry is a value: what was made of it stays, whatever is put into the next."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fmware.matching.evaluate import Evaluators
from fmware.matching.plan import Plan
from fmware.matching.registry import SIZE, Registry
from fmware.statements import Statement

EVALUATORS = Evaluators()
RETURNS = ("name", "message", "value", "fragment")
PLANS = [
    Plan(Statement.parse("//a", name=f"{wanted} {number}", returns=wanted), EVALUATORS)
    for number in range(3)
    for wanted in RETURNS
]
NUMBERS = st.sampled_from([0, 1, 2, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE, 5 * SIZE - 1])


def said(registry: Registry) -> dict[int, Plan]:
    """All that a registry says, each part held against the others."""
    found = dict(registry.items())
    assert [registry[number] for number in found] == [*found.values()]
    assert registry.plans(found) == [*found.values()]
    nodes = registry.nodes.tolist()
    assert len(registry.names) == len(nodes)
    numbers = np.array([*found], np.int64)
    assert registry.names.take(numbers).to_pylist() == [plan.name for plan in found.values()]
    assert {number: bits for number, bits in enumerate(nodes) if bits} == {
        number: plan.nodes for number, plan in found.items() if plan.nodes
    }
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.sampled_from([None, *PLANS])), max_size=12))
def test_every_registry_says_what_was_put_into_it(changes: list[tuple[int, Plan | None]]) -> None:
    wanted: dict[int, Plan] = {}
    registry = Registry(version=0)
    made = [(registry, dict(wanted))]
    for version, (number, plan) in enumerate(changes, 1):
        registry = registry.put(number, plan, version)
        wanted.pop(number, None)
        if plan is not None:
            wanted[number] = plan
        made.append((registry, dict(wanted)))
        if version % 3 == 0:
            said(registry)  # What was computed of it is not what the next one says.
    for version, (registry, then) in enumerate(made):
        assert registry.version == version
        assert said(registry) == then


def test_a_change_shares_the_other_pages() -> None:
    registry = Registry()
    for number in range(0, 4 * SIZE, SIZE):
        registry = registry.put(number, PLANS[0], number)
    changed = registry.put(1, PLANS[1], -1)
    same = [one is other for one, other in zip(registry._pages, changed._pages, strict=True)]
    assert same == [False, True, True, True]
