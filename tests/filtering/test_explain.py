"""Explanations: they agree with the engine and with lxml, and say where and why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fmware import ReadError, UndeclaredPrefix, XPathSyntaxError, read
from fmware.filtering import FilterEngine, ForeignTable
from fmware.filtering.explain import TUPLES, Explanation, NamespaceHint, Stop, explain
from fmware.xpath import Path, to_text
from tests.xpath.strategies import NAMESPACES, documents, paths, unhurried

SHOP = b"""<shop>
  <sale id="1"><item price="2">pen</item><item price="9"> Ink </item></sale>
  <sale id="2"><item>paper</item><note>late</note></sale>
</shop>"""


def stop_of(expression: str, document: bytes = SHOP, **namespaces: str) -> Stop:
    found = explain(document, expression, namespaces=namespaces)
    assert not found.matched
    assert found.tuples == []
    assert found.stop is not None
    return found.stop


# --- agreement ------------------------------------------------------------------------------


def check_agreement(root: etree._Element, path: Path, namespaces: dict[str, str]) -> None:
    document = etree.tostring(root)
    text = to_text(path)
    found = explain(document, path, namespaces=namespaces)
    # Parsed anew: a tree that was made may hold empty text nodes, which no document has.
    lxml = etree.fromstring(document).getroottree().xpath(text, namespaces=namespaces or None)
    assert found.matched == bool(lxml)
    if found.matched:
        assert isinstance(lxml, list)
        assert found.trace.steps[-1].passed == len(lxml)
    engine = FilterEngine()
    engine.subscribe(text, namespaces=namespaces, tuples=True)
    table = read(document, vocabulary=engine.vocabulary)
    result = engine.filter(table)
    assert found.matched == bool(result)
    if result:
        rows = result.tuples[0].tolist()[:TUPLES]
        assert [[node.path for node in each] for each in found.tuples] == [
            [table.path(row) for row in each] for each in rows
        ]
    check_shape(found)


def check_shape(found: Explanation) -> None:
    assert (found.stop is None) == found.matched == bool(found.tuples)
    for step in found.trace.steps[:-1]:
        assert step.passed > 0
    for step in found.trace.steps:
        counts = [step.found, *(each.passed for each in step.predicates)]
        assert counts == sorted(counts, reverse=True)
        assert all(each.reasons for each in step.predicates)
        assert all(reason.text for each in step.predicates for reason in each.reasons)
    json.dumps(found.to_dict())


@unhurried
@given(documents(), paths())
def test_agrees_with_lxml_and_the_engine(root: etree._Element, path: Path) -> None:
    check_agreement(root, path, {})


@unhurried
@given(documents(with_namespaces=True), paths(with_namespaces=True))
def test_agrees_in_namespaces(root: etree._Element, path: Path) -> None:
    check_agreement(root, path, NAMESPACES)


@unhurried
@given(
    documents(with_namespaces=True), paths(with_namespaces=True), st.sampled_from(["x", "a", "p"])
)
def test_what_is_suggested_matches(root: etree._Element, path: Path, prefix: str) -> None:
    document = etree.tostring(root)
    spaces = NAMESPACES | {prefix: "urn:else"}
    hint = explain(document, path, namespaces=spaces).ignoring_namespaces
    if hint is not None and hint.expression is not None:
        assert explain(document, hint.expression, namespaces=hint.namespaces).matched


# --- where it stopped -----------------------------------------------------------------------


def test_a_match_shows_its_tuples() -> None:
    found = explain(SHOP, "//sale[@id = 1]/item[@price > 3]")
    assert found.matched
    assert found.stop is None
    assert [[node.path for node in each] for each in found.tuples] == [
        ["/shop[1]/sale[1]", "/shop[1]/sale[1]/item[2]"]
    ]
    assert found.tuples[0][1].value == " Ink "
    sale, item = found.trace.steps
    assert (sale.found, sale.passed, item.found, item.passed) == (2, 1, 2, 1)
    assert sale.predicates[0].reasons[0].text == '@id was "1"'


def test_the_compared_values_are_shown() -> None:
    stop = stop_of("//sale/item[@price > 30]")
    assert (stop.step, stop.predicate, stop.expression) == (2, 1, "[@price > 30]")
    assert stop.reason == 'none of 3 passed: @price was "2", needed > 30'
    predicate = explain(SHOP, "//sale/item[@price > 30]").trace.steps[1].predicates[0]
    assert (predicate.tried, predicate.passed) == (3, 0)
    assert [reason.text for reason in predicate.reasons] == [
        '@price was "2", needed > 30',
        '@price was "9", needed > 30',
        "no @price in /shop[1]/sale[2]/item[1]",
    ]


def test_the_character_of_the_statement_is_told() -> None:
    expression = "//sale/item[@price > 30]"
    assert expression[stop_of(expression).at :].startswith("@price")
    assert "//sale/itme"[stop_of("//sale/itme").at :] == "itme"


@pytest.mark.parametrize(
    ("expression", "close"),
    [
        ("//sale/itme", ["item"]),
        ("//Sale", ["sale"]),
        ("//item/@prize", ["@price"]),
        ("//sale/zzzz", []),
    ],
)
def test_a_name_that_is_nearly_there_is_named(expression: str, close: list[str]) -> None:
    assert stop_of(expression).did_you_mean == close


def test_what_is_there_instead_is_listed_with_counts() -> None:
    stop = stop_of("/shop/sale/price")
    assert [(each.name, each.count) for each in stop.there] == [("item", 3), ("note", 1)]
    assert stop.reason == "no price in /shop[1]/sale[1] and 1 more"
    assert [each.name for each in stop_of("//sale/@nr").there] == ["@id"]


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("//item/price", "/shop[1]/sale[1]/item[1]/@price is an attribute: write @price"),
        ("//sale/@note", "/shop[1]/sale[2]/note[1] is an element, not an attribute"),
        ("/shop/item", "item occurs elsewhere: /shop[1]/sale[1]/item[1] and 2 more"),
        ("/sale", "sale occurs elsewhere: /shop[1]/sale[1] and 1 more"),
    ],
)
def test_what_is_nearly_there_is_hinted_at(expression: str, hint: str) -> None:
    assert hint in stop_of(expression).hints


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("/sale", "the root is shop, not sale"),
        ("/@id", "the document itself has no @id: only elements have"),
        ("/text()", "the document itself has no text(): only elements have"),
        ("//x", "no x in the document"),
        ("//note//*", "no element below /shop[1]/sale[2]/note[1]"),
        ("//sale[@id = 'x']", 'none of 2 passed: @id was "1", needed = \'x\''),
        ("//sale[3]", "none of 2 passed: was number 1, needed = 3"),
        ("//note[. = 'Late']", 'only case differs'),
        ("//item[@price = 9][. = 'Ink']", "only white space differs"),
        ("//note[. < 3]", '"late" is not a number'),
        ("//sale[contains(item, 'Ink')]", "of 2 only the first counts"),
        ("//note[starts-with(., 'ate')]", 'its value was "late", needed to start with "ate"'),
        ("//sale[not(@id)]", "not() refused: /shop[1]/sale[1]/@id is there"),
        ("//sale[@id = 1 and note]", "no note in /shop[1]/sale[1]"),
        ("//sale[@id = 7 or @id = 8]", 'none of these: @id was "1", needed = 7; @id was "1", nee'),
        ("//shop[sale/item[@price > 10]]", 'none of 3 passed: @price was "2", needed > 10'),
    ],
)  # fmt: skip
def test_the_reason_is_told(expression: str, reason: str) -> None:
    assert reason in stop_of(expression).reason


def test_and_is_explained_to_its_first_failing_term_and_or_in_full() -> None:
    step = explain(SHOP, "//sale[@id and note = 'x' and item]").trace.steps[0]
    terms = step.predicates[0].reasons[0].terms
    assert [term.holds for term in terms] == [True, False]
    step = explain(SHOP, "//sale[note = 'x' or item = 'y' or @nr]").trace.steps[0]
    assert len(step.predicates[0].reasons[0].terms) == 3


def test_nested_paths_are_traced() -> None:
    step = explain(SHOP, "//shop[sale/item[@price > 10]/x]").trace.steps[0]
    trace = step.predicates[0].reasons[0].trace
    assert trace is not None
    assert trace.stop is not None
    assert (trace.stop.step, trace.stop.predicate) == (2, 1)
    assert [each.passed for each in trace.steps] == [2, 0]


def test_deep_nesting_takes_no_time() -> None:
    document = b"<a>" * 40 + b"</a>" * 40
    expression = "//a" + "[.//a" * 12 + "[@x]" + "]" * 12
    assert not explain(document, expression).matched


# --- namespaces -----------------------------------------------------------------------------

SPACED = b"<feed xmlns='urn:atom' xmlns:x='urn:x'><entry x:id='1'><x:by>me</x:by></entry></feed>"


def hint_of(expression: str, **namespaces: str) -> NamespaceHint | None:
    return explain(SPACED, expression, namespaces=namespaces).ignoring_namespaces


def test_a_default_namespace_is_given_a_prefix() -> None:
    assert hint_of("//feed/entry") == NamespaceHint(
        ["urn:atom"], "//n:feed/n:entry", {"n": "urn:atom"}
    )


def test_prefixes_of_the_document_and_of_the_statement_are_kept() -> None:
    assert hint_of("//entry[@id = 1]/by", a="urn:atom") == NamespaceHint(
        ["urn:atom", "urn:x"], "//a:entry[@x:id = 1]/x:by", {"a": "urn:atom", "x": "urn:x"}
    )


def test_a_prefix_of_another_namespace_is_not_taken_over() -> None:
    hint = hint_of("//n:entry", n="urn:other")
    assert hint == NamespaceHint(["urn:atom"], "//n2:entry", {"n2": "urn:atom"})


def test_no_word_on_namespaces_where_they_are_not_it() -> None:
    assert hint_of("//nothing") is None
    assert explain(SHOP, "//item[@price > 30]").ignoring_namespaces is None
    assert explain(SHOP, "//item").ignoring_namespaces is None


def test_the_namespace_that_is_there_is_named() -> None:
    assert stop_of("//entry", SPACED).hints == ["entry is there in the namespace urn:atom"]
    there = stop_of("//a:entry/@x:ID", SPACED, a="urn:atom", x="urn:x").there
    assert [each.name for each in there] == ["@{urn:x}id"]


# --- what is taken --------------------------------------------------------------------------


def test_a_table_does_as_well_as_bytes() -> None:
    assert explain(read(SHOP), "//note") == explain(SHOP, "//note")


def test_the_filter_part_of_a_local_statement_is_explained() -> None:
    found = explain(SHOP, "//sale[item]/local:stock")
    assert found.matched
    assert [step.expression for step in found.trace.steps] == ["//sale"]


def test_errors_are_those_of_their_parts() -> None:
    with pytest.raises(XPathSyntaxError):
        explain(SHOP, "//a[")
    with pytest.raises(UndeclaredPrefix):
        explain(SHOP, "//a[p:b]")
    with pytest.raises(ReadError):
        explain(b"<a>", "//a")
    with pytest.raises(ForeignTable, match="without values"):
        explain(read(SHOP, values=False), "//a")


def test_long_values_are_cut() -> None:
    found = explain(b"<a>" + b"x" * 500 + b"</a>", "//a")
    assert len(found.tuples[0][0].value) == 80
