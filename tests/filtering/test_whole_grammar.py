"""Any XPath 1.0 expression is a statement: against lxml, on random expressions and documents."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from lxml import etree

from fmware.filtering import FilterEngine, FilterLimits
from fmware.xpath import plan
from fmware.xpath.planner import Plan
from tests.filtering.oracle import Document, places
from tests.xpath.expressions import NAMESPACES, Writer, document

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = range(10)
EXPRESSIONS = 600
DOCUMENTS = 60
"""Ten times 600 expressions on 60 documents: 360,000 pairs."""


def drawn(seed: int, count: int) -> list[str]:
    """Expressions that lxml takes, too: all but those that are too deep for it."""
    writer = Writer(Random(seed))
    return [writer.statement() for _ in range(count)]


def oracle(
    message: bytes, tree: etree._ElementTree[etree._Element] | None = None
) -> etree.XPathDocumentEvaluator:
    """lxml begins at the root element, so an expression must say that it begins at the document."""
    tree = tree or etree.fromstring(message).getroottree()
    return etree.XPathDocumentEvaluator(tree, namespaces=NAMESPACES)


def answers(texts: Sequence[str], messages: Sequence[bytes]) -> list[set[int]]:
    engine = FilterEngine()
    numbers = engine.subscribe_many(texts, namespaces=NAMESPACES)
    place_of = {number: place for place, number in enumerate(numbers)}
    found = engine.filter_many(messages)
    assert not found.errors
    assert not len(found.undecided)
    spans = [found.span(place, 0) for place in range(len(messages))]
    return [{place_of[one] for one in found.ids[begin:end].tolist()} for begin, end in spans]


@pytest.mark.parametrize("seed", SEEDS)
def test_statements_hold_where_lxml_says_so(seed: int) -> None:
    texts = drawn(seed, EXPRESSIONS)
    random = Random(seed + 1000)
    messages = [document(random) for _ in range(DOCUMENTS)]
    oracles = list(map(oracle, messages))
    found = answers(texts, messages)
    held = 0
    for number, text in enumerate(texts):
        for place, ask in enumerate(oracles):
            expected = ask(f"boolean(/self::node()[boolean({text})])")
            held += expected
            assert (number in found[place]) is expected, (text, messages[place].decode())
    assert held > EXPRESSIONS * DOCUMENTS // 10


@pytest.mark.parametrize("seed", range(3))
def test_guards_hold_wherever_their_statements_do(seed: int) -> None:
    texts = list(dict.fromkeys(drawn(seed + 50, 500)))
    random = Random(seed + 2000)
    messages = [document(random) for _ in range(40)]
    engine, guards = FilterEngine(), FilterEngine()
    for text in texts:
        planned = plan(text)
        engine.subscribe(text, name=text, namespaces=NAMESPACES)
        # The guard alone, as if it were the statement.
        alone = Plan(text, planned.guard, exact=True, native=planned.native)
        guards.subscribe(alone, name=text, namespaces=NAMESPACES)
    passed = 0
    for message in messages:
        whole = set(engine.filter(message).names)
        weaker = set(guards.filter(message).names)
        assert whole <= weaker, (whole - weaker, message)
        passed += len(weaker) - len(whole)
    assert passed > 0


@pytest.mark.parametrize("seed", range(3))
def test_tuples_are_the_nodes_that_are_selected(seed: int) -> None:
    random = Random(seed + 3000)
    writer = Writer(random)
    texts = [writer.selection() for _ in range(150)]
    engine = FilterEngine()
    numbers = [engine.subscribe(text, namespaces=NAMESPACES, tuples=True) for text in texts]
    for _ in range(20):
        data = document(random)
        shown = Document(data)
        ask = oracle(data, shown.tree)
        result = engine.filter(data)
        for number, text in zip(numbers, texts, strict=True):
            selected = ask(text)
            count = ask(f"count({text})")
            assert (number in result) is (count > 0), (text, data)
            rows = result.tuples.get(number)
            got = sorted(set(rows[:, -1].tolist())) if rows is not None else []
            # lxml leaves the document out of what it gives; the root element stands for it.
            document_too = {0} if len(selected) < count else set()
            assert got == sorted(_rows(selected, shown) | document_too), (text, data)


def _rows(selected: object, shown: Document) -> set[int]:
    """The rows of what lxml selected; of comments and instructions those of their parents."""
    assert isinstance(selected, list)
    rows = set()
    for node in selected:
        if isinstance(node, etree._Element) and not isinstance(node.tag, str):
            parent = node.getparent()
            rows.add(shown.rows[parent, ""] if parent is not None else 0)
        else:
            rows.update(shown.rows[place] for place in places([node]))
    return rows


def names(texts: Sequence[str], message: bytes, **options: object) -> list[str]:
    engine = FilterEngine()
    for text in texts:
        engine.subscribe(text, name=text, **options)  # type: ignore[arg-type]
    return engine.filter(message).names


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        # Numbers are those of the Recommendation: no exponents, no plus, no words.
        ("/a/b = 1000", False),
        ("//b[. = 1000]", False),
        ("number(/a/b) = 1000", False),
        ("sum(//b) = 1000", False),
        ("sum(//b) != sum(//b)", True),
        ("string(/a/b + 0) = 'NaN'", True),
        ("string(1 div 3) = '0.3333333333333333'", True),
        ("string(1000000000000000000000) = '1000000000000000000000'", True),
        ("string(0.00001) = '0.00001'", True),
        ("string(-0) = '0'", True),
        ("string(1 div 0) = 'Infinity'", True),
        ("string(-1 div 0) = '-Infinity'", True),
        ("number('+1') = 1", False),
        ("number(' 1 ') = 1", True),
        ("round(-0.4) = 0", True),
        ("round(2.5) = 3", True),
        ("round(-2.5) = -2", True),
        ("5 mod -2 = 1", True),
        ("-5 mod 2 = -1", True),
        ("substring('12345', 1.5, 2.6) = '234'", True),
        ("substring('12345', 0, 3) = '12'", True),
        ("substring('12345', 0 div 0, 3) = ''", True),
        ("substring('12345', -42, 1 div 0) = '12345'", True),
        ("substring('12345', -1 div 0, 1 div 0) = ''", True),
        # What is behind an attribute, and before a comment behind the root element.
        ("//@x/following::b", True),
        ("//comment()/preceding::a", True),
        ("string-length('äöü') = 3", True),
        ("translate('äbc', 'äc', 'xÄ') = 'xbÄ'", True),
        ("namespace::node()", False),
        ("count(//b[1]/namespace::*) = 1", True),
        ("name(//namespace::*) = 'xml'", True),
        ("id('k')/@y = 'k'", False),
        ("id('k')/@xml:id = 'k'", True),
        ("count(id('k j k')) = 1", True),
        ("/", True),
        (".", True),
        ("node()", True),
        ("1", True),
        ("0", False),
        ("''", False),
        ("'a'", True),
        ("0 div 0", False),
    ],
)
def test_answers_are_those_of_the_recommendation(text: str, holds: bool) -> None:
    message = "<a x='1'><b>1e3</b><b xml:id='k'>ä</b></a><!-- behind -->".encode()
    assert names([text], message) == ([text] if holds else [])


def test_variables_are_parameters_of_a_statement() -> None:
    message = b"<a><b>3</b><c>x</c></a>"
    values = {"least": 2.0, "name": "x", "on": True}
    assert names(["//b > $least and //c = $name and $on"], message, variables=values)
    assert not names(["//b > $least"], message, variables={"least": 3.0})


def test_statements_with_rules_come_and_go() -> None:
    engine = FilterEngine()
    first = engine.subscribe("//a | //b")
    second = engine.subscribe("count(//b) > 1", name="two")
    assert len(engine) == 2
    assert [number for number, _ in engine.statements()] == [first, second]
    engine.replace(first, "not(//b)")
    assert engine.filter(b"<a/>").names == [str(first)]
    engine.replace(first, "/b")
    assert set(engine.filter(b"<b><b/></b>").names) == {str(first), "two"}
    engine.unsubscribe(first)
    engine.unsubscribe(second)
    assert len(engine) == 0
    assert not engine.filter(b"<b><b/></b>").names


def test_work_is_charged_and_bounded() -> None:
    message = b"<r>" + b"<a><b/></a>" * 2000 + b"</r>"
    engine = FilterEngine(limits=FilterLimits(work=200_000))
    heavy = engine.subscribe("//*[count(following::*) = count(preceding::*)]", name="heavy")
    engine.subscribe("count(//a) = 2000", name="light")
    result = engine.filter(message)
    assert result.undecided == [heavy]
    assert result.names == ["light"]
    assert result.work > 50_000


@pytest.mark.parametrize(
    "text",
    [
        "//*[. = //*]",
        "//*/following::*/preceding::*",
        "//*[contains(., //*)]/ancestor::*",
        "count(//*[string(.) != string(..)]/following::node()[last()])",
        "//*[translate(., 'a', 'b') = concat(., ., .)]",
    ],
)
def test_no_expression_goes_on_for_ever(text: str) -> None:
    message = b"<r>" + b"<a>aaaaaaaaaaaaaaaaaaaa<b>b</b></a>" * 20000 + b"</r>"
    engine = FilterEngine(limits=FilterLimits(work=3_000_000))
    number = engine.subscribe(text)
    result = engine.filter(message)
    assert number in result.undecided or number in result
    assert result.work < 30_000_000


def test_what_an_open_document_does_not_decide_is_undecided() -> None:
    engine = FilterEngine()
    union = engine.subscribe("//a | //b")
    counted = engine.subscribe("count(//a) > 2")
    without = engine.subscribe("not(//c)")
    chunks = [b"<r>", b"<a/>" * 1000, b"</r>"]
    results = list(engine.filter_batches(chunks, nodes=256))
    assert len(results) > 2
    assert all(union in result for result in results)
    assert all({counted, without} <= set(result.undecided) for result in results)
    whole = list(engine.filter_batches([b"<r><a/><a/><a/></r>"]))
    assert [set(result.ids.tolist()) for result in whole] == [{union, counted, without}]
