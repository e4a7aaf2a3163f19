"""Tree to text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.xpath import Compare, Op, Path, XPathLimits, parse, to_text
from fmware.xpath.printer import number_text, quoted


@pytest.mark.parametrize(
    "expression",
    [
        "/a//b/@x",
        "//text()",
        "//p:*/@p:x",
        "//a[2][position() > 1]",
        "//a[.]",
        "//a[.//b = 'x' and (c or d) and not(e)]",
        "//a[b and c or d]",
        "//a[(b and c) and d]",
        "//a[(b or c) or d]",
        "//a[contains(b/@x, \"it's\") or starts-with(., '')]",
        "//a/@x[. >= -1.5]",
        "//a[.//local:b[c = 1]/local:d]/ancestor::local:e[p:f[g]]/@h",
        "//a[self::local:b]",
    ],
)
def test_the_short_spelling_prints_as_it_was(expression: str) -> None:
    assert to_text(parse(expression)) == expression


def test_relative_paths_print_too() -> None:
    (test,) = parse("//a[.//b/c = 1]").steps[0].predicates
    assert isinstance(test, Compare)
    assert to_text(test.path) == ".//b/c"
    assert to_text(Path(())) == "."


@given(st.floats(allow_nan=False))
def test_numbers_read_back_as_they_were(value: float) -> None:
    text = number_text(value)
    (test,) = parse(f"//a[. = {text}]", limits=XPathLimits()).steps[0].predicates
    assert isinstance(test, Compare)
    assert test.value == value
    assert not set(text) & set("eE")


def test_numbers_have_the_fewest_digits() -> None:
    shown = [number_text(n) for n in (0.0, 3.0, -3.0, 0.1, 1e21, 1e-7)]
    assert shown == ["0", "3", "-3", "0.1", "1" + "0" * 21, "0.0000001"]
    assert number_text(math.inf) == "1" + "0" * 309


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"])))
def test_strings_read_back_as_they_were(value: str) -> None:
    if "'" in value and '"' in value:
        with pytest.raises(ValueError, match="both kinds of quote"):
            quoted(value)
        return
    (test,) = parse(f"//a[. = {quoted(value)}]").steps[0].predicates
    assert test == Compare(Path(()), Op.EQ, value)


def test_there_is_no_literal_for_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        number_text(math.nan)
