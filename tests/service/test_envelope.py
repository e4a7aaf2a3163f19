"""A hit is written down once, by whoever found it, and says the same wherever it is read."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service.envelope import Envelope, Hit, hit_id, hit_line
from fmware.service.jobs import outcome_of

NAMES = st.text(max_size=12) | st.sampled_from(
    ["a:b", "a%3Ab", "m-1.x~y", "ü", "\udc80", "//a[b='c']"]
)
MATCHES = st.dictionaries(
    st.sampled_from(["nodes", "local"]),
    st.dictionaries(st.sampled_from(["path", "value"]), NAMES),
)


@given(NAMES, NAMES, NAMES, NAMES, MATCHES)
def test_a_line_says_what_the_hit_says(
    name: str, tenant: str, message: str, statement: str, match: dict[str, Any]
) -> None:
    made = Hit(name, message, tenant, statement, match)
    line = hit_line(name, tenant, message, statement, match).encode(errors="backslashreplace")
    read = Hit.of_line(name, message, tenant, statement, line)
    assert read.line() == made.line()
    assert b"\n" not in read.line()
    assert read.match == match
    assert read == made


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=3, max_size=3))
def test_ids_are_equal_only_if_all_parts_are(parts: list[str]) -> None:
    tenant, message, statement = parts
    found = hit_id(tenant, message, statement, (1, 2), 7)
    wanted = [tenant, message, statement, "1.2@7"][tenant == "default" :]
    escaped = ":".join(quote(each, safe="/@[]()<>='*,|$") for each in wanted)
    assert found == escaped or len(escaped) > 200


@pytest.mark.parametrize("line", [7, None, {"a": 1}, 'not\na "line"'])
def test_what_a_worker_says_must_be_a_line(line: object) -> None:
    told = [[["id", "default", "s", line]], [], None, 0, False]
    with pytest.raises(ValueError, match="line"):
        outcome_of(Envelope("m", b"<a/>"), told, {})
