"""Character entities survive, and nothing else of a DTD does."""

from __future__ import annotations

import pytest

from fmware import labeling
from fmware.labeling import CHARACTER_ENTITIES, DoctypeRefused, EntityRefused, Reader

READER = Reader(entities=CHARACTER_ENTITIES)
BODY = (
    b"<dblp>\n<article key='a&ouml;' mdate=\"&eacute;&amp;\"><author>J&uuml;rgen M&#252;ller &amp; "
    b"&Aring;sa</author><title>&alpha;&lt;&beta;</title></article></dblp>"
)
DOCTYPES = {
    "none": b"",
    "system": b"<!DOCTYPE dblp SYSTEM 'absent.dtd'>\n",
    "public": b"<!DOCTYPE dblp PUBLIC '-//x//y' \"absent.dtd\">",
    "internal": b"<!DOCTYPE dblp [\n<!-- it's > -->\n<!ELEMENT a (b|c)*>\n"
    b"<?p ]>?><!ENTITY uuml '&#252;'>\n"
    b"<!ENTITY amp '&#38;#38;'>]>",
}


@pytest.mark.parametrize("doctype", DOCTYPES.values(), ids=DOCTYPES)
@pytest.mark.parametrize("encoding", ["UTF-8", "ISO-8859-1"])
def test_no_character_is_dropped(doctype: bytes, encoding: str) -> None:
    head = b"<?xml version='1.0' encoding='%s'?>\n" % encoding.encode()
    table = READER.read(head + doctype + BODY)
    assert table.string_value(0) == "\nJürgen Müller & Åsaα<β"
    (article,) = table.rows_of("article")
    assert table.value(int(article) + 1) == "aö"
    assert table.value(int(article) + 2) == "é&"


def test_every_known_entity() -> None:
    body = "".join(f"&{name};" for name in CHARACTER_ENTITIES)
    table = READER.read(f"<a b='{body}'>{body}</a>".encode())
    expected = "".join(CHARACTER_ENTITIES.values())
    assert table.value(2) == expected
    assert table.value(1) == expected


def test_the_documents_own_declaration_wins() -> None:
    document = (
        b"<!DOCTYPE a [<!ENTITY uuml 'ue'><!ENTITY uuml 'no'><!ENTITY x \"'\">]><a>&uuml;&x;</a>"
    )
    assert READER.read(document).value(1) == "ue'"


def test_values_are_in_the_documents_encoding() -> None:
    document = (
        "<?xml version='1.0' encoding='ISO-8859-1'?><!DOCTYPE a [<!ENTITY x 'ü'>]><a>&x;ü</a>"
    )
    assert READER.read(document.encode("latin-1")).value(1) == "üü"


@pytest.mark.parametrize("document", [b"<a>&nope;</a>", b"<a b='&nope;'/>", b"<a>&uuml;&nope;</a>"])
@pytest.mark.parametrize("doctype", DOCTYPES.values(), ids=DOCTYPES)
def test_what_nobody_declared_is_refused(document: bytes, doctype: bytes) -> None:
    with pytest.raises(EntityRefused, match="nope"):
        READER.read(doctype + document)


def test_what_looks_like_a_reference_is_text() -> None:
    document = b"<a><![CDATA[&uuml;&nope;]]><!-- &nope; --><?p &nope;?>&uuml;</a>"
    table = READER.read(document)
    assert [table.value(row) for row in range(len(table))] == ["", "&uuml;&nope;", "ü"]
    (record,) = labeling.read_stream(b"<r>" + document + b"</r>", record="a", reader=READER)
    assert [record.value(row) for row in range(len(record))] == ["", "&uuml;&nope;", "ü"]


def test_blank_text_next_to_an_entity_is_kept_whole() -> None:
    table = Reader(entities=CHARACTER_ENTITIES, blanks=False).read(b"<a> &uuml; </a>")
    assert table.value(1) == " ü "


@pytest.mark.parametrize(
    "declared",
    [
        b"<!ENTITY x '<b/>'>",
        b"<!ENTITY x '&#38;y;'>",
        b"<!ENTITY x '12345678901234567'>",
        b"<!ENTITY x '&#99999999999;'>",
        b"<!ENTITY % x 'y'>",
        b"<!ENTITY x SYSTEM 'y'>",
        b"<!ATTLIST a b CDATA 'c'>",
        b"<!NOTATION n SYSTEM 'x'>",
        b"%x;",
    ],
)
def test_more_than_characters_is_refused(declared: bytes) -> None:
    with pytest.raises(DoctypeRefused):
        READER.read(b"<!DOCTYPE a [" + declared + b"]><a/>")


def test_a_doctype_is_looked_at_once_for_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    declared = labeling.entities.declared

    def noted(text: str) -> dict[str, str]:
        seen.append(text)
        return declared(text)

    monkeypatch.setattr(labeling.entities, "declared", noted)
    for inner, good in ((b"<!ENTITY once '&#252;'>", 50), (b"<!ENTITY % once 'y'>", 0)):
        data = b"<!DOCTYPE r [" + inner + b"]><r>" + b"<a>&once;</a>" * 50 + b"</r>"
        rejects: list[labeling.Reject] = []
        seen.clear()
        tables = list(labeling.read_stream(data, record="a", reader=READER, rejects=rejects.append))
        assert (len(tables), len(rejects), len(seen)) == (good, 50 - good, 1)
        assert all(isinstance(reject.error, DoctypeRefused) for reject in rejects)
        assert len({id(reject.error) for reject in rejects}) == len(rejects)
