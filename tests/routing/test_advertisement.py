"""Advertisements: their notation, and what they intersect."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import pytest

from fmware.routing import Advertisement, AdvertisementError
from fmware.routing.advertisement import shape
from tests.routing import drawn


@pytest.mark.parametrize(
    ("dtd", "lines"),
    [
        (b"<!ELEMENT a (b, c?)><!ELEMENT b EMPTY><!ELEMENT c EMPTY>", ["/a/b", "/a/c"]),
        (b"<!ELEMENT a (a?, b)><!ELEMENT b (b*, c)><!ELEMENT c EMPTY>", ["(/a)+(/b)+/c"]),
        (
            b"<!ELEMENT a (b)><!ELEMENT b (c)><!ELEMENT c (b | d)><!ELEMENT d EMPTY>",
            ["/a(/b/c)+/d"],
        ),
    ],
)
def test_a_dtd_is_written_as_in_the_paper(dtd: bytes, lines: list[str]) -> None:
    assert list(Advertisement.from_dtd(dtd).expressions()) == lines


def test_kinds_are_those_of_the_paper() -> None:
    assert shape("/a/b") == "non-recursive"
    assert shape("/a(/b/c)+/d") == "simple"
    assert shape("/a(/b)+/c(/d)+") == "series"
    assert shape("/a(/b(/c)+/d)+/e") == "embedded"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("/*/a/c/*/d/e/d/*", True),
        ("/a/*/c/e/d/x/c/e", True),
        ("/a/*/c/e/d/x/c/e/*", False),
        ("//e/d/e/d", True),
        ("//q//e/e", False),
    ],
)
def test_the_papers_recursive_example(statement: str, expected: bool) -> None:
    assert Advertisement.parse("/a/*/c(e/d)+/*/c/e").intersects(statement) is expected


def test_intersection_is_exact_by_brute_force() -> None:
    rng = Random(4)
    words = ["/" + "/".join(w) for n in range(1, 9) for w in product("abz", repeat=n)]
    seen = {True: 0, False: 0}
    for _ in range(60):
        text = _expression(rng, 2)
        pattern = re.compile(text.replace("*", "[abz]"))
        announced = [word for word in words if pattern.fullmatch(word)]
        advertisement = Advertisement.parse(text)
        for _ in range(12):
            path = drawn.linear(rng, 4, leaves=False)
            found = advertisement.intersects(path)
            assert found == any(_path(path).match(word) for word in announced), (text, path)
            seen[found] += 1
    assert min(seen.values()) > 50


def _expression(rng: Random, depth: int) -> str:
    text = ""
    for _ in range(rng.randint(1, 2)):
        if depth and rng.random() < 0.45:
            ways = [_expression(rng, depth - 1) for _ in range(rng.randint(1, 2))]
            text += f"({'|'.join(ways)})+"
        else:
            text += "/" + rng.choice("ab*")
    return text


def _path(path: str) -> re.Pattern[str]:
    return re.compile(
        "".join(
            ("(?:/[abz])*" if gap == "//" else "") + f"/{'[abz]' if name == '*' else name}"
            for gap, name in re.findall(r"(//?)([a-z*])", path)
        )
    )


def test_what_is_printed_announces_the_same() -> None:
    source = b"<!ELEMENT a (b)><!ELEMENT b (c)><!ELEMENT c (c?, d)><!ELEMENT d (b?)>"
    whole = Advertisement.from_dtd(source)
    lines = list(whole.expressions())
    assert {shape(line) for line in lines} >= {"embedded", "non-recursive"}
    parts = [Advertisement.parse(line) for line in lines]
    rng = Random(2)
    for _ in range(300):
        path = drawn.linear(rng, 5, leaves=False).replace("*", rng.choice("cd*"))
        assert whole.intersects(path) == any(part.intersects(path) for part in parts), path


def test_a_schema_is_learnt_from_messages() -> None:
    learnt = Advertisement.from_words(
        [[("a",), ("a", "b"), ("a", "b", "@x"), ("a", "b", "a"), ("a", "b", "text()")]]
    )
    assert learnt.intersects("/a/b/a/b/@x")
    assert learnt.intersects("//b/text()")
    assert not learnt.intersects("/a/a")
    assert not learnt.intersects("/a/@x")


@pytest.mark.parametrize("text", ["", "/a(", "/a(/b", "/a)+", "/a()+", "/a//", "(" * 300 + "a"])
def test_a_bad_notation_is_refused(text: str) -> None:
    with pytest.raises(AdvertisementError):
        Advertisement.parse(text)
