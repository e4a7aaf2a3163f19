"""Errors point at the character, name what was found and say what to write instead."""

from __future__ import annotations

import pickle

import pytest

from fmware.errors import FMwareError
from fmware.xpath import (
    CODES,
    UndeclaredPrefix,
    UnsupportedXPath,
    XPathError,
    XPathLimitExceeded,
    XPathSyntaxError,
    parse,
)

# Expression, with ¦ before the character the error points at; code; part of the message.
UNSUPPORTED = [
    ("¦a/b", "FMX101", "begin with / or //"),
    ("¦@a", "FMX101", "begin with / or //"),
    ("¦.//a", "FMX101", "begin with / or //"),
    ("¦text()", "FMX101", "begin with / or //"),
    ("¦(//a)[1]", "FMX101", "begin with / or //"),
    ("//a ¦= 3", "FMX101", "//a[@b = 3]"),
    ("//a ¦and //b", "FMX101", "predicate"),
    ("//a ¦| //b", "FMX102", "statement of its own"),
    ("//a[b ¦| c]", "FMX102", "or"),
    ("//a[b ¦| c = 3]", "FMX102", "or"),
    ("¦count(//a)", "FMX103", "one path"),
    ("//a[¦count(b) > 1]", "FMX103", "[b]"),
    ("//a[¦last()]", "FMX103", "from the front"),
    ("//a[position() = ¦last()]", "FMX103", "from the front"),
    ("//a[¦normalize-space(b) = 'x']", "FMX103", "starts-with"),
    ("//a[¦string-length(b) > 3]", "FMX103", "contains"),
    ("//a[¦p:f(b)]", "FMX103", "p:f()"),
    ("//a[¦true()]", "FMX103", "leave the condition out"),
    ("//a[contains(¦'x', 'x')]", "FMX103", "not a path"),
    ("//a[contains(b, ¦c)]", "FMX103", "not a string"),
    ("//a/¦id('x')", "FMX103", "as a step"),
    ("//a/¦following-sibling::b", "FMX104", "supported are / (child)"),
    ("//a/¦descendant-or-self::b", "FMX104", "descendant-or-self::"),
    ("//a[¦preceding::b]", "FMX104", "preceding::"),
    ("//a/¦self::b", "FMX104", "cross into the corpus"),
    ("//a/¦parent::*", "FMX104", "/parent::local:name"),
    ("//a[¦ancestor::b]", "FMX104", "ancestor::"),
    ("//a//¦parent::local:b", "FMX104", "/parent::"),
    ("//a/local:b/¦parent::local:c", "FMX104", "cross into the corpus"),
    ("//a/local:b[¦self::local:c]", "FMX104", "cross into the corpus"),
    ("//a[b ¦+ 1 = 2]", "FMX105", "literal"),
    ("//a[b ¦- 1 = 2]", "FMX105", "'-'"),
    ("//a[b ¦* 2 = 2]", "FMX105", "'*'"),
    ("//a[b ¦div 2 = 2]", "FMX105", "'div'"),
    ("//a[3 ¦mod 2]", "FMX105", "'mod'"),
    ("//a[¦-b = 2]", "FMX105", "'-'"),
    ("//a[@b = ¦$x]", "FMX106", "literal"),
    ("¦$x/a", "FMX106", "begin with / or //"),
    ("//a[¦/b]", "FMX107", ".//b"),
    ("//a[b and ¦//c = 3]", "FMX107", ".//b"),
    ("//a[b = ¦c]", "FMX108", "a number or a string"),
    ("//a/¦node()", "FMX109", "write *"),
    ("//a/¦comment()", "FMX109", "comment()"),
    ("//a[¦processing-instruction('x')]", "FMX109", "processing-instruction()"),
    ("//a/@b/¦c", "FMX110", "last step"),
    ("//a/text()/¦@c", "FMX110", "last step"),
    ("/¦descendant::a[2]", "FMX111", "//a[2] counts among siblings"),
    ("//a[¦descendant::b[not(position() = 2)]]", "FMX111", "siblings"),
    ("//@a[¦b]", "FMX112", "[. = 'x']"),
    ("//a/text()[¦1]", "FMX112", "a position"),
    ("//a[¦'x']", "FMX113", "a string"),
    ("//a[b and ¦3]", "FMX113", "a number"),
    ("//a[not(¦3)]", "FMX113", "a number"),
    ("//a[¦3 = 3]", "FMX113", "both sides are literals"),
    ("//a[¦position()]", "FMX113", "position() = 2"),
    ("//a[¦position() = 'x']", "FMX114", "position() = 2"),
    ("//a[¦position() = b]", "FMX114", "position() = 2"),
    ("//a[b = 1 ¦= 2]", "FMX114", "a second comparison"),
    ("//a[¦not(b) = 1]", "FMX114", "a condition"),
    ("//a[(b)¦/c]", "FMX115", "parentheses"),
    ("//a[(b)¦[1]]", "FMX115", "parentheses"),
    ("¦/", "FMX116", "/*"),
    ("//a/¦..", "FMX117", "//a[b]/c"),
    ("//a[¦../b]", "FMX117", "//a[b]/c"),
    ("//a/¦./b", "FMX117", "beginning of a path"),
    ("//¦local:a/local:b", "FMX120", "messages first"),
    ("/¦self::local:a", "FMX120", "messages first"),
    ("//a/local:b/¦c", "FMX121", "write local:c"),
    ("//a/local:b/¦p:c", "FMX121", "write local:c"),
    ("//a[local:b/¦c]", "FMX121", "write local:c"),
    ("//a/¦@local:b", "FMX122", "self::local:*/@b"),
]

