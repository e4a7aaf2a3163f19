from __future__ import annotations

from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from fmware.datasets import Dtd, ParameterError, documents, dtd_names, news_documents
from fmware.datasets.errors import UnfillableAttributeError
from tests.datasets.support import assert_valid, carried, depth_of, validator

TRICKY = {
    "choice": "<!ELEMENT a (a | (b, a) | c)><!ELEMENT b (c)><!ELEMENT c EMPTY>",
    "deep": "<!ELEMENT a (b+)><!ELEMENT b (c, c)><!ELEMENT c (d | a)><!ELEMENT d (e)>"
    "<!ELEMENT e (#PCDATA)>",
    "mixed": "<!ELEMENT a (#PCDATA | a | b)*><!ELEMENT b EMPTY><!ATTLIST b x CDATA #REQUIRED>",
    "nested groups": "<!ELEMENT a ((b?, c)+ | (d, (e | f)?)*)><!ELEMENT b EMPTY>"
    "<!ELEMENT c (#PCDATA)><!ELEMENT d (a?)><!ELEMENT e (a)><!ELEMENT f EMPTY>",
    "references": "<!ELEMENT a (b*, c+)><!ELEMENT b EMPTY><!ELEMENT c EMPTY>"
    "<!ATTLIST b id ID #IMPLIED><!ATTLIST c one IDREF #REQUIRED many IDREFS #IMPLIED>",
    "attributes": "<!ELEMENT a (a*)><!ATTLIST a e (x | y | z1) #REQUIRED n NMTOKEN #REQUIRED "
    "ns NMTOKENS #REQUIRED f CDATA #FIXED 'one &amp; &#34;two&#34;' d (p | q) 'p' "
    "i ID #REQUIRED xml:lang CDATA #IMPLIED en ENTITY #IMPLIED>",
    "namespaces": "<!ELEMENT x:a (x:b*)><!ATTLIST x:a xmlns:x CDATA #FIXED 'urn:x'>"
    "<!ELEMENT x:b (#PCDATA)>",
    "carriage returns": "<!ELEMENT a (b,\r c?)>\r<!ELEMENT b (#PCDATA)>\r<!ELEMENT c (b)>\r",
    "endless but optional": "<!ELEMENT a (b?, c)><!ELEMENT b (b)><!ELEMENT c EMPTY>",
}

SHAPES: list[dict[str, Any]] = [
    {},
    {"repeats": 0, "attribute_probability": 0},
    {"repeats": 5, "attribute_probability": 1, "skew": 1.2, "depth": 5},
    {"size": 1},
    {"size": 3000, "depth": 12},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", dtd_names())
def test_documents_of_carried_dtds_are_valid(name: str, shape: dict[str, Any]) -> None:
    assert_valid(carried(name), documents(name, 25, seed=3, **shape))


@pytest.mark.parametrize("name", TRICKY)
@pytest.mark.parametrize("size", [None, 50, 2000])
def test_documents_of_tricky_dtds_are_valid_at_every_depth(name: str, size: int | None) -> None:
    dtd, oracle = Dtd.parse(TRICKY[name], name), validator(TRICKY[name])
    for depth in range(1, 13):
        assert_valid(oracle, documents(dtd, 8, seed=depth, depth=depth, size=size))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(), depth=st.integers(1, 12), size=st.none() | st.integers(1, 4000))
def test_any_seed_depth_and_size_gives_valid_news(seed: int, depth: int, size: int | None) -> None:
    limit = 4000 if size is None and depth > 8 else size
    assert_valid(carried("news"), documents("news", 2, seed=seed, depth=depth, size=limit))


@pytest.mark.parametrize("depth", range(5, 13))
def test_depth_is_honoured_where_the_dtd_allows_it(depth: int) -> None:
    made = [etree.fromstring(d) for d in documents("news", 40, depth=depth, size=4096)]
    assert max(map(depth_of, made)) <= depth


def test_the_same_seed_gives_the_same_bytes_and_a_longer_run_only_goes_on() -> None:
    made = list(news_documents(20, 5))
    assert made == list(news_documents(20, 5))
    assert made[:7] == list(news_documents(7, 5))
    assert made != list(news_documents(20, 6))
    assert len(set(made)) == 20


def test_news_documents_are_of_about_four_kilobytes() -> None:
    sizes = [len(document) for document in news_documents(300, 1)]
    assert 3500 < mean(sizes) < 4700
    assert min(sizes) > 2000
    assert max(sizes) < 8000


def test_size_is_approached() -> None:
    for size in (2000, 10_000, 50_000):
        assert mean(map(len, documents("auction", 20, size=size))) == pytest.approx(size, rel=0.2)


def test_repeats_bound_the_children() -> None:
    dtd = Dtd.parse("<!ELEMENT a (b*)><!ELEMENT b EMPTY>")
    for repeats in (0, 1, 4):
        found = {len(etree.fromstring(d)) for d in documents(dtd, 200, repeats=repeats)}
        assert found == set(range(repeats + 1))


def test_attribute_probability_is_the_share_of_optional_attributes() -> None:
    dtd = Dtd.parse("<!ELEMENT a EMPTY><!ATTLIST a x CDATA #IMPLIED y CDATA #REQUIRED>")
    made = [etree.fromstring(d) for d in documents(dtd, 2000, attribute_probability=0.3)]
    assert mean("x" in root.attrib for root in made) == pytest.approx(0.3, abs=0.05)
    assert all("y" in root.attrib for root in made)


def test_values_bound_the_domain_and_skew_prefers_some() -> None:
    dtd = Dtd.parse("<!ELEMENT a EMPTY><!ATTLIST a width CDATA #REQUIRED>")

    def drawn(skew: float) -> list[str]:
        return [
            str(etree.fromstring(d).get("width"))
            for d in documents(dtd, 3000, values=10, skew=skew)
        ]

    even, skewed = drawn(0), drawn(1.5)
    assert len(set(even)) <= 10
    assert even.count("1") / 3000 < 0.25
    assert skewed.count("1") / 3000 > 0.4


def test_references_go_to_elements_of_the_same_name_if_there_are_any() -> None:
    for document in documents("auction", 20, size=6000):
        root = etree.fromstring(document)
        assert all(
            ref.startswith("lot-") for ref in root.xpath("//lot.ref/@lot") if root.xpath("//lot")
        )
        assert set(root.xpath("//seller/@member")) <= set(root.xpath("//member/@id"))


def test_what_cannot_be_filled_is_refused() -> None:
    no_id = Dtd.parse("<!ELEMENT a EMPTY><!ATTLIST a r IDREF #REQUIRED>")
    with pytest.raises(UnfillableAttributeError, match="IDREF has no ID"):
        next(documents(no_id, 1))
    entity = Dtd.parse("<!ELEMENT a EMPTY><!ATTLIST a r ENTITY #REQUIRED>")
    with pytest.raises(UnfillableAttributeError, match="unparsed"):
        documents(entity, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"depth": 0},
        {"depth": 500},
        {"repeats": -1},
        {"attribute_probability": 1.5},
        {"values": 0},
        {"skew": -1},
        {"size": 0},
    ],
)
def test_parameters_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        documents("news", 1, **wrong)
