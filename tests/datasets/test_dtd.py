from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fmware.datasets import Dtd, DtdError, dtd_names, dtd_text, load_dtd
from fmware.datasets.errors import (
    AnyContentError,
    DtdSyntaxError,
    EndlessElementError,
    UndeclaredElementError,
    UnknownElementError,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_news_dtd_is_rich_and_recursive() -> None:
    news = load_dtd("news")
    assert len(news.elements) > 100
    assert len(news.recursive) > 20
    assert sum("." in name for name in news.elements) > 10
    assert sum(len(element.attributes) for element in news.elements.values()) > 300


@pytest.mark.parametrize("name", dtd_names())
def test_every_carried_dtd_has_one_root_and_every_element_ends(name: str) -> None:
    dtd = load_dtd(name)
    assert len(dtd.roots) == 1
    assert max(dtd.depths.values()) < 10
    assert dtd.below[dtd.root()] | {dtd.root()} == set(dtd.elements)


def test_content_models_are_flattened_into_particles() -> None:
    dtd = Dtd.parse("<!ELEMENT a (b, (c, d), (b | (c | d))*)><!ELEMENT b EMPTY>"
                    "<!ELEMENT c (#PCDATA)><!ELEMENT d (#PCDATA | b)*>")  # fmt: skip
    model = dtd.elements["a"].model
    assert model is not None
    assert [part.name or part.kind for part in model.parts] == ["b", "c", "d", "or"]
    assert [part.name for part in model.parts[-1].parts] == ["b", "c", "d"]
    assert [dtd.elements[name].content for name in "abcd"] == ["children", "empty", "text", "mixed"]
    assert dtd.elements["d"].children == ("b",)


def test_attributes_keep_kind_presence_default_and_values() -> None:
    dtd = Dtd.parse('<!ELEMENT a EMPTY><!ATTLIST a x (p | q) "p" y ID #REQUIRED '
                    'z CDATA #FIXED "1" xml:lang NMTOKEN #IMPLIED>')  # fmt: skip
    x, lang, y, z = dtd.elements["a"].attributes
    assert (lang.name, lang.kind, lang.presence) == ("xml:lang", "nmtoken", "implied")
    assert (x.kind, x.presence, x.default, x.values) == ("enumeration", "none", "p", ("p", "q"))
    assert (y.kind, y.presence) == ("id", "required")
    assert (z.presence, z.default) == ("fixed", "1")


def test_least_depth_takes_the_shallowest_alternative() -> None:
    dtd = Dtd.parse("<!ELEMENT a (a | b)><!ELEMENT b (c+)><!ELEMENT c (a*)>")
    assert dtd.depths == {"a": 3, "b": 2, "c": 1}
    assert dtd.recursive == {"a", "b", "c"}


def test_the_root_is_the_element_that_reaches_most() -> None:
    assert Dtd.parse("<!ELEMENT z EMPTY><!ELEMENT a (b)><!ELEMENT b EMPTY>").roots == ("a", "z")
    assert Dtd.parse("<!ELEMENT a (b?)><!ELEMENT b (a?)>").roots == ("a", "b")


def test_entities_are_kept() -> None:
    assert Dtd.parse('<!ENTITY uuml "&#252;"><!ELEMENT a EMPTY>').entities == {"uuml": "ü"}


def test_lines_may_end_in_carriage_returns(tmp_path: Path) -> None:
    old = tmp_path / "old.dtd"
    old.write_bytes(dtd_text("auction").replace(b"\n", b"\r"))
    assert load_dtd(old).elements == load_dtd("auction").elements


def test_prefixed_names_are_told_apart_from_their_declarations() -> None:
    dtd = Dtd.parse("<!ELEMENT x:a (x:b)><!ELEMENT x:b EMPTY>")
    assert dtd.elements["x:a"].children == ("x:b",)
    with pytest.raises(DtdError, match="cannot tell x:b and y:b apart"):
        Dtd.parse("<!ELEMENT a (x:b)><!ELEMENT x:b EMPTY><!ELEMENT y:b EMPTY>")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("<!ELEMENT a (b?)>", UndeclaredElementError, "'b' is used in a but not declared"),
        ("<!ELEMENT a (b?)><!ELEMENT b ANY>", AnyContentError, "'b' is declared ANY"),
        ("<!ELEMENT a (b)><!ELEMENT b (a)>", EndlessElementError, "no finite 'a' exists"),
        ("<!ELEMENT a (a | (b, a))><!ELEMENT b EMPTY>", EndlessElementError, "a;"),
    ],
)
def test_a_dtd_that_cannot_generate_is_refused(text: str, error: type[DtdError], says: str) -> None:
    with pytest.raises(error, match=says):
        Dtd.parse(text).root()


def test_what_is_not_reachable_does_no_harm() -> None:
    dtd = Dtd.parse("<!ELEMENT a EMPTY><!ELEMENT b ANY><!ELEMENT c (d)>")
    assert dtd.root("a") == "a"


def test_mistaken_names_and_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownElementError, match="declares no element 'nowhere'"):
        load_dtd("news").root("nowhere")
    with pytest.raises(DtdError, match="give a path or one of auction, bibliography"):
        load_dtd("nowhere")
    with pytest.raises(DtdSyntaxError, match="broken"):
        Dtd.parse("<!ELEMENT", "broken")
    with pytest.raises(DtdSyntaxError, match="no element is declared"):
        Dtd.parse("<!-- nothing -->")
    with pytest.raises(DtdError, match="no DTD file"):
        load_dtd(tmp_path)
