"""Filtering in batches: never a false match, and what cannot be known is named."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.filtering import FilterEngine
from fmware.labeling._kernel import OPEN_END
from fmware.xpath import Path, to_text
from tests.filtering.oracle import Document, Statement
from tests.filtering.workload import NAMESPACES, document, statement
from tests.xpath.strategies import documents, paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fmware.filtering import FilterResult

unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


def engine_of(texts: Sequence[str], *, tuples: bool = False) -> FilterEngine:
    engine = FilterEngine()
    for text in texts:
        engine.subscribe(text, namespaces=NAMESPACES, tuples=tuples)
    return engine


def chunked(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def batches(engine: FilterEngine, data: bytes, nodes: int) -> list[FilterResult]:
    return list(engine.filter_batches(chunked(data, 16), nodes=nodes))


def check(
    engine: FilterEngine, statements: Sequence[Statement], told: Document, nodes: int
) -> tuple[int, int]:
    """How many statements match in some batch, and how many are only undecided."""
    results = batches(engine, told.data, nodes)
    matched = {number for result in results for number in result.ids.tolist()}
    undecided = {number for result in results for number in result.undecided}
    for result in results:
        assert not set(result.undecided) & set(result.ids.tolist())
    for number, asked in enumerate(statements):
        about = f"{asked.text} on {told.data!r} by {nodes}"
        if asked.rows(told):
            assert number in matched or number in undecided, f"missed: {about}"
        else:
            assert number not in matched, f"false match: {about}"
    for result in results:
        check_tuples(statements, told, result)
    return len(matched), len(undecided - matched)


def check_tuples(statements: Sequence[Statement], told: Document, result: FilterResult) -> None:
    """The tuples of a batch are some of those of the document, node by node by their labels."""
    if not result.tuples:
        return
    whole = result.engine.reader.read(told.data)
    row_of = {int(start): row for row, start in enumerate(whole.start)}
    for number, rows in result.tuples.items():
        expected = {tuple(line) for line in statements[number].tuples(told)}
        for line in rows.tolist():
            found = tuple(row_of[int(result.table.start[row])] for row in line)
            assert found in expected, f"{statements[number].text} on {told.data!r}"


@pytest.mark.parametrize("tuples", [False, True])
def test_no_false_match_and_none_missed_on_many_pairs(tuples: bool) -> None:
    counts = [0, 0, 0]

    @settings(unhurried, max_examples=40)
    @given(st.integers(0, 2**64))
    def check_all(seed: int) -> None:
        random = Random(seed)
        statements = [Statement(statement(random)) for _ in range(60)]
        engine = engine_of([asked.text for asked in statements], tuples=tuples)
        for _ in range(20):
            told = Document(document(random))
            for nodes in (2, random.randint(3, 12), random.randint(8, 60)):
                matched, undecided = check(engine, statements, told, nodes)
                counts[0] += len(statements)
                counts[1] += matched
                counts[2] += undecided

    check_all()
    pairs, matched, undecided = counts
    # If all were left open, it would prove little.
    assert matched > pairs / 40
    assert undecided < matched * 2


@settings(unhurried, max_examples=150)
@given(
    st.lists(paths(("a", "b"), with_namespaces=True), min_size=1, max_size=6),
    st.lists(documents(("a", "b"), with_namespaces=True), min_size=1, max_size=3),
    st.integers(2, 16),
)
def test_no_false_match_and_none_missed_on_pairs_that_shrink(
    drawn: list[Path], roots: list[etree._Element], nodes: int
) -> None:
    statements = [
        Statement([to_text(Path((step,), absolute=True)) for step in path.steps]) for path in drawn
    ]
    engine = engine_of([asked.text for asked in statements])
    for root in roots:
        check(engine, statements, Document(etree.tostring(root)), nodes)


@settings(unhurried, max_examples=30)
@given(st.integers(0, 2**64))
def test_one_batch_is_as_good_as_the_document(seed: int) -> None:
    random = Random(seed)
    engine = engine_of(["".join(statement(random)) for _ in range(40)], tuples=True)
    for _ in range(10):
        data = document(random)
        whole = engine.filter(data)
        (result,) = batches(engine, data, 100_000)
        assert sorted(result.ids.tolist()) == sorted(whole.ids.tolist())
        assert {n: rows.tolist() for n, rows in result.tuples.items()} == {
            n: rows.tolist() for n, rows in whole.tuples.items()
        }
        assert not result.undecided
        assert not result.truncated


KNOWN = (
    *("/{0}", "//{0}", "/{0}//{1}", "//{0}/{1}", "/*/{0}//*", "//p:{0}", "//{0}/text()"),
    *("//{0}[@x]", "//{0}[@x = '1']/{1}", "//{0}[not(@x)]//{1}", "//{0}[@x or @y]", "//{0}/@*"),
    *("//{0}[@x > 1 and not(@y = '2')]/{1}[@p:x]", "//*[contains(@x, 'a')]/{0}", "//{0}[@*]/{1}"),
    *("//{0}[@x][@y]//{1}", "/{0}[starts-with(@y, '1')]//{1}[@x != 2]/*", "//{0}[@* = '1']//{1}"),
    *("//{0}/@x[. = '1']", "//{0}/text()[. = '2']", "/*[not(contains(@x, 'b'))]/{0}"),
)
"""What asks for nothing but names, attributes and, at the end, text."""


@settings(unhurried, max_examples=60)
@given(st.integers(0, 2**64), st.integers(2, 30))
def test_what_asks_for_attributes_alone_is_exact(seed: int, nodes: int) -> None:
    random = Random(seed)
    names = [random.choices(("a", "b", "c", "body.content", "*"), k=2) for _ in KNOWN]
    statements = [
        Statement([text.format(*two).replace("p:*", "p:a")])
        for text, two in zip(KNOWN, names, strict=True)
    ]
    engine = engine_of([asked.text for asked in statements])
    for _ in range(5):
        told = Document(document(random))
        results = batches(engine, told.data, nodes)
        matched = {number for result in results for number in result.ids.tolist()}
        for number, asked in enumerate(statements):
            assert (number in matched) == bool(asked.rows(told)), asked.text
        assert not any(result.undecided for result in results)


LONG = b"<r v='1'><meta>x</meta>" + b"".join(b"<i n='%d'><k>%d</k></i>" % (n, n) for n in range(99))
LONG += b"<late/></r>"


@pytest.mark.parametrize(
    ("text", "matches", "open_"),
    [
        ("/r/i[k = 70]", True, False),
        ("/r/i[k = 70][@n = 70]", True, False),
        ("/r/i[k = 70 and not(k = 71)]", True, False),
        ("/r/i[not(k)]", False, False),
        ("/r[@v = 1]/i[k = 70]", True, False),
        ("/r[i/k = 70]", True, False),
        ("/r[late]", True, False),
        ("/r[never]", False, False),
        ("/r[never]/i", False, True),
        ("/r[i[2]]", True, True),
        ("/r[not(never)]", False, True),
        ("/r[not(never)]/i", False, True),
        ("/r[not(meta)]", False, True),
        ("/r[meta][late]", False, True),
        ("/r[meta]/late", False, True),
        ("/r[meta or @v = 2]/late", False, True),
        ("/r[meta or @v = 1]/late", True, False),
        ("/r[meta and @v = 2]/late", False, False),
        ("/r/i[1]", True, True),
        ("/r/i[99]", False, True),
        ("/r/i[100]", False, True),
        ("/r/i[position() = 2]/k", True, True),
        ("/r/i/k[1]", True, False),
        ("/r[. = 'x']", False, True),
        ("/r[contains(., 'x0')]", False, True),
        ("/r[contains(meta, 'x')]", False, True),
        ("/r[starts-with(i, '0')]/i", False, True),
        ("//*[contains(k, '70')]", True, True),
    ],
)
def test_what_is_known_of_an_open_element(text: str, matches: bool, open_: bool) -> None:
    engine = engine_of([text])
    results = batches(engine, LONG, 20)
    assert len(results) > 5
    assert any(results) == matches
    assert any(result.undecided for result in results) == open_


def test_statements_may_come_between_batches() -> None:
    engine = engine_of(["//i[k = 1]"])
    found = engine.filter_batches(chunked(LONG, 50), nodes=20)
    assert next(found).names
    late = engine.subscribe("/r/late")
    engine.subscribe("/new//name[@here]")
    results = list(found)
    assert late in results[-1]


def test_tuples_stay_within_their_elements() -> None:
    data = b"<r><a>" + b"<b/>" * 30 + b"</a>" + b"<c/>" * 3 + b"<a><c/></a></r>"
    engine = engine_of(["//a/c", "//a//c"], tuples=True)
    results = batches(engine, data, 20)
    last = results[-1]
    assert last.table.end[0] == OPEN_END
    assert [len(last.tuples[number]) for number in (0, 1)] == [1, 1]
