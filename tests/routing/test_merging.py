"""Merging: perfect, imperfect within a bound, and undone when members leave."""

from __future__ import annotations

import pytest

from fmware.routing import MergingTree, Pattern, Sample, SampleMeasure, SchemaMeasure, read_dtd
from fmware.routing.merging import mergers

DTD = b"""<!ELEMENT a (b, x*)> <!ELEMENT x (c)> <!ELEMENT b (c)> <!ELEMENT c (d | e | f | g | h)*>
<!ELEMENT d EMPTY> <!ELEMENT e EMPTY> <!ELEMENT f EMPTY> <!ELEMENT g EMPTY> <!ELEMENT h EMPTY>"""
SCHEMA = SchemaMeasure(read_dtd(DTD))
ALL = ("/a/*/c/d", "/a/*/c/e", "/a/*/c/f", "/a/*/c/g", "/a/*/c/h")


def patterns(*texts: str) -> list[Pattern]:
    return [Pattern(text) for text in texts]


def texts(found: object) -> set[str]:
    return {pattern.text for pattern in found}  # type: ignore[attr-defined]


def test_all_alternatives_make_a_perfect_merger() -> None:
    (merger,) = mergers(patterns(*ALL), SCHEMA)
    assert merger.pattern.text == "/a/*/c/*"
    assert merger.imperfect == 0
    assert list(mergers(patterns(*ALL[:4]), SCHEMA)) == []


def test_the_papers_example_of_an_imperfect_merger() -> None:
    (merger,) = mergers(patterns("/a/*/c/d", "/a/*/c/e"), SCHEMA, bound=0.6)
    assert merger.imperfect == pytest.approx(0.6)
    assert list(mergers(patterns("/a/*/c/d", "/a/*/c/e"), SCHEMA, bound=0.59)) == []


def test_a_sample_measures_too() -> None:
    words = [("a", "b", "d"), ("a", "b", "e"), ("a", "b", "e"), ("a", "b", "f")]
    measure = SampleMeasure(Sample([[word] for word in words]))
    (merger,) = mergers(patterns("/a/b/d", "/a/b/e"), measure, bound=0.5)
    assert merger.imperfect == 0.25


def test_different_middles_are_merged_with_a_gap() -> None:
    found = list(mergers(patterns("/a/b/c/d", "/a/x/c/d"), SCHEMA, bound=0.9))
    assert found
    assert found[0].pattern.text in ("/a/*/c/d", "/a//c/d")


def test_mergers_are_undone_when_members_leave() -> None:
    tree = MergingTree(SCHEMA)
    for text in (*ALL, "/a/b"):
        tree.insert(Pattern(text))
    change = tree.merge()
    assert texts(change.added) == {"/a/*/c/*"}
    assert texts(change.removed) == set(ALL)
    assert not tree.insert(Pattern("/a/x/c/d"))
    change = tree.remove(Pattern("/a/*/c/h"))
    assert texts(change.removed) == {"/a/*/c/*"}
    assert texts(change.added) == set(ALL[:4])
    assert texts(tree.maximal()) == {*ALL[:4], "/a/b"}


def test_an_imperfect_merger_lasts_within_its_bound() -> None:
    tree = MergingTree(SCHEMA, bound=0.5)
    for text in ALL[:4]:
        tree.insert(Pattern(text))
    assert texts(tree.merge().added) == {"/a/*/c/*"}
    assert not tree.remove(Pattern(ALL[0]))
    assert tree.merged[0].imperfect == pytest.approx(0.4)
    assert texts(tree.remove(Pattern(ALL[1])).added) == {ALL[2], ALL[3]}


def test_a_member_that_is_covered_leaves_its_merger() -> None:
    tree = MergingTree(SCHEMA)
    for text in ALL:
        tree.insert(Pattern(text))
    tree.merge()
    tree.insert(Pattern("//d"))
    assert texts(tree.maximal()) == {"//d", *ALL[1:]}
