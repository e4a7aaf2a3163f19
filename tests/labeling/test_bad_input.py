"""What strangers send: always a typed error with a place, soon, and in little memory."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from fmware import labeling
from fmware.labeling import (
    DoctypeRefused,
    EncodingError,
    EntityRefused,
    LimitExceeded,
    Limits,
    MalformedXML,
    Reader,
    ReadError,
)

ROOT = Path(__file__).parents[2]
LAUGHS = b"<!DOCTYPE a [<!ENTITY b0 'ha'>" + b"".join(
    b"<!ENTITY b%d '%s'>" % (i, b"&b%d;" % (i - 1) * 10) for i in range(1, 12)
)
DOCTYPES = {
    "billion laughs": LAUGHS + b"]><a>&b11;</a>",
    "quadratic": b"<!DOCTYPE a [<!ENTITY b '"
    + b"x" * 100_000
    + b"'>]><a>"
    + b"&b;" * 50_000
    + b"</a>",
    "external": b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "network": b"<!DOCTYPE a [<!ENTITY b SYSTEM 'http://127.0.0.1:9/x'>]><a>&b;</a>",
    "parameter": b"<!DOCTYPE a [<!ENTITY % b '<!ENTITY c \"d\">'>%b;]><a>&c;</a>",
    "cyclic": b"<!DOCTYPE a [<!ENTITY b '&c;'><!ENTITY c '&b;'>]><a>&b;</a>",
    "default attribute": b"<!DOCTYPE a [<!ATTLIST a b CDATA 'c'>]><a/>",
    "many": b"<!DOCTYPE a [" + b"<!ENTITY b 'c'>" * 500_000 + b"]><a>&b;</a>",
    "unread": b"<!DOCTYPE a [" + b"<" * 100_000 + b"]><a/>",
}
UTF7 = (
    b"<?xml version='1.0' encoding='UTF-7'?>+ADwAIQ-DOCTYPE a [ "
    b"+ADwAIQ-ENTITY b SYSTEM 'file:///etc/passwd'+AD4 ]+AD4<a>+ACY-b;</a>"
)

MALFORMED = {
    "empty": b"",
    "one byte": b"<",
    "blank": b" \n ",
    "nul": b"<a>\0</a>",
    "nul first": b"\0a<a/>",
    "undeclared prefix": b"<p:a/>",
    "undeclared prefix of an attribute": b"<a p:b=''/>",
    "attribute twice": b"<a b='' b=''/>",
    "attribute twice by namespace": b"<a xmlns:p='u' xmlns:q='u' p:b='' q:b=''/>",
    "junk behind": b"<a/>junk",
    "two roots": b"<a/><b/>",
    "junk before": b"junk<a/>",
    "mismatch": b"<a></b>",
    "unterminated doctype": b"<!DOCTYPE a [",
    "less-than in attribute": b"<a b='<'/>",
    "control character": b"<a>\x01</a>",
    "reference to no character": b"<a>&#0;</a>",
    "utf-16 marked twice": "\ufeff<a/>".encode("utf-16"),
    "utf-16 marked twice, declared": "\ufeff<?xml version='1.0'?><a/>".encode("utf-16"),
}
ENCODINGS = {
    "not utf-8": b"<a>\xff</a>",
    "cut utf-8": b"<a>\xe2\x82</a>",
    "overlong": b"<a>\xc0\x80</a>",
    "unknown": b"<?xml version='1.0' encoding='no-such-thing'?><a/>",
    "utf-16 cut": "<a/>".encode("utf-16")[:-1],
    "utf-16 surrogate": b"\xff\xfe<\0a\0>\0\x00\xd8<\0/\0a\0>\0",
}
HUGE = {
    "depth": b"<a>" * 1_000_000,
    "depth closed": b"<a>" * 1_000_000 + b"</a>" * 1_000_000,
    "name": b"<" + b"a" * 10_000_000 + b"/>",
    "attribute name": b"<a " + b"b" * 10_000_000 + b"=''/>",
    "attribute": b"<a b='" + b"x" * 9_000_000 + b"'/>",
    "attribute more": b"<a b='" + b"x" * 12_000_000 + b"'/>",
    "text": b"<a>" + b"x" * 12_000_000 + b"</a>",
    "comment": b"<a><!--" + b"x" * 12_000_000 + b"--></a>",
    "attributes": b"<a " + b" ".join(b"b%d=''" % i for i in range(100_000)) + b"/>",
}


@pytest.mark.parametrize("document", DOCTYPES.values(), ids=DOCTYPES)
@pytest.mark.parametrize("wide", [False, True])
def test_doctypes_are_refused(document: bytes, wide: bool) -> None:
    begin = b"<?xml version='1.0'?>\n <!--x-->"
    sent = (begin + document).decode().encode("utf-16") if wide else begin + document
    with pytest.raises(DoctypeRefused) as caught:
        labeling.read(sent)
    assert (caught.value.line, caught.value.column) == (2, 10)
    with pytest.raises(DoctypeRefused):
        labeling.read(sent, entities={"c": "x"})


def test_a_doctype_hidden_in_an_encoding_is_refused() -> None:
    with pytest.raises(ReadError):
        labeling.read(UTF7)
    with pytest.raises(ReadError):
        labeling.read(UTF7, entities=labeling.CHARACTER_ENTITIES)


@pytest.mark.parametrize("document", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("entities", [None, {"uuml": "ü"}], ids=["plain", "entities"])
def test_malformed(document: bytes, entities: dict[str, str] | None) -> None:
    kinds = (MalformedXML, DoctypeRefused) if document.startswith(b"<!D") else MalformedXML
    with pytest.raises(kinds) as caught:
        labeling.read(document, entities=entities, source="here")
    assert caught.value.source == "here"
    assert caught.value.line >= 1
    assert caught.value.column >= 1


@pytest.mark.parametrize("document", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("entities", [None, {"uuml": "ü"}], ids=["plain", "entities"])
def test_encodings(document: bytes, entities: dict[str, str] | None) -> None:
    with pytest.raises(EncodingError):
        labeling.read(document, entities=entities)


def test_utf16_is_read() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        text = "<?xml version='1.0' encoding='UTF-16'?><a b='ü'>名</a>"
        table = labeling.read(text.encode(encoding))
        assert (table.value(1), table.value(2)) == ("ü", "名")
    lying = "<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>".encode("utf-16")
    assert labeling.read(lying).value(1) == "ü"


def test_places() -> None:
    for document, place in (
        (b"<a>\n  <b></c></a>", (2, 10)),
        (b"<a>\n\n<b>&x;</b></a>", (3, 7)),
        (b"\n<!DOCTYPE a><a/>", (2, 1)),
    ):
        with pytest.raises(ReadError) as caught:
            labeling.read(document)
        assert (caught.value.line, caught.value.column) == place, document


def test_places_behind_a_doctype_are_the_documents() -> None:
    for doctype in (b"<!DOCTYPE a SYSTEM 'a.dtd'>", b"<!DOCTYPE a [\n<!ENTITY x 'y'>\n]>", b""):
        for body in (b"<a>&uuml;</b>", b"\n<a>&uuml;\n</b>", b"<a>&x;&none;</a>", b"<a></b>"):
            with pytest.raises(ReadError) as plain:
                Reader(entities={}).read(b"<a></b>")
            assert plain.value.column == 8
            document = b"<?xml version='1.0'?>" + doctype + body
            with pytest.raises(ReadError) as caught:
                labeling.read(document, entities={"uuml": "ü", "x": "y"})
            at = (
                document.index(b"</b>") + 5
                if b"</b>" in document
                else document.index(b"&none;") + 6
            )
            line = document.count(b"\n", 0, at) + 1
            assert caught.value.line == line
            assert caught.value.column == pytest.approx(at - document.rfind(b"\n", 0, at), abs=6)


def test_truncation_at_every_byte() -> None:
    document = "<?xml version='1.0'?><!--x--><a b='ü'>t&amp;<![CDATA[c]]><?p?><d/>ü</a>".encode()
    reader, careful = Reader(), Reader(entities=labeling.CHARACTER_ENTITIES)
    for end in range(len(document)):
        for one in (reader, careful):
            with pytest.raises((MalformedXML, EncodingError)):
                one.read(document[:end])
            assert len(one.read(document)) == 5


LIMITS = [
    ("nodes", Limits(nodes=3), b"<a>\n<b/> <c/></a>", (2, 1)),
    ("nodes", Limits(nodes=3), b"<a b='' c='' d=''/>", (1, 1)),
    ("depth", Limits(depth=2), b"<a><b>\n<c/></b></a>", (2, 1)),
    ("attribute", Limits(attribute=3), b"<a b='123'><c d='1234'/></a>", (1, 12)),
    ("text", Limits(text=3), b"<a>123<b/>\n<c>12<![CDATA[34]]></c></a>", (2, 1)),
    ("bytes", Limits(bytes=10), b"<a>1234567</a>", (1, 1)),
]


@pytest.mark.parametrize(("name", "limits", "document", "place"), LIMITS)
@pytest.mark.parametrize("values", [True, False])
def test_limits(
    name: str, limits: Limits, document: bytes, place: tuple[int, int], values: bool
) -> None:
    with pytest.raises(LimitExceeded, match=f"Limits.{name}") as caught:
        Reader(limits=limits, values=values).read(document)
    assert caught.value.limit == name
    assert caught.value.allowed == getattr(limits, name)
    assert (caught.value.line, caught.value.column) == place


def test_at_the_limit_is_within_it() -> None:
    for nodes, document in ((3, b"<a><b/><c/><!-- x --></a>"), (2, b"<a>x<?p?></a>"), (1, b"<a/>")):
        assert len(labeling.read(document, limits=Limits(nodes=nodes))) == nodes
    assert len(labeling.read(b"<a><b>xyz</b></a>", limits=Limits(depth=2, text=3))) == 3
    assert len(labeling.read(b"<a/>", limits=Limits(bytes=4))) == 1
    deep = b"<a>" * 1000 + b"</a>" * 1000
    assert len(labeling.read(deep, limits=Limits(depth=1000))) == 1000


@pytest.mark.parametrize("change", [{"bytes": 0}, {"depth": 5000}, {"nodes": 2**31}, {"text": -1}])
def test_limits_out_of_range(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Limits(**change)


@pytest.mark.parametrize("name", HUGE)
def test_huge(name: str) -> None:
    expected = {"comment": ReadError, "attributes": ReadError}.get(name, LimitExceeded)
    reader = Reader()
    try:
        reader.read(HUGE[name])
    except ReadError as error:
        assert isinstance(error, expected), repr(error)  # noqa: PT017
    assert len(reader.read(b"<a/>")) == 1


_BOUNDED = """
import json, resource, sys, time
from fmware import labeling
from tests.labeling.test_bad_input import DOCTYPES, HUGE, MALFORMED, ENCODINGS
found = {}
for careful in (False, True):
    reader = labeling.Reader(entities=labeling.CHARACTER_ENTITIES if careful else None)
    for group in (DOCTYPES, MALFORMED, ENCODINGS, HUGE):
        for name, document in group.items():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            begin = time.process_time()
            try:
                reader.read(document)
            except labeling.ReadError:
                pass
            seconds = time.process_time() - begin
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            found[f"{name} {careful}"] = (seconds, grown)
            assert len(reader.read(b"<a/>")) == 1
print(json.dumps(found))
"""


def test_bad_input_is_cheap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BOUNDED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name, (seconds, megabytes) in json.loads(done.stdout).items():
        assert seconds < 0.5, name
        assert megabytes < 100, name


def test_errors_can_be_pickled() -> None:
    for document in (b"<a>", b"<!DOCTYPE a><a/>", b"<a>&x;</a>", b"<a>\xff</a>", b"<a>" * 999):
        with pytest.raises(ReadError) as caught:
            labeling.read(document, source="here")
        copy = pickle.loads(pickle.dumps(caught.value))
        assert type(copy) is type(caught.value)
        assert str(copy) == str(caught.value)
        assert vars(copy) == vars(caught.value)
        assert str(copy).startswith("here: line ")


def test_an_undeclared_entity_is_never_dropped() -> None:
    for document in (b"<a>&uuml;</a>", b"<a b='&uuml;'/>"):
        with pytest.raises(EntityRefused, match="entities="):
            labeling.read(document)
