"""A hit is written down once, by whoever found it, and says the same wherever it is read."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.filtering import FilterEngine
from fmware.matching import Evaluators
from fmware.matching.plan import Plan
from fmware.matching.registry import Registry
from fmware.matching.results import LocalMatches, LocalNode, Results, Troubles
from fmware.service.envelope import Envelope, Hit, hit_id
from fmware.service.found import SEPARATOR, Encoder, Found, Writing
from fmware.service.jobs import outcomes_of
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


def results_of(message: str, statement: str, local: LocalNode | None) -> Results:
    """A message with one match."""
    plan = Plan(Statement.parse("//a/local:b", name=statement, returns="local"), Evaluators())
    found = FilterEngine().filter_many([b"<a/>"])
    matches = LocalMatches([1], [plan], [()], [local])
    return Results([message], found, Registry(), matches, Troubles(), {})


def written(
    tenant: str, message: str, statement: str, local: LocalNode | None
) -> tuple[Found, list[Any]]:
    """What a worker says of a message with one match."""
    encoder = Encoder()
    batch = encoder.begin()
    name = f"{tenant}{SEPARATOR}{statement}"
    matches = encoder.matches(results_of(message, name, local))
    told = (tenant, message, b"", "2026-01-02T03:04:05.678Z")
    assert encoder.add(batch, told, matches, 0, {name: Writing(name)}) is None
    batch.said.append([len(batch.ids), [], None, 0, False])
    return batch, batch.columns()


@given(TEXTS.filter(lambda tenant: SEPARATOR not in tenant), TEXTS, TEXTS, LOCALS)
def test_a_line_says_what_the_hit_says(
    tenant: str, message: str, statement: str, local: LocalNode | None
) -> None:
    batch, columns = written(tenant, message, statement, local)
    envelope = Envelope(message, b"", tenant, time="2026-01-02T03:04:05.678Z")
    ((outcome,), _) = outcomes_of([envelope], columns, batch.text())
    (read,) = outcome.hits
    start = None if local is None else local.start
    assert read.id == hit_id(tenant, message, statement, (), start)
    made = Hit(read.id, message, tenant, statement, read.match, envelope.time)
    assert read.line() == made.line()
    assert b"\n" not in read.line()
    assert read == made
    assert read.match.get("local", {}).get("tag") == (None if local is None else local.tag)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=3, max_size=3))
def test_ids_are_equal_only_if_all_parts_are(parts: list[str]) -> None:
    tenant, message, statement = parts
    found = hit_id(tenant, message, statement, (1, 2), 7)
    wanted = [tenant, message, statement, "1.2@7"][tenant == "default" :]
    escaped = ":".join(quote(each, safe="/@[]()<>='*,|$") for each in wanted)
    assert found == escaped or len(escaped) > 200


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([[[1, [], None, 0, False]], [["default", "s"]], [0], ["id"], {}], b"two\nlines"),
        ([[[2, [], None, 0, False]], [["default", "s"]], [0], ["id"], {}], b"line"),
        ([[[1, [], None, 0, False]], [["default", "s"]], [1], ["id"], {}], b"line"),
        ([[[1, [], None, 0, False]], [["default", "s"]], [-1], ["id"], {}], b"line"),
        ([[[1, [], None, 0, False]], [["default", "s"]], [0], [["id"]], {}], b"line"),
        ([[[1, [], None, 0, False]], ["default"], [0], ["id"], {}], b"line"),
        ([[], [], [], [], {}], b""),
        ([7], b""),
        (None, b""),
    ],
)
def test_what_a_worker_says_must_make_sense(columns: Any, text: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        outcomes_of([Envelope("m", b"<a/>")], columns, text)
