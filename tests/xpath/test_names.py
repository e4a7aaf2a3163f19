"""Prefixes and namespaces."""

from __future__ import annotations

import pytest

from fmware.xpath import UndeclaredPrefix, check_prefixes, clark, parse

KNOWN = {"p": "urn:p"}


@pytest.mark.parametrize(
    ("prefix", "name", "full"),
    [
        (None, "a", "a"),
        (None, "*", "*"),
        ("p", "a", "{urn:p}a"),
        ("p", "*", "{urn:p}*"),
        ("xml", "lang", "{http://www.w3.org/XML/1998/namespace}lang"),
    ],
)
def test_clark_names(prefix: str | None, name: str, full: str) -> None:
    assert clark(prefix, name, KNOWN) == full


def test_a_declared_statement_passes() -> None:
    check_prefixes(parse("//p:a[@p:b and not(c/p:*)]/local:d/@xml:id"), KNOWN)


@pytest.mark.parametrize(
    "marked",
    ["//¦q:a", "//a/¦@q:b", "//a[not(b or ¦q:c = 3)]", "//a[contains(p:b[¦q:*], 'x')]"],
)
def test_an_undeclared_prefix_is_pointed_at(marked: str) -> None:
    expression = marked.replace("¦", "")
    with pytest.raises(UndeclaredPrefix) as caught:
        check_prefixes(parse(expression), KNOWN, expression)
    assert (caught.value.code, caught.value.at) == ("FMX301", marked.index("¦"))
    assert "known prefixes: p" in caught.value.hint


def test_without_the_text_there_is_no_caret() -> None:
    with pytest.raises(UndeclaredPrefix) as caught:
        clark("q", "a", {}, at=4)
    assert str(caught.value).splitlines() == [
        "FMX301 at character 5: the prefix is not declared: 'q'",
        "hint: declare a namespace for 'q'; known prefixes: none",
    ]
