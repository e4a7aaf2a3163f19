"""Schemas: intersection and covering on their documents, against brute force."""

from __future__ import annotations

import re
from random import Random

import pytest

from fmware.routing import Pattern, SchemaError, read_dtd, read_xsd, reduce
from tests.routing import drawn
from tests.routing.schemas import Documents, Words, dtd

OPEN = b"<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>"
LOOP = b"""<xs:element name='a'><xs:complexType><xs:group ref='g'/></xs:complexType></xs:element>
<xs:group name='g'><xs:sequence><xs:group ref='g'/></xs:sequence></xs:group>"""
RECURSIVE = b"""<!ELEMENT a (b, c?)> <!ELEMENT b (d | e)*> <!ELEMENT c EMPTY> <!ELEMENT d (b?)>
<!ELEMENT e (#PCDATA)> <!ATTLIST c x CDATA #REQUIRED y CDATA #IMPLIED>"""


@pytest.mark.parametrize(
    ("covering", "covered", "expected"),
    [
        ("/a/b", "/a/c", True),
        ("/a/c", "/a/b", False),
        ("//c/@x", "/a/c", True),
        ("//c/@y", "/a/c", False),
        ("/a/b/d", "//d/b/e", True),
        ("//b/*/b", "//d/b", True),
        ("//d/b", "//b//b/e", True),
        ("//e/text()", "//e", False),
        ("/a[b]", "/a/c", False),
        ("//b", "/a[c]/b[e = 'x']", True),
    ],
)
def test_required_content_counts(covering: str, covered: str, expected: bool) -> None:
    schema = read_dtd(RECURSIVE)
    assert schema.covers(covering, covered) is expected
    assert schema.counterexample(covering, covered) is None or not expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("//d/b/d/b/e", True),
        ("//e/b", False),
        ("/b", False),
        ("//c/@x", True),
        ("//c/@z", False),
        ("//c/text()", False),
        ("//e/text()", True),
        ("/a[c/@q]/b", False),
        ("/a/b[. = 'x']", True),
    ],
)
def test_what_cannot_match_is_found(statement: str, expected: bool) -> None:
    assert read_dtd(RECURSIVE).intersects(statement) is expected


def test_random_schemas_are_decided_as_by_brute_force() -> None:
    """Recursive ones included; a document too deep to be drawn is the only excuse."""
    rng = Random(8)
    decided = positive = excused = recursive = 0
    for _ in range(150):
        try:
            schema = read_dtd(dtd(rng).encode(), root="a")
        except SchemaError:
            continue
        documents = Documents(schema, depth=5).every
        if documents is None:
            continue
        recursive += bool(schema.recursive)
        paths = [drawn.linear(rng, 3, leaves=False) for _ in range(14)]
        found = {path: _matched(path, documents) for path in paths}
        for path in found:
            assert schema.intersects(path) or not found[path], path
            way = schema.word(Pattern(path).spine)
            if way is not None and not found[path]:
                excused += 1
                assert len(way) + 3 > 5, (path, schema.name)
        for one in found:
            for other in found:
                said, true = schema.covers(one, other), found[other] <= found[one]
                assert true or not said, (one, other)
                decided += 1
                positive += said
                excused += true and not said
    assert recursive > 20
    assert decided > 4000
    assert positive > 1000
    assert excused < decided / 50


def _matched(path: str, documents: set[Words]) -> set[Words]:
    text = "".join(
        ("(?:/[a-z])*" if gap == "//" else "") + f"/{'[a-z]' if name == '*' else name}"
        for gap, name in re.findall(r"(//?)([a-z*])", path)
    )
    wanted = re.compile(text)
    return {d for d in documents if any(wanted.match("/" + "/".join(word)) for word in d)}


