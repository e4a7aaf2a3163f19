"""What may be published: every type gives the same answer, anything else one typed error."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any

import pytest

from fmware import (
    FMwareError,
    LimitExceeded,
    Limits,
    MalformedXML,
    MessageUnreadable,
    Middleware,
    UnknownMessage,
    read,
)
from fmware.corpus import build_index
from fmware.filtering import ForeignTable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

XML = b"<sale><item k='1'>\xc3\xbc</item><other/></sale>"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("corpus")
    (place / "stock.xml").write_text("<stock><item k='1'><city>Ulm</city></item></stock>")
    build_index(place / "stock.xml", place / "index", record="item", identity=["item=@k"])
    return place / "index"


@pytest.fixture
def middleware(index: Path) -> Iterator[Middleware]:
    with Middleware(index, read_limits=Limits(bytes=1_000)) as made:
        made.subscribe("//item", name="value", returns=["message", "value", "fragment"])
        made.subscribe("//item/local:city", name="city", returns="value")
        yield made


class Body(bytes):
    """Bytes with something more."""


class Text(str):
    """Text with something more."""

    __slots__ = ()


def test_every_type_of_message_has_the_same_matches(middleware: Middleware, tmp_path: Path) -> None:
    (tmp_path / "sale.xml").write_bytes(XML)
    messages: list[Any] = [
        XML,
        Body(XML),
        XML.decode(),
        Text(XML.decode()),
        bytearray(XML),
        memoryview(XML),
        memoryview(bytes(reversed(XML)))[::-1],
        memoryview(array.array("B", XML)),
        tmp_path / "sale.xml",
        middleware.reader.read(XML),
    ]
    results = middleware.publish_batch(messages)
    for message, result in zip(messages, results, strict=True):
        assert not result.errors, message
        assert result.statements == ["city", "value"]
        assert result.matches == results[0].matches, type(message)
        assert middleware.publish(message).matches == result.matches
    value, city = results[0].matches
    assert (value.value, value.fragment) == ("ü", "<item k='1'>ü</item>".replace("'", '"').encode())
    assert city.local is not None
    assert city.local.value == "Ulm"


def test_what_was_published_may_change_afterwards(middleware: Middleware) -> None:
    body = bytearray(XML)
    results = middleware.publish_batch([body, memoryview(body)])
    body[:] = b"<" * len(body)
    for result in results:
        assert result.matches[0].fragment == '<item k="1">ü</item>'.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "utf-16", "EBCDIC-CP-US"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_text_has_no_encoding_whatever_it_declares(
    middleware: Middleware, encoding: str, mark: str
) -> None:
    text = f"{mark}<?xml version='1.0' encoding='{encoding}' standalone='yes'?>\n{XML.decode()}"
    result = middleware.publish(text)
    assert not result.errors
    assert result.matches[0].value == "ü"


def test_what_looks_like_a_declaration_further_on_is_kept(middleware: Middleware) -> None:
    inside = "<?xml version='1.0'?>"
    result = middleware.publish(f"<item><![CDATA[{inside}]]></item>")
    assert result.matches[0].value == inside


def test_an_error_has_the_line_it_has_in_the_text(middleware: Middleware) -> None:
    (error,) = middleware.publish("<?xml version='1.0' encoding='latin-1'?>\n<a>\n<b></a>").errors
    assert isinstance(error, MalformedXML)
    assert error.line == 3


def released() -> memoryview:
    view = memoryview(XML)
    view.release()
    return view


UNKNOWN = [7, 1.5, None, object(), [XML], {"a": 1}, XML.__len__, Exception, released()]


@pytest.mark.parametrize("thing", UNKNOWN, ids=lambda each: type(each).__name__)
def test_anything_else_is_one_error_of_its_own_result(middleware: Middleware, thing: Any) -> None:
    first, unknown, last = middleware.publish_batch([XML, thing, XML])
    assert first.matches == last.matches
    assert len(first.matches) == 2
    assert not first.errors
    assert not last.errors
    (error,) = unknown.errors
    assert isinstance(error, UnknownMessage)
    assert isinstance(error, TypeError)
    assert (unknown.table, [*unknown.matches], unknown.statements) == (None, [], [])
    if not isinstance(thing, memoryview):
        assert str(error).endswith(f"or NodeTable, not {type(thing).__name__}")


def test_files_that_cannot_be_read(middleware: Middleware, tmp_path: Path) -> None:
    (tmp_path / "long.xml").write_bytes(b"<a>" + b" " * 1_000 + b"</a>")
    (tmp_path / "full.xml").write_bytes(b"<a>" + b" " * 993 + b"</a>")
    (tmp_path / "bad.xml").write_bytes(b"<a>")
    names = ["none.xml", "", "nul\0.xml", "x" * 300, "long.xml", "bad.xml", "full.xml"]
    results = middleware.publish_batch([XML, *(tmp_path / name for name in names)])
    errors = [each.errors for each in results]
    assert errors[0] == errors[-1] == []
    assert [type(error) for own in errors[1:-1] for error in own] == [
        *[MessageUnreadable] * 4,
        LimitExceeded,
        MalformedXML,
    ]
    (missing,), (folder,) = errors[1:3]
    assert isinstance(missing, MessageUnreadable)
    assert isinstance(missing, OSError)
    assert missing.path == tmp_path / "none.xml"
    assert str(missing) == f"{tmp_path / 'none.xml'}: No such file or directory"
    assert "directory" in str(folder)
    assert "long.xml" in str(errors[5][0])


def test_an_error_in_place_of_a_message_is_its_error(middleware: Middleware) -> None:
    lost = OSError("the line went dead")
    good, bad = middleware.publish_batch([XML, lost])
    assert len(good.matches) == 2
    assert bad.errors == [lost]


# --- tables ---------------------------------------------------------------------------------


def test_a_table_that_was_read_before_statements_came(middleware: Middleware) -> None:
    """Its names are looked up again, so that statements with new names see them."""
    table = middleware.reader.read(XML)
    middleware.subscribe("//other", name="later", returns="fragment")
    for _ in range(2):
        result = middleware.publish(table)
        assert not result.errors
        assert result.statements == ["city", "later", "value"]
        assert result.matches == middleware.publish(XML).matches
    assert result.table is not None
    assert [*result.table.records()] == [*middleware.reader.read(XML).records()]


def test_a_table_of_another_reader_is_an_error(middleware: Middleware) -> None:
    good, foreign = middleware.publish_batch([XML, read(XML)])
    assert len(good.matches) == 2
    (error,) = foreign.errors
    assert isinstance(error, ForeignTable)
    assert isinstance(error, FMwareError)
