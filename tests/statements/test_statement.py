"""Statements in one expression and in two parts; what they return; what is refused, and where."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, given

from fmware.statements import Returns, Statement, StatementError, match_text
from fmware.xpath import (
    Axis,
    Kind,
    Path,
    UndeclaredPrefix,
    UnsupportedXPath,
    XPathError,
    XPathSyntaxError,
    to_text,
)
from tests.xpath.strategies import paths, unhurried

SALE = "//sale/product[.//units > 3]"
CITY = "//local:warehouse[@open = 'yes']/local:city"


# --- one expression -------------------------------------------------------------------------


def test_a_statement_knows_its_parts() -> None:
    found = Statement.parse(SALE + CITY, name="cities")
    assert (found.name, found.text) == ("cities", SALE + CITY)
    assert to_text(found.filter) == SALE
    assert found.selects is found.crossings[-1]
    assert match_text(found.crossings[0].match) == ".//warehouse[@open = 'yes']/city"
    assert not found.plain


def test_a_statement_is_called_by_its_text_unless_it_has_a_name() -> None:
    assert Statement.parse("//a").name == "//a"


def test_a_plain_filter_has_no_crossings() -> None:
    found = Statement.parse("//a[b]")
    assert found.plain
    assert found.selects is None


def test_a_condition_selects_nothing() -> None:
    found = Statement.parse("//a[local:b]")
    assert found.selects is None
    assert not found.plain


def test_statements_can_be_hashed_and_sent_to_processes() -> None:
    found = Statement.parse("//p:a/local:b", namespaces={"p": "urn:p"}, returns="value")
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(pickle.loads(pickle.dumps(found)))


def test_namespaces_are_those_that_were_there() -> None:
    spaces = {"p": "urn:p"}
    found = Statement.parse("//p:a", namespaces=spaces)
    spaces["p"] = "urn:other"
    assert found.namespaces == {"p": "urn:p"}


# --- two parts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "match",
    [
        "//warehouse[@open = 'yes']/city",
        ".//warehouse[@open = 'yes']/city",
        "  .//warehouse[ @open='yes' ] / city ",
        "//local:warehouse[@open = 'yes']/local:city",
        "descendant::local:warehouse[@open = 'yes']/local:city",
        "descendant::warehouse[@open = 'yes']/city",
    ],
)
def test_the_two_parts_make_the_same_as_one_expression(match: str) -> None:
    one = Statement.parse(SALE + CITY)
    two = Statement.two_part(filter=SALE, match=match)
    assert two.split == one.split
    assert two.text == one.text
    assert two.returns == one.returns


@pytest.mark.parametrize(
    ("match", "axis", "one"),
    [
        ("b", None, "/local:b"),
        ("/b", None, "/local:b"),
        ("./b", None, "/local:b"),
        ("child::b", "child", "/local:b"),
        ("b/c", "descendant", "//local:b/local:c"),
        ("//b", "descendant", "//local:b"),
        ("parent::b", None, "/parent::local:b"),
        ("parent::local:b/local:c", None, "/parent::local:b/local:c"),
        ("ancestor::b[2]/c", None, "/ancestor::local:b[2]/local:c"),
        ("/ancestor::b", "ancestor", "/ancestor::local:b"),
        ("ancestor :: local:b", None, "/ancestor::local:b"),
        ("b", "ancestor", "/ancestor::local:b"),
        ("*", "self", "/self::local:*"),
        (".", None, "/self::local:*"),
        (" . ", "self", "/self::local:*"),
        ("self::*/@c", None, "/self::local:*/@c"),
        ("child", "parent", "/parent::local:child"),
        ("b[c and not(d/@e > 2)]", None, "/local:b[c and not(d/@e > 2)]"),
        ("b[local:c]", None, "/local:b[c]"),
        ("b[2][contains(., 'x') or starts-with(c, 'y')]/text()", None, None),
    ],
)
def test_every_way_to_begin_a_match_part(match: str, axis: str | None, one: str | None) -> None:
    two = Statement.two_part(filter="//a", match=match, axis=axis)
    if one is None:
        one = f"/local:{match}"
    assert two.split == Statement.parse(f"//a{one}").split


@given(paths(with_local=True, with_namespaces=True))
@unhurried
def test_any_statement_can_be_said_in_two_parts(path: Path) -> None:
    cut = next((at for at, step in enumerate(path.steps) if step.local), None)
    assume(cut is not None)
    assert cut is not None
    spaces = {"p": "urn:p", "q": "urn:q"}
    try:
        one = Statement.parse(to_text(path), namespaces=spaces)
    except XPathError:
        return  # A local branch where none can be.
    head, tail = Path(path.steps[:cut], absolute=True), Path(path.steps[cut:])
    for match in (match_text(tail), to_text(tail)):
        two = Statement.two_part(filter=to_text(head), match=match, namespaces=spaces)
        assert two.split == one.split
        assert Statement.parse(two.text, namespaces=spaces).split == two.split


def test_the_anchor_can_be_another_step_than_the_last() -> None:
    for anchor in (2, "product"):
        found = Statement.two_part(filter="//sale/product/units", match="//w", anchor=anchor)
        [crossing] = found.crossings
        assert crossing.anchor.step == 1
        assert crossing.anchor.branch == Path(())
        assert crossing.selects
        assert to_text(found.filter) == "//sale/product/units"
        assert found.text == "//sale/product/units at step 2 -> .//w"


def test_the_anchor_is_told_from_others_by_its_prefix() -> None:
    spaces = {"p": "urn:p"}
    found = Statement.two_part(filter="//a/p:a", match="b", anchor="p:a", namespaces=spaces)
    assert found.crossings[0].anchor.step == 1


def test_names_of_the_corpus_can_have_a_namespace() -> None:
    found = Statement.two_part(
        filter="//a", match="//p:b[p:c]/p:*", namespaces={"p": "urn:p"}, returns="value"
    )
    assert [(step.prefix, step.name) for step in found.crossings[0].match.steps] == [
        ("p", "b"),
        ("p", "*"),
    ]
    assert found.text == "//a -> .//p:b[p:c]/p:*"


def test_attributes_and_text_of_the_local_node_itself() -> None:
    for match, axis, kind in (
        ("@k", Axis.CHILD, Kind.ATTRIBUTE),
        (".//@k", Axis.DESCENDANT, Kind.ATTRIBUTE),
        ("text()", Axis.CHILD, Kind.TEXT),
        ("//text()[. = 'x']", Axis.DESCENDANT, Kind.TEXT),
    ):
        [crossing] = Statement.two_part(filter="//a", match=match).crossings
        [step] = crossing.match.steps
        assert (crossing.axis, step.axis, step.kind) == (axis, axis, kind)


def test_the_filter_may_have_conditions_on_the_corpus() -> None:
    found = Statement.two_part(filter="//a[local:b]/c", match="d")
    assert found.split == Statement.parse("//a[local:b]/c/local:d").split


# --- what is returned -----------------------------------------------------------------------


def test_what_is_returned_unless_said() -> None:
    assert Statement.parse("//a").returns == {Returns.NAME}
    assert Statement.parse("//a[local:b]").returns == {Returns.MESSAGE}
    assert Statement.parse("//a/local:b").returns == {Returns.MESSAGE, Returns.LOCAL}


def test_what_is_returned_can_be_said() -> None:
    text = "//a/local:b"
    assert Statement.parse(text, returns="value").returns == {Returns.VALUE}
    assert Statement.parse(text, returns=Returns.VALUE).returns == {Returns.VALUE}
    both = Statement.parse(text, returns=["fragment", Returns.MESSAGE]).returns
    assert both == {Returns.FRAGMENT, Returns.MESSAGE}


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "code", "about", "at"),
    [
        ({"filter": "//a/local:b", "match": "c"}, "FMS001", "//a/local:b", 4),
        ({"filter": "//a/b", "match": "c", "anchor": 3}, "FMS002", "//a/b", 0),
        ({"filter": "//a/b", "match": "c", "anchor": 0}, "FMS002", "//a/b", 0),
        ({"filter": "//a/b", "match": "c", "anchor": "x"}, "FMS002", "//a/b", 0),
        ({"filter": "//a/b//a", "match": "c", "anchor": "a"}, "FMS003", "//a/b//a", 7),
        ({"filter": "//a/@b", "match": "c"}, "FMS004", "//a/@b", 4),
        ({"filter": "//a/text()", "match": "c"}, "FMS004", "//a/text()", 4),
        ({"filter": "//a", "match": "//c", "axis": "child"}, "FMS005", "//c", 0),
        ({"filter": "//a", "match": "/c", "axis": "ancestor"}, "FMS005", "/c", 0),
        ({"filter": "//a", "match": "child::c", "axis": "self"}, "FMS005", "child::c", 0),
        ({"filter": "//a", "match": ".", "axis": "child"}, "FMS005", ".", 0),
        ({"filter": "//a", "match": "c", "axis": "sibling"}, "FMS006", "sibling", 0),
        ({"filter": "//a", "match": "self::@c"}, "FMS007", "self::@c", 6),
        ({"filter": "//a", "match": "@c", "axis": "parent"}, "FMS007", "@c", 0),
        ({"filter": "//a", "match": "c", "returns": "all"}, "FMS008", "all", 0),
        ({"filter": "//a", "match": "c", "returns": []}, "FMS008", "[]", 0),
        (
            {"filter": "//a", "match": "c", "namespaces": {"local": "urn:x"}},
            "FMS010",
            "local=urn:x",
            0,
        ),
        # What the parser refuses is pointed at where it was written.
        ({"filter": "//a[", "match": "c"}, "FMX002", "//a[", 4),
        ({"filter": "//a", "match": "  .//b[c"}, "FMX002", "  .//b[c", 8),
        ({"filter": "//a", "match": "b/last()"}, "FMX103", "b/last()", 2),
        ({"filter": "//a", "match": "b/parent::c"}, "FMX104", "b/parent::c", 2),
        ({"filter": "//a", "match": "//ancestor::c"}, "FMX104", "//ancestor::c", 2),
        ({"filter": "//a", "match": "following::c"}, "FMX104", "following::c", 0),
        ({"filter": "//a", "match": "local:b/c"}, "FMX121", "local:b/c", 8),
        ({"filter": "//a", "match": "..."}, "FMX117", "...", 0),
        ({"filter": "//a", "match": "parent::b/q:c"}, "FMX301", "parent::b/q:c", 10),
        ({"filter": "//a", "match": "b[q:c]"}, "FMX301", "b[q:c]", 2),
        ({"filter": "//q:a", "match": "b"}, "FMX301", "//q:a", 2),
    ],
)
def test_what_does_not_fit_is_pointed_at(
    options: dict[str, object], code: str, about: str, at: int
) -> None:
    with pytest.raises(XPathError) as caught:
        Statement.two_part(**options)  # type: ignore[arg-type]
    error = caught.value
    assert (error.code, error.expression, error.at) == (code, about, at)
    assert about in str(error)
    assert isinstance(error, StatementError) == code.startswith("FMS")
    assert error.hint or not code.startswith("FMS")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    "match", ["", "  ", "/", "//", "./", "b/", "///b", "b c", "[b]", "ancestor::"]
)
def test_a_match_part_that_is_no_path_is_refused(match: str) -> None:
    with pytest.raises((XPathSyntaxError, UnsupportedXPath)) as caught:
        Statement.two_part(filter="//a", match=match)
    assert caught.value.expression == match
    assert 0 <= caught.value.at <= len(match)


@pytest.mark.parametrize("text", ["//a", "//a[local:b]"])
def test_message_nodes_can_be_returned_by_value_and_as_xml(text: str) -> None:
    both = {Returns.VALUE, Returns.FRAGMENT}
    assert Statement.parse(text, returns=["value", "fragment"]).returns == both


@pytest.mark.parametrize("returns", ["local", ["message", "local"]])
def test_what_nothing_selects_cannot_be_returned(returns: str) -> None:
    for text in ("//a", "//a[local:b]"):
        with pytest.raises(StatementError, match="selects nothing in the corpus"):
            Statement.parse(text, returns=returns)


def test_a_prefix_must_be_declared() -> None:
    with pytest.raises(UndeclaredPrefix):
        Statement.parse("//a/local:b[q:c]")


def test_a_local_branch_under_not_is_refused() -> None:
    with pytest.raises(UnsupportedXPath, match="FMX123"):
        Statement.parse("//a[not(local:b)]")
