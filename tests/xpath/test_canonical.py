"""Equal queries have equal trees, and no query changes its meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fmware.xpath import Path, canonical, parse, to_text
from tests.xpath.strategies import NAMESPACES, documents, paths, places, unhurried


@pytest.mark.parametrize(
    "spellings",
    [
        ("/a/@b", "/child::a/attribute::b", " / a / @b "),
        ("//a", "/descendant::a", "//child::a"),
        ("//a[@b = 'x']", '//a["x" = @b]', "//a[./@b='x']"),
        ("//a[@b > 3]", "//a[3 < @b]", "//a[(@b) > 3.0]"),
        ("//a[b][c]", "//a[c][b]", "//a[b and c]", "//a[c and b and c]", "//a[c][b][b]"),
        ("//a[b and (c and d)]", "//a[(d and b) and c]", "//a[b][d][c]"),
        ("//a[b or c or d]", "//a[d or (b or c) or b]"),
        ("//a[b or c and d]", "//a[d and c or b]"),
        ("//a[b]", "//a[not(not(b))]", "//a[b or b]", "//a[not(not(b and b))]"),
        ("//a[not(b)]", "//a[not(not(not(b)))]"),
        ("//a[2]", "//a[position() = 2]", "//a[2 = position()]", "//a[(2)]"),
        ("//a[b][c][2][d][e]", "//a[c and b][position() = 2][e][d]"),
        ("//a[b[c][d]]", "//a[b[d][c]]"),
        ("//a[contains(b[c][d], 'x')]", "//a[contains(b[d and c], 'x')]"),
        ("//a/local:b[c][p:d][q:d]", "//a/local:b[q:d][c][p:d]"),
    ],
)
def test_equal_queries_have_equal_trees(spellings: tuple[str, ...]) -> None:
    trees = {canonical(parse(spelling)) for spelling in spellings}
    assert len(trees) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("//a[b][2]", "//a[2][b]"),
        ("//a[1][1]", "//a[1]"),
        ("//a[position() > 1][position() > 1]", "//a[position() > 1]"),
        ("//a[not(@b = 1)]", "//a[@b != 1]"),
        ("//a[b and (c or d)]", "//a[b and c or d]"),
        ("//a[@b = 1]", "//a[@b = '1']"),
        ("//a[b[c]]", "//a[b/c]"),
        ("//a[not(b) and not(c)]", "//a[not(b and c)]"),
    ],
)
def test_different_queries_stay_different(one: str, other: str) -> None:
    assert canonical(parse(one)) != canonical(parse(other))


def test_a_path_without_predicates_is_its_own_canonical_form() -> None:
    path = parse("/a//b/*/@c")
    assert canonical(path) is path


@unhurried
@given(paths(with_local=True, with_namespaces=True))
def test_canonical_is_idempotent_and_prints(path: Path) -> None:
    once = canonical(path)
    assert canonical(once) == once
    assert parse(to_text(once)) == once


@unhurried
@given(paths(with_namespaces=True), st.lists(documents(with_namespaces=True), min_size=1))
def test_the_meaning_is_lxmls(path: Path, roots: list[etree._Element]) -> None:
    original = etree.XPath(to_text(path), namespaces=NAMESPACES)
    better = etree.XPath(to_text(canonical(path)), namespaces=NAMESPACES)
    for root in roots:
        assert places(original(root)) == places(better(root))