def test_an_xml_schema_keeps_places_apart() -> None:
    schema = read_xsd(
        b"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns="urn:o"
              targetNamespace="urn:o" elementFormDefault="qualified">
          <xs:element name="order" type="Order"/>
          <xs:complexType name="Base"><xs:sequence>
            <xs:element name="item" maxOccurs="unbounded"><xs:complexType>
              <xs:sequence><xs:element name="name" type="xs:string"/></xs:sequence>
              <xs:attribute name="id" use="required"/></xs:complexType></xs:element>
          </xs:sequence></xs:complexType>
          <xs:complexType name="Order"><xs:complexContent><xs:extension base="Base">
            <xs:sequence><xs:element name="note" minOccurs="0"><xs:complexType><xs:sequence>
              <xs:element name="name" minOccurs="0"><xs:complexType><xs:sequence>
                <xs:element ref="order" minOccurs="0"/></xs:sequence></xs:complexType></xs:element>
            </xs:sequence></xs:complexType></xs:element></xs:sequence>
            <xs:attribute name="day"/></xs:extension></xs:complexContent></xs:complexType>
        </xs:schema>"""
    )

    def ready(text: str) -> Pattern:
        return Pattern(text, {"o": "urn:o"})

    assert schema.intersects(ready("//o:note/o:name/o:order/o:item/@id"))
    assert not schema.intersects(ready("//o:item/o:name/o:order"))
    assert schema.covers(ready("/o:order/o:item/@id"), ready("//o:note"))
    assert not schema.covers(ready("/o:order/@day"), ready("//o:note"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"<!ELEMENT a (a)>", "no finite document"),
        (b"<!ELEMENT a (b)>", "no finite document"),
        (b"nonsense", "dtd"),
    ],
)
def test_a_dtd_that_cannot_be_used_says_why(source: bytes, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read_dtd(source)


@pytest.mark.parametrize(
    "source",
    [
        b"<a/>",
        b"<a",
        OPEN + b"</xs:schema>",
        OPEN + b"<xs:element name='a' type='T'/></xs:schema>",
        OPEN + b"<xs:include schemaLocation='http://x/y.xsd'/></xs:schema>",
        OPEN + LOOP + b"</xs:schema>",
    ],
)
def test_an_xml_schema_that_cannot_be_used_is_refused(source: bytes) -> None:
    with pytest.raises(SchemaError):
        read_xsd(source)


def test_reduce_says_who_does_whose_work() -> None:
    found = reduce(
        [
            ("all", "//b"),
            ("same", "//b"),
            ("spelt", "//b[. = 'x' and d]"),
            ("never", "/@x"),
            ("nowhere", "//zzz"),
            ("deep", "/a/b/d"),
            ("c", "/a/c"),
            ("x", "//c/@x"),
        ],
        schema=read_dtd(RECURSIVE),
    )
    assert found.kept == ["all"]
    by = {each.name: (each.reason, each.by, each.where) for each in found.findings}
    assert by["same"] == ("equal", "all", "anywhere")
    assert by["never"] == ("unsatisfiable", None, "anywhere")
    assert by["nowhere"] == ("unsatisfiable", None, "schema")
    assert by["spelt"] == by["deep"] == ("redundant", "all", "anywhere")
    assert by["x"][2] == by["c"][2] == "schema"
    assert all(each.why for each in found.findings)


@pytest.mark.parametrize("seed", range(3))
def test_what_reduce_keeps_covers_the_rest(seed: int) -> None:
    rng = Random(seed)
    schema = read_dtd(RECURSIVE)
    texts = {drawn.linear(rng, 3).replace("b", rng.choice("bcde")) for _ in range(80)}
    found = reduce([(text, text) for text in texts], schema=schema)
    assert len(found.kept) + len(found.findings) == len(texts)
    for each in found.findings:
        if each.by is None:
            assert not schema.intersects(each.text)
        else:
            assert each.by in found.kept
            assert schema.covers(each.by, each.text)
    for one in found.kept:
        assert not any(schema.covers(other, one) for other in found.kept if other != one)
