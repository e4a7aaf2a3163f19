"""The engine: statements come, go and change places; caps hold; the rest goes on."""

from __future__ import annotations

import pytest

from fmware import UndeclaredPrefix, Vocabulary
from fmware.filtering import FilterEngine, FilterLimits, ForeignTable, StatementRefused

P = {"p": "urn:p"}
COUNTS = ("states", "edges", "patterns", "entries", "conditions", "literals")
EMPTY = dict(zip(COUNTS, (1, 0, 0, 0, 0, 0), strict=True))


def counts(engine: FilterEngine) -> dict[str, int]:
    stats = engine.stats()
    return {key: stats[key] for key in COUNTS}


def test_a_table_that_nothing_matches_is_answered() -> None:
    engine = FilterEngine()
    engine.subscribe("/a/b")
    assert engine.filter(engine.reader.read(b"<c/>")).ids.tolist() == []


@pytest.mark.parametrize(
    "text", ["//local:a", "/a/local:b", "//a[local:b]", "//a[b[not(local:c)]]"]
)
def test_local_steps_are_refused_wherever_they_stand(text: str) -> None:
    engine = FilterEngine()
    with pytest.raises(ValueError, match="local"):
        engine.subscribe(text)
    assert counts(engine) == EMPTY
    assert len(engine) == 0


@pytest.mark.parametrize("text", ["//p:*", "/p:a", "/a/p:*/b", "//a[p:b]", "//a[@p:*]", "//@p:x"])
@pytest.mark.parametrize("tuples", [False, True])
def test_an_undeclared_prefix_leaves_the_engine_as_it_was(text: str, tuples: bool) -> None:
    engine = FilterEngine()
    kept = engine.subscribe("/a")
    before = counts(engine)
    with pytest.raises(UndeclaredPrefix):
        engine.subscribe(text, tuples=tuples)
    with pytest.raises(UndeclaredPrefix):
        engine.replace(kept, text)
    assert counts(engine) == before
    assert engine.filter(b"<a/>").ids.tolist() == [kept]
    assert engine.subscribe("/b") == kept + 1


def test_a_full_engine_refuses_more_and_still_replaces() -> None:
    engine = FilterEngine(limits=FilterLimits(statements=1))
    only = engine.subscribe("/a")
    with pytest.raises(StatementRefused, match="1 statements"):
        engine.subscribe("/b")
    engine.replace(only, "/b")
    assert engine.filter(b"<b/>").ids.tolist() == [only]


def test_a_full_vocabulary_refuses_the_statement_and_changes_nothing() -> None:
    engine = FilterEngine(vocabulary=Vocabulary(limit=4))
    kept = engine.subscribe("/a/b")
    before = counts(engine)
    for text in ("/a/q", "/a[c/d]", "/a/b[@e = 'x']"):
        with pytest.raises(StatementRefused, match="vocabulary is full"):
            engine.subscribe(text)
        with pytest.raises(StatementRefused, match="vocabulary is full"):
            engine.replace(kept, text)
    assert counts(engine) == before
    assert engine.filter(b"<a><b/></a>").ids.tolist() == [kept]


def test_a_table_of_another_vocabulary_is_foreign() -> None:
    engine = FilterEngine()
    with pytest.raises(ForeignTable, match="another vocabulary"):
        engine.filter(FilterEngine().reader.read(b"<a/>"))
