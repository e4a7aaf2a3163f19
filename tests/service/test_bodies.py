"""Messages in JSON are read a part of a string at a time, as the standard library reads them."""

from __future__ import annotations

import json
import random

import pytest

from fmware.service.bodies import LARGE_JSON, _listed
from fmware.service.problems import Problem

PARTS = (
    *("a", "é", "😀", "\\n", "\\\\", '\\"', "\\/", "\\u00e9", "\\ud83d\\ude00", "\\uD83D\\uDE00"),
    *("x" * 70_000, "\\n" * 9_000, "\\\\" * 8_191),
)
BAD = ("\\", "\\x", "\\u12", "\\u+123", "\x01", '"')


@pytest.mark.parametrize("seed", range(20))
def test_strings_are_those_of_json(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice(PARTS) for _ in range(30))
    text += " " * LARGE_JSON
    body = f'{{"messages": [{{"id": "i", "xml": "{text}"}}, {{"xml": ""}}]}}'.encode()
    (_, found), (_, empty) = _listed(body, 10)
    assert found == json.loads(f'"{text}"').encode()
    assert empty == b""


@pytest.mark.parametrize("bad", BAD)
def test_what_json_refuses_is_refused(bad: str) -> None:
    body = f'{{"messages": [{{"xml": "{" " * LARGE_JSON}{bad}z"}}]}}'.encode()
    with pytest.raises(ValueError, match=r"."):
        json.loads(body)
    with pytest.raises(Problem):
        _listed(body, 10)
