"""What of a statement runs where."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fmware.xpath import Axis, Exists, Path, Split, Step, UnsupportedXPath, parse, split, to_text
from fmware.xpath.split import has_local
from tests.xpath.strategies import documents, paths, places, unhurried


def shown(parts: Split) -> list[tuple[int, str, str, str, bool]]:
    return [
        (c.anchor.step, to_text(c.anchor.branch), c.axis.name, to_text(c.match), c.selects)
        for c in parts.crossings
    ]


@pytest.mark.parametrize(
    ("statement", "message", "crossings"),
    [
        ("//a[b]/@c", "//a[b]/@c", []),
        (
            "//sale/product[.//units > 3]//local:warehouse[@open = 'yes']/local:city",
            "//sale/product[.//units > 3]",
            [(1, ".", "DESCENDANT", ".//local:warehouse[@open = 'yes']/local:city", True)],
        ),
        (
            "//product[units][.//local:stock[@qty > 0]]",
            "//product[units]",
            [(0, ".", "DESCENDANT", ".//local:stock[@qty > 0]", False)],
        ),
        (
            "//a[b and local:c and d]/e[parent::local:f]/self::local:g",
            "//a[b and d]/e",
            [
                (0, ".", "CHILD", "local:c", False),
                (1, ".", "PARENT", "parent::local:f", False),
                (1, ".", "SELF", "self::local:g", True),
            ],
        ),
        (
            "//sale[product/local:stock]",
            "//sale[product]",
            [(0, "product", "CHILD", "local:stock", False)],
        ),
        (
            "//a[local:b/@x > 3]",
            "//a",
            [(0, ".", "CHILD", "local:b/@x[. > 3]", False)],
        ),
        (
            "//a[b[c][local:d]/e = 2]",
            "//a[b[c]/e = 2]",
            [(0, "b[c][e = 2]", "CHILD", "local:d", False)],
        ),
        (
            "//a[b[local:c] = 2]",
            "//a[b = 2]",
            [(0, "b[. = 2]", "CHILD", "local:c", False)],
        ),
        (
            "//a[b/c[d[e//local:f]]]",
            "//a[b/c[d[e]]]",
            [(0, "b/c/d/e", "DESCENDANT", ".//local:f", False)],
        ),
        (
            "//a[2][position() < 9 and local:b]",
            "//a[2][position() < 9]",
            [(0, ".", "CHILD", "local:b", False)],
        ),
        (
            "//a[local:b][local:c]/@x",
            "//a/@x",
            [(0, ".", "CHILD", "local:b", False), (0, ".", "CHILD", "local:c", False)],
        ),
    ],
)
def test_what_runs_where(
    statement: str, message: str, crossings: list[tuple[int, str, str, str, bool]]
) -> None:
    parts = split(parse(statement), statement)
    assert to_text(parts.filter) == message
    assert shown(parts) == crossings


@pytest.mark.parametrize(
    ("marked", "code"),
    [
        ("//a[¦b or local:c]", "FMX123"),
        ("//a[b][¦not(local:c)]", "FMX123"),
        ("//a[b and (¦c or d[local:e])]", "FMX123"),
        ("//a[¦contains(local:b, 'x')]", "FMX124"),
        ("//a[¦starts-with(b[local:c], 'x')]", "FMX124"),
        ("//a[local:b][¦2]", "FMX125"),
        ("//a[b[local:c][¦position() > 1]]", "FMX125"),
        ("//a[¦b[local:c][local:d]]", "FMX126"),
        ("//a[¦b[local:c]/d[local:e]]", "FMX126"),
        ("//a[¦b[local:c]/local:d]", "FMX126"),
    ],
)
def test_what_cannot_be_split(marked: str, code: str) -> None:
    statement = marked.replace("¦", "")
    with pytest.raises(UnsupportedXPath) as caught:
        split(parse(statement), statement)
    assert (caught.value.code, caught.value.at) == (code, marked.index("¦"))
    assert caught.value.hint


@unhurried
@given(paths(with_namespaces=True))
def test_a_plain_filter_is_its_own_filter_part(path: Path) -> None:
    assert split(path) == Split(path)


@unhurried
@given(paths(with_local=True))
def test_nothing_local_stays_in_the_filter_and_nothing_else_in_a_match_part(path: Path) -> None:
    try:
        parts = split(path)
    except UnsupportedXPath:
        return
    tests = [test for step in parts.filter.steps for test in step.predicates]
    assert not any(step.local for step in parts.filter.steps)
    assert not any(map(has_local, tests))
    for crossing in parts.crossings:
        assert all(step.local for step in crossing.match.steps)
        assert crossing.match.steps[0].axis is crossing.axis
        assert not any(step.local for step in crossing.anchor.branch.steps)
    assert sum(c.selects for c in parts.crossings) == path.steps[-1].local


@unhurried
@given(paths(with_local=True), st.lists(documents(), min_size=1, max_size=3))
def test_the_parts_mean_what_the_statement_means(path: Path, roots: list[etree._Element]) -> None:
    """With a corpus that is the message itself, each node its own local identity, the filter
    part with the crossings as its last conditions selects what the whole statement does."""
    try:
        parts = split(path)
    except UnsupportedXPath:
        return
    steps = list(parts.filter.steps)
    result: tuple[Step, ...] = ()
    for crossing in parts.crossings:
        index = crossing.anchor.step
        if crossing.selects:
            result = crossing.match.steps
            continue
        branch = Exists(Path(crossing.anchor.branch.steps + crossing.match.steps))
        steps[index] = replace(steps[index], predicates=(*steps[index].predicates, branch))
    joined = etree.XPath(plain_text(Path((*steps, *result), absolute=True)))
    whole = etree.XPath(plain_text(path))
    for root in roots:
        assert places(joined(root)) == places(whole(root))


def plain_text(path: Path) -> str:
    """The statement as XPath over one document."""
    return to_text(path).replace("local:", "")


def test_only_a_crossing_has_the_upward_axes() -> None:
    (crossing,) = split(parse("//a/ancestor::local:b//local:c")).crossings
    assert [step.axis for step in crossing.match.steps] == [Axis.ANCESTOR, Axis.DESCENDANT]
