"""An engine that keeps only the maximal set says of each document whether any statement matches."""

from __future__ import annotations

from random import Random

import pytest

from fmware import FilterEngine
from fmware.filtering.errors import StatementRefused
from tests.routing import drawn, oracle


@pytest.mark.parametrize("seed", range(3))
def test_whether_any_matches_is_the_same_while_statements_come_and_go(seed: int) -> None:
    rng = Random(seed)
    whole, least = FilterEngine(), FilterEngine(maximal=True)
    here: list[tuple[int, int]] = []
    told = {True: 0, False: 0}
    for text in oracle.statements(rng, 150):
        here.append((whole.subscribe(text), least.subscribe(text)))
        while len(here) > 12 or (here and rng.random() < 0.3):
            one, two = here.pop(rng.randrange(len(here)))
            whole.unsubscribe(one)
            least.unsubscribe(two)
        assert len(whole) == len(least)
        for _ in range(4):
            document = drawn.document(rng).encode()
            found = bool(whole.filter(document))
            assert bool(least.filter(document)) == found
            told[found] += 1
    assert min(told.values()) > 20


def test_only_the_maximal_set_is_in_the_automaton() -> None:
    engine = FilterEngine(maximal=True)
    engine.subscribe("//b", name="wide")
    before = engine.stats()["states"]
    narrow = engine.subscribe("/a/b[c = 1]", name="narrow")
    assert engine.stats()["states"] == before
    assert engine.filter(b"<a><b><c>1</c></b></a>").names == ["wide"]
    engine.unsubscribe(narrow)
    with pytest.raises(StatementRefused, match="no tuples"):
        engine.subscribe("//c", tuples=True)
