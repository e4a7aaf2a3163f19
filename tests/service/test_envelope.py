"""A hit is written down once, by whoever found it, and says the same wherever it is read."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.filtering import FilterEngine
from fmware.matching import Evaluators
from fmware.matching._kernel import Hits
from fmware.matching.described import Descriptions
from fmware.matching.limits import MatchLimits
from fmware.matching.plan import Plan
from fmware.matching.registry import Registry
from fmware.matching.results import LocalMatches, LocalNode, Results, Troubles
from fmware.matching.to_json import matches_of
from fmware.service._columns import Writing
from fmware.service.envelope import Envelope, Hit, hit_id
from fmware.service.found import Found, Notes, outcomes_of
from fmware.service.hits import SEPARATOR
from fmware.statements import Statement

NAMES = st.text(max_size=12) | st.sampled_from(
    ["a:b", "a%3Ab", "m-1.x~y", "ü", "\udc80", "//a[b='c']"]
)
TEXTS = NAMES.filter(lambda name: "\udc80" not in name)
LOCALS = st.none() | st.builds(
    LocalNode,
    tag=NAMES,
    start=st.integers(0, 99),
    end=st.integers(0, 99),
    level=st.integers(0, 9),
    path=NAMES,
    source=st.none() | NAMES,
    value=st.none() | NAMES,
    fragment=st.none() | st.binary(max_size=9),
)


class Given(Descriptions):
    """Describes every node in the same way."""

    def __init__(self, node: LocalNode | None) -> None:
        self._node = node

    def of(self, segment: int, start: int, plan: Plan) -> LocalNode:
        assert self._node is not None
        return self._node


def results_of(
    message: str, local: LocalNode | None, *statements: str, limits: MatchLimits | None = None
) -> Results:
    """A message with one match of each statement."""
    plans = [
        Plan(Statement.parse("//a/local:b", name=each, returns="local"), Evaluators())
        for each in statements
    ]
    found = FilterEngine().filter_many([b"<a/>"])
    place = -1 if local is None else 0
    lines = [(number, 0, place, place, place, 0) for number in range(len(plans))]
    matches = LocalMatches(
        Hits([len(plans)], lines), plans, [*range(len(plans))], [1] * len(plans), Given(local)
    )
    return Results([message], found, Registry(), matches, Troubles(), {}, limits or MatchLimits())


def written(tenant: str, message: str, statement: str, local: LocalNode | None) -> Found:
    """What a worker says of a message with one match."""
    batch = Found()
    name = f"{tenant}{SEPARATOR}{statement}"
    results = results_of(message, local, name)
    told = (tenant, message, "2026-01-02T03:04:05.678Z", b"")
    notes = Notes(results, {name: Writing(name)})
    assert notes.write(0, told, batch) == []
    batch.text = notes.text()
    return batch


@given(TEXTS.filter(lambda tenant: SEPARATOR not in tenant), TEXTS, TEXTS, LOCALS)
def test_a_line_says_what_the_hit_says(
    tenant: str, message: str, statement: str, local: LocalNode | None
) -> None:
    batch = written(tenant, message, statement, local)
    envelope = Envelope(message, b"", tenant, time="2026-01-02T03:04:05.678Z")
    ((outcome,), _) = outcomes_of([envelope], json.loads(json.dumps(batch.numbers())), batch.text)
    (read,) = list(outcome.hits)
    start = None if local is None else local.start
    assert read.id == hit_id(tenant, message, statement, (), start)
    made = Hit(read.id, message, tenant, statement, read.match, envelope.time)
    assert read.line() == made.line()
    assert b"\n" not in read.line()
    assert read == made
    (wanted,) = matches_of(results_of(message, local, statement)[0])
    assert read.match == wanted


def test_hits_that_hold_too_much_are_left_out_and_said() -> None:
    """Those of other tenants hold nothing: they are not made."""
    local = LocalNode("b", 1, 2, 1, "/b", None, value="v" * 50)
    names = [f"{tenant}{SEPARATOR}{each}" for tenant in ("them", "us") for each in ("one", "two")]
    results = results_of("m", local, *names, limits=MatchLimits(bytes=200))
    notes = Notes(results, {name: Writing(name) for name in names})
    found = Found()
    (wrong,) = notes.write(0, ("us", "m", "", b""), found)
    assert wrong.startswith("statement two: more matches than the limits allow")
    found.text = notes.text()
    ((outcome,), _) = outcomes_of([Envelope("m", b"", "us")], found.numbers(), found.text)
    assert [hit.statement for hit in outcome.hits] == ["one"]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=3, max_size=3))
def test_ids_are_equal_only_if_all_parts_are(parts: list[str]) -> None:
    tenant, message, statement = parts
    found = hit_id(tenant, message, statement, (1, 2), 7)
    wanted = [tenant, message, statement, "1.2@7"][tenant == "default" :]
    escaped = ":".join(quote(each, safe="/@[]()<>='*,|$") for each in wanted)
    assert found == escaped or len(escaped) > 200


GOOD = b'id"t","s"{}'


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([[2, 7, 2, 0], [], {}], GOOD + b"x"),
        ([[2, 7, 3, 0], [], {}], GOOD),
        ([[2, 7, 2], [], {}], GOOD),
        ([[2, 7, 2, 0, 0, 0, 0, 0], [], {}], GOOD),
        ([[2, -7, 2, 0], [], {}], GOOD),
        ([[4, 7, 2, 0], [], {}], b"i\nd" + GOOD[1:]),
        ([[2, 7, 3, 0], [], {}], b'id"t","s"{\n}'),
        ([[2, 15, 2, 0], [], {}], b'id"t","s"\n"t","s"{}'),
        ([[2, 6, 3, 0], [], {}], GOOD),
        ([[2, 3, 6, 0], [], {}], GOOD),
        ([[2, "7", 2, 0], [], {}], GOOD),
        ([[2, 7, 2, 0], [[1, [], None, False]], {}], GOOD),
        ([[2, 7, 2, 0], [[0]], {}], GOOD),
        ([[], [], {}], b""),
        ([7], b""),
        (None, b""),
    ],
)
def test_what_a_worker_says_must_make_sense(numbers: Any, text: bytes) -> None:
    envelope = Envelope("m", b"<a/>")
    with pytest.raises((ValueError, TypeError, IndexError)):
        outcomes_of([envelope], numbers, text)
    ((outcome,), _) = outcomes_of([envelope], [[2, 7, 2, 0], [], {}], GOOD)
    assert [hit.id for hit in outcome.hits] == ["id"]
