"""What statements have of XPath 2."""

from __future__ import annotations

import re
from random import Random

import pytest

from fmware.filtering import FilterEngine
from fmware.xpath import XPathError, plan
from fmware.xpath.regex import RegexError, compile_regex

MESSAGE = """<order date="2024-02-29" at="2024-03-01T12:00:00+02:00" country="DK" code="AB-123">
<name>Ångström STRASSE</name><item price="3"/><item price="5"/><note>one</note><note>two</note>
</order>""".encode()


def holds(text: str) -> bool:
    engine = FilterEngine()
    number = engine.subscribe(text)
    result = engine.filter(MESSAGE)
    assert not result.undecided
    assert (number in result) is bool(len(engine.filter_many([MESSAGE]).ids))
    return number in result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lower-case(//name) = 'ångström strasse'", True),
        ("//name[upper-case(.) = 'ÅNGSTRÖM STRASSE']", True),
        ("upper-case('straße') = 'STRASSE'", True),
        ("lower-case('İ') = 'i̇'", True),
        ("ends-with(/order/@code, '123')", True),
        ("ends-with(/order/@code, '12')", False),
        ("ends-with(/order/@code, '')", True),
        ("matches(/order/@code, '^[A-Z]{2}-\\d+$')", True),
        ("matches(/order/@code, '^[a-z]{2}-\\d+$')", False),
        ("matches(/order/@code, '^[a-z]{2}-\\d+$', 'i')", True),
        ("matches(/order/@none, '')", True),
        ("//name[matches(., '\\p{Lu}\\w+ (STR|RTS)A')]", True),
        ("//name[matches(., '[a-z-[aeiou]]{4}')]", True),
        ("string-join(//note, ', ') = 'one, two'", True),
        ("string-join(//none, ', ') = ''", True),
        ("xs:date(/order/@date) = xs:date('2024-02-29')", True),
        ("xs:date(/order/@date) < xs:date('2024-03-01')", True),
        ("xs:date(/order/@date) != xs:date('2024-02-29')", False),
        ("xs:date(/order/@country) != xs:date('2024-02-29')", False),
        ("xs:date('2023-02-29') = xs:date('2023-02-29')", False),
        ("xs:date('2024-01-01+14:00') < xs:date('2024-01-01')", True),
        ("xs:date('-0001-12-31') < xs:date('0001-01-01')", True),
        ("xs:dateTime(/order/@at) = xs:dateTime('2024-03-01T10:00:00Z')", True),
        ("xs:dateTime(/order/@at) > xs:dateTime('2024-03-01T09:59:59.999Z')", True),
        ("xs:dateTime('2024-02-29T24:00:00') = xs:dateTime('2024-03-01T00:00:00')", True),
        ("if (/order/@country = 'DK') then //item else //none", True),
        ("if (/order/@country = 'DE') then //item else //none", False),
        ("/order/@country = ('DE', 'DK')", True),
        ("/order/@country = ('DE', 'SE')", False),
        ("//item/@price = (5, 7)", True),
        ("some $i in //item satisfies $i/@price > 4", True),
        ("every $i in //item satisfies $i/@price > 4", False),
        ("every $i in //item satisfies $i/@price > 2 and $i/@price < 6", True),
    ],
)
def test_functions_of_xpath_2(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("//a[matches(., '(')]", "FMX134"),
        ("//a[matches(., '(a)\\1')]", "FMX134"),
        ("//a[matches(., 'a{2000}{2000}')]", "FMX134"),
        ("//a[matches(., 'a{99999}')]", "FMX134"),
        ("//a[matches(., @b)]", "FMX134"),
        ("xs:date(@a)", "FMX132"),
        ("xs:date(@a) = 3", "FMX132"),
        ("xs:date(@a) = xs:dateTime(@b)", "FMX132"),
        ("(1, 2)", "FMX132"),
        ("//a = (//b, 2)", "FMX133"),
        ("if (//a) then 1 else 'b'", "FMX132"),
        ("some $i in //a satisfies b = $i", "FMX135"),
        ("for $i in //a return $i", "FMX001"),
        ("//a[exists(b)]", "FMX103"),
        ("//a/replace(b, 'x', 'y')", "FMX103"),
    ],
)
def test_what_is_not_there_is_refused_with_its_character(text: str, code: str) -> None:
    with pytest.raises(XPathError) as refused:
        plan(text)
    assert refused.value.code == code


def test_patterns_match_as_those_of_python_do() -> None:
    random = Random(7)
    atoms = [
        "a",
        "b",
        "c",
        ".",
        "[ab]",
        "[^a]",
        "\\d",
        "(ab|c)",
        "(a|b|)",
        "^",
        "$",
        "\\s",
        "[a-c-[b]]",
    ]
    same = {"[a-c-[b]]": "[ac]"}
    texts = [
        "".join(random.choice("abc1 \n") for _ in range(random.randint(0, 8))) for _ in range(40)
    ]
    tried = 0
    for _ in range(150):
        parts = [
            (random.choice(atoms), random.choice(["", "", "", "?", "*", "+", "{2}", "{1,3}", "*?"]))
            for _ in range(random.randint(1, 4))
        ]
        pattern = "".join(part + (sign if part not in "^$" else "") for part, sign in parts)
        ours = "".join(
            same.get(part, part) + (sign if part not in "^$" else "") for part, sign in parts
        )
        oracle = re.compile(ours.replace("$", "\\Z").replace(".", "[^\\n\\r]"))
        engine = FilterEngine()
        engine.subscribe(f"//t[matches(., '{pattern}')]")
        found = engine.filter_many([f"<t>{text}</t>".encode() for text in texts])
        for place, text in enumerate(texts):
            begin, end = found.span(place, 0)
            assert (end > begin) is bool(oracle.search(text)), (pattern, text)
            tried += 1
    assert tried == 6000


def test_a_pattern_takes_time_by_the_length_of_the_text() -> None:
    engine = FilterEngine()
    engine.subscribe("matches(/t, '(a*)*(a|aa)*b$')")
    work = [engine.filter(b"<t>" + b"a" * size + b"</t>").work for size in (2_000, 4_000)]
    assert work[1] < 3 * work[0]


def test_patterns_are_bounded() -> None:
    with pytest.raises(RegexError):
        compile_regex("((a{50}){50}){50}")
