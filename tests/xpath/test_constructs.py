"""Every construct of XPath 1.0 is accepted, and answered as lxml answers it."""

from __future__ import annotations

from pathlib import Path

from lxml import etree

from fmware.filtering import FilterEngine
from fmware.xpath import plan

LIST = Path(__file__).parent / "constructs.txt"
NAMESPACES = {"p": "urn:p"}
MESSAGE = b"""<a xmlns:p="urn:p" x="1" xml:lang="en"><b x="1">1</b><b>2<c><d/></c></b><!--n-->
<?t u?><p:a p:x="1"><a y="2">1<c/></a></p:a><a xml:id="k">10<b/><b/></a></a>"""
DIFFERENT = {"//a/namespace::p:*", "//a/namespace::p:a"}
"""libxml2 lets these find something; a namespace has no namespace of its own."""


def constructs() -> list[str]:
    lines = LIST.read_text(encoding="utf-8").split("\n")
    texts = [line.replace("\\t", "\t") for line in lines if line and not line.startswith("# ")]
    assert len(texts) >= 400
    return texts


def test_every_construct_is_accepted_and_answered() -> None:
    engine = FilterEngine()
    texts = constructs()
    numbers = engine.subscribe_many(texts, namespaces=NAMESPACES)
    found = engine.filter(MESSAGE)
    assert not found.undecided
    ask = etree.XPathDocumentEvaluator(
        etree.fromstring(MESSAGE).getroottree(), namespaces=NAMESPACES
    )
    for text, number in zip(texts, numbers, strict=True):
        expected = ask(f"boolean(/self::node()[boolean({text})])")
        assert (number in found) is (expected and text not in DIFFERENT), text


def test_most_paths_need_no_expression_behind_their_guard() -> None:
    native = sum(plan(text).exact for text in constructs())
    assert native > len(constructs()) // 3
