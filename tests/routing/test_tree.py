"""The subscription tree: its relations are those of `covers`, whatever came and went."""

from __future__ import annotations

from random import Random

import pytest

from fmware.routing import Pattern, SubscriptionTree, UnknownSubscription, covers
from tests.routing import oracle


def keys(patterns: object) -> set[str]:
    return {pattern.key for pattern in patterns}  # type: ignore[attr-defined]


def test_a_wider_statement_takes_the_place_of_those_it_covers() -> None:
    tree = SubscriptionTree()
    tree.insert("/a/b")
    tree.insert("/a/c")
    change = tree.insert("/a/*")
    assert [pattern.text for pattern in change.added] == ["/a/*"]
    assert keys(change.removed) == {"/a/b", "/a/c"}
    assert keys(tree.children("/a/*")) == {"/a/b", "/a/c"}
    assert not tree.insert("/a/b/d")
    assert tree.parent("/a/b/d") is not None
    change = tree.remove("/a/*")
    assert keys(change.added) == {"/a/b", "/a/c"}
    assert keys(change.removed) == {"/a/*"}


def test_super_pointers_lead_to_what_is_covered_elsewhere() -> None:
    tree = SubscriptionTree()
    for text in ("/a//c", "//b", "/a/b/c"):
        tree.insert(text)
    above = tree.parent("/a/b/c")
    assert above is not None
    other = ({"/a//c", "//b"} - {above.key}).pop()
    assert keys(tree.supers(other)) == {"/a/b/c"}
    assert tree.supers(above) == []


def test_equal_statements_count() -> None:
    tree = SubscriptionTree()
    assert tree.insert("/a[b][c]")
    assert not tree.insert("/a[c][b]")
    assert len(tree) == 1
    assert not tree.remove("/a[b][c]")
    assert tree.remove("/a[b][c]")
    with pytest.raises(UnknownSubscription, match="no statement"):
        tree.remove("/a[b][c]")


def test_a_statement_that_never_matches_is_not_maximal() -> None:
    tree = SubscriptionTree()
    assert not tree.insert("/a[b < 'x']")
    assert list(tree.maximal()) == []
    assert not tree.remove("/a[b < 'x']")


@pytest.mark.parametrize("seed", range(4))
def test_relations_are_those_of_covers_while_statements_come_and_go(seed: int) -> None:
    rng = Random(seed)
    tree = SubscriptionTree()
    here: dict[str, Pattern] = {}
    forwarded: set[str] = set()
    for text in oracle.statements(rng, 160):
        pattern = Pattern(text)
        if pattern.key in here:
            continue
        here[pattern.key] = pattern
        changes = [tree.insert(pattern)]
        if rng.random() < 0.4:
            changes.append(tree.remove(here.pop(rng.choice(list(here)))))
        for change in changes:
            assert keys(change.removed) <= forwarded
            assert not keys(change.added) & forwarded
            forwarded = forwarded - keys(change.removed) | keys(change.added)
    assert forwarded == keys(tree.maximal())
    assert tree.tops == len(forwarded)
    _check_relations(tree, here)


def _check_relations(tree: SubscriptionTree, here: dict[str, Pattern]) -> None:
    for pattern in here.values():
        if pattern.never:
            continue
        others = [o for o in here.values() if o.key != pattern.key]
        above = keys(o for o in others if covers(o, pattern))
        assert keys(tree.covering(pattern)) == above
        below = keys(o for o in others if covers(pattern, o) and not o.never)
        assert keys(o for o in tree.covered(pattern) if not o.never) == below
        parent = tree.parent(pattern)
        assert parent is None or parent.key in above
        # Maximal: nothing covers it that is not covered by it as well.
        assert (parent is None) == (pattern.key in keys(tree.maximal()))
        if parent is None:
            assert above <= below


def test_memory_is_given_back() -> None:
    tree = SubscriptionTree()
    for round_ in range(3):
        texts = [f"//a{n}/b{round_}/c" for n in range(300)]
        for text in texts:
            tree.insert(text)
        for text in texts:
            tree.remove(text)
    assert len(tree) == 0
    assert tree._index.nodes == 1
