"""Many messages at once: the columns say what `filter` says of each message."""

from __future__ import annotations

from random import Random

import pytest

from fmware.filtering import FilterBatch, FilterEngine, FilterLimits, Want
from fmware.labeling import CHARACTER_ENTITIES, LimitExceeded, Limits, MalformedXML, reading_counts
from tests.filtering.workload import NAMESPACES, document, statement

BAD = b"<a><b></a>"
DOCTYPE = b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"


def named(batch: FilterBatch, place: int) -> set[int]:
    """The statements of a message that asked for their name."""
    begin = int(batch.ends[place - 1, 0]) if place else 0
    return {*batch.ids[begin : int(batch.ends[place, 0])].tolist()}


def tuples(batch: FilterBatch, place: int) -> list[tuple[int, ...]]:
    """The statement and the rows of each tuple of a message."""
    begin = int(batch.ends[place - 1, 1]) if place else 0
    told = batch.told[begin : int(batch.ends[place, 1])].tolist()
    return [(number, *batch.rows[at : at + width].tolist()) for number, at, width in told]


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_says_what_each_message_alone_says(seed: int) -> None:
    random = Random(f"many {seed}")
    engine = FilterEngine()
    wants: dict[int, Want] = {}
    for _ in range(60):
        want = random.choice([*Want])
        number = engine.subscribe("".join(statement(random)), namespaces=NAMESPACES, wants=want)
        wants[number] = want
    messages = [document(random) for _ in range(40)]
    batch = engine.filter_many(messages)
    assert not batch.errors
    crossed: dict[int, dict[int, list[list[int]]]] = {}
    begin = 0
    for place, end in enumerate(batch.ends[:, 2].tolist()):
        for number, at, count, width in batch.crossed[begin:end].tolist():
            rows = batch.rows[at : at + count * width].reshape(count, width).tolist()
            crossed.setdefault(place, {})[number] = rows
        begin = end
    for place, message in enumerate(messages):
        alone = engine.filter(message)
        assert named(batch, place) == {
            number for number in alone.ids.tolist() if wants[number] == Want.NAME
        }
        told: list[tuple[int, ...]] = []
        for found, lines in alone.tuples.items():
            if wants[found] == Want.TUPLES:
                told += [(found, *row) for row in lines.tolist()]
            elif wants[found] == Want.SELECTED:
                told += [(found, row) for row in sorted({*lines[:, -1].tolist()})]
        assert sorted(tuples(batch, place)) == sorted(told)
        assert crossed.get(place, {}) == {
            number: lines.tolist()
            for number, lines in alone.tuples.items()
            if wants[number] == Want.CROSSING
        }
        table = batch.table(place)
        assert table is not None
        assert [*table.records()] == [*alone.table.records()]


def test_messages_of_all_kinds_in_one_batch() -> None:
    """Bytes, tables, what cannot be read and what is left out: each in its own place."""
    engine = FilterEngine()
    number = engine.subscribe("//b", wants=Want.TUPLES)
    table = engine.reader.read(b"<a><b/><b/></a>")
    batch = engine.filter_many([b"<a><b/></a>", BAD, table, None, DOCTYPE, b"<b/>", b""])
    assert [tuples(batch, place) for place in range(7)] == [
        [(number, 1)],
        [],
        [(number, 1), (number, 2)],
        [],
        [],
        [(number, 0)],
        [],
    ]
    assert [*batch.errors] == [1, 4, 6]
    assert isinstance(batch.errors[1], MalformedXML)
    assert batch.table(2) is table
    assert batch.table(1) is None
    assert batch.table(3) is None


def test_a_message_with_entities_is_read_the_careful_way() -> None:
    engine = FilterEngine(entities=CHARACTER_ENTITIES)
    number = engine.subscribe("//a[. = 'y']")
    before = reading_counts()["read"]
    batch = engine.filter_many([DOCTYPE, b"<a>y</a>", b"<a>&#110;</a>", b"<a>&eacute;</a>", BAD])
    found = [named(batch, place) for place in range(5)]
    assert found == [{number}, {number}, set(), set(), set()]
    # The plain ones natively, by the fast reader; of the others it reads none.
    assert reading_counts()["read"] == before + 2
    assert [*batch.errors] == [4]


def test_limits_hold_for_each_message() -> None:
    engine = FilterEngine(limits=FilterLimits(tuples=2), read_limits=Limits(bytes=1_000, depth=5))
    number = engine.subscribe("//b", wants=Want.TUPLES)
    many = b"<a>" + b"<b/>" * 40 + b"</a>"
    batch = engine.filter_many([many, b"<a>" * 6 + b"</a>" * 6, b"<a/>" + b" " * 1_000, many])
    assert {place: type(error) for place, error in batch.errors.items()} == {
        1: LimitExceeded,
        2: LimitExceeded,
    }
    assert len(tuples(batch, 0)) == len(tuples(batch, 3)) == 2
    assert batch.truncated.tolist() == [number, number]
    assert batch.ends[:, 5].tolist() == [1, 1, 1, 2]


def test_what_is_not_decided_is_named() -> None:
    engine = FilterEngine(limits=FilterLimits(work=150))
    number = engine.subscribe("//a[not(.//b[x])]")
    many = b"<a>" + b"<b/>" * 40 + b"</a>"
    batch = engine.filter_many([many, b"<a/>", many])
    assert batch.undecided.tolist() == [number, number]
    assert batch.ends[:, 4].tolist() == [1, 1, 2]


def test_a_batch_knows_which_statements_answered() -> None:
    engine = FilterEngine()
    engine.subscribe("//a")
    before = engine.filter_many([b"<a/>", b"<a/>"])
    engine.subscribe("//b")
    after = engine.filter_many([b"<a/>"])
    assert before.version < after.version
    assert not before.mixed
    assert engine.filter_many([]).version == -1


def test_a_message_that_is_not_filtered_says_nothing_of_statements() -> None:
    engine = FilterEngine()
    engine.subscribe("//a")
    engine.filter_many([b"<a/>"])
    engine.subscribe("//b")
    for first in (BAD, None):
        batch = engine.filter_many([first, b"<a/>", first])
        assert (batch.version, batch.mixed) == (engine.version, False)
        assert engine.filter_many([first, first]).version == -1
        engine.subscribe("//c")