SYNTAX = [
    ("¦", "FMX004", "begin with / or //"),
    ("  ¦", "FMX004", "empty"),
    ("//¦", "FMX002", "a step"),
    ("//a/¦", "FMX002", "a step"),
    ("//a[¦", "FMX002", "a path or a literal"),
    ("//a[b¦", "FMX002", "']'"),
    ("//a[b and¦", "FMX002", "a path or a literal"),
    ("//a[¦]", "FMX001", "a path or a literal"),
    ("//a[b¦)]", "FMX001", "']'"),
    ("//a[(b¦]", "FMX001", "')'"),
    ("//a[not(¦)]", "FMX001", "a path or a literal"),
    ("//a[contains(b¦)]", "FMX001", "','"),
    ("//a ¦b", "FMX001", "'b'"),
    ("//a¦]", "FMX001", "']'"),
    ("/ ¦/a", "FMX001", "a step"),
    ("//a/¦3", "FMX001", "a step"),
    ("//a/@¦3", "FMX001", "an attribute name"),
    ("//a/@¦text()", "FMX001", "an attribute name"),
    ("//a/p:¦", "FMX002", "the other half"),
    ("//a/p:¦ b", "FMX001", "the other half"),
    ("//a/p ¦:b", "FMX001", "':'"),
    ("//a/p:b¦:c", "FMX001", "':'"),
    ("//a/*¦(", "FMX001", "'('"),
    ("//a/¦*:b", "FMX001", "prefix:*"),
    ("//a[.¦[b]]", "FMX001", "'.'"),
    ("//a[@b = ¦'x]", "FMX003", "closing quote"),
    ("//a[@b = 1¦e5]", "FMX006", "all of its digits"),
    ("//a[@b = '¦\x00']", "FMX005", "U+0000"),
    ("//a¦!", "FMX001", "'!'"),
]


@pytest.mark.parametrize(("marked", "code", "message"), UNSUPPORTED + SYNTAX)
def test_refusals(marked: str, code: str, message: str) -> None:
    with pytest.raises(XPathError) as caught:
        parse(marked.replace("¦", ""))
    error = caught.value
    assert (error.code, error.at) == (code, marked.index("¦"))
    assert message in str(error)
    assert type(error) is CODES[code][0]


def test_the_message_has_a_caret_under_the_character() -> None:
    with pytest.raises(UnsupportedXPath) as caught:
        parse("//a[b = c]")
    assert str(caught.value).splitlines() == [
        "FMX108 at character 9: paths can be compared with literals only",
        "  //a[b = c]",
        "          ^",
        "hint: write one side as a number or a string",
    ]


@pytest.mark.parametrize("before", [0, 10, 100])
@pytest.mark.parametrize("after", [0, 10, 100])
def test_a_long_expression_is_cut_around_the_caret(before: int, after: int) -> None:
    with pytest.raises(XPathError) as caught:
        parse("/a" * (before + 1) + "\t|" + "/b" * after)
    _, line, caret = str(caught.value).splitlines()[:3]
    assert line[caret.index("^")] == "|"
    assert len(line) < 80


def test_errors_are_value_errors_of_fmware() -> None:
    assert issubclass(XPathError, FMwareError)
    assert issubclass(XPathError, ValueError)


def test_errors_travel_between_processes() -> None:
    with pytest.raises(XPathError) as caught:
        parse("//a[b = c]")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is UnsupportedXPath
    assert (str(copy), copy.at, copy.hint) == (
        str(caught.value),
        caught.value.at,
        caught.value.hint,
    )


def test_a_code_tells_its_class() -> None:
    classes = {"0": XPathSyntaxError, "1": UnsupportedXPath, "2": XPathLimitExceeded}
    for code, (kind, _) in CODES.items():
        assert kind is classes.get(code[3], UndeclaredPrefix)
