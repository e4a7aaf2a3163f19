"""Answers are lxml's: on at least 200,000 pairs of a document and a statement in one run.

The large test counts its pairs and fails if there are fewer. In each pair it holds the ids against
lxml's node-set, and the path tuples against those that step-by-step evaluation finds. The small
test draws its statements and documents with Hypothesis, which shrinks what fails.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.filtering import FilterEngine, FilterLimits
from fmware.xpath import Path, to_text
from tests.filtering.oracle import Document, Statement
from tests.filtering.workload import NAMESPACES, document, statement
from tests.xpath.strategies import documents, paths

if TYPE_CHECKING:
    from fmware.filtering import FilterResult

PAIRS = 200_000
DOCUMENTS = 40
STATEMENTS = 60
EXAMPLES = -(-PAIRS // (DOCUMENTS * STATEMENTS))

NAMES = ("a", "b", "body.content")

unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


def check(text: str, number: int, asked: Statement, told: Document, result: FilterResult) -> None:
    """One pair: is the statement among the ids, and are its tuples all there, once, in order."""
    expected = asked.rows(told)
    about = f"{text} on {told.data!r}"
    assert (number in result) == bool(expected), about
    if number in result.tuples:
        found = result.tuples[number].tolist()
        assert found == asked.tuples(told), about
        assert sorted({row[-1] for row in found}) == expected, about
    assert not result.undecided, about
    assert not result.truncated, about


def test_ids_and_tuples_on_many_pairs() -> None:
    pairs = 0
    matched = 0

    @settings(unhurried, max_examples=EXAMPLES)
    @given(st.integers(0, 2**64))
    def check_all(seed: int) -> None:
        nonlocal pairs, matched
        random = Random(seed)
        statements = [Statement(statement(random)) for _ in range(STATEMENTS)]
        told = [Document(document(random)) for _ in range(DOCUMENTS)]
        ids, tuples, small = FilterEngine(), FilterEngine(), FilterEngine(limits=tiny)
        for asked in statements:
            ids.subscribe(asked.text, namespaces=NAMESPACES)
            tuples.subscribe(asked.text, namespaces=NAMESPACES, tuples=True)
            # Some ask for tuples, some of the others share their pattern.
            small.subscribe(asked.text, namespaces=NAMESPACES, tuples=random.random() < 0.5)
        for one in told:
            results = [engine.filter(one.data) for engine in (ids, tuples, small)]
            for number, asked in enumerate(statements):
                check(asked.text, number, asked, one, results[1])
            expected = sorted(results[1].ids.tolist())
            assert sorted(results[1].tuples) == expected
            assert [sorted(result.ids.tolist()) for result in results] == [expected] * 3
            pairs += len(statements)
            matched += len(expected)

    tiny = FilterLimits(cache=1)
    check_all()
    assert pairs >= PAIRS
    # An oracle that hardly ever says yes would prove little.
    assert matched > pairs / 20


def steps_of(path: Path) -> list[str]:
    """The steps of a path as written, each with its slashes."""
    return [to_text(Path((step,), absolute=True)) for step in path.steps]


@settings(unhurried, max_examples=60)
@given(
    st.lists(paths(NAMES, with_namespaces=True), min_size=1, max_size=6),
    st.lists(documents(NAMES, with_namespaces=True), min_size=1, max_size=4),
)
def test_ids_and_tuples_on_pairs_that_shrink(
    drawn: list[Path], roots: list[etree._Element]
) -> None:
    engine = FilterEngine()
    statements = [Statement(steps_of(path)) for path in drawn]
    for asked in statements:
        engine.subscribe(asked.text, namespaces=NAMESPACES, tuples=True)
    for root in roots:
        told = Document(etree.tostring(root))
        result = engine.filter(told.data)
        for number, asked in enumerate(statements):
            check(asked.text, number, asked, told, result)
