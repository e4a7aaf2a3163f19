"""Changes of statements that find documents in the automaton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fmware.filtering import FilterEngine, StatementRefused
from fmware.xpath import XPathError

if TYPE_CHECKING:
    from fmware.filtering.changes import Changes

DOCUMENT = b"<a b='1'><c/></a>"


@pytest.fixture
def engine() -> FilterEngine:
    engine = FilterEngine()
    engine.subscribe("/a", name="stays")
    return engine


@pytest.fixture
def held(engine: FilterEngine) -> FilterEngine:
    """The engine with its automaton taken, as by a document; given back by `_leave`."""
    engine._automaton.begin_change()
    return engine


def _leave(engine: FilterEngine) -> None:
    engine._automaton.end_change()


def test_a_change_does_not_wait_and_the_next_document_sees_it(held: FilterEngine) -> None:
    held.subscribe("//c", name="plain")
    held.subscribe("/a[@b = '1']", name="keyed")
    assert len(held._changes) == 2
    assert len(held) == 3
    _leave(held)
    assert sorted(held.filter(DOCUMENT).names) == ["keyed", "plain", "stays"]
    assert len(held._changes) == 0


def test_queued_changes_are_made_in_their_order(held: FilterEngine) -> None:
    first = held.subscribe("/a[@b = '1']")
    held.unsubscribe(first)
    second = held.subscribe("/a[@b = '2']", name="second")
    third = held.subscribe("//c[not(@d)]", name="third")
    held.replace(second, "/a[c]")
    _leave(held)
    assert second == first
    assert sorted(held.filter(DOCUMENT).names) == ["second", "stays", "third"]
    held.unsubscribe(third)
    assert sorted(held.filter(DOCUMENT).names) == ["second", "stays"]


def test_what_is_wrong_is_said_at_once(held: FilterEngine) -> None:
    with pytest.raises(XPathError):
        held.subscribe("/a[p:b = '1']")
    with pytest.raises(StatementRefused):
        held.subscribe("//a/local:b")
    assert len(held._changes) == 0
    _leave(held)


def test_the_version_counts_queued_changes(held: FilterEngine) -> None:
    before = held.version
    held.subscribe("/a[c]")
    told = held.version
    assert told > before
    _leave(held)
    assert held.filter_many([DOCUMENT, DOCUMENT]).version == told == held.version


def test_a_batch_lets_queued_changes_in(held: FilterEngine) -> None:
    number = held.subscribe("/a[c]")
    _leave(held)
    batch = held.filter_many([DOCUMENT] * 3)
    assert not batch.mixed
    assert [number in held.filter(DOCUMENT).ids for _ in range(2)] == [True, True]


class _Fails:
    def apply(self, changes: Changes) -> None:
        raise MemoryError


def test_a_change_that_cannot_be_made_is_not_lost(engine: FilterEngine) -> None:
    with pytest.raises(MemoryError):
        engine._changes.put(_Fails())
    assert engine.filter(DOCUMENT).names == ["stays"]
    engine._automaton.begin_change()
    engine._changes.put(_Fails())
    _leave(engine)
    # No document is answered as if it had been made.
    for _ in range(2):
        with pytest.raises(MemoryError):
            engine.filter(DOCUMENT)
    with pytest.raises(MemoryError):
        engine.subscribe("/a[c]")
    assert len(engine._changes) == 1
