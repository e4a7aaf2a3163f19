"""Covering: exact on linear paths, never wrong on others."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from fmware.routing.covering import _long_covers, covers, equivalent, linear_covers
from fmware.routing.pattern import Pattern
from fmware.xpath import Axis, parse
from tests.routing import drawn, oracle, words

LONGEST = 7


def test_every_pair_of_short_paths_is_decided_as_by_brute_force() -> None:
    steps = [gap + name for gap in ("/", "//") for name in ("a", "b", "*")]
    leaves = [gap + name for gap in ("/", "//") for name in ("@x", "@*", "text()")]
    paths = ["".join(p) for n in (1, 2) for p in itertools.product(steps, repeat=n)]
    paths += [head + leaf for head in ("", *paths[:6]) for leaf in leaves]
    assert _mismatches(paths) == []


def test_longer_paths_are_decided_as_by_brute_force() -> None:
    rng = Random(5)
    paths = [drawn.linear(rng, 4) for _ in range(90)]
    assert _mismatches(paths) == []


def _mismatches(paths: list[str]) -> list[tuple[str, str]]:
    bits = {path: words.accepted(path, LONGEST) for path in paths}
    return [
        (p, q)
        for p, q in itertools.product(bits, repeat=2)
        if covers(p, q) != (bits[q] & ~bits[p] == 0)
    ]


@pytest.mark.parametrize(
    ("covering", "covered", "expected"),
    [
        ("//a/*", "//b//c/a", False),
        ("//*/a", "/*//a", True),
        ("/*//a", "//*/a", True),
        ("/*", "//@x", True),
        ("/a/*", "/a/@x", False),
        ("/a//@x", "/a/@x", True),
        ("/a//text()", "/a/b/text()", True),
        ("/a[b]", "/a/b/c", True),
        ("/a/b", "/a[b/c]/d", True),
        ("//b[c]", "/a/b[c and d]", True),
        ("//*/a[b]", "/*//a[b]", True),
        ("/a[*/*]", "/a[b//c]", True),
        ("/a[b or c]", "/a[c]", True),
        ("/a[b or c or d]", "/a[d or b]", True),
        ("/a[b]", "/a[b/c or b/d]", True),
        ("/a[not(b/c)]", "/a[not(b)]", True),
        ("/a[not(b)]", "/a[not(b/c)]", False),
        ("/a[x = 1]", "/a[x = '1']", True),
        ("/a[x = '1']", "/a[x = 1]", False),
        ("/a[x != 1]", "/a[x = 'one']", True),
        ("/a[x > 1]", "/a[x > 2]", True),
        ("/a[x >= 2]", "/a[x > 2]", True),
        ("/a[x > 2]", "/a[x >= 2]", False),
        ("/a[x != 'b']", "/a[x < 2]", True),
        ("/a[x = 2]", "/a[x > 1][x < 3]", False),
        ("/a[@x > 1]", "/a[@x > 2][@x < 5]", True),
        ("/a[contains(@x, 'b')]", "/a[@x = 'abc']", True),
        ("/a[contains(x, 'b')]", "/a[x = 'abc']", False),
        ("/a[starts-with(x, 'a')]", "/a[starts-with(x, 'ab')]", True),
        ("/a/b[1]", "/a/b[1][c]", True),
        ("/a/b[1]", "/a/b[c][1]", False),
        ("//b[1]", "/a/b[1]", True),
        ("/a/b", "/a/local:b", False),
    ],
)
def test_single_cases(covering: str, covered: str, expected: bool) -> None:
    assert covers(covering, covered) is expected


def test_what_can_never_match_is_covered_by_all() -> None:
    for never in ("/@x", "/text()", "/a[b < 'x']", "/a[@x = 1][@x = 2]", "/a[@x > 2][@x < 1]"):
        assert Pattern(never).never, never
        assert covers("/q", never)
    # Of several elements, one may be greater and another one less.
    assert not Pattern("/a[x > 2][x < 1]").never


def test_prefixes_stand_for_their_namespaces() -> None:
    first = Pattern("/p:a//q:*", {"p": "urn:1", "q": "urn:2"})
    second = Pattern("/x:a/y:b", {"x": "urn:1", "y": "urn:2"})
    assert covers(first, second)
    assert not covers(second, first)
    assert not covers(Pattern("/p:a[p:b[1]]", {"p": "urn:1"}), Pattern("/p:a[p:b[1]]", {"p": "u"}))
    assert covers("/*", second)


def test_long_paths_are_decided_too() -> None:
    long = "/a" * 100
    assert covers("//a/*" + "//a" * 80, long)
    assert not covers("/a" * 90 + "/b", long)
    assert equivalent("//*" + "/*" * 70 + "/a", "/*" * 71 + "//a")


def test_both_ways_to_decide_agree() -> None:
    rng = Random(11)
    for _ in range(3000):
        p, q = (Pattern(drawn.linear(rng, 6)).spine for _ in range(2))
        assert linear_covers(p, q) == _long_covers(p, q)


def test_hard_questions_end_soon_and_safely() -> None:
    wide = "/a" + "[b//c or .//d/e or not(f)]" * 40
    assert covers(wide, wide)
    assert not covers(wide + "[g]", wide)
    stars = "".join("//a" + "/*" * (n % 4) for n in range(15))
    assert covers(stars, stars)


def test_a_cover_is_never_contradicted_by_the_engine() -> None:
    found = oracle.check(200_000, seed=3)
    assert found.violations == []
    assert found.covers > 100
    assert found.told > 100


def test_unknown_kinds_of_steps_are_covered_by_equal_statements_only() -> None:
    path = parse("/a/b/c")
    upwards = replace(path.steps[2], axis=Axis.PARENT)
    strange = Pattern(replace(path, steps=(*path.steps[:2], upwards)))
    assert strange.opaque
    assert covers(strange, strange)
    assert not covers("//*", strange)
    assert not covers(strange, "/a/b/c")
