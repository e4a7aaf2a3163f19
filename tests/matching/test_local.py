"""The local side against lxml: whatever the match part, from every element of random corpora."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.cmatch import ADMatch, Matches
from fmware.cmatch import Axis as Theta
from fmware.labeling.runs import Tag
from fmware.matching import Evaluators, LocalPart
from fmware.statements import Statement, match_text
from fmware.xpath import Axis, Kind, Path
from tests.matching.corpora import SPACES, Corpus, Label, cut, pairs_of, whole
from tests.xpath.strategies import paths

if TYPE_CHECKING:
    from fmware.xpath import Crossing

NAMES = ("a", "b")
ATTRIBUTES = ("x", "y")

hurried = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@st.composite
def match_parts(draw: st.DrawFn) -> str:
    """Any match part: of any axis, with predicates nested to any depth, positions and values."""
    depth, spaces = draw(st.sampled_from((0, 1, 1, 2))), draw(st.sampled_from(((), (), ("p", "q"))))
    path = draw(paths(NAMES, ATTRIBUTES, depth, with_namespaces=spaces))
    # Longer paths lead nowhere more often than not.
    path = replace(path, steps=path.steps[-draw(st.sampled_from((1, 2, 2, 4))) :])
    first = path.steps[0]
    axes = Axis if first.kind is Kind.ELEMENT else (Axis.CHILD, Axis.DESCENDANT)
    first = replace(first, axis=draw(st.sampled_from([*axes])))
    return match_text(Path((first, *path.steps[1:])))


@cache
def part_of(match: str) -> LocalPart:
    return LocalPart(crossing_of(match), SPACES)


def crossing_of(match: str) -> Crossing:
    return Statement.two_part(filter="//m", match=match, namespaces=SPACES).crossings[0]


def expected(corpus: Corpus, match: str) -> list[tuple[int, Label]]:
    """What lxml selects from each element; the id of an anchor is its number."""
    select = etree.XPath(match, namespaces=SPACES)
    numbers = {label: number for number, (_, label) in enumerate(corpus.elements)}
    found: list[tuple[int, Label]] = []
    for tree in corpus.trees:
        for element, label in tree.elements:
            nodes = select(element)
            assert isinstance(nodes, list)
            found += [(numbers[label], place) for place in tree.places(nodes)]
    return sorted(found)


def check(corpus: Corpus, match: str) -> None:
    """From every element at once."""
    part = part_of(match)
    index = corpus.index
    labels = [label for _, label in corpus.elements]
    inputs = corpus.inputs(range(len(labels)), labels)
    wanted = expected(corpus, match)
    first = part.probe(index, inputs)
    found = part.finish(index, first, inputs)
    assert pairs_of(found) == wanted
    lows = [segment.low for segment in index.segments]
    assert (found.segment == np.searchsorted(lows, found.start, "right") - 1).all()
    held = part.holding(index, first, inputs)
    assert held.tolist() == sorted({number for number, _ in wanted})


# --- against lxml ---------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(0, 11), match_parts())
@settings(hurried, max_examples=1000)
def test_a_match_part_selects_what_lxml_selects(
    corpora: list[Corpus], number: int, match: str
) -> None:
    check(corpora[number], match)


@given(st.integers(0, 1 << 30), st.lists(match_parts(), min_size=1, max_size=8))
@settings(hurried, max_examples=25)
def test_whatever_the_corpus(seed: int, matches: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        corpus = (cut if seed % 3 else whole)(seed, FilePath(place))
        with corpus.index:
            for match in matches:
                check(corpus, match)


@pytest.mark.parametrize(
    "match",
    [
        ".",
        "*",
        ".//*",
        ".//p:*",
        "@*",
        ".//@p:*",
        "self::p:a",
        "self::a[1]",
        "self::a[2]",
        "parent::*[1]/b",
        "parent::a[2]",
        "ancestor::*[1]",
        "ancestor::a[2]",
        "ancestor::*[@x][position() < 3][2]/b[1]",
        "ancestor::*[position() > 1]//a",
        "ancestor::a//a//a",
        "a[2]",
        ".//a[2]",
        ".//*[@x][2]",
        ".//*[2][@x]",
        "*[position() != 1 and @x]",
        "*[not(position() = 1)]//@x[. > 1]",
        ".//a[.//b = 2]/c",
        ".//a//a//b",
        ".//a//a[1]",
        "text()",
        ".//text()",
        ".//text()[. = ' 2 ']",
        "a/text()",
        ".//b//text()[contains(., 'b')]",
        ".//a[starts-with(c, '1') or @y != 2]/@x",
        ".//@x[. < 3]",
        "a[b[c[@x]]]",
        "ancestor::rec/p:a//@y",
        "nothing",
        ".//nothing/a",
        "@nothing",
        "a/nothing",
    ],
)
def test_match_parts_worth_a_look(corpora: list[Corpus], match: str) -> None:
    for corpus in corpora:
        check(corpus, match)


# --- in pieces ------------------------------------------------------------------------------


@given(st.integers(0, 11), match_parts(), st.integers(0, 1 << 30))
@settings(hurried, max_examples=150)
@example(0, ".//a//b", 1)
@example(0, "ancestor::*[2]//a[1]", 2)
def test_pairs_may_come_in_any_order_and_any_batches(
    corpora: list[Corpus], number: int, match: str, seed: int
) -> None:
    corpus, part = corpora[number], part_of(match)
    index = corpus.index
    labels = [label for _, label in corpus.elements]
    inputs = corpus.inputs(range(len(labels)), labels)
    first = part.probe(index, inputs)
    order = np.random.default_rng(seed).permutation(len(first))
    pieces = np.array_split(order, random.Random(seed).randrange(1, 6))
    found = [pair for at in pieces for pair in pairs_of(part.finish(index, first.take(at), inputs))]
    assert sorted(set(found)) == expected(corpus, match)
    if not part.repeats:
        assert len(found) == len(set(found))


@given(st.integers(0, 11), match_parts())
@settings(hurried, max_examples=150)
@example(1, "ancestor::*[1]")
def test_several_local_nodes_of_one_anchor_are_one_set(
    corpora: list[Corpus], number: int, match: str
) -> None:
    corpus, part = corpora[number], part_of(match)
    labels = [label for _, label in corpus.elements]
    ids = [at // 3 * 7 for at in range(len(labels))]
    inputs = corpus.inputs(ids, labels)
    found = part.finish(corpus.index, part.probe(corpus.index, inputs), inputs)
    wanted = {(ids[at], label) for at, label in expected(corpus, match)}
    assert pairs_of(found) == sorted(wanted)


def test_nothing_comes_of_nothing(corpora: list[Corpus]) -> None:
    for match in (".", ".//a[b > 2]//c", "ancestor::*[1]/text()", "a/b"):
        part = part_of(match)
        found = part.finish(corpora[0].index, Matches.empty(), corpora[0].inputs([], []))
        assert pairs_of(found) == []
        assert part.holding(corpora[0].index, Matches.empty()).tolist() == []


# --- what it says of itself -----------------------------------------------------------------


def test_what_an_operator_is_to_join(corpora: list[Corpus]) -> None:
    index = corpora[-1].index
    assert part_of(".//a").tags(index) == (Tag(0, "a"),)
    assert part_of("p:a/b").tags(index) == (Tag(0, "{urn:p}a"),)
    assert part_of("@k").tags(index) == (Tag(1, "k"),)
    assert part_of("nothing").tags(index) == ()
    assert part_of("@*").tags(index) == tuple(tag for tag in index.tags if tag.kind == 1)
    elements = tuple(tag for tag in index.tags if tag.kind == 0)
    for match in ("*", "self::*", "text()"):
        assert part_of(match).tags(index) == elements
    assert part_of("p:*").tags(index) == (Tag(0, "{urn:p}a"),)


@pytest.mark.parametrize(
    ("match", "axis", "kind", "itself", "needs_anchors", "repeats", "done"),
    [
        ("a", Theta.CHILD, Kind.ELEMENT, False, False, False, True),
        (".//a[2]", Theta.DESCENDANT, Kind.ELEMENT, False, False, False, False),
        (".//a/b/@x", Theta.DESCENDANT, Kind.ATTRIBUTE, False, False, False, False),
        (".//a//b", Theta.DESCENDANT, Kind.ELEMENT, False, False, True, False),
        ("a//b", Theta.CHILD, Kind.ELEMENT, False, False, False, False),
        ("parent::a//b", Theta.PARENT, Kind.ELEMENT, False, False, False, False),
        ("ancestor::a", Theta.ANCESTOR, Kind.ELEMENT, False, False, False, True),
        ("ancestor::a[@x]", Theta.ANCESTOR, Kind.ELEMENT, False, False, False, False),
        ("ancestor::a[@x][1]//b", Theta.ANCESTOR, Kind.ELEMENT, False, True, True, False),
        (".", Theta.SELF, Kind.ELEMENT, True, False, False, True),
        ("self::a", Theta.SELF, Kind.ELEMENT, False, False, False, True),
        ("text()", Theta.SELF, Kind.TEXT, True, False, False, False),
        (".//text()", Theta.SELF, Kind.TEXT, True, False, False, False),
    ],
)
def test_a_part_knows_what_it_needs(
    match: str,
    axis: Theta,
    kind: Kind,
    itself: bool,
    needs_anchors: bool,
    repeats: bool,
    done: bool,
) -> None:
    part = part_of(match)
    assert (part.axis, part.kind, part.itself) == (axis, kind, itself)
    assert (part.needs_anchors, part.repeats, part.done) == (needs_anchors, repeats, done)


def test_an_operator_of_each_tag_gives_the_first_nodes(corpora: list[Corpus]) -> None:
    corpus = corpora[-1]
    labels = [label for _, label in corpus.elements]
    inputs = corpus.inputs(range(len(labels)), labels)
    for match in (".", "a", ".//*", "parent::*", "ancestor::p:a", "@k"):
        part = part_of(match)
        fed = [
            pair
            for tag in part.tags(corpus.index)
            for pair in pairs_of(ADMatch(corpus.index, tag, part.axis).feed(inputs))
        ]
        assert sorted(fed) == sorted(pairs_of(part.probe(corpus.index, inputs)))
        assert sorted(fed) == expected(corpus, match)


def test_positions_above_the_anchor_need_the_anchor(corpora: list[Corpus]) -> None:
    corpus = corpora[0]
    labels = [label for _, label in corpus.elements]
    part = part_of("ancestor::*[1]")
    first = part.probe(corpus.index, corpus.inputs(range(len(labels)), labels))
    with pytest.raises(ValueError, match="need the anchors"):
        part.finish(corpus.index, first)


def test_the_values_of_what_was_selected_are_in_the_index(corpora: list[Corpus]) -> None:
    for corpus in corpora:
        for match in (".//text()", ".//@x", ".//a"):
            part = part_of(match)
            inputs = corpus.inputs(
                range(len(corpus.trees)), [tree.labels[tree.root, ""] for tree in corpus.trees]
            )
            found = part.finish(corpus.index, part.probe(corpus.index, inputs), inputs)
            wanted = [
                value
                for tree in corpus.trees
                for value in (
                    each.xpath("string(.)") if part.kind is Kind.ELEMENT else str(each)
                    for each in tree.root.xpath(match)
                )
            ]
            order = [corpus.index.value(start) for start in found.start.tolist()]
            assert order == wanted


def test_records_are_read_again_when_there_is_no_room_for_them(corpora: list[Corpus]) -> None:
    match = ".//*[@x > 1][1]/text()"
    part = LocalPart(crossing_of(match), SPACES, evaluators=Evaluators(rows=1))
    for corpus in corpora:
        labels = [label for _, label in corpus.elements]
        inputs = corpus.inputs(range(len(labels)), labels)
        found = part.finish(corpus.index, part.probe(corpus.index, inputs))
        assert pairs_of(found) == expected(corpus, match)
