"""Identity rules: what they say, and which keys they find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from fmware import labeling
from fmware.labeling.errors import RuleError
from fmware.labeling.identity import IdentityRule, keys_of, parse_rules

LIBRARY = b"""<library xmlns:x="urn:x">
  <person id=" 7 "><name><first>Ada</first><last> Lovelace </last></name></person>
  <person id="8"><name><last>Babbage</last></name><x:id v="q"/></person>
  <person><name/></person>
  <isbn>12<!-- and --><b>34</b></isbn>
</library>"""


def found(document: bytes, *rules: str) -> list[tuple[str, bytes]]:
    table = labeling.read(document)
    return [
        (table.name(row), key.as_py().encode())
        for rows, keys in keys_of(table, parse_rules(rules))
        for row, key in zip(rows.tolist(), keys, strict=True)
    ]


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        ("person=@id", [("person", b"7"), ("person", b"8")]),
        ("person=name/last", [("person", b"Lovelace"), ("person", b"Babbage")]),
        ("name=last", [("name", b"Lovelace"), ("name", b"Babbage")]),
        ("isbn=.", [("isbn", b"1234")]),
        ("*=@id", [("person", b"7"), ("person", b"8")]),
        ("*=@v", [("{urn:x}id", b"q")]),
        ("person={urn:x}id/@v", [("person", b"q")]),
        ("{urn:x}id=@v", [("{urn:x}id", b"q")]),
        ("person=@nothing", []),
        ("library=name/last", []),
        ("nobody=@id", []),
    ],
)
def test_a_rule_finds_the_keys_it_says(rule: str, keys: list[tuple[str, bytes]]) -> None:
    assert found(LIBRARY, rule) == keys


def test_an_empty_key_is_none() -> None:
    assert found(b"<a k='' ><b/></a>", "a=@k", "a=b", "b=.") == []


def test_a_rule_counts_once() -> None:
    assert len(parse_rules(["a=@k", " a = @k ", IdentityRule("a", (), "k")])) == 1


@pytest.mark.parametrize("rule", ["a=@k", "a=b/c", "a=b/@c", "a=.", "*=@id", "{u}a={u}b/@{v}c"])
def test_rules_print_as_they_are_read(rule: str) -> None:
    assert str(IdentityRule.parse(rule)) == rule


@pytest.mark.parametrize("text", ["", "a", "a=", "=@k", "a=@", "a=/b", "a=b/", "a=@k/b", "a=//b"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match="article=@key"):
        IdentityRule.parse(text)


names = st.sampled_from("abc")


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> etree._Element:
    element = etree.Element(draw(names))
    for name in draw(st.lists(names, unique=True, max_size=2)):
        element.set(name, draw(st.sampled_from(["", "1", "x y"])))
    element.text = draw(st.sampled_from([None, " ", "t", " u "]))
    if depth:
        for child in draw(st.lists(trees(depth - 1), max_size=3)):
            element.append(child)
            child.tail = draw(st.sampled_from([None, "v"]))
    return element


@given(
    trees(),
    st.sampled_from(["*", "a", "b"]),
    st.lists(names, max_size=2),
    st.one_of(st.none(), names),
)
def test_keys_are_those_lxml_finds(
    tree: etree._Element, element: str, steps: list[str], attribute: str | None
) -> None:
    if element == "*" and not steps and attribute is None:
        attribute = "a"
    rule = IdentityRule(element, tuple(steps), attribute)
    wanted = []
    for owner in tree.iter(None if element == "*" else element):
        path = "/".join(steps) or "."
        for held in owner.xpath(path):
            text = held.get(attribute) if attribute else held.xpath("string()")
            if text and text.strip(" \t\r\n"):
                wanted.append((owner.getroottree().getpath(owner), text.strip(" \t\r\n")))
    table = labeling.read(etree.tostring(tree))
    root = table.root
    assert root is not None
    got = [
        (root.getroottree().getpath(table.element(row)), key.as_py())
        for rows, keys in keys_of(table, [rule])
        for row, key in zip(rows.tolist(), keys, strict=True)
    ]
    assert sorted(got) == sorted(wanted)
